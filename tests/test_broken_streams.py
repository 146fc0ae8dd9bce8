"""Streams at once, and what their consumers do between two chunks."""

import asyncio

import pytest

from durable_agent import (
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.disks import cut

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
    # Waiting for what cannot come would warn, or take as long as replay_wait.
    pytest.mark.filterwarnings("error::durable_agent.ReplayDivergedWarning"),
]

#: Seconds that are far more than any of these replays needs.
LONG = 600


@checkpointed_llm
async def stream(topic):
    for n in range(3):
        await asyncio.sleep(0)
        yield f"{topic}{n}"


def replays(root, consume):
    """Run three consumers at once, twice; return what both runs gave, and effects."""
    sent = []

    @checkpointed_tool
    async def send(what):
        sent.append(what)
        await asyncio.sleep(0)
        return f"sent {what}"

    async def run():
        async with session("s", root=root, replay_wait=LONG):
            async with asyncio.timeout(LONG / 10):
                return await asyncio.gather(*(consume(t, send) for t in "abc"))

    return asyncio.run(run()), asyncio.run(run()), sent


def test_effects_between_the_chunks_of_streams_at_once_replay(root):
    """A stream's end comes after them: its chunks must not wait for its end."""

    async def consume(topic, send):
        return [await send(chunk) async for chunk in stream(topic)]

    first, again, sent = replays(root, consume)

    assert first == again
    assert len(sent) == len(set(sent)) == 9


def test_streams_left_at_once_replay(root):
    async def consume(topic, send):
        chunks = stream(topic)
        got = [await send(await anext(chunks))]
        if topic != "b":
            await chunks.aclose()
        got.append(await send(topic))
        await chunks.aclose()
        return got

    first, again, sent = replays(root, consume)

    assert first == again
    assert len(sent) == len(set(sent)) == 6


def test_streams_that_nobody_takes_from_hold_nobody_up(root):
    async def consume(topic, send):
        made = returned(topic)
        got = await send(topic)
        await made.aclose()
        return [got, await send(topic * 2)]

    @checkpointed_llm
    def returned(topic):
        async def chunks():
            yield topic

        return chunks()

    first, again, sent = replays(root, consume)

    assert first == again
    assert len(sent) == len(set(sent)) == 6


def test_a_final_chunk_lets_the_others_go_on(root):
    """Its consumer keeps the stream, and asks nothing more of it."""
    kept = []
    final = {"choices": [{"delta": {}, "finish_reason": "stop"}]}

    @checkpointed_llm
    async def answer(topic):
        yield topic
        yield final
        yield "usage"

    async def consume(topic, send):
        chunks = answer(topic)
        kept.append(chunks)
        got = [await anext(chunks), await anext(chunks)]
        return [*got, await send(topic), await send(topic * 2)]

    first, again, sent = replays(root, consume)

    assert first == again
    assert len(sent) == len(set(sent)) == 6


def test_a_stream_that_a_crash_broke_off_waits_for_no_effect_between_its_chunks(root):
    sent = []

    @checkpointed_tool
    async def send(what):
        sent.append(what)
        await asyncio.sleep(0)
        return f"sent {what}"

    async def consume(topic):
        return [await send(chunk) async for chunk in stream(topic)]

    async def run():
        async with session("s", root=root, replay_wait=LONG):
            async with asyncio.timeout(LONG / 10):
                return await asyncio.gather(*map(consume, "abc"))

    first = asyncio.run(run())
    with inspect_session("s", root=root) as log:
        ends = [event.seq for event in log.events() if event.type == "llm/response"]
    cut(root / "s", ends[0])
    again = asyncio.run(run())

    assert first == again
    assert set(sent) == {f"{topic}{n}" for topic in "abc" for n in range(3)}
