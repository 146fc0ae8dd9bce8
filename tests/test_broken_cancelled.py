"""A caller that was cancelled, and asks again, asks for the same call."""

import asyncio
import threading
import time

import pytest

from durable_agent import (
    ToolOutcomeUnknownError,
    checkpointed_tool,
    session,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")


@checkpointed_tool(effect="read_only")
async def look(what):
    return what


async def insist(tool, seconds):
    """Ask again and again, as a caller with a short time-out does."""
    for _ in range(20):
        try:
            return await asyncio.wait_for(tool("joan"), seconds)
        except TimeoutError:
            pass
    return None


def test_a_replay_given_up_by_its_caller_is_still_there_when_asked_again(root):
    """It waits for its turn longer this time; it must not be sent a second time."""
    sent = []

    @checkpointed_tool
    async def send(to):
        sent.append(to)
        return f"sent to {to}"

    async def run(delay):
        async def slow():
            await asyncio.sleep(delay)
            return await look("slow")

        async def fast():
            await asyncio.sleep(0.01)
            return await insist(send, 0.2)

        async with session("s", root=root):
            return await asyncio.gather(slow(), fast())

    first = asyncio.run(run(0))
    again = asyncio.run(run(0.5))

    assert first == again == ["slow", "sent to joan"]
    assert sent == ["joan"]


def test_a_call_in_doubt_whose_caller_gave_up_stays_in_doubt(root):
    sent = []

    @checkpointed_tool
    async def send(to):
        sent.append(to)

    async def first():
        async with session("s", root=root):
            await look("slow")
            await send("joan")

    async def again():
        async def slow():
            await asyncio.sleep(0.5)
            return await look("slow")

        async with session("s", root=root):
            looked = asyncio.create_task(slow())
            with pytest.raises(ToolOutcomeUnknownError):
                await insist(send, 0.2)
            await looked

    asyncio.run(first())
    # session/start, run/start, look, its result, the intent of send
    cut(root / "s", 5)
    asyncio.run(again())

    assert sent == ["joan"]


def test_asked_again_after_its_outcome_was_lost_on_the_way_it_has_the_same_key(root):
    """The time-out came while the outcome was written: the caller does not have it."""
    keys = []

    @checkpointed_tool
    async def send(to, *, idempotency_key=""):
        keys.append(idempotency_key)
        if len(keys) == 1:
            # The loop is held until the time-out is due.
            time.sleep(0.1)
        return f"sent to {to}"

    async def run():
        async with session("s", root=root, replay_wait=0.5):
            return await insist(send, 0.05)

    first = asyncio.run(run())
    again = asyncio.run(run())

    assert first == again == "sent to joan"
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize("passes", [0, 1, 2, 3])
def test_an_opening_that_was_cancelled_leaves_nothing_open(root, passes):
    """A caller with a time-out opens it again at once."""

    class SlowStore(JsonlStore):
        def open(self, session, **options):
            log = super().open(session, **options)
            begun.set()
            go.wait()
            return log

    begun, go = threading.Event(), threading.Event()
    store = SlowStore(root)

    async def use():
        async with session("s", store=store):
            return await look("x")

    async def main():
        task = asyncio.create_task(use())
        await asyncio.to_thread(begun.wait)
        for _ in range(passes):
            task.cancel()
            await asyncio.sleep(0)
        task.cancel()
        asyncio.get_running_loop().call_later(0.2, go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await use()

    assert asyncio.run(main()) == "x"
