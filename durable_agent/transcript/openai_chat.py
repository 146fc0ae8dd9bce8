"""OpenAI chat completions: plain dicts, and the SDK's objects by their fields.

A response is a completion or an assistant message. Of several ``choices`` (``n``) the
first is the turn, of a stream that of index 0; the others are not looked at, nor are
their calls. Results are messages with ``role: tool`` directly after it, before anything
else; a legacy ``function_call`` is answered by ``role: function``.

A message is sent back as it came, but for what the provider refuses or the SDK made
up: ``tool_calls`` that are empty, the sound of ``audio`` (its id is sent), ``parsed``
and ``parsed_arguments``. One that says nothing at all (``content: null`` and no calls)
is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript import _items
from durable_agent.transcript._calls import Numbering, parsed
from durable_agent.transcript._chat_stream import assemble, is_final_chunk
from durable_agent.transcript._fields import (
    count,
    get,
    items,
    kind_of,
    text_of,
)
from durable_agent.transcript._objects import find_messages, plain
from durable_agent.transcript._text import clean, scrubbed, sendable
from durable_agent.transcript._types import Tokens, ToolCall

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

NAME: Final = "openai"

#: What providers let move between requests, and ids that frameworks draw anew.
_MOVING: Final = frozenset({"cache_control", "id"})
#: What an answer has to have of these if it has no content.
_SAYS: Final = ("tool_calls", "function_call", "refusal", "audio")
#: Parts of content that are of other providers' messages.
_FOREIGN: Final = frozenset(
    {
        *("tool_use", "tool_result", "server_tool_use", "redacted_thinking"),
        *("output_text", "input_text", "function_call"),
    }
)


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request: ``messages``, a text as one user message."""
    found = find_messages(bound, "messages", _is_message)
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else items(found) or None


def _is_message(message: Any) -> bool:
    return isinstance(get(message, "role"), str)


def knows(messages: Sequence[Any]) -> bool:
    """Whether some message is a result or has calls as only this provider puts them."""
    return any(
        get(message, "role") in ("tool", "function")
        or get(message, "tool_calls", "function_call") is not None
        for message in items(messages)
        if _is_message(message)
    )


def turn(response: Any) -> list[Any] | None:
    """Return the assistant message of a response; none if it says nothing."""
    message = plain(response)
    choices = get(message, "choices")
    if isinstance(choices, list | tuple):
        message = plain(get(choices[0], "message")) if choices else None
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    if message.get("type") == "message" or any(
        kind_of(part) in _FOREIGN for part in items(message.get("content"))
    ):
        return None
    sent = scrubbed(_sent(message))
    silent = sent.get("content") is None and not any(map(sent.get, _SAYS))
    return [] if silent else [sent]


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what the provider refuses; the same if it has none."""
    changed: dict[str, Any] = {}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        sent = [_sent_call(call) for call in calls]
        if sent != calls:
            changed["tool_calls"] = sent
    if text_of(get(message.get("audio"), "id")) and len(message["audio"]) > 1:
        changed["audio"] = {"id": message["audio"]["id"]}
    empty = {"tool_calls"} if not calls else set()
    unsent = ({"parsed"} | empty) & message.keys()
    if not changed and not unsent:
        return message
    return {n: changed.get(n, v) for n, v in message.items() if n not in unsent}


def _sent_call(call: Any) -> Any:
    call = plain(call)
    function = get(call, "function")
    if not isinstance(function, dict) or "parsed_arguments" not in function:
        return call
    kept = {n: v for n, v in function.items() if n != "parsed_arguments"}
    return {**call, "function": kept}


def text_turn(text: str) -> list[Any]:
    """Return an assistant message with a text."""
    return [{"role": "assistant", "content": clean(text)}]


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the calls of a turn, in order.

    Free text for a ``custom`` tool is its argument ``input``.
    """
    numbering = Numbering()
    entries = [entry for message in items(turn) for entry in _entries(message)]
    return [_call(entry, numbering) for entry in entries]


def _entries(message: Any) -> list[Any]:
    """Return the tool calls of a message as they were sent."""
    if get(message, "role") != "assistant":
        return []
    entries = [e for e in items(get(message, "tool_calls")) if _is_call(e)]
    legacy = get(message, "function_call")
    if not entries and isinstance(get(legacy, "name"), str):
        entries.append({"function": legacy})
    return entries


def _is_call(entry: Any) -> bool:
    what = get(entry, "function", "custom")
    return what is not None and not isinstance(what, str | list)


def _call(entry: Any, numbering: Numbering) -> ToolCall:
    given = get(entry, "id")
    id_ = given if isinstance(given, str) else None
    custom = get(entry, "custom")
    what = get(entry, "function") if custom is None else custom
    raw = get(what, "arguments") if custom is None else get(custom, "input")
    arguments = parsed(raw) if custom is None else {"input": raw}
    name = text_of(get(what, "name")) or ""
    return ToolCall(id_, name, arguments, raw, numbering.token(id_))


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each call has one result, directly after its message.

    Results that stand there already may be in any order.
    """
    return _items.balance(_Form(), messages, answer)


class _Form:
    def is_model(self, message: Any) -> bool:
        return bool(get(message, "role") == "assistant")

    def calls(self, turn: Sequence[Any]) -> list[tuple[ToolCall, tuple[str, str]]]:
        kinds = [
            get(entry, "id") is None and not items(get(message, "tool_calls"))
            for message in turn
            for entry in _entries(message)
        ]
        return [
            (call, ("function", call.name) if legacy else ("tool", call.id or ""))
            for call, legacy in zip(calls(turn), kinds, strict=True)
        ]

    def answers(self, message: Any) -> tuple[str, str] | None:
        role = get(message, "role")
        if role == "tool":
            return "tool", text_of(get(message, "tool_call_id")) or ""
        if role == "function":
            return "function", text_of(get(message, "name")) or ""
        return None

    def stays(self, message: Any) -> bool:  # noqa: ARG002 - elsewhere some do
        return False

    def turns(self, run: Sequence[Any]) -> list[list[Any]]:
        return _items.after_calls(self, run)

    def keeps_first(self) -> bool:
        return False

    def render(self, turn: Sequence[Any], call: ToolCall, result: Result) -> Any:
        # The pair of the call; what none of the turn is has the usual form.
        pairs = (pair for one, pair in self.calls(turn) if one.token == call.token)
        role, key = next(pairs, ("tool", call.id or ""))
        given = result.value if result.has_value else None
        name = "tool_call_id" if role == "tool" else "name"
        if (own := _own_result(given, role)) is not None:
            return own if own.get(name) == key else {**own, name: key}
        return {"role": role, name: key, "content": clean(result.text)}


def _own_result(value: Any, role: str) -> dict[str, Any] | None:
    """Return a value that is a result which the provider takes, else None."""
    if not isinstance(value, dict) or value.get("role") != role:
        return None
    content = value.get("content")
    parts = items(content) if role == "tool" else []
    if not isinstance(content, str) and not (parts and all(map(_is_part, parts))):
        return None
    found: dict[str, Any] | None = sendable(value)
    return found


def _is_part(part: Any) -> bool:
    kind = kind_of(part) if isinstance(part, dict) else ""
    return kind != "" and (kind != "text" or isinstance(part.get("text"), str))


def comparable(message: Any) -> Any:
    """Return a message as plain JSON without cache marks and its id.

    What is null, empty or not sent back is left out. A text and a single part of that
    text are the same.
    """
    bare = _unmarked(message)
    if not isinstance(bare, dict):
        return bare
    told = {
        name: value
        for name, value in _sent(bare).items()
        if name not in _MOVING and value is not None
    }
    if isinstance(text := told.pop("content", None), str):
        text = [{"type": "text", "text": text}] if text else None
    return told if text is None else {**told, "content": text}


def _unmarked(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, dict):
        return {n: _unmarked(v) for n, v in value.items() if n != "cache_control"}
    if isinstance(value, list | tuple):
        return [_unmarked(item) for item in value]
    return value


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a completion."""
    stated = get(response, "usage")
    if not isinstance(get(response, "choices"), list) or stated is None:
        return None
    hit = count(stated, "prompt_cache_hit_tokens")
    tokens = Tokens(
        input=count(stated, "prompt_tokens"),
        output=count(stated, "completion_tokens"),
        cached=count(get(stated, "prompt_tokens_details"), "cached_tokens") or hit,
        reasoning=count(get(stated, "completion_tokens_details"), "reasoning_tokens"),
    )
    # Some servers count reasoning beside the rest of the output.
    apart = tokens.input + tokens.output + tokens.reasoning
    if tokens.reasoning and count(stated, "total_tokens") == apart:
        tokens += Tokens(output=tokens.reasoning)
    return text_of(get(response, "model")) or "", tokens
