"""Random agent programs: trees whose every leaf's value feeds later calls, so that a
wrong outcome changes the path."""

from __future__ import annotations

import asyncio

from durable_agent import ToolOutcomeUnknownError, scope, step_boundary
from tests.model.simulation import Paused, ToolError, result, user

EFFECTS = ["side_effect", "side_effect", "idempotent", "read_only"]
DEEP = [
    "seq",
    "gather",
    "agent",
    "retry",
    "poll",
    "nested",
    "catch",
    "as_completed",
    "pipe",
    "timeout",
    "race",
    "deadline",
    "fallback",
    "composite",
    "pause",
    "retry_inside",
    "step",
    "record",
]


def generate(rng, depth=0):
    """Return a random program tree."""
    kind = rng.choice(["tool"] * 4 + (DEEP if depth < 3 else []))
    match kind:
        case "tool":
            return (
                kind,
                rng.choice("abc"),
                rng.randint(0, 2),
                rng.choice(EFFECTS),
                rng.random() * 3,
            )
        case "seq" | "gather" | "as_completed":
            return kind, [generate(rng, depth + 1) for _ in range(rng.randint(2, 3))]
        case "agent" | "composite":
            return kind, rng.randint(1, 2), rng.random() < 0.5
        case "retry" | "retry_inside":
            return (
                kind,
                rng.choice("rq"),
                rng.randint(1, 2),
                rng.choice(["side_effect", "idempotent"]),
            )
        case "poll":
            return kind, rng.randint(1, 3)
        case "nested":
            return kind, rng.random() < 0.5
        case "catch" | "record":
            return kind, rng.choice("xy")
        case "timeout":
            return kind, rng.random() * 2, rng.random() * 4, rng.choice(EFFECTS)
        case "race":
            return (
                kind,
                [rng.random() * 4 for _ in range(rng.randint(2, 3))],
                rng.random() < 0.5,
            )
        case "deadline":
            return kind, 1 + rng.random() * 4, [rng.random() * 4 for _ in range(2)]
        case "fallback":
            return kind, rng.random() < 0.7
        case "pause":
            return kind, rng.randint(1, 2)
        case "pipe" | "step":
            return kind, generate(rng, depth + 1), rng.choice("pq")
    raise AssertionError(kind)


async def evaluate(p, node, g):
    """Run a program tree in a process; ``g`` names the place."""
    return await _KINDS[node[0]](p, node, g)


async def _tool(p, node, g):
    return await p.tool(node[1], node[2], ghost=g, effect=node[3], dur=node[4])


async def _seq(p, node, g):
    return [await evaluate(p, c, f"{g}.{i}") for i, c in enumerate(node[1])]


async def _scoped(p, child, g, i):
    with scope(f"{g}{i}"):
        return await evaluate(p, child, f"{g}.{i}")


async def _gather(p, node, g):
    return list(
        await asyncio.gather(*(_scoped(p, c, g, i) for i, c in enumerate(node[1])))
    )


async def _as_completed(p, node, g):
    work = [_scoped(p, c, g, i) for i, c in enumerate(node[1])]
    return [await f for f in asyncio.as_completed(work)]


async def _retry(p, node, g):
    for i in range(3):
        fail = ToolError(f"no {i}") if i < node[2] else None
        try:
            return await p.tool(node[1], ghost=f"{g}/{i}", effect=node[3], fail=fail)
        except ToolError:
            pass
    return None


async def _retry_inside(p, node, g):
    async def body():
        for i in range(3):
            fail = ToolError(f"no {i}") if i < node[2] else None
            try:
                return await p.tool(
                    "try", ghost=f"covered/{g}/{i}", fail=fail, effect="idempotent"
                )
            except ToolError:
                pass
        return None

    return str(
        await p.tool("outer_" + node[1], g, ghost=g, effect="idempotent", body=body)
    )


async def _catch(p, node, g):
    try:
        return await p.tool(node[1], ghost=g, fail=ToolError("late"))
    except ToolError as error:
        return str(error)


async def _poll(p, node, g):
    for i in range(9):
        val = "done" if i == node[1] else f"w{i}"
        found = await p.tool("status", g, ghost=f"{g}/{i}", effect="read_only", val=val)
        if found == "done":
            return found
    return None


async def _nested(p, node, g):
    async def body():
        calls = [
            p.tool(name, i, ghost=f"covered/{g}.{i}", effect="idempotent", dur=0.5)
            for i, name in enumerate("de")
        ]
        return str(
            await asyncio.gather(*calls) if node[1] else [await c for c in calls]
        )

    return await p.tool("outer", g, ghost=g, effect="idempotent", body=body)


async def _timeout(p, node, g):
    try:
        call = p.tool("slow", g, ghost=g, effect=node[3], dur=node[2], noise=False)
        return await asyncio.wait_for(call, node[1])
    except TimeoutError:
        return await p.tool("fb", g, ghost=f"{g}/fb")


async def _race(p, node, g):
    async def one(i, dur):
        with scope(f"{g}{i}"):
            return await p.tool(
                "racer", i, ghost=f"{g}.{i}", effect="read_only", dur=dur
            )

    tasks = [asyncio.ensure_future(one(i, d)) for i, d in enumerate(node[1])]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if node[2]:
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
    first = [t.result() for t in tasks if t in done]
    won = await p.tool("won", ",".join(first), ghost=f"{g}/won")
    if not node[2]:
        return [won, *await asyncio.gather(*tasks)]
    return won


async def _deadline(p, node, g):
    seen = []
    try:
        async with asyncio.timeout(node[1]):
            for i, dur in enumerate(node[2]):
                seen.append(
                    await p.tool("t", i, ghost=f"{g}.{i}", dur=dur, noise=False)
                )
    except TimeoutError:
        seen.append("late")
    return await p.tool("after", len(seen), ghost=f"{g}/after")


async def _fallback(p, node, g):
    messages = [user(f"sys {g}")]
    try:
        fail = ToolError("503") if node[1] else None
        reply = await p.ask(messages, ghost=f"{g}/primary", fail=fail)
    except ToolError:
        reply = await p.ask(messages, ghost=f"{g}/backup", name="ask_backup")
    return reply["content"]


async def _pause(p, node, g):
    """A framework that pauses a step and enters it again with an answer."""
    answers = 0

    async def body():
        first = await p.tool(
            "inside", g, ghost=f"covered/{g}/inside", effect="idempotent"
        )
        if answers < node[1]:
            raise Paused("ask")
        return first

    @step_boundary(name=f"node {g}")
    async def step():
        paid = await p.tool("pay", g, ghost=f"{g}/pay")
        return paid, await p.tool(
            "approve", g, ghost=f"{g}/ap", effect="idempotent", body=body
        )

    while True:
        try:
            return str(await step())
        except Paused:
            answers += 1


async def _step(p, node, g):
    with_step = step_boundary(name=node[2])(evaluate)
    return await with_step(p, node[1], g + ".0")


async def _record(p, node, g):
    value = p.session.record(node[1], lambda: f"v{next(p.world.nonce)}")
    return await p.tool("use", value, ghost=f"{g}/use")


async def _pipe(p, node, g):
    value = await evaluate(p, node[1], g + ".0")
    return await p.tool(node[2], str(value), ghost=g)


async def _agent(p, node, g, name="ask"):
    messages = [user(f"sys {g}")]
    for turn in range(node[1]):
        asked = [("c0", "a", turn), ("c1", "b", turn)]
        reply = await p.ask(messages, asked, ghost=f"{g}/ask{turn}", name=name)
        messages.append(reply)
        calls = [
            p.tool(
                n,
                x,
                ghost=f"{g}/{i}{turn}",
                effect="side_effect" if i == "c0" else "read_only",
            )
            for i, n, x in asked
        ]
        values = await asyncio.gather(*calls) if node[2] else [await c for c in calls]
        messages += [result(c[0], v) for c, v in zip(asked, values, strict=True)]
    return (await p.ask(messages, ghost=f"{g}/final", name=name))["content"]


async def _composite(p, node, g):
    async def body():
        return await _agent(p, node, f"{g}/sub", name="sub_ask")

    return await p.tool("sub_agent", g, ghost=g, effect="composite", body=body)


_KINDS = {
    "tool": _tool,
    "seq": _seq,
    "gather": _gather,
    "as_completed": _as_completed,
    "retry": _retry,
    "retry_inside": _retry_inside,
    "catch": _catch,
    "poll": _poll,
    "nested": _nested,
    "timeout": _timeout,
    "race": _race,
    "deadline": _deadline,
    "fallback": _fallback,
    "pause": _pause,
    "step": _step,
    "record": _record,
    "pipe": _pipe,
    "agent": _agent,
    "composite": _composite,
}

__all__ = ["ToolOutcomeUnknownError", "evaluate", "generate"]
