"""What an open session remembers of its last requests and outcomes, as digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from durable_agent import events as ev
from durable_agent._edits import Made, make
from durable_agent._edits_sources import OUTCOMES, Sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from durable_agent._edits_parts import Snapshot
    from durable_agent.events import Draft, Event

#: Requests of one function remembered: so many conversations may go on at once.
REQUESTS: Final = 64
#: Functions remembered.
_FUNCTIONS: Final = 64


@frozen(eq=False)
class Recalled:
    """What was read of a log that was opened again, for one function."""

    requests: Sequence[Snapshot]
    outcomes: Sequence[Event]


@define(eq=False)
class Index:
    """The requests that the next ones are compared with, by function.

    Before the first request of a run nothing is remembered, so that a replay costs
    nothing. Used under the session's lock.
    """

    _requests: dict[str, list[Snapshot]] = field(factory=dict)
    _sources: Sources = field(factory=Sources)
    #: Functions whose requests in the log are known.
    _recalled: set[str] = field(factory=set)
    _awake: bool = False

    def knows(self, name: str) -> bool:
        """Whether the function's recorded requests are remembered."""
        return name in self._recalled

    def recall(self, name: str, found: Recalled) -> None:
        """Remember what was recorded before this run."""
        if name in self._recalled:
            return
        self._recalled.add(name)
        mine = self._requests.setdefault(name, [])
        known = {each.seq for each in mine}
        mine[:0] = [each for each in found.requests if each.seq not in known]
        del mine[:-REQUESTS]
        self._awake = True
        for event in found.outcomes:
            self._add(event.seq, event)

    def make(self, name: str, raw: bytes) -> Made:
        """Write the arguments of a request of the function."""
        return make(raw, self._requests.get(name, ()), self._sources.found)

    def note(self, name: str, seq: int, made: Made) -> None:
        """Remember a request that was appended."""
        self._awake = True
        snapshot = made.snapshot
        if snapshot is None:
            return
        snapshot.seq = seq
        mine = self._requests.pop(name, [])
        if made.base in mine:
            # It is used, or of no more use.
            mine.remove(made.base)
            if not made.replaces:
                mine.append(made.base)
        self._requests[name] = [*mine, snapshot][-REQUESTS:]
        while len(self._requests) > _FUNCTIONS:
            del self._requests[next(iter(self._requests))]

    def seen(self, first: int, drafts: Iterable[Draft]) -> None:
        """Remember the outcomes among events that were appended from ``first`` on."""
        if self._awake:
            for seq, draft in enumerate(drafts, first):
                if draft.type in OUTCOMES:
                    self._add(seq, draft)

    def _add(self, seq: int, event: Event | Draft) -> None:
        attempt: Any = event.meta.get("attempt")
        self._sources.add(seq, event.type, event.raw, event.call, attempt)


def is_request(event: Event) -> bool:
    """Whether the event may hold an edit."""
    return event.type == ev.LLM_REQUEST
