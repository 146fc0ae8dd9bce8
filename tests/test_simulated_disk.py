"""The simulated disk does what disks do, and forgets what they forget.

Other tests rest on it: each of its states is one that a real disk may be found in, and
what a real disk keeps is never lost here.
"""

from __future__ import annotations

import errno
import inspect
import random

import pytest

from durable_agent._fs import Disk, write_all
from durable_agent.testing import PowerCut, SimulatedDisk


def found(disk, seeds=200, **options):
    """The states that power cuts leave: for each seed, the files by path."""
    return [
        disk.power_cut(random.Random(seed), **options).files() for seed in range(seeds)
    ]


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.mkdir("/d")
    disk.sync_dir("/")
    return disk


def write(disk, path, data, *, sync=True):
    fd = disk.create(path)
    write_all(disk, fd, data)
    if sync:
        disk.sync(fd)
        disk.sync_dir(path.rpartition("/")[0])
    return fd


def test_it_has_every_operation_of_the_real_disk():
    """An operation that it does not have would reach the real one."""
    for name, member in vars(Disk).items():
        if callable(member) and name[0] != "_" and name not in {"datasync", "user"}:
            own = vars(SimulatedDisk).get(name)
            assert own is not None, name
            mine, real = inspect.signature(own), inspect.signature(member)
            assert list(mine.parameters) == list(real.parameters), name


def test_what_was_synced_is_found_as_it_was(disk):
    write(disk, "/d/f", b"a" * 3000)

    assert found(disk, 50) == [{"/d/f": b"a" * 3000}] * 50


def test_a_file_without_a_synced_name_may_be_gone(disk):
    fd = disk.create("/d/f")
    write_all(disk, fd, b"data")
    disk.sync(fd)
    states = found(disk)

    assert {} in states
    assert {"/d/f": b"data"} in states


def test_a_name_without_synced_bytes_may_lead_to_anything_written(disk):
    """Nothing, a part, zeros: but never a byte that nobody wrote."""
    fd = disk.create("/d/f")
    disk.sync_dir("/d")
    write_all(disk, fd, b"a" * 1500)
    contents = [state["/d/f"] for state in found(disk, 400)]

    assert b"" in contents
    assert b"a" * 1500 in contents
    assert any(0 < len(c) < 1500 for c in contents), "cut at any byte"
    assert any(b"\0" * 400 in c for c in contents), "a sector of zeros"
    assert any(c.startswith(b"\0" * 512 + b"a") for c in contents), "a hole"
    assert set(b"".join(contents)) <= {0, ord("a")}


def test_only_what_came_after_a_sync_is_at_stake(disk):
    fd = write(disk, "/d/f", b"a" * 100)
    write_all(disk, fd, b"b" * 100)
    contents = [state["/d/f"] for state in found(disk)]

    assert all(c.startswith(b"a" * 100) for c in contents)
    assert {len(c) for c in contents} > {100, 200}


def test_a_sector_written_in_place_is_old_or_new(disk):
    write(disk, "/d/f", b"a" * 1024)
    fd = disk.open_rewrite("/d/f")
    disk.write_at(fd, b"b" * 1024, 0)
    contents = {state["/d/f"] for state in found(disk)}

    a, b = b"a" * 512, b"b" * 512
    assert contents == {a + a, a + b, b + a, b + b}


def test_a_cut_that_was_not_synced_may_not_have_happened(disk):
    fd = write(disk, "/d/f", b"a" * 100)
    disk.truncate(fd, 10)
    sizes = {len(state["/d/f"]) for state in found(disk)}

    assert {10, 100} <= sizes
    assert min(sizes) == 10


def test_new_sectors_may_hold_what_another_file_held(disk):
    write(disk, "/d/old", b"x" * 1024)
    fd = disk.create("/d/f")
    disk.sync_dir("/d")
    write_all(disk, fd, b"a" * 1024)

    assert any(b"x" * 512 in state["/d/f"] for state in found(disk, 400))


def test_names_change_in_any_combination_and_a_renaming_as_a_whole(disk):
    for name in "abc":
        write(disk, f"/d/{name}", name.encode())
    disk.rename("/d/a", "/d/x")
    disk.unlink("/d/b")
    disk.rename("/d/c", "/d/y")
    states = {tuple(sorted(state)) for state in found(disk)}

    assert len(states) == 8
    assert all(("/d/a" in s) != ("/d/x" in s) for s in states)


def test_names_of_a_journaling_file_system_change_in_order(disk):
    for name in "abc":
        write(disk, f"/d/{name}", name.encode())
    for name in "abc":
        disk.unlink(f"/d/{name}")
    states = {tuple(sorted(state)) for state in found(disk, ordered=True)}

    assert states == {("/d/a", "/d/b", "/d/c"), ("/d/b", "/d/c"), ("/d/c",), ()}


def test_a_synced_directory_keeps_its_names_and_no_others(disk):
    disk.mkdir("/d/sub")
    write(disk, "/d/sub/f", b"1")

    states = found(disk)
    assert {} in states, "the name of the directory itself was not synced"
    disk = disk.kill()
    disk.sync_dir("/d")
    assert found(disk, 20) == [{"/d/sub/f": b"1"}] * 20


def test_a_failed_sync_forgets_its_bytes_and_goes_on_showing_them(disk):
    """As Linux does: later syncs succeed, and the bytes are never written."""
    fd = write(disk, "/d/f", b"a" * 10)
    write_all(disk, fd, b"b" * 10)
    disk.plan = lambda operation: "lost" if operation.name == "sync" else None
    with pytest.raises(OSError, match="error") as raised:
        disk.sync(fd)
    disk.plan = None
    write_all(disk, fd, b"c" * 10)
    disk.sync(fd)

    assert raised.value.errno == errno.EIO
    assert disk.files()["/d/f"] == b"a" * 10 + b"b" * 10 + b"c" * 10
    expected = b"a" * 10 + b"\0" * 10 + b"c" * 10
    assert found(disk, 20) == [{"/d/f": expected}] * 20


def test_bytes_of_a_failed_sync_that_are_written_again_are_safe(disk):
    fd = write(disk, "/d/f", b"a" * 10)
    write_all(disk, fd, b"b" * 10)
    disk.plan = lambda operation: "lost" if operation.name == "sync" else None
    with pytest.raises(OSError, match="error"):
        disk.sync(fd)
    disk.plan = None
    again = disk.open_rewrite("/d/f")
    disk.write_at(again, b"b" * 10, 10)
    disk.sync(again)

    assert found(disk, 20) == [{"/d/f": b"a" * 10 + b"b" * 10}] * 20


def test_a_sync_covers_what_was_there_when_it_began(disk):
    fd = write(disk, "/d/f", b"a")

    def plan(operation):
        if operation.name == "sync":
            disk.plan = None
            write_all(disk, fd, b"late")

    disk.plan = plan
    disk.sync(fd)
    contents = {state["/d/f"] for state in found(disk)}

    assert b"a" in contents
    assert b"alate" in contents


def test_an_older_sync_that_ends_later_takes_nothing_back(disk):
    fd = write(disk, "/d/f", b"a")
    write_all(disk, fd, b"b")

    def plan(operation):
        if operation.name == "sync":
            disk.plan = None
            write_all(disk, fd, b"c")
            disk.sync(fd)

    disk.plan = plan
    disk.sync(fd)

    assert found(disk, 20) == [{"/d/f": b"abc"}] * 20


def test_a_killed_process_loses_nothing_it_wrote(disk):
    write(disk, "/d/f", b"a", sync=False)
    after = disk.kill()

    assert after.files() == {"/d/f": b"a"}
    with pytest.raises(PowerCut):
        disk.open_read("/d/f")


def test_what_was_not_synced_before_a_kill_is_still_not_synced(disk):
    write(disk, "/d/f", b"a", sync=False)

    assert {} in found(disk.kill())


def test_a_full_disk_takes_what_fits():
    disk = SimulatedDisk(capacity=10)
    fd = disk.create("/f")

    assert disk.write(fd, b"12345678") == 8
    assert disk.write(fd, b"12345678") == 2
    with pytest.raises(OSError, match="space") as raised:
        disk.write(fd, b"1")
    assert raised.value.errno == errno.ENOSPC
    disk.truncate(fd, 5)
    assert disk.write(fd, b"1") == 1


def test_a_plan_fails_shortens_and_stops(disk):
    fd = disk.create("/d/f")
    disk.plan = lambda operation: "short"
    assert disk.write(fd, b"12345678") == 4

    def fail(operation):
        raise OSError(errno.EMFILE, "too many", operation.path)

    disk.plan = fail
    with pytest.raises(OSError, match="too many"):
        disk.open_read("/d/f")

    def stop(operation):
        raise PowerCut

    disk.plan = stop
    with pytest.raises(PowerCut):
        disk.fstat(fd)
    disk.plan = None
    with pytest.raises(PowerCut):
        disk.fstat(fd)


def test_a_lock_is_held_once_and_not_beyond_its_process(disk):
    lock = disk.lock("/d/lock")
    disk.write_note(lock, "me")

    assert disk.lock("/d/lock") is None
    assert disk.read_note("/d/lock") == "me"
    lock.release()
    assert disk.lock("/d/lock") is not None
    assert disk.kill().lock("/d/lock") is not None


@pytest.mark.parametrize(
    ("act", "number"),
    [
        (lambda d: d.open_read("/d/none"), errno.ENOENT),
        (lambda d: d.open_read("/d/f/below"), errno.ENOTDIR),
        (lambda d: d.open_read("/d"), errno.EISDIR),
        (lambda d: d.create("/d/f"), errno.EEXIST),
        (lambda d: d.mkdir("/d"), errno.EEXIST),
        (lambda d: d.listdir("/d/f"), errno.ENOTDIR),
        (lambda d: d.rmdir("/d"), errno.ENOTEMPTY),
        (lambda d: d.unlink("/d"), errno.EISDIR),
        (lambda d: d.rename("/d/none", "/d/x"), errno.ENOENT),
        (lambda d: d.rename("/d/f", "/d/sub"), errno.ENOTEMPTY),
        (lambda d: d.close(7), errno.EBADF),
        (lambda d: d.write(d.open_read("/d/f"), b"x"), errno.EBADF),
    ],
    ids=map(str, range(12)),
)
def test_what_cannot_be_done_fails_as_it_does_on_a_real_disk(disk, act, number):
    disk.mkdir("/d/sub")
    write(disk, "/d/f", b"")

    with pytest.raises(OSError) as raised:
        act(disk)
    assert raised.value.errno == number
