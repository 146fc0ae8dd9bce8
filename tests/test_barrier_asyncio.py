"""Barriers of tasks: shared, off the loop, and safe to cancel."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading

import anyio
import pytest

from durable_agent._sync_pool import SYNCS
from durable_agent.errors import LogPoisonedError, SessionClosedError, StoreError
from tests.barrier_file import Caller, File, Gate, until


def uvloop_run(main):
    return pytest.importorskip("uvloop").run(main)


def anyio_run(main):
    async def call():
        return await main

    return anyio.run(call)


@pytest.fixture(params=[asyncio.run, uvloop_run, anyio_run])
def run(request):
    return request.param


async def flush_new(file: File) -> None:
    seq = file.append()
    await file.commit.aflush(seq)
    assert file.safe > seq


async def started(file: File, count: int) -> list[asyncio.Task]:
    """Tasks that wait in the queue, after those that wait there already."""
    target = file.queued() + count
    tasks = [asyncio.ensure_future(flush_new(file)) for _ in range(count)]
    while file.queued() < target:
        await asyncio.sleep(0)
    return tasks


async def reached(gate: Gate) -> None:
    """Wait for the gate without standing in the loop's way."""
    while not gate.reached.is_set():
        await asyncio.sleep(0.001)


def test_tasks_share_one_write_and_one_sync_off_the_loop(run):
    file = File()
    threads = set()
    file.on_sync = lambda number: threads.add(threading.current_thread().name)

    async def main():
        gate = Gate(only=1)
        on_sync = file.on_sync
        file.on_sync = lambda number: (gate(number), on_sync(number))
        tasks = await started(file, 1)
        await reached(gate)
        tasks += await started(file, 50)
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(main())

    assert file.syncs == [1, 51]
    assert len(file.writes) == 2
    assert all(name.startswith("durable-agent-sync-") for name in threads)


def test_the_loop_runs_on_while_the_disk_stalls(run):
    """The gate is opened by the loop itself: a blocked loop would never open it."""
    file, gate = File(), Gate()
    file.on_sync = gate

    async def main():
        task = asyncio.ensure_future(flush_new(file))
        await reached(gate)
        gate.opened.set()
        await task

    run(main())

    assert file.syncs == [1]


def test_an_eager_write_does_not_wait_for_the_sync_in_flight(run):
    file, gate = File(), Gate()
    file.on_sync = gate

    async def main():
        task = asyncio.ensure_future(flush_new(file))
        await reached(gate)
        await file.commit.awrite(file.append())
        assert file.lines == [0, 1]
        assert file.commit.durable == -1
        gate.opened.set()
        await task

    run(main())

    assert file.writes == [[0], [1]]
    assert file.commit.durable == 0


def test_many_eager_writes_share_a_write():
    file, gate = File(), Gate()
    file.on_write = gate

    async def main():
        first = asyncio.ensure_future(file.commit.awrite(file.append()))
        await reached(gate)
        rest = [
            asyncio.ensure_future(file.commit.awrite(file.append())) for _ in range(9)
        ]
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())

    assert file.writes == [[0], list(range(1, 10))]
    assert file.syncs == []


def test_what_is_there_already_needs_no_thread():
    file = File()
    seq = file.append()
    file.commit.flush(seq)

    async def main():
        await file.commit.awrite(seq)
        await file.commit.aflush(seq)

    asyncio.run(main())

    assert (file.writes, file.syncs) == ([[0]], [1])


def test_cancelling_one_task_neither_stops_the_sync_nor_the_others(run):
    file, gate = File(), Gate()
    file.on_sync = gate

    async def main():
        tasks = await started(file, 1)
        await reached(gate)
        tasks += await started(file, 3)
        tasks[0].cancel()
        tasks[2].cancel()
        done = await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)
        assert [type(d) for d in done] == [asyncio.CancelledError] * 2
        gate.opened.set()
        await asyncio.gather(tasks[1], tasks[3])

    run(main())

    assert file.syncs == [1, 4]
    assert file.commit.failed is None


def test_a_cancelled_eager_write_loses_no_event():
    file, gate = File(), Gate()
    file.on_write = gate

    async def main():
        task = asyncio.ensure_future(file.commit.awrite(file.append()))
        await reached(gate)
        task.cancel()
        await asyncio.wait([task])
        gate.opened.set()
        await file.commit.awrite(file.append())

    asyncio.run(main())

    assert file.lines == [0, 1]


def test_an_anyio_timeout_leaves_the_barrier_to_end_by_itself():
    file, gate = File(), Gate()
    file.on_sync = gate

    async def main():
        with anyio.move_on_after(0) as scope:
            await file.commit.aflush(file.append())
        assert scope.cancelled_caught
        gate.opened.set()
        await file.commit.aflush(file.append())

    anyio.run(main)

    assert file.commit.durable == 1


@pytest.mark.parametrize("step", ["on_write", "on_sync"])
def test_a_failure_reaches_every_task_with_its_own_error(step, run):
    file, gate = File(), Gate()
    broken = OSError(errno.EIO, "gone")

    def fail(value: object) -> None:
        gate(value)
        raise broken

    setattr(file, step, fail)

    async def main():
        tasks = await started(file, 5)
        await reached(gate)
        gate.opened.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        for use in (file.commit.awrite, file.commit.aflush):
            with pytest.raises(LogPoisonedError):
                await use(0)
        return errors

    errors = run(main())

    assert {type(error) for error in errors} == {StoreError}
    assert len({id(error) for error in errors}) == 5
    assert {error.__cause__ for error in errors} == {broken}
    assert len(file.syncs) == int(step == "on_sync")


@pytest.mark.parametrize("step", ["on_write", "on_sync"])
@pytest.mark.parametrize("fault", [ValueError("odd"), SystemExit(3)])
def test_whatever_goes_wrong_on_a_sync_thread_poisons_and_the_thread_lives(step, fault):
    """There is no caller for it to go up to, and a loop of retries helps nobody."""
    file = File()

    def fail(_: object) -> None:
        raise fault

    setattr(file, step, fail)

    async def main():
        with pytest.raises(StoreError):
            if step == "on_write":
                await file.commit.awrite(file.append())
            else:
                await file.commit.aflush(file.append())
        other = File()
        await flush_new(other)
        return other.syncs

    assert asyncio.run(main()) == [1]
    assert file.commit.failed is fault


def test_a_loop_that_was_closed_before_its_barrier_is_ignored():
    file, gate = File(), Gate()
    file.on_sync = gate
    loop = asyncio.new_event_loop()
    seq = file.append()
    waiting = file.commit.aflush(seq)
    task = loop.create_task(waiting)
    # It joins a barrier after one pass of the loop.
    loop.call_soon(loop.call_soon, loop.stop)
    loop.run_forever()
    gate.wait()
    other = Caller(file.commit.flush, file.append())
    until(lambda: file.queued() == 2)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()

    gate.opened.set()

    assert other.end() is None
    assert file.commit.durable == 1
    gc.collect()


def test_two_loops_and_a_thread_share_the_barriers_of_one_log():
    file, gate = File(), Gate(only=1)
    file.on_sync = gate
    first = Caller(file.commit.flush, file.append())
    gate.wait()

    def loop() -> None:
        async def main():
            await asyncio.gather(*(flush_new(file) for _ in range(10)))

        asyncio.run(main())

    callers = [Caller(loop), Caller(loop)]
    until(lambda: file.queued() == 21)
    gate.opened.set()

    assert [caller.end() for caller in [first, *callers]] == [None] * 3
    assert file.syncs == [1, 21]


def test_a_thread_hands_leadership_to_tasks_and_tasks_to_a_thread():
    file, gate = File(), Gate()
    names = []
    release = threading.Semaphore(0)

    def hold(number: int) -> None:
        names.append(threading.current_thread().name)
        gate.reached.set()
        release.acquire()

    file.on_sync = hold

    async def main():
        thread = Caller(file.commit.flush, file.append())
        await reached(gate)
        tasks = await started(file, 1)
        release.release()
        while len(names) < 2:
            await asyncio.sleep(0.001)
        second = Caller(file.commit.flush, file.append())
        while file.queued() < 2:
            await asyncio.sleep(0.001)
        release.release(2)
        await asyncio.gather(*tasks)
        while second.is_alive():
            await asyncio.sleep(0.001)
        return thread, second

    thread, second = asyncio.run(main())

    assert (thread.end(), second.end()) == (None, None)
    assert names[0] == thread.name
    assert names[1].startswith("durable-agent-sync-")
    assert names[2] == second.name
    assert file.overlaps == 0


def test_closing_waits_for_what_tasks_began():
    """A blocking close inside a loop must not need that loop to go on."""
    file = File()

    async def main():
        flushing = asyncio.ensure_future(flush_new(file))
        writing = asyncio.ensure_future(file.commit.awrite(file.append()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        file.commit.close()
        seen = (list(file.lines), list(file.syncs))
        await asyncio.gather(flushing, writing)
        with pytest.raises(SessionClosedError):
            file.append()
        return seen

    lines, syncs = asyncio.run(main())

    assert lines == [0, 1]
    assert len(syncs) == 1


def test_a_closed_log_refuses_tasks_too():
    file = File()
    seq = file.append()
    file.commit.close()

    async def main():
        for use in (file.commit.awrite, file.commit.aflush):
            with pytest.raises(SessionClosedError):
                await use(seq)

    asyncio.run(main())

    assert (file.writes, file.syncs) == ([], [])


def test_logs_are_served_in_turn():
    """A busy log cannot keep a thousand others from the few threads."""
    logs = [File() for _ in range(200)]
    order: list[int] = []
    lock = threading.Lock()

    def note(number: int):
        def on_sync(_: object) -> None:
            with lock:
                order.append(number)

        return on_sync

    for number, file in enumerate(logs):
        file.on_sync = note(number)

    async def busy(file: File) -> None:
        for _ in range(5):
            await flush_new(file)

    async def main():
        await asyncio.gather(*(busy(file) for file in logs))

    asyncio.run(main())

    assert [len(file.syncs) for file in logs] == [5] * 200
    # Each log's first barrier comes before any log's third.
    third = min(
        [n for n, log in enumerate(order) if log == number][2] for number in range(200)
    )
    assert set(order[:third]) == set(range(200))


def test_where_no_thread_can_be_started_the_caller_does_the_work(monkeypatch):
    """At interpreter shutdown a barrier is better late on the loop than never."""
    file = File()
    monkeypatch.setattr(SYNCS, "ready", lambda: False)

    async def main():
        await file.commit.awrite(file.append())
        await file.commit.aflush(file.append())

    asyncio.run(main())

    assert file.lines == [0, 1]
    assert file.syncs == [2]
