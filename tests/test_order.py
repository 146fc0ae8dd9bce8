"""Concurrent calls: each finds its own record, and outcomes come in recorded order."""

import asyncio
import itertools
import random
import warnings

import pytest

from durable_agent import (
    EqualCallsWarning,
    FinishedSessionWarning,
    checkpointed_tool,
    inspect_session,
    scope,
    session,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import UnsyncedDisk, cut

SERIAL = itertools.count()


class Pace:
    """How many passes of the loop each body takes, drawn anew for each run."""

    def __init__(self, rng):
        self.rng = rng

    async def wait(self):
        for _ in range(self.rng.randrange(6)):
            await asyncio.sleep(0)


class Here:
    pace = Pace(random.Random(0))


@checkpointed_tool(effect="read_only")
async def alpha(n):
    await Here.pace.wait()
    return ["alpha", n, next(SERIAL)]


@checkpointed_tool(effect="read_only")
async def beta(n):
    await Here.pace.wait()
    return ["beta", n, next(SERIAL)]


@checkpointed_tool
async def gamma(n):
    await Here.pace.wait()
    return ["gamma", n, next(SERIAL)]


async def run(store, id_, calls, rng):
    """Make the calls at once, in this order; return call -> result."""

    async def one(call):
        fn, n = call
        await Here.pace.wait()
        return await fn(n)

    Here.pace = Pace(rng)
    async with session(id_, store=store):
        results = await asyncio.gather(*map(one, calls))
    return dict(zip(calls, results, strict=True))


def recorded(store, id_):
    """Return (function, n) -> value for all calls with an outcome in the log."""
    found = {}
    names = {}
    with inspect_session(id_, store=store) as looked:
        for event in looked.events():
            if event.type == "tool/call":
                names[event.call] = event.meta["name"], event.data["args"]["n"]
            if event.type == "tool/result":
                found[names[event.call]] = event.data["value"]
    return found


@pytest.mark.filterwarnings("ignore::durable_agent.DurableWarning")
def test_each_call_of_a_gather_finds_its_own_record_in_any_schedule(tmp_path):
    """200 schedules: recorded in one order, cut anywhere, asked for in another."""
    store = JsonlStore(tmp_path, fs=UnsyncedDisk())
    for seed in range(200):
        rng = random.Random(seed)
        calls = [(alpha, n) for n in range(4)] + [(beta, n) for n in range(4)]
        rng.shuffle(calls)
        asyncio.run(run(store, f"s{seed}", calls, rng))
        cut(tmp_path / f"s{seed}", rng.randrange(2, 19))
        before = recorded(store, f"s{seed}")
        rng.shuffle(calls)

        again = asyncio.run(run(store, f"s{seed}", calls, rng))

        for (fn, n), result in again.items():
            assert result[:2] == [fn.__name__, n], seed
            known = before.get((f"{fn.__module__}:{fn.__name__}", n), result)
            assert result == known, seed


def order_of(store, id_, rng):
    """Return the order in which the callers of six tools had their results."""

    async def main():
        Here.pace = Pace(rng)
        done = []

        async def one(fn, n):
            done.append(await fn(n))

        async with session(id_, store=store):
            async with asyncio.TaskGroup() as group:
                for n, fn in itertools.product(range(2), (alpha, beta, gamma)):
                    group.create_task(one(fn, n))
        return done

    return asyncio.run(main())


def test_results_come_in_the_recorded_order(tmp_path):
    """What a program makes of the order, a prompt for one, is then the same."""
    store = JsonlStore(tmp_path, fs=UnsyncedDisk())
    for seed in range(60):
        rng = random.Random(seed)
        first = order_of(store, f"s{seed}", rng)

        with pytest.warns(FinishedSessionWarning):
            again = order_of(store, f"s{seed}", rng)

        assert again == first, seed


class Gate:
    event = None


@checkpointed_tool
async def patient(n):
    await Gate.event.wait()
    return n


@checkpointed_tool
async def times_out(n):
    raise TimeoutError(n)


@checkpointed_tool
async def refuses(n):
    raise ValueError(n)


@pytest.mark.parametrize("fails", [times_out, refuses])
def test_errors_come_in_the_recorded_order_too(tmp_path, fails):
    """Also those after which it may have happened, which are recorded as in doubt."""

    async def main():
        Gate.event = asyncio.Event()
        order = []

        async def one(fn):
            try:
                await fn(1)
            except (TimeoutError, ValueError):
                Gate.event.set()
            order.append(fn.__name__)

        async with session("s", root=tmp_path):
            await asyncio.gather(one(patient), one(fails))
        return order

    first = asyncio.run(main())
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(main())

    assert (first, again) == ([fails.__name__, "patient"],) * 2


def test_unknown_outcomes_come_in_the_order_in_which_they_were_reported(tmp_path):
    """A resumed run that reported two calls in doubt replays as it went."""

    async def main(asked):
        Gate.event = asyncio.Event()
        Gate.event.set()
        order = []

        async def one(n):
            text = await patient(n)
            order.append((n, text))

        async with session("s", root=tmp_path, on_unknown="return"):
            await asyncio.gather(*map(one, asked))
        return order

    asyncio.run(main([1, 2, 3]))
    cut(tmp_path / "s", 5)
    resumed = asyncio.run(main([3, 1, 2]))
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(main([1, 2, 3]))

    assert again == resumed
    assert all("unknown" in text.lower() for _, text in resumed)


def test_equal_calls_at_once_are_told_apart_by_a_scope(tmp_path):
    async def main(pairs):
        async def one(name):
            with scope(name):
                return name, await alpha(0)

        async with session("s", root=tmp_path):
            return dict(await asyncio.gather(*map(one, pairs)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = asyncio.run(main(["left", "right"]))
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(main(["right", "left"]))

    assert again == first
    assert first["left"] != first["right"]


def test_equal_calls_at_once_are_interchangeable_and_a_warning_says_so(tmp_path):
    async def main():
        async with session("s", root=tmp_path):
            return await asyncio.gather(alpha(0), alpha(0), alpha(0))

    with pytest.warns(EqualCallsWarning, match="scope"):
        first = asyncio.run(main())
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(main())

    assert sorted(again) == sorted(first)
    assert len({result[2] for result in first}) == 3
