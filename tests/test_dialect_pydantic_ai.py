"""Pydantic AI's messages: tool calls and results, balanced."""

import dataclasses

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from durable_agent.transcript import Result, pydantic_ai, read, usage_of, whole

USER = ModelRequest(parts=[UserPromptPart("hi")])


def asks(*ids, name="search", args=None):
    given = {"query": "a"} if args is None else args
    return ModelResponse(parts=[ToolCallPart(name, given, id_) for id_ in ids])


def gives(*ids, said=()):
    results = [ToolReturnPart("search", f"found {id_}", id_) for id_ in ids]
    return ModelRequest(parts=[*results, *said])


def answer(turn, call):
    return Result(text=f"unknown: {call.id}", failed=True)


def shown(messages):
    """Each message as the kinds of its parts, results by their texts."""
    return [
        [
            part.content if isinstance(part, ToolReturnPart) else part.part_kind
            for part in message.parts
        ]
        for message in messages
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, ModelResponse(parts=[TextPart("hello")])],
        [USER, asks("1", "2"), gives("1", "2")],
        [USER, asks("1", "2"), gives("2", "1", said=USER.parts)],
        [USER, asks("1"), gives("1"), asks("1"), gives("1")],
    ],
    ids=["none", "user", "text", "answered", "with more", "an id that comes again"],
)
def test_what_is_answered_stays_as_it_is(messages):
    balanced = pydantic_ai.balance(messages, answer)

    assert len(balanced) == len(messages)
    assert all(one is other for one, other in zip(balanced, messages, strict=True))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, asks("1")], [["user-prompt"], ["tool-call"], ["unknown: 1"]]),
        (
            [USER, asks("1", "2", "3"), gives("2", said=USER.parts)],
            [
                ["user-prompt"],
                ["tool-call"] * 3,
                ["found 2", "unknown: 1", "unknown: 3", "user-prompt"],
            ],
        ),
        (
            [asks("1"), USER, asks("1"), gives("1")],
            [["tool-call"], ["unknown: 1", "user-prompt"], ["tool-call"], ["found 1"]],
        ),
        (
            [asks("1"), asks("2"), gives("2")],
            [["tool-call"], ["unknown: 1"], ["tool-call"], ["found 2"]],
        ),
    ],
    ids=["at the end", "some of a turn", "in the middle", "no request between"],
)
def test_each_call_has_one_result_in_the_request_after_it(messages, expected):
    before = shown(messages)
    balanced = pydantic_ai.balance(messages, answer)

    assert shown(balanced) == expected
    assert shown(messages) == before
    assert pydantic_ai.balance(balanced, answer) == balanced


def test_a_result_that_answers_no_call_is_left_out():
    """Providers refuse it; so does a second answer to one call."""
    messages = [USER, asks("1"), gives("1", "1", "9"), gives("8"), USER]

    balanced = pydantic_ai.balance(messages, answer)

    assert shown(balanced) == [
        ["user-prompt"],
        ["tool-call"],
        ["found 1"],
        ["user-prompt"],
    ]


@pytest.mark.filterwarnings("ignore:.RetryPromptPart. is deprecated")
def test_a_retry_of_a_tool_is_its_result_and_one_of_an_answer_is_none():
    """As messages of before have them."""
    retried = ModelRequest(
        parts=[RetryPromptPart("again", tool_name="search", tool_call_id="1")]
    )
    answered = ModelRequest(parts=[RetryPromptPart("again")])
    said = ModelResponse(parts=[TextPart("x")])

    for messages in ([asks("1"), retried], [said, answered]):
        assert pydantic_ai.balance(messages, answer) == messages


@pytest.mark.parametrize("value", ["text", {"a": [1]}, 5])
def test_a_recorded_value_is_put_as_it_is(value):
    def recorded(turn, call):
        return Result(text="as text", value=value, has_value=True)

    (_, request) = pydantic_ai.balance([asks("1")], recorded)

    assert request.parts[0].content == value
    assert request.parts[0].tool_name == "search"


def test_a_value_that_no_request_can_hold_is_put_as_its_text():
    def recorded(turn, call):
        return Result(text="as text", value=object(), has_value=True)

    (_, request) = pydantic_ai.balance([asks("1")], recorded)

    assert request.parts[0].content == "as text"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (None, {}),
        ("", {}),
        ('{"a": ', None),
    ],
)
def test_arguments_are_parsed(args, expected):
    part = ToolCallPart("f", args, "1")
    (call,) = pydantic_ai.calls([ModelResponse(parts=[part])])

    assert call.arguments == expected
    assert call.raw == args


def test_calls_of_one_turn_with_one_id_are_told_apart():
    one, other = pydantic_ai.calls([asks("1", "1")])

    assert one.token != other.token


def test_when_and_in_which_run_a_message_was_made_is_not_compared():
    one = ModelRequest(parts=[UserPromptPart("hi")], run_id="1")
    other = dataclasses.replace(one, parts=[UserPromptPart("hi")], run_id="2")
    another = ModelRequest(parts=[UserPromptPart("ho")], run_id="1")

    assert pydantic_ai.comparable(one) == pydantic_ai.comparable(other)
    assert pydantic_ai.comparable(one) != pydantic_ai.comparable(another)


def test_a_request_and_its_response_are_read():
    said = ModelResponse(
        parts=[TextPart("x")],
        usage=RequestUsage(input_tokens=5, output_tokens=2, cache_read_tokens=1),
        model_name="m-1",
    )
    found = read({"messages": [USER]}, said)

    assert found.dialect is pydantic_ai
    assert found.messages == [USER]
    assert found.turn == [said]
    name, tokens = usage_of(said)
    assert (name, tokens.input, tokens.output, tokens.cached) == ("m-1", 5, 2, 1)


def test_a_stream_amounts_to_its_last_response():
    opened = ModelResponse(parts=[], state="incomplete")
    ended = ModelResponse(parts=[TextPart("x")])
    event = PartStartEvent(index=0, part=TextPart("x"))

    assert whole([opened, event, ended]) is ended
    assert not pydantic_ai.is_final_chunk(opened)
    assert not pydantic_ai.is_final_chunk(event)
    assert pydantic_ai.is_final_chunk(ended)
    assert pydantic_ai.assemble([opened, event]).complete is False
    assert pydantic_ai.assemble([event]) is None


def test_a_text_is_a_turn_that_says_it():
    (said,) = pydantic_ai.text_turn("x\ud800")

    assert [part.content for part in said.parts] == ["x\ufffd"]


def test_messages_of_others_are_not_known():
    plain = [{"role": "user", "content": "hi"}]

    assert not pydantic_ai.knows(plain)
    assert pydantic_ai.request({"messages": plain}) is None
    assert pydantic_ai.turn({"role": "assistant"}) is None
    assert pydantic_ai.usage({"usage": {}}) is None
    assert pydantic_ai.comparable(plain[0]) is plain[0]
