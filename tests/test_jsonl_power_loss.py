"""A power cut at any operation leaves a log that tells the truth.

The disk here is simulated: what was not synced may be lost, cut at any byte, or turned
to zeros by the sector; names that were not synced may be gone. A killed process would
not test that, since the page cache survives it.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from types import SimpleNamespace

import pytest

from durable_agent.errors import DurableError, LogPoisonedError, StoreError
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore
from durable_agent.testing import PowerCut, SimulatedDisk

_ROOT = "/base/root"
_CHANGING = {
    "create",
    "mkdir",
    "write",
    "write_at",
    "truncate",
    "sync",
    "sync_dir",
    "rename",
    "unlink",
    "rmdir",
}


def _disk(plan=None):
    """A simulated disk with an empty directory."""
    disk = SimulatedDisk()
    disk.mkdir("/base")
    disk.sync_dir("/")
    _plan(disk, plan)
    return disk


def _plan(disk, plan):
    """Have a plan asked with number and name of each operation that changes a disk."""
    disk.changes = []

    def ask(operation):
        if operation.name not in _CHANGING:
            return None
        disk.changes.append(operation.name)
        return plan(len(disk.changes), operation.name) if plan else None

    disk.plan = ask


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
    disk = _disk()
    _work(disk, World())
    return len(disk.changes)


_COUNT = _operations()


def test_the_workload_rotates_and_writes_payloads_aside():
    disk = _disk()
    _work(disk, World())
    names = disk.listdir(f"{_ROOT}/s")

    assert sum(name.endswith(".jsonl") for name in names) >= 3
    assert len(disk.listdir(f"{_ROOT}/s/blobs")) == 2


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_a_power_cut_at_any_operation_loses_nothing_promised(stop):
    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = _disk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    for seed in range(12):
        after = disk.power_cut(random.Random(stop * 1000 + seed))
        _check(after, world, world.durable)


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_a_kill_at_any_operation_loses_nothing_written(stop):
    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = _disk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    _check(disk.kill(), world, max(world.durable, world.written))


@pytest.mark.parametrize("stop", range(1, _COUNT + 1))
def test_after_a_kill_the_next_owner_proves_what_it_found(stop):
    """What a killed owner did not sync, its successor must: names and seals too."""

    def plan(number, name):
        if number >= stop:
            raise PowerCut

    disk, world = _disk(plan), World()
    with pytest.raises((PowerCut, DurableError)):
        _work(disk, world)
    disk = disk.kill()
    after = World()
    _work(disk, after, rounds=1, close=False)
    for seed in range(6):
        found = disk.power_cut(random.Random(stop * 100 + seed))
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

    disk, world = _disk(plan), World()
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    failed = None
    try:
        _work(disk, world)
    except StoreError as error:
        failed = error
    assert failed is None or isinstance(failed, StoreError)
    operation = disk.changes[nth - 1]
    if isinstance(kind, int) and operation != "unlink":
        assert failed is not None, f"a failed {operation} was swallowed"
    disk = disk.kill()
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
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
        after = disk.power_cut(random.Random(nth * 100 + seed))
        _check(after, world, acted_on)


def test_a_power_cut_during_recovery_loses_nothing_more():
    """Tear the tail, then cut the power at each operation of the next opening."""
    for seed in range(40):
        rng = random.Random(seed)
        disk, world = _disk(), World()
        _work(disk, world, close=False)
        torn = disk.power_cut(rng)
        for stop in range(1, 40):
            rng = random.Random(seed)
            again = torn.power_cut(rng)

            def plan(number, name, stop=stop):
                if number >= stop:
                    raise PowerCut

            _plan(again, plan)
            try:
                _work(again, World(), rounds=0, close=False)
            except PowerCut:
                pass
            else:
                break
            final = again.power_cut(rng)
            _check(final, world, world.durable)


def test_bytes_of_a_failed_sync_are_written_again_before_they_are_shown():
    """The page of a failed sync stays visible; a second sync would not write it."""

    def plan(number, name):
        return "lost" if name == "sync" and disk.changes.count("sync") == 3 else None

    disk, world = _disk(plan), World()
    with pytest.raises(StoreError):
        _work(disk, world)
    disk = disk.kill()
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=700, blob_bytes=60)
    log = store.open("s")
    shown = log.next_seq

    assert log.report.rewritten > 0
    assert log.durable == shown - 1
    log.close()
    after = disk.power_cut(random.Random(1))
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

    disk = _disk(plan)
    store = JsonlStore(_ROOT, fs=disk, roll_bytes=200)
    log = store.open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    log.append([Draft("tool/call")])
    log.write(1)
    state.armed = True
    log.flush(1)
    segments = [n for n in disk.listdir(f"{_ROOT}/s") if n.endswith(".jsonl")]

    assert len(segments) >= 2
    for seed in range(8):
        after = disk.power_cut(random.Random(seed))
        assert JsonlStore(_ROOT, fs=after).inspect("s").report.events == 3
    with pytest.raises(PowerCut):
        log.close()


def test_a_failed_handle_stays_failed():
    state = SimpleNamespace(fail=False)

    def plan(number, name):
        if state.fail and name == "sync":
            state.fail = False
            raise OSError(errno.EIO, "once")

    disk = _disk(plan)
    log = JsonlStore(_ROOT, fs=disk).open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    log.append([Draft("tool/call")])
    state.fail = True
    with pytest.raises(StoreError):
        log.flush(1)
    syncs = disk.changes.count("sync")
    for use in (
        lambda: log.append([Draft("tool/call")]),
        lambda: log.write(1),
        lambda: log.flush(1),
        lambda: log.flush(1),
    ):
        with pytest.raises(LogPoisonedError):
            use()

    assert disk.changes.count("sync") == syncs, "a failed sync is never tried again"
    assert log.durable == 0
    log.close()
