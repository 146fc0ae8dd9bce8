"""The conversation in a log, and the closers that make it acceptable again.

Both read the log and write nothing; `conversation` shows in memory what `closers`
would append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import events as ev
from durable_agent import values
from durable_agent._texts import text_of, unknown_text
from durable_agent.errors import DurableError, TranscriptError
from durable_agent.events import Draft
from durable_agent.outcomes import Call
from durable_agent.recovery import CLOSER_CAUSE
from durable_agent.replay import last_request
from durable_agent.transcript import (
    assistant_message,
    calls_of,
    continues,
    request_messages,
    tool_message,
)
from durable_agent.transcript.openai_chat import error_text, result_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from durable_agent._core import Core
    from durable_agent.events import Event
    from durable_agent.recovery import History, Recorded, Slot
    from durable_agent.store import LogReader
    from durable_agent.transcript import ToolCall


class Transcript:
    """A reader of conversations: a history and the log with its payloads."""

    def __init__(self, history: History, log: LogReader, session: str) -> None:
        self._history = history
        self._log = log
        self._session = session

    def messages(self, of: str | None = None) -> list[Any]:
        """Return the conversation: request, response, and a result for every call."""
        last = self.last(of)
        if last is None:
            return []
        messages = self._request(last)
        turn = self._response(last)
        if turn is None:
            return messages
        messages.append(turn)
        messages.extend(
            tool_message(call, self._result(last, call)) for call in calls_of(turn)
        )
        return messages

    def last(self, of: str | None) -> Slot | None:
        """Return the last request of the conversation that is meant.

        Raises:
            TranscriptError: several functions hold conversations that do not extend
                one another, and none was chosen.
        """
        if of is not None:
            found = last_request(self._history, of)
            if found is None:
                raise TranscriptError(
                    f"no model request of {of} is recorded", session=self._session
                )
            return found
        newest: dict[str, Slot] = {}
        for slot in self._history.slots:
            if slot.kind == "llm" and slot.parent is None and not slot.side:
                newest[slot.name] = slot
        ordered = sorted(newest.values(), key=lambda slot: slot.intent)
        if not ordered:
            return None
        last = ordered[-1]
        if len(ordered) > 1:
            self._same_conversation(ordered)
        return last

    def _same_conversation(self, requests: list[Slot]) -> None:
        last = self._request(requests[-1])
        for other in requests[:-1]:
            messages = self._request(other)
            if not (continues(messages, last) or continues(last, messages)):
                names = ", ".join(sorted({slot.name for slot in requests}))
                raise TranscriptError(
                    f"the log holds several conversations: {names}",
                    session=self._session,
                    advice="Choose one with messages(of=function), or keep side "
                    "requests out with checkpointed_llm(transcript=False).",
                )

    def _request(self, slot: Slot) -> list[Any]:
        arguments = self._log.get(slot.intent).data["args"]
        bound = {}
        for name, value in arguments.items():
            try:
                bound[name] = values.decode(orjson.dumps(value))
            except DurableError:
                bound[name] = None
        found = request_messages(bound)
        return [] if found is None else list(found)

    def _response(self, slot: Slot) -> Any | None:
        outcome = slot.outcome
        if outcome is None or outcome.status != "value":
            return None
        return assistant_message(response_value(self._log, slot, outcome))

    def open_calls(self, slot: Slot) -> Iterator[ToolCall]:
        """Yield the tool calls of a request's response that have no record at all."""
        turn = self._response(slot)
        for call in calls_of(turn):
            where = (slot.call, call.token)
            if where in self._history.by_tool_call or where in self._history.closers:
                continue
            yield call

    def not_started(self, response: Slot) -> bool:
        """Whether a tool call without a record is known not to have started."""
        outcome = response.outcome
        if not self._history.intents_durable or outcome is None:
            return False
        return not any(
            slot.kind == "tool"
            and slot.tcid is None
            and not slot.nested
            and slot.intent > outcome.seq
            for slot in self._history.slots
        )

    def _result(self, response: Slot, call: ToolCall) -> str:
        where = (response.call, call.token)
        slots = self._history.by_tool_call.get(where)
        if not slots:
            closer = self._history.closers.get(where)
            if closer is not None:
                return text_of(closer.code, call.name, "side_effect")
            if self.not_started(response):
                return text_of(ev.TOOL_NOT_STARTED, call.name, "side_effect")
            return unknown_text(call.name, "side_effect")
        return self.text(slots[-1], call.name)

    def text(self, slot: Slot, name: str) -> str:
        """Return what stands as the result of a tool call with a record."""
        outcome = slot.outcome
        if outcome is None or outcome.status in {"suspended", "not_applied"}:
            return unknown_text(name, slot.effect)
        if outcome.status == "code":
            return text_of(outcome.code, name, slot.effect)
        if outcome.status == "error":
            data = self._log.get(outcome.seq).data
            error = values.decode_error(orjson.dumps(data["error"]))
            return error_text(error)
        return result_text(response_value(self._log, slot, outcome))


def response_value(log: LogReader, slot: Slot, outcome: Recorded) -> Any:
    """Return the recorded value of a call; chunks of a stream as a list."""
    data = log.get(outcome.seq).data
    if "stream" not in data:
        return values.decode(orjson.dumps(data.get("value")))
    return [chunk for seq in slot.chunks for chunk in chunks_of(log, seq)]


def chunks_of(log: LogReader, seq: int) -> list[Any]:
    """Return the chunks of one packed batch."""
    data = log.get(seq).data
    return [values.decode(orjson.dumps(chunk)) for chunk in data["chunks"]]


def conversation(core: Core, of: str | None = None) -> list[Any]:
    """Return the conversation of an open session; see ``Session.messages``."""
    return Transcript(core.history, core.log, core.id).messages(of)


def closers(core: Core) -> list[Draft]:
    """Return what closes the log: outcomes of open calls, then open steps' ends.

    Of the calls that the model asked for, those without a record are closed too.
    """
    history = core.history
    drafts = [_closer(slot) for slot in _open(history)]
    transcript = Transcript(history, core.log, core.id)
    last = last_request(history)
    if last is not None:
        known = transcript.not_started(last)
        code = ev.TOOL_NOT_STARTED if known else ev.TOOL_OUTCOME_UNKNOWN
        for call in transcript.open_calls(last):
            meta: dict[str, Any] = {
                "resp": last.call,
                "tcid": call.token,
                "status": "code",
                "code": code,
                "cause": CLOSER_CAUSE,
            }
            raw = orjson.dumps({"code": code, "cause": CLOSER_CAUSE})
            drafts.append(Draft(ev.TOOL_RESULT, raw, meta=meta))
    for step in reversed(history.open_steps()):
        meta = {"name": step.name, "n": step.n, "parent": step.parent, "ok": False}
        drafts.append(Draft(ev.STEP_END, meta=meta))
    return drafts


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
    data = (log.get(slot.intent) if event is None else event).data
    arguments = {
        name: values.decode(orjson.dumps(value))
        for name, value in data["args"].items()
        if not (isinstance(value, dict) and "$redacted" in value)
    }
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
