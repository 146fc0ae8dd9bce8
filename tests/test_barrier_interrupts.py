"""Interrupts at any point of a barrier: nothing false is acknowledged, nobody hangs."""

from __future__ import annotations

import errno
import itertools
import linecache
import signal
import sys
import threading

import pytest

from durable_agent.errors import LogPoisonedError, StoreError
from tests.barrier_file import Caller, File, Gate, until


def flush_new(file: File) -> None:
    seq = file.append()
    file.commit.flush(seq)
    assert file.safe > seq


def usable(file: File) -> bool:
    """Whether a new caller gets its line durable, each line being there once."""
    assert Caller(flush_new, file).end() is None
    return file.lines == list(range(file.commit.next_seq))


def test_an_interrupted_waiter_leaves_the_others_unharmed():
    """Ctrl-C reaches the main thread while it waits for another's sync."""
    file, gate = File(), Gate(only=1)
    file.on_sync = gate
    others = [Caller(flush_new, file)]
    gate.wait()
    others.append(Caller(flush_new, file))
    until(lambda: file.queued() == 2)
    main = threading.get_ident()

    def press() -> None:
        until(lambda: file.queued() == 3)
        signal.pthread_kill(main, signal.SIGINT)

    presser = Caller(press)
    with pytest.raises(KeyboardInterrupt):
        flush_new(file)
    presser.end()

    assert file.queued() == 2
    gate.opened.set()
    assert [other.end() for other in others] == [None, None]
    assert file.commit.failed is None
    assert usable(file)


def test_a_waiter_interrupted_as_it_is_given_leadership_hands_it_on():
    file, gate = File(), Gate(only=1)
    file.on_sync = gate
    first = Caller(flush_new, file)
    gate.wait()
    wait = file.commit._queue.wait
    given = []

    def interrupted(ticket) -> bool:
        if wait(ticket) and not given:
            given.append(ticket)
            raise KeyboardInterrupt
        return file.commit._queue.leads(ticket)

    file.commit._queue.wait = interrupted
    others = [Caller(flush_new, file) for _ in range(5)]
    until(lambda: file.queued() == 6)
    gate.opened.set()
    errors = [other.end() for other in others]

    assert first.end() is None
    assert sorted(str(type(e).__name__) for e in errors) == (
        ["KeyboardInterrupt"] + ["NoneType"] * 4
    )
    assert file.syncs == [1, 6]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_leader_interrupted_in_its_sync_acknowledges_nothing(interrupt):
    """Its result is unknown; the next leader's sync covers the same lines."""
    file, gate = File(), Gate(only=1)

    def break_off(number: object) -> None:
        gate(number)
        if number == 1:
            raise interrupt

    file.on_sync = break_off
    leader = Caller(flush_new, file)
    gate.wait()
    others = [Caller(flush_new, file) for _ in range(3)]
    until(lambda: file.queued() == 4)
    gate.opened.set()

    assert isinstance(leader.end(), interrupt)
    assert [other.end() for other in others] == [None] * 3
    assert file.syncs == [1, 4]
    assert file.commit.failed is None
    assert usable(file)


def test_a_failure_that_an_interrupt_hid_still_counts():
    """The kernel reports a failed sync once: the next one would succeed and lie."""
    file = File()
    broken = OSError(errno.EIO, "gone")

    def hide(number: object) -> None:
        try:
            raise broken
        except OSError:
            try:
                raise LookupError
            except LookupError:
                raise KeyboardInterrupt  # noqa: B904 - as a signal handler does

    file.on_sync = hide
    seq = file.append()
    with pytest.raises(KeyboardInterrupt):
        file.commit.flush(seq)

    assert file.commit.failed is broken
    with pytest.raises(LogPoisonedError):
        file.commit.flush(seq)
    assert file.syncs == [1]


def test_an_interrupt_is_not_blamed_on_an_error_the_caller_was_handling():
    file = File()

    def break_off(number: object) -> None:
        raise KeyboardInterrupt

    file.on_sync = break_off
    seq = file.append()
    try:
        raise OSError(errno.ENOENT, "somebody else's")
    except OSError:
        with pytest.raises(KeyboardInterrupt):
            file.commit.flush(seq)

    assert file.commit.failed is None


@pytest.mark.parametrize("arrived", [0, 2])
def test_an_interrupted_write_that_can_be_judged_is_settled(arrived):
    """All or nothing arrived: each line is in the file once in the end."""
    file = File()
    file.commit._settle_write = file.settle

    def break_off(seqs: list[int]) -> None:
        file.on_write = lambda seqs: None
        file.lines += seqs[:arrived]
        raise KeyboardInterrupt

    file.on_write = break_off
    file.append()
    seq = file.append()
    with pytest.raises(KeyboardInterrupt):
        file.commit.write(seq)

    file.commit.flush(seq)
    assert file.lines == [0, 1]
    assert usable(file)


def test_the_exclusive_lock_settles_an_interrupted_write_first():
    """Who rotates must know where the file ends."""
    file = File()
    file.commit._settle_write = file.settle

    def break_off(seqs: list[int]) -> None:
        file.lines += seqs
        raise KeyboardInterrupt

    file.on_write = break_off
    with pytest.raises(KeyboardInterrupt):
        file.commit.write(file.append())

    with file.commit.exclusive():
        assert file.commit.written == 0


def cannot_tell(batch: list[bytes]) -> None:
    return None


def fails(batch: list[bytes]) -> bool:
    raise OSError(errno.EIO, "no size")


@pytest.mark.parametrize("settle", [None, cannot_tell, fails])
def test_an_interrupted_write_that_cannot_be_judged_poisons(settle):
    file = File(settle_write=settle)

    def break_off(seqs: list[int]) -> None:
        file.lines.append(seqs[0])
        raise KeyboardInterrupt

    file.on_write = break_off
    file.append()
    seq = file.append()
    with pytest.raises(KeyboardInterrupt):
        file.commit.write(seq)

    with pytest.raises(StoreError):
        file.commit.flush(seq)
    with pytest.raises(LogPoisonedError):
        file.append()
    assert (len(file.writes), file.syncs) == (1, [])


def test_a_second_interrupt_does_not_lose_the_leadership():
    """People press Ctrl-C twice."""
    file, gate = File(), Gate(only=1)
    queue = file.commit._queue
    pass_on = queue.pass_on
    presses = []

    def press_again(ticket=None) -> None:
        if ticket is not None and len(presses) < 2:
            presses.append(ticket)
            raise KeyboardInterrupt
        pass_on(ticket)

    file.on_sync = gate
    queue.pass_on = press_again
    leader = Caller(flush_new, file)
    gate.wait()
    other = Caller(flush_new, file)
    until(lambda: file.queued() == 2)
    gate.opened.set()

    assert isinstance(leader.end(), KeyboardInterrupt)
    assert other.end() is None
    assert len(presses) == 2
    assert usable(file)


def test_what_else_goes_wrong_while_leaving_is_not_tried_for_ever():
    file = File()

    def fail(ticket=None) -> None:
        raise MemoryError

    file.commit._queue.pass_on = fail

    with pytest.raises(MemoryError):
        file.commit._queue.surely_pass_on()


class Tracer:
    """Raises KeyboardInterrupt at the n-th line run in the barrier's modules.

    With ``twice``, also at the second line of the ``pass_on`` that follows. Lines with
    a ``with`` are left out: the tracer would raise between the end of the block and the
    release of the lock, where the interpreter looks for no signals.
    """

    def __init__(self, n: int, twice: bool) -> None:
        self.left = n
        self.again = 2 if twice else 0
        self.hit = False

    def __call__(self, frame, event, arg):
        if "_barrier" not in frame.f_code.co_filename or "tests" in (
            frame.f_code.co_filename
        ):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if line.lstrip().startswith("with "):
            return self
        if event == "line" and not self.hit:
            self.left -= 1
            if self.left == 0:
                self.hit = True
                raise KeyboardInterrupt
        elif event == "line" and self.again and frame.f_code.co_name == "pass_on":
            self.again -= 1
            if self.again == 0:
                raise KeyboardInterrupt
        return self


def traced(file: File, tracer: Tracer) -> None:
    seq = file.append()
    sys.settrace(tracer)
    try:
        file.commit.flush(seq)
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("role", ["leader", "waiter"])
def test_an_interrupt_at_any_line_leaves_the_others_and_the_log_unharmed(role, twice):
    """Exhaustive: one run for each line that a barrier passes."""
    for n in itertools.count(1):
        tracer = Tracer(n, twice)
        interrupt_at(role, tracer)
        if not tracer.hit:
            assert n > 20
            return


def interrupt_at(role: str, tracer: Tracer) -> None:
    file, gate = File(), Gate(only=1)
    file.commit._settle_write = file.settle
    file.on_sync = gate
    others = []
    if role == "waiter":
        others.append(Caller(flush_new, file))
        gate.wait()
    victim = Caller(traced, file, tracer)
    inside = gate.reached.is_set if role == "leader" else lambda: file.queued() == 2
    until(lambda: inside() or not victim.is_alive())
    others += [Caller(flush_new, file) for _ in range(2)]
    gate.opened.set()

    assert [other.end() for other in others] == [None] * len(others)
    assert isinstance(victim.end(), KeyboardInterrupt) == tracer.hit
    assert file.commit.failed is None
    assert usable(file)
    file.commit.close()
