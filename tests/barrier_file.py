"""A file that remembers which lines each write brought and each sync covered."""

from __future__ import annotations

import threading

from durable_agent._barrier import GroupCommit

#: Seconds after which a test gives up on a thread that hangs.
PATIENCE = 30


class File:
    """Writes and syncs for a `GroupCommit`; every step may be held at a gate."""

    def __init__(self, **options) -> None:
        self.lines: list[int] = []
        self.writes: list[list[int]] = []
        #: What each sync covered: the number of lines in the file when it began.
        self.syncs: list[int] = []
        self.safe = 0
        self.inside = 0
        self.overlaps = 0
        #: Called inside each write or sync, with the file.
        self.on_write = lambda batch: None
        self.on_sync = lambda number: None
        self.lock = threading.Lock()
        self.commit = GroupCommit(
            self.write,
            self.sync,
            first_seq=0,
            durable=-1,
            name="log",
            **options,
        )

    def write(self, batch: list[bytes]) -> None:
        seqs = [int(line) for line in batch]
        self.writes.append(seqs)
        self.on_write(seqs)
        self.lines += seqs

    def sync(self) -> None:
        with self.lock:
            self.inside += 1
            self.overlaps += self.inside > 1
            covers = len(self.lines)
            self.syncs.append(covers)
            number = len(self.syncs)
        try:
            self.on_sync(number)
            self.safe = max(self.safe, covers)
        finally:
            with self.lock:
                self.inside -= 1

    def settle(self, batch: list[bytes]) -> bool | None:
        """Judge an interrupted write, as a store does by the size of its file."""
        there = [int(line) in self.lines for line in batch]
        return True if all(there) else None if any(there) else False

    def append(self, count: int = 1) -> int:
        return self.commit.append(count, make)

    def queued(self) -> int:
        return len(self.commit._queue._syncs)


def make(first: int, durable: int) -> list[bytes]:
    """One line, its seq."""
    return [b"%d" % first]


class Gate:
    """Holds the n-th sync (or every one) until it is opened."""

    def __init__(self, only: int | None = None) -> None:
        self.only = only
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, number: object) -> None:
        if self.only is None or number == self.only:
            self.reached.set()
            assert self.opened.wait(PATIENCE)

    def wait(self) -> None:
        assert self.reached.wait(PATIENCE)


def until(condition) -> None:
    """Wait for a state that another thread is bound to reach."""
    waiting = threading.Event()
    for _ in range(PATIENCE * 1000):
        if condition():
            return
        waiting.wait(0.001)
    raise AssertionError("it did not come to pass")


class Caller(threading.Thread):
    """A thread that keeps what its function returned or raised."""

    def __init__(self, fn, *args) -> None:
        super().__init__(daemon=True)
        self.fn, self.args_ = fn, args
        self.value = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.fn(*self.args_)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        self.join(PATIENCE)
        assert not self.is_alive(), "the caller hangs"
        return self.error
