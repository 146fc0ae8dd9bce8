"""Threads that have not called anything yet are waited for as well."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from durable_agent import ReplayDivergedError, checkpointed_tool, session
from tests.disks import cut

#: Seconds within which threads come, however slow the machine is.
LONG = 60


def workers(root, run):
    """Run two workers, the first alone at first; cut; run them the other way round."""
    sent = []

    @checkpointed_tool
    def send(what):
        sent.append(what)
        return f"sent {what}"

    def together(first):
        """Make ``first`` call before the other worker does."""
        called = threading.Event()

        def work(name):
            if name != first:
                called.wait(LONG)
            got = send(f"{name}1")
            called.set()
            return [got, send(f"{name}2")]

        return run(work)

    together("a")
    # session/start, run/start, a1 and its result
    cut(root / "s", 4)
    sent.clear()

    # In this run the other worker makes its new call first. It has to wait for a1.
    timer = threading.Timer(0.3, lambda: None)
    timer.start()

    def late(name):
        if name == "a":
            timer.join()
        return [send(f"{name}1"), send(f"{name}2")]

    assert run(late) == [["sent a1", "sent a2"], ["sent b1", "sent b2"]]
    assert sorted(sent) == ["a2", "b1", "b2"]


def test_a_bound_worker_that_is_late_is_no_divergence(root):
    def run(work):
        with session("s", root=root, replay_wait=LONG) as s:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(s.bind(work), "ab"))

    workers(root, run)


def test_a_worker_of_an_event_loop_that_is_late_is_no_divergence(root):
    def run(work):
        async def main():
            async with session("s", root=root, replay_wait=LONG):
                both = (asyncio.to_thread(work, name) for name in "ab")
                return await asyncio.gather(*both)

        return asyncio.run(main())

    workers(root, run)


def test_a_caller_that_started_a_worker_waits_for_it(root):
    def run(work):
        with session("s", root=root, replay_wait=LONG) as s:
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(s.bind(work), "a")
                mine = work("b")
                return [other.result(), mine]

    workers(root, run)


def test_a_plain_call_in_a_loop_that_cannot_wait_says_so(root):
    """It stops rather than send what a changed program might send twice."""
    sent = []

    @checkpointed_tool
    def send(what):
        sent.append(what)

    async def run(order):
        async def work(name):
            for turn in order:
                if turn == name:
                    break
                await asyncio.sleep(0)
            send(name)

        async with session("s", root=root):
            await asyncio.gather(work("a"), work("b"))

    asyncio.run(run("ab"))
    cut(root / "s", 4)
    with pytest.raises(ReplayDivergedError, match="First difference") as caught:
        asyncio.run(run("ba"))

    assert sent == ["a", "b"]
    assert "asyncio.to_thread" in "".join(caught.value.__notes__)
