"""Requests stored as differences, seen from sessions: whole wherever one looks."""

# ruff: noqa: PT031 - the warning comes from opening

from __future__ import annotations

import asyncio
import copy
import threading

import orjson
import pytest

from durable_agent import (
    CheckpointPolicy,
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    session,
)
from durable_agent._arguments import arguments_of
from durable_agent._memory import MemoryStore
from durable_agent.errors import LogCorruptError
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore
from tests.disks import CountingDisk

ONE_KB = "x" * 960
RAN = []


@pytest.fixture(autouse=True)
def _fresh():
    RAN.clear()


@checkpointed_llm
def ask(messages, secret="", clock=0.0):
    RAN.append(len(messages))
    return {"role": "assistant", "content": f"[A{len(messages)}]{ONE_KB}"}


@checkpointed_llm
async def aask(messages):
    return {"role": "assistant", "content": f"[A{len(messages)}]{ONE_KB}"}


@checkpointed_tool
def act(n):
    return n


def user(n):
    return {"role": "user", "content": f"[U{n}]{ONE_KB}"}


def chat(turns, messages=None, asked=ask):
    """Talk; return what was sent."""
    messages = [] if messages is None else messages
    sent = []
    for n in range(turns):
        messages.append(user(n))
        sent.append(copy.deepcopy(messages))
        messages.append(asked(messages))
    return sent


@pytest.fixture
def store():
    return MemoryStore()


def open_(store, id_="s", how=session, **options):
    return how(id_, store=store, policy=CheckpointPolicy.none(), **options)


def requests(events):
    return [e.data["args"]["messages"] for e in events if e.type == "llm/request"]


def edits(store, id_="s"):
    """How many requests are stored as differences."""
    with inspect_session(id_, store=store) as looked:
        stored = [e.data for e in looked._log.read() if e.type == "llm/request"]
    return sum("edit" in data for data in stored)


def test_events_and_observers_show_requests_whole(store):
    observed = []
    with open_(store) as s:
        s.on_event(observed.append)
        sent = chat(5)
        events = list(s.events())
        later = list(s.events(events[-1].seq - 1))
    with inspect_session("s", store=store) as looked:
        inspected = list(looked.events())

    assert edits(store) == 4
    assert requests(events) == requests(observed) == requests(inspected) == sent
    assert requests(later) == sent[-1:]
    assert [e.raw for e in observed if e.type == "llm/request"] == [
        e.raw for e in inspected if e.type == "llm/request"
    ]
    assert {*events[-2].data} == {
        *("function", "idempotency_key", "tool_call_id", "args")
    }


def test_a_replay_is_what_it_was(store):
    with open_(store):
        sent = chat(5)
    RAN.clear()
    with pytest.warns(FinishedSessionWarning), open_(store):
        again = chat(5)

    assert (again, RAN) == (sent, [])


class Reads(MemoryStore):
    """A store whose logs note which events are read."""

    def __init__(self, store):
        super().__init__()
        self._logs = store._logs
        self.types = []

    def open(self, session_id, *, lock_timeout=0.0):
        log = super().open(session_id, lock_timeout=lock_timeout)
        get, read = log.get, log.read

        def noted(seq):
            event = get(seq)
            self.types.append(event.type)
            return event

        log.get = noted
        log.peek = lambda seq: None
        log.read = lambda seq=0: self.types.append("read") or read(seq)
        return log


def test_a_replay_reads_no_request(store):
    with open_(store):
        chat(5)
    reads = Reads(store)
    with pytest.warns(FinishedSessionWarning), open_(reads):
        chat(5)

    assert {*reads.types} == {"llm/response"}


def test_the_first_request_after_a_replay_reads_the_last_few(store):
    with open_(store):
        chat(30)
    reads = Reads(store)
    with pytest.warns(FinishedSessionWarning), open_(reads):
        sent = chat(31)

    assert edits(store) == 30
    # The request is put together twice: as a base, and as the end of its chain.
    assert reads.types.count("llm/request") <= 70
    with inspect_session("s", store=store) as looked:
        assert requests(looked.events())[-1] == sent[-1]


def test_what_reading_costs_is_known_again_after_a_reopening(store):
    """Else a log would never be told that its chain is long."""

    def cost(s):
        (requests,) = s._core.edits._requests.values()
        return requests[-1].cost

    with open_(store) as s:
        sent = chat(30)
        before = cost(s)
    with open_(store, how=conversation) as s:
        ask([*sent[-1], user(31)])
        after = cost(s)

    assert before > 60_000
    assert before < after < before + 10_000


def test_a_fresh_session_reads_nothing(store):
    reads = Reads(store)
    with open_(reads):
        chat(5)

    assert reads.types == []


def test_what_is_read_again_is_read_beside_the_loop(tmp_path):
    disk = CountingDisk()
    store = JsonlStore(tmp_path, fs=disk)
    messages = []

    async def main(how):
        async with how("s", store=store):
            disk.threads.clear()
            messages.append(user(len(messages)))
            messages.append(await aask(messages))
            return threading.get_ident(), list(disk.threads)

    asyncio.run(main(session))
    here, operations = asyncio.run(main(conversation))
    reads = {thread for name, thread in operations if "read" in name}

    assert edits(store) == 1
    assert reads
    assert here not in {thread for _, thread in operations}


def test_a_fork_reads_its_own_requests(store):
    with open_(store) as s:
        sent = chat(6)
        at = [e.seq for e in s.events() if e.type == "llm/request"][3]
        s.fork("t", at=at)
    store.delete("s")
    messages = [*sent[3], {"role": "assistant", "content": "another"}]
    with open_(store, "t", conversation):
        more = chat(2, messages)

    with inspect_session("t", store=store) as looked:
        assert requests(looked.events()) == [*sent[:4], *more]
    assert edits(store, "t") == 5


def test_payloads_that_lie_aside_serve_as_well(tmp_path):
    """The base, an outcome and an edit are each in a file of their own."""
    store = JsonlStore(tmp_path, blob_bytes=500, roll_bytes=4000)
    with open_(store):
        sent = chat(6)
    with open_(store, how=conversation):
        sent += chat(2, [*sent[-1], {"role": "assistant", "content": "x"}])

    assert edits(store) == 7
    with inspect_session("s", store=store) as looked:
        assert requests(looked.events()) == sent


def test_redacted_and_ignored_arguments_stay_so(store):
    @checkpointed_llm(redact=("secret",), ignore=("clock",))
    def told(messages, secret, clock):
        return "ok"

    messages = []
    with open_(store) as s:
        for n in range(4):
            messages.append(user(n))
            told(messages, f"password-{n}" * 20, clock=n)
        shown = [e.data["args"] for e in s.events() if e.type == "llm/request"]
    with inspect_session("s", store=store) as looked:
        raw = b"".join(e.raw for e in looked._log.read())

    assert edits(store) == 3
    assert b"password" not in raw
    assert {*shown[-1]} == {"messages", "secret"}
    assert shown[-1]["secret"] == {"$redacted": True}


def test_a_request_that_differs_by_a_new_parameter_at_its_default_replays(store):
    def first(messages):
        RAN.append(1)
        return "one"

    def second(messages, temperature=0.5):
        RAN.append(2)
        return "two"

    messages = [user(n) for n in range(3)]
    with open_(store):
        old = checkpointed_llm(name="f")(first)
        old(messages[:2])
        assert old(messages) == "one"
    with pytest.warns(FinishedSessionWarning), open_(store):
        new = checkpointed_llm(name="f")(second)
        new(messages[:2])
        assert new(messages) == "one"

    assert (RAN, edits(store)) == ([1, 1], 1)


def test_two_functions_and_requests_in_threads(store):
    """Whoever is first appended may be another's base; no edit names a later event."""
    other = checkpointed_llm(name="other")(lambda messages: "ok" + ONE_KB)
    sent = {n: [user(0), user(n)] for n in range(1, 9)}
    with open_(store) as s:
        ask([user(0)])

        def work(n):
            for k in range(5):
                sent[n].append({"role": "assistant", "content": f"{n}.{k} {ONE_KB}"})
                (ask if n % 2 else other)(list(sent[n]))

        workers = [threading.Thread(target=s.bind(work), args=(n,)) for n in sent]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seqs = [(e.seq, e.data["args"]["messages"]) for e in s.events()
                if e.type == "llm/request"]  # fmt: skip
    shown = [messages for _, messages in seqs[1:]]

    assert len(shown) == 40
    for messages in sent.values():
        assert all(messages[: 3 + k] in shown for k in range(5))


def test_objects_of_sdks_are_compared_as_they_are_recorded(store):
    from openai.types.chat import ChatCompletion, ChatCompletionMessage

    @checkpointed_llm
    def complete(messages):
        n = len(messages)
        message = ChatCompletionMessage(role="assistant", content=f"[A{n}]{ONE_KB}")
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return ChatCompletion(
            id="c", created=1, model="m", object="chat.completion", choices=[choice]
        )

    messages, sent = [], []
    with open_(store):
        for n in range(20):
            messages.append(user(n))
            sent.append(list(messages))
            messages.append(complete(messages).choices[0].message)
    with inspect_session("s", store=store) as looked:
        raw = b"".join(e.raw for e in looked._log.read()).decode()
    with open_(store, how=conversation) as s:
        calls = [s._core.history.slots[n] for n in (0, 19)]
        args = arguments_of(s._core.log, calls[1].intent)

    assert [n for n in range(20) if raw.count(f"[U{n}]") != 1] == []
    assert [n for n in range(20) if raw.count(f"[A{2 * n + 1}]") != 1] == []
    assert len(args["messages"]) == 39


def test_a_damaged_base_is_refused_wherever_one_looks(store):
    log = store.open("s")
    raw = b'{"function":"f","idempotency_key":"k","tool_call_id":null,'
    raw += b'"edit":{"base":7,"crc":"00000000"},"args":{"messages":{"$edit":[]}}}'
    meta = {"name": "tests.test_edits_sessions:ask", "attempt": 1}
    log.append(
        [
            Draft("session/start", b'{"format":1,"id":"s"}', meta={"uids": [[0, "u"]]}),
            Draft("run/start", b"{}", meta={"epoch": 1}),
            Draft("llm/request", raw, "c", "k", meta),
        ]
    )
    log.flush(2)
    log.close()
    with inspect_session("s", store=store) as looked:
        with pytest.raises(LogCorruptError, match="base 7 is no earlier event"):
            list(looked.events())
        with pytest.raises(LogCorruptError) as caught:
            arguments_of(looked._log, 2)

    assert (caught.value.session, caught.value.seq) == ("s", 2)


def test_arguments_of_tools_are_as_they_were(store):
    with open_(store) as s:
        act(7)
        (event,) = [e for e in s.events() if e.type == "tool/call"]

        assert arguments_of(s._core.log, event) == {"n": 7}
        assert arguments_of(s._core.log, event.seq) == {"n": 7}
        assert orjson.loads(event.raw)["args"] == {"n": 7}


@pytest.mark.parametrize("agents", [3, 12])
def test_any_number_of_agents_of_one_function_stay_linear(store, agents):
    chats = [[user(f"agent {n}")] for n in range(agents)]
    with open_(store):
        for turn in range(12):
            for n, chat_ in enumerate(chats):
                answer = ask(chat_)
                chat_ += [answer, user(f"{n} {turn}")]
    size = sum(len(orjson.dumps(chat_)) for chat_ in chats)
    assert sum(map(len, store._logs["s"])) < 2 * size
