"""LangChain's messages in a process that has not loaded it: dicts of their fields."""

import sys

import pytest
from hypothesis import given
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from durable_agent.transcript import langchain as dialect
from durable_agent.transcript import read, turn_of
from durable_agent.transcript._types import Result, Tokens
from tests.dialect_checks import asked, drawn, gone, never
from tests.providers import render_langchain as render
from tests.providers.conversations import scripts

USER = {"content": "go on", "type": "human"}


@pytest.fixture
def unloaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "langchain_core.messages")


def says(*ids, content="", **more):
    calls = [{"name": "f", "args": {}, "id": id_, "type": "tool_call"} for id_ in ids]
    return {"content": content, "type": "ai", "tool_calls": calls, **more}


def tool(id_, content="found", **more):
    return {"content": content, "type": "tool", "tool_call_id": id_, **more}


def fields(message):
    """Return a message as the dict of what was set, and its type."""
    return {"type": message.type, **message.model_dump(exclude_unset=True)}


def test_a_recorded_exchange_is_shown():
    """Without LangChain, and with it: the dicts are what chat models take."""
    system = SystemMessage("be brief")
    request = {"messages": [system, HumanMessage("go on")]}
    response = AIMessage("hi", tool_calls=[{"name": "f", "args": {}, "id": "t1"}])
    told = {"messages": list(map(fields, request["messages"]))}
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "langchain_core.messages")
        seen = read(told, fields(response))
        balanced = seen.dialect.balance([*seen.messages, *seen.turn], gone)

    assert seen.dialect is dialect
    lost = ToolMessage("gone: t1", tool_call_id="t1", name="f", status="error")
    wanted = [*request["messages"], response, lost]
    assert convert_to_messages(balanced) == wanted


@pytest.mark.usefixtures("unloaded")
def test_the_messages_of_a_request_are_found():
    messages = [USER, {"role": "user", "content": "a"}]

    for bound in (
        {"messages": messages},
        {"input": messages},
        {"history": messages},
        {"state": {"messages": messages}},
    ):
        assert dialect.request(bound) is messages
    assert dialect.request({"input": USER}) == [USER]
    assert dialect.request({"input": "go on"}) == [{"role": "user", "content": "go on"}]


@pytest.mark.usefixtures("unloaded")
def test_a_text_claims_no_dialect():
    """Requests of all providers may be texts: the response tells."""
    text = {"input": "go on"}
    item = {"type": "message", "role": "assistant", "content": []}
    other = {"object": "response", "output": [item]}

    assert read(text, says(content="hi")).messages == [
        {"role": "user", "content": "go on"}
    ]
    assert read(text, other).dialect.NAME == "openai-responses"
    assert read(text).dialect.NAME == "openai-responses"
    assert read({"messages": "go on"}).dialect.NAME == "openai"


@pytest.mark.parametrize(
    "message",
    [
        *({"type": kind, "content": "a"} for kind in ("human", "ai", "system")),
        {"type": "AIMessageChunk", "content": []},
        tool("t1"),
    ],
)
def test_a_dict_with_the_type_of_a_message_is_known(message):
    assert dialect.knows([message])


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ai", "role": "assistant", "content": "a"},
        {"type": "ai"},
        {"type": "ai", "content": None},
        {"type": ["ai"], "content": "a"},
        {"type": "message", "content": []},
        {"type": "text", "content": "a"},
        {"content": "a"},
    ],
    ids=repr,
)
def test_other_dicts_are_not_known(message):
    assert not dialect.knows([message])
    assert dialect.turn(message) is None


@pytest.mark.parametrize(
    "hold",
    [
        lambda m: m,
        lambda m: {"message": m},
        lambda m: {"generations": [{"message": m}]},
        lambda m: {"generations": [[{"message": m}]]},
    ],
    ids=["message", "generation", "result", "batch"],
)
@pytest.mark.usefixtures("unloaded")
def test_a_turn_is_the_dict(hold):
    usage = {"input_tokens": 2, "output_tokens": 1}
    response = says("t1", usage_metadata=usage, response_metadata={"model": "m"})

    assert dialect.turn(hold(response)) == [
        says("t1", response_metadata={"model": "m"})
    ]
    assert dialect.usage(hold(response)) == ("m", Tokens(2, 1))
    assert [c.id for c in dialect.calls(dialect.turn(hold(response)))] == ["t1"]
    assert turn_of(hold(response)) == dialect.turn(response)


@pytest.mark.usefixtures("unloaded")
def test_a_turn_leaves_as_chat_models_take_it():
    chunk = {"type": "AIMessageChunk", "content": "a\ud800", "tool_call_chunks": []}

    assert dialect.turn(chunk) == [{"type": "ai", "content": "a\ufffd"}]
    assert dialect.turn(USER) is None
    assert dialect.text_turn("a\ud800") == [{"type": "ai", "content": "a\ufffd"}]


@pytest.mark.usefixtures("unloaded")
def test_results_go_where_they_belong():
    found, other = tool("t1"), tool("t9")
    lost = tool("t2", "gone: t2", name="f", status="error")

    balanced = dialect.balance([USER, says("t1", "t2"), other, USER, found], gone)

    assert balanced == [USER, says("t1", "t2"), found, lost, USER]
    again = dialect.balance(balanced, never)
    assert all(a is b for a, b in zip(again, balanced, strict=True))


@pytest.mark.usefixtures("unloaded")
def test_a_legacy_function_call_is_answered_by_its_name():
    extra = {"function_call": {"name": "f", "arguments": "{}"}}
    asks = {"type": "ai", "content": "", "additional_kwargs": extra}

    *_, last = dialect.balance([asks], lambda *_: Result("a"))

    assert last == {"type": "function", "content": "a", "name": "f"}


OWN = tool("t1", artifact={"rows": b"x"})
COMMAND = {"update": {"messages": [USER, tool("t9", "not"), OWN]}, "goto": []}


@pytest.mark.parametrize("value", [OWN, {**OWN, "tool_call_id": "t9"}, COMMAND])
@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_value_that_is_a_tool_message_is_the_result(value, is_loaded, monkeypatch):
    if not is_loaded:
        monkeypatch.delitem(sys.modules, "langchain_core.messages")
    answer = Result("t", value=value, has_value=True)

    *_, last = dialect.balance([says("t1")], lambda *_: answer)

    artifact = {"rows": b"x"}
    assert last == (
        ToolMessage("found", tool_call_id="t1", artifact=artifact) if is_loaded else OWN
    )


@pytest.mark.parametrize("content", [[5], [{"text": float("nan")}]])
@pytest.mark.usefixtures("unloaded")
def test_a_tool_message_that_cannot_be_sent_is_its_text(content):
    answer = Result("t", value=tool("t1", content), has_value=True)

    *_, last = dialect.balance([says("t1")], lambda *_: answer)

    assert last == tool("t1", "t", name="f", status="success")


# Streams


@drawn
@given(scripts("langchain"))
def test_a_stream_amounts_to_what_langchain_makes_of_it(script):
    for n, model in enumerate(asked(script)):
        chunks = render.stream(model, n)
        theirs = dialect.assemble(chunks)
        told = [{**fields(c), "type": c.type} for c in chunks]
        with pytest.MonkeyPatch.context() as patch:
            patch.delitem(sys.modules, "langchain_core.messages")
            found = dialect.assemble(told)
            calls = dialect.calls(dialect.turn(found.response))

        assert found.complete
        assert found.response["content"] == theirs.response.content
        assert found.response["id"] == theirs.response.id
        assert {(c.id, c.name) for c in calls} == {(c.id, c.name) for c in model.calls}
        assert dialect.usage(found.response) == dialect.usage(theirs.response)


def piece(content, **more):
    return {"type": "AIMessageChunk", "content": content, **more}


def test_parts_of_contents_join_by_their_index():
    def block(index, **more):
        return {"type": "thinking", "index": index, **more}

    pieces = [
        [block(0, thinking="h")],
        [block(0, thinking="m")],
        [block(0, signature="s")],
        [{"type": "text", "index": 1, "text": "a"}],
        [{"type": "text", "index": 1, "text": "b"}],
        "",
    ]
    theirs = dialect.assemble([AIMessageChunk(content=p) for p in pieces])
    found = dialect.assemble(list(map(piece, pieces)))

    assert found.response["content"] == theirs.response.content
    assert not found.complete


def test_what_is_told_about_the_answer_adds_up():
    counts = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    more = {"response_metadata": {"model_name": "m"}, "usage_metadata": counts}
    extra = [{"reasoning_content": text} for text in "ab"]
    pieces = [{"additional_kwargs": e, **more} for e in extra]
    theirs = sum((AIMessageChunk("", **p) for p in pieces), start=AIMessageChunk(""))
    found = dialect.assemble([piece("", **p) for p in pieces]).response

    assert found["usage_metadata"] == theirs.usage_metadata
    assert found["additional_kwargs"] == theirs.additional_kwargs
    assert found["response_metadata"] == {"model_name": "m"}


def test_arguments_that_were_cut_off_stay_text():
    cut = {"name": "f", "args": '{"q', "id": "t1", "index": 0}
    found = dialect.assemble([piece("", tool_call_chunks=[cut])])

    (call,) = dialect.calls(dialect.turn(found.response))
    assert (call.name, call.arguments, call.raw) == ("f", None, '{"q')


def test_the_last_whole_message_is_the_response():
    found = dialect.assemble([says(content="a"), says(content="b")])

    assert (found.response, found.complete) == (says(content="b"), True)


# What is compared


@pytest.mark.parametrize("is_loaded", [True, False])
def test_what_says_nothing_is_not_compared(is_loaded, monkeypatch):
    if not is_loaded:
        monkeypatch.delitem(sys.modules, "langchain_core.messages")
    chunk = {**says("t1", id="a"), "type": "AIMessageChunk", "tool_call_chunks": []}
    whole = says("t1", invalid_tool_calls=[], response_metadata={"model": "m"})

    assert dialect.comparable(chunk) == dialect.comparable(whole)
    assert dialect.comparable(whole) != dialect.comparable(says("t2"))


def test_a_dict_is_compared_as_the_message_that_it_was():
    message = AIMessage("hi", tool_calls=[{"name": "f", "args": {}, "id": "t1"}])

    assert dialect.comparable(fields(message)) == dialect.comparable(message)
