"""Steps and conversations: what is durable before, and what a crash leaves open."""

import asyncio
import warnings

import pytest

from durable_agent import (
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    register_control_flow,
    session,
    step_boundary,
)
from tests.disks import crash, cut

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


def user(text):
    return {"role": "user", "content": text}


def wants(*calls):
    """Return an assistant message that asks for these tool calls."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": id_,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for id_, name, arguments in calls
        ],
    }


@checkpointed_llm(name="ask")
def ask(messages):
    RAN.append("ask")
    return ANSWERS.get(messages[-1]["content"]) or {
        "role": "assistant",
        "content": f"re: {messages[-1]['content']}",
    }


ANSWERS = {
    "go": wants(
        ("call-1", "tool", {"n": 1}),
        ("call-2", "tool", {"n": 2}),
        ("call-3", "tool", {"n": 3}),
    )
}


def types(root, id_="s"):
    with inspect_session(id_, root=root) as looked:
        return [event.type for event in looked.events()]


def marks(root):
    with inspect_session("s", root=root) as looked:
        return [
            (e.type, e.meta["name"], e.meta["n"], e.meta.get("ok"))
            for e in looked.events()
            if e.type.startswith("step/")
        ]


def test_a_step_is_marked_and_numbered(root):
    with session("s", root=root):
        for _ in range(2):
            with step_boundary("plan"):
                tool(1)
        with pytest.raises(KeyError), step_boundary("act"):
            raise KeyError(1)

    assert marks(root) == [
        ("step/start", "plan", 1, None),
        ("step/end", "plan", 1, True),
        ("step/start", "plan", 2, None),
        ("step/end", "plan", 2, True),
        ("step/start", "act", 1, None),
        ("step/end", "act", 1, False),
    ]


def test_a_step_works_as_every_kind_of_function_and_block(root):
    @step_boundary
    def plain():
        return tool(1)

    @step_boundary("named")
    async def coroutine():
        return tool(2)

    @step_boundary
    def generator():
        yield tool(3)

    @step_boundary
    async def agenerator():
        yield tool(4)

    async def main():
        async with session("s", root=root):
            got = [plain(), await coroutine(), *generator()]
            got += [n async for n in agenerator()]
            async with step_boundary("block"):
                got.append(tool(5))
            return got

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]
    assert len(marks(root)) == 10


def test_what_came_before_is_durable_when_a_step_begins(root):
    with session("s", root=root) as s:
        s.record("clock", lambda: 1)
        with step_boundary("one"):
            assert s._core.log.durable == s.seq


def test_a_step_whose_tool_raised_is_not_done(root):
    """What succeeded replays, what ended the run is made again, by its effect."""

    @checkpointed_tool(name="look", effect="read_only")
    def look(n):
        RAN.append("look")
        if len(RAN) == 2:
            raise ValueError(n)
        return n

    @step_boundary
    def step():
        return tool(1), look(2)

    def run():
        with session("s", root=root):
            return step()

    with pytest.raises(ValueError, match="2"):
        run()
    with inspect_session("s", root=root) as looked:
        assert not looked.finished

    assert run() == (1, 2)
    assert RAN == [1, "look", "look"]


def test_a_replayed_run_appends_no_marks(root):
    def run():
        with session("s", root=root), step_boundary("one"):
            tool(1)

    run()
    before = types(root)
    with pytest.warns(FinishedSessionWarning):
        run()

    assert types(root) == before


def test_marks_of_a_run_that_goes_on_live_come_before_its_first_event(root):
    """New code around old calls: the marks wait until something is recorded."""
    with session("s", root=root) as s:
        tool(1)
        crash(s)
    with session("s", root=root), step_boundary("new"):
        assert tool(1) == 1
        tool(2)

    assert types(root)[4:] == [
        "run/start",
        "step/start",
        "tool/call",
        "tool/result",
        "step/end",
        "run/end",
    ]


def test_a_conversation_closes_what_a_crash_left_open(root):
    """Durably, before anything else; and then it goes on."""
    with session("s", root=root) as s:
        step = step_boundary("step")
        step.__enter__()
        ask([user("go")])
        tool(1)
        tool(2)
        crash(s)
    cut(root / "s", 8)
    RAN.clear()

    with conversation("s", root=root) as s:
        before = s.messages()
        assert len(types(root)) == 8
        tool_texts = [m["content"] for m in before if m["role"] == "tool"]
        answer = ask([*before, user("and now?")])
        after = s.messages()

    assert RAN == ["ask"]
    assert answer["content"] == "re: and now?"
    assert [m.get("tool_call_id") for m in before[2:]] == ["call-1", "call-2", "call-3"]
    assert tool_texts[0] == "1"
    assert "may or may not" in tool_texts[1]
    assert "never started" in tool_texts[2]
    assert after[: len(before)] == before
    assert types(root)[8:] == [
        "run/start",
        "tool/result",
        "tool/result",
        "step/end",
        "llm/request",
        "llm/response",
        "run/end",
    ]


def test_a_conversation_that_is_only_looked_at_writes_nothing(root):
    with session("s", root=root) as s:
        ask([user("go")])
        tool(1)
        crash(s)
    before = types(root)

    with conversation("s", root=root) as s:
        assert len(s.messages()) == 5

    assert types(root) == before


def test_a_second_crash_during_recovery_changes_nothing(root):
    """Closing is idempotent: at most one outcome an attempt."""
    with session("s", root=root) as s:
        ask([user("go")])
        tool(1)
        tool(2)
        crash(s)
    cut(root / "s", 7)
    with conversation("s", root=root) as s:
        history = s.messages()
        ask([*history, user("a")])
        crash(s)
    events = types(root)
    for kept in range(8, len(events)):
        cut(root / "s", kept)
        with conversation("s", root=root) as s:
            assert s.messages()[: len(history)] == history
            assert s.in_doubt() == [] or s.recovery.closed > 0
    with conversation("s", root=root) as s:
        ask([*s.messages(), user("b")])
    with inspect_session("s", root=root) as looked:
        ends = [
            (e.call, e.meta["attempt"])
            for e in looked.events()
            if e.type == "tool/result" and e.call
        ]

    assert len(ends) == len(set(ends))


def test_nothing_replays_in_a_conversation(root):
    with conversation("s", root=root):
        tool(1)
    with conversation("s", root=root):
        tool(1)

    assert RAN == [1, 1]


def test_a_chat_that_asks_for_its_history_continues_under_session(root):
    with session("s", root=root) as s:
        ask([user("go")])
        tool(1)
        tool(2)
        crash(s)
    cut(root / "s", 7)
    RAN.clear()

    with session("s", root=root) as s, warnings.catch_warnings():
        warnings.simplefilter("error")
        history = s.messages()
        ask([*history, user("and now?")])
        tool(2)

    assert RAN == ["ask", 2]
    assert "may or may not" in history[3]["content"]


def test_the_comparison_ignores_cache_marks_and_drawn_ids(root):
    with session("s", root=root) as s:
        ask([{**user("a"), "id": "m1", "cache_control": {"type": "ephemeral"}}])
        crash(s)
    RAN.clear()

    with session("s", root=root) as s, warnings.catch_warnings():
        warnings.simplefilter("error")
        history = [
            {k: v for k, v in m.items() if k != "cache_control"} for m in s.messages()
        ]
        ask([*({**m, "id": f"new {n}"} for n, m in enumerate(history)), user("b")])

    assert RAN == ["ask"]


def test_results_answer_the_calls_of_their_own_response(root):
    """Servers restart their ids; pairing is within one response."""
    with session("s", root=root) as s:
        ask([user("go")])
        for n in (1, 2, 3):
            tool(n)
        ask([*s.messages(), user("go")])
        for n in (3, 2, 1):
            tool(n)
        messages = s.messages()

    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "1",
        "2",
        "3",
        "1",
        "2",
        "3",
    ]


class Pause(Exception):
    pass


register_control_flow(Pause)


def test_a_step_left_by_a_pause_replays_when_it_is_entered_again(root):
    given = []

    def run(s):
        with step_boundary("node"):
            paid = tool("pay")
            if not given:
                raise Pause
            return paid, tool("ship")

    with session("s", root=root) as s:
        for _ in range(4):
            with pytest.raises(Pause):
                run(s)
        given.append(1)
        assert run(s) == ("pay", "ship")

    assert RAN == ["pay", "ship"]
    with pytest.warns(FinishedSessionWarning), session("s", root=root) as s:
        assert run(s) == ("pay", "ship")
    assert RAN == ["pay", "ship"]
