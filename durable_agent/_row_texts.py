"""What the log holds of one call, as short texts for a row of a table.

Reads its intent and its outcome. What cannot be read is said to be unreadable: a table
never fails for a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

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
#: Where a payload cannot be read: nothing is said of what it holds.
_UNREADABLE: Final = "<unreadable>"
#: Stands for items that are not looked at; shown as an ellipsis.
_MORE: Final = {"$keep": [0, 0]}


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
    if data is None:
        return Asked(slot.name, _UNREADABLE)
    newest = slot.kind == "llm" or is_edited(data)
    name = data.get("function")
    return Asked(
        name if isinstance(name, str) else slot.name,
        preview_arguments(data.get("args"), PREVIEW_CHARS, newest=newest),
    )


def answered(log: LogReader, slot: Slot) -> Answered:
    """Return what came of a call, the seconds its body took, and its tokens."""
    outcome = slot.outcome
    if outcome is None:
        return _said(log, slot) if slot.kind == "llm" and slot.chunks else Answered()
    data = _payload(log, outcome.seq)
    if data is None:
        return Answered(_UNREADABLE)
    if "error" in data:
        return Answered(preview(data["error"], PREVIEW_CHARS), _seconds(data))
    if outcome.status in {CODE, SUSPENDED, NOT_APPLIED}:
        return Answered("", _seconds(data))
    if slot.kind == "llm":
        return evolve(_said(log, slot, data), seconds=_seconds(data))
    return Answered(_value(log, slot, data), _seconds(data))


def _seconds(data: dict[str, Any]) -> float | None:
    took = data.get("ms")
    return took / 1000 if isinstance(took, int | float) else None


def _value(log: LogReader, slot: Slot, data: dict[str, Any]) -> str:
    """Return what a call returned; of a stream, how it began."""
    if "value" in data:
        return preview(data["value"], PREVIEW_CHARS)
    first = (_payload(log, slot.chunks[0]) or {}) if slot.chunks else {}
    chunks = first.get("chunks")
    if not isinstance(chunks, list):
        return ""
    more = [_MORE] if len(slot.chunks) > 1 else []
    return preview([*chunks, *more], PREVIEW_CHARS)


def _said(log: LogReader, slot: Slot, data: dict[str, Any] | None = None) -> Answered:
    """Return what a model said: its text, or its message; else the value.

    Of a stream that broke off, as far as it came.
    """
    turn = used = None
    try:
        found = said(log, slot)
        if found is not None:
            turn, used = turn_of(found.response), usage_of(found.response)
    except Exception:  # noqa: BLE001 - damage, and objects of SDKs
        return Answered(_UNREADABLE)
    tokens = None if used is None else used[1]
    if not turn:
        return Answered(_value(log, slot, data or {}), None, tokens)
    messages = [_told(values.to_plain(message)) for message in turn]
    shown = messages[0] if len(messages) == 1 else messages
    return Answered(preview(shown, PREVIEW_CHARS), None, tokens)


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


def _payload(log: LogReader, seq: int) -> dict[str, Any] | None:
    try:
        data = log.get(seq).data
    except (OSError, LookupError, ValueError, DurableError):
        return None
    return data if isinstance(data, dict) else None
