"""What is wrong with a case, given the unharmed run. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from durable_agent._testing_logs import Logs
    from durable_agent._testing_runs import CrashRun
    from durable_agent._testing_world import Line

#: Characters of a request that are shown.
_SHOWN = 40


@frozen
class Seen:
    """All that was seen of a case."""

    runs: tuple[CrashRun, ...]
    effects: Counter[str]
    lines: Sequence[Line] = field(repr=False)
    logs: Logs = field(repr=False)
    output: object
    #: The last run ended with a call in doubt that was told.
    stopped_in_doubt: bool = False
    #: Which runs failed for a call in doubt: no fault of theirs.
    excused: frozenset[int] = frozenset()

    @property
    def requests(self) -> int:
        """Model requests: those that a fake model took, else those in the logs."""
        taken = sum(line.kind == "request" for line in self.lines)
        return taken or self.logs.sent.total()


def repeated(seen: Seen, unharmed: Seen | None) -> tuple[str, ...]:
    """Return the model requests that were answered more often than without a crash.

    A recorded request counts as answered when its answer is in the log: what was killed
    between answer and record is in doubt, and is sent again rightly. Of a request that
    is not recorded, the model's own answer counts.
    """
    found = []
    for identity, count in seen.logs.answered.items():
        usual = unharmed.logs.answered[identity] if unharmed else count
        again = count - max(usual, 1)
        found += [f"{seen.logs.names[identity]} (recorded)"] * max(again, 0)
    bare, before = (
        _unrecorded(seen.lines),
        _unrecorded(unharmed.lines if unharmed else ()),
    )
    for label, count in bare.items():
        usual = before[label] if unharmed else count
        shown = label if len(label) <= _SHOWN else label[: _SHOWN - 1] + "…"
        found += [f"{shown} (not recorded)"] * max(count - max(usual, 1), 0)
    return tuple(found)


def _unrecorded(lines: Iterable[Line]) -> Counter[str]:
    """Return the answers of a fake model outside of recorded model calls."""
    return Counter(
        line.label
        for line in lines
        if line.kind == "answer" and line.call_kind != "llm"
    )


def problems(seen: Seen, unharmed: Seen, timeout: float) -> Iterator[str]:
    """Yield what is wrong, in words."""
    yield from _runs(seen, timeout)
    yield from seen.logs.problems
    doubtful = bool(seen.logs.in_doubt)
    for label, count in (seen.effects - unharmed.effects).items():
        usual = unharmed.effects[label]
        if usual:
            total = usual + count
            yield f"effect {label!r} happened {total} times, {usual} without a crash"
        elif not doubtful or count > 1:
            yield f"effect {label!r} happened, and does not without a crash"
    for text, count in Counter(repeated(seen, unharmed)).items():
        times = "once more" if count == 1 else f"{count} times more"
        yield f"an answered model request was sent {times}: {text}"
    # Where the code was told that nobody knows, it may well have gone another way.
    if seen.runs[-1].ended and not doubtful:
        for label in unharmed.effects - seen.effects:
            yield f"effect {label!r} is missing"
        if seen.output != unharmed.output:
            yield f"another output: {_difference(unharmed.output, seen.output)}"


def _runs(seen: Seen, timeout: float) -> Iterator[str]:
    for number, run in enumerate(seen.runs, 1):
        if run.exit is None:
            yield f"run {number} hangs: no end within {timeout:g} s"
        elif run.exit and not run.killed and number not in seen.excused:
            yield f"run {number} failed: {_reason(run)}"
    last = seen.runs[-1]
    if not last.ended and last.exit is not None and not seen.stopped_in_doubt:
        yield f"it never ends: not in {len(seen.runs)} runs"


def _reason(run: CrashRun) -> str:
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    return f"exit {run.exit}" + (f", {lines[-1].strip()}" if lines else "")


def _difference(usual: object, now: object) -> str:
    """Show where two outputs part."""
    if not isinstance(usual, str) or not isinstance(now, str):
        return f"{now!r}, without a crash {usual!r}"
    left, right = usual.splitlines(), now.splitlines()
    for number in range(max(len(left), len(right))):
        here = right[number] if number < len(right) else "nothing"
        there = left[number] if number < len(left) else "nothing"
        if here != there:
            return f"line {number + 1} is {here!r}, without a crash {there!r}"
    return "other ends of lines"


def nothing_to_see(seen: Seen, boundaries: Sequence[str]) -> Iterator[str]:
    """Yield why crashes of such a run would say nothing."""
    if seen.logs.sessions == 0:
        yield (
            "It opened no session in the directory of its case: no log, no boundary of "
            "a log. (root= elsewhere, or a store in memory?)"
        )
    if not boundaries:
        yield "There is no place to kill it at."
    if not seen.effects and not seen.requests and not seen.output:
        yield (
            "There is nothing to compare: it printed nothing, sent no model request "
            "and said of no effect that it happened. See testing.effect()."
        )
