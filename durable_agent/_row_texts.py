"""What the log holds of one call, as short texts for a row of a table.

Reads its intent and its outcome. What cannot be read gives empty texts: a table never
fails for a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from durable_agent import values
from durable_agent._edits_apply import is_edited
from durable_agent._preview import preview, preview_arguments
from durable_agent._responses import said
from durable_agent.errors import DurableError
from durable_agent.recovery import CODE, NOT_APPLIED, SUSPENDED
from durable_agent.transcript import turn_of, usage_of

if TYPE_CHECKING:
    from durable_agent.recovery import Slot
    from durable_agent.store import LogReader
    from durable_agent.transcript import Tokens

#: Characters of a preview, and of a name.
PREVIEW_CHARS: Final = 80


@frozen
class Asked:
    """A call's short name and its arguments."""

    name: str
    arguments: str = ""


@frozen
class Answered:
    """What came of a call."""

    result: str = ""
    seconds: float | None = None
    tokens: Tokens | None = None


def asked(log: LogReader, slot: Slot) -> Asked:
    """Return a call's short name, and its arguments; of requests, what is new."""
    if slot.kind == "value":
        return Asked(slot.name)
    data = _payload(log, slot.intent)
    args = data.get("args")
    newest = slot.kind == "llm" or is_edited(data)
    name = data.get("function")
    return Asked(
        name if isinstance(name, str) else slot.name,
        preview_arguments(args, PREVIEW_CHARS, newest=newest),
    )


def answered(log: LogReader, slot: Slot) -> Answered:
    """Return what came of a call, the seconds its body took, and its tokens."""
    outcome = slot.outcome
    if slot.kind == "llm" and (outcome is None or outcome.status == "value"):
        return _said(log, slot)
    if outcome is None:
        return Answered()
    data = _payload(log, outcome.seq)
    seconds = _seconds(data)
    if "error" in data:
        return Answered(preview(data["error"], PREVIEW_CHARS), seconds)
    if outcome.status in {CODE, SUSPENDED, NOT_APPLIED}:
        return Answered("", seconds)
    if "stream" in data:
        return Answered(_streamed(log, slot), seconds)
    return Answered(preview(data.get("value"), PREVIEW_CHARS), seconds)


def _seconds(data: dict[str, Any]) -> float | None:
    took = data.get("ms")
    return took / 1000 if isinstance(took, int | float) else None


def _streamed(log: LogReader, slot: Slot) -> str:
    first = _payload(log, slot.chunks[0]).get("chunks") if slot.chunks else []
    return preview(first, PREVIEW_CHARS)


def _said(log: LogReader, slot: Slot) -> Answered:
    """Return what a model said: its text, or its message; else the value.

    Of a stream that broke off, as far as it came.
    """
    data = _payload(log, slot.outcome.seq) if slot.outcome is not None else {}
    try:
        found = said(log, slot)
        response = None if found is None else found.response
        turn = None if response is None else turn_of(response)
        used = None if response is None else usage_of(response)
    except Exception:  # noqa: BLE001 - damage, and objects of SDKs
        turn = used = None
    if turn:
        messages = [_told(values.to_plain(message)) for message in turn]
        shown = messages[0] if len(messages) == 1 else messages
        text = preview(shown, PREVIEW_CHARS)
    elif "value" in data:
        text = preview(data["value"], PREVIEW_CHARS)
    else:
        text = _streamed(log, slot) if slot.chunks else ""
    return Answered(text, _seconds(data), None if used is None else used[1])


def _told(message: Any) -> Any:
    """Return a message without what is empty and who said it; a text alone."""
    if not isinstance(message, dict):
        return message
    told = {
        name: value
        for name, value in message.items()
        if name != "role" and value not in (None, "", [], {})
    }
    return told["content"] if list(told) == ["content"] else told


def _payload(log: LogReader, seq: int) -> dict[str, Any]:
    try:
        data = log.get(seq).data
    except (OSError, LookupError, ValueError, DurableError):
        return {}
    return data if isinstance(data, dict) else {}
