"""Streams of the Responses API: events to the response that they amount to.

Known are the events of the API, as objects or as JSON; those of the SDK's ``stream()``
are such, too. The event that ends a response holds it whole, as a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._fields import get, is_error, items, kind_of
from durable_agent.transcript._objects import plain
from durable_agent.transcript._types import Assembled

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEGINS: Final = frozenset(
    f"response.{how}" for how in ("created", "queued", "in_progress")
)
_ENDS: Final = frozenset(
    f"response.{how}" for how in ("completed", "incomplete", "failed")
)
#: Pieces of an item's member, by the event.
_OF_ITEM: Final = {
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}
#: Pieces of a part: where the item has it, which one it is, and what it is.
_OF_PART: Final = {
    "response.output_text": ("content", "content_index", "output_text", "text"),
    "response.refusal": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text": (
        *("summary", "summary_index", "summary_text", "text"),
    ),
}
#: Parts of a reasoning item.
_REASONING: Final = frozenset({"reasoning_text", "summary_text"})


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk is the end of a response that did not fail."""
    kind = kind_of(chunk)
    failed = kind == "response.failed" or is_error(get(chunk, "response"))
    return kind in _ENDS and not failed


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the response that events amount to, as the API gives it unstreamed.

    What was cut off is as far as it came. One that failed is not complete, be it that
    an error came.
    """
    events = [c for c in items(chunks) if kind_of(c).startswith("response.")]
    if not events:
        return None
    response: dict[str, Any] = {"object": "response"}
    output: dict[Any, dict[str, Any]] = {}
    complete = False
    for event in events:
        kind = kind_of(event)
        if kind in _BEGINS or kind in _ENDS:
            complete = complete or is_final_chunk(event)
            response |= _dict(get(event, "response"))
        else:
            _grow(output, kind, event)
    # Some servers send an end without what was streamed.
    if not items(response.get("output")):
        response["output"] = [output[at] for at in sorted(output, key=_place)]
    failed = response.get("status") == "failed" or any(map(is_error, items(chunks)))
    return Assembled(response, complete and not failed)


def _place(index: Any) -> int:
    return index if isinstance(index, int) else 0


def _dict(thing: Any) -> dict[str, Any]:
    told = plain(thing)
    return dict(told) if isinstance(told, dict) else {}


def _grow(output: dict[Any, dict[str, Any]], kind: str, event: Any) -> None:
    at = get(event, "output_index") or 0
    if not isinstance(at, int):
        return
    event_of, _, step = kind.rpartition(".")
    if kind in ("response.output_item.added", "response.output_item.done"):
        if item := _dict(get(event, "item")):
            output[at] = item
    elif event_of in _OF_ITEM and at in output:
        name = _OF_ITEM[event_of]
        output[at][name] = _text(output[at].get(name), name, step, event)
    elif event_of in _OF_PART:
        where, index, type_, name = _OF_PART[event_of]
        part = _part(output, at, where, get(event, index) or 0, {"type": type_})
        part[name] = _text(part.get(name), name, step, event)
    elif event_of == "response.content_part":
        part = _part(output, at, "content", get(event, "content_index") or 0, {})
        part |= _dict(get(event, "part"))
    elif kind == "response.output_text.annotation.added":
        part = _part(output, at, "content", get(event, "content_index") or 0, {})
        note = plain(get(event, "annotation"))
        part["annotations"] = [*items(part.get("annotations")), note]


def _text(known: Any, name: str, step: str, event: Any) -> Any:
    """Return a text with a piece, or the whole that the last piece tells."""
    if step == "done":
        return whole if isinstance(whole := get(event, name), str) else known
    piece = get(event, "delta")
    if not isinstance(piece, str):
        return known
    return known + piece if isinstance(known, str) else piece


def _part(
    output: dict[Any, dict[str, Any]],
    at: int,
    where: str,
    index: Any,
    begun: dict[str, Any],
) -> dict[str, Any]:
    """Return a part of an item; one that was not announced is begun."""
    kind = "reasoning" if begun.get("type") in _REASONING else "message"
    fresh = {"type": kind} | ({"role": "assistant"} if kind == "message" else {})
    item = output.setdefault(at, fresh)
    # The parts are ours to change, not those of the event that had them.
    parts: list[dict[str, Any]] = [_dict(part) for part in items(item.get(where))]
    index = index if isinstance(index, int) and index < len(parts) else len(parts)
    if index == len(parts):
        parts.append(dict(begun))
    item[where] = parts
    part: dict[str, Any] = parts[index]
    return part
