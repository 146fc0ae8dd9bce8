"""Fields of what providers send, be they members of dicts or attributes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def get(thing: Any, *names: str) -> Any:
    """Return the first field of these names that is not None, of a dict or object."""
    for name in names:
        if isinstance(thing, Mapping):
            value = thing.get(name)
        else:
            try:
                value = getattr(thing, name, None)
            except Exception:  # noqa: BLE001 - a property of the user's
                value = None
        if value is not None:
            return value
    return None


def items(value: Any) -> list[Any]:
    """Return the items of a list or tuple; of anything else none."""
    return list(value) if isinstance(value, list | tuple) else []


def text_of(value: Any) -> str | None:
    """Return a text that says something; None for all else."""
    return value if isinstance(value, str) and value else None


def kind_of(thing: Any) -> str:
    """Return the ``type`` that something says it is; "" for none."""
    return text_of(get(thing, "type")) or ""


def is_error(chunk: Any) -> bool:
    """Whether a chunk of a stream says that the answer broke off."""
    return kind_of(chunk) == "error" or bool(get(chunk, "error"))


def count(thing: Any, *names: str) -> int:
    """Return a number of tokens; 0 where none is stated."""
    value = get(thing, *names)
    known = isinstance(value, int) and not isinstance(value, bool)
    return value if known else 0
