"""The process's few I/O threads: bounded, in order, and in nobody's way."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

from durable_agent import _sync_pool
from durable_agent._sync_pool import Pool, offload
from tests.barrier_file import PATIENCE, File, until


def test_threads_start_on_demand_up_to_the_limit_and_are_named_daemons():
    pool = Pool("pool-a", 2)
    gate = threading.Event()
    seen: list[threading.Thread] = []

    def job() -> None:
        seen.append(threading.current_thread())
        gate.wait(PATIENCE)

    assert pool._threads == 0
    assert pool.ready()
    for _ in range(5):
        pool.submit(job)
    until(lambda: len(seen) == 2)
    assert pool._threads == 2
    gate.set()
    until(lambda: len(seen) == 5)

    assert {thread.name for thread in seen} == {"pool-a-1", "pool-a-2"}
    assert all(thread.daemon for thread in seen)


def test_one_caller_at_a_time_needs_one_thread():
    """Idle threads are used before another is started."""
    pool = Pool("pool-b", 8)

    for _ in range(50):
        assert pool.ready()
        done = threading.Event()
        pool.submit(done.set)
        assert done.wait(PATIENCE)
        until(lambda: pool._unfinished == 0)

    assert pool._threads == 1


def test_jobs_run_in_order_of_arrival():
    pool = Pool("pool-c", 1)
    order: list[int] = []
    assert pool.ready()

    for n in range(100):
        pool.submit(lambda n=n: order.append(n))
    until(lambda: len(order) == 100)

    assert order == list(range(100))


def test_a_job_that_raises_is_reported_and_does_not_end_the_thread(monkeypatch):
    pool = Pool("pool-d", 1)
    reported: list[type] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda args: reported.append(args.exc_type)
    )
    assert pool.ready()

    def fail() -> None:
        raise SystemExit

    done = threading.Event()
    pool.submit(fail)
    pool.submit(done.set)

    assert done.wait(PATIENCE)
    assert reported == [SystemExit]


def test_no_thread_at_all_is_told_rather_than_awaited(monkeypatch):
    pool = Pool("pool-e", 1)

    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert not pool.ready()


def barrier_in_child(out) -> None:
    file = File()

    async def main() -> None:
        await file.commit.aflush(file.append())

    asyncio.run(main())
    out.put((file.syncs, os.getpid()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own():
    """Threads do not survive a fork, and the queue's lock may have been held."""
    warm = File()

    async def main() -> None:
        await warm.commit.aflush(warm.append())

    asyncio.run(main())
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    child = context.Process(target=barrier_in_child, args=(out,))
    with _sync_pool.SYNCS._lock:
        child.start()
    child.join(PATIENCE)

    assert child.exitcode == 0
    syncs, pid = out.get()
    assert (syncs, pid) == ([1], child.pid)


SCRIPT = """
import asyncio, os, threading
from durable_agent._barrier import GroupCommit
from durable_agent._sync_pool import offload

begun = threading.Event()

def stall():
    begun.set()
    threading.Event().wait()

commit = GroupCommit(len, stall, first_seq=0, durable=-1, name="log")

async def main():
    commit.append(1, lambda first, durable: [b"x"])
    flushing = asyncio.ensure_future(commit.aflush(0))
    stalled = asyncio.ensure_future(offload(threading.Event().wait))
    while not begun.is_set():
        await asyncio.sleep(0.001)

asyncio.run(main())
print("out")
"""


def test_the_interpreter_exits_while_a_sync_is_stalled():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


# -- offload ------------------------------------------------------------------


def test_offloaded_calls_return_raise_and_see_the_context():
    var = contextvars.ContextVar("var", default="unset")

    async def main():
        var.set("set")
        with pytest.raises(LookupError, match="no"):
            await offload(fail)
        return await offload(lambda a: (a, var.get()), 1), await offload(
            lambda: threading.current_thread().name
        )

    def fail() -> None:
        raise LookupError("no")

    value, name = asyncio.run(main())

    assert value == (1, "set")
    assert name.startswith("durable-agent-io-")


def test_blocked_offloads_do_not_keep_a_barrier_waiting():
    """Someone who waits for a lease must not stop the disk."""
    file = File()
    gate = threading.Event()

    async def main() -> None:
        blocked = [
            asyncio.ensure_future(offload(gate.wait, PATIENCE)) for _ in range(40)
        ]
        await asyncio.sleep(0)
        await file.commit.aflush(file.append())
        assert not any(task.done() for task in blocked)
        gate.set()
        assert await asyncio.gather(*blocked) == [True] * 40

    asyncio.run(main())

    assert file.syncs == [1]


def test_a_value_that_its_caller_did_not_wait_for_is_given_back():
    """A cancelled opening would hold its lease until the process ends."""
    given: list[str] = []
    gate, begun = threading.Event(), threading.Event()

    def open_() -> str:
        begun.set()
        gate.wait(PATIENCE)
        return "log"

    async def main() -> None:
        task = asyncio.ensure_future(offload(open_, unclaimed=given.append))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    assert given == []
    gate.set()
    until(lambda: given == ["log"])


def test_a_value_that_came_just_before_the_cancellation_is_given_back():
    given: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(offload(lambda: "log", unclaimed=given.append))
        await asyncio.sleep(0)
        told = asyncio.Event()
        plain = loop.call_soon_threadsafe
        until(lambda: _sync_pool._OFFLOADS._unfinished == 0)
        plain(told.set)
        task.cancel()
        await told.wait()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    until(lambda: given == ["log"])


def test_an_error_that_nobody_waits_for_is_dropped():
    given: list[object] = []
    gate, begun = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        gate.wait(PATIENCE)
        raise LookupError

    async def main() -> None:
        task = asyncio.ensure_future(offload(fail, unclaimed=given.append))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    gate.set()
    until(lambda: _sync_pool._OFFLOADS._unfinished == 0)

    assert given == []


def test_where_no_thread_can_be_started_the_call_runs_here(monkeypatch):
    monkeypatch.setattr(_sync_pool._OFFLOADS, "ready", lambda: False)

    async def main():
        return await offload(threading.get_ident)

    assert asyncio.run(main()) == threading.get_ident()
