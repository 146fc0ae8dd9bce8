"""Streams: recorded while they run, replayed as they were, and never as complete
when they were not."""

import asyncio
import inspect
import warnings

import pytest

from durable_agent import (
    FinishedSessionWarning,
    ReplayDivergedError,
    ResultNotStorableError,
    ResultNotStorableWarning,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.disks import crash

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def chunk(n, last=False):
    return {
        "choices": [
            {"delta": {"content": str(n)}, "finish_reason": "stop" if last else None}
        ]
    }


@checkpointed_llm
def stream(messages, count=10):
    RAN.append("begin")
    for n in range(count):
        RAN.append(n)
        yield chunk(n)
    return "returned"


@checkpointed_llm
async def astream(messages, count=10):
    RAN.append("begin")
    for n in range(count):
        await asyncio.sleep(0)
        yield chunk(n)


@checkpointed_tool
def export(count):
    for n in range(count):
        RAN.append(n)
        yield (n, {n})
    return count


@checkpointed_tool
def after(n=0):
    RAN.append("after")
    return n


def outcomes(root):
    with inspect_session("s", root=root) as looked:
        return [
            event
            for event in looked.events()
            if event.type in {"llm/response", "tool/result"}
        ]


def test_a_stream_replays_with_its_chunks_types_and_return_value(root):
    def run():
        with session("s", root=root):
            iterator = export(3)
            got = []
            while True:
                try:
                    got.append(next(iterator))
                except StopIteration as stop:
                    return got, stop.value

    first = run()
    with pytest.warns(FinishedSessionWarning):
        again = run()

    assert first == ([(0, {0}), (1, {1}), (2, {2})], 3)
    assert again == first
    assert RAN == [0, 1, 2]


def test_a_replayed_stream_is_the_same_kind_of_thing(root):
    def run():
        with session("s", root=root):
            one, two = stream([]), export(2)
            assert inspect.isgenerator(one)
            assert inspect.isgenerator(two)
            assert next(two) == (0, {0})
            assert two.send(None) == (1, {1})
            two.close()
            assert list(one) == [chunk(n) for n in range(10)]

    run()
    with pytest.warns(FinishedSessionWarning):
        run()
    assert RAN.count("begin") == 1


def test_an_async_stream_replays_as_an_async_generator(root):
    async def run():
        async with session("s", root=root):
            one = astream([])
            assert inspect.isasyncgen(one)
            return [item async for item in one]

    first = asyncio.run(run())
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(run())

    assert first == again == [chunk(n) for n in range(10)]
    assert RAN == ["begin"]


def test_values_can_be_sent_and_thrown_into_a_live_stream(root):
    @checkpointed_tool
    def echo():
        got = yield "ready"
        try:
            yield f"got {got}"
        except KeyError as error:
            yield f"caught {error.args[0]}"
        return "done"

    def run():
        with session("s", root=root):
            it = echo()
            said = [next(it), it.send("x"), it.throw(KeyError("k"))]
            with pytest.raises(StopIteration) as stop:
                next(it)
            return said, stop.value.value

    assert run() == (["ready", "got x", "caught k"], "done")


def test_nothing_is_made_before_the_request_is_durable(root):
    made = []

    @checkpointed_llm
    def lazily(messages):
        with inspect_session("s", root=root) as looked:
            made.append([event.type for event in looked.events()][-1])
        yield 1

    with session("s", root=root) as s:
        iterator = lazily([])
        assert made == []
        list(iterator)
        assert s.seq > 0

    assert made == ["llm/request"]


def test_a_stream_that_a_consumer_left_gives_what_it_gave(root):
    """Partial is never offered as the finished result."""

    def run():
        with session("s", root=root):
            got = []
            for item in stream([]):
                got.append(item)
                if len(got) == 4:
                    break
            return got

    first = run()
    RAN.clear()
    with pytest.warns(FinishedSessionWarning):
        again = run()

    assert first == again == [chunk(n) for n in range(4)]
    assert RAN == []
    assert outcomes(root)[0].data["stream"]["end"] == "closed"


def test_asked_for_more_than_was_recorded_the_request_is_made_again(root):
    with session("s", root=root) as s:
        for n, _ in enumerate(stream([])):
            if n == 3:
                break
        crash(s)
    RAN.clear()

    with session("s", root=root):
        assert list(stream([])) == [chunk(n) for n in range(10)]
    assert RAN == ["begin", *range(10)]


def test_asked_for_more_async_the_request_is_made_again(root):
    async def run(limit):
        async with session("s", root=root) as s:
            got = []
            iterator = astream([])
            async for item in iterator:
                got.append(item)
                if len(got) == limit:
                    await iterator.aclose()
                    crash(s)
            return got

    asyncio.run(run(4))
    RAN.clear()

    assert asyncio.run(run(None)) == [chunk(n) for n in range(10)]
    assert RAN == ["begin"]


def test_asked_for_more_while_later_records_exist_it_diverges(root):
    def run(limit):
        with session("s", root=root) as s:
            for n, _ in enumerate(stream([])):
                if n == limit:
                    break
            after()
            crash(s)

    run(3)
    RAN.clear()

    with pytest.raises(ReplayDivergedError):
        run(8)
    assert RAN == []


@pytest.mark.parametrize("chunks", [1, 40, 100])
def test_a_stream_without_an_end_is_never_replayed_as_complete(root, chunks):
    """A killed process left chunks and no outcome: the request is sent again."""
    with session("s", root=root) as s:
        iterator = stream([], 200)
        for _ in range(chunks):
            next(iterator)
        crash(s)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match="closed"):
            iterator.close()
    RAN.clear()

    with session("s", root=root) as s:
        assert len(s.in_doubt()) == 1
        assert list(stream([], 200)) == [chunk(n) for n in range(200)]
    assert RAN == ["begin", *range(200)]


def test_a_tool_stream_without_an_end_is_in_doubt(root):
    with session("s", root=root) as s:
        iterator = export(9)
        next(iterator)
        crash(s)
    with pytest.raises(Exception, match="closed"):
        iterator.close()
    RAN.clear()

    with session("s", root=root), pytest.raises(ToolOutcomeUnknownError):
        list(export(9))
    assert RAN == []


def test_a_stream_that_raises_replays_its_chunks_and_then_the_error(root):
    @checkpointed_llm
    def breaks(messages):
        RAN.append(1)
        yield "a"
        yield "b"
        raise ConnectionResetError(104, "reset")

    def run():
        got = []
        with session("s", root=root):
            try:
                got.extend(breaks([]))
            except ConnectionError as error:
                return got, type(error), error.args

    first = run()
    with pytest.warns(FinishedSessionWarning):
        again = run()

    assert first == again == (["a", "b"], ConnectionResetError, (104, "reset"))
    assert RAN == [1]


def test_the_end_is_recorded_before_the_final_chunk_is_handed_out(root):
    """A consumer that stops at ``finish_reason`` has a complete stream."""

    @checkpointed_llm
    def ends(messages):
        RAN.append(1)
        yield chunk(0)
        yield chunk(1, last=True)
        yield {"usage": 7}

    with session("s", root=root) as s:
        for item in ends([]):
            if item["choices"][0]["finish_reason"]:
                crash(s)
                break

    assert outcomes(root)[0].data["stream"]["end"] == "complete"
    with session("s", root=root):
        assert list(ends([]))[:2] == [chunk(0), chunk(1, last=True)]
    assert RAN == [1]


def test_chunks_after_the_final_one_are_recorded_too(root):
    """Providers send the usage after the finish reason."""

    @checkpointed_llm
    def ends(messages):
        RAN.append(1)
        yield chunk(0, last=True)
        yield {"usage": 7}

    def run():
        with session("s", root=root):
            return list(ends([]))

    first = run()
    with pytest.warns(FinishedSessionWarning):
        again = run()

    assert first == again == [chunk(0, last=True), {"usage": 7}]


def test_code_after_the_loop_of_a_stream_is_reached_in_a_replay(root):
    def run():
        with session("s", root=root):
            for item in stream([]):
                if item == chunk(9):
                    break
            return after(1)

    assert run() == 1
    with pytest.warns(FinishedSessionWarning):
        assert run() == 1
    assert RAN.count("after") == 1


def test_many_chunks_are_packed_into_few_events(root):
    with session("s", root=root):
        list(stream([], 1000))
    with inspect_session("s", root=root) as looked:
        events = [e for e in looked.events() if e.type == "llm/chunk"]

    assert len(events) < 100
    assert sum(len(e.data["chunks"]) for e in events) == 1000


def test_a_plain_function_may_return_a_generator(root):
    """SDKs do: the function is no generator function, what comes back is a stream."""

    @checkpointed_llm
    def create(messages):
        RAN.append(1)
        return (n for n in range(3))

    def run():
        with session("s", root=root):
            made = create([])
            assert hasattr(made, "__next__")
            return list(made)

    assert run() == [0, 1, 2]
    with pytest.warns(FinishedSessionWarning):
        assert run() == [0, 1, 2]
    assert RAN == [1]


class SdkStream:
    """As the stream objects of SDKs: an iterator with attributes and a manager."""

    status = 200

    def __init__(self, items):
        self._items = iter(items)
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._items)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.closed = True


def test_a_stream_object_keeps_its_protocol(root):
    made = []

    @checkpointed_llm
    def create(messages):
        made.append(SdkStream([1, 2, 3]))
        return made[-1]

    def run(live):
        with session("s", root=root):
            with create([]) as items:
                if live:
                    assert items.status == 200
                got = list(items)
            assert not live or made[0].closed
            return got

    assert run(True) == [1, 2, 3]
    with pytest.warns(FinishedSessionWarning):
        assert run(False) == [1, 2, 3]
    assert len(made) == 1


def test_an_async_function_may_return_an_async_generator(root):
    @checkpointed_llm
    async def create(messages):
        RAN.append(1)

        async def items():
            for n in range(3):
                yield n

        return items()

    async def run():
        async with session("s", root=root):
            return [n async for n in await create([])]

    assert asyncio.run(run()) == [0, 1, 2]
    with pytest.warns(FinishedSessionWarning):
        assert asyncio.run(run()) == [0, 1, 2]
    assert RAN == [1]


def test_a_plain_function_may_return_an_awaitable_of_a_stream(root):
    @checkpointed_llm
    def create(messages):
        RAN.append(1)

        async def later():
            async def items():
                for n in range(3):
                    yield n

            return items()

        return later()

    async def run():
        async with session("s", root=root):
            return [n async for n in await create([])]

    assert asyncio.run(run()) == [0, 1, 2]
    with pytest.warns(FinishedSessionWarning):
        assert asyncio.run(run()) == [0, 1, 2]
    assert RAN == [1]


def test_calls_in_a_stream_are_nested_and_those_between_its_steps_are_not(root):
    """Nesting is set around each step of a generator, never across a yield."""

    @checkpointed_tool
    def works():
        after(1)
        yield 1
        after(2)
        yield 2

    with session("s", root=root):
        for n in works():
            after(n * 10)
    with inspect_session("s", root=root) as looked:
        parents = [
            (event.data["args"].get("n"), "parent" in event.meta)
            for event in looked.events()
            if event.type == "tool/call"
        ]

    assert parents == [(None, False), (1, True), (10, False), (2, True), (20, False)]


def test_a_chunk_that_cannot_be_stored_reaches_its_consumer(root):
    """With a warning; on a replay of a tool with effects there is nothing to give."""

    @checkpointed_tool
    def odd():
        RAN.append(1)
        yield "fine"
        yield lambda: 1

    with session("s", root=root) as s:
        with pytest.warns(ResultNotStorableWarning):
            assert len(list(odd())) == 2
        crash(s)
    with session("s", root=root), pytest.raises(ResultNotStorableError):
        list(odd())
    assert RAN == [1]


def test_an_async_stream_left_without_closing_it_is_not_complete(root):
    """The loop closes it when it likes, in another context."""

    async def run():
        async with session("s", root=root):
            async for _ in astream([]):
                break
            return await asyncio.sleep(0)

    asyncio.run(run())

    ends = [event.data["stream"]["end"] for event in outcomes(root)]
    assert "complete" not in ends


def test_a_cancelled_stream_is_not_complete(root):
    @checkpointed_llm
    async def endless(messages):
        yield 1
        await asyncio.Event().wait()

    async def run():
        async with session("s", root=root):
            try:
                async with asyncio.timeout(0.05):
                    async for _ in endless([]):
                        pass
            except TimeoutError:
                return "timed out"

    assert asyncio.run(run()) == "timed out"
    (event,) = outcomes(root)
    assert event.meta["code"] == "TOOL_OUTCOME_UNKNOWN"


def create_sync(messages):
    RAN.append(1)
    return SdkStream([1, 2, 3])


def create_generator(messages):
    RAN.append(1)
    return (n for n in (1, 2, 3))


@pytest.mark.parametrize("create", [create_sync, create_generator])
def test_a_returned_stream_asked_for_more_makes_the_request_again(root, create):
    """The user interrupted the answer, and the next run wants all of it."""
    decorated = checkpointed_llm(create)

    def run(*, broken):
        with session("s", root=root):
            for n in (items := decorated([])):
                if n == 2 and broken:
                    items.close()
                    raise KeyboardInterrupt
            return RAN

    with pytest.raises(KeyboardInterrupt):
        run(broken=True)

    assert run(broken=False) == [1, 1]
    assert [event.meta["attempt"] for event in outcomes(root)] == [1, 2]


@pytest.mark.parametrize("awaitable", [True, False])
def test_a_returned_async_stream_asked_for_more_makes_the_request_again(
    root, awaitable
):
    async def items():
        for n in (1, 2, 3):
            yield n

    async def create_async(messages):
        RAN.append(1)
        return items()

    def create_plain(messages):
        return create_async(messages)

    decorated = checkpointed_llm(create_plain if awaitable else create_async)

    async def run(*, broken):
        async with session("s", root=root):
            taken = await decorated([])
            got = []
            async for n in taken:
                got.append(n)
                if n == 2 and broken:
                    await taken.aclose()
                    raise KeyError
            return got

    with pytest.raises(KeyError):
        asyncio.run(run(broken=True))

    assert asyncio.run(run(broken=False)) == [1, 2, 3]
    assert RAN == [1, 1]


def test_a_returned_stream_that_nobody_takes_from_has_an_outcome(root):
    """Else the session would wait for it for ever, and keep its lock."""
    made = []

    @checkpointed_llm
    def create(messages):
        made.append(SdkStream([1]))
        return made[-1]

    with session("s", root=root):
        create([])
    with session("t", root=root), create([]):
        pass

    assert [stream.closed for stream in made] == [True, True]
    assert [event.data["stream"]["end"] for event in outcomes(root)] == ["closed"]
    with pytest.warns(FinishedSessionWarning), session("s", root=root):
        pass


def test_a_returned_async_stream_that_nobody_takes_from_has_an_outcome(root):
    @checkpointed_llm
    async def create(messages):
        async def items():
            yield 1

        return items()

    async def run():
        async with session("s", root=root):
            taken = await create([])
            await taken.aclose()

    asyncio.run(run())

    assert [event.data["stream"]["end"] for event in outcomes(root)] == ["closed"]


def test_a_returned_generator_replays_as_a_generator(root):
    decorated = checkpointed_llm(create_generator)

    def run():
        with session("s", root=root):
            made = decorated([])
            assert inspect.isgenerator(made)
            return list(made)

    assert run() == [1, 2, 3]
    with pytest.warns(FinishedSessionWarning):
        assert run() == [1, 2, 3]
