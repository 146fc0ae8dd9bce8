"""The conversation in a log: which one it is, and what answers its tool calls.

Reads the log and writes nothing. A *conversation* is a chain of top-level requests,
each extending the last; ``_chains.py`` notes which request extends which.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import orjson
from attrs import evolve

from durable_agent import values
from durable_agent._conversations import newest
from durable_agent._responses import Said, recorded_arguments, said
from durable_agent._results import Results
from durable_agent._texts import unseen_text
from durable_agent.errors import TranscriptError, TranscriptWarning
from durable_agent.transcript import (
    Exchange,
    Result,
    dialect_named,
    goes_on_after,
    read,
    response_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from durable_agent.recovery import History, Slot
    from durable_agent.store import LogReader
    from durable_agent.transcript import Dialect, ToolCall

    #: id, name and raw arguments of each call
    Signature: TypeAlias = list[tuple[str | None, str, bytes]]


class Transcript:
    """A reader of conversations: a history and the log with its payloads."""

    def __init__(self, history: History, log: LogReader, session: str) -> None:
        self._history = history
        self._log = log
        self._session = session
        self.results = Results(history, log)
        #: Request -> the calls of its response, as they are told apart in the middle.
        self._signatures: dict[Slot, Signature] | None = None

    def messages(
        self, of: str | int | None = None, dialect: str | None = None
    ) -> list[Any]:
        """Return the conversation: request, response, and a result for every call."""
        stated = dialect_named(dialect)
        last = self.last(of)
        if last is None:
            return []
        seen = self.exchange(last, stated)
        if stated is not None and not (seen.messages or seen.turn):
            raise TranscriptError(
                f"the last request and its response are not in the dialect "
                f"{stated.NAME!r}",
                session=self._session,
                advice="Leave dialect= out to have it found.",
            )
        return self.shown(last, seen)

    def shown(self, last: Slot, seen: Exchange) -> list[Any]:
        """Return a request with its turn and a result for every call."""
        whole = [*seen.messages, *(seen.turn or [])]
        return seen.dialect.balance(whole, self._answers(last, seen, whole))

    def partial(
        self, of: str | int | None = None, dialect: str | None = None
    ) -> list[Any]:
        """Return the turn of the last request as far as it came; empty: none."""
        stated = dialect_named(dialect)
        last = self.last(of)
        said = None if last is None else self.said(last)
        if last is None or said is None or said.complete:
            return []
        return read(self.arguments(last), said.response, stated).turn or []

    def last(self, of: str | int | None = None) -> Slot | None:
        """Return the last request of the conversation that is meant.

        Raises:
            TranscriptError: there are several, and none was chosen.
        """
        found = newest(self._history, of)
        if len(found) > 1:
            names = ", ".join(sorted({slot.name for slot in found}))
            seqs = ", ".join(str(slot.intent) for slot in found)
            raise TranscriptError(
                f"the log holds several conversations: {names} (their last requests: "
                f"seq {seqs})",
                session=self._session,
                advice="Choose one with messages(of=function) or of=seq, or keep side "
                "requests out with checkpointed_llm(transcript=False).",
            )
        if not found and of is not None:
            raise TranscriptError(
                f"no model request {of} is recorded", session=self._session
            )
        return found[0] if found else None

    # one request --------------------------------------------------------------

    def arguments(self, slot: Slot) -> dict[str, Any]:
        """Return the arguments of a call; what cannot be rebuilt here, as JSON."""
        return recorded_arguments(self._log, slot)

    def exchange(
        self, slot: Slot, dialect: Dialect | None = None, *, quiet: bool = False
    ) -> Exchange:
        """Return a request and the turn that answered it, if it is whole.

        Unless ``quiet``, a response that shows no turn is warned of.
        """
        said = self.said(slot)
        response = said.response if said is not None and said.complete else None
        arguments = self.arguments(slot)
        seen = read(arguments, response, dialect)
        after = goes_on_after(arguments)
        if after is not None:
            seen = evolve(seen, messages=[*self._before(slot, after), *seen.messages])
        if response is not None and seen.turn is None and not quiet:
            warnings.warn(
                f"session {self._session!r}: no dialect sees an assistant turn in what "
                f"{slot.name} returned ({type(response).__name__}, seq {slot.intent}); "
                "messages() lacks it. Return the provider's response, its message, or "
                "the text.",
                TranscriptWarning,
                stacklevel=4,
            )
        if response is not None and not seen.messages and not quiet:
            warnings.warn(
                f"session {self._session!r}: {slot.name} shows no messages in its "
                f"request (seq {slot.intent}); messages() begins with its answer. "
                "Give it the list of messages as an argument.",
                TranscriptWarning,
                stacklevel=4,
            )
        return seen

    def _before(self, slot: Slot, after: str) -> list[Any]:
        """Return what a provider kept: the messages up to the response ``after``.

        Of responses that are not in this log, nothing is known.
        """
        by_first = {s.first: s for s in self._history.slots if s.kind == "llm"}
        parts: list[list[Any]] = []
        wanted: str | None = after
        former = by_first.get(slot.extends)
        while wanted is not None and former is not None:
            said = self.said(former)
            if said is None or response_id(said.response) != wanted:
                break
            arguments = self.arguments(former)
            seen = read(arguments, said.response)
            parts.append([*seen.messages, *(seen.turn or [])])
            wanted = goes_on_after(arguments)
            former = by_first.get(former.extends)
        return [message for part in reversed(parts) for message in part]

    def said(self, slot: Slot) -> Said | None:
        """Return the response of a request; None: there is none, or no value of it."""
        return said(self._log, slot)

    # results ------------------------------------------------------------------

    def _answers(
        self, last: Slot, seen: Exchange, whole: list[Any]
    ) -> Callable[[Sequence[Any], ToolCall], Result]:
        dialect, own = seen.dialect, seen.turn or []

        def answer(turn: Sequence[Any], call: ToolCall) -> Result:
            if own and turn and turn[-1] is own[-1]:
                # Of turns that a provider merges, the last calls are the response's.
                mine, every = dialect.calls(own), dialect.calls(turn)
                place = [c.token for c in every].index(call.token)
                place -= len(every) - len(mine)
                if place >= 0:
                    return self.results.result(last, mine[place])
            slot = self._slot_of(turn, last, dialect, whole)
            if slot is None:
                return Result(unseen_text(call.name), failed=True)
            return self.results.result(slot, call)

        return answer

    def _slot_of(
        self, turn: Sequence[Any], last: Slot, dialect: Dialect, whole: list[Any]
    ) -> Slot | None:
        """Return the request that was answered with a turn in the middle.

        Of several that were answered with the same calls, the one that was as long as
        what is before the turn; else the last.
        """
        wanted = _signature(dialect.calls(turn))
        before = next((i for i, m in enumerate(whole) if m is turn[0]), -1)
        fits = [
            slot
            for slot, signature in self._answered().items()
            if signature == wanted and slot.intent < last.intent
        ]
        if len(fits) > 1:
            for slot in reversed(fits):
                if len(self.exchange(slot, dialect, quiet=True).messages) == before:
                    return slot
        return fits[-1] if fits else None

    def _answered(self) -> dict[Slot, Signature]:
        """Return the requests that were answered with tool calls; read once."""
        if self._signatures is None:
            self._signatures = {}
            for slot in self._history.slots:
                if slot.kind == "llm" and not slot.side and slot.outcome is not None:
                    calls = self.results.calls(slot)
                    if calls:
                        self._signatures[slot] = _signature(calls)
        return self._signatures


def _signature(calls: Sequence[ToolCall]) -> Signature:
    return [
        (call.id, call.name, orjson.dumps(values.to_plain(call.raw), default=str))
        for call in calls
    ]
