"""OpenAI chat completions: turns, calls, streams, and results in their place."""

import json

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ParsedChatCompletion,
)

from durable_agent.transcript import openai_chat as chat
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
from tests.providers import render_openai_chat as render
from tests.providers.conversations import Call, Model, scripts

CITATION = {"end_index": 2, "start_index": 0, "title": "t", "url": "u"}
USER = {"role": "user", "content": "go on"}


def call(id_="t1", name="search", arguments="{}"):
    known = {} if id_ is None else {"id": id_}
    return {
        **known,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def says(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def tool(id_, content="found"):
    return {"role": "tool", "tool_call_id": id_, "content": content}


def completion(message, **more):
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-test",
        "choices": [choice],
        **more,
    }


def chunk(delta, ended=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": ended, **more}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def pieces(*entries):
    return chunk({"tool_calls": list(entries)})


def args(text):
    return {"function": {"arguments": text}}


def sent_calls(*chunks):
    """Return name, arguments and id of the calls that chunks amount to."""
    message = chat.assemble(chunks).response["choices"][0]["message"]
    return [
        (c["function"]["name"], c["function"]["arguments"], c["id"])
        for c in message["tool_calls"]
    ]


# Turns


MESSAGES = [
    render.message(Model("hi", (Call(), Call(id="t2", arguments='{"q": 1')))),
    {"role": "assistant", "content": "hi"},
    {"role": "assistant", "content": None, "refusal": "no"},
    {**says(call()), "reasoning_content": "hm", "provider": {"sig": "x"}},
    {
        **says(call()),
        "annotations": [{"type": "url_citation", "url_citation": CITATION}],
    },
    says({"id": "t1", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}}),
]


def body_of(messages):
    """Return the messages of the body that the SDK sends, as the bytes they are."""
    sent = []

    def reply(request):
        sent.append(request.content)
        return httpx2.Response(200, json=completion({"role": "assistant"}))

    transport = httpx2.Client(transport=httpx2.MockTransport(reply))
    client = openai.OpenAI(api_key="none", http_client=transport)
    client.chat.completions.create(model="gpt-test", messages=messages)
    return sent[0]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("make", [ChatCompletion.model_validate, lambda r: r])
def test_a_turn_is_sent_as_the_sdk_sends_the_message_itself(make, message):
    """Also by its bytes: a provider's cache knows the beginning of a request."""
    response = make(completion(message))
    own = (
        response["choices"][0]["message"]
        if isinstance(response, dict)
        else response.choices[0].message
    )

    assert body_of([USER, *chat.turn(response)]) == body_of([USER, own])
    assert body_of([USER, *chat.turn(own)]) == body_of([USER, own])


def test_a_plain_message_is_its_own_turn():
    message = says(call())

    (found,) = chat.turn(completion(message))

    assert found is message


def test_what_the_sdk_parsed_is_not_sent():
    parsed = {"id": "t1", "type": "function"}
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
    message = {
        **says({**parsed, "function": function}),
        "parsed": {"a": 1},
    }
    response = ParsedChatCompletion.model_validate(completion(message))

    assert chat.turn(response) == [says(call(name="f"))]


@pytest.mark.parametrize("calls", [[], None])
def test_calls_that_are_empty_are_not_sent(calls):
    """Some servers send them, and the provider refuses them."""
    message = {"role": "assistant", "content": "a", "tool_calls": calls}

    assert chat.turn(completion(message)) == [{"role": "assistant", "content": "a"}]


def test_sound_is_sent_by_its_id():
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1, "transcript": "hi"}
    message = {"role": "assistant", "content": None, "audio": audio}
    response = ChatCompletion.model_validate(completion(message))

    assert chat.turn(response) == [{**message, "audio": {"id": "audio_1"}}]


def test_an_answer_that_says_nothing_is_left_out():
    assert chat.turn(completion({"role": "assistant", "content": None})) == []


def test_lone_surrogates_of_a_turn_become_replacement_characters():
    message = says(call(arguments='{"q": "\ud83c"}'), content="a\udcb2b\x00")

    (found,) = chat.turn(completion(message))

    assert found["content"] == "a\ufffdb\x00"
    assert found["tool_calls"][0]["function"]["arguments"] == '{"q": "\ufffd"}'


@pytest.mark.parametrize(
    "response",
    [
        {"role": "assistant", "type": "message", "content": [{"type": "text"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
        completion({"role": "user", "content": "a"}),
        {"choices": []},
        {"object": "response", "output": []},
    ],
)
def test_responses_of_other_forms_are_not_known(response):
    assert chat.turn(response) is None


def test_a_text_alone_is_a_turn():
    assert chat.text_turn("a\ud83c") == [{"role": "assistant", "content": "a\ufffd"}]


# Requests


def test_the_messages_of_a_request_are_found_by_name_else_by_form():
    messages = [USER]

    assert chat.request({"other": [1], "messages": messages}) is messages
    assert chat.request({"history": messages}) is messages
    assert chat.request({"body": {"messages": messages}}) is messages
    assert chat.request({"messages": "go on"}) == [USER]
    assert chat.request({"messages": (USER,)}) == [USER]
    assert chat.request({"prompt": "go on", "n": [1]}) is None


@pytest.mark.parametrize(
    ("message", "known"),
    [
        (tool("t1"), True),
        ({"role": "function", "name": "f", "content": "a"}, True),
        (says(call()), True),
        ({"role": "assistant", "function_call": {"name": "f"}}, True),
        (ChatCompletionMessage.model_validate(says(call())), True),
        ({"role": "developer", "content": "a"}, False),
        ({"role": "assistant", "content": "a"}, False),
        ({"type": "function_call", "name": "f"}, False),
        (AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "t1"}]), False),
        (ToolMessage("", tool_call_id="t1"), False),
    ],
)
def test_a_message_with_calls_or_a_result_is_known(message, known):
    assert chat.knows([USER, message]) is known


# Calls


def test_calls_are_found_in_their_order_with_what_could_be_parsed():
    turn = [
        says(
            call("t1", arguments='{"n": 12345678901234567890123}'),
            call("t1", arguments="  "),
            call(None, arguments="[1]"),
            {"id": "t2", "custom": {"name": "sql", "input": "SELECT"}},
        )
    ]

    assert [(c.id, c.name, c.arguments, c.token) for c in chat.calls(turn)] == [
        ("t1", "search", {"n": 12345678901234567890123}, "t1"),
        ("t1", "search", {}, "t1#2"),
        (None, "search", None, "#1"),
        ("t2", "sql", {"input": "SELECT"}, "t2"),
    ]


def test_calls_of_the_sdk_objects_are_those_of_the_plain_message():
    message = says(call("t1"), call("t2", arguments="{"))
    known = ChatCompletionMessage.model_validate(message)

    assert chat.calls([known]) == chat.calls([message])
    assert chat.calls([{**message, "tool_calls": known.tool_calls}]) == (
        chat.calls([message])
    )


# Results


def test_results_go_directly_after_their_message_in_call_order():
    """An orphan in the middle of a history is refused as one at its end is."""
    turn = says(call("t1"), call("t2"), call("t3"))

    assert chat.balance([turn, USER, tool("t2")], gone) == [
        turn,
        tool("t1", "gone: t1"),
        tool("t2"),
        tool("t3", "gone: t3"),
        USER,
    ]


def test_an_id_that_comes_again_in_a_later_turn_is_another_call():
    turn, again = says(call()), says(call())

    assert chat.balance([turn, tool("t1"), USER, again], gone) == [
        *(turn, tool("t1"), USER, again),
        tool("t1", "gone: t1"),
    ]


def test_results_that_stand_directly_after_may_be_in_any_order():
    messages = [says(call("t1"), call("t2")), tool("t2"), tool("t1"), USER]

    assert chat.balance(messages, never) == messages


def test_the_first_of_two_results_is_kept():
    turn = says(call())

    assert chat.balance([turn, tool("t1", "1"), tool("t1", "2"), USER], never) == [
        *(turn, tool("t1", "1"), USER)
    ]


def test_a_result_of_no_call_is_left_out():
    turn = says(call())

    assert chat.balance([tool("t1"), USER, turn, tool("t1"), tool("t9")], never) == [
        *(USER, turn, tool("t1"))
    ]


def test_calls_in_several_messages_in_a_row_get_their_own_results():
    first, second = says(call("t1")), says(call("t2"))

    assert chat.balance([first, second, tool("t2"), tool("t1")], never) == [
        *(first, tool("t1"), second, tool("t2"))
    ]


@pytest.mark.parametrize("ids", [("t1", "t1"), (None, None), ("", None)])
def test_calls_that_share_an_id_get_a_result_each_in_order(ids):
    turn = says(*(call(id_) for id_ in ids))
    key = ids[0] or ""

    assert chat.balance([turn, USER, tool(key, "1")], gone) == [
        turn,
        tool(key, "1"),
        tool(key, f"gone: {key}#2"),
        USER,
    ]


def test_a_legacy_function_call_is_answered_by_its_name():
    turn = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": '{"a": 1}'},
    }
    (known,) = chat.calls([turn])

    assert (known.id, known.arguments) == (None, {"a": 1})
    assert chat.balance([turn, USER], gone) == [
        *(turn, {"role": "function", "name": "f", "content": "gone: #1"}, USER)
    ]
    answered = [turn, {"role": "function", "name": "f", "content": "a"}, USER]
    assert chat.balance(answered, never) == answered


def rendered(value):
    answer = Result("t", value=value, has_value=True)
    *_, last = chat.balance([USER, says(call())], lambda *_: answer)
    return last


@pytest.mark.parametrize(
    "value",
    [
        *(tool("t1", content) for content in (None, 5, {"a": 1}, [], ["x"], [{}])),
        tool("t1", [{"type": "text", "text": None}]),
        {"role": "tool", "tool_call_id": "t1"},
        {**tool("t1"), "extra": float("nan")},
        {**tool("t1"), "extra": b"x"},
    ],
    ids=repr,
)
def test_a_tool_message_that_the_provider_would_refuse_is_its_text(value):
    assert rendered(value) == tool("t1", "t")


def test_lone_surrogates_of_a_tool_message_become_replacement_characters():
    parts = [{"type": "text", "text": "\ud800"}]
    clean = [{"type": "text", "text": "\ufffd"}]

    assert rendered(tool("t1", "\ud800")) == tool("t1", "\ufffd")
    assert rendered(tool("t1", parts)) == tool("t1", clean)


def test_a_legacy_function_takes_texts_only():
    legacy = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    own = {"role": "function", "name": "f", "content": "a"}

    def told(value):
        answer = Result("t", value=value, has_value=True)
        return chat.balance([legacy], lambda *_: answer)[-1]

    assert told(own) is own
    parts = {**own, "content": [{"type": "text", "text": "a"}]}
    assert told(parts) == {**own, "content": "t"}


def test_a_value_that_is_a_tool_message_is_put_as_it_is():
    own = {**tool("t1"), "name": "search"}
    other = tool("t9", "of another run")

    found = chat.balance(
        [says(call("t1"), call("t2"))],
        lambda _, c: Result(
            "text", value=own if c.id == "t1" else other, has_value=True
        ),
    )

    assert found[1] is own
    assert found[2] == tool("t2", "of another run")


def test_texts_are_valid_utf_8_and_keep_nul():
    found = chat.balance([says(call())], lambda *_: Result("a\x00b\ud83c"))

    assert found[1]["content"] == "a\x00b\ufffd"


def test_messages_of_the_sdk_are_balanced_as_they_are():
    turn = ChatCompletionMessage.model_validate(says(call()))

    found = chat.balance([USER, turn], gone)

    assert found[1] is turn
    assert found[2] == tool("t1", "gone: t1")


def is_result(message):
    return message["role"] == "tool"


@drawn
@given(damaged("openai_chat", is_result))
def test_every_damaged_conversation_is_balanced(case):
    script, messages = case
    found = check_balance(chat, "openai_chat", script, messages)

    assert [m for m in found if not is_result(m)] == (
        [m for m in messages if not is_result(m)]
    )


@drawn
@given(scripts("openai_chat"))
def test_a_conversation_without_damage_is_left_alone(script):
    check_whole(chat, "openai_chat", script)


# Streams


@drawn
@given(scripts("openai_chat"), st.booleans())
def test_a_stream_amounts_to_the_response(script, as_objects):
    for n, model in enumerate(asked(script)):
        chunks = render.stream(model, n)
        if as_objects:
            chunks = [ChatCompletionChunk.construct(**c) for c in chunks]
        found = chat.assemble(chunks)
        wanted = render.response(model, n)

        assert found.complete
        assert told(found.response) == told(wanted)
        assert chat.usage(found.response) == chat.usage(wanted)


def told(response):
    """Return what a response says; a missing id is null in what was streamed."""
    (message,) = chat.turn(response)
    calls = [(c.id, c.name, c.raw) for c in chat.calls([message])]
    texts = [message.get(n) or "" for n in ("content", "refusal", "reasoning_content")]
    return calls, texts, response["choices"][0]["finish_reason"], response["id"]


def test_a_stream_that_broke_off_gives_what_there_is():
    found = chat.assemble(
        [
            chunk({"role": "assistant", "content": "I"}),
            pieces(call(arguments='{"q": "a')),
        ]
    )

    assert not found.complete
    message = found.response["choices"][0]["message"]
    assert message == says(call(arguments='{"q": "a'), content="I")


@pytest.mark.parametrize(
    "last",
    [
        {"error": {"message": "overloaded"}},
        {"type": "error", "message": "overloaded"},
        {**chunk({"content": ""}, "error"), "error": {"code": 502}},
        chunk({"content": ""}, "error"),
    ],
    ids=repr,
)
def test_a_stream_that_ends_in_an_error_is_not_complete(last):
    found = chat.assemble([chunk({"content": "a"}), last])

    assert not chat.is_final_chunk(last)
    assert not found.complete
    assert found.response["choices"][0]["message"]["content"] == "a"
    ended = chunk({}, "stop")
    assert chat.assemble([chunk({"content": "a"}), ended]).complete
    if "error" in last:
        assert not chat.assemble([chunk({"content": "a"}), last, ended]).complete


def test_the_events_of_the_sdk_hold_chunks():
    events = [
        {"type": "chunk", "chunk": chunk({"content": "a"}), "snapshot": {}},
        {"type": "content.delta", "delta": "a", "snapshot": "a"},
        {"type": "chunk", "chunk": chunk({}, "stop"), "snapshot": {}},
    ]
    found = chat.assemble(events)

    assert found.complete
    assert found.response["choices"][0]["message"]["content"] == "a"
    assert [chat.is_final_chunk(e) for e in events] == [False, False, True]


@pytest.mark.parametrize(
    "chunks",
    [
        # No index.
        [
            *(pieces({**call("a", "f", ""), "index": None}), pieces(args('{"n"'))),
            *(pieces(args(": 1}")), pieces(call("b", "g", "{}"))),
        ],
        # The same index, new ids.
        [
            pieces({"index": 0, **call("a", "f", '{"n": 1}')}),
            pieces({"index": 0, **call("b", "g", "{}")}),
        ],
        # Both in one chunk.
        [
            pieces(
                {"index": 0, **call("a", "f", '{"n": 1}')},
                {"index": 1, **call("b", "g", "{}")},
            )
        ],
        # The id and the name with each piece.
        [
            pieces({"index": 0, **call("a", "f", '{"n"')}),
            pieces({"index": 0, **call("a", "f", ": 1}")}),
            pieces({"index": 1, **call("b", "g", "")}),
            pieces({"index": 1, **call("b", "g", "{}")}),
        ],
        # Mixed.
        [
            pieces({"index": 0, **call("a", "f", "")}),
            pieces({"index": 1, **call("b", "g", "{}")}),
            pieces({"index": 0, **args('{"n": 1}')}),
        ],
    ],
)
def test_pieces_of_calls_find_their_call(chunks):
    assert sent_calls(*chunks) == [("f", '{"n": 1}', "a"), ("g", "{}", "b")]


@pytest.mark.parametrize("id_", ["call", None])
def test_calls_with_one_id_and_one_index_are_several(id_):
    one = {"index": 0, **call(id_, "f", '{"n": 1}')}
    two = {"index": 0, **call(id_, "f", '{"n": 2}')}

    assert sent_calls(pieces(one), pieces(two)) == [
        *(("f", '{"n": 1}', id_), ("f", '{"n": 2}', id_))
    ]


def test_a_new_id_begins_a_call_whatever_the_one_before_lacks():
    one = {"index": 0, **call("a", "f", "")}
    two = {"index": 0, **call("b", "f", "{}")}

    assert sent_calls(pieces(one), pieces(two)) == [("f", "", "a"), ("f", "{}", "b")]


def test_only_the_first_choice_counts():
    other = {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}
    chunks = [chunk({"content": "a"}), {"choices": [other]}]
    found = chat.assemble(chunks)

    assert not found.complete
    assert found.response["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("chunks", [[], ["a"], [{"choices": []}], [{"type": "ping"}]])
def test_chunks_of_other_forms_are_no_stream(chunks):
    assert chat.assemble(chunks) is None


def test_legacy_function_calls_are_put_together():
    chunks = [
        chunk({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ": 1}"}}, "function_call"),
    ]
    found = chat.assemble(chunks)

    assert chat.calls(chat.turn(found.response))[0].arguments == {"a": 1}


def test_fields_that_are_not_known_are_kept():
    chunks = [
        chunk({"content": "a", "sig": "x", "notes": [1], "audio": {"data": "UklG"}}),
        chunk({"content": "b", "sig": "y", "notes": [2]}, "stop"),
    ]
    message = chat.assemble(chunks).response["choices"][0]["message"]

    assert message == {
        "role": "assistant",
        "content": "ab",
        "sig": "y",
        "notes": [1, 2],
    }


def test_calls_of_custom_tools_are_put_together():
    begun = {"index": 0, "id": "t1", "type": "custom", "extra": {"sig": "x"}}
    chunks = [
        pieces({**begun, "custom": {"name": "sql", "input": ""}}),
        pieces({"index": 0, "custom": {"input": "SELECT"}}),
        pieces({"index": 0, "custom": {"input": " 1"}}),
    ]
    message = chat.assemble(chunks).response["choices"][0]["message"]

    assert message["tool_calls"] == [
        {
            "id": "t1",
            "type": "custom",
            "custom": {"name": "sql", "input": "SELECT 1"},
            "extra": {"sig": "x"},
        }
    ]


# What is compared, and counted


def test_cache_marks_ids_and_nulls_are_not_compared():
    message = {**says(call()), "id": "m1", "refusal": None}
    mark = {"type": "ephemeral"}
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "a", "cache_control": mark}],
    }
    bare = {"role": "user", "content": [{"type": "text", "text": "a"}]}

    assert chat.comparable(message) == chat.comparable(
        ChatCompletionMessage.model_validate(says(call()))
    )
    assert chat.comparable(marked) == chat.comparable(bare)
    assert chat.comparable(says(call("t2"))) != chat.comparable(says(call("t1")))


def test_a_text_and_a_single_part_of_it_are_the_same():
    part = {"type": "text", "text": "go on"}

    assert chat.comparable({**USER, "content": [part]}) == chat.comparable(USER)
    assert chat.comparable({**USER, "content": [part, part]}) != chat.comparable(USER)
    assert chat.comparable({**USER, "content": "go"}) != chat.comparable(USER)


@pytest.mark.parametrize("make", [ChatCompletion.model_validate, lambda r: r])
def test_tokens_are_those_that_the_provider_counted(make):
    response = make(completion({"role": "assistant"}, usage=render.USAGE))

    assert chat.usage(response) == ("gpt-test", Tokens(20, 7, 16, 3))


def test_reasoning_that_is_counted_apart_is_output():
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 30,
        "prompt_cache_hit_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }

    assert chat.usage({"choices": [], "usage": usage}) == ("", Tokens(20, 10, 5, 3))


@pytest.mark.parametrize("response", [{}, None, {"choices": []}, {"usage": {}}])
def test_what_states_no_tokens_has_none(response):
    assert chat.usage(response) is None


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd).partition(" at 0x")[0])
def test_nothing_odd_raises(odd):
    never_raises(chat, odd)


def test_nothing_that_was_given_is_changed():
    chunks = render.stream(Model("hi", (Call(), Call(id="b"))), 0)
    messages = [says(call("t1"), call("t2")), USER, tool("t2")]
    before = json.dumps([chunks, messages])
    chat.assemble(chunks)
    chat.balance(messages, gone)
    chat.turn(completion({**messages[0], "parsed": 1}))

    assert json.dumps([chunks, messages]) == before
