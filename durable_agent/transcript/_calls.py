"""Tool calls: what tells those of a turn apart, and their arguments."""

from __future__ import annotations

import json
from typing import Any


class Numbering:
    """Tokens that tell the calls of a turn apart."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def token(self, id_: str | None) -> str:
        """Return the id, or the base of a number where it is missing or repeated."""
        base = id_ or ""
        self._seen[base] = self._seen.get(base, 0) + 1
        return base if base and self._seen[base] == 1 else f"{base}#{self._seen[base]}"


def parsed(given: Any) -> dict[str, Any] | None:
    """Return arguments as an object; None where they are none. Blank is none given."""
    if isinstance(given, str):
        given = read_json(given) if given.strip() else {}
    return given if isinstance(given, dict) else None


def read_json(text: str) -> Any:
    """Return the value of a JSON text, ints of any size; the text if it is no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
