"""Anthropic's streams: events to the message that they amount to.

Known are the events of the API, as objects or as JSON. What the SDK's ``MessageStream``
adds for convenience (``text``, ``input_json``, …) repeats them and is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._calls import read_json
from durable_agent.transcript._fields import get, is_error, items
from durable_agent.transcript._types import Assembled

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVENTS: Final = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
#: Deltas that are added to the field of a block, and those that replace it.
_GROWING: Final = {"text_delta": "text", "thinking_delta": "thinking"}
_SETTING: Final = {
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk is the end of a message."""
    return bool(get(chunk, "type") == "message_stop")


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the message that events amount to, as the API gives it unstreamed.

    The input of a call that is no JSON stays the text that came. After an error the
    message is not complete.
    """
    events = [chunk for chunk in items(chunks) if get(chunk, "type") in _EVENTS]
    if not events:
        return None
    message: dict[str, Any] = {"type": "message", "role": "assistant"}
    blocks: dict[Any, dict[str, Any]] = {}
    inputs: dict[Any, str] = {}
    complete = False
    for event in events:
        kind, index = get(event, "type"), get(event, "index")
        if kind == "message_start":
            message |= _dict(get(event, "message"))
        elif kind == "content_block_start":
            blocks[index] = _dict(get(event, "content_block"))
        elif kind == "content_block_delta":
            _grow(blocks.get(index), inputs, index, get(event, "delta"))
        elif kind == "message_delta":
            message = _ended(message, event)
        complete = complete or kind == "message_stop"
    for index, text in inputs.items():
        if text and index in blocks:
            blocks[index]["input"] = read_json(text)
    complete = complete and not any(map(is_error, items(chunks)))
    return Assembled({**message, "content": list(blocks.values())}, complete)


def _dict(thing: Any) -> dict[str, Any]:
    """Return a fresh dict of what the API sent; {} for what is not an object."""
    dump = None if isinstance(thing, dict) else get(thing, "model_dump")
    if callable(dump):
        try:
            thing = dump(exclude_unset=True, by_alias=True, warnings=False)
        except Exception:  # noqa: BLE001 - an object of somebody else's
            return {}
    return dict(thing) if isinstance(thing, dict) else {}


def _grow(
    block: dict[str, Any] | None, inputs: dict[Any, str], index: Any, delta: Any
) -> None:
    if block is None:
        return
    kind = get(delta, "type")
    if kind == "input_json_delta":
        inputs[index] = inputs.get(index, "") + _text(get(delta, "partial_json"))
    elif kind == "citations_delta":
        citation = get(delta, "citation")
        told = _dict(citation) or citation
        block["citations"] = [*items(block.get("citations")), told]
    elif kind in _GROWING:
        name = _GROWING[kind]
        block[name] = _text(block.get(name)) + _text(get(delta, name))
    elif kind in _SETTING:
        plain = _dict(delta)
        block |= {name: plain[name] for name in _SETTING[kind] if name in plain}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _ended(message: dict[str, Any], event: Any) -> dict[str, Any]:
    """Return a message with how it stopped; counts of tokens are totals so far."""
    told = {n: v for n, v in _dict(event).items() if n not in ("type", "delta")}
    counts = {n: v for n, v in _dict(told.pop("usage", None)).items() if v is not None}
    stopped = _dict(get(event, "delta"))
    usage = {**_dict(message.get("usage")), **counts}
    return {**message, **told, **stopped, **({"usage": usage} if usage else {})}
