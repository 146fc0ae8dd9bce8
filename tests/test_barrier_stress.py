"""Random schedules: the promise holds for every caller, whoever runs when."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
import sys

import pytest

from durable_agent.errors import LogPoisonedError, StoreError
from tests.barrier_file import Caller, File


@pytest.fixture(autouse=True)
def _switch_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def note_barriers(file: File, seq: int, before: int, waits: list[int]) -> None:
    """Check one caller: a sync that began after its append covered it."""
    assert file.safe > seq
    covering = next(n for n, covers in enumerate(file.syncs) if covers > seq)
    assert file.commit.durable >= seq
    waits.append(covering + 1 - before)


def work(file: File, rounds: int, seed: int, waits: list[int]) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        seq = file.append()
        before = len(file.syncs)
        if rng.random() < 0.3:
            file.commit.write(seq)
            assert file.lines[seq] == seq
        else:
            file.commit.flush(seq)
            note_barriers(file, seq, before, waits)


async def work_async(file: File, rounds: int, seed: int, waits: list[int]) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        seq = file.append()
        before = len(file.syncs)
        choice = rng.random()
        if choice < 0.3:
            await file.commit.awrite(seq)
            assert file.lines[seq] == seq
        elif choice < 0.4:
            task = asyncio.ensure_future(file.commit.aflush(seq))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        else:
            await file.commit.aflush(seq)
            note_barriers(file, seq, before, waits)


def loop_of_tasks(file: File, rounds: int, seed: int, waits: list[int]) -> None:
    async def main() -> None:
        await asyncio.gather(
            *(work_async(file, rounds, seed * 100 + n, waits) for n in range(6))
        )

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_every_caller_is_covered_by_a_sync_that_began_after_its_append(seed):
    """Threads and two loops on one log; the order of lines is the order of seqs."""
    file = File()
    rng = random.Random(seed)
    file.on_sync = lambda number: [None for _ in range(rng.randrange(2000))]
    waits: list[int] = []

    callers = [Caller(work, file, 25, seed * 10 + n, waits) for n in range(6)]
    callers += [Caller(loop_of_tasks, file, 15, seed * 10 + n, waits) for n in (7, 8)]
    errors = [caller.end() for caller in callers]
    file.commit.close()

    assert errors == [None] * 8
    assert file.lines == list(range(6 * 25 + 2 * 6 * 15))
    assert file.overlaps == 0
    # The one in flight, its own, and one that began between append and look.
    assert max(waits) <= 3


@pytest.mark.parametrize("seed", range(4))
def test_after_a_failure_at_a_random_moment_nothing_false_was_acknowledged(seed):
    file = File()
    fatal = random.Random(seed).randrange(2, 12)

    def fail(number: int) -> None:
        if number >= fatal:
            raise OSError(errno.EIO, "gone")

    file.on_sync = fail
    waits: list[int] = []
    callers = [Caller(work, file, 200, seed * 10 + n, waits) for n in range(4)]
    callers += [Caller(loop_of_tasks, file, 100, seed * 10 + n, waits) for n in (5, 6)]
    errors = [caller.end() for caller in callers]
    file.commit.close()

    assert all(isinstance(error, StoreError) for error in errors), errors
    assert len(file.syncs) == fatal
    assert file.commit.durable < file.safe
    with pytest.raises(LogPoisonedError):
        file.append()


def test_appends_of_many_threads_keep_their_order_and_lose_nothing():
    file = File()
    taken: list[list[int]] = [[] for _ in range(8)]

    def many(own: list[int]) -> None:
        for _ in range(200):
            own.append(file.append())
            if len(own) % 50 == 0:
                file.commit.write(own[-1])

    callers = [Caller(many, own) for own in taken]
    assert [caller.end() for caller in callers] == [None] * 8
    file.commit.flush(file.commit.next_seq - 1)

    assert file.lines == list(range(1600))
    assert sorted(itertools.chain(*taken)) == file.lines
    assert all(own == sorted(own) for own in taken)
