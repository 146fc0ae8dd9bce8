"""The child of `crash_points`: runs a script that may be killed at any boundary.

The disk of its sessions counts what changes it and kills the process at the n-th
boundary, by SIGKILL. Files are not synced: the page cache survives a killed process, so
a sync would cost time and show nothing.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import types
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import orjson
from attrs import frozen

from durable_agent import jsonl
from durable_agent._fs import Disk, Lock
from durable_agent._testing_world import Here, append

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Holds an `Orders` as JSON in the environment of the child.
VARIABLE: Final = "DURABLE_AGENT_CRASH"
#: Kill the child when the thread that started it is gone (Linux, prctl).
_PR_SET_PDEATHSIG: Final = 1


@frozen
class Orders:
    """What the child is to do. ``at`` is the boundary to die at, 0 for none."""

    at: int
    #: Where each boundary leaves a line when it is reached.
    trace: str
    #: The directory of the case; sessions have to be in it.
    inside: str
    #: A descriptor that takes a byte when the script begins.
    ready: int


class Killer:
    """Counts the boundaries of this process, and kills it at one of them."""

    def __init__(self, at: int, trace: str) -> None:
        self._at = at
        self._trace = trace
        self._seen = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __call__(self, label: str) -> None:
        """Count one; a fork of the agent is not the agent."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._seen += 1
            append(self._trace, label.encode())
            if self._seen == self._at:
                os.kill(self._pid, signal.SIGKILL)

    @property
    def next_is_last(self) -> bool:
        """Whether the next boundary kills."""
        return self._seen + 1 == self._at


class KillingDisk(Disk):
    """A disk with a boundary before and after each change, and within each write."""

    killer: Killer
    inside: str

    def __init__(self, *, allow_unsynced: bool = False) -> None:
        super().__init__(allow_unsynced=allow_unsynced)
        self._call_names: dict[str, str] = {}
        self._last_said = "nothing"

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._last_said = what = self._said(bytes(data))
        self.killer(f"before write of {what}")
        if self.killer.next_is_last:
            super().write(fd, data[: len(data) // 2])
        self.killer(f"within write of {what}")
        taken = super().write(fd, data)
        self.killer(f"after write of {what}")
        return taken

    def _said(self, data: bytes) -> str:
        """Return what the last line of a write says, in a few words."""
        *before, last = data.rstrip(b"\n").split(b"\n")
        try:
            event = orjson.loads(last)
        except ValueError:
            return "a file"
        if not isinstance(event, dict) or "type" not in event:
            return "a new segment" if "format" in event else "a file"
        call = event.get("call", "")
        name = event.get("meta", {}).get("name") or self._call_names.get(call, "")
        self._call_names[call] = name
        more = f" and {len(before)} before" if before else ""
        return " ".join(filter(None, (event["type"], name))) + more

    def sync(self, fd: int, *, metadata: bool = False) -> None:  # noqa: ARG002
        self.killer(f"before sync of {self._last_said}")
        self.killer(f"after sync of {self._last_said}")

    def sync_dir(self, path: str) -> None:
        here = Path(path).resolve()
        # Above it are directories whose names are the case's, not the agent's.
        name = here.name if here.is_relative_to(self.inside) else "above"
        self.killer(f"before sync of directory {name}")
        self.killer(f"after sync of directory {name}")

    def create(self, path: str) -> int:
        self._refuse_outside(path)
        return self._around(f"create {_name(path)}", super().create, path)

    def mkdir(self, path: str) -> None:
        self._refuse_outside(path)
        self._around(f"mkdir {_name(path)}", super().mkdir, path)

    def truncate(self, fd: int, size: int) -> None:
        self._around("truncate", super().truncate, fd, size)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self._around("write in place", super().write_at, fd, data, offset)

    def rename(self, source: str, target: str) -> None:
        self._around(f"rename to {_name(target)}", super().rename, source, target)

    def unlink(self, path: str) -> None:
        self._around(f"unlink {_name(path)}", super().unlink, path)

    def rmdir(self, path: str) -> None:
        self._around(f"rmdir {_name(path)}", super().rmdir, path)

    def lock(self, path: str) -> Lock | None:
        self._refuse_outside(path)
        return self._around("lock", super().lock, path)

    def _around(
        self,
        label: str,
        action: Callable[_P, _R],
        *arguments: _P.args,
        **named: _P.kwargs,
    ) -> _R:
        self.killer(f"before {label}")
        result = action(*arguments, **named)
        self.killer(f"after {label}")
        return result

    def _refuse_outside(self, path: str) -> None:
        if not Path(path).resolve().is_relative_to(self.inside):
            msg = (
                f"The session at {path} is not in the directory of this case, "
                f"{self.inside}: cases would see each other. Leave root= out, or make "
                "it relative to the current directory or to $DURABLE_AGENT_HOME."
            )
            raise RuntimeError(msg)


def _name(path: str) -> str:
    return PurePath(path).name


def main() -> None:
    """Run the script as ``python`` does, with the hooks in place."""
    orders = Orders(**orjson.loads(os.environ.pop(VARIABLE)))
    if sys.platform == "linux":
        # Whoever kills the parent leaves no child behind that hangs for ever.
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(orders.ready, False)
    KillingDisk.inside = orders.inside
    KillingDisk.killer = Here.point = Killer(orders.at, orders.trace)
    vars(jsonl)["Disk"] = KillingDisk
    Disk().write(orders.ready, b".")
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        run_script(sys.argv[0])


def run_script(path: str) -> None:
    """Run a file as the main module, for good: threads and exit handlers need it."""
    source = Path(path).read_bytes()
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 - it is Python
