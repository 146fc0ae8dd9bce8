"""What ``client.stream(...)`` of an SDK returns: a manager that gives a stream."""

from __future__ import annotations

import asyncio
import functools

import pytest

from durable_agent import (
    EqualCallsWarning,
    checkpointed_llm,
    inspect_session,
    session,
)

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")


class Manager:
    """Sends nothing before it is entered."""

    def __init__(self, log, fail=None):
        self.log = log
        self.fail = fail

    def __enter__(self):
        self.log.append("enter")
        if self.fail:
            raise self.fail
        return Stream(self.log)

    def __exit__(self, *exc):
        self.log.append("exit")

    async def __aexit__(self, *exc):
        self.log.append("exit")


class AsyncManager(Manager):
    __enter__ = None

    async def __aenter__(self):
        self.log.append("enter")
        return AsyncStream(self.log)


class Stream:
    def __init__(self, log):
        self.items = iter(["a", "b", "c"])
        self.log = log

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)

    def get_final_text(self):
        return "final"


class AsyncStream(Stream):
    def __aiter__(self):
        return self

    async def __anext__(self):
        for item in self.items:
            return item
        raise StopAsyncIteration


def outcomes(root):
    with inspect_session("s", root=root) as seen:
        return [e.meta["status"] for e in seen.events() if e.type == "llm/response"]


def test_a_manager_is_recorded_and_replayed_as_a_manager(root):
    log = []
    ask = checkpointed_llm(lambda: Manager(log), name="ask")
    for _ in range(2):
        with session("s", root=root), ask() as stream:
            taken = list(stream)

        assert taken == ["a", "b", "c"]
    assert log == ["enter", "exit"]
    assert outcomes(root) == ["value"]


def test_the_stream_of_a_live_manager_keeps_its_helpers(root):
    ask = checkpointed_llm(lambda: Manager([]), name="ask")
    with session("s", root=root), ask() as stream:
        found = stream.get_final_text()

    assert found == "final"


def test_an_async_manager_is_recorded_and_replayed_as_one(root):
    log = []
    ask = checkpointed_llm(lambda: AsyncManager(log), name="ask")

    async def main():
        async with session("s", root=root), ask() as stream:
            return [item async for item in stream]

    taken = [asyncio.run(main()) for _ in range(2)]

    assert taken == [["a", "b", "c"]] * 2
    assert log == ["enter", "exit"]


def test_an_error_on_entering_is_raised_on_entering_again(root):
    ask = checkpointed_llm(lambda: Manager([], ValueError("busy")), name="ask")
    for _ in range(2):
        with session("s", root=root):
            manager = ask()
            with pytest.raises(ValueError, match="busy"), manager:
                pass

    assert outcomes(root) == ["error"]


def test_a_manager_that_is_never_entered_does_not_hold_the_session(root):
    log = []
    ask = checkpointed_llm(lambda: Manager(log), name="ask")
    with session("s", root=root):
        ask()

    with session("s", root=root):
        pass
    assert log == []


def test_a_coroutine_function_may_return_an_async_manager(root):
    """It is awaited, then entered; so is what a plain function gives to be awaited."""
    log = []

    async def make():
        return AsyncManager(log)

    async def main(ask, n):
        async with session("s", root=root / n), await ask() as stream:
            return [item async for item in stream]

    for n, fn in {"coroutine": make, "plain": lambda: make()}.items():
        ask = checkpointed_llm(fn, name="ask")
        taken = [asyncio.run(main(ask, n)) for _ in range(2)]

        assert taken == [["a", "b", "c"]] * 2
        assert outcomes(root / n) == ["value"]
    assert log == ["enter", "exit"] * 2


def test_a_plain_function_around_a_coroutine_function_may_be_entered_at_once(root):
    """SDKs wrap one so that it returns an async manager; nothing is sent before."""
    log = []

    async def create():
        """What it wraps."""

    @functools.wraps(create)
    def wrapper():
        log.append("called")
        return AsyncManager(log)

    ask = checkpointed_llm(wrapper, name="ask")

    async def main():
        async with session("s", root=root):
            manager = ask()
            before = len(log)
            async with manager as stream:
                return before, [item async for item in stream]

    taken = [asyncio.run(main()) for _ in range(2)]

    assert taken == [(0, ["a", "b", "c"]), (3, ["a", "b", "c"])]
    assert log == ["called", "enter", "exit"]


def test_what_is_for_both_is_a_coroutine_for_those_who_drive_it(root):
    async def create():
        await asyncio.sleep(0)
        return "made"

    ask = checkpointed_llm(functools.wraps(create)(lambda: create()), name="ask")

    async def main():
        async with session("s", root=root):
            closed = ask()
            closed.close()
            task = asyncio.create_task(ask())
            stopped = asyncio.create_task(ask())
            await asyncio.sleep(0)
            stopped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopped
            return await task, *await asyncio.gather(ask(), ask())

    with pytest.warns(EqualCallsWarning):
        found = asyncio.run(main())

    assert found == ("made", "made", "made")
