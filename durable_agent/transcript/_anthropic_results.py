"""Values that are results, or the content of one, in Anthropic's own form."""

from __future__ import annotations

from typing import Any, Final

from durable_agent.transcript._fields import get
from durable_agent.transcript._text import sendable

#: What a result may hold beside text: the field that each must have, and its kind.
_PARTS: Final[dict[str, tuple[str, type]]] = {
    "text": ("text", str),
    "image": ("source", dict),
    "document": ("source", dict),
    "search_result": ("source", str),
    "tool_reference": ("tool_name", str),
}


def is_blank(block: Any) -> bool:
    """Whether a block is a text that says nothing."""
    if get(block, "type") != "text":
        return False
    text = get(block, "text")
    return not isinstance(text, str) or not text.strip()


def own_result(value: Any) -> dict[str, Any] | None:
    """Return a value that is a ``tool_result`` which the provider takes, else None.

    Blank texts are left out, and an error says something. Blocks of unknown kinds may
    be of a later version, and stay.
    """
    if not isinstance(value, dict) or value.get("type") != "tool_result":
        return None
    content = value.get("content", "")
    if isinstance(content, list):
        if not all(_is_part(part, unknown=True) for part in content):
            return None
        kept = [part for part in content if not is_blank(part)]
        value = value if len(kept) == len(content) else {**value, "content": kept}
        says = bool(kept)
    elif isinstance(content, str):
        says = bool(content.strip())
    else:
        return None
    found: dict[str, Any] | None = sendable(value)
    if found is not None and found.get("is_error") and not says:
        return {**found, "content": "error"}
    return found


def result_parts(value: Any) -> list[Any] | None:
    """Return a value that is the content of a result already; blank texts left out."""
    if not isinstance(value, list) or not all(map(_is_part, value)):
        return None
    return sendable([part for part in value if not is_blank(part)]) or None


def _is_part(part: Any, *, unknown: bool = False) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS:
        return unknown and isinstance(kind, str)
    name, wanted = _PARTS[kind]
    return isinstance(part.get(name), wanted)
