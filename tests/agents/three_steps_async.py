"""An agent of three steps, async: everything that can happen to a call, happens."""

import asyncio

from world import Here, RateLimitedError, doubt, effect, history, reply, send

from durable_agent import (
    Completed,
    NotApplied,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    step_boundary,
)

#: Long enough for a checkpoint, in most runs; both ways are ways to end.
_LIMIT_SECONDS = 0.03


@checkpointed_llm
async def ask(messages):
    prompt = messages[-1]["content"]
    return reply(prompt, send(prompt))


@checkpointed_llm
async def ask_backup(messages):
    return reply("backup", send("backup"))


@checkpointed_llm(transcript=False)
async def ask_beside(messages):
    prompt = messages[-1]["content"]
    return reply(prompt, send(prompt))


@checkpointed_llm
async def stream(messages):
    send("stream")
    for n in range(4):
        Here.point(f"chunk {n}")
        yield {"choices": [{"delta": {"content": str(n)}}]}


@checkpointed_tool
async def charge(cents):
    effect("charge")
    await asyncio.sleep(0)
    return {"charged": cents}


@checkpointed_tool
async def notify(who):
    effect("notify")
    return ("notified", who)


@checkpointed_tool(effect="read_only")
async def look_up(what):
    Here.point("body look_up: begin")
    await asyncio.sleep(0)
    return {what}


async def was_it_audited(call):
    done = ["audit"] in Here.world.lines("effects")
    return Completed("audited") if done else NotApplied()


@checkpointed_tool(verify=was_it_audited)
async def audit(entry):
    effect("audit")
    return "audited"


@checkpointed_tool
async def pack(box):
    effect("pack")
    return f"packed {box}"


@checkpointed_tool
async def ship(box):
    await pack(box)
    effect("ship")
    return f"shipped {box}"


@checkpointed_tool
async def post(page):
    effect("post")
    return "posted"


@checkpointed_tool(effect="idempotent")
async def publish(page):
    await safely("post", "posted", post, page)
    Here.world.note("published", page)
    Here.point("body publish: end")
    return "published"


@checkpointed_tool
async def order(item):
    effect("order")
    return f"ordered {item}"


@checkpointed_tool(effect="composite")
async def research(topic):
    first = await ask_beside(history("research"))
    await safely("order", "ordered ink", order, "ink")
    last = await ask_beside(history("research", first, "sum up"))
    return last["content"]


@checkpointed_tool
async def refuse(reason):
    effect("refuse")
    raise ValueError(reason, 41)


@checkpointed_tool
async def too_slow(job):
    effect("too_slow")
    await asyncio.Event().wait()


async def safely(label, expected, fn, *args):
    """Call a tool; where nobody knows whether it happened, say so and go on."""
    try:
        return await fn(*args)
    except ToolOutcomeUnknownError:
        doubt(label)
        return expected


async def patiently(messages):
    try:
        return await ask(messages)
    except RateLimitedError:
        return await ask(messages)


async def with_fall_back(messages):
    try:
        return await ask(messages)
    except RateLimitedError as error:
        if error.args[0] != 503:
            raise
        return await ask_backup(messages)


@step_boundary
async def gather_facts():
    plan = await patiently(history("plan"))
    facts = await asyncio.gather(
        safely("charge", {"charged": 5}, charge, 5),
        safely("notify", ("notified", "ann"), notify, "ann"),
        look_up("price"),
    )
    return plan, facts


@step_boundary
async def act(plan):
    backup = await with_fall_back(history("plan", plan, "primary"))
    return backup, [
        await safely("ship", "shipped 7", ship, 7),
        await publish("p"),
        await research("ink"),
        await audit("entry"),
    ]


@step_boundary
async def finish(plan, backup):
    text = ""
    async for chunk in stream(history("plan", plan, "primary", backup, "tell")):
        text += chunk["choices"][0]["delta"]["content"]
    try:
        await safely("refuse", None, refuse, "because")
    except ValueError as error:
        if error.args != ("because", 41):
            raise
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            await safely("too_slow", None, too_slow, "because")
    except TimeoutError:
        pass
    return text


async def main(session):
    """Return the answer, which does not depend on what is in doubt."""
    clock = session.record("clock", lambda: 1234)
    plan, facts = await gather_facts()
    backup, done = await act(plan)
    text = await finish(plan, backup)
    return repr((clock, plan["content"], facts, backup["content"], done, text))
