"""Google's generateContent: contents of parts, as JSON or as the SDK's objects.

A response has ``candidates``; its turn is the content of the first, the object itself,
for it holds signatures as bytes. Results are ``functionResponse`` parts in a content of
their own directly after the calls, as many as there are calls, in their order. Most
calls have no id; then the name pairs.

Where the SDK calls the functions itself (automatic function calling), the turn is the
last content only. `history` gives all that was sent before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent import values
from durable_agent.transcript import _blocks
from durable_agent.transcript._blocks import Slot
from durable_agent.transcript._calls import Numbering, parsed
from durable_agent.transcript._fields import count, get, items, text_of
from durable_agent.transcript._gemini_parts import (
    USERS,
    as_json,
    camel,
    is_content,
    is_filled,
    is_part,
    member,
    parts_of,
    put,
    says,
    with_parts,
)
from durable_agent.transcript._gemini_stream import (
    assemble,
    candidate_of,
    counts_of,
    is_final_chunk,
    is_response,
)
from durable_agent.transcript._objects import find_messages
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
    "history",
    "is_final_chunk",
    "knows",
    "request",
    "text_turn",
    "turn",
    "usage",
]

NAME: Final = "gemini"


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the contents of a request, parts outside of contents grouped.

    They are grouped as the SDK does (``google.genai._transformers.t_contents``). A
    list that holds something else, a picture, is left to the SDK as it is.
    """
    found = find_messages(bound, "contents", is_content)
    if isinstance(found, list) and all(map(is_content, found)):
        return found
    if isinstance(found, list | tuple):
        return _grouped(found)
    if found is None:
        return None
    return [found] if is_content(found) else _grouped([found])


def _grouped(given: Sequence[Any]) -> list[Any]:
    contents: list[Any] = []
    fresh: dict[str, Any] | None = None
    for item in given:
        if is_content(item):
            contents.append(item)
            fresh = None
            continue
        parts = list(map(_part, item)) if isinstance(item, list) else [_part(item)]
        if None in parts:
            return list(given)
        calls = any(member(part, "function_call") is not None for part in parts)
        role = "model" if calls else "user"
        if isinstance(item, list) or fresh is None or fresh["role"] != role:
            fresh = {"role": role, "parts": []}
            contents.append(fresh)
        fresh["parts"] += parts
        fresh = None if isinstance(item, list) else fresh
    return contents


def _part(item: Any) -> Any:
    """Return what the SDK takes for a part as one; None: it is something else."""
    if isinstance(item, str):
        return {"text": item}
    if is_part(item):
        return item
    uri, kind = get(item, "uri"), get(item, "mime_type")
    if isinstance(uri, str) and isinstance(kind, str):  # a file that was uploaded
        return {"file_data": {"file_uri": uri, "mime_type": kind}}
    return None


def knows(messages: Sequence[Any]) -> bool:
    """Whether some message is a content with parts."""
    return any(is_content(m) and parts_of(m) for m in items(messages))


def turn(response: Any) -> list[Any] | None:
    """Return the model's content of a response; none if it says nothing."""
    if is_response(response):
        content = get(candidate_of(response), "content")
    elif get(response, "role") == "model" and is_content(response):
        content = response
    else:
        return None
    parts = parts_of(content)
    if not any(map(says, parts)):
        return []
    if not all(map(is_filled, parts)):
        content = with_parts(content, list(filter(is_filled, parts)))
    if get(content, "role") is None:  # the provider would take it for the user's
        content = put(content, "role", "model")
    return [scrubbed(content)]


def history(response: Any) -> list[Any] | None:
    """Return all contents sent before the last one, where the SDK called functions.

    They begin with those of the request; None where the SDK called none.
    """
    return items(member(response, "automatic_function_calling_history")) or None


def text_turn(text: str) -> list[Any]:
    """Return a content of the model with one text; none for an empty one."""
    return [{"role": "model", "parts": [{"text": clean(text)}]}] if text else []


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the function calls of the model's contents, in order.

    Tools that run at the provider (``executableCode``) are none.
    """
    numbering = Numbering()
    found: list[ToolCall] = []
    for call in (call for content in turn for call in _calls_of(content)):
        id_ = text_of(get(call, "id"))
        raw = get(call, "args")
        arguments = {} if raw is None else parsed(raw)
        name = text_of(get(call, "name")) or ""
        found.append(ToolCall(id_, name, arguments, raw, numbering.token(id_)))
    return found


def _calls_of(content: Any) -> list[Any]:
    if get(content, "role") != "model":
        return []
    found = (member(part, "function_call") for part in parts_of(content))
    return [call for call in found if call is not None]


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return contents in which each function call has one response.

    Missing ones make a content of their own, with those that there are.
    """
    return _blocks.balance(_Form(), messages, answer)


class _Form:
    def is_model(self, message: Any) -> bool:
        return bool(get(message, "role") == "model")

    def calls(self, message: Any) -> list[ToolCall]:
        return calls([message])

    def slot(self, call: ToolCall) -> Slot:
        return Slot(call.id, call.name)

    def blocks(self, message: Any) -> list[Any]:
        return parts_of(message)

    def answers(self, block: Any) -> Slot | None:
        response = member(block, "function_response")
        if response is None:
            return None
        return Slot(text_of(get(response, "id")), text_of(get(response, "name")) or "")

    def begins_turn(self, message: Any) -> bool:  # noqa: ARG002 - each is a turn
        return True

    def placed(self, turns: Sequence[Sequence[Any]], after: Sequence[Any]) -> bool:
        # A stream's chunks that were sent back one by one are several contents, and
        # the SDK itself answers all their calls in the next: so turns may share it.
        wanted = [
            self.slot(call) for turn in turns for m in turn for call in self.calls(m)
        ]
        given = [
            slot
            for part in parts_of(after[0])
            if (slot := self.answers(part)) is not None
        ]
        ids = {slot.id for slot in wanted}
        # Ids that are repeated tell nothing: then the order does.
        by_id = all(s.id for s in [*wanted, *given]) and len(ids) == len(wanted)
        named = [s.name for s in wanted] == [s.name for s in given]
        return len(given) == len(wanted) and (by_id or named)

    def render(self, message: Any, call: ToolCall, result: Result) -> Any:
        given = result.value if result.has_value else None
        slot = self.answers(given)
        if slot is not None and slot.name == call.name and slot.id in (None, call.id):
            own = _own_response(given)
            if own is not None:
                return own
        response: dict[str, Any] = {"id": call.id} if call.id else {}
        told = "error" if result.failed else "result"
        response |= {"name": call.name, "response": {told: clean(result.text)}}
        if isinstance(given, dict) and not result.failed:
            response["response"] = scrubbed(values.to_plain(given))
        name = "function_response"
        json = any(
            "functionCall" in p for p in parts_of(message) if isinstance(p, dict)
        )
        return {(camel(name) if json else name): response}

    def keep(self, message: Any, blocks: list[Any]) -> Any | None:
        return with_parts(message, blocks) if blocks else None

    def place(self, results: list[Any], after: list[Any]) -> list[Any]:
        return [{"role": "user", "parts": results}, *after]


def _own_response(part: Any) -> Any | None:
    """Return a part whose response the provider takes, else None; objects stay."""
    known = member(part, "function_response")
    held = get(known, "response")
    fresh = sendable(held) if isinstance(held, dict) else None
    if fresh is None or fresh is held:
        return None if fresh is None else part
    return put(part, "function_response", put(known, "response", fresh))


def comparable(message: Any) -> Any:
    """Return a content as plain JSON by the provider's names; a text as a content."""
    if isinstance(message, str):
        message = {"parts": [{"text": message}]}
    content = as_json(message)
    if isinstance(content, dict) and content.get("role") in (None, *USERS):
        content["role"] = "user"
    return content


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a response.

    The provider counts thoughts beside the candidates, and what its own tools put into
    the prompt beside the prompt; here output and input include them.
    """
    counts = counts_of(response)
    if counts is None:
        return None

    def stated(name: str) -> int:
        return count(counts, name, camel(name))

    thoughts = stated("thoughts_token_count")
    tokens = Tokens(
        input=stated("prompt_token_count") + stated("tool_use_prompt_token_count"),
        output=stated("candidates_token_count") + thoughts,
        cached=stated("cached_content_token_count"),
        reasoning=thoughts,
    )
    return text_of(member(response, "model_version")) or "", tokens
