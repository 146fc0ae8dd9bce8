"""LangChain messages: turns, calls, streams, and results in their place."""

import sys
import types

import httpx
import pytest
from hypothesis import given
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    LLMResult,
)
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_openai import ChatOpenAI

from durable_agent.transcript import langchain
from durable_agent.transcript._types import Result, Tokens
from tests.dialect_checks import (
    ODD,
    asked,
    check_balance,
    check_whole,
    damaged,
    drawn,
    gone,
    never,
    never_raises,
)
from tests.providers import render_langchain as render
from tests.providers import render_openai_chat
from tests.providers.conversations import Call, Model, scripts

USER = HumanMessage("go on")
CALL = {"name": "search", "args": {}, "id": "t1"}


def says(*ids, content="", **more):
    calls = [{**CALL, "id": id_} for id_ in ids]
    return AIMessage(content=content, tool_calls=calls, **more)


def tool(id_, content="found", **more):
    return ToolMessage(content=content, tool_call_id=id_, **more)


def lost(id_, token=None):
    text = f"gone: {token or id_}"
    return tool(id_, text, name="search", status="error")


# Turns


HI = AIMessage("hi", id="lc_run--1")


@pytest.mark.parametrize(
    "response",
    [
        HI,
        ChatGeneration(message=HI),
        ChatResult(generations=[ChatGeneration(message=HI)]),
        LLMResult(generations=[[ChatGeneration(message=HI)]]),
        (HI, {"langgraph_node": "model"}),
    ],
    ids=lambda response: type(response).__name__,
)
def test_a_turn_is_the_very_message(response):
    held = response
    while not isinstance(held, BaseMessage):
        held = held[0] if isinstance(held, tuple | list) else held
        held = getattr(held, "message", getattr(held, "generations", held))

    (found,) = langchain.turn(response)

    assert found is held


def test_a_chunk_is_sent_as_a_message():
    pieces = [{"name": "search", "args": "{}", "id": "t1", "index": 0}]
    chunk = AIMessageChunk(content="hi", tool_call_chunks=pieces, id="m1")

    (found,) = langchain.turn(chunk)

    assert type(found) is AIMessage
    assert found == says("t1", content="hi", id="m1")


@pytest.mark.parametrize(
    "response",
    [USER, tool("t1"), [HI], {"role": "assistant", "content": "a"}, "text", {}],
    ids=repr,
)
def test_responses_of_other_forms_are_not_known(response):
    assert langchain.turn(response) is None


def test_lone_surrogates_of_a_turn_become_replacement_characters():
    call = {**CALL, "args": {"q": "\ud83c"}}
    message = AIMessage(content="a\udcb2\x00", tool_calls=[call], id="m1")

    (found,) = langchain.turn(message)

    assert (found.content, found.id) == ("a\ufffd\x00", "m1")
    assert found.tool_calls[0]["args"] == {"q": "\ufffd"}
    assert message.content == "a\udcb2\x00"


def test_a_text_alone_is_a_turn():
    assert langchain.text_turn("a\ud83c") == [AIMessage("a\ufffd")]


def body_of(messages):
    """Return the body that the chat model sends, as the bytes they are."""
    sent = []

    def reply(request):
        sent.append(request.content)
        answer = render_openai_chat.response(Model("ok"), 1)
        return httpx.Response(200, json=answer)

    client = httpx.Client(transport=httpx.MockTransport(reply))
    ask = ChatOpenAI(model="gpt-test", api_key="none", http_client=client)
    return ask.invoke(messages), sent[0]


def test_a_turn_is_sent_as_the_chat_model_sends_the_message_itself():
    """Also by its bytes: a provider's cache knows the beginning of a request."""
    answer, _ = body_of([USER])
    spoilt = Call(id="t2", arguments='{"q": 1')
    for message in (answer, render.response(Model("hi", (Call(), spoilt)), 1)):
        turn = langchain.turn(message)
        (_, own), (_, ours) = body_of([USER, message]), body_of([USER, *turn])

        assert ours == own


# Requests


def test_the_messages_of_a_request_are_found():
    messages = [USER, ("ai", "hi"), {"role": "user", "content": "a"}]

    assert langchain.request({"input": messages}) is messages
    assert langchain.request({"messages": messages}) is messages
    assert langchain.request({"messages": [messages]}) is messages
    assert langchain.request({"history": messages}) is messages
    assert langchain.request({"state": {"messages": messages}}) is messages
    assert langchain.request({"input": "go on"}) == [USER]
    assert langchain.request({"input": USER}) == [USER]
    assert langchain.request({"input": ChatPromptValue(messages=[USER])}) == [USER]
    assert langchain.request({"input": StringPromptValue(text="go on")}) == [USER]


@pytest.mark.parametrize(
    "bound", [{"text": "a"}, {"messages": [[USER], [USER]]}, {"input": 5}, {}]
)
def test_requests_of_other_forms_have_no_messages(bound):
    assert langchain.request(bound) is None


def test_an_object_among_messages_is_known():
    assert langchain.knows([("user", "a"), USER])
    assert langchain.knows([SystemMessage("a")])
    assert not langchain.knows([("user", "a"), {"role": "user", "content": "a"}])


# Calls


def test_calls_are_found_whether_or_not_they_could_be_parsed():
    message = AIMessage(
        content="",
        tool_calls=[{**CALL, "args": {"n": 1}}, {**CALL, "id": None}],
        invalid_tool_calls=[{**CALL, "id": "t1", "args": '{"q": 1', "error": None}],
    )

    assert [
        (c.id, c.name, c.arguments, c.token) for c in langchain.calls([message])
    ] == [
        ("t1", "search", {"n": 1}, "t1"),
        (None, "search", {}, "#1"),
        ("t1", "search", None, "t1#2"),
    ]


@pytest.mark.parametrize(
    "known",
    [
        {"additional_kwargs": {"tool_calls": [{"id": "t1"}, {"id": "t2"}]}},
        {
            "content": [
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "t1", "name": "search", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "search", "input": {}},
            ]
        },
        {
            "content": [
                {"type": "function_call", "call_id": "t1", "id": "fc_1"},
                {"type": "function_call", "call_id": "t2", "id": "fc_2"},
            ]
        },
    ],
)
def test_calls_have_the_order_of_the_model_where_the_message_tells_it(known):
    message = AIMessage(
        **{"content": "", **known},
        tool_calls=[{**CALL, "id": "t2"}],
        invalid_tool_calls=[{**CALL, "id": "t1", "args": "{", "error": None}],
    )

    assert [c.id for c in langchain.calls([message])] == ["t1", "t2"]


def test_calls_of_dicts_among_the_objects_are_found():
    function = {"name": "search", "arguments": '{"q": 1}'}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "t1", "type": "function", "function": function}],
    }
    (found,) = langchain.calls([message])

    assert (found.id, found.name, found.arguments) == ("t1", "search", {"q": 1})
    assert langchain.balance([message, USER], gone) == [message, lost("t1"), USER]
    answered = [message, {"role": "tool", "tool_call_id": "t1", "content": "a"}, USER]
    assert langchain.balance(answered, never) == answered


# Results


def test_results_go_directly_after_their_message_in_call_order():
    turn, there = says("t1", "t2", "t3"), tool("t2")

    found = langchain.balance([turn, USER, there], gone)

    assert found == [turn, lost("t1"), there, lost("t3"), USER]
    assert found[2] is there


def test_an_id_that_comes_again_in_a_later_turn_is_another_call():
    messages = [says("t1"), tool("t1"), USER, says("t1")]

    assert langchain.balance(messages, gone) == [*messages, lost("t1")]


def test_results_of_no_call_and_second_ones_are_left_out():
    turn = says("t1")

    assert langchain.balance(
        [tool("t1"), USER, turn, tool("t1", "1"), tool("t1", "2"), tool("t9")], never
    ) == [USER, turn, tool("t1", "1")]


@pytest.mark.parametrize("id_", ["t1", None])
def test_calls_that_share_an_id_get_a_result_each_in_order(id_):
    turn, key = says(id_, id_), id_ or ""

    assert langchain.balance([turn, USER, tool(key, "1")], gone) == [
        *(turn, tool(key, "1"), lost(key, f"{key}#2"), USER)
    ]


def test_a_value_is_the_text_of_its_message():
    _, found = langchain.balance([says("t1")], lambda *_: Result("a\x00b\ud83c"))

    assert found == tool("t1", "a\x00b\ufffd", name="search")
    assert found.status == "success"


def test_a_value_that_is_a_tool_message_is_put_as_it_is():
    own = tool("t1", artifact={"rows": 3})
    other = tool("t9", artifact={"rows": 4})

    found = langchain.balance(
        [says("t1", "t2")],
        lambda _, c: Result(
            "text", value=own if c.id == "t1" else other, has_value=True
        ),
    )

    assert found[1] is own
    assert found[2] == tool("t2", artifact={"rows": 4})
    assert other.tool_call_id == "t9"


@pytest.mark.parametrize(
    "content", [None, 5, {"a": 1}, [5], [{"type": "text", "text": float("nan")}]]
)
def test_a_tool_message_that_cannot_be_sent_is_its_text(content):
    own = ToolMessage.model_construct(content=content, tool_call_id="t1")
    answer = Result("t", value=own, has_value=True)
    _, found = langchain.balance([says("t1")], lambda *_: answer)

    assert found == tool("t1", "t", name="search")


def test_lone_surrogates_of_a_tool_message_become_replacement_characters():
    own = tool("t1", ["\ud800"], artifact=b"x")
    answer = Result("t", value=own, has_value=True)
    _, found = langchain.balance([says("t1")], lambda *_: answer)

    assert found == tool("t1", ["\ufffd"], artifact=b"x")
    assert own.content == ["\ud800"]


def test_the_message_of_a_graphs_command_is_the_result():
    own = tool("t1")
    command = types.SimpleNamespace(update={"messages": [USER, tool("t9"), own]})

    _, found = langchain.balance(
        [says("t1")], lambda *_: Result("text", value=command, has_value=True)
    )

    assert found is own


def test_a_legacy_function_call_is_answered_by_its_name():
    legacy = {"function_call": {"name": "f", "arguments": '{"a": 1}'}}
    turn = AIMessage(content="", additional_kwargs=legacy)

    assert langchain.calls([turn])[0].arguments == {"a": 1}
    assert langchain.balance([turn, USER], gone) == [
        *(turn, FunctionMessage(content="gone: #1", name="f"), USER)
    ]


def is_result(message):
    return isinstance(message, ToolMessage)


@drawn
@given(damaged("langchain", is_result))
def test_every_damaged_conversation_is_balanced(case):
    script, messages = case
    found = check_balance(langchain, "langchain", script, messages)

    assert [id(m) for m in found if not is_result(m)] == (
        [id(m) for m in messages if not is_result(m)]
    )


@drawn
@given(scripts("langchain"))
def test_a_conversation_without_damage_is_left_alone(script):
    check_whole(langchain, "langchain", script)


# Streams


@drawn
@given(scripts("langchain"))
def test_a_stream_amounts_to_the_response(script):
    for n, model in enumerate(asked(script)):
        found = langchain.assemble(render.stream(model, n))
        (message,) = langchain.turn(found.response)

        assert found.complete
        assert type(message) is AIMessage
        assert (message.content, message.id) == (model.text, f"lc_run--{n}")
        assert {(c.id, c.name) for c in langchain.calls([message])} == (
            {(c.id, c.name) for c in model.calls}
        )
        assert langchain.usage(found.response) == ("", Tokens(20, 7, 16, 3))


def test_the_stream_of_a_model_is_put_together():
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    chunks = list(model.stream([USER]))
    found = langchain.assemble(chunks)

    assert len(chunks) > 1
    assert found.complete
    assert found.response.content == "one two three"
    assert not langchain.assemble(chunks[:2]).complete


def test_chunks_of_generations_and_of_graphs_are_put_together():
    one, two = AIMessageChunk("a"), AIMessageChunk("b")
    done = {"finish_reason": "stop"}
    generations = [
        ChatGenerationChunk(message=one),
        ChatGenerationChunk(message=two, generation_info=done),
    ]
    end = AIMessageChunk("b", chunk_position="last")
    for chunks in (generations, [(one, {}), (end, {})]):
        found = langchain.assemble(chunks)

        assert (found.complete, found.response) == (True, AIMessage("ab"))


@pytest.mark.parametrize("reason", ["finish_reason", "stop_reason", "done_reason"])
def test_a_chunk_that_tells_why_it_ended_is_the_last(reason):
    told = {reason: "stop"}

    assert langchain.is_final_chunk(AIMessageChunk("", response_metadata=told))
    assert langchain.is_final_chunk(AIMessageChunk("", chunk_position="last"))
    assert not langchain.is_final_chunk(AIMessageChunk("a"))


@pytest.mark.parametrize("chunks", [[], ["a"], [{"choices": []}], [USER]])
def test_chunks_of_other_forms_are_no_stream(chunks):
    assert langchain.assemble(chunks) is None


def test_chunks_that_do_not_fit_each_other_are_no_stream():
    one = AIMessageChunk("a", additional_kwargs={"a": 1.5})
    two = AIMessageChunk("a", additional_kwargs={"a": "b"})

    assert langchain.assemble([one, two]) is None


# What is compared, and counted


def test_ids_metadata_and_cache_marks_are_not_compared():
    """With the same input, ids differ from run to run."""
    once = says("t1", id="a", usage_metadata=render.USAGE)
    again = says("t1", id="b", response_metadata={"model_name": "m"})
    part = {"type": "text", "text": "a"}
    marked = HumanMessage([{**part, "cache_control": {"type": "ephemeral"}}])

    assert langchain.comparable(once) == langchain.comparable(again)
    assert langchain.comparable(once) != langchain.comparable(says("t2"))
    assert langchain.comparable(marked) == langchain.comparable(HumanMessage([part]))
    assert langchain.comparable(tool("t1", artifact=object())) == (
        langchain.comparable(tool("t1", id="c"))
    )
    assert langchain.comparable(AIMessageChunk("a")) == (
        langchain.comparable(AIMessage("a"))
    )


@pytest.mark.parametrize(
    "form", [("user", "go on"), {"role": "user", "content": "go on"}, "go on"]
)
def test_what_becomes_a_message_is_compared_as_one(form):
    assert langchain.comparable(form) == langchain.comparable(USER)


def test_tokens_are_those_that_the_provider_counted():
    message = render.response(Model("hi"), 0)
    wanted = ("gpt-test", Tokens(20, 7, 16, 3))

    assert langchain.usage(message) == wanted
    assert langchain.usage(
        ChatResult(generations=[ChatGeneration(message=message)])
    ) == (wanted)
    assert langchain.usage(HI) is None


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd).partition(" at 0x")[0])
def test_nothing_odd_raises(odd):
    never_raises(langchain, odd)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd).partition(" at 0x")[0])
def test_where_langchain_is_not_loaded_nothing_odd_is_a_message(odd, monkeypatch):
    monkeypatch.delitem(sys.modules, "langchain_core.messages")
    never_raises(langchain, odd)

    assert langchain.turn(odd) is None
    assert langchain.assemble([odd]) is None
    assert not langchain.knows([USER])
    assert langchain.usage(says("t1", usage_metadata=render.USAGE)) is None
