"""Objects of LangChain: found among what is loaded, never imported."""

from __future__ import annotations

import sys
from typing import Any

from durable_agent.transcript._fields import get, items
from durable_agent.transcript._langchain_dicts import is_told


def loaded(name: str) -> Any:
    """Return what ``langchain_core.messages`` has; None where it is not loaded."""
    return getattr(sys.modules.get("langchain_core.messages"), name, None)


def is_a(name: str, thing: Any) -> bool:
    """Whether something is an object of that class of messages."""
    known = loaded(name)
    return known is not None and isinstance(thing, known)


def is_message(thing: Any) -> bool:
    """Whether something is a message, or the dict of one."""
    return is_a("BaseMessage", thing) or is_told(thing)


def message_of(thing: Any) -> Any | None:
    """Return the message that a response is or holds.

    Of a graph's stream, the chunk beside what is told about it.
    """
    if isinstance(thing, list):
        return None
    for _ in range(4):
        if thing is None or is_message(thing):
            return thing
        # A result of a batch has a list of generations for each of its prompts.
        held = items(thing) or items(get(thing, "generations"))
        thing = held[0] if held else get(thing, "message")
    return thing if is_message(thing) else None


def whole(message: Any) -> Any:
    """Return a chunk as a message; what is none, as it is."""
    if not is_a("BaseMessageChunk", message):
        return message
    convert = loaded("message_chunk_to_message")
    try:
        return message if convert is None else convert(message)
    except Exception:  # noqa: BLE001 - a chunk of somebody else's class
        return message


def tool_message_of(value: Any, key: str) -> Any | None:
    """Return the tool message that a value is, or that a graph's command has."""
    if is_a("ToolMessage", value):
        return value
    update = None if isinstance(value, dict) else get(value, "update")
    told = items(get(update, "messages")) if isinstance(update, dict) else []
    fitting = (m for m in told if is_a("ToolMessage", m) and m.tool_call_id == key)
    return next(fitting, None)


def as_object(message: Any) -> Any:
    """Return the message that a dict, tuple or text becomes; all else as it is."""
    convert = loaded("convert_to_messages")
    if convert is None or is_a("BaseMessage", message):
        return message
    try:
        return convert([message])[0]
    except Exception:  # noqa: BLE001 - it is no message
        return message
