"""One owner at a time, whatever happens to processes, files and directories."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from durable_agent.errors import (
    LeaseLostError,
    LogPoisonedError,
    SessionBusyError,
    SessionForkedError,
    StoreError,
)
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

_HOLD = """
    import sys
    from durable_agent.events import Draft
    from durable_agent.jsonl import JsonlStore
    log = JsonlStore(sys.argv[1]).open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    print("open", flush=True)
    sys.stdin.read()
"""

_RACE = """
    import os, sys
    from durable_agent.errors import SessionBusyError
    from durable_agent.events import Draft
    from durable_agent.jsonl import JsonlStore
    store, inside = JsonlStore(sys.argv[1]), os.path.join(sys.argv[1], "inside")
    for turn in range(int(sys.argv[2])):
        log = store.open("s", lock_timeout=60)
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
        log.append([Draft("app/turn" if log.next_seq else "session/start")])
        log.write(log.next_seq - 1)
        os.unlink(inside)
        log.close()
"""

_OWN = """
    import sys
    from durable_agent.events import Draft
    from durable_agent.jsonl import JsonlStore
    log = JsonlStore(sys.argv[1]).open(sys.argv[2])
    log.append([Draft("session/start")])
    log.flush(0)
    log.close()
"""


def _python(code, *args):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _holder(root):
    process = _python(_HOLD, root)
    assert process.stdout.readline() == "open\n"
    return process


def _end(process):
    process.kill()
    process.communicate()


def _finish(process):
    """Let it end by itself; return its exit code."""
    process.communicate()
    return process.returncode


def _started(root):
    log = JsonlStore(root).open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    return log


def test_a_second_process_is_refused_and_told_who_owns_the_session(tmp_path):
    process = _holder(tmp_path)
    with pytest.raises(SessionBusyError) as caught:
        JsonlStore(tmp_path).open("s")
    (info,) = JsonlStore(tmp_path).list()
    _end(process)

    assert caught.value.pid == process.pid
    assert str(process.pid) in str(caught.value)
    assert caught.value.host in str(caught.value)
    assert info.busy is True


def test_a_killed_owner_blocks_nobody_and_is_reported(tmp_path):
    process = _holder(tmp_path)
    _end(process)
    (info,) = JsonlStore(tmp_path).list()
    log = JsonlStore(tmp_path).open("s")

    assert info.busy is False
    assert log.report.died.startswith(f"{process.pid}@")
    log.close()
    log = JsonlStore(tmp_path).open("s")
    assert log.report.died is None, "a clean close leaves nothing to report"
    log.close()


def test_waiting_for_the_owner_ends_when_it_closes(tmp_path):
    process = _holder(tmp_path)
    waiting = threading.Event()
    got = []

    class Disk(type(JsonlStore(tmp_path)._disk)):
        def pause(self, seconds):
            waiting.set()
            super().pause(seconds)

    store = JsonlStore(tmp_path, fs=Disk())
    thread = threading.Thread(
        target=lambda: got.append(store.open("s", lock_timeout=60))
    )
    thread.start()
    assert waiting.wait(30)
    process.communicate("")
    thread.join()

    assert got[0].report.events == 1
    got[0].close()


def test_two_openings_in_one_process_are_refused_at_once(tmp_path):
    log = _started(tmp_path / "root")
    os.symlink(tmp_path / "root", tmp_path / "alias")

    for root in (tmp_path / "root", tmp_path / "alias"):
        with pytest.raises(SessionBusyError) as caught:
            JsonlStore(root).open("s", lock_timeout=3600)
        assert caught.value.pid == os.getpid()
    log.close()


def test_critical_sections_of_processes_never_overlap(tmp_path):
    """The lock file is not deleted: a waiter must not lock a dead inode."""
    processes = [_python(_RACE, tmp_path, 25) for _ in range(3)]
    codes = [_finish(process) for process in processes]

    assert codes == [0, 0, 0]
    assert JsonlStore(tmp_path).inspect("s").report.events == 75


def test_many_sessions_started_at_once_all_succeed(tmp_path):
    """Directories and first files are created without races."""
    root = tmp_path / "a" / "b"
    processes = [_python(_OWN, root, f"s{n}") for n in range(8)]
    codes = [_finish(process) for process in processes]

    assert codes == [0] * 8
    assert len(list(JsonlStore(root).list())) == 8


def _lose_lock_file(directory):
    os.unlink(directory / "lock")


def _replace_lock_file(directory):
    os.rename(directory / "lock", directory / "old")
    (directory / "lock").touch()


def _move_directory(directory):
    os.rename(directory, directory.with_name("moved"))


def _replace_directory(directory):
    _move_directory(directory)
    directory.mkdir()
    (directory / "lock").touch()


def _foreign_append(directory):
    with open(next(directory.glob("*.jsonl")), "ab") as file:
        file.write(b"{}\n")


def _replace_segment(directory):
    path = next(directory.glob("*.jsonl"))
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    "happens",
    [
        _lose_lock_file,
        _replace_lock_file,
        _move_directory,
        _replace_directory,
        _foreign_append,
        _replace_segment,
    ],
)
def test_an_owner_whose_files_are_no_longer_its_own_stops_writing(tmp_path, happens):
    log = _started(tmp_path)
    happens(tmp_path / "s")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    log.append([Draft("tool/call")])
    with pytest.raises(StoreError) as caught:
        log.flush(1)

    assert isinstance(caught.value.__cause__ or caught.value, LeaseLostError)
    with pytest.raises(LogPoisonedError):
        log.append([Draft("tool/call")])
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")} == before
    log.close()


def test_a_barrier_over_lines_already_written_checks_the_lease(tmp_path):
    """A former owner must not acknowledge durability on a log it lost."""
    log = _started(tmp_path)
    log.append([Draft("tool/call")])
    log.write(1)
    _lose_lock_file(tmp_path / "s")

    with pytest.raises(StoreError):
        log.flush(1)
    assert log.durable == 0
    log.close()


def test_a_lock_file_that_vanishes_on_the_way_is_locked_anew(tmp_path):
    """Between locking and looking, somebody may have deleted the directory."""
    disk = JsonlStore(tmp_path)._disk
    real, losses = disk.lock, iter([True, True, False])

    def lock(path):
        held = real(path)
        if next(losses):
            os.unlink(path)
        return held

    disk.lock = lock
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([Draft("session/start")])
    log.flush(0)

    assert log.durable == 0
    log.close()


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_writes_nor_unlocks(tmp_path):
    log = _started(tmp_path)
    log.append([Draft("tool/call")])
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child():
        for use in (
            lambda: log.append([Draft("tool/call")]),
            lambda: log.write(1),
            lambda: log.flush(1),
            lambda: list(log.read()),
            lambda: log.get(0),
        ):
            try:
                use()
            except SessionForkedError:
                continue
            theirs.send("used")
            return
        log.close()
        try:
            JsonlStore(tmp_path).open("s")
        except SessionBusyError:
            other = JsonlStore(tmp_path).open("its own")
            other.append([Draft("session/start")])
            other.flush(0)
            other.close()
            theirs.send("refused")

    process = context.Process(target=child)
    process.start()
    answer = ours.recv()
    process.join()
    ours.close()
    theirs.close()
    other = _python(_OWN, tmp_path, "s")

    assert answer == "refused"
    assert process.exitcode == 0
    assert _finish(other) != 0, "the parent still excludes a third process"
    log.flush(1)
    assert log.append([Draft("tool/result")]) == 2
    log.flush(2)
    log.close()
    assert JsonlStore(tmp_path).inspect("s").report.events == 3


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_outlives_a_killed_owner_does_not_keep_the_lock(tmp_path):
    process = _python(
        """
        import os, sys, time
        from durable_agent.jsonl import JsonlStore
        log = JsonlStore(sys.argv[1]).open("s")
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(theirs, b"1")
            time.sleep(600)
        os.read(ours, 1)
        print(child, flush=True)
        sys.stdin.read()
        """,
        tmp_path,
    )
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        JsonlStore(tmp_path).open("s").close()
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_planted_at_the_lock_is_refused_and_its_target_unchanged(tmp_path, link):
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "s").mkdir()
    link(target, tmp_path / "s" / "lock")

    with pytest.raises(StoreError):
        JsonlStore(tmp_path).open("s")
    assert target.read_text() == "precious"


def test_deleting_a_session_lets_its_waiters_start_a_new_one(tmp_path):
    _started(tmp_path).close()
    JsonlStore(tmp_path).delete("s")
    log = JsonlStore(tmp_path).open("s")

    assert log.report.existed is False
    assert sorted(os.listdir(tmp_path)) == ["s"]
    log.close()
