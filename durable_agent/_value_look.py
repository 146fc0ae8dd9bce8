"""Recorded values shown where their types are not loaded: JSON, and lossy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from durable_agent._value_plain import Json

#: Tags whose body is a list that stands for itself.
_LISTS: Final = frozenset({"$tuple", "$set", "$frozenset"})
#: In the place of a node that was referred to.
_TAKEN: Final = object()
_FIELDS_SET: Final = "__pydantic_fields_set__"
_EXTRA: Final = "__pydantic_extra__"


def look(raw: bytes) -> Json:
    """Return encoded JSON without its tags; no type is needed and nothing is run.

    Objects become their fields: of models those that were set, as their own dump.
    Of what has no such view, the encoded form is shown.
    """
    node = orjson.loads(raw)
    try:
        return _look(node, [])
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        return node  # not what a writer of ours encodes


def _look(node: Any, deep: list[Any]) -> Json:
    if isinstance(node, list):
        return [_look(item, deep) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        tag, body = next(iter(node.items()))
        if tag.startswith("$"):
            return _tagged(tag, body, deep)
    return {name: _look(value, deep) for name, value in node.items()}


def _tagged(tag: str, body: Any, deep: list[Any]) -> Json:
    if tag in _LISTS:
        return [_look(item, deep) for item in body]
    match tag:
        case "$obj":
            return _object(body, deep)
        case "$dict" | "$ordered":
            return {str(_look(key, deep)): _look(value, deep) for key, value in body}
        case "$default" | "$deque" | "$via":
            return _look(body[1], deep)
        case "$enum":
            return _look(body[2], deep)
        case "$str":
            return _text(body)
        case "$datetime" | "$time" | "$path":
            return _look(body[0] if tag != "$path" else body[1], deep)
        case "$deep":
            return _look(body[0], list(body))
        case "$ref" if 0 < body < len(deep) and deep[body] is not _TAKEN:
            # Each node is referred to once, or a short text could stand for a huge one.
            deep[body], node = _TAKEN, deep[body]
            return _look(node, deep)
        case (
            "$decimal"
            | "$uuid"
            | "$date"
            | "$float"
            | "$bytes"
            | "$bytearray"
            | "$function"
        ):
            return _look(body, deep)
        case _:
            return {tag: body}


def _object(body: dict[str, Any], deep: list[Any]) -> Json:
    if "value" in body:
        return _look(body["value"], deep)
    state = body.get("state")
    if not isinstance(state, dict):
        return _look(state, deep)
    fields = {n: v for n, v in state.items() if not n.startswith("__pydantic_")}
    named = _look(state.get(_FIELDS_SET), deep)
    if isinstance(named, list):
        # What it is stays said, also where that is a default.
        fields = {n: v for n, v in fields.items() if n in named or _is_kind(n, v)}
    extra = state.get(_EXTRA)
    if isinstance(extra, dict):
        fields |= extra
    return {name: _look(value, deep) for name, value in fields.items()}


def _is_kind(name: str, value: Any) -> bool:
    return name == "type" and isinstance(value, str)


def _text(escaped: str) -> str:
    r"""Return text whose lone surrogates were written as ``\udc80``."""
    return "\\".join(map(_unescape, escaped.split("\\\\")))


def _unescape(part: str) -> str:
    first, *rest = part.split("\\u")
    return first + "".join(chr(int(piece[:4], 16)) + piece[4:] for piece in rest)
