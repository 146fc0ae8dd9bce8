"""LangChain messages: objects of ``langchain_core``, which is never imported here.

A response is an ``AIMessage``, or what holds one (``ChatResult``, ``LLMResult``,
``ChatGeneration``); it is sent back as the very object. Calls are ``tool_calls`` and
``invalid_tool_calls``, for chat models send both. Results are ``ToolMessage`` objects
directly after it. Lists may hold dicts and tuples among the objects, as chat models
take them. Where LangChain is not loaded, recorded objects are dicts with the ``type``
of the message; then results are such dicts, too.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript import _items
from durable_agent.transcript import _langchain_dicts as dicts
from durable_agent.transcript._calls import Numbering, parsed
from durable_agent.transcript._fields import count, get, items, text_of
from durable_agent.transcript._langchain_objects import (
    as_object,
    is_a,
    is_message,
    loaded,
    message_of,
    tool_message_of,
    whole,
)
from durable_agent.transcript._text import clean, scrubbed, sendable
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

NAME: Final = "langchain"

_OF_MODEL: Final = frozenset({"ai", "AIMessageChunk", "assistant"})
#: Fields of a message that are not sent, or drawn anew by each run.
_UNSENT: Final = frozenset(
    {
        *("id", "response_metadata", "usage_metadata", "artifact"),
        *("tool_call_chunks", "chunk_position"),
    }
)
#: What chat models call the reason for which an answer ended.
_ENDED: Final = ("finish_reason", "stop_reason", "done_reason")
_SENT: Final = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs")


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request: ``input`` or ``messages``.

    A text is one message, a prompt's value its messages; of a batch, the only one's.
    """
    found = _messages(get(bound, "messages", "input"))
    for value in bound.values() if found is None and isinstance(bound, dict) else ():
        other = None if isinstance(value, str) else _messages(value)
        if other is not None and knows(other):
            return other
    return found


def _messages(given: Any) -> list[Any] | None:
    if isinstance(given, str):
        known = loaded("HumanMessage")
        # Unloaded, a form that others' requests have too: it claims nothing.
        user = {"role": "user", "content": given}
        return [user if known is None else known(content=given)]
    if is_message(given):
        return [given]
    if callable(to_messages := get(given, "to_messages")):
        try:
            given = to_messages()
        except Exception:  # noqa: BLE001 - an object of the user's
            return None
    if isinstance(given, dict):
        given = given.get("messages")
    found = items(given)
    if len(found) == 1 and isinstance(found[0], list):
        return found[0]
    if not isinstance(given, list | tuple) or any(isinstance(m, list) for m in found):
        return None
    return given if isinstance(given, list) else found


def knows(messages: Sequence[Any]) -> bool:
    """Whether some message is an object of LangChain's, or the dict of one."""
    return any(map(is_message, items(messages)))


def turn(response: Any) -> list[Any] | None:
    """Return the message of the model, the object that it is; chunks as a message."""
    message = message_of(response)
    if message is None or not _is_model(message):
        return None
    if dicts.is_told(message):
        return [dicts.told(message)]
    sent = whole(message)
    fresh = {name: scrubbed(get(sent, name)) for name in _SENT}
    changed = {n: v for n, v in fresh.items() if v is not get(sent, n)}
    return [sent.model_copy(update=changed) if changed else sent]


def text_turn(text: str) -> list[Any]:
    """Return a message of the model with a text."""
    known = loaded("AIMessage")
    return [dicts.text_message(text) if known is None else known(content=clean(text))]


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the sum of the chunks as a message.

    Arguments that were cut off are completed as LangChain does.
    """
    found = [
        m for m in map(message_of, items(chunks)) if m is not None and _is_model(m)
    ]
    if not found:
        return None
    told = [m for m in found if dicts.is_chunk(m)]
    pieces = told or [m for m in found if is_a("BaseMessageChunk", m)]
    if not pieces:
        return Assembled(found[-1], complete=True)
    try:
        response = dicts.joined(told) if told else whole(reduce(add, pieces))
    except Exception:  # noqa: BLE001 - chunks that do not fit each other
        return None
    complete = len(pieces) < len(found) or any(map(is_final_chunk, items(chunks)))
    return Assembled(response, complete)


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk is the last, or tells why the answer ended."""
    message = message_of(chunk)
    if message is None:
        return False
    told = get(message, "response_metadata")
    return get(message, "chunk_position") == "last" or (
        get(told, *_ENDED) or get(get(chunk, "generation_info"), *_ENDED)
    ) not in (None, "")


def _kind(message: Any) -> Any:
    """Return what a message is: the type of an object, the role of all else."""
    if isinstance(message, tuple):
        return message[0] if len(message) == 2 else None  # noqa: PLR2004 - role, text
    role = get(message, "role")
    return get(message, "type") if role is None else role


def _is_model(message: Any) -> bool:
    kind = _kind(message)
    return isinstance(kind, str) and kind in _OF_MODEL


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the calls of a turn, in the model's order where the message tells it.

    Else those that could be parsed come first, as chat models send them.
    """
    numbering = Numbering()
    return [
        _call(entry, numbering)
        for message in items(turn)
        if _is_model(message)
        for entry in _entries(message)
    ]


def _entries(message: Any) -> list[Any]:
    extra = get(message, "additional_kwargs")
    told = [
        *items(get(message, "tool_calls")),
        *items(get(message, "invalid_tool_calls")),
    ]
    # Chat models send what nobody parsed, too.
    raw = items(get(extra, "tool_calls"))
    found = [entry for entry in told or raw if isinstance(entry, dict)]
    legacy = get(extra if get(extra, "function_call") else message, "function_call")
    if not found and isinstance(get(legacy, "name"), str):
        return [{"legacy": True, "function": legacy}]
    order = [get(part, "call_id", "id") for part in items(get(message, "content"))]
    order = [get(entry, "id") for entry in raw] or order
    ids = [get(entry, "id") for entry in found]
    if len(set(map(repr, ids))) < len(ids) or not all(id_ in order for id_ in ids):
        return found
    return sorted(found, key=lambda entry: order.index(get(entry, "id")))


def _call(entry: Any, numbering: Numbering) -> ToolCall:
    given = get(entry, "id")
    id_ = given if isinstance(given, str) else None
    function = get(entry, "function")
    what = entry if function is None else function
    raw = get(what, "args", "arguments")
    name = text_of(get(what, "name")) or ""
    return ToolCall(id_, name, parsed(raw), raw, numbering.token(id_))


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each call has one result, directly after its message."""
    return _items.balance(_Form(), messages, answer)


class _Form:
    def is_model(self, message: Any) -> bool:
        return _is_model(message)

    def calls(self, turn: Sequence[Any]) -> list[tuple[ToolCall, tuple[str, str]]]:
        kinds = [
            get(entry, "legacy") is True
            for message in turn
            if _is_model(message)
            for entry in _entries(message)
        ]
        return [
            (call, ("function", call.name) if legacy else ("tool", call.id or ""))
            for call, legacy in zip(calls(turn), kinds, strict=True)
        ]

    def answers(self, message: Any) -> tuple[str, str] | None:
        kind = _kind(message)
        if kind in ("tool", "ToolMessageChunk"):
            return "tool", text_of(get(message, "tool_call_id")) or ""
        if kind in ("function", "FunctionMessageChunk"):
            return "function", text_of(get(message, "name")) or ""
        return None

    def stays(self, message: Any) -> bool:  # noqa: ARG002 - elsewhere some do
        return False

    def turns(self, run: Sequence[Any]) -> list[list[Any]]:
        return _items.after_calls(self, run)

    def keeps_first(self) -> bool:
        return False

    def render(self, turn: Sequence[Any], call: ToolCall, result: Result) -> Any:
        pairs = (pair for one, pair in self.calls(turn) if one.token == call.token)
        kind, key = next(pairs, ("tool", call.id or ""))
        text = clean(result.text)
        known = loaded("ToolMessage" if kind == "tool" else "FunctionMessage")
        own = dicts.own_result(result.value, key) if result.has_value else None
        if known is None:
            if own is not None and kind == "tool":
                return own
            name, failed = call.name, result.failed
            return dicts.result(kind, key, text=text, name=name, failed=failed)
        if kind == "function":
            return known(content=text, name=key)
        value = result.value if own is None else as_object(own)
        given = tool_message_of(value, key) if result.has_value else None
        if given is not None and (sent := _own_result(given, key)) is not None:
            return sent
        return known(
            content=text,
            tool_call_id=key,
            name=call.name or None,
            status="error" if result.failed else "success",
        )


def _own_result(given: Any, key: str) -> Any | None:
    """Return a tool message as it can be sent for that call; None: it cannot."""
    content = given.content
    fresh = sendable(content) if isinstance(content, str | list) else None
    if fresh is None or not all(isinstance(part, str | dict) for part in fresh):
        return None
    changed = {} if fresh is content else {"content": fresh}
    changed |= {} if given.tool_call_id == key else {"tool_call_id": key}
    return given.model_copy(update=changed) if changed else given


def comparable(message: Any) -> Any:
    """Return a message as plain JSON without cache marks and what is not sent.

    A dict or tuple is what it becomes; null is left out.
    """
    known = as_object(dicts.compared(message) if dicts.is_told(message) else message)
    bare = known
    if is_a("BaseMessage", known):
        for mode in ("json", "python"):
            try:
                bare = known.model_dump(mode=mode, exclude=_UNSENT, warnings=False)
                break
            except Exception:  # noqa: BLE001, S112 - what JSON does not have
                continue
    if not isinstance(bare, dict):
        return _unmarked(bare)
    # Of what is not loaded, the fields that are not sent are there still.
    unsent = _UNSENT if dicts.is_told(bare) else {"id"}
    told = {
        n: v for n, v in _unmarked(bare).items() if v is not None and n not in unsent
    }
    return told | ({"type": "ai"} if told.get("type") == "AIMessageChunk" else {})


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: _unmarked(v) for n, v in value.items() if n != "cache_control"}
    if isinstance(value, list | tuple):
        return [_unmarked(item) for item in value]
    return value


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a message."""
    message = message_of(response)
    stated = get(message, "usage_metadata")
    if message is None or stated is None:
        return None
    tokens = Tokens(
        input=count(stated, "input_tokens"),
        output=count(stated, "output_tokens"),
        cached=count(get(stated, "input_token_details"), "cache_read"),
        reasoning=count(get(stated, "output_token_details"), "reasoning"),
    )
    name = get(get(message, "response_metadata"), "model_name", "model")
    return text_of(name) or "", tokens
