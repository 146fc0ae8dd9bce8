"""A whole async agent under each event loop that people use."""

from __future__ import annotations

import asyncio

import anyio
import pytest
import uvloop

from durable_agent import (
    checkpointed_llm,
    checkpointed_tool,
    open_session,
    session,
    step_boundary,
)

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_llm
async def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": f"seen {len(messages)}"}


@checkpointed_tool
async def send(n):
    RAN.append(n)
    await asyncio.sleep(0)
    return n * 2


@checkpointed_tool(effect="read_only")
def look(n):
    """A sync tool called in the loop's thread."""
    RAN.append(f"look {n}")
    return n


@step_boundary
async def step(n):
    reply = await ask([{"role": "user", "content": "go"}] * (n + 1))
    sent = await asyncio.gather(*(send((n, i)) for i in range(3)))
    return reply["content"], sent, look(n)


async def agent(root):
    async with session("s", root=root):
        return [await step(n) for n in range(2)]


async def anyio_agent(root):
    found = []

    async def one(n):
        found.append((n, await send(n)))

    async with session("s", root=root), anyio.create_task_group() as group:
        for n in range(4):
            group.start_soon(one, n)
    return found


RUNNERS = {
    "asyncio": asyncio.run,
    "asyncio debug": lambda main: asyncio.run(main, debug=True),
    "uvloop": uvloop.run,
}


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS.keys())
def test_an_agent_runs_and_replays(runner, root):
    first = runner(agent(root))
    ran = list(RAN)
    again = runner(agent(root))

    assert again == first
    assert RAN == ran
    assert len(ran) == 10


@pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])
def test_an_agent_runs_and_replays_under_anyio(uv, root):
    options = {"use_uvloop": uv}
    first = anyio.run(anyio_agent, root, backend_options=options)
    again = anyio.run(anyio_agent, root, backend_options=options)

    assert again == first
    assert sorted(RAN) == [0, 1, 2, 3]


def test_a_recording_of_one_loop_replays_in_another(root):
    first = asyncio.run(agent(root))
    again = uvloop.run(agent(root))

    assert again == first


def test_cells_of_a_notebook_share_a_session(root):
    """Each cell is a task of one loop that runs on; sync calls work inside it."""

    async def notebook():
        opened = open_session("s", root=root)
        first = await asyncio.ensure_future(send(1))
        second = look(2)
        opened.close()
        return first, second, opened.seq

    first, second, seq = asyncio.run(notebook())

    assert (first, second) == (2, 2)
    assert seq == 6


def test_two_loops_in_turn_use_one_session(root):
    """A script that calls asyncio.run for each part of its work."""
    with session("s", root=root) as opened:
        parts = [asyncio.run(send(n)) for n in range(3)]
    with session("s", root=root) as again:
        replayed = [asyncio.run(send(n)) for n in range(3)]

        assert again.seq == opened.seq
    assert replayed == parts
    assert RAN == [0, 1, 2]
