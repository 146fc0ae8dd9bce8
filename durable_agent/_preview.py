"""Short texts of recorded values for tables: bounded in length and in work.

A preview is one line. What cannot be printed is escaped, so it holds no control
character, no line end, no mark that turns the direction of writing, and no lone
surrogate. Redacted arguments are shown as ``<redacted>``. Only as much of a value is
looked at as is shown; no type is needed, and nothing of the value's is run.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import orjson

from durable_agent import values

#: Levels of a value that are looked at: a record may refer to itself.
_DEPTH: Final = 60
_ELLIPSIS: Final = "…"
#: Tags of edited requests that stand for what is elsewhere; see ``events``.
_ELSEWHERE: Final = frozenset({"$keep", "$part", "$from", "$text", "$join"})
#: Tags whose bodies are lists of values, with the brackets that show them.
_LISTS: Final = {
    "$tuple": "()",
    "$set": "{}",
    "$frozenset": "{}",
    "$deque": "[]",
    "$edit": "[]",
}
_PAIRS: Final = frozenset({"$dict", "$ordered"})
#: Tags of what is written as text.
_TEXTS: Final = frozenset(
    {"$str", "$datetime", "$time", "$date", "$path", "$decimal", "$uuid", "$float"}
)
_PYDANTIC: Final = "__pydantic_"


def printable(text: str, limit: int) -> str:
    """Return a text on one line, what cannot be printed escaped, cut to ``limit``."""
    whole = text[: limit + 1]
    if not whole.isprintable():
        whole = "".join(c if c.isprintable() else _escaped(c) for c in whole)
    return whole if len(whole) <= limit else whole[: limit - 1] + _ELLIPSIS


def preview(node: Any, limit: int) -> str:
    """Return a recorded value, given as type-tagged JSON, much as Python shows it."""
    return _written(lambda out: out.value(node, 0), limit)


def preview_arguments(args: Any, limit: int, *, newest: bool = False) -> str:
    """Return recorded arguments as ``name=value, ...``.

    With ``newest``, of a list only the last item is shown and the others counted: of
    a model request, that is what is new.
    """
    if not isinstance(args, dict):
        return ""
    return _written(lambda out: out.arguments(args, newest), limit)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class _FullError(Exception):
    """As much is written as fits."""


def _written(write: Any, limit: int) -> str:
    out = _Writer(limit)
    with contextlib.suppress(_FullError):
        write(out)
    return printable("".join(out.parts), limit)


class _Writer:
    """Writes until a little more than ``limit`` characters are there."""

    def __init__(self, limit: int) -> None:
        self.parts: list[str] = []
        self._left = limit + 1

    def put(self, text: str) -> None:
        self.parts.append(text[: self._left])
        self._left -= len(text)
        if self._left <= 0:
            raise _FullError

    def arguments(self, args: dict[str, Any], newest: bool) -> None:
        for place, (name, value) in enumerate(args.items()):
            self.put(f"{', ' if place else ''}{name[: self._left]}=")
            items = _items(value) if newest else None
            if items is None:
                self.value(value, 0)
            else:
                self._last_of(items)

    def _last_of(self, items: list[Any]) -> None:
        before = sum(_count(item) for item in items[:-1])
        self.put(f"[{_ELLIPSIS}{before} more, " if before else "[")
        for item in items[-1:]:
            self.value(item, 1)
        self.put("]")

    def value(self, node: Any, depth: int) -> None:
        if depth > _DEPTH:
            self.put(_ELLIPSIS)
        elif isinstance(node, str):
            self.put(repr(node[: self._left]))
        elif isinstance(node, list):
            self._list(node, "[]", depth)
        elif isinstance(node, dict):
            tag = next(iter(node)) if len(node) == 1 else ""
            if tag.startswith("$"):
                self._tagged(tag, node[tag], depth)
            else:
                self._pairs(node.items(), depth)
        else:
            self.put(repr(node))

    def _list(self, items: list[Any], brackets: str, depth: int) -> None:
        self.put(brackets[0])
        for place, item in enumerate(items):
            if place:
                self.put(", ")
            self.value(item, depth + 1)
        self.put(brackets[1])

    def _pairs(self, pairs: Any, depth: int) -> None:
        self.put("{")
        for place, (key, value) in enumerate(pairs):
            if place:
                self.put(", ")
            self.value(key, depth + 1)
            self.put(": ")
            self.value(value, depth + 1)
        self.put("}")

    def _tagged(self, tag: str, body: Any, depth: int) -> None:
        try:
            if tag in _ELSEWHERE:
                self.put(_ELLIPSIS)
            elif tag in _LISTS:
                items = body[1] if tag == "$deque" else body
                self._list(items, _LISTS[tag], depth)
            elif tag in _PAIRS:
                self._pairs(body, depth)
            elif tag in _TEXTS:
                self.put(str(values.look(orjson.dumps({tag: body}))))
            else:
                self._special(tag, body, depth)
        except (LookupError, TypeError, ValueError, AttributeError):
            # Not what this version writes.
            self.put(f"<{tag[1:]}>")

    def _special(self, tag: str, body: Any, depth: int) -> None:
        match tag:
            case "$obj":
                self._object(body, depth)
            case "$error":
                first = body[0]
                text = str(first["text"])[: self._left]
                self.put(_short(first["type"]) + (f": {text}" if text else ""))
            case "$enum":
                self.put(f"{_short(body[0])}.{body[1]}")
            case "$default" | "$via":
                self.value(body[1], depth + 1)
            case "$deep":
                self.value(body[0], depth + 1)
            case "$int":
                self.put(str(body))
            case _:
                # Also $redacted: of what it hides not even the hash is shown.
                self.put(f"<{tag[1:]}>")

    def _object(self, body: dict[str, Any], depth: int) -> None:
        if "value" in body:
            self.value(body["value"], depth + 1)
            return
        self.put(f"{_short(body['type'])}(")
        state = body.get("state") or {}
        fields = [(n, v) for n, v in state.items() if not n.startswith(_PYDANTIC)]
        for place, (name, value) in enumerate(fields):
            self.put(f"{', ' if place else ''}{name[: self._left]}=")
            self.value(value, depth + 1)
        self.put(")")


def _short(type_: Any) -> str:
    """Return the name of a type without its module."""
    named = type_["origin"] if isinstance(type_, dict) else type_
    return str(named).rpartition(":")[2].rpartition(".")[2]


def _items(value: Any) -> list[Any] | None:
    """Return the items of a list of more than one, or of one stored as an edit."""
    if isinstance(value, dict) and len(value) == 1 and "$edit" in value:
        value = value["$edit"]
    if isinstance(value, list) and len(value) > 1:
        return value
    return None


def _count(item: Any) -> int:
    """Return for how many items of a list this stands."""
    match item:
        case {"$keep": [int(first), int(end)]}:
            return end - first
        case _:
            return 1
