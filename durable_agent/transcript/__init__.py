"""Provider messages, and the tool calls and results in them.

A dialect finds the assistant turn in a recorded response, its tool calls, and says how
a result is put. Everything here is a function from values to values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_agent.transcript import openai_chat
from durable_agent.transcript._types import ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ToolCall",
    "assistant_message",
    "continues",
    "is_final_chunk",
    "request_messages",
    "tool_calls",
    "tool_message",
]


def request_messages(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request; None if there are none.

    They are the argument of that name, else the first list of messages.
    """
    found = bound.get("messages")
    if isinstance(found, list):
        return found
    for value in bound.values():
        if isinstance(value, list) and value and all(map(_is_message, value)):
            return value
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            messages: list[Any] = value["messages"]
            return messages
    return None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


def assistant_message(response: Any) -> Any | None:
    """Return the assistant turn of a response as a plain message; None: none seen."""
    return openai_chat.assistant_message(response)


def tool_calls(response: Any) -> list[ToolCall]:
    """Return the tool calls of a response, in order; empty where none are seen."""
    message = assistant_message(response)
    return [] if message is None else openai_chat.tool_calls(message)


def calls_of(message: Any) -> list[ToolCall]:
    """Return the tool calls of an assistant message."""
    return openai_chat.tool_calls(message)


def tool_message(call: ToolCall, text: str) -> Any:
    """Return the message that answers a tool call."""
    return openai_chat.tool_message(call, text)


def is_final_chunk(chunk: Any) -> bool:
    """Whether this chunk of a stream says that the answer is complete."""
    return openai_chat.is_final_chunk(chunk)


def continues(recorded: list[Any], request: list[Any]) -> bool:
    """Whether a request's messages begin with the recorded conversation.

    Cache marks, and message ids that frameworks draw anew, are not compared.
    """
    if not recorded or len(request) < len(recorded):
        return False
    return all(
        openai_chat.comparable(old) == openai_chat.comparable(new)
        for old, new in zip(recorded, request, strict=False)
    )
