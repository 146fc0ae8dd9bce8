"""A step is entered before its body and left at the end of it, whatever runs it."""

import asyncio
import contextvars
import functools
import threading

import pytest

from durable_agent import session
from durable_agent._current import STEP
from durable_agent.decorators import checkpointed_tool, step_boundary


@checkpointed_tool
def tool(name):
    return name


class live_session:
    """A session that has begun: marks alone are written with its first call."""

    def __init__(self, root):
        self._opening = session("x", root=root)

    def __enter__(self):
        opened = self._opening.__enter__()
        tool("0")
        return opened

    async def __aenter__(self):
        opened = await self._opening.__aenter__()
        tool("0")
        return opened

    def __exit__(self, *error):
        return self._opening.__exit__(*error)

    async def __aexit__(self, *error):
        return await self._opening.__aexit__(*error)


def marks(opened):
    """The recorded steps and tool calls, in order."""
    shown = []
    for event in opened.events():
        if event.type in {"step/start", "step/end"}:
            shown.append((event.type.removeprefix("step/"), event.meta["name"]))
        elif event.type == "tool/call":
            shown.append(("tool", event.data["args"]["name"]))
    return shown[1:]


INSIDE = [("start", "s"), ("tool", "a"), ("tool", "b"), ("end", "s")]


def test_a_function_is_a_step(tmp_path):
    @step_boundary
    def s():
        return tool("a") + tool("b")

    with live_session(tmp_path) as opened:
        result = s()
        recorded = marks(opened)

    assert result == "ab"
    assert recorded == INSIDE


def test_a_coroutine_function_is_a_step_while_it_is_awaited(tmp_path):
    @step_boundary
    async def s():
        await asyncio.sleep(0)
        return tool("a") + tool("b")

    async def main():
        async with live_session(tmp_path) as opened:
            made = s()
            before = marks(opened)
            return await made, before, marks(opened)

    result, before, recorded = asyncio.run(main())

    assert result == "ab"
    assert before == []
    assert recorded == INSIDE


def test_a_generator_is_a_step_over_its_whole_iteration(tmp_path):
    @step_boundary(name="s")
    def items():
        yield tool("a")
        return tool("b")

    def consume():
        return (yield from items())

    with live_session(tmp_path) as opened:
        made = items()
        before = marks(opened)
        with pytest.raises(StopIteration) as stopped:
            next(made)
            next(made)
        recorded = marks(opened)

    assert before == []
    assert stopped.value.value == "b"
    assert recorded == INSIDE


def test_an_async_generator_is_a_step_over_its_whole_iteration(tmp_path):
    @step_boundary(name="s")
    async def items():
        yield tool("a")
        await asyncio.sleep(0)
        yield tool("b")

    async def main():
        async with live_session(tmp_path) as opened:
            found = [item async for item in items()]
            return found, marks(opened)

    assert asyncio.run(main()) == (["a", "b"], INSIDE)


def test_what_a_plain_function_gives_back_lazily_is_a_step_too(tmp_path):
    """The first step was over when the function returned."""

    async def coroutine():
        return tool("a")

    @step_boundary(name="s")
    def lazily():
        return coroutine()

    @step_boundary(name="g")
    def generator():
        return (tool(n) for n in "b")

    async def main():
        async with live_session(tmp_path) as opened:
            result = await lazily()
            return result, list(generator()), marks(opened)

    result, items, recorded = asyncio.run(main())

    assert (result, items) == ("a", ["b"])
    assert recorded == [
        *[("start", "s"), ("end", "s")],
        *[("start", "s"), ("tool", "a"), ("end", "s")],
        *[("start", "g"), ("end", "g")],
        *[("start", "g"), ("tool", "b"), ("end", "g")],
    ]


def test_a_generator_s_step_is_not_current_in_its_consumer(tmp_path):
    """Or every call of the consumer would be taken for a part of the step."""
    variable = contextvars.ContextVar("variable", default="outside")

    def items():
        variable.set("inside")
        yield variable.get()
        yield variable.get()

    async def aitems():
        variable.set("inside")
        yield variable.get()
        yield variable.get()

    async def main():
        return [(item, variable.get()) async for item in step_boundary(aitems)()]

    with live_session(tmp_path):
        seen = [(item, variable.get()) for item in step_boundary(items)()]
        aseen = asyncio.run(main())

    assert seen == aseen == [("inside", "outside")] * 2


def test_a_generator_that_is_left_early_leaves_its_step(tmp_path):
    cleaned = []

    @step_boundary(name="s")
    def items():
        try:
            yield 1
            yield 2
        finally:
            cleaned.append("sync")

    @step_boundary(name="a")
    async def aitems():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            cleaned.append("async")

    async def main(opened):
        made = aitems()
        async for _ in made:
            break
        # Another task closes it, as servers do on a disconnect.
        await asyncio.create_task(made.aclose())

    with live_session(tmp_path) as opened:
        made = items()
        next(made)
        made.close()
        asyncio.run(main(opened))
        recorded = marks(opened)

    assert cleaned == ["sync", "async"]
    assert recorded == [("start", "s"), ("end", "s"), ("start", "a"), ("end", "a")]


def test_an_abandoned_async_generator_is_closed_with_its_loop(tmp_path):
    @step_boundary(name="s")
    async def items():
        yield 1
        yield 2

    async def main():
        async for _ in items():
            break

    with live_session(tmp_path) as opened:
        asyncio.run(main())
        recorded = marks(opened)

    assert recorded == [("start", "s"), ("end", "s")]


def test_an_exception_leaves_the_step_and_goes_on_up(tmp_path):
    error = ValueError("no")

    @step_boundary(name="s")
    def fails():
        raise error

    @step_boundary(name="g")
    def items():
        yield 1
        raise error

    @step_boundary(name="a")
    async def aitems():
        yield 1
        raise error

    async def consume():
        return [item async for item in aitems()]

    with live_session(tmp_path) as opened:
        for run in (fails, lambda: list(items()), lambda: asyncio.run(consume())):
            with pytest.raises(ValueError) as raised:
                run()
            assert raised.value is error
        recorded = marks(opened)

    names = ["s", "g", "a"]
    assert recorded == [(mark, n) for n in names for mark in ("start", "end")]


def test_a_named_step_is_a_block_a_decorator_and_may_be_used_again(tmp_path):
    plan = step_boundary("plan")

    @plan
    def planned():
        return tool("c")

    async def main():
        async with live_session(tmp_path) as opened:
            with plan:
                tool("a")
            async with plan:
                tool("b")
            planned()
            with plan, plan:
                pass
            return marks(opened)

    recorded = asyncio.run(main())

    assert recorded[:9] == [
        *[("start", "plan"), ("tool", "a"), ("end", "plan")],
        *[("start", "plan"), ("tool", "b"), ("end", "plan")],
        *[("start", "plan"), ("tool", "c"), ("end", "plan")],
    ]
    assert recorded[9:] == [("start", "plan")] * 2 + [("end", "plan")] * 2
    assert repr(plan) == "step_boundary('plan')"


def test_one_step_object_serves_tasks_and_threads_at_once(tmp_path):
    """Each leaves what it entered, and not what another did."""
    plan = step_boundary("plan")

    async def enter(entered, others, *, leave_after):
        async with plan:
            inside = STEP.get()
            entered.set()
            await others.wait()
            assert STEP.get() is inside
        assert STEP.get() is None
        leave_after.set()

    async def main():
        one, two, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with live_session(tmp_path) as opened:
            async with asyncio.TaskGroup() as group:
                group.create_task(enter(one, two, leave_after=left))
                group.create_task(enter(two, left, leave_after=asyncio.Event()))
            return marks(opened)

    assert asyncio.run(main()) == [("start", "plan")] * 2 + [("end", "plan")] * 2
    assert plan._steps._open == []


def test_a_block_left_in_another_thread_is_left(tmp_path):
    """A dependency in the style of ``yield`` may be closed by another worker."""
    plan = step_boundary("plan")

    with live_session(tmp_path) as opened:
        plan.__enter__()
        closer = threading.Thread(target=plan.__exit__, args=(None, None, None))
        closer.start()
        closer.join()
        recorded = marks(opened)

    assert recorded == [("start", "plan"), ("end", "plan")]


def test_a_step_of_a_method_and_of_a_partial(tmp_path):
    class Agent:
        @step_boundary
        def s(self, *names):
            return [tool(name) for name in names], self

    agent = Agent()
    with live_session(tmp_path) as opened:
        results = [agent.s("a", "b"), functools.partial(agent.s, "a", "b")()]
        recorded = marks(opened)

    assert results == [(["a", "b"], agent)] * 2
    assert recorded == INSIDE * 2


@pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning")
def test_without_a_session_a_step_is_its_body():
    with step_boundary("plan") as step:
        assert step_boundary(lambda: 1)() == 1

    assert repr(step) == "step_boundary('plan')"
