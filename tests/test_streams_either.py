"""Streams for ``for`` and for ``async for``: whichever takes them is recorded."""

from __future__ import annotations

import asyncio
import gc

import pytest

from durable_agent import checkpointed_llm, inspect_session, session

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
    pytest.mark.filterwarnings("ignore::durable_agent.ReplayDivergedWarning"),
]


class Either:
    """Gives each word of a text; ``ended`` notes how it was closed."""

    made = 0

    def __init__(self, text="a b c"):
        type(self).made += 1
        self.words = iter(text.split())
        self.ended = []
        self.usage = "3 words"

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.words)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        for word in self.words:
            return word
        raise StopAsyncIteration

    async def aclose(self):
        self.ended.append("aclose")

    def close(self):
        self.ended.append("close")


@pytest.fixture(autouse=True)
def _nothing_made():
    Either.made = 0


ask = checkpointed_llm(name="ask")(lambda: Either())


@checkpointed_llm(name="ask")
async def aask():
    return Either()


def ends(root):
    with inspect_session("s", root=root) as seen:
        return [e.data["stream"]["end"] for e in seen.events() if "stream" in e.data]


def run(root, use):
    if asyncio.iscoroutinefunction(use):

        async def main():
            async with session("s", root=root):
                return await use()

        return asyncio.run(main())
    with session("s", root=root):
        return use()


def plain():
    stream = ask()
    assert isinstance(stream, Either)
    return [*stream]


async def by_async_for():
    stream = ask()
    assert isinstance(stream, Either)
    return [word async for word in stream]


async def awaited():
    return [word async for word in await aask()]


async def in_a_loop_by_for():
    return [*ask()]


async def entered():
    async with ask() as stream:
        return [word async for word in stream]


def entered_plainly():
    with ask() as stream:
        return [*stream]


WAYS = [plain, by_async_for, awaited, in_a_loop_by_for, entered, entered_plainly]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", WAYS)
def test_it_replays_for_either(way, again, root):
    """Also for the other one than recorded it."""
    assert run(root, way) == run(root, again) == ["a", "b", "c"]
    assert ends(root) == ["complete"]
    assert Either.made == 1


def left():
    stream = ask()
    taken = [next(stream)]
    stream.close()
    return taken


async def left_by_async_for():
    stream = ask()
    taken = [await anext(stream)]
    await stream.aclose()
    return taken


async def closed_by_await():
    stream = ask()
    taken = [await anext(stream)]
    await stream.close()
    return taken


async def closed_in_a_loop():
    stream = ask()
    taken = [next(stream)]
    await stream.close()
    return taken


@pytest.mark.parametrize(
    "way", [left, left_by_async_for, closed_by_await, closed_in_a_loop]
)
def test_one_that_was_left_is_not_complete(way, root):
    assert run(root, way) == run(root, way) == ["a"]
    assert ends(root) == ["closed"]
    assert Either.made == 1
    assert run(root, by_async_for) == ["a", "b", "c"]
    assert Either.made == 2


def untaken():
    ask()


async def auntaken():
    await ask().aclose()


async def never_closed():
    ask()


@pytest.mark.parametrize("way", [untaken, auntaken, never_closed])
def test_one_that_nobody_takes_has_an_outcome(way, root):
    """It holds no session open, and is closed."""
    run(root, way)
    gc.collect()

    assert ends(root) == ["closed"]


@pytest.mark.parametrize("replays", [False, True], ids=["live", "replayed"])
def test_it_is_taken_by_one_of_them_only(replays, root):
    async def both():
        stream = ask()
        assert next(stream) == "a"
        with pytest.raises(TypeError, match="`for` already"):
            await anext(stream)
        return [*stream]

    async def the_other_way():
        stream = ask()
        assert await anext(stream) == "a"
        with pytest.raises(TypeError, match="`async for` already"):
            next(stream)
        return [word async for word in stream]

    for use in (both, the_other_way):
        if replays:
            run(root, plain)
        assert run(root, use) == ["b", "c"]
        root = root / "other"


def test_a_live_one_keeps_its_attributes(root):
    def use():
        stream = ask()
        found = stream.usage
        assert [*stream] == ["a", "b", "c"]
        return found

    assert run(root, use) == "3 words"


def test_the_original_is_closed_as_it_is_taken(root):
    made = []

    @checkpointed_llm(name="ask")
    def keep():
        made.append(Either())
        return made[-1]

    async def use():
        stream = keep()
        await anext(stream)
        await stream.aclose()
        other = keep()
        next(other)
        other.close()

    run(root, use)

    assert [each.ended for each in made] == [["aclose"], ["close"]]
