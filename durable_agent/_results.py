"""What answers a tool call, by what the log has of it; nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from durable_agent import events as ev
from durable_agent import values
from durable_agent._claims import alike, matches
from durable_agent._current import TOOL_NAMES
from durable_agent._identity import short_id
from durable_agent._responses import (
    decoded,
    recorded_arguments,
    recorded_value,
    said,
)
from durable_agent._texts import not_applied_text, text_of, unknown_text, unseen_text
from durable_agent.transcript import Result, calls_in, error_text, result_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent.recovery import History, Slot
    from durable_agent.store import LogReader
    from durable_agent.transcript import ToolCall


class Results:
    """Finds the outcomes of the tool calls of recorded responses."""

    def __init__(self, history: History, log: LogReader) -> None:
        self._history = history
        self._log = log
        self._calls: dict[int, list[ToolCall]] = {}
        #: Names under which the log has calls that answered tool calls.
        self._tools: set[str] | None = None

    def calls(self, response: Slot) -> list[ToolCall]:
        """Return the tool calls of a request's response, if it is whole."""
        if response.first not in self._calls:
            found = said(self._log, response)
            whole = found is not None and found.complete
            calls = calls_in(found.response) if found is not None and whole else []
            self._calls[response.first] = calls
        return self._calls[response.first]

    def open(self, response: Slot) -> Iterator[ToolCall]:
        """Yield the tool calls of a response that have no record at all."""
        for call in self.calls(response):
            where = (response.call, short_id(call.token))
            if where in self._history.by_tool_call or where in self._history.closers:
                continue
            if self._unlinked(response, call) is None:
                yield call

    def result(self, response: Slot, call: ToolCall) -> Result:
        """Return what answers a tool call of a response."""
        where = (response.call, short_id(call.token))
        slots = self._history.by_tool_call.get(where)
        if slots:
            return self._recorded(slots[-1], call.name)
        closer = self._history.closers.get(where)
        if closer is None:
            slot = self._unlinked(response, call)
            if slot is not None:
                return self._recorded(slot, call.name)
            known = self.not_started(response, call)
        else:
            known = closer.code == ev.TOOL_NOT_STARTED
        if known:
            text = text_of(ev.TOOL_NOT_STARTED, call.name, "side_effect")
            return Result(text, failed=True)
        return Result(unseen_text(call.name), failed=True)

    def not_started(self, response: Slot, call: ToolCall) -> bool:
        """Whether a tool call without a record is known not to have started.

        It is where intents are durable before bodies run, the tool is one that is
        recorded under the name that the model called, and no call of a tool since the
        request might have been this one.
        """
        if not self._history.intents_durable or response.outcome is None:
            return False
        if call.name not in TOOL_NAMES and call.name not in self._recorded_tools():
            return False
        return not any(
            self._may_be(slot, response, call) for slot in self._since(response)
        )

    def _since(self, response: Slot) -> Iterator[Slot]:
        """Yield the calls of tools since a request, those in its stream too."""
        for slot in self._history.slots:
            if slot.kind == "tool" and not slot.nested and slot.intent > response.first:
                yield slot

    def _may_be(self, slot: Slot, response: Slot, call: ToolCall) -> bool:
        """Whether a call of a tool might have answered this tool call.

        One that answers another call of the same response did not, unless this call's
        arguments do not parse: programs make something of such, and nobody can tell
        what. Nor did one of another name that answers a call of another response.
        """
        if not self._is_linked(slot):
            return True
        if short_name(slot) != call.name:
            return False
        if slot.resp != response.call:
            return True
        return call.arguments is None

    def _is_linked(self, slot: Slot) -> bool:
        """Whether a call answers a tool call that a recorded response really has."""
        if slot.tcid is None or slot.resp is None:
            return False
        asked = self._history.attempts.get((slot.resp, 1))
        while asked is not None and asked.retried:
            asked = self._history.attempts.get((slot.resp, asked.attempt + 1))
        if asked is None:
            return False
        return slot.tcid in {short_id(call.token) for call in self.calls(asked)}

    def _unlinked(self, response: Slot, call: ToolCall) -> Slot | None:
        """Return the record of a call that can only have been this one.

        Where the code that ran it did not have the response in its context (another
        task or thread, a queue), a call was recorded without its tool call. It has the
        same name and arguments, and was made before the next request.
        """
        if call.arguments is None:
            return None
        until = self._next_request(response)
        free = [
            slot
            for slot in self._since(response)
            if slot.intent < until
            and slot.parent == response.parent
            and not slot.retried
            and short_name(slot) == call.name
            and not self._is_linked(slot)
        ]
        if not free:
            return None
        waiting = [
            other
            for other in self.calls(response)
            if other.name == call.name
            and (response.call, short_id(other.token)) not in self._history.by_tool_call
        ]
        for fits in (matches, alike):
            mine = [s for s in free if fits(call, call.name, self._arguments(s))]
            same = [o for o in waiting if o.arguments == call.arguments]
            place = [o.token for o in same].index(call.token)
            if place < len(mine):
                return mine[place]
            if len(waiting) > 1 or len(free) > 1:
                break
        return None

    def _arguments(self, slot: Slot) -> dict[str, object]:
        found = recorded_arguments(self._log, slot)
        inner = [v for v in found.values() if isinstance(v, dict)]
        # What a model gave may be in ``**kwargs``, or a dispatcher's one argument.
        return {name: value for each in inner for name, value in each.items()} | found

    def _next_request(self, response: Slot) -> float:
        later = (
            slot.first
            for slot in self._history.slots
            if slot.kind == "llm"
            and slot.parent == response.parent
            and not slot.side
            and slot.first > response.first
            and (slot.extends == response.first or slot.parent is not None)
        )
        return min(later, default=float("inf"))

    def _recorded_tools(self) -> set[str]:
        if self._tools is None:
            self._tools = {
                short_name(slot)
                for slot in self._history.slots
                if slot.kind == "tool" and slot.tcid is not None
            }
        return self._tools

    def _recorded(self, slot: Slot, name: str) -> Result:
        outcome = slot.outcome
        if outcome is None or outcome.status == "suspended":
            return Result(unknown_text(name, slot.effect), failed=True)
        if outcome.status == "not_applied":
            return Result(not_applied_text(name), failed=True)
        if outcome.status == "code":
            return Result(text_of(outcome.code, name, slot.effect), failed=True)
        data = self._log.get(outcome.seq).data
        if outcome.status == "error":
            error = values.decode_error(orjson.dumps(data.get("error")))
            return Result(error_text(error), failed=True)
        value = recorded_value(self._log, slot, outcome)
        text = data.get("text")
        if text is not None:
            return Result(str(decoded(text)))
        return Result(result_text(value), value=value, has_value=True)


def short_name(slot: Slot) -> str:
    """Return what a model calls the function of a call."""
    return slot.name.rpartition(":")[2].rpartition(".")[2]
