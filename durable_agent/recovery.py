"""From events to history: what a log says, folded without a disk and without payloads.

`History` is fed one head after another (`History.apply`), while a log is opened and
then by the owner for every event it appends, so there is one reading of a log. Nothing
here writes, waits or decides; see ``replay.py`` for decisions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

from durable_agent import events as ev
from durable_agent._records import (
    CANCEL_CAUSE,
    CLOSER_CAUSE,
    CODE,
    ERROR,
    ERROR_CAUSE,
    NOT_APPLIED,
    PAUSE_CAUSE,
    RECOVERY_CAUSE,
    RERUN,
    RETRY,
    SUSPENDED,
    VALUE_STATUS,
    Recorded,
    Run,
    Slot,
    Step,
)
from durable_agent._shapes import check_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from durable_agent.events import Head

#: An outcome by itself is handed out after the waves that its own event tells of.
ITS_OWN: Final = 1 << 30
#: Outcomes remembered by seq: more than can be in flight at once.
_RECENT: Final = 8192


@define(eq=False)
class History:
    """What a log says. Mutable, owned by one session."""

    slots: list[Slot] = field(factory=list)
    attempts: dict[tuple[str, int], Slot] = field(factory=dict)
    by_identity: dict[tuple[str | None, str], list[Slot]] = field(factory=dict)
    by_tool_call: dict[tuple[str, str], list[Slot]] = field(factory=dict)
    #: Closers of tool calls that have no slot, by (response, tool call id).
    closers: dict[tuple[str, str], Recorded] = field(factory=dict)
    runs: dict[int, Run] = field(factory=dict)
    #: (call, attempt) -> seq of the run/end that named it as having ended the run.
    fatal: dict[tuple[str, int], int] = field(factory=dict)
    steps: dict[tuple[str | None, str], list[Step]] = field(factory=dict)
    epoch: int = 0
    last_seq: int = -1
    #: The log ends with a normal end.
    finished: bool = False
    created: int = 0
    #: (from seq, uid): whose uid derives keys of calls recorded from there on.
    uids: list[tuple[int, str]] = field(factory=list)
    #: Application events.
    appended: int = 0
    #: Every run so far made the intents of tools durable before their bodies.
    intents_durable: bool = True
    #: What is applied from now on happens in this run and is not there to replay.
    live: bool = False
    #: The newest outcomes by seq, for the turns that a later event brings.
    _recent: OrderedDict[int, Slot] = field(factory=OrderedDict)

    def apply(self, head: Head) -> None:  # noqa: PLR0912 - one branch an event type
        """Take one event in. Events come in the order of seq."""
        self.last_seq = head.seq
        self.finished = False
        if "waves" in head.meta or "unhanded" in head.meta:
            self._set_turns(head)
        match head.type:
            case ev.LLM_REQUEST | ev.TOOL_CALL:
                self._intent(head)
            case ev.LLM_RESPONSE | ev.TOOL_RESULT | ev.TOOL_RESOLVE:
                self._outcome(head)
            case ev.LLM_CHUNK | ev.TOOL_CHUNK:
                slot = self.attempts.get((head.call or "", head.meta["attempt"]))
                if slot is not None:
                    slot.chunks.append(head.seq)
                    slot.began = head.seq if slot.began < 0 else slot.began
            case ev.VALUE:
                self._value(head)
            case ev.STEP_START:
                self._step_start(head)
            case ev.STEP_END:
                self._step_end(head)
            case ev.RUN_START:
                self.epoch = head.meta["epoch"]
                self.runs[self.epoch] = Run(self.epoch)
                self.intents_durable &= head.meta.get("intents", True)
            case ev.RUN_END:
                self._run_end(head)
            case ev.SESSION_START:
                self.created = head.time
                self.uids = [(int(at), uid) for at, uid in head.meta["uids"]]
            case ev.RECOVERY:
                pass
            case _:
                self.appended += 1

    def uid_at(self, seq: int) -> str:
        """Return the uid that derives the keys of calls first recorded at ``seq``."""
        found = ""
        for at, uid in self.uids:
            if at <= seq:
                found = uid
        return found

    def went_on(self, slot: Slot) -> bool:
        """Whether the run of the slot's outcome went on past it."""
        outcome = slot.outcome
        if outcome is None or self.ended_run(slot):
            return False
        run = self.runs.get(outcome.run)
        return run is not None and (run.last_intent > outcome.seq or run.ok)

    def ended_run(self, slot: Slot) -> bool:
        """Whether the outcome's exception left the session and ended its run."""
        if slot.outcome is None:
            return False
        end = self.fatal.get((slot.call, slot.attempt), -1)
        return end > slot.outcome.seq

    def in_doubt(self) -> Iterator[Slot]:
        """Yield the calls with an intent and no settled outcome, in order."""
        for slot in self.slots:
            if slot.kind != "value" and is_open(slot):
                yield slot

    def open_steps(self) -> list[Step]:
        """Return the steps that were entered and never left, outermost first."""
        found = [s for steps in self.steps.values() for s in steps if s.end is None]
        return sorted(found, key=lambda step: step.start)

    # one method an event type ------------------------------------------------

    def _intent(self, head: Head) -> None:
        meta = head.meta
        call, attempt = head.call or "", meta["attempt"]
        if self.epoch in self.runs:
            self.runs[self.epoch].last_intent = head.seq
        again = meta.get("again")
        if again == RERUN:
            slot = self.attempts.get((call, attempt - 1))
            if slot is not None:
                slot.intent, slot.attempt = head.seq, attempt
                slot.run, slot.time = self.epoch, head.time
                slot.effect = meta.get("effect", slot.effect)
                slot.outcome = None
                slot.chunks = []
                self.attempts[call, attempt] = slot
                return
        if again == RETRY:
            before = self.attempts.get((call, attempt - 1))
            if before is not None:
                before.retried = True
        slot = Slot(
            call=call,
            kind="llm" if head.type == ev.LLM_REQUEST else "tool",
            name=meta["name"],
            key=head.key or "",
            parent=meta.get("parent"),
            first=head.seq,
            intent=head.seq,
            attempt=attempt,
            run=self.epoch,
            time=head.time,
            effect=meta.get("effect", "side_effect"),
            resp=meta.get("resp"),
            tcid=meta.get("tcid"),
            keyed=meta.get("keyed", False),
            detached=meta.get("detached", False),
            nested=meta.get("nested", False),
            side=meta.get("side", False),
            extends=meta.get("extends", -1),
        )
        self._add(slot)

    def _add(self, slot: Slot) -> None:
        if self.live:
            slot.recorded, slot.asked, slot.delivered = False, True, True
        self.slots.append(slot)
        self.attempts[slot.call, slot.attempt] = slot
        self.by_identity.setdefault((slot.parent, slot.key), []).append(slot)
        if slot.resp is not None and slot.tcid is not None:
            self.by_tool_call.setdefault((slot.resp, slot.tcid), []).append(slot)

    def _outcome(self, head: Head) -> None:
        meta = head.meta
        outcome = Recorded(
            seq=head.seq,
            run=self.epoch,
            time=head.time,
            status=meta["status"],
            code=meta.get("code", ""),
            cause=meta.get("cause", ""),
            turn=(head.seq, ITS_OWN),
            returned_as=meta.get("as", ""),
        )
        if head.call is None:
            self.closers[meta["resp"], meta["tcid"]] = outcome
            return
        slot = self.attempts.get((head.call, meta["attempt"]))
        if slot is None or slot.attempt != meta["attempt"]:
            return
        if may_settle(self, slot, resolving=head.type == ev.TOOL_RESOLVE):
            slot.outcome = outcome
            self._recent[head.seq] = slot
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)

    def _value(self, head: Head) -> None:
        slot = Slot(
            call=head.call or "",
            kind="value",
            name=head.meta["name"],
            key=head.key or "",
            parent=head.meta.get("parent"),
            first=head.seq,
            intent=head.seq,
            attempt=1,
            run=self.epoch,
            time=head.time,
            effect="read_only",
        )
        slot.outcome = Recorded(
            head.seq, self.epoch, head.time, VALUE_STATUS, turn=(head.seq, ITS_OWN)
        )
        self._add(slot)

    def _step_start(self, head: Head) -> None:
        where = (head.meta.get("parent"), head.meta["name"])
        step = Step(where[1], where[0], head.meta["n"], head.seq)
        self.steps.setdefault(where, []).append(step)

    def _step_end(self, head: Head) -> None:
        where = (head.meta.get("parent"), head.meta["name"])
        for step in self.steps.get(where, ()):
            if step.n == head.meta["n"] and step.end is None:
                step.end = head.seq

    def _run_end(self, head: Head) -> None:
        run = self.runs.get(self.epoch)
        if head.meta.get("visit"):
            # Somebody only looked, or resolved a call: the program did not run.
            return
        if run is not None:
            run.ok, run.ended = head.meta["ok"], True
        self.finished = head.meta["ok"]
        calls = (tuple(call) for call in head.meta.get("fatal", ()))
        self.fatal = dict.fromkeys(calls, head.seq)

    def _set_turns(self, head: Head) -> None:
        told = []
        for index, group in enumerate(head.meta.get("waves", ())):
            for place, seq in enumerate(group):
                slot = self._recent.get(seq)
                # Not where another outcome took its place: that one is told apart.
                if slot is not None and slot.outcome and slot.outcome.seq == seq:
                    turn = (head.seq, index)
                    slot.outcome = evolve(slot.outcome, turn=turn, place=place)
                    told.append(seq)
        for seq in head.meta.get("unhanded", ()):
            slot = self._recent.get(seq)
            if slot is not None and slot.outcome and slot.outcome.seq == seq:
                slot.outcome = evolve(slot.outcome, handed=False)
                told.append(seq)
        for seq in told:
            self._recent.pop(seq, None)


def is_open(slot: Slot) -> bool:
    """Whether nobody knows how the call ended (it may have happened)."""
    outcome = slot.outcome
    return outcome is None or (
        outcome.status == CODE and outcome.code == ev.TOOL_OUTCOME_UNKNOWN
    )


def may_settle(history: History, slot: Slot, *, resolving: bool = False) -> bool:
    """Whether an outcome may be recorded for the slot's attempt.

    At most one outcome an attempt: only an unknown one that no run went on past gives
    way. A person's ``resolve`` also settles what ended a run.
    """
    outcome = slot.outcome
    if outcome is None:
        return True
    if history.went_on(slot):
        return False
    if resolving:
        return is_open(slot) or history.ended_run(slot)
    return is_open(slot)


def is_cut_off(uids: Sequence[Sequence[Any]], events: int) -> bool:
    """Whether a log of so many events is a fork that lacks some it was to have.

    ``uids`` of its first event say from where on its calls are its own.
    """
    return bool(uids) and bool(uids[-1][0] > events)


def fold(heads: Iterable[Head]) -> History:
    """Fold a whole log. Raises `LogCorruptError` for heads that nobody here wrote."""
    history = History()
    for head in heads:
        check_head(head)
        history.apply(head)
    return history


__all__ = [
    "CANCEL_CAUSE",
    "CLOSER_CAUSE",
    "CODE",
    "ERROR",
    "ERROR_CAUSE",
    "NOT_APPLIED",
    "PAUSE_CAUSE",
    "RECOVERY_CAUSE",
    "RERUN",
    "RETRY",
    "SUSPENDED",
    "VALUE_STATUS",
    "History",
    "Recorded",
    "Run",
    "Slot",
    "Step",
    "fold",
    "is_open",
    "may_settle",
]
