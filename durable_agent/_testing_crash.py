"""Kill an agent's script at every boundary, run it again, and see what came of it."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from durable_agent import _testing_logs, _testing_world
from durable_agent._testing_judge import Seen, nothing_to_see, problems, repeated
from durable_agent._testing_report import CrashCase, CrashReport
from durable_agent._testing_runs import Place, Program, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from durable_agent._testing_runs import CrashRun
    from durable_agent.outcomes import Call, Outcome

#: Children at a time; more would only make the moments less random.
_MOST_JOBS: Final = 8
_SEEDS: Final = 1 << 32


@frozen(kw_only=True)
class Options:
    """What a person said of the cases."""

    resolve: Callable[[Call], Outcome] | None
    effects: Callable[[Path], Iterable[str]] | None
    output: Callable[[Path], object] | None
    prepare: Callable[[Path], object] | None
    runs: int


def crash_points(
    script: str | os.PathLike[str],
    *args: object,
    points: int | None = None,
    random: int = 10,
    seed: int | None = None,
    resolve: Callable[[Call], Outcome] | None = None,
    effects: Callable[[Path], Iterable[str]] | None = None,
    output: Callable[[Path], object] | None = None,
    prepare: Callable[[Path], object] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    runs: int = 5,
    jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> CrashReport:
    """Kill a script at every boundary, run it again, and report what came of it.

    The script runs in children, as ``python script *args`` does (``"-m", "package"``
    too). First unharmed; then once for each boundary that this run reached: before,
    within and after each change that the log makes on disk, and around each `effect`
    and each request to a `FakeLLM`. There the child kills itself (SIGKILL), and is run
    again, the same, until it ends normally. Each case has a new directory, which is
    the current one, with the sessions in it: no case sees another. All children are
    gone on return.

    That is a killed process. What a power cut takes is not tried; see `SimulatedDisk`.

    A call in doubt that the code does not settle itself ends its case: the report lists
    it, and it is no fault.

    Args:
        script: The file to run; or "-m", and then a module.
        args: Its arguments, as text.
        points: So many boundaries, spread evenly; all of them if None.
        random: So many cases more, each killed at a random moment.
        seed: Draws the moments; the report tells it.
        resolve: Settles a call in doubt as a person would: gets the `Call`, returns
            `Completed`, `NotApplied` or `Unknown`; then the script runs again. What
            happened outside is told by `happened`. Called in threads.
        effects: What happened outside, as labels, by the directory of the case, in
            place of what `effect` noted.
        output: The output, by the directory of the case, in place of what is printed.
        prepare: Called with the directory of each case before its first run.
        env: Variables of the environment, on top of those that there are.
        timeout: Seconds that a run may take; then it counts as hanging.
        runs: Runs of a case at most.
        jobs: Children at a time; as many as there are processors if None.
        directory: Where the cases leave their files; a temporary one if None.

    Raises:
        FileNotFoundError: there is no such script.

    """
    words = (str(script), *map(str, args))
    if words[0] != "-m":
        words = (str(Path(script).resolve(strict=True)), *words[1:])
    environment = {**os.environ, **(env or {})}
    program = Program(words, environment, timeout)
    options = Options(
        resolve=resolve, effects=effects, output=output, prepare=prepare, runs=runs
    )
    if seed is None:
        seed = secrets.randbelow(_SEEDS)
    began = time.monotonic()
    with ExitStack() as stack:
        if directory is None:
            made = tempfile.TemporaryDirectory(prefix="crash-points-")
            directory = stack.enter_context(made)
        search = Search(Path(directory).resolve(), Runner(program), options)
        first, boundaries = search.unharmed()
        moments = _moments(boundaries, points, random, seed, first.runs[0].seconds)
        void = _void(first, boundaries, timeout)
        cases = () if void else search.all(moments, jobs)
        return CrashReport(
            script=" ".join((Path(words[0]).name, *words[1:])),
            boundaries=tuple(boundaries),
            seed=seed,
            unharmed=search.case(first, 0, None, Place(search.base / "unharmed")),
            cases=tuple(cases),
            seconds=time.monotonic() - began,
            void=tuple(void),
        )


def _void(first: Seen, boundaries: Sequence[str], timeout: float) -> list[str]:
    """Return why there is no sense in killing it."""
    failed = list(problems(first, first, timeout))
    if failed:
        return [f"Without any crash: {text}" for text in failed]
    return list(nothing_to_see(first, boundaries))


def _moments(
    boundaries: Sequence[str],
    points: int | None,
    random: int,
    seed: int,
    seconds: float,
) -> list[int | float]:
    """Return where to kill: numbers of boundaries, then seconds."""
    count = len(boundaries)
    chosen = list(range(1, count + 1))
    if points is not None and points < count:
        # The middles of equal parts: neither always the first nor always the last.
        chosen = [int((n + 0.5) * count / points) + 1 for n in range(points)]
    draw = Random(seed)  # noqa: S311 - moments, no secrets
    return [*chosen, *(draw.uniform(0, seconds) for _ in range(random))]


@define
class Search:
    """One search: the directory, what runs children, what the person said."""

    base: Path
    runner: Runner
    options: Options
    _first: Seen | None = field(default=None)

    def unharmed(self) -> tuple[Seen, list[str]]:
        """Run it without a crash; return what was seen and the boundaries."""
        place = Place(self.base / "unharmed")
        self._make(place)
        run = self.runner.run(place)
        self._first = self._seen(place, [run])
        return self._first, place.trace()

    def all(self, moments: Sequence[int | float], jobs: int | None) -> list[CrashCase]:
        """Try all cases, some at a time; no child is left when this ends."""
        jobs = jobs or min(len(os.sched_getaffinity(0)), _MOST_JOBS)
        with ThreadPoolExecutor(jobs) as pool:
            futures = [
                pool.submit(self._case, number, moment)
                for number, moment in enumerate(moments, 1)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self.runner.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _make(self, place: Place) -> None:
        place.make()
        if self.options.prepare is not None:
            self.options.prepare(place.work)

    def _case(self, number: int, point: float) -> CrashCase:
        place = Place(self.base / f"{number:04}")
        self._make(place)
        if isinstance(point, int):
            runs = [self.runner.run(place, at=point)]
        else:
            runs = [self.runner.run(place, after=point)]
        killed_in = _testing_logs.read(place.home).in_doubt if runs[0].killed else ()
        excused: set[int] = set()
        resolved: list[Call] = []
        stopped = False
        while len(runs) < self.options.runs and _again(runs) and not stopped:
            runs.append(self.runner.run(place))
            told = () if runs[-1].ended else _testing_logs.read(place.home).told
            if told:
                excused.add(len(runs))
                stopped = not self._settle(place, told, resolved)
        seen = self._seen(place, runs, stopped=stopped, excused=excused)
        return self.case(
            seen, number, point, place, killed_in=killed_in, resolved=resolved
        )

    def _settle(self, place: Place, told: Sequence[Call], resolved: list[Call]) -> bool:
        """Settle calls as the person says; whether it is worth another run."""
        known = {call.id for call in resolved}
        new = [call for call in told if call.id not in known]
        if self.options.resolve is None or not new:
            return False
        token = _testing_world.LOOKING_AT.set(str(place.base / "effects"))
        try:
            for call in new:
                _testing_logs.settle(place.home, call, self.options.resolve(call))
                resolved.append(call)
        finally:
            _testing_world.LOOKING_AT.reset(token)
        return True

    def _seen(
        self,
        place: Place,
        runs: Sequence[CrashRun],
        *,
        stopped: bool = False,
        excused: Iterable[int] = (),
    ) -> Seen:
        lines = place.lines()
        effects, output = self.options.effects, self.options.output
        happened = Counter(effects(place.work)) if effects else None
        return Seen(
            runs=tuple(runs),
            effects=_testing_world.effects(lines) if happened is None else happened,
            lines=lines,
            logs=_testing_logs.read(place.home),
            output=_output(output, place, runs[-1]),
            stopped_in_doubt=stopped,
            excused=frozenset(excused),
        )

    def case(
        self,
        seen: Seen,
        number: int,
        point: float | None,
        place: Place,
        *,
        killed_in: Sequence[Call] = (),
        resolved: Sequence[Call] = (),
    ) -> CrashCase:
        """Return the judged case."""
        first: Any = self._first
        return CrashCase(
            number=number,
            point=point,
            directory=place.work,
            runs=seen.runs,
            effects=seen.effects,
            requests=seen.requests,
            repeated=repeated(seen, first),
            in_doubt_when_killed=tuple(killed_in),
            in_doubt=seen.logs.in_doubt,
            resolved=tuple(resolved),
            output=seen.output,
            same_output=seen.output == first.output,
            problems=tuple(problems(seen, first, self.runner.program.timeout)),
        )


def _again(runs: Sequence[CrashRun]) -> bool:
    """Whether it is to be run again: not where it ended, or hung."""
    return not runs[-1].ended and runs[-1].exit is not None


def _output(
    output: Callable[[Path], object] | None, place: Place, last: CrashRun
) -> object:
    if output is None:
        return last.output
    return output(place.work) if last.ended else None
