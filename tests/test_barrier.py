"""Barriers of threads: what is shared, what is promised, who gets an error."""

from __future__ import annotations

import errno
import multiprocessing
import sys
import threading

import pytest

from durable_agent._barrier_queue import Ticket
from durable_agent.errors import (
    LeaseLostError,
    LogPoisonedError,
    SessionClosedError,
    SessionForkedError,
    StoreError,
)
from tests.barrier_file import PATIENCE, Caller, File, Gate, until


def flush_new(file: File) -> int:
    """Append and flush; return how many lines were safe when it returned."""
    seq = file.append()
    file.commit.flush(seq)
    assert file.safe > seq
    return seq


def held_first_barrier(callers: int) -> tuple[File, Gate, list[Caller]]:
    """A file in its first sync, with callers queued for the second."""
    file, gate = File(), Gate(only=1)
    file.on_sync = gate
    threads = [Caller(flush_new, file)]
    gate.wait()
    threads += [Caller(flush_new, file) for _ in range(callers)]
    until(lambda: file.queued() == callers + 1)
    return file, gate, threads


def test_one_caller_writes_once_and_syncs_once_in_its_own_thread():
    """A thread that is alone pays no hop to another."""
    file = File()
    seen = []
    file.on_write = lambda batch: seen.append(threading.get_ident())
    file.on_sync = lambda number: seen.append(threading.get_ident())

    flush_new(file)

    assert seen == [threading.get_ident()] * 2
    assert (file.writes, file.syncs) == ([[0]], [1])


def test_callers_that_wait_for_a_sync_share_the_next_one():
    file, gate, threads = held_first_barrier(20)

    gate.opened.set()
    errors = [thread.end() for thread in threads]

    assert errors == [None] * 21
    assert file.syncs == [1, 21]
    assert len(file.writes) == 2
    assert file.lines == list(range(21))


def test_lines_appended_during_a_sync_belong_to_the_next_barrier():
    """The sync in flight began before them: it proves nothing about them."""
    file, gate, threads = held_first_barrier(1)

    assert file.commit.durable == -1
    gate.opened.set()
    for thread in threads:
        thread.end()

    assert file.syncs == [1, 2]
    assert file.commit.durable == 1


def test_a_write_goes_on_while_a_sync_is_in_flight():
    file, gate, threads = held_first_barrier(0)

    seq = file.append()
    file.commit.write(seq)

    assert file.lines == [0, 1]
    assert file.commit.written == 1
    assert file.commit.durable == -1
    gate.opened.set()
    assert threads[0].end() is None
    assert file.commit.durable == 0


def test_a_write_takes_everything_that_is_pending():
    file = File()
    first = file.append()
    last = file.append()

    file.commit.write(first)
    file.commit.write(last)

    assert file.writes == [[0, 1]]
    assert file.syncs == []


def test_what_is_durable_already_is_not_synced_again():
    file = File()
    seq = flush_new(file)

    file.commit.flush(seq)
    file.commit.write(seq)

    assert (len(file.writes), len(file.syncs)) == (1, 1)


def test_lines_that_were_only_written_are_synced_without_another_write():
    file = File()
    seq = file.append()
    file.commit.write(seq)

    file.commit.flush(seq)

    assert (file.writes, file.syncs) == ([[0]], [1])


def test_several_lines_get_their_places_together_and_learn_the_watermark():
    file = File()
    flush_new(file)
    seen = []

    def three(first: int, durable: int) -> list[bytes]:
        seen.append((first, durable))
        return [b"%d" % n for n in range(first, first + 3)]

    last = file.commit.append(3, three)
    file.commit.flush(last)

    assert (last, file.commit.next_seq) == (3, 4)
    assert seen == [(1, 0)]
    assert file.lines == [0, 1, 2, 3]


def test_a_seq_that_was_never_appended_is_refused_rather_than_awaited():
    file = File()

    with pytest.raises(ValueError, match="never appended"):
        file.commit.flush(0)
    with pytest.raises(ValueError, match="never appended"):
        file.commit.write(0)


def test_nothing_is_written_under_the_exclusive_lock():
    """A rotation swaps the file under it."""
    file = File()
    seq = file.append()

    with file.commit.exclusive():
        writer = Caller(file.commit.write, seq)
        until(writer.is_alive)
        assert file.lines == []
    writer.end()

    assert file.lines == [0]


def test_a_sync_may_take_the_exclusive_lock_to_rotate():
    file = File()
    rotated = []

    def rotate(number: object) -> None:
        with file.commit.exclusive():
            rotated.append(number)

    file.on_sync = rotate
    flush_new(file)

    assert rotated == [1]


# -- failure ------------------------------------------------------------------


def raise_(error: BaseException):
    def fail(_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("step", ["on_write", "on_sync"])
def test_a_failure_goes_to_the_caller_and_to_every_later_call(step):
    """DA-043, DA-024: a second sync after a failed one lies, so none is made."""
    file = File()
    broken = OSError(errno.EIO, "gone")
    setattr(file, step, raise_(broken))
    seq = file.append()

    with pytest.raises(StoreError) as caught:
        file.commit.flush(seq)
    setattr(file, step, lambda _: None)

    assert not isinstance(caught.value, LogPoisonedError)
    assert caught.value.errno == errno.EIO
    assert caught.value.__cause__ is broken
    assert file.commit.failed is broken
    for later in (
        lambda: file.commit.flush(seq),
        lambda: file.commit.write(seq),
        file.append,
    ):
        with pytest.raises(LogPoisonedError) as again:
            later()
        assert again.value.__cause__ is broken
    assert file.commit.durable == -1
    assert (len(file.writes), len(file.syncs)) == (1, int(step == "on_sync"))


def test_a_failed_sync_is_told_to_all_who_wait_each_with_its_own_error():
    """One shared exception object would grow everybody's traceback."""
    file, gate = File(), Gate()
    broken = OSError(errno.EIO, "gone")

    def fail(number: object) -> None:
        gate(number)
        raise broken

    file.on_sync = fail
    threads = [Caller(flush_new, file) for _ in range(8)]
    until(lambda: file.queued() == 8)
    gate.opened.set()
    errors = [thread.end() for thread in threads]

    assert {type(error) for error in errors} == {StoreError}
    assert len({id(error) for error in errors}) == 8
    assert {id(error.__cause__) for error in errors} == {id(broken)}
    assert len(file.syncs) == 1


def test_a_lost_lease_keeps_its_type_for_those_who_wait():
    file = File()
    lost = LeaseLostError("the file was replaced", session="s", file="/log")
    file.on_write = raise_(lost)
    seq = file.append()

    with pytest.raises(LeaseLostError) as caught:
        file.commit.flush(seq)

    assert caught.value is not lost
    assert (caught.value.__cause__, caught.value.file) == (lost, "/log")
    with pytest.raises(LogPoisonedError):
        file.append()


def test_a_write_that_fails_during_a_sync_leaves_nothing_acknowledged():
    """Fail closed: the file may not be the one that the sync was for."""
    file, gate, threads = held_first_barrier(1)
    file.on_write = raise_(OSError(errno.ENOSPC, "full"))

    with pytest.raises(StoreError):
        file.commit.write(file.append())
    gate.opened.set()
    errors = [thread.end() for thread in threads]

    assert [type(error) for error in errors] == [StoreError] * 2
    assert file.commit.durable == -1
    assert file.syncs == [1]


def test_poisoning_from_outside_wakes_those_who_wait():
    file, gate, threads = held_first_barrier(3)

    file.commit.poison(OSError(errno.ESTALE, "moved"))
    errors = [thread.end() for thread in threads[1:]]

    assert [error.errno for error in errors] == [errno.ESTALE] * 3
    gate.opened.set()
    threads[0].end()
    assert file.syncs == [1]


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt()])
def test_an_error_while_lines_are_made_poisons(error):
    """A seq may be taken and its line lost: what follows would leave a gap."""
    file = File()

    def fail(first: int, durable: int) -> list[bytes]:
        raise error

    with pytest.raises(type(error)):
        file.commit.append(1, fail)

    with pytest.raises(LogPoisonedError):
        file.append()


def test_a_wrong_number_of_lines_poisons():
    file = File()

    with pytest.raises(ValueError, match="2 lines were promised"):
        file.append(2)

    with pytest.raises(LogPoisonedError):
        file.append()


def test_the_check_comes_before_every_use():
    file = File(check=lambda: (_ for _ in ()).throw(LeaseLostError("not ours")))

    for use in (
        file.append,
        lambda: file.commit.write(0),
        lambda: file.commit.flush(0),
    ):
        with pytest.raises(LeaseLostError):
            use()
    assert file.commit.next_seq == 0


# -- closing, forking, re-entry -----------------------------------------------


def test_closing_waits_for_the_barriers_in_flight_and_refuses_new_ones():
    file, gate, threads = held_first_barrier(3)
    late = file.append()

    closer = Caller(file.commit.close)
    until(lambda: file.commit._progress.closed)
    with pytest.raises(SessionClosedError):
        file.append()
    with pytest.raises(SessionClosedError):
        file.commit.flush(late)
    with pytest.raises(SessionClosedError):
        file.commit.write(late)
    assert closer.is_alive()
    gate.opened.set()
    errors = [thread.end() for thread in threads]

    assert closer.end() is None
    assert errors == [None] * 4
    file.commit.close()
    assert len(file.syncs) == 2


def test_closing_alone_writes_nothing():
    file = File()
    file.append()

    file.commit.close()

    assert (file.writes, file.syncs) == ([], [])


def in_child(file: File, out) -> None:
    try:
        file.commit.close()
        file.commit.poison(OSError())
        with file.commit.exclusive():
            pass
    except SessionForkedError:
        out.put("refused")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_even_if_a_lock_was_held_at_the_fork():
    file, gate, threads = held_first_barrier(1)
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()

    with file.commit.exclusive():
        child = context.Process(target=in_child, args=(file, out))
        child.start()
    child.join(PATIENCE)

    assert child.exitcode == 0
    assert out.get() == "refused"
    gate.opened.set()
    assert [thread.end() for thread in threads] == [None, None]


@pytest.mark.parametrize("step", ["on_write", "on_sync"])
def test_a_finalizer_inside_the_log_is_refused_not_stuck(step):
    """A collected stream records its end from whatever thread collects it."""
    file = File()
    refused = []

    def finalize(_: object) -> None:
        setattr(file, step, lambda _: None)
        seq = file.append()
        for use in (file.commit.flush, *([file.commit.write][: step == "on_write"])):
            try:
                use(seq)
            except StoreError as error:
                refused.append(str(error))

    setattr(file, step, finalize)
    file.commit.flush(file.append())
    file.commit.flush(file.commit.next_seq - 1)

    assert len(refused) == (2 if step == "on_write" else 1)
    assert "this thread is writing the log already" in refused[0]
    assert file.lines == [0, 1]


def test_an_append_inside_an_append_is_refused_and_harms_nothing():
    file = File()
    refused = []

    def nested(first: int, durable: int) -> list[bytes]:
        with pytest.raises(StoreError) as caught:
            file.append()
        refused.append(caught.value)
        return [b"%d" % first]

    file.commit.flush(file.commit.append(1, nested))

    assert len(refused) == 1
    assert file.lines == [0]


def test_a_child_that_inherited_the_log_touches_nothing():
    """As seen from inside: no lock is taken, nothing is written."""
    file = File()
    seq = file.append()
    file.commit._progress._pid = -1

    for use in (
        file.append,
        lambda: file.commit.write(seq),
        lambda: file.commit.flush(seq),
        file.commit.exclusive().__enter__,
    ):
        with pytest.raises(SessionForkedError):
            use()
    file.commit.poison(OSError())
    file.commit.close()

    assert (file.writes, file.syncs) == ([], [])
    assert not file.commit._progress.closed


def test_the_exclusive_lock_is_not_entered_twice():
    file = File()

    with (
        file.commit.exclusive(),
        pytest.raises(StoreError),
        file.commit.exclusive(),
    ):
        raise AssertionError("entered twice")


def test_a_writer_that_waited_behind_a_failure_gets_its_own_error():
    file = File()
    seq = file.append()
    broken = OSError(errno.ESTALE, "moved")

    with file.commit.exclusive():
        writer = Caller(file.commit.write, seq)
        ident = writer.ident
        until(lambda: "_admit" not in stack_of(ident) and "write" in stack_of(ident))
        file.commit.poison(broken)
    error = writer.end()

    assert isinstance(error, StoreError)
    assert error.__cause__ is broken
    assert file.writes == []


def stack_of(ident: int | None) -> list[str]:
    frame = sys._current_frames().get(ident or 0)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.parametrize("step", ["on_write", "on_sync", "make"])
def test_the_first_failure_is_the_one_that_is_told(step):
    file = File()
    first = OSError(errno.ESTALE, "moved")

    def fail(*_: object) -> list[bytes]:
        file.commit.poison(first)
        raise OSError(errno.EIO, "second")

    if step == "make":
        with pytest.raises(OSError, match="second"):
            file.commit.append(1, fail)
    else:
        setattr(file, step, fail)
        with pytest.raises(StoreError):
            file.commit.flush(file.append())

    assert file.commit.failed is first


def test_a_job_whose_turn_has_passed_does_nothing():
    file = File()
    file.append()

    file.commit._run_lead(Ticket(0))

    assert (file.writes, file.syncs) == ([], [])


def test_a_failure_that_comes_between_the_look_and_the_lock_is_seen():
    file = File(check=lambda: file.commit.poison(OSError(errno.EIO, "just now")))

    with pytest.raises(LogPoisonedError):
        file.append()

    assert file.commit.next_seq == 0
