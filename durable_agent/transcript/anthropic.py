"""Anthropic's Messages API: plain dicts, and the SDK's objects by their fields.

A response is a message (``type: message``) or an assistant message. Results are
``tool_result`` blocks, the first blocks of the user message after the ``tool_use``
blocks. Messages of one role in a row are one turn to the provider, so results may be
spread over user messages, and calls over assistant messages.

Three things are not sent back as they came, for the provider refuses them: blocks of
text that say nothing are left out, as is thinking that led to nothing (cut off by
``max_tokens``, say), and the input of a call that is not a JSON object is wrapped as
``{"INVALID_JSON": text}``
(https://docs.claude.com/en/docs/agents-and-tools/tool-use/fine-grained-tool-streaming).
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript import _blocks
from durable_agent.transcript._anthropic_results import (
    is_blank,
    own_result,
    result_parts,
)
from durable_agent.transcript._anthropic_stream import assemble, is_final_chunk
from durable_agent.transcript._blocks import Slot
from durable_agent.transcript._calls import Numbering, parsed
from durable_agent.transcript._fields import count, get, items, text_of
from durable_agent.transcript._objects import find_messages, plain
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

NAME: Final = "anthropic"

#: Blocks that no other provider has; beside these, all ``…_tool_result``.
_OWN: Final = frozenset(
    {
        *("tool_use", "tool_result", "server_tool_use", "mcp_tool_use"),
        *("thinking", "redacted_thinking", "compaction", "container_upload"),
    }
)
#: Blocks of other providers' messages that also have a role and a list as content.
_FOREIGN: Final = frozenset(
    {
        *("output_text", "input_text", "input_image", "input_file", "input_audio"),
        *("image_url", "file", "refusal"),
    }
)
#: What cannot be the last block of a message.
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
#: Blocks whose input is an object that the model wrote as JSON.
_WITH_INPUT: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_INVALID: Final = "INVALID_JSON"


def request(bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request: ``messages``, a text as one user message."""
    found = find_messages(bound, "messages", _is_message)
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return found if isinstance(found, list) else items(found) or None


def _is_message(message: Any) -> bool:
    return get(message, "role") in ("user", "assistant") and (
        get(message, "content") is not None
    )


def knows(messages: Sequence[Any]) -> bool:
    """Whether some message has a block that no other provider's messages have."""
    return any(
        isinstance(kind := get(block, "type"), str)
        and (kind in _OWN or kind.endswith("_tool_result"))
        for message in items(messages)
        if _is_message(message)
        for block in items(get(message, "content"))
    )


def turn(response: Any) -> list[Any] | None:
    """Return the assistant message of a response; none if it says nothing."""
    whole = get(response, "type") == "message"
    bare = isinstance(response, dict) and "tool_calls" not in response
    if get(response, "role") != "assistant" or not (whole or bare):
        return None
    content = get(response, "content")
    if isinstance(content, str) and not whole:
        return [scrubbed(response)] if content.strip() else []
    if not isinstance(content, list | tuple) or not all(map(_is_block, content)):
        return None
    sent = [block for block in map(_sent, content) if not is_blank(block)]
    while sent and get(sent[-1], "type") in _THOUGHTS:
        sent.pop()
    if not sent:
        return []
    if whole:
        return [{"role": "assistant", "content": sent}]
    same = len(sent) == len(content) and all(map(is_, sent, content))
    return [response if same else {**response, "content": sent}]


def _is_block(block: Any) -> bool:
    kind = get(block, "type")
    return isinstance(kind, str) and kind not in _FOREIGN


def _sent(block: Any) -> Any:
    """Return a block as the SDK sends it when the response's content is appended."""
    sent = plain(block)
    if isinstance(sent, dict) and sent.get("type") in _WITH_INPUT:
        given = sent.get("input")
        if not isinstance(given, dict):
            known = {} if given is None else parsed(given)
            text = given if isinstance(given, str) else repr(given)
            sent = {**sent, "input": {_INVALID: text} if known is None else known}
    return scrubbed(sent)


def text_turn(text: str) -> list[Any]:
    """Return an assistant message with one text; none for a blank one."""
    if not text.strip():
        return []
    return [{"role": "assistant", "content": [{"type": "text", "text": clean(text)}]}]


def calls(turn: Sequence[Any]) -> list[ToolCall]:
    """Return the calls that the client has to answer, in order.

    Tools that run at the provider (``server_tool_use``, ``mcp_tool_use``) are none.
    """
    numbering = Numbering()
    found: list[ToolCall] = []
    for use in (use for message in turn for use in _uses(message)):
        id_ = text_of(get(use, "id"))
        raw = get(use, "input")
        name = text_of(get(use, "name")) or ""
        found.append(ToolCall(id_, name, _parsed(raw), raw, numbering.token(id_)))
    return found


def _uses(message: Any) -> list[Any]:
    if get(message, "role") != "assistant":
        return []
    blocks = items(get(message, "content"))
    return [block for block in blocks if get(block, "type") == "tool_use"]


def _parsed(given: Any) -> dict[str, Any] | None:
    if isinstance(given, dict) and list(given) == [_INVALID]:
        return None
    return parsed(given)


def balance(messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each ``tool_use`` has one ``tool_result``.

    Missing ones go first in the user message that follows, or in a new one.
    """
    return _blocks.balance(_Form(), messages, answer)


class _Form:
    def is_model(self, message: Any) -> bool:
        return bool(get(message, "role") == "assistant")

    def calls(self, message: Any) -> list[ToolCall]:
        return calls([message])

    def slot(self, call: ToolCall) -> Slot:
        return Slot(call.id, call.id or "")

    def blocks(self, message: Any) -> list[Any]:
        return items(get(message, "content"))

    def answers(self, block: Any) -> Slot | None:
        if get(block, "type") != "tool_result":
            return None
        id_ = text_of(get(block, "tool_use_id"))
        return Slot(id_, id_ or "")

    def begins_turn(self, message: Any) -> bool:
        # Nothing may follow the calls of a turn but more calls.
        content = get(message, "content")
        if not isinstance(content, list | tuple):
            return True
        return any(get(block, "type") != "tool_use" for block in content)

    def placed(self, turns: Sequence[Sequence[Any]], after: Sequence[Any]) -> bool:
        kinds: list[bool] = []
        for message in after:
            content = get(message, "content")
            kinds += [self.answers(block) is not None for block in items(content)]
            kinds += [False] if isinstance(content, str) else []
        return len(turns) == 1 and kinds == sorted(kinds, reverse=True)

    def render(self, message: Any, call: ToolCall, result: Result) -> Any:
        given = result.value if result.has_value else None
        if (own := own_result(given)) is not None:
            same = own.get("tool_use_id") == (call.id or "")
            return own if same else {**own, "tool_use_id": call.id or ""}
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id or ""}
        parts = result_parts(given)
        block["content"] = clean(result.text) if parts is None else parts
        if result.failed:
            # The provider refuses an error that says nothing.
            blank = isinstance(block["content"], str) and not block["content"].strip()
            block |= {"content": "error"} if blank else {}
            block["is_error"] = True
        return block | _family(message, call)

    def keep(self, message: Any, blocks: list[Any]) -> Any | None:
        return {**message, "content": blocks} if blocks else None

    def place(self, results: list[Any], after: list[Any]) -> list[Any]:
        first = after[0] if after else None
        if not isinstance(first, dict) or first.get("role") != "user":
            return [{"role": "user", "content": results}, *after]
        content = first.get("content")
        blocks = items(content)
        if isinstance(content, str) and content.strip():
            blocks = [{"type": "text", "text": content}]
        return [{**first, "content": [*results, *blocks]}, *after[1:]]


def _family(message: Any, call: ToolCall) -> dict[str, Any]:
    """Return what a result repeats of its call: the toolset that the tool is of."""
    uses = zip(calls([message]), _uses(message), strict=True)
    found = (get(use, "toolset_name") for one, use in uses if one.token == call.token)
    name = next(found, None)
    return {} if name is None else {"toolset_name": name}


def comparable(message: Any) -> Any:
    """Return a message as plain JSON without ids of messages and cache marks.

    A text and a single block of that text are the same.
    """
    bare = _unmarked(message)
    if not isinstance(bare, dict):
        return bare
    bare.pop("id", None)
    content = bare.get("content")
    if isinstance(content, str):
        bare["content"] = [{"type": "text", "text": content}]
    return bare


def _unmarked(block: Any) -> Any:
    sent = plain(block)
    if not isinstance(sent, dict):
        return sent
    return {
        name: list(map(_unmarked, value))
        if name == "content" and isinstance(value, list | tuple)
        else value
        for name, value in sent.items()
        if name != "cache_control" and value is not None
    }


def usage(response: Any) -> tuple[str, Tokens] | None:
    """Return model and tokens of a message.

    The provider counts what it read from and wrote to its cache beside the input; here
    the input includes both.
    """
    stated = get(response, "usage")
    if get(response, "type") != "message" or stated is None:
        return None
    cached = count(stated, "cache_read_input_tokens")
    written = count(stated, "cache_creation_input_tokens")
    details = get(stated, "output_tokens_details")
    tokens = Tokens(
        input=count(stated, "input_tokens") + cached + written,
        output=count(stated, "output_tokens"),
        cached=cached,
        reasoning=count(details, "thinking_tokens"),
    )
    return text_of(get(response, "model")) or "", tokens
