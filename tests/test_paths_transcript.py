"""The conversation in a log: which one it is, and a result for every tool call."""

import asyncio
import dataclasses
import sys
import types

import pytest

from durable_agent import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    ArgumentNotStorableError,
    NotApplied,
    TranscriptError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    register_control_flow,
    session,
    tool_call_id,
)
from durable_agent._identity import first_difference, same_arguments, short_id
from durable_agent.transcript import (
    calls_in,
    continues,
    is_final_chunk,
    messages_in,
    openai_chat,
    turn_of,
)
from tests.disks import crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def user(text):
    return {"role": "user", "content": text}


def wanted(name, arguments="{}", id_="t1"):
    return {"id": id_, "function": {"name": name, "arguments": arguments}}


def answers(*calls, name="ask", **options):
    """Make a model that asks for these tool calls."""

    @checkpointed_llm(name=name, **options)
    def ask(messages):
        RAN.append(name)
        if not calls:
            return {"role": "assistant", "content": f"re: {messages[-1]['content']}"}
        return {"role": "assistant", "tool_calls": list(calls)}

    return ask


@checkpointed_tool(name="tool")
def tool(n=1):
    RAN.append(n)
    return n


def results(messages):
    """Return the texts of the tool results at the end, by tool call id."""
    return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}


# which conversation --------------------------------------------------------------


def test_the_conversation_of_a_function_that_has_none_is_an_error(root):
    with session("s", root=root) as s:
        assert s.messages() == []
        answers()([user("a")])
        with pytest.raises(TranscriptError, match="other"):
            s.messages(of="other")


def test_several_conversations_are_never_guessed(root):
    one, two = answers(name="one"), answers(name="two")
    with session("s", root=root) as s:
        one([user("a")])
        two([user("b")])
        with pytest.raises(TranscriptError, match="one, two"):
            s.messages()
        assert s.messages(of=one)[0] == s.messages(of="one")[0] == user("a")
        assert s.messages(of=two)[0] == user("b")


def test_functions_that_continue_one_another_are_one_conversation(root):
    """A sync and an async client, or a dear model after a cheap one."""
    one, two = answers(name="one"), answers(name="two")
    with session("s", root=root) as s:
        one([user("a")])
        longer = [*s.messages(), user("b")]
        two(longer)
        assert s.messages()[:3] == longer
        assert s.messages()[-1]["content"] == "re: b"


def test_side_requests_are_kept_out(root):
    with session("s", root=root) as s:
        answers()([user("a")])
        answers(name="title", transcript=False)([user("a title, please")])

        assert s.messages()[0] == user("a")


def test_a_function_may_be_named_by_itself_or_undecorated(root):
    def plain(messages):
        return {"role": "assistant", "content": "yes"}

    ask = checkpointed_llm(plain)
    with session("s", root=root) as s:
        ask([user("a")])
        answers(name="other")([user("b")])

        assert s.messages(of=ask)[0] == s.messages(of=plain)[0] == user("a")


def test_only_known_dialects_are_shown(root):
    with session("s", root=root) as s, pytest.raises(ValueError, match="'klingon'"):
        s.messages("klingon")


def test_a_request_that_cannot_be_rebuilt_here_leaves_the_rest_readable(root):
    """A type that is not loaded stands for itself, not for the whole conversation."""
    module = types.ModuleType("gone_tomorrow")
    module.Style = dataclasses.make_dataclass("Style", ["name"])
    module.Style.__module__ = module.__name__
    sys.modules[module.__name__] = module

    @checkpointed_llm(name="ask")
    def ask(messages, style):
        return {"role": "assistant", "content": "yes"}

    try:
        with session("s", root=root):
            ask([user("a")], module.Style("terse"))
    finally:
        del sys.modules[module.__name__]

    with inspect_session("s", root=root) as looked:
        assert [m["content"] for m in looked.messages()] == ["a", "yes"]


# a result for every call ---------------------------------------------------------


def test_the_text_of_an_error_is_never_empty(root):
    ask = answers(wanted("first"), wanted("second", id_="t2"))

    def fails(name, error):
        @checkpointed_tool(name=name)
        def failing():
            raise error

        return failing

    with session("s", root=root) as s:
        ask([user("a")])
        for name, error in (("first", ValueError()), ("second", OSError("no disk"))):
            with pytest.raises(type(error)):
                fails(name, error)()

        assert results(s.messages()) == {"t1": "ValueError", "t2": "OSError: no disk"}


def test_a_tool_call_is_said_to_be_not_started_only_where_that_is_known(root):
    """A later call that answers no tool call might have been it."""
    ask = answers(wanted("tool", '{"n": 9}'))
    with session("s", root=root) as s:
        ask([user("a")])
        assert TOOL_NOT_STARTED in results(s.messages())["t1"]
        tool()
        text = results(s.messages())["t1"]

    assert TOOL_NOT_STARTED not in text
    assert TOOL_OUTCOME_UNKNOWN in text


def test_a_call_whose_outcome_is_no_value_is_shown_as_unknown(root):
    class Pause(Exception):
        pass

    register_control_flow(Pause)

    @checkpointed_tool(name="pauses")
    def pauses():
        raise Pause

    with session("s", root=root) as s:
        answers(wanted("pauses"))([user("a")])
        with pytest.raises(Pause):
            pauses()

        assert TOOL_OUTCOME_UNKNOWN in results(s.messages())["t1"]


def test_a_call_that_was_resolved_as_not_applied_is_still_to_be_made(root):
    with session("s", root=root) as s:
        answers(wanted("tool"))([user("a")])
        tool()
        crash(s)
    cut(root / "s", 5)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        s.resolve(call, NotApplied())

        assert "did not take effect" in results(s.messages())["t1"]


def test_what_a_generator_gave_is_the_result_of_its_call(root):
    @checkpointed_tool(name="export")
    def export():
        yield "a"
        yield "b"

    with session("s", root=root) as s:
        answers(wanted("export"))([user("a")])
        list(export())

        assert results(s.messages()) == {"t1": '["a","b"]'}


def test_what_the_model_was_told_stays_the_result(root):
    """The closers of a continued chat are in the log, and shown from there."""
    ask = answers(wanted("tool"))
    with session("s", root=root) as s:
        ask([user("a")])
        crash(s)
    with conversation("s", root=root) as s:
        s.append("app/note", 1)
        tool(7)

        assert TOOL_NOT_STARTED in results(s.messages())["t1"]


# responses and their calls -------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        {"choices": []},
        {"choices": ["text"]},
        {"choices": [{"message": {"role": "user", "content": "a"}}]},
        {"choices": [{"text": "a"}]},
        {"role": "user", "content": "a"},
        [1],
        None,
    ],
)
def test_what_is_no_assistant_turn_has_no_tool_calls(response):
    assert turn_of(response) is None
    assert calls_in(response) == []


def test_malformed_tool_calls_are_no_calls_and_their_fellows_stay(root):
    message = {
        "role": "assistant",
        "tool_calls": [
            "text",
            {"id": "t0"},
            {"id": "t1", "function": {"name": "tool", "arguments": '{"n": 1'}},
            {"id": "t2", "function": {"name": "tool", "arguments": {"n": 2}}},
            {"id": "t3", "function": {"name": "tool", "arguments": ""}},
            {"id": "t3", "function": {"name": "tool", "arguments": "[]"}},
            {"function": {"name": "tool"}},
        ],
    }
    found = calls_in({"choices": [{"message": message}]})

    assert [(c.id, c.arguments, c.token) for c in found] == [
        ("t1", None, "t1"),
        ("t2", {"n": 2}, "t2"),
        ("t3", {}, "t3"),
        ("t3", None, "t3#2"),
        (None, None, "#1"),
    ]
    assert calls_in({"role": "assistant", "tool_calls": "text"}) == []


def test_arguments_that_cannot_be_parsed_match_no_call(root):
    """It gets a result all the same: it is in the exported message."""
    with session("s", root=root) as s:
        answers(wanted("tool", '{"n": 1'))([user("a")])
        tool(1)
        (intent,) = [e for e in s.events() if e.type == "tool/call"]
        assert "tcid" not in intent.meta
        assert list(results(s.messages())) == ["t1"]


def test_the_messages_of_a_request_are_found_where_a_client_takes_them():
    messages = [user("a")]

    assert messages_in({"messages": messages, "other": [user("b")]}) == messages
    assert messages_in({"model": "m", "prompt": messages}) == messages
    assert messages_in({"body": {"messages": messages}}) == messages
    assert messages_in({"n": [1], "empty": [], "text": "a"}) == []


def test_what_may_move_between_requests_is_not_compared():
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    old = [{"role": "user", "content": [marked], "id": "1", "name": None}]
    new = [{"role": "user", "content": [{"type": "text", "text": "a"}], "id": "2"}]

    assert continues(openai_chat, old, [*new, user("b")])
    assert not continues(openai_chat, old, [])
    assert not continues(openai_chat, [], new)
    assert not continues(openai_chat, old, [user("b")])
    assert openai_chat.comparable("text") == "text"


def test_the_final_chunk_is_known_in_both_forms():
    def sdk(reason):
        return types.SimpleNamespace(
            choices=[types.SimpleNamespace(finish_reason=reason)]
        )

    assert is_final_chunk(sdk("stop"))
    assert not is_final_chunk(sdk(None))
    assert is_final_chunk({"choices": [{"finish_reason": "stop"}]})
    assert not is_final_chunk({"choices": []})
    assert not is_final_chunk("text")


# which tool call is answered -----------------------------------------------------


def test_a_long_tool_call_id_is_found_again(root):
    """Heads stay short: such an id is recorded by its hash."""
    long, other = "x" * 5000, "x" * 4999 + "y"
    ask = answers(wanted("tool", '{"n": 1}', long), wanted("tool", '{"n": 1}', other))

    def run():
        with session("s", root=root) as s:
            ask([user("a")])
            with tool_call_id(other):
                assert tool(1) == 1
            return s.in_doubt(), list(results(s.messages()))

    first, again = run(), run()

    assert first == again == ([], [long, other])
    assert RAN == ["ask", 1]
    assert short_id(long) != short_id(other)
    assert len(short_id(long)) < 64


def test_a_tool_call_whose_outcome_is_an_error_may_be_claimed_again(root):
    tries = []

    @checkpointed_tool(name="flaky")
    def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("busy")
        return "done"

    with session("s", root=root) as s:
        answers(wanted("flaky"))([user("a")])
        with pytest.raises(ValueError, match="busy"):
            flaky()
        assert results(s.messages()) == {"t1": "ValueError: busy"}
        flaky()
        assert results(s.messages()) == {"t1": "done"}
        attempts = [e.meta["attempt"] for e in s.events() if e.type == "tool/call"]
    assert attempts == [1, 2]


def test_an_id_that_the_response_does_not_have_is_taken_as_said(root):
    with session("s", root=root) as s:
        answers(wanted("tool"))([user("a")])
        with tool_call_id("elsewhere"):
            tool(1)
        (intent,) = [e for e in s.events() if e.type == "tool/call"]

    assert intent.meta["tcid"] == "elsewhere"


def test_a_call_said_twice_for_one_tool_call_is_another_attempt_at_it(root):
    with session("s", root=root) as s:
        answers(wanted("tool", '{"n": 1}'))([user("a")])
        for _ in range(2):
            with tool_call_id("t1"):
                tool(1)
        calls = [e for e in s.events() if e.type == "tool/call"]

    assert [c.meta["attempt"] for c in calls] == [1, 2]
    assert len({c.call for c in calls}) == 1


def test_old_responses_are_forgotten_and_the_last_is_not(root):
    """A long chat does not hold every response it ever had."""
    ask = answers(wanted("tool", '{"n": 1}'))
    with session("s", root=root) as s:
        for n in range(258):
            ask([user(str(n))])
        tool(1)
        assert len(s._core.claims) == 256
        (intent,) = [e for e in s.events() if e.type == "tool/call"]
    assert intent.meta["tcid"] == "t1"


# identity ------------------------------------------------------------------------


def test_a_key_that_cannot_be_recorded_stops_before_the_body(root):
    @checkpointed_tool(key=lambda bound: object())
    def keyed(n):
        RAN.append(n)

    with session("s", root=root), pytest.raises(ArgumentNotStorableError, match="key="):
        keyed(1)
    assert RAN == []


def test_a_key_that_names_an_absent_argument_stops_before_the_body(root):
    @checkpointed_tool(key="order")
    def keyed(**fields):
        RAN.append(fields)

    async def main():
        async with session("s", root=root):
            with pytest.raises(TypeError, match="'order'"):
                keyed(n=1)
            keyed(order=7)

    asyncio.run(main())
    assert RAN == [{"order": 7}]


def test_a_parameter_that_is_gone_makes_another_call():
    """What it was is recorded, and the code cannot say that it would be the same."""
    assert not same_arguments({"to": "ann", "cc": "ben"}, {"to": b'"ann"'}, frozenset())
    assert not same_arguments({"to": "ann"}, {"to": b'"ben"'}, frozenset())
    now = {"to": b'"ann"', "cc": b"null"}
    assert same_arguments({"to": "ann"}, now, frozenset({"cc"}))
    assert not same_arguments({"to": "ann"}, now, frozenset())


@pytest.mark.parametrize(
    ("recorded", "now", "difference"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ("a.b[1].c", 2, 3)),
        ({"a": 1}, {"b": 1}, ("a", 1, "(absent)")),
        ({}, {"b": 1}, ("b", "(absent)", 1)),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, ("a.length", 2, 3)),
        ({"a": [1, 2]}, {"a": [1, 2]}, None),
        ({"a": []}, {"a": {}}, ("a", [], {})),
    ],
)
def test_the_first_difference_is_named_by_its_path(recorded, now, difference):
    assert first_difference(recorded, now) == difference
