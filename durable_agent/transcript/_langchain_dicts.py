"""LangChain's messages where it is not loaded: dicts of what their fields were.

Such a dict has the ``type`` of its message and no role. Chat models take them as they
are (``langchain_core.messages.utils.convert_to_messages``), but for the type of chunks.
"""

from __future__ import annotations

from typing import Any, Final

from durable_agent.transcript._calls import parsed
from durable_agent.transcript._fields import get, items, text_of
from durable_agent.transcript._text import clean, scrubbed, sendable

_PLAIN: Final = ("human", "ai", "system", "tool", "function")
#: The types of messages, and those of chunks: which message each becomes.
_TYPES: Final = dict(zip(_PLAIN, _PLAIN, strict=True)) | {
    f"{name}MessageChunk": plain
    for name, plain in zip(
        ("Human", "AI", "System", "Tool", "Function"), _PLAIN, strict=True
    )
}
#: What a chat model would take for arguments of the provider.
_UNSENT: Final = frozenset({"usage_metadata", "tool_call_chunks", "chunk_position"})


def is_told(thing: Any) -> bool:
    """Whether this is the dict of a message."""
    if not isinstance(thing, dict) or "role" in thing:
        return False
    kind = thing.get("type")
    known = isinstance(kind, str) and kind in _TYPES
    return known and isinstance(thing.get("content"), str | list)


def is_chunk(thing: Any) -> bool:
    """Whether this is the dict of a piece of a message."""
    return is_told(thing) and thing["type"] not in _PLAIN


def told(message: dict[str, Any]) -> dict[str, Any]:
    """Return the dict of a message as chat models take it."""
    kept = {n: v for n, v in message.items() if n not in _UNSENT}
    fresh: dict[str, Any] = scrubbed({**kept, "type": _TYPES[message["type"]]})
    return fresh


def compared(message: dict[str, Any]) -> dict[str, Any]:
    """Return the dict of a message without members that say nothing."""
    return {n: v for n, v in told(message).items() if n == "content" or v}


def text_message(text: str) -> dict[str, Any]:
    """Return the model's message of a text."""
    return {"type": "ai", "content": clean(text)}


def result(
    kind: str, key: str, *, text: str, name: str, failed: bool
) -> dict[str, Any]:
    """Return the message that answers the call of a tool or of a legacy function."""
    if kind == "function":
        return {"type": kind, "content": text, "name": key}
    status = "error" if failed else "success"
    named = {"name": name} if name else {}
    return {
        "type": kind,
        "content": text,
        "tool_call_id": key,
        **named,
        "status": status,
    }


def own_result(value: Any, key: str) -> dict[str, Any] | None:
    """Return a value that is a tool message, or has it as a command, for that call.

    None where it has none that can be sent.
    """
    own = value if _is_result(value) else None
    if own is None and isinstance(value, dict):
        update = value.get("update")
        held = items(get(update, "messages")) if isinstance(update, dict) else []
        fitting = (m for m in held if _is_result(m) and m.get("tool_call_id") == key)
        own = next(fitting, None)
    content = None if own is None else sendable(own["content"])
    if own is None or not all(isinstance(p, str | dict) for p in content or ()):
        return None
    if content is None:
        return None
    return {**own, "type": "tool", "content": content, "tool_call_id": key}


def _is_result(value: Any) -> bool:
    return is_told(value) and _TYPES[value["type"]] == "tool"


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the dict of the message that pieces amount to.

    Calls are those of the pieces' ``tool_call_chunks``, by their index.
    """
    message: dict[str, Any] = {"type": "ai", "content": _content(chunks)}
    for name in ("additional_kwargs", "response_metadata", "usage_metadata"):
        whole: dict[str, Any] = {}
        for chunk in chunks:
            held = chunk.get(name)
            whole = _added(whole, held) if isinstance(held, dict) else whole
        message |= {name: whole} if whole else {}
    calls, invalid = _calls(chunks)
    message |= {"tool_calls": calls} if calls else {}
    message |= {"invalid_tool_calls": invalid} if invalid else {}
    id_ = next((id_ for chunk in chunks if (id_ := text_of(chunk.get("id")))), None)
    return message | ({"id": id_} if id_ else {})


def _content(chunks: list[dict[str, Any]]) -> str | list[Any]:
    contents = [chunk["content"] for chunk in chunks]
    if not any(isinstance(content, list) and content for content in contents):
        return "".join(content for content in contents if isinstance(content, str))
    parts: list[Any] = []
    at: dict[Any, int] = {}
    for part in (p for c in contents for p in (c if isinstance(c, list) else [c])):
        index = get(part, "index") if isinstance(part, dict) else None
        if isinstance(index, int | str) and index in at:
            parts[at[index]] = _added(parts[at[index]], part)
        elif part != "":
            if isinstance(index, int | str):
                at[index] = len(parts)
            parts.append(part)
    return parts


def _added(whole: dict[str, Any], piece: dict[str, Any]) -> dict[str, Any]:
    """Return a dict with a piece: texts and counts add up, names stay."""
    fresh = dict(whole)
    for name, value in piece.items():
        known = fresh.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            fresh[name] = _added(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            fresh[name] = [*known, *value]
        elif name in ("type", "index", "id") and known is not None:
            continue
        elif isinstance(known, str) and isinstance(value, str):
            # A name of the model, say, is told again with each piece.
            fresh[name] = known if known == value else known + value
        elif type(known) is int and type(value) is int:
            fresh[name] = known + value
        elif value is not None:
            fresh[name] = value
    return fresh


def _calls(
    chunks: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls of pieces, and those whose arguments are no JSON object."""
    whole: list[dict[str, Any]] = []
    at: dict[Any, int] = {}
    for piece in (p for c in chunks for p in items(c.get("tool_call_chunks"))):
        index = get(piece, "index")
        index = index if isinstance(index, int | str) else None
        if not isinstance(piece, dict):
            continue
        if index is None or index not in at:
            at[index] = len(whole)
            whole.append({"name": "", "args": "", "id": None})
        call = whole[at[index]]
        call["name"] += text_of(piece.get("name")) or ""
        call["args"] += text_of(piece.get("args")) or ""
        call["id"] = call["id"] or piece.get("id")
    calls: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for call in whole:
        args = parsed(call["args"])
        if args is None:
            invalid.append({**call, "error": None, "type": "invalid_tool_call"})
        else:
            calls.append({**call, "args": args, "type": "tool_call"})
    return calls, invalid
