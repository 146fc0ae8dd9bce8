"""OpenAI's Responses API: plain items, and the SDK's objects by their fields.

A response has its turn in ``output``; a list of such items is one, too. Answers to its
calls are items of their own after the turn, never between its items: a reasoning item
stands directly before what it led to.

Items are sent back as they came, but for what the provider refuses or the SDK made up:
``created_by``, a ``status`` of a reasoning item or one that is null, ``parsed`` and
``parsed_arguments``, and reasoning that led to nothing (cut off by
``max_output_tokens``, say).

With ``previous_response_id`` the provider holds what was before: answers that stand
before all that the model says, for no call of the list, are taken to be for calls
there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript import _items
from durable_agent.transcript._calls import Numbering
from durable_agent.transcript._fields import (
    count,
    get,
    items,
    kind_of,
    text_of,
)
from durable_agent.transcript._objects import find_messages, plain
from durable_agent.transcript._responses_calls import (
    OUTPUT_OF,
    OUTPUTS,
    answered,
    asked,
    id_of,
    is_call,
    output,
    pair_of,
)
from durable_agent.transcript._responses_stream import assemble, is_final_chunk
from durable_agent.transcript._text import clean, scrubbed
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

NAME: Final = "openai-responses"

#: Items of the model that nobody has to answer.
_HOSTED: Final = frozenset(
    {
        *("reasoning", "web_search_call", "file_search_call", "mcp_call"),
        *("code_interpreter_call", "image_generation_call", "mcp_list_tools"),
        *("program", "program_output", "compaction"),
    }
)
_OF_MODEL: Final = _HOSTED | OUTPUT_OF.keys()
_OTHER: Final = frozenset({"item_reference", "additional_tools", "compaction_trigger"})
_OWN: Final = _OF_MODEL | OUTPUTS | _OTHER
_PARTS: Final = frozenset({"input_text", "input_image", "input_file", "output_text"})
_NEVER_SENT: Final = frozenset({"created_by", "parsed_arguments"})
#: What providers let move between requests; an item's id is drawn anew by frameworks.
_MOVING: Final = frozenset({"id", "status", "cache_control", "type"})


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the items of a request: ``input``, a text as one user message."""
    found = get(bound, "input")
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    if found is None:
        # Under another name, only what no other provider's messages could be.
        found = find_messages(bound, "input", _is_item)
        found = found if knows(items(found)) else None
    if not isinstance(found, list | tuple) or not all(map(_may_be_item, found)):
        return None
    return found if isinstance(found, list) else list(found)


def _may_be_item(item: Any) -> bool:
    """Whether this may be an item, be it of a kind that is not known here."""
    if _is_item(item):
        return True
    return isinstance(get(item, "type"), str) and get(item, "content") is None


def _is_item(item: Any) -> bool:
    return _is_message(item) or kind_of(item) in _OWN


def _is_message(item: Any) -> bool:
    return get(item, "type") in (None, "message") and isinstance(get(item, "role"), str)


def knows(messages: Sequence[Any]) -> bool:
    """Whether some item is no message, or has parts as only this provider has them."""
    return any(
        (get(item, "role") is None and kind_of(item) in _OWN)
        or (
            _is_message(item)
            and any(kind_of(p) in _PARTS for p in items(get(item, "content")))
        )
        for item in items(messages)
    )


def turn(response: Any) -> list[Any] | None:
    """Return the output items of a response; none of one that failed."""
    if isinstance(response, list | tuple):
        found = list(response)
        if not any(map(_is_model, found)) or not all(map(_is_output, found)):
            return None
    else:
        given = get(response, "output")
        if not isinstance(given, list | tuple):
            return None
        found = list(given)
        whole = get(response, "object") == "response"
        if not (whole or any(map(_is_model, found))) or not all(map(_is_output, found)):
            return None
        if get(response, "status") in {"failed", "cancelled"}:
            return []
    # Reasoning that led to nothing is refused.
    while found and get(found[-1], "type") == "reasoning":
        found.pop()
    return [scrubbed(_sent(plain(item))) for item in found]


def _is_output(item: Any) -> bool:
    kind = kind_of(item)
    return kind != "" and (kind != "message" or get(item, "role") == "assistant")


def _is_model(item: Any) -> bool:
    if _is_message(item):
        return bool(get(item, "role") == "assistant")
    return kind_of(item) in _OF_MODEL


def _sent(item: Any) -> Any:
    """Return an item without what the provider refuses; the same if it has none."""
    if not isinstance(item, dict):
        return item
    unsent = _NEVER_SENT & item.keys()
    if "status" in item and (item["status"] is None or item.get("type") == "reasoning"):
        unsent |= {"status"}
    fresh = {n: v for n, v in item.items() if n not in unsent} if unsent else item
    parts = fresh.get("content")
    if isinstance(parts, list) and any("parsed" in p for p in parts if _is_json(p)):
        bare = [_without(p, "parsed") if _is_json(p) else p for p in parts]
        return {**fresh, "content": bare}
    return fresh


def _is_json(part: Any) -> bool:
    return isinstance(part, dict)


def _without(part: dict[str, Any], name: str) -> dict[str, Any]:
    return {n: v for n, v in part.items() if n != name}


def text_turn(text: str) -> list[Any]:
    """Return an assistant message with a text."""
    return [{"role": "assistant", "content": clean(text)}]


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the calls that the client has to answer, in order.

    Those that the turn answers itself (at the provider) are none. Free text for a
    custom tool is its argument ``input``.
    """
    there = Counter(filter(None, map(answered, items(turn))))
    found = []
    for call, pair in _calls(items(turn)):
        if there[pair]:
            there[pair] -= 1
        else:
            found.append(call)
    return found


def _calls(turn: Sequence[Any]) -> list[tuple[ToolCall, tuple[str, str]]]:
    numbering = Numbering()
    found = []
    for item in filter(is_call, turn):
        id_ = id_of(item)
        name, arguments, raw = asked(item)
        call = ToolCall(id_, name, arguments, raw, numbering.token(id_))
        found.append((call, pair_of(item)))
    return found


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return items in which each call has one answer, after its turn.

    An answer may stand anywhere after its call, and stays there, if its id tells the
    call: no other call and no other answer of the list has it.
    """
    whole = _joined(messages)
    return _items.balance(_Form(_settled(whole)), whole, answer)


def _joined(messages: Sequence[Any]) -> list[Any]:
    """Return items with no answer between reasoning and what it led to.

    One that comes before its call answers none; it would look like the turn's end.
    """
    joined: list[Any] = []
    everywhere = {pair_of(item) for item in messages if is_call(item)}
    asked_for = set()
    begun = False
    for item in messages:
        pair, at = answered(item), len(joined)
        if pair in asked_for:
            while at and kind_of(joined[at - 1]) == "reasoning":
                at -= 1
        elsewhere = not begun and pair not in everywhere
        if pair is None or pair in asked_for or elsewhere:
            joined.insert(at, item)
        begun = begun or _is_model(item)
        if is_call(item):
            asked_for.add(pair_of(item))
    return joined


def _settled(joined: Sequence[Any]) -> frozenset[tuple[str, str]]:
    """Return the pairs that stand once each; a call comes before its answer."""
    asked_for = Counter(pair_of(item) for item in joined if is_call(item))
    there = Counter(filter(None, map(answered, joined)))
    return frozenset(
        pair for pair, n in asked_for.items() if pair[1] and n == there[pair] == 1
    )


class _Form:
    def __init__(self, settled: frozenset[tuple[str, str]]) -> None:
        self._settled = settled

    def is_model(self, message: Any) -> bool:
        return _is_model(message)

    def calls(self, turn: Sequence[Any]) -> list[tuple[ToolCall, tuple[str, str]]]:
        return [found for found in _calls(turn) if found[1] not in self._settled]

    def answers(self, message: Any) -> tuple[str, str] | None:
        pair = answered(message)
        return None if pair in self._settled else pair

    def stays(self, message: Any) -> bool:
        return answered(message) in self._settled

    def turns(self, run: Sequence[Any]) -> list[list[Any]]:
        return [list(run)]

    def keeps_first(self) -> bool:
        return True

    def render(self, turn: Sequence[Any], call: ToolCall, result: Result) -> Any:
        found = zip(_calls(turn), filter(is_call, turn), strict=True)
        of_token = (item for (one, _), item in found if one.token == call.token)
        item = next(of_token, {"type": "function_call", "call_id": call.id})
        return output(item, result)


def comparable(message: Any) -> Any:
    """Return an item as plain JSON without ids of items, states and cache marks.

    A text and a single part of that text are the same, in outputs too.
    """
    bare = _unmarked(message)
    if not isinstance(bare, dict):
        return bare
    bare = _sent(bare)
    kind = bare.get("type")
    content = bare.get("content")
    if kind in (None, "message") and not isinstance(content, str):
        texts = [get(part, "text") for part in items(content)]
        if len(texts) == 1 and isinstance(texts[0], str):
            content = texts[0]
    told = {n: v for n, v in bare.items() if n not in _MOVING and v is not None}
    if kind not in (None, "message"):
        told["type"] = kind
        if kind_of(bare) in OUTPUTS and isinstance(text := told.get("output"), str):
            told["output"] = [{"type": "input_text", "text": text}]
    elif content is not None:
        told["content"] = content
    # The id of what is asked for approval is what its answer names.
    named = kind in ("mcp_approval_request", "item_reference") and "id" in bare
    return told | ({"id": bare["id"]} if named else {})


def _unmarked(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, dict):
        return {n: _unmarked(v) for n, v in value.items() if n != "cache_control"}
    if isinstance(value, list | tuple):
        return [_unmarked(item) for item in value]
    return value


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a response."""
    stated = get(response, "usage")
    if not isinstance(get(response, "output"), list | tuple) or stated is None:
        return None
    into, out = (
        get(stated, "input_tokens_details"),
        get(stated, "output_tokens_details"),
    )
    tokens = Tokens(
        input=count(stated, "input_tokens"),
        output=count(stated, "output_tokens"),
        cached=count(into, "cached_tokens"),
        reasoning=count(out, "reasoning_tokens"),
    )
    return text_of(get(response, "model")) or "", tokens
