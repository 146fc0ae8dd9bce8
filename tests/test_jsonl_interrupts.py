"""A Ctrl+C in the middle of a write neither loses nor doubles a line."""

from __future__ import annotations

import pytest

from durable_agent._fs import Disk
from durable_agent.errors import LogPoisonedError, SessionIdError, StoreError
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore

START = Draft("session/start")


class InterruptedDisk(Disk):
    """Raises KeyboardInterrupt at one write, after taking ``taken`` of its bytes."""

    taken = None

    def write(self, fd, data):
        if self.taken is None:
            return super().write(fd, data)
        part, self.taken = bytes(data)[: self.taken], None
        if part:
            super().write(fd, part)
        raise KeyboardInterrupt


def _interrupted(root, taken):
    disk = InterruptedDisk()
    log = JsonlStore(root, fs=disk).open("s")
    log.append([START])
    log.flush(0)
    disk.taken = taken
    log.append([Draft("tool/call", b"1"), Draft("tool/result", b"2")])
    with pytest.raises(KeyboardInterrupt):
        log.flush(2)
    return log


@pytest.mark.parametrize("taken", [0, 1 << 20])
def test_an_interrupted_write_is_finished_by_the_next_barrier(tmp_path, taken):
    log = _interrupted(tmp_path, taken)
    log.append([Draft("tool/call", b"3")])
    log.flush(3)

    assert [event.raw for event in log.read()] == [b"null", b"1", b"2", b"3"]
    log.close()
    log = JsonlStore(tmp_path).open("s")
    assert [event.raw for event in log.read()] == [b"null", b"1", b"2", b"3"]
    assert log.report.torn == ()
    log.close()


def test_a_write_that_was_interrupted_half_way_poisons(tmp_path):
    log = _interrupted(tmp_path, 30)
    with pytest.raises(StoreError):
        log.flush(2)
    with pytest.raises(LogPoisonedError):
        log.append([Draft("tool/call")])
    log.close()
    log = JsonlStore(tmp_path).open("s")

    assert log.report.events == 1
    assert [torn.size for torn in log.report.torn] == [30]
    log.close()


def test_an_interrupted_creation_of_the_log_is_done_again(tmp_path):
    disk = InterruptedDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([START])
    disk.taken = 10
    with pytest.raises(KeyboardInterrupt):
        log.flush(0)
    log.close()
    log = JsonlStore(tmp_path).open("s")
    log.append([START])
    log.flush(0)

    assert log.next_seq == 1
    log.close()


@pytest.mark.parametrize("name", ["root", "a/b/c/root"])
def test_every_level_above_a_new_root_is_synced(tmp_path, name):
    """A name that was never synced takes everything below it with it."""
    synced = []

    class Spy(Disk):
        def sync_dir(self, path):
            synced.append(path)
            super().sync_dir(path)

    log = JsonlStore(tmp_path / name, fs=Spy()).open("s")
    log.append([START])
    log.flush(0)
    log.close()
    path = tmp_path / name / "s"
    while path != tmp_path.parent:
        assert str(path) in synced
        path = path.parent


def test_an_id_that_is_no_string_is_refused(tmp_path):
    with pytest.raises(SessionIdError):
        JsonlStore(tmp_path).open(7)
