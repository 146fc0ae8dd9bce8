"""``session.bind``: what runs where contextvars do not reach is in the session."""

import asyncio
import contextvars
import functools

import pytest

from durable_agent import (
    checkpointed_tool,
    configure,
    current_session,
    inspect_session,
    session,
)

RAN = []


@checkpointed_tool
def tool(x):
    RAN.append(x)
    return x


@pytest.fixture(autouse=True)
def _elsewhere():
    """No fall-back: what is not bound would be an error."""
    configure(session_fallback=False, require_session=True)
    RAN.clear()


def recorded(root):
    with inspect_session("s", root=root) as seen:
        return [e.data["args"]["x"] for e in seen.events() if e.type == "tool/call"]


def outside(fn, *args):
    """Run it where there was never a session."""
    return contextvars.Context().run(fn, *args)


def generator(ended):
    try:
        got = yield tool("first")
        try:
            yield tool(got)
        except KeyError:
            yield tool("thrown")
        return "returned"
    finally:
        ended.append(tool("ended"))


async def agenerator(ended):
    try:
        got = yield tool("first")
        try:
            yield tool(got)
        except KeyError:
            yield tool("thrown")
    finally:
        ended.append(tool("ended"))


def use(made):
    taken = [next(made), made.send("sent"), made.throw(KeyError())]
    # Between two steps it is the consumer's own context.
    taken.append(current_session())
    try:
        next(made)
    except StopIteration as stop:
        taken.append(stop.value)
    return taken


async def ause(made):
    taken = [await anext(made), await made.asend("sent")]
    taken += [await made.athrow(KeyError()), current_session()]
    taken.append(await anext(made, "returned"))
    return taken


WAYS = {
    "function": lambda fn: fn,
    "partial": functools.partial,
    "lambda": lambda fn: lambda *args: fn(*args),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_each_step_of_a_bound_generator_is_in_the_session(way, asynchronous, root):
    ended = []
    with session("s", root=root) as s:
        if asynchronous:
            made = outside(s.bind(WAYS[way](agenerator)), ended)
            taken = outside(asyncio.run, ause(made))
        else:
            made = outside(s.bind(WAYS[way](generator)), ended)
            taken = outside(use, made)

    assert taken == ["first", "sent", "thrown", None, "returned"]
    assert ended == ["ended"]
    assert recorded(root) == RAN == ["first", "sent", "thrown", "ended"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_bound_generator_that_is_left_ends_in_the_session(asynchronous, root):
    async def leave(made):
        await anext(made)
        await made.aclose()

    ended = []
    with session("s", root=root) as s:
        if asynchronous:
            outside(asyncio.run, leave(s.bind(agenerator)(ended)))
        else:
            made = s.bind(generator)(ended)
            outside(next, made)
            outside(made.close)

    assert ended == ["ended"]
    assert recorded(root) == ["first", "ended"]


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_coroutine_is_in_the_session(way, root):
    async def run(x):
        await asyncio.sleep(0)
        return tool(x), (await asyncio.to_thread(tool, "thread"))

    with session("s", root=root) as s:
        bound = s.bind(WAYS[way](run))
        found = outside(asyncio.run, bound("a"))

    assert found == ("a", "thread")
    assert recorded(root) == ["a", "thread"]
