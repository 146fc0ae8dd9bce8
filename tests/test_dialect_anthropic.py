"""Anthropic's messages: turns as the SDK sends them, results where they belong."""

import copy
import json
from collections import Counter
from itertools import groupby, pairwise
from types import SimpleNamespace

import anthropic
import httpx2
import pydantic
import pytest
from anthropic.types import Message
from anthropic.types.beta import BetaMessage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from durable_agent import values
from durable_agent.transcript import anthropic as dialect
from durable_agent.transcript._types import Result, Tokens
from tests.dialect_checks import check_repaired, same_objects
from tests.providers import render_anthropic, rules_anthropic
from tests.providers.conversations import history, scripts

USER = {"role": "user", "content": "go on"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
USAGE = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 16,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 3},
}
#: All that a response may hold; the SDK does not know some of it.
CONTENT = [
    THINKING,
    {"type": "redacted_thinking", "data": "xyz"},
    {"type": "text", "text": "naïve\u2028", "citations": None, "new": {"b": 1, "a": 2}},
    {
        "type": "text",
        "text": "cited",
        "citations": [
            {
                "type": "char_location",
                "cited_text": "c",
                "document_index": 0,
                "document_title": None,
                "start_char_index": 0,
                "end_char_index": 1,
                "file_id": None,
            }
        ],
    },
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": 1}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    {"type": "of_tomorrow", "z": 1, "a": [{"y": None}]},
    {"type": "tool_use", "id": "tu_1", "name": "f", "input": {"z": None, "a": 2**70}},
    {
        "type": "tool_use",
        "caller": {"type": "direct"},
        "id": "b",
        "name": "g",
        "input": {},
    },
]


def text(said):
    return {"type": "text", "text": said}


def use(id_, name="f", **arguments):
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def result(id_, content="real"):
    return {"type": "tool_result", "tool_use_id": id_, "content": content}


def model(*content):
    return {"role": "assistant", "content": list(content)}


def user(*content):
    return {"role": "user", "content": list(content)}


def response(content=CONTENT, **fields):
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    end = {"stop_reason": "tool_use", "stop_sequence": None, "usage": USAGE}
    return copy.deepcopy({**head, "content": content, **end, **fields})


def made(turn, call):
    return Result(f"made {call.token}")


def balance(*messages):
    return dialect.balance(list(messages), made)


# requests and what is this dialect's ---------------------------------------------


def test_a_request_has_its_messages_where_the_sdk_takes_them():
    """A wrapper may pass the whole body, or call the list as it likes."""
    messages = [USER]

    assert dialect.request({"model": "m", "messages": messages}) is messages
    assert dialect.request({"body": {"messages": messages}}) is messages
    assert dialect.request({"turns": messages}) is messages
    assert dialect.request({"messages": "go on"}) == [USER]
    assert dialect.request({"messages": (USER,)}) == [USER]
    assert dialect.request({"q": "hi", "n": [1], "m": []}) is None


@pytest.mark.parametrize(
    "block",
    [use("a"), result("a"), THINKING, CONTENT[1], CONTENT[4], CONTENT[5]],
    ids=lambda block: block["type"],
)
def test_a_block_that_only_anthropic_has_is_known(block):
    assert dialect.knows([USER, model(text("x"), block)])


def test_messages_that_others_have_too_are_not_known():
    image = {"type": "image_url", "image_url": {"url": "x"}}
    chat = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}

    assert not dialect.knows([USER, user(text("x"), image), chat, model(text("x"))])


ODD = [
    *(
        None,
        0,
        1.5,
        True,
        "text",
        b"bytes",
        [],
        {},
        [None],
        [[]],
        object(),
        Exception(),
    ),
    {"role": "assistant"},
    {"role": "assistant", "content": 5},
    {"role": "assistant", "content": [None, 5, "x", {}, {"type": 5}]},
    {"role": "user", "content": [{"type": "tool_result"}, None, 3]},
    {"type": "message", "role": "assistant", "content": [{"type": "tool_use"}]},
    {"type": "message", "role": "assistant", "content": [], "usage": 5},
    {"type": "content_block_delta"},
    {"type": "content_block_delta", "index": 0, "delta": 5},
    {"type": "content_block_start", "index": None, "content_block": 5},
    {"type": "message_start", "message": []},
    {"type": "message_delta", "usage": [], "delta": "x"},
    {"choices": [{"message": {"role": "assistant", "content": "hi"}}]},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd).partition(" at 0x")[0])
def test_nothing_odd_raises(odd):
    dialect.request({"messages": odd, "x": odd})
    dialect.knows([odd, odd])
    dialect.knows(odd)
    dialect.turn(odd)
    dialect.calls([odd])
    dialect.assemble([odd, odd])
    dialect.assemble(odd)
    dialect.is_final_chunk(odd)
    dialect.comparable(odd)
    dialect.usage(odd)
    dialect.balance([odd, model(use("a")), odd, odd], made)


@pytest.mark.parametrize(
    "other",
    [
        {"choices": [{"message": {"role": "assistant", "content": "hi"}}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": [text("hi")], "tool_calls": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi"}],
        },
        ChatCompletionMessage(role="assistant", content="hi"),
        {"role": "user", "content": "hi"},
        {"candidates": []},
        "hi",
    ],
)
def test_a_response_of_another_provider_has_no_turn(other):
    assert dialect.turn(other) is None


# turns ---------------------------------------------------------------------------


class Wire:
    """The SDK over a transport that gives one response and keeps the requests."""

    def __init__(self, answer, *, sse=False):
        self.bodies = []

        def handle(request):
            self.bodies.append(request.content)
            if sse:
                lines = [
                    f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in answer
                ]
                kind = {"content-type": "text/event-stream"}
                return httpx2.Response(200, content="".join(lines), headers=kind)
            return httpx2.Response(200, json=answer)

        http = httpx2.Client(transport=httpx2.MockTransport(handle))
        self.client = anthropic.Anthropic(api_key="none", http_client=http)

    def messages_sent(self, messages, *, beta=False):
        api = self.client.beta.messages if beta else self.client.messages
        api.with_raw_response.create(model="m", max_tokens=9, messages=messages)
        return self.bodies[-1]


ASK = {"model": "m", "max_tokens": 9, "messages": [USER]}


class Shape(pydantic.BaseModel):
    n: int


@pytest.mark.parametrize("beta", [False, True], ids=["messages", "beta"])
def test_a_turn_is_sent_byte_for_byte_as_the_appended_content_of_the_response(beta):
    """Else the provider's cache of the prefix would be lost, and signatures refused."""
    wire = Wire(response())
    api = wire.client.beta.messages if beta else wire.client.messages
    answer = api.create(**ASK)
    appended = [USER, {"role": "assistant", "content": answer.content}, USER]
    stored = values.decode(values.encode(answer))

    theirs = wire.messages_sent(appended, beta=beta)

    for one in (answer, stored):
        assert wire.messages_sent([USER, *dialect.turn(one), USER], beta=beta) == theirs
    assert json.loads(theirs)["messages"][1]["content"] == CONTENT


def test_the_turn_of_a_parsed_message_leaves_out_what_the_sdk_parsed():
    content = [THINKING, {**text('{"n": 5}'), "citations": None}]
    wire = Wire(response(content, stop_reason="end_turn"))
    answer = wire.client.messages.parse(**ASK, output_format=Shape)
    appended = [USER, {"role": "assistant", "content": answer.content}, USER]
    assert answer.parsed_output == Shape(n=5)

    theirs = wire.messages_sent(appended)

    assert wire.messages_sent([USER, *dialect.turn(answer), USER]) == theirs
    assert dialect.turn(answer) == [model(*content)]


@pytest.mark.parametrize(
    "kind",
    [dict, Message.model_validate, BetaMessage.model_validate],
    ids=["dict", "message", "beta"],
)
def test_a_turn_is_plain_and_only_role_and_content(kind):
    content = [THINKING, text("x"), use("a", q=1)]

    assert dialect.turn(kind(response(content))) == [model(*content)]


def test_a_bare_assistant_message_is_its_own_turn():
    bare = {"role": "assistant", "content": [{**text("x"), "cache_control": {"a": 1}}]}
    said = {"role": "assistant", "content": "hi", "extra": 1}

    assert dialect.turn(bare)[0] is bare
    assert dialect.turn(said)[0] is said


def test_objects_of_the_sdk_in_a_bare_message_become_plain():
    blocks = Message.model_validate(response([text("x"), use("a")])).content

    turn = dialect.turn({"role": "assistant", "content": blocks})

    assert turn == [model(text("x"), use("a"))]


@pytest.mark.parametrize(
    "content", [[], [text("")], [text(" \n")], [text(""), text("\t")]]
)
def test_a_response_that_says_nothing_has_no_message(content):
    """The provider refuses empty content, and texts of white space."""
    assert dialect.turn(response(content)) == []
    assert dialect.turn({"role": "assistant", "content": content}) == []
    assert dialect.turn({"role": "assistant", "content": "  "}) == []


def test_blank_texts_are_left_out_beside_a_call():
    turn = dialect.turn(response([text("\n\n"), use("a")]))

    assert turn == [model(use("a"))]
    assert not rules_anthropic.check([USER, *turn, user(result("a"))])


@pytest.mark.parametrize("signed", [{}, {"signature": ""}, {"signature": "s"}])
@pytest.mark.parametrize("before", [[], [{"type": "text", "text": "a"}]])
@pytest.mark.parametrize("whole", [True, False])
def test_thinking_that_led_to_nothing_is_not_sent(signed, before, whole):
    """The provider refuses a message that ends with it."""
    thought = {"type": "thinking", "thinking": "hm", **signed}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    blank = {"type": "text", "text": " "}
    content = [*before, hidden, thought, blank]
    response = {"role": "assistant", "content": content}

    turn = dialect.turn({"type": "message", **response} if whole else response)

    assert turn == ([{"role": "assistant", "content": before}] if before else [])


def test_thinking_that_a_stream_cut_off_is_not_sent():
    start = {"type": "thinking", "thinking": "", "signature": ""}
    delta = {"type": "thinking_delta", "thinking": "hm"}
    message = {"type": "message", "role": "assistant", "content": []}
    whole = dialect.assemble(
        [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
            {"type": "message_stop"},
        ]
    )

    assert whole.complete
    assert dialect.turn(whole.response) == []


def test_lone_surrogates_leave_as_valid_utf8():
    turn = dialect.turn(response([text("a\ud83c"), use("a", q=["\ud99c"])]))

    assert turn == [model(text("a\ufffd"), use("a", q=["\ufffd"]))]
    assert dialect.text_turn("a\ud83c") == [model(text("a\ufffd"))]


def test_a_text_makes_a_turn_unless_it_is_blank():
    assert dialect.text_turn("hi") == [model(text("hi"))]
    assert dialect.text_turn(" ") == []


# calls ---------------------------------------------------------------------------


def test_calls_are_those_that_the_client_answers():
    calls = dialect.calls(dialect.turn(Message.model_validate(response(STREAMED))))

    assert [(c.id, c.name, c.arguments, c.token) for c in calls] == [
        ("tu_1", "f", {"z": None, "a": 2**70}, "tu_1"),
        ("b", "g", {}, "b"),
    ]


def test_repeated_and_missing_ids_get_tokens_of_their_own():
    turn = [model(use("a"), use("a"), use(None), use("")), USER, model(use("a"))]

    tokens = [(call.id, call.token) for call in dialect.calls(turn)]

    assert tokens == [
        *(("a", "a"), ("a", "a#2"), (None, "#1"), (None, "#2"), ("a", "a#3"))
    ]


@pytest.mark.parametrize("raw", ['{"q": "cut', "search(1)", "[1]", "5", [1], 7])
def test_an_input_that_is_no_object_is_wrapped_and_has_no_arguments(raw):
    turn = dialect.turn(response([{**use("a"), "input": raw}]))

    [call] = dialect.calls(turn)

    assert call.arguments is None
    assert not rules_anthropic.check([USER, *turn, user(result("a"))])
    assert dialect.calls([model({**use("a"), "input": raw})])[0].arguments is None


def test_an_input_as_json_text_is_read():
    turn = dialect.turn(response([{**use("a"), "input": '{"q": 1}'}]))

    assert turn == [model(use("a", q=1))]
    assert dialect.turn(response([{**use("a"), "input": ""}])) == [model(use("a"))]


# streams -------------------------------------------------------------------------


def events(content, **usage):
    begun = response(
        [], stop_reason=None, usage={"input_tokens": 9, "output_tokens": 1}
    )
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(content):
        at = {"index": index}
        start, deltas = begin(block)
        yield {"type": "content_block_start", **at, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {**USAGE, **usage}}
    yield {"type": "message_stop"}


def begin(block):
    def pieces(kind, field, whole):
        return [{"type": kind, field: whole[:2]}, {"type": kind, field: whole[2:]}]

    if block["type"] == "thinking":
        thoughts = pieces("thinking_delta", "thinking", block["thinking"])
        sign = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thoughts, sign]
    if block["type"] == "text":
        cited = block.get("citations") or []
        deltas = [{"type": "citations_delta", "citation": one} for one in cited]
        start = {**block, "text": ""}
        if cited:
            start["citations"] = []
        return start, [*deltas, *pieces("text_delta", "text", block["text"])]
    if block["type"] in ("tool_use", "server_tool_use"):
        written = json.dumps(block["input"])
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": ""},
            *(
                pieces("input_json_delta", "partial_json", written)
                if block["input"]
                else []
            ),
        ]
    return block, []


STREAMED = [block for block in CONTENT if block["type"] != "of_tomorrow"]


def test_a_stream_amounts_to_the_response_that_is_not_streamed():
    assembled = dialect.assemble(list(events(CONTENT)))

    assert assembled.complete
    assert assembled.response["content"] == CONTENT
    assert dialect.turn(assembled.response) == dialect.turn(response())
    assert dialect.usage(assembled.response) == dialect.usage(response())
    assert assembled.response["stop_reason"] == "tool_use"


def test_the_sdk_s_events_amount_to_what_the_sdk_makes_of_them():
    """The raw stream, and the one whose events repeat what they bring."""
    wire = Wire(list(events(STREAMED)), sse=True)
    raw = list(wire.client.messages.create(**ASK, stream=True))
    with wire.client.messages.stream(**ASK) as stream:
        helped = list(stream)
        final = stream.get_final_message()
    appended = [USER, {"role": "assistant", "content": final.content}, USER]
    plain = Wire(response())
    theirs = plain.messages_sent(appended)
    assert {"text", "input_json", "citation"} <= {event.type for event in helped}

    for chunks in (raw, helped, values.decode(values.encode(raw))):
        turn = dialect.turn(dialect.assemble(chunks).response)
        assert plain.messages_sent([USER, *turn, USER]) == theirs


def test_a_stream_with_an_error_is_not_complete():
    error = {"type": "error", "error": {"type": "overloaded_error"}}
    *begun, end = events(CONTENT)

    assert dialect.assemble([*begun, end]).complete
    assert not dialect.assemble([*begun, error]).complete
    assert not dialect.assemble([*begun, error, end]).complete
    assert not dialect.is_final_chunk(error)


def test_only_the_end_of_the_message_is_final():
    chunks = list(events(CONTENT))

    assert [dialect.is_final_chunk(c) for c in chunks] == [False] * (
        len(chunks) - 1
    ) + [True]


@pytest.mark.parametrize("count", range(1, 30))
def test_a_stream_cut_anywhere_gives_what_there_is(count):
    chunks = list(events(STREAMED))[:count]

    assembled = dialect.assemble(chunks)

    assert not assembled.complete
    turn = dialect.turn(assembled.response)
    assert len(dialect.calls(turn)) <= 2
    assert all(block.get("text", "x").strip() for m in turn for block in m["content"])


def test_arguments_that_are_cut_off_stay_text():
    *begun, _stop, _delta, _end = events([text("hi"), use("a", q="long")])

    assembled = dialect.assemble(begun[:-1])
    [call] = dialect.calls(dialect.turn(assembled.response))

    assert assembled.response["content"][1]["input"] == '{"'
    assert call.arguments is None


def test_integers_of_any_size_are_kept():
    [block] = dialect.assemble(list(events([use("a", n=2**70)]))).response["content"]

    assert block["input"] == {"n": 2**70}


def test_what_is_no_event_is_no_stream():
    assert dialect.assemble(["te", "xt"]) is None
    assert dialect.assemble([]) is None
    assert dialect.assemble([{"type": "ping"}, {"choices": []}]) is None


def test_compaction_comes_in_one_delta():
    start = {"type": "compaction", "content": None}
    delta = {"type": "compaction_delta", "content": "short", "encrypted_content": "e"}
    chunks = [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}},
        {"type": "content_block_delta", "index": 7, "delta": delta},
    ]

    [block] = dialect.assemble(chunks).response["content"]

    assert block == {"type": "compaction", "content": "short", "encrypted_content": "e"}


# results -------------------------------------------------------------------------


def rendered(answer, *uses):
    messages = [USER, model(*(uses or [use("a")]))]
    out = dialect.balance(messages, lambda turn, call: answer)
    assert not rules_anthropic.check(out)
    return out[-1]["content"]


def test_a_result_is_its_text_and_says_whether_it_failed():
    assert rendered(Result("4")) == [result("a", "4")]
    assert rendered(Result("")) == [result("a", "")]
    assert rendered(Result("E: x", failed=True)) == [
        {**result("a", "E: x"), "is_error": True}
    ]
    assert rendered(Result("a\ud83c\x00")) == [result("a", "a\ufffd\x00")]


def test_an_error_is_never_empty():
    assert rendered(Result(" ", failed=True))[0]["content"] == "error"


IMAGE = {"type": "image", "source": {"type": "url", "url": "u"}}


def test_a_value_that_is_content_already_is_put_as_it_is():
    parts = [text("x"), IMAGE]
    whole = {**result("a", parts), "cache_control": {"type": "ephemeral"}}

    assert rendered(Result("t", value=parts, has_value=True))[0]["content"] == parts
    assert rendered(Result("t", value=whole, has_value=True))[0] is whole


def test_a_result_block_for_another_id_answers_the_call_that_was_made():
    value = result("other")

    assert rendered(Result("t", value=value, has_value=True)) == [result("a")]


@pytest.mark.parametrize(
    "value",
    [
        *([], [1], [text("")], [{"type": "image"}], [{"type": "row", "text": "x"}]),
        *({"type": "image"}, "x", None, [{"type": "text", "text": 5}], [{"type": []}]),
    ],
)
def test_a_value_that_only_looks_like_content_is_its_text(value):
    assert rendered(Result("t", value=value, has_value=True)) == [result("a", "t")]


@pytest.mark.parametrize(
    "value",
    [
        *({**result("a"), "content": c} for c in (None, 5, {"n": 1}, [5], ["x"])),
        {**result("a"), "content": [{"type": "text", "text": None}]},
        {**result("a"), "content": [{"type": "image", "source": None}]},
        {**result("a"), "new": float("nan")},
        [{"type": "image", "source": None}],
        [{**IMAGE, "new": b"x"}],
    ],
    ids=repr,
)
def test_a_value_that_the_provider_would_refuse_is_its_text(value):
    assert rendered(Result("t", value=value, has_value=True)) == [result("a", "t")]


def test_a_value_leaves_as_the_provider_takes_it():
    """Blank texts, errors that say nothing, lone surrogates."""
    bad, blank = text("\ud800"), text(" ")
    failed = {**result("a", [blank]), "is_error": True}

    def told(value):
        return rendered(Result("t", value=value, has_value=True))[0]

    assert told(result("a", "\ud800")) == result("a", "\ufffd")
    assert told(result("a", [bad, blank])) == result("a", [text("\ufffd")])
    assert told([bad, blank]) == result("a", [text("\ufffd")])
    assert told(failed) == {**failed, "content": "error"}
    assert told({**failed, "content": " "}) == {**failed, "content": "error"}
    tomorrow = result("a", [{"type": "of_tomorrow"}])
    assert told(tomorrow) is tomorrow


def test_the_result_of_a_toolset_s_tool_names_the_toolset():
    block = {**use("a"), "toolset_name": "browser"}

    [found] = rendered(Result("t"), block)

    assert found == {**result("a", "t"), "toolset_name": "browser"}


# balance -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after",
    [
        [user(result("a"), result("b"))],
        [user(result("b"), result("a"), text("x"))],
        [user(result("a")), user(result("b")), USER],
        [user(result("a")), user(result("b"), text("x"))],
    ],
)
def test_results_that_the_provider_takes_are_left_alone(after):
    messages = [USER, model(text("x"), use("a"), use("b")), *after, model(text("y"))]

    same_objects(dialect.balance(messages, made), messages)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            [model(use("a"), use("b"))],
            [model(use("a"), use("b")), user(result("a", 1), result("b", 1))],
            id="at the end",
        ),
        pytest.param(
            [model(use("a")), USER],
            [model(use("a")), user(result("a", 1), text("go on"))],
            id="before a text",
        ),
        pytest.param(
            [model(use("a")), {"role": "user", "content": ""}],
            [model(use("a")), user(result("a", 1))],
            id="before nothing",
        ),
        pytest.param(
            [model(use("a"), use("b")), user(result("b"), text("x")), USER],
            [
                model(use("a"), use("b")),
                user(result("a", 1), result("b"), text("x")),
                USER,
            ],
            id="beside one",
        ),
        pytest.param(
            [model(use("a")), model(text("y")), USER],
            [model(use("a")), user(result("a", 1)), model(text("y")), USER],
            id="the model went on",
        ),
        pytest.param(
            [model(use("a")), model(text("y")), user(result("a"))],
            [model(use("a")), user(result("a")), model(text("y"))],
            id="after the model went on",
        ),
        pytest.param(
            [model(use("a")), user(result("z"))],
            [model(use("a")), user(result("a", 1))],
            id="for another call",
        ),
        pytest.param(
            [model(text("x"), use("a")), model(use("b")), user(result("b"))],
            [
                model(text("x"), use("a")),
                model(use("b")),
                user(result("a", 1), result("b")),
            ],
            id="calls in two messages",
        ),
        pytest.param(
            [model(use("a")), USER, model(text("y")), user(result("a"), text("z"))],
            [
                model(use("a")),
                user(result("a"), text("go on")),
                model(text("y")),
                user(text("z")),
            ],
            id="too late",
        ),
        pytest.param(
            [model(use("a")), user(text("x"), result("a"))],
            [model(use("a")), user(result("a"), text("x"))],
            id="after a text",
        ),
        pytest.param(
            [model(use("a")), user(result("a")), user(result("a", "again"))],
            [model(use("a")), user(result("a"))],
            id="twice",
        ),
        pytest.param(
            [user(result("z")), USER, model(use("a")), user(result("a"), result("z"))],
            [USER, model(use("a")), user(result("a"))],
            id="of no call",
        ),
        pytest.param(
            [model(use("a")), {"role": "system", "content": "s"}, user(result("a"))],
            [model(use("a")), user(result("a")), {"role": "system", "content": "s"}],
            id="after a system message",
        ),
        pytest.param(
            [model(use("a"), use("a")), user(result("a"))],
            [model(use("a"), use("a")), user(result("a"), result("a", 2))],
            id="one id twice",
        ),
        pytest.param(
            [model(use(None), use("")), USER],
            [
                model(use(None), use("")),
                user(result("", 1), result("", 2), text("go on")),
            ],
            id="no ids",
        ),
    ],
)
def test_results_go_where_they_belong(messages, expected):
    """A number stands for a result that had to be made, the n-th of its id."""
    original = copy.deepcopy(messages)

    balanced = dialect.balance(messages, made)

    for message in expected:
        for block in message["content"]:
            if isinstance(block, dict) and isinstance(block.get("content"), int):
                id_, nth = block["tool_use_id"], block["content"]
                token = id_ if id_ and nth == 1 else f"{id_}#{nth}"
                block["content"] = f"made {token}"
    assert balanced == expected
    assert messages == original


def test_the_same_id_in_a_later_turn_is_another_call():
    """Servers restart ids; a result of turn one must not hide the hole in turn two."""
    first = [model(use("1")), user(result("1"))]

    balanced = balance(*first, model(use("1")), USER)

    assert balanced[:2] == first
    assert balanced[3] == user(result("1", "made 1"), text("go on"))


def test_an_answer_is_asked_for_by_message_and_call():
    asked = []
    one, two = model(text("x"), use("a")), model(use("b", q=2))

    def answer(turn, call):
        asked.append((turn, call.name, call.arguments, call.token))
        return Result("r")

    dialect.balance([one, two, user(result("a")), one], answer)

    assert asked == [([two], "f", {"q": 2}, "b"), ([one], "f", {}, "a")]


def test_objects_of_the_sdk_are_balanced_too():
    answer = Message.model_validate(response([text("x"), use("a"), use("b")]))
    turn = {"role": "assistant", "content": answer.content}

    balanced = balance(USER, turn, user(result("b")))

    assert balanced[1] is turn
    assert balanced[2] == user(result("a", "made a"), result("b"))


def test_a_message_that_is_no_dict_is_not_rebuilt():
    said = SimpleNamespace(role="user", content="hi")

    balanced = balance(model(use("a")), said)

    assert balanced[1:] == [user(result("a", "made a")), said]


def merged(messages):
    def blocks(message):
        content = message["content"]
        return [text(content)] if isinstance(content, str) else content

    for role, group in groupby(messages, key=lambda m: m["role"]):
        yield role, [block for message in group for block in blocks(message)]


def unpaired(messages):
    """Return the turns whose calls and results do not pair, and where they stand."""
    turns = [*merged(messages), ("user", [])]
    wrong = []
    for (role, said), (_, after) in pairwise(turns):
        uses = [block["type"] == "tool_use" for block in said]
        called = Counter(b["id"] or "" for b in said if b["type"] == "tool_use")
        kinds = [block["type"] == "tool_result" for block in after]
        told = Counter(
            b["tool_use_id"] or "" for b in after if b["type"] == "tool_result"
        )
        if role != "assistant":
            continue
        if (
            called != told
            or kinds != sorted(kinds, reverse=True)
            or uses != sorted(uses)
        ):
            wrong.append((said, after))
    if turns[0][0] == "user" and any(b["type"] == "tool_result" for b in turns[0][1]):
        wrong.append(turns[0])
    return wrong


IDS = st.sampled_from(["a", "b", "c", None])
TEXTS = st.sampled_from(["hi", "x y"]).map(text)
SAID = st.lists(TEXTS, min_size=1, max_size=2)


@st.composite
def rounds(draw):
    """Draw messages of one call of the model, its results in the ways that go."""
    ids = draw(st.lists(IDS, max_size=4))
    said = draw(SAID if not ids else st.lists(TEXTS, max_size=1))
    uses = [use(id_) for id_ in ids]
    split = draw(st.integers(0, len(uses)))
    calls = [model(*said, *uses[:split])] if said or split else []
    calls += [model(*uses[split:])] if uses[split:] else []
    results = draw(st.permutations([result(id_, f"r{n}") for n, id_ in enumerate(ids)]))
    split = draw(st.integers(0, len(results)))
    rest = [*results[split:], *draw(SAID)]
    told = [user(*results[:split])] if split else []
    return [*calls, *told, draw(st.sampled_from([user(*rest), user(*rest)]))]


BALANCED = st.lists(rounds(), max_size=4).map(
    lambda parts: [USER, *(message for part in parts for message in part)]
)


@st.composite
def damaged(draw):
    """Draw messages whose results were lost, moved, repeated or made up."""
    messages = copy.deepcopy(draw(BALANCED))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(messages) - 1))
        blocks = messages[at]["content"]
        how = draw(
            st.sampled_from(["lose", "move", "repeat", "invent", "drop", "text"])
        )
        if how == "drop" and len(messages) > 1:
            del messages[at]
        elif how == "invent" and messages[at]["role"] == "user":
            content = [result(draw(IDS), "orphan")]
            messages.insert(at, user(*content))
        elif how == "text" and messages[at]["role"] == "user":
            messages.insert(
                at, {"role": "user", "content": draw(st.sampled_from(["", "t"]))}
            )
        elif isinstance(blocks, list):
            results = [b for b in blocks if b["type"] == "tool_result"]
            if not results:
                continue
            one = draw(st.sampled_from(results))
            if how != "repeat":
                blocks[:] = [b for b in blocks if b is not one]
            if how != "lose":
                users = [m for m in messages[at:] if m["role"] == "user"]
                other = draw(st.sampled_from(users))
                if isinstance(other["content"], list):
                    other["content"].append(copy.deepcopy(one))
    return [m for m in messages if m["content"] or m["role"] == "assistant"]


@given(BALANCED)
def test_what_pairs_is_the_very_same_objects(messages):
    assert not unpaired(messages)

    same_objects(dialect.balance(messages, made), messages)


@given(damaged())
def test_whatever_happened_to_results_each_call_has_one_in_its_place(messages):
    balanced = check_repaired(dialect, messages, made, unpaired, "assistant")

    texts = [b["text"] for _, bs in merged(messages) for b in bs if b["type"] == "text"]
    told = [b["text"] for _, bs in merged(balanced) for b in bs if b["type"] == "text"]
    assert Counter(filter(None, texts)) == Counter(told)


@given(BALANCED, st.data())
def test_results_that_are_there_are_used_and_only_those_that_lack_are_made(
    messages, data
):
    messages = copy.deepcopy(messages)
    users = [m for m in messages if isinstance(m["content"], list)]
    results = [b for m in users for b in m["content"] if b["type"] == "tool_result"]
    lost = (
        data.draw(st.lists(st.sampled_from(results), unique_by=id)) if results else []
    )
    for message in users:
        message["content"] = [
            block for block in message["content"] if not any(block is b for b in lost)
        ]
    messages = [m for m in messages if m["content"]]

    balanced = dialect.balance(messages, made)

    contents = Counter(
        block["content"]
        for _, blocks in merged(balanced)
        for block in blocks
        if block["type"] == "tool_result"
    )
    assert sum(n for c, n in contents.items() if c.startswith("made")) == len(lost)
    left = Counter(
        block["content"] for block in results if not any(block is b for b in lost)
    )
    assert Counter({c: n for c, n in contents.items() if c[0] == "r"}) == left


@given(scripts("anthropic"), st.data())
def test_the_provider_s_rules_hold_after_any_cut(script, data):
    """Cut at any message, with a turn of the user after the cut."""
    messages = history(render_anthropic, script)
    cut = data.draw(st.integers(1, len(messages)))

    balanced = dialect.balance([*messages[:cut], USER], made)

    assert not rules_anthropic.check(balanced, ids="lenient")


# comparing, usage ----------------------------------------------------------------


def test_marks_of_the_cache_and_ids_of_messages_are_not_compared():
    mark = {"cache_control": {"type": "ephemeral"}}
    nested = [{**text("x"), **mark}]
    marked = {
        "role": "user",
        "id": "drawn anew",
        "content": [{**result("a", nested), **mark}, {**text("go"), **mark}],
    }

    assert dialect.comparable(marked) == user(result("a", [text("x")]), text("go"))
    assert dialect.comparable(USER) == dialect.comparable(
        user({**text("go on"), **mark})
    )


def test_arguments_are_compared_whatever_they_are_called():
    one, other = (model(use("a", cache_control=n, id=n)) for n in (1, 2))

    assert dialect.comparable(one) != dialect.comparable(other)


def test_objects_compare_equal_to_what_they_say():
    answer = Message.model_validate(response(STREAMED))
    appended = {"role": "assistant", "content": answer.content}

    assert dialect.comparable(appended) == dialect.comparable(dialect.turn(answer)[0])


@pytest.mark.parametrize(
    "kind", [dict, Message.model_validate], ids=["dict", "message"]
)
def test_the_input_includes_what_the_cache_gave_and_took(kind):
    assert dialect.usage(kind(response(STREAMED))) == ("claude-x", Tokens(22, 7, 16, 3))


def test_a_message_without_counts_has_no_usage():
    assert dialect.usage(response(usage=None)) is None
    assert dialect.usage({"usage": USAGE, "choices": []}) is None
