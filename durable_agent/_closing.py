"""Closers: what makes a crashed log's conversation acceptable again.

They are what `Transcript.messages` shows in memory, written down by a continued run
with its first new event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import events as ev
from durable_agent import values
from durable_agent._arguments import arguments_of
from durable_agent._conversations import newest
from durable_agent._identity import short_id
from durable_agent._transcripts import Transcript
from durable_agent.events import Draft
from durable_agent.outcomes import Call
from durable_agent.recovery import CLOSER_CAUSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from durable_agent._core import Core
    from durable_agent.events import Event
    from durable_agent.recovery import History, Slot
    from durable_agent.store import LogReader


def transcript_of(core: Core) -> Transcript:
    """Return the reader of an open session's conversations."""
    return Transcript(core.history, core.log, core.id)


def closers(core: Core) -> list[Draft]:
    """Return what closes the log: outcomes of open calls, then open steps' ends.

    Of the calls that the model asked for in the last response of each conversation,
    those without a record are closed too.
    """
    history = core.history
    drafts = [_closer(slot) for slot in _open(history)]
    transcript = transcript_of(core)
    for last in newest(history):
        drafts += _unstarted(transcript, last)
    for step in reversed(history.open_steps()):
        meta = {"name": step.name, "n": step.n, "parent": step.parent, "ok": False}
        drafts.append(Draft(ev.STEP_END, meta=meta))
    return drafts


def _unstarted(transcript: Transcript, last: Slot) -> Iterator[Draft]:
    results = transcript.results
    for call in results.open(last):
        known = results.not_started(last, call)
        code = ev.TOOL_NOT_STARTED if known else ev.TOOL_OUTCOME_UNKNOWN
        meta: dict[str, Any] = {
            "resp": last.call,
            "tcid": short_id(call.token),
            "status": "code",
            "code": code,
            "cause": CLOSER_CAUSE,
        }
        raw = orjson.dumps({"code": code, "cause": CLOSER_CAUSE})
        yield Draft(ev.TOOL_RESULT, raw, meta=meta)


def _open(history: History) -> Iterable[Slot]:
    return (slot for slot in history.in_doubt() if slot.outcome is None)


def _closer(slot: Slot) -> Draft:
    code = ev.TOOL_OUTCOME_UNKNOWN
    meta = {
        "attempt": slot.attempt,
        "status": "code",
        "code": code,
        "cause": CLOSER_CAUSE,
    }
    raw = orjson.dumps({"code": code, "cause": CLOSER_CAUSE})
    type_ = ev.LLM_RESPONSE if slot.kind == "llm" else ev.TOOL_RESULT
    return Draft(type_, raw, slot.call, slot.key, meta)


def call_of(
    log: LogReader, session: str, slot: Slot, event: Event | None = None
) -> Call:
    """Return a call as it was recorded; redacted arguments are left out."""
    event = log.get(slot.intent) if event is None else event
    arguments = {
        name: values.decode(orjson.dumps(value))
        for name, value in arguments_of(log, event).items()
        if not (isinstance(value, dict) and "$redacted" in value)
    }
    data = event.data
    return Call(
        id=slot.call,
        name=slot.name,
        kind="llm" if slot.kind == "llm" else "tool",
        session=session,
        attempt=slot.attempt,
        idempotency_key=data["idempotency_key"],
        tool_call_id=data["tool_call_id"],
        parent=slot.parent,
        effect=slot.effect,
        seq=slot.intent,
        arguments=arguments,
    )
