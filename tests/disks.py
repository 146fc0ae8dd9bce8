"""Disks for tests: one that counts, one that fails."""

import errno
import os
import threading
import time
from collections import Counter

from durable_agent import _current
from durable_agent._fs import Disk

#: Every method of a disk that asks something of the operating system.
OPERATIONS = tuple(
    name
    for name, member in vars(Disk).items()
    if callable(member) and not name.startswith("_") and name not in {"pause", "whoami"}
)


class CountingDisk(Disk):
    """Counts operations and notes the thread of each; a sync may be made slow."""

    def __init__(self, *, sync_seconds=0.0):
        super().__init__()
        self.count = Counter()
        self.threads = []
        self.sync_seconds = sync_seconds

    def seen(self, name):
        self.count[name] += 1
        self.threads.append((name, threading.get_ident()))

    def sync(self, fd, *, metadata=False):
        self.seen("sync")
        if self.sync_seconds:
            # What the count is about is how many share a sync that takes its time.
            time.sleep(self.sync_seconds)
        super().sync(fd, metadata=metadata)

    def since(self, before):
        """Return (writes, syncs) since an earlier copy of ``count``."""
        new = self.count - before
        writes = new["write"] + new["write_at"]
        return writes, new["sync"] + new["sync_dir"]


def _counted(name):
    real = getattr(Disk, name)

    def method(self, *args, **kwargs):
        self.seen(name)
        return real(self, *args, **kwargs)

    return method


for _name in OPERATIONS:
    if _name not in {"sync", "datasync"}:
        setattr(CountingDisk, _name, _counted(_name))


class FailingDisk(Disk):
    """Fails from the moment it is told to; a short write takes a few bytes first."""

    def __init__(self):
        super().__init__()
        #: What fails: "write", "short" or "sync"; with which errno.
        self.failing = None
        self.errno = errno.EIO
        self.failures = 0

    def fail(self, what, number=errno.EIO):
        self.failing, self.errno = what, number

    def mend(self):
        self.failing = None

    def _fail(self):
        self.failures += 1
        raise OSError(self.errno, os.strerror(self.errno))

    def write(self, fd, data):
        if self.failing == "short":
            super().write(fd, bytes(data)[:5])
            self._fail()
        if self.failing == "write":
            self._fail()
        return super().write(fd, data)

    def sync(self, fd, *, metadata=False):
        if self.failing == "sync":
            self._fail()
        super().sync(fd, metadata=metadata)


class UnsyncedDisk(Disk):
    """Syncs nothing, for tests of what survives a killed process."""

    def sync(self, fd, *, metadata=False):
        pass

    def sync_dir(self, path):
        pass


def crash(session):
    """Leave an open session as a killed process leaves it: no seal, no lock."""
    core = session._core
    core.log.close()
    core.open, core.closing, core.sealed = False, True, True
    _current.ended(core)


def cut(directory, events):
    """Keep the first events of a log of one segment, as a kill that came earlier."""
    (segment,) = directory.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[: events + 1]))
