"""OpenAI's Responses API: turns, calls, streams, and outputs in their place."""

import json

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type
from openai.types.responses import ParsedResponse, Response
from openai.types.responses.response_stream_event import ResponseStreamEvent

from durable_agent.transcript import openai_responses as responses
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
from tests.providers import render_openai_responses as render
from tests.providers.conversations import Call, Model, scripts

USER = {"role": "user", "content": "go on"}


def call(id_="t1", name="search", arguments="{}", **more):
    known = {} if id_ is None else {"call_id": id_}
    return {
        "type": "function_call",
        "id": f"fc_{id_}",
        **known,
        "name": name,
        "arguments": arguments,
        **more,
    }


def output(id_, text="found"):
    return {"type": "function_call_output", "call_id": id_, "output": text}


def reasoning(n=1, **more):
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], **more}


def said(text, n=1):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{n}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def response(*items, **more):
    return {**render._response(1, "completed", list(items)), **more}


def of_sdk(plain):
    return Response.construct(**plain)


# Turns


OUTPUTS = [
    render.items(Model("hi", (Call(), Call(id="t2", arguments='{"q": 1')), "hm"), 1),
    [reasoning(encrypted_content="gAAA", content=None), call(status="completed")],
    [{**said("a"), "phase": "commentary"}, call(namespace="crm")],
    [
        {"type": "custom_tool_call", "call_id": "t1", "name": "sql", "input": "SELECT"},
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "a", "sources": None},
        },
    ],
    [said("a"), {"type": "brand_new_call", "call_id": "t1", "what": {"a": [1, None]}}],
]


def body_of(items):
    """Return the body that the SDK sends, as the bytes they are."""
    sent = []

    def reply(request):
        sent.append(request.content)
        return httpx2.Response(200, json=response())

    transport = httpx2.Client(transport=httpx2.MockTransport(reply))
    client = openai.OpenAI(api_key="none", http_client=transport)
    client.responses.create(model="gpt-test", input=items)
    return sent[0]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("make", [of_sdk, dict])
def test_a_turn_is_sent_as_the_sdk_sends_the_items_themselves(make, output):
    """Also by its bytes: a provider's cache knows the beginning of a request."""
    whole = make(response(*output))
    own = whole["output"] if isinstance(whole, dict) else whole.output

    assert body_of([USER, *responses.turn(whole)]) == body_of([USER, *own])
    assert body_of([USER, *responses.turn(own)]) == body_of([USER, *own])


def test_names_are_those_of_the_api():
    """The SDK itself sends ``async_`` for an object that is appended."""
    whole = Response.construct(**response(call(**{"async": True})))

    assert responses.turn(whole) == [call(**{"async": True})]


def test_plain_items_are_their_own_turn():
    items = [reasoning(), call()]

    found = responses.turn(response(*items))

    assert all(a is b for a, b in zip(found, items, strict=True))


def test_what_the_sdk_parsed_is_not_sent():
    message = said("{}")
    message["content"][0]["parsed"] = {"a": 1}
    whole = ParsedResponse.construct(**response(message, call(parsed_arguments={})))

    assert responses.turn(whole) == [said("{}"), call()]
    assert responses.turn(whole.output) == [said("{}"), call()]


@pytest.mark.parametrize(
    ("item", "sent"),
    [
        (reasoning(status=None), reasoning()),
        (reasoning(status="completed"), reasoning()),
        (call(status=None), call()),
        (call(created_by="u"), call()),
        (call(status="completed"), call(status="completed")),
    ],
)
def test_what_the_provider_refuses_is_not_sent(item, sent):
    assert responses.turn(response(item, said("a"))) == [sent, said("a")]


def test_reasoning_that_led_to_nothing_is_left_out():
    whole = response(reasoning(1), said("a"), reasoning(2), reasoning(3))

    assert responses.turn(whole) == [reasoning(1), said("a")]
    assert responses.turn(response(reasoning())) == []


def test_lone_surrogates_of_a_turn_become_replacement_characters():
    assert responses.turn(response(said("a\ud83c\x00"))) == [said("a\ufffd\x00")]


@pytest.mark.parametrize(
    "other",
    [
        {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
        {"role": "assistant", "content": "a"},
        [USER],
        [USER, call()],
        {"output": ["text"]},
        {"output": [{"type": "text"}]},
        {"output": "text"},
    ],
)
def test_responses_of_other_forms_are_not_known(other):
    assert responses.turn(other) is None


def test_a_text_alone_is_a_turn():
    assert responses.text_turn("a\ud83c") == [
        {"role": "assistant", "content": "a\ufffd"}
    ]


# Requests


def test_the_items_of_a_request_are_found_by_name_else_by_form():
    items = [USER, call()]

    assert responses.request({"input": items}) is items
    assert responses.request({"history": items}) is items
    assert responses.request({"input": "go on"}) == [USER]
    assert responses.request({"input": (USER,)}) == [USER]
    new = [{"type": "brand_new_item"}]
    assert responses.request({"input": new}) is new


@pytest.mark.parametrize(
    "bound",
    [{"messages": [USER]}, {"input": [1]}, {"input": {"a": 1}}, {"text": "go on"}],
)
def test_requests_of_other_forms_have_no_items(bound):
    assert responses.request(bound) is None


@pytest.mark.parametrize(
    ("item", "known"),
    [
        (call(), True),
        (output("t1"), True),
        (reasoning(), True),
        (said("a"), True),
        ({"role": "user", "content": [{"type": "input_text", "text": "a"}]}, True),
        ({"type": "item_reference", "id": "msg_1"}, True),
        (of_sdk(response(call())).output[0], True),
        ({"role": "assistant", "content": "a"}, False),
        ({"type": "message", "role": "user", "content": "a"}, False),
        ({"role": "assistant", "tool_calls": []}, False),
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, False),
    ],
)
def test_an_item_that_only_this_provider_has_is_known(item, known):
    assert responses.knows([USER, item]) is known


# Calls


def test_calls_are_found_in_their_order_with_what_could_be_parsed():
    turn = [
        reasoning(),
        call("t1", arguments='{"n": 1}'),
        call("t1", arguments=""),
        call(None, arguments='{"q": "cut'),
        {"type": "custom_tool_call", "call_id": "t2", "name": "sql", "input": "SELECT"},
        {"type": "web_search_call", "id": "ws_1"},
    ]

    assert [(c.id, c.name, c.arguments, c.token) for c in responses.calls(turn)] == [
        ("t1", "search", {"n": 1}, "t1"),
        ("t1", "search", {}, "t1#2"),
        (None, "search", None, "#1"),
        ("t2", "sql", {"input": "SELECT"}, "t2"),
    ]


def test_calls_of_the_sdk_objects_are_those_of_the_plain_items():
    items = [call(arguments='{"a": 1}'), SHELL, PATCH, COMPUTER]
    known = Response.construct(**response(*items)).output

    assert responses.calls(known) == responses.calls(items)


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "t2",
    "action": {"commands": ["ls"], "max_output_length": 99, "timeout_ms": None},
    "status": "completed",
}
PATCH = {
    "type": "apply_patch_call",
    "id": "ap_1",
    "call_id": "t3",
    "operation": {"type": "delete_file", "path": "a"},
    "status": "completed",
}
COMPUTER = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "t4",
    "action": {"type": "screenshot"},
    "pending_safety_checks": [],
    "status": "completed",
}
SCREEN = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "send",
    "arguments": '{"to": "a"}',
    "server_label": "mail",
}
PRINTED = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


def test_a_call_that_the_provider_answered_itself_is_none():
    hosted = {"type": "shell_call_output", "call_id": "t2", "output": [PRINTED]}
    searched = {"type": "tool_search_call", "execution": "server", "call_id": None}
    turn = [SHELL, hosted, searched, call()]

    assert [c.id for c in responses.calls(turn)] == ["t1"]
    found = responses.balance(turn, gone)
    assert found == [*turn, output("t1", "gone: t1")]


@pytest.mark.parametrize(
    ("item", "result", "answer"),
    [
        (call(), Result("a"), output("t1", "a")),
        (
            call(caller={"type": "program", "caller_id": "p"}),
            Result("a"),
            {**output("t1", "a"), "caller": {"type": "program", "caller_id": "p"}},
        ),
        (
            call(),
            Result("t", value=[{"type": "input_text", "text": "a"}], has_value=True),
            output("t1", [{"type": "input_text", "text": "a"}]),
        ),
        (
            call(),
            Result("t", value=[{"type": "text", "text": "a"}], has_value=True),
            output("t1", "t"),
        ),
        (call(), Result("t", value=output("t9"), has_value=True), output("t1")),
        (
            {"type": "custom_tool_call", "call_id": "t1", "name": "f", "input": "a"},
            Result("a"),
            {"type": "custom_tool_call_output", "call_id": "t1", "output": "a"},
        ),
        (
            {"type": "local_shell_call", "call_id": "t1", "action": {"command": []}},
            Result("a"),
            {"type": "local_shell_call_output", "call_id": "t1", "output": "a"},
        ),
        (
            SHELL,
            Result("lost", failed=True),
            {
                "type": "shell_call_output",
                "call_id": "t2",
                "output": [
                    {
                        "stdout": "",
                        "stderr": "lost",
                        "outcome": {"type": "exit", "exit_code": 1},
                    }
                ],
                "max_output_length": 99,
            },
        ),
        (
            SHELL,
            Result("t", value=[PRINTED], has_value=True),
            {
                "type": "shell_call_output",
                "call_id": "t2",
                "output": [PRINTED],
                "max_output_length": 99,
            },
        ),
        (
            PATCH,
            Result("lost", failed=True),
            {
                "type": "apply_patch_call_output",
                "call_id": "t3",
                "status": "failed",
                "output": "lost",
            },
        ),
        (
            COMPUTER,
            Result("t", value=SCREEN["image_url"], has_value=True),
            {"type": "computer_call_output", "call_id": "t4", "output": SCREEN},
        ),
        (
            {"type": "tool_search_call", "execution": "client", "call_id": "t1"},
            Result("t", value=[{"type": "function", "name": "f"}], has_value=True),
            {
                "type": "tool_search_output",
                "call_id": "t1",
                "execution": "client",
                "status": "completed",
                "tools": [{"type": "function", "name": "f"}],
            },
        ),
        (
            APPROVAL,
            Result("lost", failed=True),
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": False,
                "reason": "lost",
            },
        ),
        (
            APPROVAL,
            Result("true", value=True, has_value=True),
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": True,
            },
        ),
    ],
)
def test_each_kind_of_call_has_its_kind_of_answer(item, result, answer):
    found = responses.balance([item, USER], lambda *_: result)

    assert found == [item, answer, USER]
    assert responses.balance(found, never) == found


def rendered(item, value):
    answer = Result("t", value=value, has_value=True)
    return responses.balance([item], lambda *_: answer)[-1]


@pytest.mark.parametrize(
    "value",
    [
        *(output("t1", held) for held in (None, 5, {"a": 1}, [], ["x"])),
        *(output("t1", [{"type": kind}]) for kind in ("text", "input_text")),
        {"type": "function_call_output", "call_id": "t1"},
        {**output("t1"), "extra": float("nan")},
        [{"type": "input_image", "image_url": None}],
        [{"type": "input_text", "text": "a", "extra": b"x"}],
    ],
    ids=repr,
)
def test_an_output_that_the_provider_would_refuse_is_its_text(value):
    assert rendered(call(), value) == output("t1", "t")


def test_a_value_leaves_as_the_provider_takes_it():
    """Lone surrogates are replaced, a status that is null is left out."""
    bad = [{"type": "input_text", "text": "\ud800"}]
    clean = [{"type": "input_text", "text": "\ufffd"}]

    assert rendered(call(), output("t1", "\ud800")) == output("t1", "\ufffd")
    assert rendered(call(), output("t1", bad)) == output("t1", clean)
    assert rendered(call(), bad) == output("t1", clean)
    assert rendered(call(), {**output("t1"), "status": None}) == output("t1")


@pytest.mark.parametrize(
    ("item", "bad", "good"),
    [
        (SHELL, {"output": "a"}, {"output": [PRINTED]}),
        (SHELL, {"output": [{**PRINTED, "stdout": None}]}, {"output": [PRINTED]}),
        (PATCH, {"output": "a"}, {"output": "a", "status": "failed"}),
        (COMPUTER, {"output": {"type": "computer_screenshot"}}, {"output": SCREEN}),
        (APPROVAL, {"approve": None}, {"approve": True}),
    ],
)
def test_an_item_of_each_kind_is_put_only_if_the_provider_takes_it(item, bad, good):
    *_, made = responses.balance([item], lambda *_: Result("t"))
    key = next(n for n in made if n in ("call_id", "approval_request_id"))
    head = {"type": made["type"], key: made[key]}

    assert rendered(item, {**head, **good}) == {**head, **good}
    refused = rendered(item, {**head, **bad})
    assert {**refused, "reason": None} == {**made, "reason": None}


def test_a_screenshot_without_a_picture_shows_nothing():
    shown = rendered(COMPUTER, {"type": "computer_screenshot", "image_url": None})

    assert shown["output"]["image_url"].startswith("data:image/png;base64,")


def test_a_computer_without_a_screenshot_shows_nothing():
    """The API takes only a picture: the model has to look again."""
    _, found = responses.balance([COMPUTER], gone)

    assert found["output"]["type"] == "computer_screenshot"
    assert found["output"]["image_url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("key", ["id", "call_id"])
def test_the_answer_of_a_local_shell_is_known_by_either_id(key):
    item = {"type": "local_shell_call", "id": "lsh_1", "call_id": "t1", "action": {}}
    messages = [
        item,
        {"type": "local_shell_call_output", key: "t1", "output": "a"},
        USER,
    ]

    assert responses.balance(messages, never) == messages


# Outputs in their place


def test_outputs_go_after_the_turn_and_never_between_its_items():
    """Reasoning stands directly before what it led to."""
    turn = [reasoning(1), call("t1"), reasoning(2), call("t2"), said("a")]

    assert responses.balance([*turn, USER], gone) == [
        *(*turn, output("t1", "gone: t1"), output("t2", "gone: t2"), USER)
    ]


def test_an_output_between_reasoning_and_its_call_is_moved_before_both():
    turn = [reasoning(2), call("t3")]
    items = [call("t1"), call("t2"), turn[0], output("t1"), output("t2"), turn[1]]

    assert responses.balance([*items, output("t3")], never) == [
        *(*items[:2], output("t1"), output("t2"), *turn, output("t3"))
    ]


def test_an_output_of_no_call_does_not_end_the_turn_that_it_stands_in():
    turn = [call("t1"), reasoning(2), said("a"), call("t2")]
    items = [*turn[:2], output("t2"), *turn[2:]]

    assert responses.balance(items, gone) == [
        *(*turn, output("t1", "gone: t1"), output("t2", "gone: t2"))
    ]


def test_an_output_that_its_id_tells_stays_where_it_is():
    """The API finds it anywhere after its call, and the prefix stays the same."""
    items = [call("t1"), call("t2"), output("t2"), USER, output("t1")]

    assert responses.balance(items, never) == items


def test_a_repeated_id_beside_one_that_is_told_apart_changes_nothing_twice():
    items = [call("a"), call("b"), call("a"), output("a", "1"), output("a", "2")]

    found = responses.balance(items, gone)

    outputs = [output("a", "1"), output("b", "gone: b"), output("a", "2")]
    assert found == [*items[:3], *outputs]
    assert responses.balance(found, never) == found


def test_an_output_before_its_call_is_moved_nowhere_and_left_out():
    items = [said("a"), output("t1"), call("t1")]

    assert responses.balance(items, gone) == [
        *(said("a"), call("t1"), output("t1", "gone: t1"))
    ]


def test_an_id_that_comes_again_in_a_later_turn_is_another_call():
    items = [call("t1"), output("t1", "1"), USER, call("t1")]

    assert responses.balance(items, gone) == [*items, output("t1", "gone: t1")]


def test_the_first_of_two_outputs_is_kept():
    items = [call("t1"), USER, output("t1", "1"), output("t1", "2")]

    assert responses.balance(items, never) == [call("t1"), output("t1", "1"), USER]


def test_outputs_for_calls_that_the_provider_holds_stay():
    """With previous_response_id the request begins with them."""
    items = [output("t0"), USER, call("t1"), output("t1"), output("t9")]

    assert responses.balance(items, never) == items[:-1]
    assert responses.balance([output("t0")], never) == [output("t0")]


def test_outputs_at_the_beginning_for_a_call_of_the_list_are_left_out():
    items = [output("t1", "1"), USER, call("t1")]

    assert responses.balance(items, gone) == [
        *(USER, call("t1"), output("t1", "gone: t1"))
    ]


def test_an_output_of_another_kind_is_not_the_answer():
    wrong = {"type": "custom_tool_call_output", "call_id": "t1", "output": "a"}

    assert responses.balance([call("t1"), wrong], gone) == [
        *(call("t1"), output("t1", "gone: t1"))
    ]


def test_items_of_the_sdk_are_balanced_as_they_are():
    items = Response.construct(**response(reasoning(), call())).output

    found = responses.balance([USER, *items], gone)

    assert all(a is b for a, b in zip(found, [USER, *items], strict=False))
    assert found[3:] == [output("t1", "gone: t1")]


def is_result(item):
    return item.get("type") == "function_call_output"


@drawn
@given(damaged("openai_responses", is_result))
def test_every_damaged_conversation_is_balanced(case):
    script, items = case
    # What stands before all that the model says is for calls elsewhere.
    while items and is_result(items[0]):
        items = items[1:]
    first = next((n for n, i in enumerate(items) if i.get("id")), len(items))
    items = [i for n, i in enumerate(items) if n >= first or not is_result(i)]
    found = check_balance(responses, "openai_responses", script, items)

    assert [i for i in found if not is_result(i)] == (
        [i for i in items if not is_result(i)]
    )


@drawn
@given(scripts("openai_responses"))
def test_a_conversation_without_damage_is_left_alone(script):
    check_whole(responses, "openai_responses", script)


# Streams


@drawn
@given(scripts("openai_responses"), st.booleans(), st.sampled_from(["all", "empty"]))
def test_a_stream_amounts_to_the_response(script, as_objects, end):
    """Also where the end does not repeat what was streamed."""
    for n, model in enumerate(asked(script)):
        events = render.stream(model, n)
        if end == "empty":
            events[-1] = {
                **events[-1],
                "response": {**events[-1]["response"], "output": []},
            }
        if as_objects:
            events = [
                construct_type(value=e, type_=ResponseStreamEvent) for e in events
            ]
        found = responses.assemble(events)

        assert found.complete
        assert responses.turn(found.response) == render.items(model, n)
        assert responses.usage(found.response) == ("gpt-test", Tokens(20, 7, 16, 3))


@drawn
@given(scripts("openai_responses"), st.data())
def test_a_stream_that_broke_off_gives_what_there_is(script, data):
    (model, *_) = asked(script)
    events = render.stream(model, 0)
    cut = data.draw(st.integers(1, len(events) - 1))
    found = responses.assemble(events[:cut])

    assert not found.complete
    whole = render.items(model, 0)
    for item, of_whole in zip(found.response["output"], whole, strict=False):
        assert item["type"] == of_whole["type"]
        assert of_whole.get("arguments", "").startswith(item.get("arguments", ""))


def test_pieces_without_an_announced_item_are_a_message():
    events = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": piece}
        for piece in ("a", "b")
    ]
    found = responses.assemble(events)

    assert found.response["output"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ab"}],
        }
    ]


def test_the_whole_of_a_text_stands_for_its_pieces():
    at = {"output_index": 0, "item_id": "fc_t1"}
    event = "response.function_call_arguments"
    events = [
        {"type": "response.output_item.added", **at, "item": call(arguments="")},
        {"type": f"{event}.delta", **at, "delta": '{"q"'},
        {"type": f"{event}.done", **at, "arguments": '{"q": 1}'},
    ]

    assert responses.assemble(events).response["output"] == [call(arguments='{"q": 1}')]


def test_parts_and_their_notes_are_as_far_as_they_came():
    at = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    note = {"type": "file_path", "file_id": "f", "index": 0}
    begun = {**said("a"), "content": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    event = "response.output_text"
    events = [
        {"type": "response.output_item.added", **at, "item": begun},
        {"type": "response.content_part.added", **at, "part": part},
        {"type": f"{event}.delta", **at, "delta": "a"},
        {"type": f"{event}.annotation.added", **at, "annotation": note},
    ]
    (found,) = responses.assemble(events).response["output"]

    assert found == {
        **begun,
        "content": [{**part, "text": "a", "annotations": [note]}],
    }


@pytest.mark.parametrize("how", ["completed", "incomplete"])
def test_every_end_is_the_last_chunk(how):
    event = {"type": f"response.{how}", "response": response(status=how)}

    assert responses.is_final_chunk(event)
    assert responses.assemble([event]).complete
    assert not responses.is_final_chunk({"type": "response.output_item.done"})


@pytest.mark.parametrize(
    ("how", "status"), [("failed", "failed"), ("incomplete", "incomplete")]
)
def test_an_answer_that_failed_is_no_whole_one(how, status):
    told = response(status=status, error={"code": "server_error", "message": "no"})
    event = {"type": f"response.{how}", "response": told}

    assert not responses.is_final_chunk(event)
    assert not responses.assemble([event]).complete


def test_an_error_after_all_leaves_the_answer_incomplete():
    event = {"type": "response.in_progress", "response": response()}
    end = {"type": "response.completed", "response": response()}

    assert not responses.assemble([event, {"type": "error", "code": "c"}, end]).complete
    assert responses.assemble([event, end]).complete


@pytest.mark.parametrize("chunks", [[], ["a"], [{"choices": []}], [{"type": "ping"}]])
def test_chunks_of_other_forms_are_no_stream(chunks):
    assert responses.assemble(chunks) is None


# What is compared, and counted


def test_ids_states_and_cache_marks_are_not_compared():
    (known,) = Response.construct(**response(call(status="completed"))).output

    assert responses.comparable(known) == responses.comparable(call("t1", id="other"))
    assert responses.comparable(call("t1")) != responses.comparable(call("t2"))
    assert responses.comparable(said("a")) == responses.comparable(
        {"role": "assistant", "content": "a"}
    )
    assert responses.comparable(said("a")) != responses.comparable(said("b"))
    assert responses.comparable(APPROVAL) != responses.comparable(
        {**APPROVAL, "id": "mcpr_2"}
    )
    mark = {"type": "ephemeral"}
    part = {"type": "input_text", "text": "a"}
    pair = [part, {**part, "cache_control": mark}], [part, part]
    one, two = ({"role": "user", "content": parts} for parts in pair)
    assert responses.comparable(one) == responses.comparable(two)


def test_a_text_and_a_single_part_of_it_are_the_same():
    part = {"type": "input_text", "text": "go on"}

    assert responses.comparable({**USER, "content": [part]}) == (
        responses.comparable(USER)
    )
    assert responses.comparable(output("t1", [{**part, "text": "found"}])) == (
        responses.comparable(output("t1"))
    )
    assert responses.comparable(output("t1", [part])) != (
        responses.comparable(output("t1"))
    )
    assert responses.comparable({**USER, "content": [part, part]}) != (
        responses.comparable(USER)
    )


@pytest.mark.parametrize("make", [of_sdk, dict])
def test_tokens_are_those_that_the_provider_counted(make):
    assert responses.usage(make(response())) == ("gpt-test", Tokens(20, 7, 16, 3))


@pytest.mark.parametrize("other", [{}, None, response(usage=None), {"usage": {}}])
def test_what_states_no_tokens_has_none(other):
    assert responses.usage(other) is None


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd).partition(" at 0x")[0])
def test_nothing_odd_raises(odd):
    never_raises(responses, odd)


def test_nothing_that_was_given_is_changed():
    events = render.stream(Model("hi", (Call(),), "hm"), 0)[:-1]
    items = [call("t1", status=None), call("t2"), USER, output("t2")]
    before = json.dumps([events, items])
    responses.assemble(events)
    responses.balance(items, gone)
    responses.turn(response(*items[:2]))

    assert json.dumps([events, items]) == before
