"""Pure decisions: how far a run is on the recorded path, and what a call meets there.

`Replay` moves along a `History`; it neither waits nor writes. The flow of a call asks
it: which recorded occurrence is this (`take`), what is to be done with it (`settle`),
may it be handed out yet (`Lane.ready`), and if there is none, whether the code has left
the path (`off_path`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import define, field, frozen

from durable_agent import events as ev
from durable_agent._lanes import END, Lane
from durable_agent.recovery import (
    CANCEL_CAUSE,
    CODE,
    ERROR,
    ERROR_CAUSE,
    NOT_APPLIED,
    PAUSE_CAUSE,
    SUSPENDED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from durable_agent.recovery import History, Recorded, Slot

#: What to do with a recorded call that was asked for again:
#: deliver    hand its value or error out, in turn
#: rerun      make it again, as the next attempt
#: pause      as rerun, of a pause that it came back from: once more, in its turn
#: park       it was cancelled and the run went on: wait to be cancelled again
#: ask        in doubt, with effects: verifier, handler, else unknown
#: verify     its error ended the run: made again only if verified not applied
#: unknown    the run went on with "unknown": it stays so
#: lost       it completed and its value was never stored
Action: TypeAlias = Literal[
    "deliver", "rerun", "pause", "park", "ask", "verify", "unknown", "lost"
]

#: Effects that may be made again by themselves.
_AGAIN: Final = frozenset({"read_only", "idempotent", "composite"})


def settle(
    history: History, slot: Slot, *, effect: str, verify: bool, retry_failed: bool
) -> Action:
    """Decide about a recorded call that the code asks for, by its current effect."""
    outcome = slot.outcome
    again = slot.kind == "llm" or effect in _AGAIN
    in_doubt: Action = "rerun" if again else "ask"
    if outcome is None:
        return in_doubt
    if not outcome.handed and history.went_on(slot):
        return "park"
    match outcome.status:
        case "value":
            return "deliver"
        case "error":
            if not history.ended_run(slot):
                return "deliver"
            if again or retry_failed:
                return "rerun"
            return "verify" if verify else "deliver"
        case "suspended" if outcome.cause == ERROR_CAUSE and history.went_on(slot):
            # It told the model something, and the model has answered to that.
            return "deliver"
        case "suspended" if slot.retried and outcome.cause == PAUSE_CAUSE:
            # Entered once more, it might not pause, and do what was done since.
            return "deliver"
        case "suspended" if slot.retried:
            # It came back from that pause: it is paused once more, in its turn.
            return "pause"
        case "suspended" | "not_applied":
            return "rerun"
        case _:
            return _settle_code(outcome, history.went_on(slot), in_doubt, again=again)


def _settle_code(
    outcome: Recorded, went_on: bool, in_doubt: Action, *, again: bool
) -> Action:
    if outcome.code == ev.RESULT_NOT_STORABLE:
        return "rerun" if again else "lost"
    if outcome.code == ev.ABORTED_BEFORE_DISPATCH:
        return "park" if went_on else "rerun"
    if not went_on:
        return in_doubt
    if outcome.cause == CANCEL_CAUSE:
        return "park"
    if outcome.cause == ERROR_CAUSE:
        return "deliver"
    return "unknown"


@frozen
class OffPath:
    """The code asked for what the log does not have, while records are unused."""

    #: The unused record to compare with.
    slot: Slot
    #: Whether running on could repeat an effect.
    dangerous: bool


@define(eq=False)
class Replay:
    """How far one run is along the recorded path."""

    history: History
    #: Nothing replays: the run continues after the last event.
    continued: bool = False
    #: The run has replayed a model request.
    replayed_model: bool = False
    #: Names of the calls that replayed.
    replayed: list[str] = field(factory=list)
    #: Responses that were made live in this run.
    live_responses: set[str] = field(factory=set)
    _lanes: dict[str | None, Lane] = field(factory=dict)

    def start(self) -> None:
        """Take everything in the history as recorded."""
        by_parent: dict[str | None, list[Slot]] = {}
        for slot in self.history.slots:
            by_parent.setdefault(slot.parent, []).append(slot)
        for parent, slots in by_parent.items():
            self._lanes[parent] = lane = Lane()
            lane.fill(self.history, slots)
        if self.continued:
            self.use_all()

    def lane(self, parent: str | None) -> Lane:
        """Return the lane of the calls under ``parent``."""
        lane = self._lanes.get(parent)
        if lane is None:
            lane = self._lanes[parent] = Lane()
        return lane

    def use_all(self) -> None:
        """Take everything recorded as used: what follows is live."""
        for slot in self.history.slots:
            slot.asked = slot.delivered = True

    def use_up_to(self, seq: int, resp: str | None = None) -> None:
        """Miss nothing that ended before an event: the code goes on from there.

        Nor what answered tool calls of ``resp``, which its state may have as well. What
        is asked for all the same replays.
        """
        for slot in self.history.slots:
            if slot.asked or not slot.recorded or slot.outcome is None:
                continue
            if slot.outcome.seq <= seq or (resp is not None and slot.resp == resp):
                slot.asked = slot.delivered = slot.given_up = True

    def ask_again(self, resp: str, tcid: str) -> None:
        """Let what a former run answered a tool call with replay, in any run."""
        for slot in self.history.by_tool_call.get((resp, tcid), ()):
            outcome = slot.outcome
            if slot.recorded and outcome is not None and outcome.status == "value":
                slot.given_up = slot.asked

    def _goes_on_at(self, request: Slot) -> None:
        """Tell whether this run begins in the middle of a conversation."""
        if self.replayed_model or self.live_responses or request.extends < 0:
            return
        slots = self.history.slots
        at = bisect_left(slots, request.extends, key=lambda slot: slot.first)
        if at < len(slots) and not slots[at].asked:
            self.use_up_to(request.intent)

    def rewind(self, slots: Iterable[Slot]) -> None:
        """Make these calls of a suspended call or step replay when asked for again."""
        parents = set()
        for slot in slots:
            slot.recorded, slot.asked, slot.delivered = True, False, False
            slot.waiting, slot.rewound = False, True
            parents.add(slot.parent)
        for parent in parents:
            known = (s for s in self.history.slots if s.parent == parent)
            self.lane(parent).fill(self.history, (s for s in known if s.recorded))

    def take(
        self, parent: str | None, key: str, resp: str | None, tcid: str | None
    ) -> Slot | None:
        """Return the lowest unused record of this identity and mark it asked for."""
        loose = None
        for slot in self.history.by_identity.get((parent, key), ()):
            if (slot.asked and not slot.given_up) or not slot.recorded:
                continue
            if (slot.resp, slot.tcid) == (resp, tcid):
                return self.use(slot)
            if loose is None and (slot.tcid is None or tcid is None):
                loose = slot
        return None if loose is None else self.use(loose)

    def use(self, slot: Slot) -> Slot:
        """Mark a record as asked for."""
        if slot.kind == "llm" and slot.parent is None:
            self._goes_on_at(slot)
        slot.asked, slot.given_up, slot.rewound = True, False, False
        if slot.kind != "value":
            self.replayed.append(slot.name)
        return slot

    def put_back(self, slot: Slot) -> None:
        """Make a record available again: what asked for it got nothing."""
        slot.asked = slot.delivered = slot.waiting = False
        self.lane(slot.parent).restart()

    def give_up(self, slot: Slot) -> None:
        """Wait no more for a record whose caller went; it may be asked for again."""
        slot.delivered = slot.given_up = True

    def similar(
        self,
        kind: str,
        name: str,
        parent: str | None,
        resp: str | None,
        tcid: str | None,
    ) -> list[Slot]:
        """Return unused records of the function that may differ by a default only."""
        return [
            slot
            for slot in self.lane(parent).unused()
            if (slot.kind, slot.name) == (kind, name)
            and (slot.resp, slot.tcid) == (resp, tcid)
            and not slot.keyed
        ]

    def occurrence(self, parent: str | None, key: str) -> int:
        """Return the number of the next call of this identity, from 1."""
        slots = self.history.by_identity.get((parent, key), ())
        return len({slot.call for slot in slots}) + 1

    def retry_of(
        self, parent: str | None, key: str, resp: str | None, tcid: str | None
    ) -> Slot | None:
        """Return the call that this one is another attempt at, if it is.

        It failed, or its caller was cancelled and never had its outcome.
        """
        for slot in reversed(self.history.by_identity.get((parent, key), ())):
            if (slot.resp, slot.tcid) != (resp, tcid) or slot.kind == "value":
                continue
            if self.continued and slot.recorded:
                # What an earlier run left behind: this is a new decision.
                return None
            if slot.outcome is None:
                if slot.recorded:
                    return None
                continue
            failed = slot.outcome.status in {ERROR, SUSPENDED, CODE, NOT_APPLIED}
            failed |= tcid is not None or not slot.outcome.handed
            return slot if failed and not slot.retried else None
        return None

    def equal_in_flight(self, parent: str | None, key: str) -> bool:
        """Whether an equal call that answers no tool call is running now."""
        slots = self.history.by_identity.get((parent, key), ())
        return any(
            s.asked and s.outcome is None and not s.recorded and s.tcid is None
            for s in slots
        )

    def off_path(
        self,
        kind: str,
        *,
        parent: str | None,
        effect: str,
        keyed: bool,
        resp: str | None,
        tcid: str | None,
    ) -> OffPath | None:
        """Judge a call that has no record, once every recorded call had its chance."""
        if keyed:
            return None
        lane = self.lane(parent)
        first = next((s for s in lane.unused() if not _given_up(s)), None)
        harmless = None if first is None else OffPath(first, dangerous=False)
        effects = [s for s in lane.unused() if _has_effect(s) and not _never_ran(s)]
        if kind == "llm":
            done = [s for s in effects if s.outcome is not None]
            return OffPath(done[0], dangerous=True) if done else harmless
        if effect != "side_effect":
            return harmless
        if tcid is not None and resp is not None and resp not in self.live_responses:
            answered = self.history.by_tool_call.get((resp, tcid), ())
            other = next((s for s in answered if s.recorded and _is_open(s)), None)
            return None if other is None else OffPath(other, dangerous=True)
        return OffPath(effects[0], dangerous=True) if effects else harmless


def _is_open(slot: Slot) -> bool:
    return not slot.asked or slot.given_up


def _given_up(slot: Slot) -> bool:
    """Whether its caller was cancelled: now it may be, before it asks."""
    outcome = slot.outcome
    return outcome is not None and (
        outcome.cause == CANCEL_CAUSE or not outcome.handed or _never_ran(slot)
    )


def _never_ran(slot: Slot) -> bool:
    outcome = slot.outcome
    return outcome is not None and outcome.code == ev.ABORTED_BEFORE_DISPATCH


def _has_effect(slot: Slot) -> bool:
    return slot.kind == "tool" and slot.effect == "side_effect"


def last_request(history: History, of: str | None = None) -> Slot | None:
    """Return the last top-level model request that belongs to the transcript."""
    found = None
    for slot in history.slots:
        if slot.kind != "llm" or slot.parent is not None or slot.side:
            continue
        if of is not None and slot.name != of:
            continue
        if found is None or slot.intent > found.intent:
            found = slot
    return found


__all__ = ["END", "Action", "Lane", "OffPath", "Replay", "last_request", "settle"]
