"""A log grows with the conversation: model requests are stored as differences."""

from __future__ import annotations

import copy
import json

import orjson
import pytest

from durable_agent import (
    CheckpointPolicy,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    session,
)
from durable_agent._arguments import arguments_of
from durable_agent._memory import MemoryStore

ONE_KB = "x" * 960


@checkpointed_llm
def ask(messages, system=""):
    return {"role": "assistant", "content": f"[A{len(messages)}]{ONE_KB}"}


@checkpointed_llm
def ask_anyhow(**kwargs):
    return {"role": "assistant", "content": f"[A{len(kwargs['input'])}]{ONE_KB}"}


@pytest.fixture
def store():
    return MemoryStore()


def opened(store, id_="s", how=session):
    return how(id_, store=store, policy=CheckpointPolicy.none())


def stored(store, id_="s"):
    """The log as it lies there."""
    with inspect_session(id_, store=store) as looked:
        return list(looked._log.read())


def text_of(events):
    return b"\n".join(event.raw for event in events).decode()


def size_of(store):
    (info,) = store.list()
    return info.size


def shown(store, id_="s"):
    """The requests' arguments as readers see them."""
    with inspect_session(id_, store=store) as looked:
        return [e.data["args"] for e in looked.events() if e.type == "llm/request"]


def user(n, **more):
    return {"role": "user", "content": f"[U{n}]{ONE_KB}", **more}


def plain(messages, n):
    messages.append(user(n))


def rebuilt(messages, n):
    messages[:] = json.loads(json.dumps(messages))
    messages.append(user(n))


def mark_on_message(messages, n):
    for message in messages:
        message.pop("cache_control", None)
    messages.append(user(n, cache_control={"type": "ephemeral"}))


def mark_on_block(messages, n):
    for message in messages:
        if isinstance(message["content"], list):
            message["content"][-1].pop("cache_control", None)
    block = {"type": "text", "text": f"[U{n}]{ONE_KB}"}
    block["cache_control"] = {"type": "ephemeral"}
    messages.append({"role": "user", "content": [block]})


def run(store, turns, add, asked=ask, how=session):
    messages, sent = [], []
    with opened(store, how=how):
        for n in range(turns):
            add(messages, n)
            sent.append(copy.deepcopy(messages) if turns <= 100 else None)
            if asked is ask:
                answer = ask(messages)
            else:
                answer = ask_anyhow(model="m", input=messages)
            messages.append(answer)
    return messages, sent


def assert_each_body_once(store, turns):
    text = text_of(stored(store))
    marks = [f"[U{n}]" for n in range(turns)]
    marks += [f"[A{2 * n + 1}]" for n in range(turns)]

    assert {m: text.count(m) for m in marks if text.count(m) != 1} == {}


@pytest.mark.parametrize(
    "add", [pytest.param(plain, marks=pytest.mark.slow), mark_on_block]
)
def test_a_thousand_turns_of_2_kb_cost_no_more_than_half_as_much_again(store, add):
    """Stored whole, they would cost five hundred times as much."""
    messages, _ = run(store, 1000, add)

    assert size_of(store) <= 1.5 * len(orjson.dumps(messages))
    assert_each_body_once(store, 1000)
    assert shown_last(store) == messages[:-1]


def shown_last(store):
    with inspect_session("s", store=store) as looked:
        requests = [e for e in looked._log.read() if e.type == "llm/request"]
        return arguments_of(looked._log, requests[-1])["messages"]


@pytest.mark.parametrize("asked", [ask, ask_anyhow])
@pytest.mark.parametrize("add", [plain, rebuilt, mark_on_message, mark_on_block])
def test_each_body_is_stored_once(store, add, asked):
    messages, sent = run(store, 60, add, asked)

    assert_each_body_once(store, 60)
    assert size_of(store) <= 1.5 * len(orjson.dumps(messages))
    name = "messages" if asked is ask else "input"
    found = [args.get("kwargs", args)[name] for args in shown(store)]
    assert found == sent


@checkpointed_tool
def look(n):
    return f"[T{n}]{2 * ONE_KB}"


@checkpointed_tool
def table(n):
    return {"rows": [{"id": n, "text": f"[J{n}]{2 * ONE_KB}é"}, None, 1.5]}


@checkpointed_llm
def plan(messages):
    n = len(messages)
    function = {"name": "look", "arguments": json.dumps({"n": n})}
    calls = [{"id": f"call-{n}", "type": "function", "function": function}]
    message = {"role": "assistant", "content": f"[P{n}]{ONE_KB}", "tool_calls": calls}
    return {"id": f"r{n}", "choices": [{"index": 0, "message": message}]}


@pytest.mark.parametrize(
    "show",
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, separators=(",", ":")),
        lambda value: orjson.dumps(value).decode(),
    ],
    ids=["json", "json-utf8", "compact", "compact-utf8"],
)
def test_tool_calls_and_results_are_stored_once(store, show):
    """A structured result too: the request has its JSON text."""
    messages = [user(0)]
    marks = ["[U0]"]
    with opened(store):
        for _ in range(40):
            n = len(messages)
            message = plan(messages)["choices"][0]["message"]
            messages.append(message)
            answers = [look(n), show(table(n))]
            messages += [
                {"role": "tool", "tool_call_id": f"call-{n}", "content": text}
                for text in answers
            ]
            marks += [f"[P{n}]", f"[T{n}]", f"[J{n}]"]
    text = text_of(stored(store))

    assert {m: text.count(m) for m in marks if text.count(m) != 1} == {}
    assert size_of(store) <= 1.5 * len(orjson.dumps(messages))
    assert shown(store)[-1]["messages"] == messages[:n]


@checkpointed_llm
def speak(messages):
    words = [f"[W{len(messages)}]", *("word " * 40 for _ in range(9)), "end"]
    yield {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
    for word in words:
        yield {"id": "c", "choices": [{"index": 0, "delta": {"content": word}}]}
    yield {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def test_the_text_of_a_stream_is_stored_in_its_chunks_only(store):
    """Where chunks are so small that they weigh ten times their text, once more."""
    messages = []
    with opened(store):
        for n in range(20):
            messages.append(user(n))
            deltas = [chunk["choices"][0]["delta"] for chunk in speak(messages)]
            text = "".join(delta.get("content", "") for delta in deltas)
            messages.append({"role": "assistant", "content": text})
        messages.append(user(20))
        ask(messages)
    text = text_of(e for e in stored(store) if e.type == "llm/request")

    assert shown(store)[-1]["messages"] == messages
    assert "word word" not in text
    assert "[W" not in text


def test_agents_of_one_function_stay_apart(store):
    """They share a long beginning; neither takes the other's place."""
    system = {"role": "system", "content": "[S]" + 8 * ONE_KB}
    agents = {name: [system] for name in "XYZ"}
    with opened(store):
        for n in range(30):
            for name, messages in agents.items():
                messages.append({"role": "user", "content": f"[{name}{n}]{ONE_KB}"})
                messages.append(ask(messages, system=name))
    text = text_of(stored(store))
    marks = ["[S]", *(f"[{name}{n}]" for name in agents for n in range(30))]

    assert {m: text.count(m) for m in marks if text.count(m) != 1} == {}


def test_agents_that_move_their_marks_stay_apart(store):
    agents = {name: [] for name in "TUVWXYZ"}
    with opened(store):
        for n in range(9):
            for name, messages in agents.items():
                mark_on_block(messages, f"{name}{n}")
                messages.append(ask(messages, system=name))
    text = text_of(stored(store))
    marks = [f"[U{name}{n}]" for name in agents for n in range(9)]

    assert {m: text.count(m) for m in marks if text.count(m) != 1} == {}


def test_a_conversation_that_goes_on_after_a_reopening_stores_nothing_again(store):
    messages = []
    for n in range(10):
        with opened(store, how=conversation):
            for k in range(3):
                mark_on_block(messages, 3 * n + k)
                messages.append(ask(messages))

    assert_each_body_once(store, 30)
    assert shown(store)[-1]["messages"] == messages[:-1]


def test_agents_that_took_turns_stay_apart_after_a_reopening(store):
    system = {"role": "system", "content": "[S]" + 8 * ONE_KB}
    agents = {name: [system] for name in "XYZ"}
    for n in range(6):
        with opened(store, how=conversation):
            for name, messages in agents.items():
                messages.append({"role": "user", "content": f"[{name}{n}]{ONE_KB}"})
                messages.append(ask(messages, system=name))
    text = text_of(stored(store))
    marks = ["[S]", *(f"[{name}{n}]" for name in agents for n in range(6))]

    assert {m: text.count(m) for m in marks if text.count(m) != 1} == {}


def test_a_long_text_beside_the_messages_is_stored_once(store):
    messages = []
    with opened(store):
        for n in range(10):
            plain(messages, n)
            messages.append(ask(messages, system="[SYSTEM]" + ONE_KB))

    assert text_of(stored(store)).count("[SYSTEM]") == 1


class Counting:
    """A log whose reads are counted."""

    def __init__(self, log):
        self._log = log
        self.report = log.report
        self.gets = self.bytes = 0

    def get(self, seq):
        event = self._log.get(seq)
        self.gets += 1
        self.bytes += len(event.raw)
        return event


def reads_of(store, every=1):
    """(size, gets, bytes) of reading requests back, one by one."""
    with inspect_session("s", store=store) as looked:
        requests = [e for e in looked._log.read() if e.type == "llm/request"]
        for event in [*requests[::every], requests[-1]]:
            log = Counting(looked._log)
            size = len(orjson.dumps(arguments_of(log, event)))
            yield size, log.gets, log.bytes + len(event.raw)


def test_reading_a_request_of_a_sliding_window_costs_what_it_holds(store):
    """5,000 turns are behind it, 20 messages are in it."""
    messages = []
    with opened(store):
        for n in range(5000):
            messages.append({"role": "user", "content": f"[U{n}]" + "y" * 200})
            del messages[:-20]
            messages.append(ask(messages))
            del messages[:-20]
    reads = list(reads_of(store, every=97))

    assert max(gets for _, gets, _ in reads) <= 300
    assert [r for r in reads if r[2] > 8 * r[0] + 8192] == []
    assert size_of(store) <= 3 * 5000 * len(orjson.dumps(messages[-2:]))


def test_reading_a_request_of_a_growing_conversation_costs_what_it_holds(store):
    run(store, 300, plain)
    reads = list(reads_of(store, every=50))

    assert [r for r in reads if r[2] > 2 * r[0] + 8192] == []


def test_small_messages_after_large_responses_are_not_read_at_any_price(store):
    """A response's usage and logprobs may be a hundred times its text."""

    @checkpointed_llm
    def chatty(messages):
        text = f"{len(messages)} " + "z" * 70
        return {"text": text, "logprobs": [0.5] * 2000}

    messages = []
    with opened(store):
        for n in range(60):
            messages.append({"role": "user", "content": f"{n}"})
            answer = chatty(messages)
            messages.append({"role": "assistant", "content": answer["text"]})

    assert [r for r in reads_of(store) if r[2] > 8 * r[0] + 8192] == []
