"""Async streams that nobody closes: the event loop ends, and they with it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from durable_agent import checkpointed_llm, checkpointed_tool, inspect_session, session

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
    pytest.mark.filterwarnings("ignore::durable_agent.ReplayDivergedWarning"),
    # Of a loop that is closed around a generator.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine method:RuntimeWarning"),
]
MADE = []


class Items:
    def __init__(self):
        MADE.append(1)
        self.items = iter("abc")

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        for item in self.items:
            return item
        raise StopAsyncIteration


async def generator():
    MADE.append(1)
    for item in "abc":
        await asyncio.sleep(0)
        yield item


KINDS = {
    "generator": checkpointed_llm(generator, name="ask"),
    "object": checkpointed_llm(lambda: Items(), name="ask"),
    "tool": checkpointed_tool(generator, name="ask", effect="read_only"),
}


def run(main):
    asyncio.run(main())


def in_a_bare_loop(main):
    """As notebooks and tests do it: nothing is shut down."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.fixture(autouse=True)
def _nothing_made():
    MADE.clear()


@pytest.mark.parametrize("how", [run, in_a_bare_loop])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["dropped", "kept", "in a task"])
def test_a_stream_that_nobody_closes_is_left_and_holds_no_session(
    how, kind, where, root
):
    ask, taken = KINDS[kind], []

    async def take(n, stream):
        async for item in stream:
            taken.append(item)
            if len(taken) == n:
                break

    async def main():
        async with session("s", root=root):
            stream = ask()
            if where == "in a task":
                await asyncio.create_task(take(2, stream))
            else:
                await take(2, stream)
            if where == "dropped":
                del stream

    for _ in range(2):
        taken.clear()
        how(main)
        gc.collect()
        assert taken == ["a", "b"]
    with inspect_session("s", root=root) as seen:
        kinds = [e.type for e in seen.events()]
        ends = [e.data["stream"]["end"] for e in seen.events() if "stream" in e.data]

    assert ends == ["closed"]
    assert kinds[-1] == "run/end"
    assert len(MADE) == 1


def test_a_cancellation_that_its_consumer_throws_in_leaves_it_too(root):
    async def main():
        async with session("s", root=root):
            stream = KINDS["generator"]()
            await anext(stream)
            with pytest.raises(asyncio.CancelledError):
                await stream.athrow(asyncio.CancelledError())

    asyncio.run(main())
    with inspect_session("s", root=root) as seen:
        ends = [e.data["stream"]["end"] for e in seen.events() if "stream" in e.data]

    assert ends == ["closed"]


def test_a_cancellation_while_it_is_taken_is_still_in_doubt(root):
    """The model may have been asked for more than was seen of it."""
    held = asyncio.Event()

    @checkpointed_llm(name="ask")
    async def ask():
        yield "a"
        held.set()
        await asyncio.Event().wait()

    async def take():
        async for _ in ask():
            pass

    async def main():
        async with session("s", root=root):
            task = asyncio.create_task(take())
            await held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    with inspect_session("s", root=root) as seen:
        causes = [
            e.meta.get("cause") for e in seen.events() if e.type == "llm/response"
        ]

    assert causes == ["cancel"]


def test_a_call_whose_session_closed_around_it_seals_when_it_is_cancelled(root):
    """It was the last: nobody else would give the log up."""
    started = asyncio.Event()

    @checkpointed_tool(name="wait")
    async def wait():
        started.set()
        await asyncio.Event().wait()

    async def main():
        async with session("s", root=root):
            task = asyncio.create_task(wait())
            await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    with inspect_session("s", root=root) as seen:
        assert [e.type for e in seen.events()][-1] == "run/end"
    with session("s", root=root):
        pass
