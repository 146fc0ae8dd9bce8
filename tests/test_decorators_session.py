"""Decorated things of every kind are recorded once, under their names, and replay."""

import asyncio
import functools
import gc
import inspect
import threading
import warnings

import pytest

from durable_agent import inspect_session, session
from durable_agent.decorators import checkpointed_llm, checkpointed_tool

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def ran(value):
    RAN.append(value)
    return value


@checkpointed_tool
def function(a, b=2):
    return ran([a, b])


@checkpointed_tool
async def coroutine(a):
    await asyncio.sleep(0)
    return ran(a)


@checkpointed_tool
def generator(a):
    yield ran(a)
    yield a + 1
    return a + 2


@checkpointed_tool
async def async_generator(a):
    yield ran(a)
    yield a + 1


class Calculator:
    def __call__(self, a):
        return ran(a)


class AsyncCalculator:
    async def __call__(self, a):
        return ran(a)


class Agent:
    """Holds what can neither be stored nor hashed, as agents do (DA-063)."""

    __hash__ = None

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()

    @checkpointed_tool
    def send(self, to):
        return ran(f"{self.name}:{to}")

    @checkpointed_tool(key=lambda call: call["to"])
    async def asend(self, to):
        return ran(f"{self.name}:{to}")

    @checkpointed_tool
    def stream(self, to):
        yield ran(to)

    @checkpointed_tool
    async def astream(self, to):
        yield ran(to)

    @classmethod
    @checkpointed_tool
    def make(cls, to):
        return ran(f"{cls.__name__}:{to}")

    @checkpointed_tool
    @staticmethod
    def static(to):
        return ran(to)


async def everything():
    agent = Agent("a")
    return [
        function(1),
        await coroutine(1),
        list(generator(1)),
        [item async for item in async_generator(1)],
        checkpointed_tool(Calculator())(1),
        await checkpointed_tool(AsyncCalculator())(1),
        functools.partial(function, 3)(b=4),
        await checkpointed_tool(functools.partial(coroutine, 5))(),
        agent.send("x"),
        await agent.asend("x"),
        list(agent.stream("x")),
        [item async for item in agent.astream("x")],
        Agent.make("x"),
        agent.static("x"),
    ]


VALUES = [
    *([1, 2], 1, [1, 2], [1, 2], 1, 1, [3, 4], 5),
    *("a:x", "a:x", ["x"], ["x"], "Agent:x", "x"),
]
NAMES = [
    *("function", "coroutine", "generator", "async_generator"),
    *("Calculator", "AsyncCalculator", "function", "coroutine"),
    *("Agent.send", "Agent.asend", "Agent.stream", "Agent.astream"),
    *("Agent.make", "Agent.static"),
]


def calls(root, name="x"):
    """The recorded calls: name and arguments."""
    return [
        (event.meta["name"].rpartition(":")[2], event.data["args"])
        for event in inspect_session(name, root=root).events()
        if event.type in {"tool/call", "llm/request"}
    ]


def test_every_kind_is_recorded_once_and_replays(tmp_path):
    """No coroutine or generator object is taken for a result (DA-068)."""

    async def main():
        async with session("x", root=tmp_path):
            return await everything()

    first = asyncio.run(main())
    ran_first = len(RAN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = asyncio.run(main())

    assert first == again == VALUES
    assert ran_first == len(RAN) == len(VALUES)
    assert [name for name, _ in calls(tmp_path)] == NAMES


def test_self_and_cls_are_not_recorded(tmp_path):
    agent = Agent("a")
    with session("x", root=tmp_path):
        agent.send("x")
        Agent.send(agent, "y")
        Agent.make("z")
        agent.static("s")

    assert calls(tmp_path) == [
        ("Agent.send", {"to": "x"}),
        ("Agent.send", {"to": "y"}),
        ("Agent.make", {"to": "z"}),
        ("Agent.static", {"to": "s"}),
    ]


def test_a_method_of_a_new_instance_finds_its_record(tmp_path):
    """The instance is made again when the script runs again (DA-063)."""

    def run():
        with session("x", root=tmp_path):
            return Agent("a").send("x")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = run(), run()

    assert results == ("a:x", "a:x")
    assert RAN == ["a:x"]


def test_a_coroutine_is_recorded_from_its_first_await_to_its_end(tmp_path):
    """Created here, awaited in another task, or never awaited (DA-070)."""
    seen = []

    async def main():
        async with session("x", root=tmp_path) as opened:
            made = coroutine(1)
            forgotten = [coroutine(2)]
            await asyncio.sleep(0)
            seen.append([e.type for e in opened.events() if "tool" in e.type])
            result = await asyncio.create_task(made)
            with pytest.warns(RuntimeWarning, match="never awaited"):
                forgotten.clear()
            gc.collect()
            return result

    assert asyncio.run(main()) == 1
    assert seen == [[]]
    assert calls(tmp_path) == [("coroutine", {"a": 1})]


def test_a_stack_of_the_same_decorator_makes_one_record(tmp_path):
    """A decorator in between hides nothing."""

    def retried(fn):
        @functools.wraps(fn)
        def run(*args, **kwargs):
            try:
                return fn(*args, **kwargs)
            except ValueError:
                return fn(*args, **kwargs)

        return run

    @checkpointed_tool
    @retried
    @checkpointed_tool(effect="idempotent")
    def flaky(a):
        RAN.append(a)
        if len(RAN) == 1:
            raise ValueError(a)
        return a

    twice = checkpointed_tool(checkpointed_tool(flaky))

    with session("x", root=tmp_path):
        result = twice(1)

    assert result == 1
    assert RAN == [1, 1]
    assert [arguments for _, arguments in calls(tmp_path)] == [{"a": 1}]


def test_arguments_that_do_not_fit_leave_no_record(tmp_path):
    with session("x", root=tmp_path):
        function(1)
        for call in (function, coroutine, generator, Agent("a").send, Agent.make):
            with pytest.raises(TypeError, match="missing 1 required positional"):
                call()

    assert calls(tmp_path) == [("function", {"a": 1, "b": 2})]


def test_plain_functions_that_give_back_something_lazy_are_covered_to_its_end(tmp_path):
    """The methods of asynchronous SDK clients are plain functions (DA-070)."""

    class Completions:
        @functools.wraps(coroutine.__wrapped__)
        def create(self, *args, **kwargs):
            return coroutine.__wrapped__(*args, **kwargs)

        def stream(self, a):
            return (ran(n) for n in (a, a + 1))

    async def main():
        completions = Completions()
        create = checkpointed_llm(completions.create, name="create")
        stream = checkpointed_llm(completions.stream, name="stream")
        async with session("x", root=tmp_path):
            made = create(7)
            assert inspect.isawaitable(made)
            return await made, list(stream(8))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [asyncio.run(main()), asyncio.run(main())]

    assert results == [(7, [8, 9])] * 2
    assert RAN == [7, 8, 9]
    assert [name for name, _ in calls(tmp_path)] == ["create", "stream"]


def test_a_bridge_around_a_coroutine_function_returns_its_value(tmp_path):
    @checkpointed_tool
    @functools.wraps(coroutine.__wrapped__)
    def bridge(*args):
        return asyncio.run(coroutine.__wrapped__(*args))

    with session("x", root=tmp_path):
        assert bridge(1) == 1

    assert len(calls(tmp_path)) == 1


def test_a_callable_object_awaited_through_its_call_attribute_is_recorded(tmp_path):
    """Servers look at ``__call__`` to tell whether an object is asynchronous."""
    tool = checkpointed_tool(AsyncCalculator())

    async def main():
        async with session("x", root=tmp_path):
            return await tool.__call__(1)

    assert asyncio.run(main()) == 1
    assert calls(tmp_path) == [("AsyncCalculator", {"a": 1})]
