"""A disk in memory that remembers what was synced, and what was only shown.

`SimulatedDisk` has the methods of `durable_agent._fs.Disk`, over the files of
``_testing_files``. What a power cut may leave of them is in ``_testing_power``.
"""

from __future__ import annotations

import errno
import itertools
import threading
from typing import TYPE_CHECKING, Any, Final

from durable_agent._fs import Disk
from durable_agent._testing_files import (
    Directory,
    File,
    Operation,
    PowerCut,
    Renaming,
    SimulatedLock,
    copied,
    directory_at,
    named,
    place_of,
    room_for,
    status,
    walk,
)
from durable_agent._testing_power import cut_power

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from durable_agent._fs import Lock
    from durable_agent._testing_files import Verdict

_serial: Final = itertools.count(1)


class SimulatedDisk(Disk):
    """Files in memory, for ``JsonlStore(root, fs=SimulatedDisk())``.

    ``plan`` is asked before each operation, with an `Operation`; it may raise an
    OSError (it fails, with nothing done) or `PowerCut` (the machine stops: all later
    operations raise it too), or return "short" (a write takes half) or "lost" (a sync
    fails, and what it was to write stays visible but is never written). ``capacity`` in
    bytes: beyond it writes come up short and then fail with ENOSPC.

    `power_cut` and `kill` give the disk that the next process finds. ``operations``
    are in the order in which they were begun. Any threads may use one disk.
    """

    def __init__(
        self,
        plan: Callable[[Operation], Verdict | None] | None = None,
        *,
        capacity: int | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.capacity = capacity
        self.operations: list[Operation] = []
        self.stopped = False
        self.top = Directory(0, path="/")
        #: Changes of names that no sync of their directories has made safe.
        self.renamings: list[Renaming] = []
        self.held: set[int] = set()
        #: The machine that this disk is in: another one after a power cut.
        self.serial = next(_serial)
        self._inodes = itertools.count(1)
        self._fds: dict[int, tuple[File, bool]] = {}
        self._next_fd = itertools.count(100)
        self._guard = threading.RLock()

    # -- what comes after ------------------------------------------------------

    def power_cut(
        self, choices: random.Random, *, ordered: bool = False
    ) -> SimulatedDisk:
        """Stop this disk; return one in a state that the cut may have left.

        Which of the legal states is drawn from ``choices``. ``ordered``: names reach
        the platter in the order of their changes, as on a journaling file system.
        """
        with self._guard:
            self.stopped = True
            after = SimulatedDisk(capacity=self.capacity)
            after.top = cut_power(self.top, self.renamings, choices, ordered=ordered)
            after._inodes = self._inodes
        return after

    def kill(self) -> SimulatedDisk:
        """Stop this disk; return what the next process finds: the cache survives."""
        with self._guard:
            self.stopped = True
            after = SimulatedDisk(capacity=self.capacity)
            after.top, after.renamings = self.top, self.renamings
            after._inodes = self._inodes
        return after

    def copy(self) -> SimulatedDisk:
        """Return a disk with the same files, all of them safe."""
        with self._guard:
            after = SimulatedDisk(capacity=self.capacity)
            after.top = copied(self.top)
            after._inodes = self._inodes
        return after

    def files(self) -> dict[str, bytes]:
        """Return what is read of each file, by path."""
        with self._guard:
            return {path: bytes(file.now) for path, file in named(self.top)}

    # -- inside ------------------------------------------------------------------

    def _begin(self, name: str, path: str) -> Verdict | None:
        with self._guard:
            self._check()
            operation = Operation(len(self.operations) + 1, name, path)
            self.operations.append(operation)
        # Not under the lock: a plan may let other threads go first.
        try:
            verdict = self.plan(operation) if self.plan is not None else None
        except PowerCut:
            self.stopped = True
            raise
        self._check()
        return verdict

    def _check(self) -> None:
        if self.stopped:
            raise PowerCut

    def _open(self, path: str, *, writing: bool) -> int:
        node = walk(self.top, path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        fd = next(self._next_fd)
        self._fds[fd] = node, writing
        return fd

    def _file(self, fd: int, *, writing: bool = False) -> File:
        try:
            node, may_write = self._fds[fd]
        except KeyError:
            raise OSError(errno.EBADF, "Bad file descriptor") from None
        if writing and not may_write:
            raise OSError(errno.EBADF, "Not open for writing", node.path)
        return node

    def _path(self, fd: int) -> str:
        return self._fds[fd][0].path if fd in self._fds else ""

    def _renamed(self, *names: tuple[Directory, str, File | Directory | None]) -> None:
        for directory, name, node in names:
            if node is None:
                directory.now.pop(name, None)
            else:
                directory.now[name] = node
        changed = {(directory, name): node for directory, name, node in names}
        self.renamings.append(Renaming(changed))

    # -- open and create ---------------------------------------------------------

    def open_read(self, path: str) -> int:
        self._begin("open_read", path)
        with self._guard:
            return self._open(path, writing=False)

    def open_append(self, path: str) -> int:
        self._begin("open_append", path)
        with self._guard:
            return self._open(path, writing=True)

    def open_rewrite(self, path: str) -> int:
        self._begin("open_rewrite", path)
        with self._guard:
            return self._open(path, writing=True)

    def create(self, path: str) -> int:
        self._begin("create", path)
        with self._guard:
            parent, name = place_of(self.top, path)
            if name in parent.now:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            self._renamed((parent, name, File(next(self._inodes), path=path)))
            return self._open(path, writing=True)

    def close(self, fd: int) -> None:
        self._begin("close", self._path(fd))
        with self._guard:
            self._file(fd)
            del self._fds[fd]

    def mkdir(self, path: str) -> None:
        self._begin("mkdir", path)
        with self._guard:
            parent, name = place_of(self.top, path)
            if name in parent.now:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            self._renamed((parent, name, Directory(next(self._inodes), path=path)))

    # -- bytes -------------------------------------------------------------------

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._begin("read", self._path(fd))
        with self._guard:
            return bytes(self._file(fd).now[offset : offset + size])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return self._write("write", fd, data, None)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self._write("write_at", fd, data, offset)

    def _write(
        self, name: str, fd: int, data: bytes | memoryview, offset: int | None
    ) -> int:
        verdict = self._begin(name, self._path(fd))
        with self._guard:
            file = self._file(fd, writing=True)
            taken = bytes(data)
            if verdict == "short":
                taken = taken[: max(1, len(taken) // 2)]
            start = len(file.now) if offset is None else offset
            grown = max(0, start + len(taken) - len(file.now))
            room = room_for(self.top, self.capacity, grown)
            if room < grown:
                taken = taken[: len(taken) - (grown - room)]
                if not taken:
                    raise OSError(errno.ENOSPC, "No space left on device", file.path)
            file.change(start, taken)
            return len(taken)

    def truncate(self, fd: int, size: int) -> None:
        self._begin("truncate", self._path(fd))
        with self._guard:
            self._file(fd, writing=True).change(size, None)

    # -- syncs -------------------------------------------------------------------

    def sync(self, fd: int, *, metadata: bool = False) -> None:  # noqa: ARG002 - both
        file = self._file(fd)
        with self._guard:
            # The pages that a sync writes are those that were there when it began.
            begun = file.mark()
        verdict = self._begin("sync", self._path(fd))
        with self._guard:
            if verdict == "lost":
                file.lose(begun)
                raise OSError(errno.EIO, "Input/output error", file.path)
            file.settle(begun)

    def sync_dir(self, path: str) -> None:
        self._begin("sync_dir", path)
        with self._guard:
            directory = directory_at(self.top, path)
            directory.safe = dict(directory.now)
            for renaming in self.renamings:
                for key in [k for k in renaming.names if k[0] is directory]:
                    del renaming.names[key]
            self.renamings = [each for each in self.renamings if each.names]

    # -- names -------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        self._begin("rename", source)
        with self._guard:
            parent, name = place_of(self.top, source)
            other, new = place_of(self.top, target)
            if name not in parent.now:
                raise FileNotFoundError(errno.ENOENT, "No such file", source)
            if isinstance(other.now.get(new), Directory):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", target)
            node = parent.now[name]
            self._renamed((parent, name, None), (other, new, node))

    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        with self._guard:
            if isinstance(walk(self.top, path), Directory):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            self._renamed((*place_of(self.top, path), None))

    def rmdir(self, path: str) -> None:
        self._begin("rmdir", path)
        with self._guard:
            if directory_at(self.top, path).now:
                raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
            self._renamed((*place_of(self.top, path), None))

    def pause(self, seconds: float) -> None:
        """Wait for nobody: there is no other reader."""

    def listdir(self, path: str) -> list[str]:
        self._begin("listdir", path)
        with self._guard:
            return sorted(directory_at(self.top, path).now)

    def realpath(self, path: str) -> str:
        return f"simulated-{self.serial}:{path}"

    def lstat(self, path: str) -> Any:
        self._begin("lstat", path)
        with self._guard:
            return status(walk(self.top, path))

    def fstat(self, fd: int) -> Any:
        self._begin("fstat", self._path(fd))
        with self._guard:
            return status(self._file(fd))

    # -- the lock ----------------------------------------------------------------

    def lock(self, path: str) -> Lock | None:
        self._begin("lock", path)
        with self._guard:
            parent, name = place_of(self.top, path)
            if name not in parent.now:
                self._renamed((parent, name, File(next(self._inodes), path=path)))
            fd = self._open(path, writing=True)
            node = self._file(fd)
            if node.number in self.held:
                return None
            self.held.add(node.number)
            return SimulatedLock(self.held, node.number, fd)

    def write_note(self, lock: Lock, text: str) -> None:
        with self._guard:
            file = self._file(lock.fd)
            file.change(0, None)
            file.change(0, text.encode())

    def read_note(self, path: str) -> str:
        with self._guard:
            try:
                node = walk(self.top, path)
            except OSError:
                return ""
            text = node.now if isinstance(node, File) else b""
            return bytes(text[:512]).decode("utf-8", "replace").strip()

    def whoami(self) -> str:
        return f"1@simulated-{self.serial}"

    def is_alive(self, pid: int) -> bool | None:  # noqa: ARG002 - nobody is there
        return False
