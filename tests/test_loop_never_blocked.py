"""Nothing of an async agent asks the operating system from the loop's own thread."""

import asyncio
import threading

import pytest

from durable_agent import (
    FinishedSessionWarning,
    SessionBusyError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    session,
    step_boundary,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import CountingDisk, cut


@checkpointed_tool
async def tool(n):
    return await nested(n)


@checkpointed_tool
async def nested(n):
    await asyncio.sleep(0)
    return "x" * n


@checkpointed_tool(durable_outcome=True)
async def sure(n):
    return n


@checkpointed_tool
async def fails(n):
    raise ValueError(n)


@checkpointed_tool
async def stuck(n):
    await asyncio.Event().wait()


@checkpointed_llm
async def ask(messages):
    return {"role": "assistant", "content": "answer"}


@checkpointed_llm
async def stream(messages):
    for n in range(100):
        yield n


def turn(text):
    return [{"role": "user", "content": text}]


async def agent(s):
    await s.record("clock", asyncio.sleep, 0)
    async with step_boundary("one"):
        await ask(turn("a"))
        await asyncio.gather(*(tool(n) for n in range(5)), sure(1), tool(5000))
    async with step_boundary("two"):
        async for _ in stream(turn("b")):
            pass
        async for n in stream(turn("c")):
            if n == 3:
                break
        with pytest.raises(ValueError, match="1"):
            await fails(1)
        try:
            async with asyncio.timeout(0.05):
                await stuck(1)
        except TimeoutError:
            pass
    await s.aflush()


@pytest.fixture
def disk():
    return CountingDisk()


def store_on(disk, path):
    # Small segments and payloads aside: rotation and blobs do more.
    return JsonlStore(path, fs=disk, roll_bytes=2000, blob_bytes=1000)


async def in_loop(disk, agent, *arguments):
    """Run the agent; return the operations that the loop's thread did meanwhile."""
    disk.threads.clear()
    await agent(*arguments)
    here = threading.get_ident()
    assert disk.threads
    return {name for name, thread in disk.threads if thread == here}


def test_open_call_and_close_do_their_disk_work_on_other_threads(tmp_path, disk):
    async def work():
        async with session("s", store=store_on(disk, tmp_path)) as s:
            await agent(s)

    assert asyncio.run(in_loop(disk, work)) == set()
    with pytest.warns(FinishedSessionWarning):
        assert asyncio.run(in_loop(disk, work)) == set()


def test_a_resumed_run_does_too(tmp_path, disk):
    """What replays is fetched; what is in doubt is settled, then it goes on live."""

    async def work():
        async with session("s", store=store, on_unknown="return") as s:
            await agent(s)

    store = JsonlStore(tmp_path, fs=disk)
    asyncio.run(work())
    cut(tmp_path / "s", 9)

    assert asyncio.run(in_loop(disk, work)) == set()


def test_a_conversation_does_too(tmp_path, disk):
    async def work():
        async with conversation("s", store=store) as s:
            await ask([*history, *turn("next")])
            await s.aclose()

    store = JsonlStore(tmp_path, fs=disk)
    history = []
    asyncio.run(work())
    with conversation("s", store=store) as s:
        history = s.messages()

    assert asyncio.run(in_loop(disk, work)) == set()


def test_waiting_for_another_owner_does_too(tmp_path, disk):
    """The lease is asked for again and again, and never from the loop."""
    holder = JsonlStore(tmp_path).open("s")

    async def work():
        with pytest.raises(SessionBusyError):
            async with session("s", store=store_on(disk, tmp_path), lock_timeout=0.12):
                pass

    assert asyncio.run(in_loop(disk, work)) == set()
    holder.close()


def test_the_loop_turns_while_a_sync_takes_its_time(tmp_path):
    """The body waits for its checkpoint; everything else goes on."""
    began, go_on = threading.Event(), threading.Event()

    class SlowDisk(CountingDisk):
        held = False

        def sync(self, fd, *, metadata=False):
            if self.held:
                began.set()
                go_on.wait(10)
            super().sync(fd, metadata=metadata)

    disk = SlowDisk()
    ran = []

    @checkpointed_tool
    async def body(n):
        ran.append(n)

    async def main():
        async with session("s", store=JsonlStore(tmp_path, fs=disk)) as s:
            await tool(1)
            disk.held = True
            pending = asyncio.create_task(body(1))
            while not began.is_set():
                await asyncio.sleep(0)
            turns = 0
            for _ in range(100):
                await asyncio.sleep(0)
                turns += 1
            assert (turns, ran) == (100, [])
            disk.held = False
            go_on.set()
            await pending
            assert ran == [1]
            return s.seq

    assert asyncio.run(main()) > 0
