"""The model's server: the SDKs take its answers, and are refused what breaks a rule."""

from __future__ import annotations

import asyncio
import json

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.clients import (
    SDKS,
    Anthropic,
    Chat,
    Gemini,
    LangChain,
    Responses,
)
from tests.providers.conversations import (
    LIMITS,
    Call,
    Model,
    User,
    history,
    ids_held,
    scripts,
)
from tests.providers.rules_base import rule_of
from tests.providers.servers import ModelServer, extends, member, wire_of

CALLS = (Call("search", '{"q": "x"}', "c1"), Call("send", '{"to": "é"}', "c2"))
ASKS = Model("let me see", CALLS, thinking="hm")
SAYS = Model("fine")
#: One prompt of each API's path.
PATHS = {
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1/models/gemini-3-test:generateContent",
    "langchain": "/chat/completions",
}
by_sdk = pytest.mark.parametrize("sdk", SDKS, ids=[sdk.name for sdk in SDKS])
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def ask(sdk, messages, *, stream):
    """Ask once, whole or as a stream; returns the whole response."""
    if not stream:
        return sdk.create(**sdk.request(messages))
    return sdk.whole(sdk.create_stream(**sdk.request(messages, stream=True)))


@by_sdk
@streamed
def test_a_loop_of_tools_is_accepted(sdk, stream):
    server = ModelServer([ASKS, SAYS])
    client = sdk(server)
    messages = client.said("hi é")
    response = ask(client, messages, stream=stream)
    calls = client.calls(response)
    messages += client.heard(response) + client.results(calls, ["1", "2"])
    ask(client, messages, stream=stream)

    assert [c[1:] for c in calls] == [("search", {"q": "x"}), ("send", {"to": "é"})]
    assert server.refused == []
    assert server.given == 2


@by_sdk
@streamed
def test_an_orphaned_call_is_refused_with_the_rule(sdk, stream):
    server = ModelServer([ASKS, SAYS])
    client = sdk(server)
    messages = client.said("hi")
    response = ask(client, messages, stream=stream)
    messages += client.heard(response) + client.said("still there?")

    with pytest.raises(client.refusal) as refused:
        ask(client, messages, stream=stream)
    rules = {"counts"} if sdk is Gemini else {"answered"}
    assert {rule_of(breach) for breach in server.refused} == rules
    assert server.refused[0].split(": ")[0] in str(refused.value)
    assert server.given == 1


@by_sdk
def test_requests_are_kept_as_they_were_sent(sdk):
    server = ModelServer([SAYS, SAYS])
    client = sdk(server)
    messages = client.said('a ] "quoted" \\ é 🙂 messages')
    ask(client, messages, stream=False)
    messages += client.heard(SAYS_AS[sdk](client)) + client.said("more")
    ask(client, messages, stream=False)
    first, second = (request.messages for request in server.requests)

    assert json.loads(first) == server.requests[0].json[wire_of_sdk(sdk).messages]
    assert extends(first, second)
    assert not extends(second, first)


def wire_of_sdk(sdk):
    return wire_of(PATHS[sdk.name])


def _response_of(sdk):
    return lambda client: ask(sdk(ModelServer([SAYS])), client.said("x"), stream=False)


SAYS_AS = {sdk: _response_of(sdk) for sdk in SDKS}


def test_member_finds_the_array_however_it_stands():
    body = b'{"a": {"messages": [0]}, "b": "\\"messages\\": [", "messages" : [1, 2] }'

    assert member(body, "messages") == b"[1, 2]"


def test_a_changed_message_does_not_extend():
    assert extends(b'[{"a":1}]', b'[{"a":1},{"b":2}]')
    assert extends(b"[]", b"[]")
    assert not extends(b'[{"a":1}]', b'[{"a": 1},{"b":2}]')
    assert not extends(b"[1]", b"[12]")


@by_sdk
@settings(deadline=None)
@given(st.data())
def test_streams_and_whole_answers_are_the_same_to_the_sdk(sdk, data):
    """One script, rendered twice: the SDK adds both up to the same.

    LangChain mends arguments that do not parse where they are streamed, only there.
    """
    script = data.draw(scripts("anthropic" if sdk is LangChain else sdk.name))
    model = next(turn for turn in script if isinstance(turn, Model))
    told = [
        _told(sdk, ask(client, client.said("hi"), stream=stream))
        for stream in (False, True)
        for client in [sdk(ModelServer([model]))]
    ]

    assert told[0] == told[1]


def _told(sdk, response):
    """Return what a response tells, in one form: texts joined, calls in order."""
    if sdk is Chat:
        message = response if isinstance(response, dict) else None
        message = message or response.choices[0].message.to_dict()
        kept = {k: v for k, v in message.items() if v and k != "annotations"}
        calls = kept.get("tool_calls", [])
        return {**kept, "tool_calls": [{"id": None, **c} for c in calls]}
    if sdk is LangChain:
        return response.content, response.tool_calls
    if sdk is Responses:
        return [item.to_dict() for item in response.output]
    if sdk is Anthropic:
        return [block.to_dict() for block in response.content]
    parts = [
        p.model_dump(exclude_none=True) for p in response.candidates[0].content.parts
    ]
    texts = {bool(p.get("thought")): "" for p in parts if "text" in p}
    for part in parts:
        if "text" in part:
            texts[bool(part.get("thought"))] += part["text"]
    return texts, [part for part in parts if "text" not in part]


@by_sdk
@settings(deadline=None)
@given(st.data())
def test_whole_conversations_are_accepted_over_the_wire(sdk, data):
    wire = wire_of(PATHS[sdk.name])
    script = data.draw(scripts(sdk.name))
    server = ModelServer([SAYS], ids=ids_held(sdk.name, script))
    body = json.dumps({wire.messages: history(wire.dialect, script)})

    status, _, _ = server.answer(PATHS[sdk.name], body.encode())
    assert (status, server.refused) == (200, [])


@pytest.mark.parametrize("name", list(PATHS))
def test_a_body_with_a_lone_surrogate_is_refused(name):
    """Escaped, it passes as ASCII; it is no UTF-8 all the same."""
    wire = wire_of(PATHS[name])
    messages = wire.dialect.said(User("\ud83c"))
    server = ModelServer([SAYS])
    body = json.dumps({wire.messages: messages})

    status, _, _ = server.answer(PATHS[name], body.encode("ascii"))
    assert status == 400
    assert [rule_of(breach) for breach in server.refused] == ["utf8"]


def test_thinking_that_is_lost_on_the_way_is_refused():
    server = ModelServer([ASKS, SAYS])
    client = Anthropic(server)
    messages = client.said("hi")
    response = ask(client, messages, stream=False)
    response.content.pop(0)
    messages += client.heard(response) + client.results(
        client.calls(response), ["1", "2"]
    )

    with pytest.raises(anthropic.BadRequestError, match="thinking-kept"):
        ask(client, messages, stream=False)


def test_cache_marks_of_the_system_prompt_count():
    client = Anthropic(ModelServer([SAYS] * 2))
    messages = [message for n in range(4) for message in client.said(f"{n}")]
    client.create(**client.request(messages))
    client.marks = 1

    with pytest.raises(anthropic.BadRequestError, match="cache-marks"):
        client.create(**client.request(messages + client.said("more")))


def test_a_lost_thought_signature_is_refused():
    server = ModelServer([ASKS, SAYS])
    client = Gemini(server)
    messages = client.said("hi")
    response = ask(client, messages, stream=False)
    for part in response.candidates[0].content.parts:
        part.thought_signature = None
    messages += client.heard(response) + client.results(
        client.calls(response), ["1", "2"]
    )

    with pytest.raises(genai.errors.ClientError, match="signatures"):
        ask(client, messages, stream=False)


def test_a_cut_stream_ends_without_its_last_chunk():
    server = ModelServer([ASKS], cut=3)
    client = Chat(server)
    chunks = list(client.create(**client.request(client.said("hi"), stream=True)))

    assert len(chunks) == 3
    assert chunks[-1].choices[0].finish_reason is None


def test_async_clients_are_answered_too():
    async def run():
        server = ModelServer([SAYS] * 4)
        http = server.async_client()
        gpt = openai.AsyncOpenAI(api_key="none", http_client=http)
        claude = anthropic.AsyncAnthropic(api_key="none", http_client=http)
        options = types.HttpOptions(httpx_async_client=http)
        gemini = genai.Client(api_key="none", http_options=options)
        said = [{"role": "user", "content": "hi"}]
        chat = await gpt.chat.completions.create(model="m", messages=said)
        answer = await gpt.responses.create(model="m", input="hi")
        message = await claude.messages.create(model="m", max_tokens=9, messages=said)
        stream = await gemini.aio.models.generate_content_stream(
            model="m", contents="hi"
        )
        texts = [part.text async for part in stream]
        return [
            chat.choices[0].message.content,
            answer.output_text,
            message.content[0].text,
            "".join(texts),
        ]

    assert asyncio.run(run()) == ["fine"] * 4


def test_a_loopback_server_serves_a_real_port():
    server = ModelServer([ASKS, SAYS])
    with (
        server.loopback() as url,
        openai.OpenAI(api_key="none", base_url=url, max_retries=0) as client,
    ):
        said = [{"role": "user", "content": "hi"}]
        stream = client.chat.completions.create(model="m", messages=said, stream=True)
        with stream:
            ended = [c.choices[0].finish_reason for c in stream if c.choices]
        with pytest.raises(openai.BadRequestError, match="tool-needs-call"):
            client.chat.completions.create(
                model="m",
                messages=[*said, {"role": "tool", "tool_call_id": "a", "content": "x"}],
            )

    assert ended[-1] == "tool_calls"
    assert len(server.requests) == 2


def test_limits_are_told_for_each_dialect():
    assert set(PATHS) == set(LIMITS)
