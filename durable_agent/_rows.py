"""What a session did, as rows for people: a history and its log in, plain facts out.

Reads the payloads of the rows that are shown, and writes nothing. A payload that cannot
be read is said to be unreadable in its row.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from attrs import frozen

from durable_agent import events as ev
from durable_agent._preview import printable
from durable_agent._row_texts import PREVIEW_CHARS, answered, asked
from durable_agent.recovery import is_open

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from durable_agent._core import Core
    from durable_agent.recovery import History, Slot, Step
    from durable_agent.store import LogReader
    from durable_agent.transcript import Tokens

#: Rows shown of a session, the newest: a page that a browser draws at once.
ROWS: Final = 200
#: Calls around a call that are counted.
_DEPTH: Final = 20

RECORDED: Final = "recorded"
REPLAYED: Final = "replayed"
FAILED: Final = "failed"
OPEN: Final = "open"
IN_DOUBT: Final = "in doubt"
#: Codes of outcomes, in words of the table.
_CODES: Final = {
    ev.TOOL_OUTCOME_UNKNOWN: IN_DOUBT,
    ev.TOOL_NOT_STARTED: "not started",
    ev.ABORTED_BEFORE_DISPATCH: "aborted",
    ev.RESULT_NOT_STORABLE: "not stored",
}


@frozen(kw_only=True)
class Row:
    """One call, as far as it is known.

    ``status`` is "recorded", "replayed" (this run got it from the log), "failed" (an
    error is its outcome), "open" (it runs, or its program died), "in doubt" (nobody
    knows whether it happened), or "suspended", "not applied", "aborted", "not stored",
    "not started". ``again``: a failure was replayed.
    """

    #: The step it was made in; "" for none. Of several that were open, the newest.
    step: str
    name: str
    kind: str
    status: str
    id: str
    seq: int
    again: bool = False
    #: How many calls it was made in.
    depth: int = 0
    attempt: int = 1
    arguments: str = ""
    result: str = ""
    #: Of the body alone; None where it is not recorded.
    seconds: float | None = None
    tokens: Tokens | None = None


@frozen(kw_only=True)
class Report:
    """The newest calls of a session, and how many there are in all."""

    session: str
    location: str
    #: "open", "closed", "finished" or "not finished".
    state: str
    rows: Sequence[Row]
    #: Older calls that ``rows`` leaves out.
    left_out: int = 0
    #: All calls by status.
    counts: dict[str, int]


@frozen(kw_only=True)
class Where:
    """What a row's status depends on, beside the log."""

    state: str
    #: First seqs of the calls that this run got from the log.
    replayed: Collection[int] = frozenset()
    #: The run whose calls may still be running, -1 for none.
    running: int = -1


def of_core(core: Core, rows: int = ROWS) -> Report:
    """Return what an open session did so far; also of one that was closed here."""
    with core.lock:
        history = core.history
        live = history.epoch if core.live else -1
        got: Collection[int] = frozenset()
        if not core.replay.continued:
            got = frozenset(s.first for s in history.slots if _was_replayed(s, live))
        where = Where(
            state="open" if core.open else "closed",
            replayed=got,
            running=live if core.open else -1,
        )
        surveyed = _survey(history, where, rows)
    return _read(surveyed, core.log, core.id, where)


def of_history(
    history: History, log: LogReader, session: str, rows: int = ROWS
) -> Report:
    """Return what a session did that is looked at from outside."""
    run = history.runs.get(history.epoch)
    ended = run is None or run.ended
    where = Where(
        state="finished" if history.finished else "not finished",
        running=-1 if ended else history.epoch,
    )
    return _read(_survey(history, where, rows), log, session, where)


def _was_replayed(slot: Slot, live: int) -> bool:
    handed = slot.recorded and slot.delivered and not slot.given_up
    return handed and slot.outcome is not None and slot.outcome.run != live


@frozen
class _Shown:
    slot: Slot
    step: str
    depth: int


@frozen
class _Survey:
    """What heads alone say."""

    shown: Sequence[_Shown]
    left_out: int
    counts: dict[str, int]


def _survey(history: History, where: Where, rows: int) -> _Survey:
    slots = history.slots
    newest = slots[-rows:] if rows > 0 else []
    return _Survey(
        [_Shown(s, step, _depth(history, s)) for s, step in _steps_of(history, newest)],
        len(slots) - len(newest),
        dict(Counter(status_of(slot, where) for slot in slots)),
    )


def _read(survey: _Survey, log: LogReader, session: str, where: Where) -> Report:
    return Report(
        session=session,
        location=log.report.location,
        state=where.state,
        rows=[_row(log, shown, where) for shown in survey.shown],
        left_out=survey.left_out,
        counts=survey.counts,
    )


def status_of(slot: Slot, where: Where) -> str:
    """Return how a call stands, in one word of the table."""
    outcome = slot.outcome
    if is_open(slot):
        return OPEN if outcome is None and slot.run == where.running else IN_DOUBT
    if outcome is None:
        return OPEN
    match outcome.status:
        case "error":
            return FAILED
        case "code":
            return _CODES.get(outcome.code, IN_DOUBT)
        case "suspended":
            return "suspended"
        case "not_applied":
            return "not applied"
        case _:
            return REPLAYED if slot.first in where.replayed else RECORDED


def _steps_of(history: History, slots: Sequence[Slot]) -> Iterable[tuple[Slot, str]]:
    """Return each call with the step that it was made in, in the log's order.

    The log does not say which of the steps that tasks had open at once: it is the one
    entered last. A call made in another belongs to that one's step.
    """
    entered = sorted(
        (step for steps in history.steps.values() for step in steps),
        key=lambda step: step.start,
    )
    place = 0
    now: list[Step] = []
    found: list[tuple[Slot, str]] = []
    names: dict[str, str] = {}
    for slot in sorted(slots, key=lambda slot: slot.first):
        while place < len(entered) and entered[place].start < slot.first:
            now.append(entered[place])
            place += 1
        now = [step for step in now if step.end is None or step.end > slot.first]
        own = [step for step in now if step.parent == slot.parent]
        name = _step_name(own[-1]) if own else names.get(slot.parent or "", "")
        names[slot.call] = name
        found.append((slot, name))
    return found


def _step_name(step: Step) -> str:
    name = printable(step.name, PREVIEW_CHARS)
    return name if step.n == 1 else f"{name} #{step.n}"


def _row(log: LogReader, shown: _Shown, where: Where) -> Row:
    slot = shown.slot
    status = status_of(slot, where)
    call, came = asked(log, slot), answered(log, slot)
    return Row(
        step=shown.step,
        name=printable(call.name, PREVIEW_CHARS),
        kind=slot.kind,
        status=status,
        again=status == FAILED and slot.first in where.replayed,
        id=printable(slot.call, PREVIEW_CHARS),
        seq=slot.intent,
        depth=shown.depth,
        attempt=slot.attempt,
        arguments=call.arguments,
        result=came.result,
        seconds=came.seconds,
        tokens=came.tokens,
    )


def _depth(history: History, slot: Slot) -> int:
    depth = 0
    parent = slot.parent
    while parent is not None and depth < _DEPTH:
        depth += 1
        around = history.attempts.get((parent, 1))
        parent = None if around is None else around.parent
    return depth
