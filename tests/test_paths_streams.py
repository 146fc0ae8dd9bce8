"""Streams, awaitables and managers in the shapes that SDKs give them."""

import asyncio
import threading
import types

import pytest

from durable_agent import (
    TOOL_OUTCOME_UNKNOWN,
    ReplayDivergedError,
    ResultNotStorableWarning,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from durable_agent.testing import MemoryStore
from tests.disks import crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

LOG = []


@pytest.fixture(autouse=True)
def _nothing_happened():
    LOG.clear()


def model(fn, **options):
    return checkpointed_llm(name="ask", **options)(fn)


def tool(fn, **options):
    return checkpointed_tool(name="tool", **options)(fn)


def outcomes(root):
    with inspect_session("s", root=root) as looked:
        return [
            event.meta.get("code") or event.meta["status"]
            for event in looked.events()
            if event.type in {"llm/response", "tool/result"}
        ]


def run_twice(root, use):
    """Use it live and in a replay; return what both gave."""

    async def main():
        async with session("s", root=root):
            return await use()

    return [asyncio.run(main()) for _ in range(2)]


class Items:
    """An iterator that is no generator; it has close() and nothing to throw into."""

    def __init__(self, *items):
        self.items = list(items)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.items:
            raise StopIteration
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def close(self):
        LOG.append("close")


class AsyncItems(Items):
    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


class AsyncClosed(AsyncItems):
    async def aclose(self):
        LOG.append("aclose")


# stream objects ------------------------------------------------------------------


def test_what_is_sent_to_an_iterator_is_dropped_and_the_next_item_given(root):
    ask = model(lambda: Items("a", "b"))
    for _ in range(2):
        with session("s", root=root):
            stream = ask()
            assert [next(stream), stream.send("x")] == ["a", "b"]
            assert list(stream) == []


def test_what_is_thrown_into_an_iterator_is_its_end(root):
    """Nobody is in there who could catch it; the consumer's error is the outcome."""
    ask = model(lambda: Items("a", "b"))
    with session("s", root=root):
        stream = ask()
        next(stream)
        with pytest.raises(KeyError):
            stream.throw(KeyError("mine"))
    assert outcomes(root) == ["error"]

    with session("s", root=root):
        stream = ask()
        assert next(stream) == "a"
        with pytest.raises(KeyError, match="mine"):
            next(stream)


def test_what_is_sent_or_thrown_into_an_async_iterator_is_treated_alike(root):
    ask = model(lambda: AsyncItems("a", "b", "c"))

    async def use():
        stream = ask()
        got = [await anext(stream), await stream.asend("x")]
        with pytest.raises(KeyError):
            await stream.athrow(KeyError("mine"))
        return got

    async def again():
        async with session("s", root=root):
            stream = ask()
            got = [await anext(stream), await anext(stream)]
            with pytest.raises(KeyError, match="mine"):
                await anext(stream)
            return got

    async def main():
        async with session("s", root=root):
            return await use()

    assert asyncio.run(main()) == asyncio.run(again()) == ["a", "b"]
    assert outcomes(root) == ["error"]


def test_an_async_generator_takes_what_is_sent_and_thrown(root):
    @tool
    async def echo():
        got = yield "ready"
        try:
            yield f"got {got}"
        except KeyError as error:
            yield f"caught {error.args[0]}"

    async def main():
        async with session("s", root=root):
            it = echo()
            return [
                await anext(it),
                await it.asend("x"),
                await it.athrow(KeyError("k")),
                [rest async for rest in it],
            ]

    assert asyncio.run(main()) == ["ready", "got x", "caught k", []]
    assert outcomes(root) == ["value"]


@pytest.mark.parametrize(
    ("kind", "closed"),
    [(AsyncItems, "close"), (AsyncClosed, "aclose")],
    ids=["close", "aclose"],
)
@pytest.mark.parametrize("taken", [1, 2])
def test_closing_a_stream_closes_the_connection_behind_it(root, kind, closed, taken):
    """Also of one that is exhausted; and whatever its method is called."""
    ask = model(lambda: kind("a"))

    async def use():
        stream = ask()
        got = [await anext(stream, None) for _ in range(taken)]
        await stream.close()
        return got

    live, replayed = run_twice(root, use)
    assert live == replayed
    assert LOG == [closed]


def test_an_async_stream_object_shows_what_the_original_has(root):
    items = AsyncItems("a")
    items.usage = 7

    async def main():
        async with session("s", root=root), model(lambda: items)() as stream:
            assert stream.usage == 7
            return [item async for item in stream]

    assert asyncio.run(main()) == ["a"]
    assert outcomes(root) == ["value"]


def test_a_stream_object_shows_what_the_original_has(root):
    items = Items("a")
    items.usage = 7
    with session("s", root=root):
        stream = model(lambda: items)()
        assert stream.usage == 7
        with pytest.raises(AttributeError):
            _ = stream.missing
        with stream as entered:
            assert list(entered) == ["a"]


# chunks and ends -----------------------------------------------------------------


def final(text):
    return {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}


def test_a_stream_that_breaks_after_its_final_chunk_is_complete(root):
    """The answer is whole; what the connection did then is nobody's business."""

    @model
    def stream():
        yield final("all of it")
        LOG.append("after")
        raise ConnectionResetError

    def run():
        with session("s", root=root):
            taken = stream()
            first = next(taken)
            try:
                next(taken)
            except ConnectionResetError:
                return first, "reset"
            except StopIteration:
                return first, "end"

    assert run() == (final("all of it"), "reset")
    assert outcomes(root) == ["value"]
    assert run() == (final("all of it"), "end")
    assert LOG == ["after"]


def test_a_return_value_that_cannot_be_stored_is_told(root):
    """The chunks alone would be half of what it gave."""
    lock = threading.Lock()

    @tool
    def export():
        LOG.append("ran")
        yield 1
        return lock

    def drain(stream):
        while True:
            try:
                next(stream)
            except StopIteration as stop:
                return stop.value

    with session("s", root=root), pytest.warns(ResultNotStorableWarning):
        assert drain(export()) is lock
    assert outcomes(root) == ["RESULT_NOT_STORABLE"]
    with session("s", root=root), pytest.raises(Exception, match="could not be"):
        drain(export())
    assert LOG == ["ran"]


def test_an_async_tool_stream_without_an_end_is_in_doubt(root):
    @tool
    async def export():
        LOG.append("ran")
        yield 1
        yield 2

    async def main():
        async with session("s", root=root) as s:
            stream = export()
            await anext(stream)
            crash(s)
        with pytest.raises(Exception, match="closed"):
            await stream.aclose()
        async with session("s", root=root):
            with pytest.raises(ToolOutcomeUnknownError):
                await anext(export())

    asyncio.run(main())
    assert LOG == ["ran"]


def test_asked_for_more_of_an_async_stream_while_later_records_exist_it_diverges(root):
    @model
    async def stream():
        for n in range(9):
            LOG.append(n)
            yield n

    after = tool(lambda: "after")

    async def run(limit):
        async with session("s", root=root) as s:
            taken = stream()
            for _ in range(limit):
                await anext(taken)
            await taken.aclose()
            after()
            crash(s)

    asyncio.run(run(3))
    LOG.clear()
    with pytest.raises(ReplayDivergedError, match="left early"):
        asyncio.run(run(8))
    assert LOG == []


def test_a_stream_replays_from_a_store_that_keeps_events_in_memory():
    store = MemoryStore()

    @model
    async def stream():
        for n in range(3):
            LOG.append(n)
            yield n

    async def run():
        async with session("s", store=store):
            return [n async for n in stream()]

    assert asyncio.run(run()) == asyncio.run(run()) == [0, 1, 2]
    assert LOG == [0, 1, 2]


# awaitables ----------------------------------------------------------------------


def test_an_error_of_an_awaitable_is_raised_when_it_is_awaited(root):
    async def fails():
        LOG.append("ran")
        raise ValueError("busy")

    ask = model(lambda: fails())

    async def use():
        awaitable = ask()
        with pytest.raises(ValueError, match="busy"):
            await awaitable
        return True

    assert run_twice(root, use) == [True, True]
    assert LOG == ["ran"]
    assert outcomes(root) == ["error"]


def test_an_awaitable_that_is_closed_while_it_runs_is_in_doubt(root):
    async def hangs():
        LOG.append("ran")
        await asyncio.Event().wait()

    pay = tool(lambda: hangs())

    @types.coroutine
    def begin(coroutine):
        while not LOG:
            future = coroutine.send(None)
            if not LOG:
                yield future

    async def main():
        async with session("s", root=root):
            awaitable = pay()
            await begin(awaitable)
            awaitable.close()

    asyncio.run(main())
    assert outcomes(root) == [TOOL_OUTCOME_UNKNOWN]


def test_tools_answer_a_response_that_a_client_gave_as_an_awaitable(root):
    """The id of the tool call is found by itself, live and in a replay."""
    calls = [{"id": "t1", "function": {"name": "look", "arguments": '{"n": 1}'}}]

    async def response():
        return {"role": "assistant", "tool_calls": calls}

    ask = model(lambda messages: response())

    @checkpointed_tool(name="look")
    async def look(n):
        LOG.append(n)
        return n

    async def use():
        await ask([])
        return await look(1)

    assert run_twice(root, use) == [1, 1]
    assert LOG == [1]
    with inspect_session("s", root=root) as looked:
        (intent,) = [e for e in looked.events() if e.type == "tool/call"]
        assert intent.meta["tcid"] == "t1"


def test_an_awaited_stream_that_cannot_be_made_again_raises(root):
    """Asked for more than was recorded, the request is made again, and fails now."""
    broken = []

    async def made():
        if broken:
            raise ConnectionRefusedError("down")
        return AsyncItems("a", "b")

    ask = model(lambda: made())

    async def run(wanted):
        async with session("s", root=root) as s:
            stream = await ask()
            got = [await anext(stream) for _ in range(wanted)]
            await stream.aclose()
            crash(s)
            return got

    assert asyncio.run(run(1)) == ["a"]
    broken.append(True)
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(run(2))
    assert outcomes(root) == ["value", "error"]


# managers ------------------------------------------------------------------------


class Manager:
    def __init__(self, gives, fail=None):
        self.gives = gives
        self.fail = fail
        self.label = "original"

    def __enter__(self):
        LOG.append("enter")
        if self.fail:
            raise self.fail
        return self.gives()

    def __exit__(self, *exc):
        LOG.append("exit")


class AsyncManager:
    def __init__(self, gives, fail=None):
        self.gives = gives
        self.fail = fail
        self.label = "original"

    async def __aenter__(self):
        LOG.append("enter")
        if self.fail:
            raise self.fail
        return self.gives()

    async def __aexit__(self, *exc):
        LOG.append("exit")


def use_manager(root, ask, use):
    with session("s", root=root), ask() as entered:
        return use(entered)


def test_a_manager_that_gives_a_value_gives_it_again(root):
    ask = model(lambda: Manager(lambda: {"text": "hello"}))
    got = [use_manager(root, ask, lambda entered: entered) for _ in range(2)]

    assert got == [{"text": "hello"}] * 2
    assert LOG == ["enter", "exit"]


def test_a_manager_shows_what_the_original_has(root):
    with session("s", root=root):
        manager = model(lambda: Manager(lambda: 1))()
        assert manager.label == "original"
        with manager:
            pass


def test_a_manager_whose_stream_is_asked_for_more_enters_again(root):
    ask = model(lambda: Manager(lambda: Items("a", "b", "c")))

    def take(wanted):
        with session("s", root=root) as s:
            with ask() as stream:
                got = [next(stream) for _ in range(wanted)]
            crash(s)
            return got

    assert take(1) == ["a"]
    assert take(3) == ["a", "b", "c"]
    assert LOG.count("enter") == 2


@pytest.mark.parametrize("kind", [AsyncItems, AsyncClosed])
def test_an_async_manager_whose_stream_is_asked_for_more_enters_again(root, kind):
    ask = model(lambda: AsyncManager(lambda: kind("a", "b", "c")))

    async def take(wanted):
        async with session("s", root=root) as s:
            async with ask() as stream:
                got = [await anext(stream) for _ in range(wanted)]
            crash(s)
            return got

    assert asyncio.run(take(1)) == ["a"]
    assert asyncio.run(take(3)) == ["a", "b", "c"]
    assert LOG.count("enter") == 2


def test_an_async_manager_may_give_a_value_or_a_plain_iterator(root):
    ask = model(lambda: AsyncManager(lambda: {"text": "hello"}))
    look = checkpointed_llm(name="look")(
        lambda: AsyncManager(lambda: (item for item in "ab"))
    )

    async def use():
        async with ask() as value, look() as items:
            return value, list(items)

    assert run_twice(root, use) == [({"text": "hello"}, ["a", "b"])] * 2
    assert LOG == ["enter", "enter", "exit", "exit"]


def test_an_error_on_entering_an_async_manager_is_raised_again(root):
    ask = model(lambda: AsyncManager(None, ValueError("busy")))

    async def use():
        manager = ask()
        with pytest.raises(ValueError, match="busy"):
            await manager.__aenter__()
        return True

    assert run_twice(root, use) == [True, True]
    assert LOG == ["enter"]
    assert outcomes(root) == ["error"]


def test_a_stream_that_was_cut_off_in_the_log_is_made_again(root):
    """Chunks without an end are no answer, of a manager neither."""
    ask = model(lambda: Manager(lambda: Items("a", "b")))
    assert use_manager(root, ask, list) == ["a", "b"]
    cut(root / "s", 4)

    assert use_manager(root, ask, list) == ["a", "b"]
    assert LOG.count("enter") == LOG.count("exit") == 2
