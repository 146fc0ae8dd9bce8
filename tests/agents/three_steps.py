"""An agent of three steps, sync: everything that can happen to a call, happens."""

from concurrent.futures import ThreadPoolExecutor

from world import Here, RateLimitedError, doubt, effect, history, reply, send

from durable_agent import (
    Completed,
    NotApplied,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    step_boundary,
)


@checkpointed_llm
def ask(messages):
    prompt = messages[-1]["content"]
    return reply(prompt, send(prompt))


@checkpointed_llm
def ask_backup(messages):
    return reply("backup", send("backup"))


@checkpointed_llm(transcript=False)
def ask_beside(messages):
    prompt = messages[-1]["content"]
    return reply(prompt, send(prompt))


@checkpointed_llm
def stream(messages):
    send("stream")
    for n in range(4):
        Here.point(f"chunk {n}")
        yield {"choices": [{"delta": {"content": str(n)}}]}


@checkpointed_tool
def charge(cents):
    effect("charge")
    return {"charged": cents}


@checkpointed_tool
def notify(who):
    effect("notify")
    return ("notified", who)


@checkpointed_tool(effect="read_only")
def look_up(what):
    Here.point("body look_up: begin")
    return {what}


def was_it_audited(call):
    done = ["audit"] in Here.world.lines("effects")
    return Completed("audited") if done else NotApplied()


@checkpointed_tool(verify=was_it_audited)
def audit(entry):
    effect("audit")
    return "audited"


@checkpointed_tool
def pack(box):
    effect("pack")
    return f"packed {box}"


@checkpointed_tool
def ship(box):
    pack(box)
    effect("ship")
    return f"shipped {box}"


@checkpointed_tool
def post(page):
    effect("post")
    return "posted"


@checkpointed_tool(effect="idempotent")
def publish(page):
    safely("post", "posted", post, page)
    Here.world.note("published", page)
    Here.point("body publish: end")
    return "published"


@checkpointed_tool
def order(item):
    effect("order")
    return f"ordered {item}"


@checkpointed_tool(effect="composite")
def research(topic):
    first = ask_beside(history("research"))
    safely("order", "ordered ink", order, "ink")
    last = ask_beside(history("research", first, "sum up"))
    return last["content"]


@checkpointed_tool
def refuse(reason):
    effect("refuse")
    raise ValueError(reason, 41)


@checkpointed_tool
def too_slow(job):
    effect("too_slow")
    raise TimeoutError(job)


def safely(label, expected, fn, *args):
    """Call a tool; where nobody knows whether it happened, say so and go on."""
    try:
        return fn(*args)
    except ToolOutcomeUnknownError:
        doubt(label)
        return expected


def patiently(messages):
    try:
        return ask(messages)
    except RateLimitedError:
        return ask(messages)


def with_fall_back(messages):
    try:
        return ask(messages)
    except RateLimitedError as error:
        if error.args[0] != 503:
            raise
        return ask_backup(messages)


@step_boundary
def gather_facts(session):
    plan = patiently(history("plan"))
    with ThreadPoolExecutor(2) as pool:
        bound = session.bind(safely)
        jobs = [
            pool.submit(bound, "charge", {"charged": 5}, charge, 5),
            pool.submit(bound, "notify", ("notified", "ann"), notify, "ann"),
        ]
        results = [job.result() for job in jobs]
    return plan, [*results, safely("look_up", None, look_up, "price")]


@step_boundary
def act(plan):
    backup = with_fall_back(history("plan", plan, "primary"))
    return backup, [
        safely("ship", "shipped 7", ship, 7),
        publish("p"),
        research("ink"),
        audit("entry"),
    ]


@step_boundary
def finish(plan, backup):
    text = "".join(
        chunk["choices"][0]["delta"]["content"]
        for chunk in stream(history("plan", plan, "primary", backup, "tell"))
    )
    endings = []
    for label, fn, kind in (
        ("refuse", refuse, ValueError),
        ("too_slow", too_slow, TimeoutError),
    ):
        try:
            safely(label, None, fn, "because")
        except kind as error:
            endings.append(error.args)
        else:
            endings.append("in doubt")
    return text, endings


def main(session):
    """Return the answer, which does not depend on what is in doubt."""
    clock = session.record("clock", lambda: 1234)
    plan, facts = gather_facts(session)
    backup, done = act(plan)
    text, _ = finish(plan, backup)
    return repr((clock, plan["content"], facts, backup["content"], done, text))
