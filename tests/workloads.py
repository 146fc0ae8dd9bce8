"""Small programs that use all of the product, for faults of every kind.

Each is a function of a store and an `Agent`; it opens its sessions itself and is
deterministic, so that running it again replays. What it returns is compared with what
it returns when nothing fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from durable_agent import (
    SessionExistsError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    delete_session,
    inspect_session,
    list_sessions,
    open_session,
    session,
    step_boundary,
)


class Agent:
    """What the sessions' code is: functions that note what they do to the outside."""

    def __init__(self, outside):
        self.outside = outside

        @checkpointed_tool(ignore="session")
        def act(text, session):
            outside.body(f"act {text}", session)
            return f"done {text}"

        @checkpointed_tool(ignore="session")
        def inner(text, session):
            outside.body(f"inner {text}", session, nested=True)
            return text

        @checkpointed_tool(ignore="session")
        def outer(text, session):
            outside.body(f"outer {text}", session)
            return inner(f"{text}1", session) + inner(f"{text}2", session)

        @checkpointed_tool(ignore="session")
        async def later(text, session):
            outside.body(f"later {text}", session)
            await asyncio.sleep(0)
            return text

        @checkpointed_tool(ignore="session")
        def fail(text, session):
            outside.body(f"fail {text}", session)
            raise ValueError(text)

        @checkpointed_tool(ignore="session", durable_outcome=True)
        def sure(text, session):
            outside.body(f"sure {text}", session)
            return text

        @checkpointed_tool(ignore="session", effect="idempotent")
        def put(text, session):
            outside.body(f"put {text}", session)
            return text

        @checkpointed_llm(ignore="session")
        def ask(messages, session):
            outside.body(f"ask {len(messages)}", session)
            return {"role": "assistant", "content": f"answer {len(messages)}"}

        @checkpointed_llm(ignore="session")
        def stream(prompt, session):
            outside.body(f"stream {prompt}", session)
            for n in range(5):
                yield {"choices": [{"delta": {"content": f"{prompt} {n}"}}]}

        self.act, self.outer, self.later = act, outer, later
        self.fail, self.sure, self.stream = fail, sure, stream
        self.put, self.ask = put, ask


WORKLOADS = {}


def workload(function):
    WORKLOADS[function.__name__.replace("_", " ").strip()] = function
    return function


@workload
def one_call(store, agent):
    with session("a", store=store):
        return agent.act("1", "a")


@workload
def three_calls(store, agent):
    with session("a", store=store):
        return [agent.act(str(n), "a") for n in range(3)]


@workload
def a_call_that_fails(store, agent):
    with session("a", store=store):
        try:
            agent.fail("1", "a")
        except ValueError as error:
            failed = str(error)
        return failed, agent.act("2", "a")


@workload
def nested_calls(store, agent):
    with session("a", store=store):
        return agent.outer("1", "a"), agent.outer("2", "a")


@workload
def a_durable_outcome(store, agent):
    with session("a", store=store):
        return agent.sure("1", "a"), agent.sure("2", "a")


@workload
def idempotent_calls(store, agent):
    with session("a", store=store):
        return agent.put("1", "a"), agent.act("2", "a"), agent.put("3", "a")


@workload
def a_stream(store, agent):
    with session("a", store=store):
        return list(agent.stream("1", "a")), agent.act("2", "a")


@workload
def a_stream_closed_early(store, agent):
    with session("a", store=store):
        with contextlib.closing(agent.stream("1", "a")) as chunks:
            first = next(chunks)
        return first, agent.act("2", "a")


@workload
def threads(store, agent):
    with session("a", store=store) as s:
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(s.bind(agent.act), str(n), "a") for n in range(3)]
        return [call.result() for call in calls]


@workload
def tasks(store, agent):
    async def main():
        async with session("a", store=store):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(agent.later(str(n), "a")) for n in range(3)]
            return [task.result() for task in tasks]

    return asyncio.run(main())


@workload
def steps(store, agent):
    with session("a", store=store):
        done = []
        for n in range(2):
            with step_boundary("round"):
                done.append(agent.act(str(n), "a"))
        return done


@workload
def large_payloads(store, agent):
    with session("a", store=store):
        return agent.act("x" * 900, "a"), agent.act("y" * 900, "a")


@workload
def many_segments(store, agent):
    with session("a", store=store):
        return [agent.act(f"{n} {'z' * 200}", "a") for n in range(8)]


@workload
def values(store, agent):
    with session("a", store=store) as s:
        return s.record("now", lambda: 7), agent.act("1", "a"), s.record("r", list)


@workload
def own_events(store, agent):
    with session("a", store=store) as s:
        s.append("app/note", {"n": 1})
        s.flush()
        done = agent.act("1", "a")
        s.append("app/note", {"n": 2})
        return done


@workload
def a_chat(store, agent):
    with session("a", store=store):
        messages = []
        for n in range(4):
            messages.append({"role": "user", "content": f"{n} {'w' * 120}"})
            messages.append(agent.ask(messages, "a"))
        return messages


@workload
def a_chat_continued(store, agent):
    for n in range(3):
        with conversation("a", store=store) as s:
            messages = s.messages()
            if len(messages) > 2 * n + 1:
                continue
            if len(messages) == 2 * n:
                messages.append({"role": "user", "content": f"{n}"})
            agent.ask(messages, "a")
    with conversation("a", store=store) as s:
        return [m["content"] for m in s.messages()]


@workload
def closed_and_opened(store, agent):
    for _ in range(3):
        with session("a", store=store):
            done = agent.act("1", "a"), agent.act("2", "a")
    return done


@workload
def two_sessions(store, agent):
    with session("a", store=store):
        one = agent.act("1", "a")
        with session("b", store=store):
            two = agent.act("2", "b")
        return one, two, agent.act("3", "a")


@workload
def a_fork(store, agent):
    with session("a", store=store) as s:
        one = agent.act("1", "a")
        with contextlib.suppress(SessionExistsError):
            s.fork("f")
    with session("f", store=store):
        return one, agent.act("1", "f"), agent.act("2", "f")


@workload
def a_session_in_a_tool(store, agent):
    @checkpointed_tool
    def child():
        with session("b", store=store):
            return agent.act("1", "b")

    with session("a", store=store):
        return child(), agent.act("2", "a")


@workload
def a_notebook(store, agent):
    s = open_session("a", store=store)
    try:
        return agent.act("1", "a"), agent.act("2", "a")
    finally:
        s.close()


@workload
def looked_at_and_listed(store, agent):
    with session("a", store=store):
        done = agent.act("1", "a")
        with inspect_session("a", store=store) as seen:
            events = len(list(seen.events()))
        return done, events > 0, [info.id for info in list_sessions(store=store)]


@workload
def deleted_and_made_anew(store, agent):
    with session("b", store=store):
        agent.put("1", "b")
    store.outside.deleting("b")
    delete_session("b", store=store)
    with session("a", store=store):
        return agent.act("2", "a")
