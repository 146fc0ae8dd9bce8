"""A chat: each process asks for its history, adds a line, makes a request and runs its
tools; it crashes anywhere, and the next process goes on."""

from __future__ import annotations

import asyncio
import random

from durable_agent import tool_call_id
from tests.model.simulation import (
    SimStore,
    World,
    result,
    run_once,
    unpaired,
    user,
)

CALLS = [("c0", "send", "x"), ("c1", "send", "y")]


def _told(world, messages, seen):
    """Return where the transcript says what is not so; count what it says."""
    bad = []
    reply = None
    for message in messages:
        if message["role"] == "assistant":
            reply = message["content"]
        elif message["role"] == "tool":
            ghost = f"{reply}/{message['tool_call_id']}"
            ran = world.effects[ghost, "side_effect"]
            text = message["content"]
            seen[text.partition(":")[0]] += 1
            if text.startswith("TOOL_NOT_STARTED") and ran:
                bad.append(f"told not started, ran: {ghost}")
            if text.startswith("ABORTED") and ran:
                bad.append(f"told aborted, ran: {ghost}")
            if text.startswith("ok") and not ran:
                bad.append(f"told done, did not run: {ghost}")
    return bad


def chat(seed, *, resume, explicit, seen, turns=6):
    """Run a chat of some processes; return the violations. ``seen`` counts texts."""
    rng = random.Random(seed)
    store, world = SimStore(), World()
    bad = []
    for turn in range(turns):

        async def program(p, turn=turn):
            p.noise = 0.05
            messages = p.session.messages()
            bad.extend(_told(world, messages, seen))
            problem = unpaired(messages)
            if problem:
                bad.append(f"unpaired: {problem}")
            if not messages:
                messages = [{"role": "system", "content": "sys"}]
            messages = [*messages, user(f"line {turn}")]
            reply = await p.ask(messages, CALLS, ghost=f"t{turn}")

            async def one(id_, name, x):
                ghost = f"{reply['content']}/{id_}"
                if explicit:
                    with tool_call_id(id_):
                        await p.tool(name, x, ghost=ghost, val="ok")
                else:
                    await p.tool(name, x, ghost=ghost, val="ok")

            await asyncio.gather(*(one(*call) for call in CALLS))
            if rng.random() < 0.5:
                done = [result(id_, "ok") for id_, _, _ in CALLS]
                await p.ask([*messages, reply, *done], ghost=f"f{turn}")

        crash_at = rng.choice([None, rng.randint(1, 30)])
        status, value, process = run_once(
            program, store, world, seed * 13 + turn, crash_at=crash_at, resume=resume
        )
        bad += [v for v in process.violations if not v.startswith("false warning")]
        if status == "raised":
            bad.append(f"raised: {value!r}")
            break
    bad += [f"ran twice: {g}" for (g, _), count in world.effects.items() if count > 1]
    return bad
