"""Pydantic AI's messages: objects of ``pydantic_ai``, which is never imported here.

A response is a ``ModelResponse``; it is sent back as the very object. Results of its
calls are parts of the requests directly after it, before anything else is said there.
Where Pydantic AI is not loaded, recorded objects are not told apart from others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._calls import Numbering, parsed
from durable_agent.transcript._fields import count, get, items, text_of
from durable_agent.transcript._text import clean, sendable
from durable_agent.transcript._types import Assembled, Tokens, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from durable_agent.transcript._types import Answer, Result

__all__ = [
    "NAME",
    "assemble",
    "balance",
    "calls",
    "comparable",
    "is_final_chunk",
    "knows",
    "request",
    "text_turn",
    "turn",
    "usage",
]

NAME: Final = "pydantic-ai"

#: Parts that answer a call.
_RESULTS: Final = frozenset({"tool-return", "retry-prompt"})
#: Of a message, what is not sent: when, by which run, at what cost.
_UNSENT: Final = frozenset(
    {
        *("timestamp", "run_id", "conversation_id", "usage", "metadata"),
        *("history_digest", "workspace_ref", "failed_attempts", "provider_details"),
    }
)


def _loaded(name: str) -> Any:
    return getattr(sys.modules.get("pydantic_ai.messages"), name, None)


def _is_a(name: str, thing: Any) -> bool:
    known = _loaded(name)
    return isinstance(known, type) and isinstance(thing, known)


def _is_message(thing: Any) -> bool:
    return _is_a("ModelRequest", thing) or _is_a("ModelResponse", thing)


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request: ``messages`` or ``message_history``."""
    named = (get(bound, "messages"), get(bound, "message_history"))
    others = bound.values() if isinstance(bound, dict) else ()
    for found in (*named, *others):
        if isinstance(found, list | tuple) and found and all(map(_is_message, found)):
            return found if isinstance(found, list) else list(found)
    return None


def knows(messages: Sequence[Any]) -> bool:
    """Whether some message is an object of Pydantic AI's."""
    return any(map(_is_message, items(messages)))


def turn(response: Any) -> list[Any] | None:
    """Return the response, the object that it is."""
    return [response] if _is_a("ModelResponse", response) else None


def text_turn(text: str) -> list[Any]:
    """Return a response that says a text; elsewhere, an assistant message."""
    response, part = _loaded("ModelResponse"), _loaded("TextPart")
    if response is None or part is None:
        return [{"role": "assistant", "content": clean(text)}]
    return [response(parts=[part(clean(text))])]


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the last response that is noted among the events of a stream."""
    found = [chunk for chunk in items(chunks) if _is_a("ModelResponse", chunk)]
    return Assembled(found[-1], is_final_chunk(found[-1])) if found else None


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk is a response, and no part of it is to come."""
    return _is_a("ModelResponse", chunk) and chunk.state == "complete"


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the tool calls of responses, in order."""
    numbering = Numbering()
    return [
        ToolCall(
            part.tool_call_id,
            part.tool_name,
            parsed({} if part.args is None else part.args),
            part.args,
            numbering.token(part.tool_call_id),
        )
        for message in items(turn)
        if _is_a("ModelResponse", message)
        for part in message.parts
        if _is_a("ToolCallPart", part)
    ]


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each call has one result, in the request after it.

    A result that answers no call of the response before is left out.
    """
    done: list[Any] = []
    waiting: list[Any] = []
    for message in messages:
        if not _is_message(message):
            done.append(message)
        elif _is_a("ModelResponse", message):
            done += _request_of(_missing(waiting, [], answer))
            done.append(message)
            waiting = [message]
        else:
            fresh = _answered(message, waiting, answer)
            waiting = []
            done += [] if fresh is None else [fresh]
    return done + _request_of(_missing(waiting, [], answer))


def _answered(message: Any, turn: list[Any], answer: Answer) -> Any | None:
    """Return a request with the results of a turn first; None if nothing is left."""
    parts = list(message.parts)
    asked = {call.id for call in calls(turn)}
    given: list[Any] = []
    rest: list[Any] = []
    for part in parts:
        if not _is_result(part):
            rest.append(part)
        elif part.tool_call_id in asked - {p.tool_call_id for p in given}:
            given.append(part)
    missing = _missing(turn, given, answer)
    if not missing and len(given) + len(rest) == len(parts):
        return message
    fresh = [*given, *missing, *rest]
    return _copied(message, fresh) if fresh else None


def _is_result(part: Any) -> bool:
    # A retry may be asked of an answer, too: that is no result.
    return get(part, "part_kind") in _RESULTS and get(part, "tool_name") is not None


def _missing(turn: list[Any], given: list[Any], answer: Answer) -> list[Any]:
    there = {part.tool_call_id for part in given}
    asked = [call for call in calls(turn) if call.id not in there]
    return [_result(call, answer(turn, call)) for call in asked]


def _request_of(parts: list[Any]) -> list[Any]:
    return [_loaded("ModelRequest")(parts=parts)] if parts else []


def _copied(message: Any, parts: list[Any]) -> Any:
    fresh = object.__new__(type(message))
    fresh.__dict__.update(message.__dict__, parts=parts)
    return fresh


def _result(call: ToolCall, result: Result) -> Any:
    content: Any = clean(result.text)
    if result.has_value and result.value is not None and not result.failed:
        sent = sendable(result.value)
        content = content if sent is None else sent
    made = {"tool_name": call.name, "content": content, "tool_call_id": call.id}
    return _loaded("ToolReturnPart")(**made)


def comparable(message: Any) -> Any:
    """Return a message as plain JSON, without what is not sent."""
    adapter = _loaded("ModelMessagesTypeAdapter")
    if adapter is None or not _is_message(message):
        return message
    try:
        (plain,) = adapter.dump_python([message], mode="json", warnings=False)
    except Exception:  # noqa: BLE001 - what JSON does not have
        return [get(message, "kind"), str(get(message, "parts"))]
    return _sent(plain)


def _sent(tree: Any) -> Any:
    if isinstance(tree, dict):
        pairs = ((n, _sent(v)) for n, v in tree.items() if n not in _UNSENT)
        return {n: v for n, v in pairs if v is not None}
    return [_sent(v) for v in tree] if isinstance(tree, list) else tree


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a response."""
    if not _is_a("ModelResponse", response):
        return None
    stated = response.usage
    tokens = Tokens(
        input=count(stated, "input_tokens"),
        output=count(stated, "output_tokens"),
        cached=count(stated, "cache_read_tokens"),
    )
    return text_of(response.model_name) or "", tokens
