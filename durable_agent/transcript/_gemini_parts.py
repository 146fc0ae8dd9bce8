"""Gemini's contents and parts: JSON by its names or the proto's, and SDK objects."""

from __future__ import annotations

import base64
from typing import Any, Final

from durable_agent.transcript._fields import get, items
from durable_agent.transcript._objects import plain

#: Who is not the model; two of them are roles of results, of old.
USERS: Final = ("user", "function", "tool")
#: What a part can be: the one of these that it has.
_DATA: Final = (
    *("text", "inline_data", "function_call", "function_response", "file_data"),
    *("executable_code", "code_execution_result", "tool_call", "tool_response"),
)
#: Objects of the application or of a tool, whose names are not the provider's.
_FREE: Final = frozenset({"args", "response", "partMetadata"})


def camel(name: str) -> str:
    """Return the JSON name of a field."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def member(thing: Any, name: str) -> Any:
    """Return a field by the proto's name or by its JSON name."""
    return get(thing, name, camel(name))


def put(thing: Any, name: str, value: Any) -> Any:
    """Return a copy that has a field of this value; objects stay of their class."""
    if isinstance(thing, dict):
        return {**thing, (name if name in thing else camel(name)): value}
    copy = get(thing, "model_copy")
    return copy(update={name: value}) if callable(copy) else thing


def is_part(thing: Any) -> bool:
    """Whether this looks like a part; messages of others type theirs."""
    if isinstance(thing, dict):
        own = any(name in thing or camel(name) in thing for name in _DATA)
        return own and "type" not in thing and "kind" not in thing
    return hasattr(type(thing), "model_fields") and any(
        name in type(thing).model_fields for name in ("function_call", "inline_data")
    )


def is_content(thing: Any) -> bool:
    """Whether this looks like a content: parts, and who says them."""
    parts = get(thing, "parts")
    role = get(thing, "role")
    known = role in (None, "model", *USERS)
    return known and isinstance(parts, list | tuple) and all(map(is_part, parts))


def parts_of(content: Any) -> list[Any]:
    """Return the parts of a content."""
    return items(get(content, "parts"))


def says(part: Any) -> bool:
    """Whether a part holds more than an empty text."""
    return get(part, "text") not in (None, "") or any(
        member(part, name) is not None for name in (*_DATA[1:], "thought_signature")
    )


def is_filled(part: Any) -> bool:
    """Whether a part holds anything; the provider refuses one that does not."""
    return says(part) or get(part, "text") is not None


def with_parts(content: Any, parts: list[Any]) -> Any:
    """Return a content with other parts."""
    return put(content, "parts", parts)


def as_json(tree: Any) -> Any:
    """Return contents as plain JSON by its names, bytes in one alphabet of base64."""
    tree = plain(tree)
    if isinstance(tree, bytes):
        return base64.urlsafe_b64encode(tree).decode().rstrip("=")
    if isinstance(tree, list | tuple):
        return list(map(as_json, tree))
    if not isinstance(tree, dict):
        return tree
    known = {camel(n) if isinstance(n, str) else n: v for n, v in tree.items()}
    return {
        name: _free(name, value) for name, value in known.items() if value is not None
    }


def _free(name: Any, value: Any) -> Any:
    if name in _FREE:
        return value
    if name in ("thoughtSignature", "data") and isinstance(value, str):
        return value.replace("+", "-").replace("/", "_").rstrip("=")
    return as_json(value)
