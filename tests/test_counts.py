"""What a call costs: writes and syncs, counted where they reach the disk."""

# ruff: noqa: PT031 - the warning comes from opening

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import pytest

from durable_agent import (
    CheckpointPolicy,
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    session,
    step_boundary,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import CountingDisk


@checkpointed_tool
def tool(a):
    return a


@checkpointed_tool
async def atool(a):
    return a


@checkpointed_tool
def inner(a):
    return a


@checkpointed_tool(effect="read_only")
def look(a):
    return a


@checkpointed_tool(durable_outcome=True)
def sure(a):
    return a


@checkpointed_llm
def ask(messages):
    return {"role": "assistant", "content": f"answer {len(messages)}"}


@pytest.fixture
def disk():
    return CountingDisk()


@pytest.fixture
def store(disk, tmp_path):
    return JsonlStore(tmp_path, fs=disk)


def test_a_tool_call_costs_one_sync_and_two_writes(store, disk):
    with session("s", store=store):
        tool(0)
        before = disk.count.copy()
        tool(1)

        assert disk.since(before) == (2, 1)


def test_an_async_tool_call_costs_the_same(store, disk):
    async def main():
        async with session("s", store=store):
            await atool(0)
            before = disk.count.copy()
            await atool(1)
            return disk.since(before)

    assert asyncio.run(main()) == (2, 1)


def test_a_model_request_costs_the_same(store, disk):
    with session("s", store=store):
        ask([{"role": "user", "content": "a"}])
        before = disk.count.copy()
        ask([{"role": "user", "content": "b"}])

        assert disk.since(before) == (2, 1)


def test_a_nested_call_costs_no_sync_and_two_writes(store, disk):
    @checkpointed_tool
    def around(a):
        before = disk.count.copy()
        inner(a)
        return disk.since(before)

    with session("s", store=store):
        assert around(1) == (2, 0)


def test_a_replayed_call_costs_nothing(store, disk):
    with session("s", store=store):
        tool(1)
        ask([{"role": "user", "content": "a"}])

    with pytest.warns(FinishedSessionWarning), session("s", store=store):
        before = disk.count.copy()
        tool(1)
        ask([{"role": "user", "content": "a"}])

        assert disk.since(before) == (0, 0)


def run_all(a=1):
    with step_boundary("step"):
        ask([{"role": "user", "content": "a"}])
        tool(a)
        look(a)
        sure(a)


def test_a_session_that_only_replays_writes_and_syncs_nothing(store, disk):
    """From before it is opened until after it is closed."""
    with session("s", store=store) as s:
        s.record("clock", lambda: 5)
        s.append("app/mark", {"n": 1})
        run_all()
    before = disk.count.copy()

    with pytest.warns(FinishedSessionWarning), session("s", store=store) as s:
        assert s.record("clock", lambda: 6) == 5
        assert s.append("app/mark", {"n": 1}) is None
        run_all()
        s.flush()

    assert disk.since(before) == (0, 0)


def test_an_async_session_that_only_replays_writes_and_syncs_nothing(store, disk):
    async def main():
        async with session("s", store=store) as s:
            await asyncio.gather(*(atool(n) for n in range(5)))
            await s.aflush()

    asyncio.run(main())
    before = disk.count.copy()
    with pytest.warns(FinishedSessionWarning):
        asyncio.run(main())

    assert disk.since(before) == (0, 0)


def test_a_replay_after_a_crash_writes_only_what_opening_repairs(store, disk):
    """The tail that no seal attests is written again once, by the opening."""
    first = session("s", store=store)
    s = first.__enter__()
    run_all()
    s._core.log.close()  # as a killed process leaves it
    s._core.closing = True
    with session("s", store=store):
        before = disk.count.copy()
        run_all()

        assert disk.since(before) == (0, 0)


def test_opening_a_finished_chat_of_200_turns_costs_three_syncs_at_most(store, disk):
    with conversation("c", store=store, policy=CheckpointPolicy.none()) as s:
        for turn in range(200):
            ask([*s.messages(), {"role": "user", "content": f"turn {turn}"}])
    before = disk.count.copy()

    with conversation("c", store=store) as s:
        answer = ask([*s.messages(), {"role": "user", "content": "one more"}])

    assert answer == {"role": "assistant", "content": "answer 401"}
    assert disk.since(before)[1] <= 3


def test_64_concurrent_tasks_share_two_syncs(tmp_path):
    disk = CountingDisk(sync_seconds=0.005)
    store = JsonlStore(tmp_path, fs=disk)

    async def main():
        async with session("s", store=store):
            await atool(-1)
            before = disk.count.copy()
            await asyncio.gather(*(atool(n) for n in range(64)))
            return disk.since(before)[1]

    assert asyncio.run(main()) <= 2


def test_16_concurrent_threads_share_syncs(tmp_path):
    """A barrier in flight, and the next one for all who came meanwhile."""
    disk = CountingDisk(sync_seconds=0.02)
    store = JsonlStore(tmp_path, fs=disk)
    with session("s", store=store), ThreadPoolExecutor(16) as pool:
        tool(-1)
        before = disk.count.copy()
        contexts = [contextvars.copy_context() for _ in range(16)]
        list(pool.map(lambda n: contexts[n].run(tool, n), range(16)))

        assert disk.since(before)[1] <= 8


def test_read_only_tools_may_go_without_a_barrier(store, disk):
    policy = CheckpointPolicy(before_read_only=False)
    with session("s", store=store, policy=policy):
        look(0)
        before = disk.count.copy()
        look(1)

        assert disk.since(before)[1] == 0
        tool(1)
        assert disk.since(before)[1] == 1


def test_without_a_policy_events_are_written_and_nothing_is_synced(store, disk):
    with session("s", store=store, policy=CheckpointPolicy.none()) as s:
        tool(0)
        before = disk.count.copy()
        run_all(2)

        # ``durable_outcome`` of one tool is its own barrier.
        assert disk.since(before)[1] == 1
        assert [e.type for e in s.events()].count("tool/result") == 4


def test_a_durable_outcome_costs_one_more_sync(store, disk):
    with session("s", store=store):
        sure(0)
        before = disk.count.copy()
        sure(1)

        assert disk.since(before) == (2, 2)


def test_a_recorded_value_costs_one_write(store, disk):
    with session("s", store=store) as s:
        s.record("a", lambda: 1)
        before = disk.count.copy()
        s.record("b", lambda: 1)

        assert disk.since(before) == (1, 0)


def test_a_step_makes_what_came_before_durable_in_one_sync(store, disk):
    with session("s", store=store) as s:
        tool(1)
        before = disk.count.copy()
        with step_boundary("next"):
            assert disk.since(before)[1] == 1
            assert s._core.log.durable >= s.seq
