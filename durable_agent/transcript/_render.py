"""How a value or an error becomes the text of a tool result."""

from __future__ import annotations

import json
from typing import Any

import orjson

from durable_agent import values
from durable_agent.errors import RecordedToolError


def result_text(value: Any) -> str:
    """Return the text of a tool's value: strings as they are, all else as JSON.

    Lone surrogates stay; a dialect replaces them when it puts the text.
    """
    if isinstance(value, str):
        return str(value)
    plain = values.to_plain(value)
    try:
        return orjson.dumps(plain, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        # Lone surrogates, and ints beyond 64 bits.
        return json.dumps(plain, default=str, ensure_ascii=False, separators=(",", ":"))


def error_text(error: BaseException) -> str:
    """Return the text of a tool's error; at least the name of its type."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - user code
        said = ""
    if isinstance(error, RecordedToolError):
        # Of a type that is not loaded here.
        name, said = error.type_name.rpartition(".")[2], error.text
    else:
        name = type(error).__name__
    return f"{name}: {said}" if said.strip() else name
