"""Runs of a script in child processes: killed at a boundary or a moment, cleaned up."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import asdict, define, field, frozen

import durable_agent
from durable_agent import _testing_child, _testing_world
from durable_agent._fs import Disk
from durable_agent._opening import HOME_NAME, HOME_VARIABLE
from durable_agent._testing_child import Orders

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Begins the child: the path of imports is what ``python script`` makes of it.
_BOOT: Final = (
    "import sys; safe = sys.flags.safe_path\n"
    "sys.path[0:not safe] = [] if safe else [{first!r}]; sys.path.append({home!r})\n"
    "from durable_agent._testing_child import main; main()"
)
#: Between two looks at a child where the system cannot wait for it with a timeout.
_POLL_SECONDS: Final = 0.005


@frozen
class CrashRun:
    """One run of the script in one case."""

    #: Its exit status, negative for a signal; None if it was stopped as hanging.
    exit: int | None
    #: What it was killed at; "" if nobody killed it.
    killed: str
    seconds: float
    output: str = field(repr=False)
    stderr: str = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether it ended normally."""
        return self.exit == 0


@frozen
class Place:
    """The files of one case: the directory that the script sees, and ours beside it."""

    base: Path

    @property
    def work(self) -> Path:
        """Its current directory."""
        return self.base / "work"

    @property
    def home(self) -> Path:
        """Its sessions."""
        return self.work / HOME_NAME

    def make(self) -> None:
        """Make the directories and the files that are appended to."""
        self.work.mkdir(parents=True)
        for name in ("trace", "effects"):
            self.file(name)

    def file(self, name: str) -> None:
        """Make an empty file of ours."""
        disk = Disk()
        disk.close(disk.create(str(self.base / name)))

    def trace(self) -> list[str]:
        """Return the boundaries that were reached, in all runs."""
        return (self.base / "trace").read_text("utf-8").splitlines()

    def lines(self) -> list[_testing_world.Line]:
        """Return what happened outside, in all runs."""
        return _testing_world.parsed((self.base / "effects").read_bytes())


@frozen
class Program:
    """What is run: the words after ``python``, and around it."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    timeout: float

    @property
    def command(self) -> list[str]:
        """The command of the child."""
        module = self.words[0] == "-m"
        first = str(Path.cwd() if module else Path(self.words[0]).parent)
        home = str(Path(durable_agent.__file__).parents[1])
        boot = _BOOT.format(first=first, home=home)
        return [sys.executable, "-c", boot, *self.words]


@define
class Runner:
    """Runs children from any threads; none outlives `stop`."""

    program: Program
    stopped: bool = False
    _live: set[int] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

    def run(self, place: Place, at: int = 0, after: float | None = None) -> CrashRun:
        """Run once, killed at the boundary ``at`` or ``after`` so many seconds."""
        number = len(list(place.base.glob("output-*"))) + 1
        before = len(place.trace())
        names = (f"output-{number}", f"stderr-{number}")
        for name in names:
            place.file(name)
        exit_, seconds, harmed = self._child(place, names, at, after)
        reached = place.trace()[before:]
        killed = ""
        if harmed:
            killed = f"after {seconds:.3f} s, {reached[-1] if reached else 'at first'}"
        elif at and exit_ == -signal.SIGKILL and len(reached) == at:
            killed = reached[-1]
        texts = [(place.base / n).read_text("utf-8", "replace") for n in names]
        return CrashRun(exit_, killed, seconds, *texts)

    def _child(
        self, place: Place, names: tuple[str, str], at: int, after: float | None
    ) -> tuple[int | None, float, bool]:
        """Return exit, seconds of the script, and whether it was killed from here."""
        disk = Disk()
        ready, theirs = os.pipe()
        out, err = (disk.open_append(str(place.base / name)) for name in names)
        work = place.work.resolve()
        orders = Orders(at, str(place.base / "trace"), str(work), theirs)
        environment = {
            **self.program.environment,
            _testing_child.VARIABLE: orjson.dumps(asdict(orders)).decode(),
            _testing_world.VARIABLE: str(place.base / "effects"),
            HOME_VARIABLE: str(place.home),
        }
        try:
            child = self._start(
                stdout=out, stderr=err, cwd=work, env=environment, pass_fds=(theirs,)
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            for fd in (out, err, theirs):
                disk.close(fd)
        try:
            return self._watch(child, ready, after)
        finally:
            self._end(child)
            os.close(ready)

    def _start(self, **options: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self.stopped:
                raise KeyboardInterrupt
            child = subprocess.Popen(  # noqa: S603 - the person's own script
                self.program.command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **options,
            )
            self._live.add(child.pid)
        return child

    def _watch(
        self, child: subprocess.Popen[bytes], ready: int, after: float | None
    ) -> tuple[int | None, float, bool]:
        limit = self.program.timeout
        began = time.monotonic()
        if select.select([ready], [], [], limit)[0]:
            began = time.monotonic()
        ended = _ends_within(child, limit if after is None else min(after, limit))
        seconds = time.monotonic() - began
        self._end(child)
        if ended:
            return child.returncode, seconds, False
        return (None if after is None else child.returncode), seconds, after is not None

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Kill it and what it started; the group is its own until it is waited for."""
        with self._lock:
            if child.pid in self._live:
                self._live.remove(child.pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def stop(self) -> None:
        """Kill all children that there are, and start no more."""
        with self._lock:
            self.stopped = True
            for pid in self._live:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)


def _ends_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends in time. It is not waited for: its group stays its own."""
    if hasattr(os, "pidfd_open"):
        fd = os.pidfd_open(child.pid)
        try:
            return bool(select.select([fd], [], [], seconds)[0])
        finally:
            os.close(fd)
    until = time.monotonic() + seconds  # pragma: no cover - macOS
    while child.poll() is None:
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)
    return True
