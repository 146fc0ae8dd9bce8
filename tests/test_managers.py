"""What ``client.stream(...)`` of an SDK returns: a manager that gives a stream."""

from __future__ import annotations

import asyncio

import pytest

from durable_agent import checkpointed_llm, inspect_session, session

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
