"""A power cut at any operation leaves a log that tells the truth.

The disk here is simulated: what was not synced may be lost, cut at any byte, or turned
to zeros by the sector; names that were not synced may be gone. A killed process would
not test that, since the page cache survives it.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
from types import SimpleNamespace

import pytest

from durable_agent.errors import DurableError, LogPoisonedError, StoreError
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore

_ROOT = "/base/root"


class PowerCut(BaseException):
    """The machine stops here."""


class Inode:
    def __init__(self, number, directory):
        self.number = number
        self.is_dir = directory
        self.now = {} if directory else bytearray()
        #: What is on the platter.
        self.safe = {} if directory else b""
        #: Bytes that a failed sync dropped: visible, clean, never written.
        self.dropped = (0, 0)

    def flushed(self):
        """What a sync that succeeds puts on the platter."""
        start, end = self.dropped
        return bytes(self.now[:start]) + bytes(end - start) + bytes(self.now[end:])


class SimDisk:
    """The interface of `_fs.Disk` over memory, with two states: now, and safe.

    ``plan(number, name)`` is asked before each operation that changes something; it may
    raise an OSError (the operation fails), `PowerCut`, or return "short", "lost" (a
    failed sync that dropped the pages: cache and platter differ from then on).
    """

    allow_unsynced = False

    def __init__(self, plan=lambda number, name: None):
        self.plan = plan
        self.count = 0
        self.ops = []
        self.inodes = 0
        self.top = self._inode(True)
        base = self._inode(True)
        self.top.now["base"] = self.top.safe["base"] = base
        self.fds = {}
        self.next_fd = 3
        self.held = set()

    def _inode(self, directory):
        self.inodes += 1
        return Inode(self.inodes, directory)

    def _step(self, name):
        self.count += 1
        self.ops.append(name)
        return self.plan(self.count, name)

    def _walk(self, path):
        node = self.top
        for part in filter(None, path.split("/")):
            if not node.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, path)
            if part not in node.now:
                raise FileNotFoundError(errno.ENOENT, path)
            node = node.now[part]
        return node

    def _place(self, path):
        parent, _, name = path.rpartition("/")
        return self._walk(parent), name

    def _open(self, node):
        self.next_fd += 1
        self.fds[self.next_fd] = node
        return self.next_fd

    def open_read(self, path):
        return self._open(self._walk(path))

    open_append = open_rewrite = open_read

    def create(self, path):
        self._step("create")
        parent, name = self._place(path)
        if name in parent.now:
            raise FileExistsError(errno.EEXIST, path)
        parent.now[name] = self._inode(False)
        return self._open(parent.now[name])

    def close(self, fd):
        del self.fds[fd]

    def mkdir(self, path):
        parent, name = self._place(path)
        if name in parent.now:
            raise FileExistsError(errno.EEXIST, path)
        self._step("mkdir")
        parent.now[name] = self._inode(True)

    def read(self, fd, size, offset):
        return bytes(self.fds[fd].now[offset : offset + size])

    def write(self, fd, data):
        data = bytes(data)
        step = self._step("write")
        taken = data[: max(1, len(data) // 2)] if step == "short" else data
        self.fds[fd].now += taken
        return len(taken)

    def write_at(self, fd, data, offset):
        self._step("write_at")
        self.fds[fd].now[offset : offset + len(data)] = bytes(data)
        start, end = self.fds[fd].dropped
        if offset <= start < offset + len(data):
            self.fds[fd].dropped = min(offset + len(data), end), end
        return len(data)

    def truncate(self, fd, size):
        self._step("truncate")
        node = self.fds[fd]
        del node.now[size:]
        node.dropped = tuple(min(edge, size) for edge in node.dropped)

    def sync(self, fd, *, metadata=False):
        step = self._step("sync")
        node = self.fds[fd]
        if step == "lost":
            node.dropped = len(node.safe), len(node.now)
            raise OSError(errno.EIO, "lost")
        node.safe = node.flushed()

    def sync_dir(self, path):
        self._step("sync_dir")
        node = self._walk(path)
        node.safe = dict(node.now)

    def rename(self, source, target):
        self._step("rename")
        parent, name = self._place(source)
        other, new = self._place(target)
        other.now[new] = parent.now.pop(name)

    def unlink(self, path):
        self._step("unlink")
        parent, name = self._place(path)
        parent.now.pop(name)

    rmdir = unlink

    def listdir(self, path):
        return sorted(self._walk(path).now)

    def realpath(self, path):
        return f"{id(self)}{path}"

    def _status(self, node):
        kind = stat.S_IFDIR if node.is_dir else stat.S_IFREG
        return SimpleNamespace(
            st_mode=kind,
            st_dev=1,
            st_ino=node.number,
            st_size=len(node.now),
            st_nlink=1,
        )

    def lstat(self, path):
        return self._status(self._walk(path))

    def fstat(self, fd):
        return self._status(self.fds[fd])

    def pause(self, seconds):
        pass

    def lock(self, path):
        parent, name = self._place(path)
        node = parent.now.setdefault(name, self._inode(False))
        if node.number in self.held:
            return None
        self.held.add(node.number)
        return SimpleNamespace(
            fd=self._open(node), release=lambda: self.held.discard(node.number)
        )

    def write_note(self, lock, text):
        pass

    def read_note(self, path):
        return ""

    def whoami(self):
        return "1@sim"

    def is_alive(self, pid):
        return False

    def after_power_cut(self, rng):
        """Return a disk in one of the states that this one may be found in."""
        after = SimDisk()
        after.inodes = self.inodes
        made = {}
        after.top = _survivor(self.top, rng, made)
        return after

    def after_kill(self):
        """Return the disk as the next process sees it: the cache survives."""
        self.held.clear()
        self.plan = lambda number, name: None
        return self


def _survivor(node, rng, made):
    if node.number in made:
        return made[node.number]
    copy = Inode(node.number, node.is_dir)
    made[node.number] = copy
    if not node.is_dir:
        copy.now = bytearray(_torn(node.safe, node.flushed(), rng))
        copy.safe = bytes(copy.now)
        return copy
    names = dict(node.safe)
    for name in {*node.safe, *node.now}:
        if node.safe.get(name) is not node.now.get(name) and rng.random() < 0.5:
            if name in node.now:
                names[name] = node.now[name]
            else:
                names.pop(name, None)
    copy.now = {name: _survivor(child, rng, made) for name, child in names.items()}
    copy.safe = dict(copy.now)
    return copy


def _torn(safe, now, rng, sector=64):
    """What may be read back of a file whose newest bytes were not synced."""
    end = rng.randint(*sorted((len(safe), len(now))))
    longest = safe if len(safe) > len(now) else now
    data = bytearray(longest[:end])
    for start in range(0, end, sector):
        stop = min(start + sector, end)
        old, new = safe[start:stop], now[start:stop]
        if old != new:
            kept = rng.choice([old, new, new])
            data[start:stop] = kept + bytes(stop - start - len(kept))
    return bytes(data)


class World:
    """What callers were promised, to be found again after anything."""

    def __init__(self):
        self.appended = {}
        self.durable = -1
        self.written = -1


def _work(disk, world, *, rounds=6, close=True):
    """A session of a few barriers, some events only eager, small segments, blobs."""
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    log = store.open("s")
    try:
        for event in log.read():
            world.appended[event.seq] = event.raw
        world.durable = max(world.durable, log.durable)
        if log.next_seq == 0:
            _append(log, world, "session/start", b'"start"')
        for number in range(rounds):
            raw = b'"%d %b"' % (number, b"y" * (80 if number % 3 == 2 else number))
            _append(log, world, "tool/call", raw)
            log.flush(log.next_seq - 1)
            world.durable = log.next_seq - 1
            _append(log, world, "tool/result", raw)
            log.write(log.next_seq - 1)
            world.written = log.next_seq - 1
        if close:
            _append(log, world, "run/end", b"null")
            log.flush(log.next_seq - 1)
            world.durable = log.next_seq - 1
    finally:
        log.close()


def _append(log, world, type_, raw):
    seq = log.append([Draft(type_, raw)])
    world.appended[seq] = raw


def _check(disk, world, least):
    """Open, compare with what was promised, go on, and open once more."""
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    before = _inspect(store)
    log = store.open("s")
    events = list(log.read())
    log.close()

    assert [event.seq for event in events] == list(range(len(events)))
    assert len(events) > least
    for event in events:
        assert event.raw == world.appended[event.seq]
    assert before == events, "inspecting shows what opening finds"
    after = World()
    _work(disk, after, rounds=2)
    assert len(after.appended) == len(events) + 5 + (not events)
    again = store.open("s")
    assert again.next_seq == len(after.appended)
    assert {e.seq: e.raw for e in again.read()} == after.appended
    again.close()


def _inspect(store):
    try:
        return list(store.inspect("s").read())
    except LookupError:
        return []


def _operations():
    disk = SimDisk()
    _work(disk, World())
    return disk.count


_COUNT = _operations()


def test_the_workload_rotates_and_writes_payloads_aside():
    disk = SimDisk()
    _work(disk, World())
    names = disk.listdir(f"{_ROOT}/s")

    assert sum(name.endswith(".jsonl") for name in names) >= 3
    assert len(disk.listdir(f"{_ROOT}/s/blobs")) == 2


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_a_power_cut_at_any_operation_loses_nothing_promised(stop):
    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = SimDisk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    for seed in range(12):
        after = disk.after_power_cut(random.Random(stop * 1000 + seed))
        _check(after, world, world.durable)


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_a_kill_at_any_operation_loses_nothing_written(stop):
    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = SimDisk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    _check(disk.after_kill(), world, max(world.durable, world.written))


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_after_a_kill_the_next_owner_proves_what_it_found(stop):
    """What a killed owner did not sync, its successor must: names and seals too."""

    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = SimDisk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    disk.after_kill()
    after = World()
    _work(disk, after, rounds=1, close=False)
    for seed in range(6):
        found = disk.after_power_cut(random.Random(stop * 100 + seed))
        _check(found, after, after.durable)


@pytest.mark.parametrize("kind", [errno.EIO, errno.ENOSPC, "lost", "short"])
@pytest.mark.parametrize("nth", range(1, _COUNT + 1))
def test_one_failed_operation_poisons_and_opening_tells_the_truth(nth, kind):
    """Only the n-th fails; whatever succeeds afterwards must not hide it."""

    def plan(number, name):
        if number != nth:
            return None
        if isinstance(kind, int):
            raise OSError(kind, os.strerror(kind))
        return kind

    disk, world = SimDisk(plan), World()
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    failed = None
    try:
        _work(disk, world)
    except StoreError as error:
        failed = error
    assert failed is None or isinstance(failed, StoreError)
    operation = disk.ops[nth - 1]
    if isinstance(kind, int) and operation != "unlink":
        assert failed is not None, f"a failed {operation} was swallowed"
    disk.plan = lambda number, name: None
    disk.held.clear()
    # First as the next process sees it, acting on it; then the power goes.
    seen = World()
    try:
        log = store.open("s")
        seen.appended = {event.seq: event.raw for event in log.read()}
        log.close()
    except StoreError:
        pytest.fail("a failed operation made the log unreadable")
    assert len(seen.appended) > world.durable
    for seq, raw in seen.appended.items():
        assert world.appended[seq] == raw
    acted_on = len(seen.appended) - 1
    acted_on = min(acted_on, log.durable)  # only a seal is left for later
    for seed in range(4):
        after = disk.after_power_cut(random.Random(nth * 100 + seed))
        _check(after, world, acted_on)


def test_a_power_cut_during_recovery_loses_nothing_more():
    """Tear the tail, then cut the power at each operation of the next opening."""
    for seed in range(40):
        rng = random.Random(seed)
        disk, world = SimDisk(), World()
        _work(disk, world, close=False)
        torn = disk.after_power_cut(rng)
        for stop in range(1, 40):
            rng = random.Random(seed)
            again = torn.after_power_cut(rng)

            def plan(number, name, stop=stop):
                if number >= stop:
                    raise PowerCut

            again.plan = plan
            try:
                _work(again, World(), rounds=0, close=False)
            except PowerCut:
                pass
            else:
                break
            final = again.after_power_cut(rng)
            _check(final, world, world.durable)


def test_bytes_of_a_failed_sync_are_written_again_before_they_are_shown():
    """The page of a failed sync stays visible; a second sync would not write it."""

    def plan(number, name):
        return "lost" if name == "sync" and disk.ops.count("sync") == 3 else None

    disk, world = SimDisk(plan), World()
    with pytest.raises(StoreError):
        _work(disk, world)
    disk.after_kill()
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    log = store.open("s")
    shown = log.next_seq

    assert log.report.rewritten > 0
    assert log.durable == shown - 1
    log.close()
    after = disk.after_power_cut(random.Random(1))
    assert JsonlStore(_ROOT, fs=after).inspect("s").report.events == shown


def test_what_is_written_during_a_sync_is_synced_before_the_file_is_rotated_out():
    """A sealed segment is promised data: nothing in it may still be in the cache."""
    state = SimpleNamespace(armed=False)

    def plan(number, name):
        if state.armed and name == "sync":
            state.armed = False
            thread = threading.Thread(target=late)
            thread.start()
            thread.join()

    def late():
        log.append([Draft("tool/result", b'"late"')])
        log.write(2)

    disk = SimDisk(plan)
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=200)
    log = store.open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    log.append([Draft("tool/call")])
    log.write(1)
    original = disk.sync

    def sync(fd, *, metadata=False):
        # The pages that this sync is about to write are chosen before it starts.
        node = disk.fds[fd]
        chosen = bytes(node.now)
        original(fd, metadata=metadata)
        if len(node.now) > len(chosen):
            node.safe = chosen

    disk.sync = sync
    state.armed = True
    log.flush(1)
    segments = [n for n in disk.listdir(f"{_ROOT}/s") if n.endswith(".jsonl")]

    assert len(segments) >= 2
    for seed in range(8):
        after = disk.after_power_cut(random.Random(seed))
        assert JsonlStore(_ROOT, fs=after).inspect("s").report.events == 3
    log.close()


def test_a_failed_handle_stays_failed():
    state = SimpleNamespace(fail=False)

    def plan(number, name):
        if state.fail and name == "sync":
            state.fail = False
            raise OSError(errno.EIO, "once")

    disk = SimDisk(plan)
    log = JsonlStore(_ROOT, fs=disk).open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    log.append([Draft("tool/call")])
    state.fail = True
    with pytest.raises(StoreError):
        log.flush(1)
    syncs = disk.ops.count("sync")
    for use in (
        lambda: log.append([Draft("tool/call")]),
        lambda: log.write(1),
        lambda: log.flush(1),
        lambda: log.flush(1),
    ):
        with pytest.raises(LogPoisonedError):
            use()

    assert disk.ops.count("sync") == syncs, "a failed sync is never tried again"
    assert log.durable == 0
    log.close()
