"""The report of `crash_points`: cases, what is wrong with each, tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from durable_agent._testing_runs import CrashRun
    from durable_agent.outcomes import Call

#: Wrong cases that a message lists, and lines of a child's last words.
_LISTED: Final = 20
_STDERR_LINES: Final = 12
#: Columns of the first column of a table.
_LABEL_WIDTH: Final = 42


@frozen
class CrashCase:
    """One crash and what came of it. The case without a crash is number 0."""

    number: int
    #: Where it was to be killed: the n-th boundary, or after so many seconds.
    point: int | float | None
    directory: Path
    runs: tuple[CrashRun, ...] = field(repr=False)
    #: How often each effect happened, in all runs.
    effects: Counter[str]
    #: Model requests sent, in all runs.
    requests: int
    #: Model requests that had been answered and were sent again.
    repeated: tuple[str, ...]
    #: Calls that had no known outcome when it was killed, and at the end.
    in_doubt_when_killed: tuple[Call, ...]
    in_doubt: tuple[Call, ...]
    #: Calls that ``resolve`` settled.
    resolved: tuple[Call, ...]
    output: object = field(repr=False)
    #: Whether the final output is that of the unharmed run.
    same_output: bool
    #: What is wrong, in words; empty: nothing.
    problems: tuple[str, ...]

    @property
    def killed(self) -> str:
        """Where it was killed; "" if it had ended before."""
        return self.runs[0].killed

    @property
    def ended(self) -> bool:
        """Whether its last run ended normally."""
        return self.runs[-1].ended

    @property
    def exits(self) -> tuple[int | None, ...]:
        """The exit status of each run: negative for a signal, None for hanging."""
        return tuple(run.exit for run in self.runs)

    @property
    def verdict(self) -> str:
        """Return "wrong", "in doubt" or "right"."""
        if self.problems:
            return "wrong"
        return "in doubt" if self.in_doubt else "right"


@frozen
class CrashReport:
    """What became of all cases. ``str`` is a table."""

    script: str
    #: Every boundary of the unharmed run, in order.
    boundaries: tuple[str, ...] = field(repr=False)
    #: Draws the random moments.
    seed: int
    unharmed: CrashCase
    cases: tuple[CrashCase, ...] = field(repr=False)
    seconds: float
    #: What makes the whole of it worthless, in words.
    void: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[CrashCase, ...]:
        """The cases with a problem."""
        return tuple(case for case in self.cases if case.problems)

    @property
    def in_doubt(self) -> tuple[CrashCase, ...]:
        """The cases that ended with calls in doubt, and with no problem."""
        return tuple(case for case in self.cases if case.verdict == "in doubt")

    @property
    def ok(self) -> bool:
        """Whether no case is wrong. Calls in doubt are not wrong: they are told."""
        return not self.void and not self.wrong

    @property
    def summary(self) -> str:
        """One line."""
        points = sum(isinstance(case.point, int) for case in self.cases)
        moments = len(self.cases) - points
        return (
            f"{points} of {len(self.boundaries)} boundaries, {moments} random moments "
            f"(seed {self.seed}): {_count(self.wrong, 'wrong')}, "
            f"{_count(self.in_doubt, 'in doubt')}, {self.seconds:.1f} s"
        )

    def check(self) -> Self:
        """Return the report if nothing is wrong.

        Raises:
            AssertionError: a table of what happened in which case, and the last words
                of the first child that failed.
        """
        if self.ok:
            return self
        raise AssertionError("\n".join(_complaint(self)))

    def __str__(self) -> str:
        return "\n".join([f"{self.script}: {self.summary}", *_figures(self)])


def _count(cases: Sequence[object], word: str) -> str:
    return f"{len(cases) or 'none'} {word}"


def _complaint(report: CrashReport) -> Iterable[str]:
    if report.void:
        yield f"{report.script}: nothing can be said of crashes"
        yield from (f"  {text}" for text in report.void)
        yield from _last_words(report.unharmed)
        return
    wrong = report.wrong
    yield f"{report.script}: {len(wrong)} of {len(report.cases)} crashes go wrong"
    yield ""
    yield f"{'case':>4}  {'killed':<{_LABEL_WIDTH}}  what is wrong"
    for case in wrong[:_LISTED]:
        place = case.killed or "not killed: it had ended"
        for text in case.problems:
            yield f"{case.number:>4}  {_cut(place):<{_LABEL_WIDTH}}  {text}"
    if len(wrong) > _LISTED:
        yield f"      … and {len(wrong) - _LISTED} more cases"
    failed = [c for c in wrong if any(text.startswith("run ") for text in c.problems)]
    if failed:
        yield from _last_words(failed[0])
    yield ""
    yield f"{report.summary}"
    if wrong[0].directory.exists():
        yield f"the files of case {wrong[0].number}: {wrong[0].directory.parent}"
    else:
        yield "directory= keeps the files of the cases"


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL_WIDTH else text[: _LABEL_WIDTH - 1] + "…"


def _last_words(case: CrashCase) -> Iterable[str]:
    """Yield the end of stderr of the last run that has one."""
    for number, run in reversed(list(enumerate(case.runs, 1))):
        if run.stderr.strip():
            name = f"case {case.number}, run {number}" if case.number else "the run"
            yield ""
            yield f"stderr of {name} (exit {run.exit}):"
            lines = run.stderr.rstrip().splitlines()[-_STDERR_LINES:]
            yield from (f"  {line}" for line in lines)
            return


def _figures(report: CrashReport) -> Iterable[str]:
    yield from (f"  {text}" for text in report.void)
    if not report.cases:
        return
    cases = report.cases
    yield ""
    yield _row("", "unharmed", "fewest", "most")
    labels = dict.fromkeys(
        label for c in (report.unharmed, *cases) for label in c.effects
    )
    for label in labels:
        counts = [case.effects[label] for case in cases]
        usual = report.unharmed.effects[label]
        yield _row(f"effect {label}", usual, min(counts), max(counts))
    counts = [case.requests for case in cases]
    yield _row("model requests", report.unharmed.requests, min(counts), max(counts))
    again = [len(case.repeated) for case in cases]
    yield _row("  sent again though answered", "", min(again), max(again))
    runs = [len(case.runs) for case in cases]
    yield _row("runs", 1, min(runs), max(runs))
    yield ""
    verdicts = Counter(case.verdict for case in cases)
    for verdict in ("right", "in doubt", "wrong"):
        yield _row(f"cases {verdict}", verdicts[verdict])
    settled = Counter(call.name for case in cases for call in case.in_doubt_when_killed)
    left = Counter(call.name for case in cases for call in case.in_doubt)
    if settled:
        yield ""
        yield _row("calls in doubt", "killed in", "left so")
        yield from (_row(name, settled[name], left[name]) for name in settled)


def _row(label: str, *cells: object) -> str:
    return (
        f"{_cut(label):<{_LABEL_WIDTH}}{''.join(f'{c!s:>10}' for c in cells)}".rstrip()
    )
