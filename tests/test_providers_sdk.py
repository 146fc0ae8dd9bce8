"""A chat with each SDK, stopped anywhere: the provider takes what it is continued with.

The server enforces the provider's rules. What was sent before the stop is, byte for
byte, the beginning of what is sent after it, so that the provider's cache holds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json

import anthropic
import openai
import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage

from durable_agent import (
    TOOL_OUTCOME_UNKNOWN,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
)
from tests.providers import render_langchain, rules_langchain
from tests.providers.clients import MARK, SDKS, Anthropic, Chat
from tests.providers.servers import ModelServer, extends
from tests.sdk_agent import SAID, SAYS, WHOLE, Agent, Stopped, asks, told

STREAMED = {False: "whole", True: "stream"}
by_sdk = pytest.mark.parametrize("sdk", SDKS, ids=[sdk.name for sdk in SDKS])
streamed = pytest.mark.parametrize(
    "stream", list(STREAMED), ids=list(STREAMED.values())
)

PLACES = ("request", "chunk", "response", "search", "between", "send")
STOPS = [(place, s) for place in PLACES for s in STREAMED if s or place != "chunk"]
by_stop = pytest.mark.parametrize(
    ("place", "stream"), STOPS, ids=[f"{place}-{STREAMED[s]}" for place, s in STOPS]
)


@by_sdk
@by_stop
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_chat_that_was_stopped_goes_on(sdk, stream, place, killed, root):
    """In its second turn, so that objects of the SDK have been sent before."""
    answers = [asks(1), SAYS, asks(2), SAYS]
    agent = Agent(sdk, answers, root, stream=stream, killed=killed)
    agent.run("first")
    agent.run_until(place, "second")
    before = agent.sent
    agent.run("and now?")
    after = agent.sent[len(before)]

    assert agent.server.refused == []
    assert [extends(sent, after) for sent in before] == [True] * len(before)
    assert told(after) == WHOLE + SAID[place]
    assert len(agent.ran) == len(set(agent.ran))


@by_sdk
@by_stop
def test_a_first_turn_that_was_stopped_goes_on(sdk, stream, place, root):
    agent = Agent(sdk, [asks(1), SAYS], root, stream=stream, killed=True)
    agent.run_until(place, "first")
    agent.run("and now?")

    assert agent.server.refused == []
    assert extends(agent.sent[0], agent.sent[1])
    assert told(agent.sent[1]) == SAID[place]


@by_sdk
@streamed
def test_a_chat_that_is_stopped_again_and_again_goes_on(sdk, stream, root):
    """Each request that is sent begins with the one before it, stopped or not."""
    answers = [asks(1), asks(2), SAYS, asks(3), SAYS]
    agent = Agent(sdk, answers, root, stream=stream, killed=True)
    agent.run_until("between", "first")
    agent.run_until("search", "second")
    agent.run_until("response", "third")
    agent.run_until("send", "fourth")
    agent.run("and now?")
    sent = agent.sent

    assert agent.server.refused == []
    assert [extends(a, b) for a, b in itertools.pairwise(sent)] == [True] * 4
    assert told(sent[-1]) == SAID["between"] + SAID["search"] + SAID["send"]


@by_sdk
def test_opening_a_stopped_chat_twice_tells_the_same(sdk, root):
    agent = Agent(sdk, [asks(1), SAYS], root, stream=False, killed=True)
    agent.run_until("send", "first")
    seen = []
    for _ in range(2):
        with conversation("chat", root=root) as s:
            seen.append(s.messages())
    agent.run("and now?")

    assert seen[0] == seen[1]
    assert agent.server.refused == []
    assert told(agent.sent[-1]) == SAID["send"]


@by_sdk
@streamed
def test_ids_that_start_again_in_each_turn_hide_no_orphan(sdk, stream, root):
    again = dataclasses.replace(
        asks(2), calls=tuple(replace_id(c, f"call_1{c.id[-1]}") for c in asks(2).calls)
    )
    agent = Agent(sdk, [asks(1), SAYS, again, SAYS], root, stream=stream, killed=True)
    agent.server.ids = "lenient"
    agent.run("first")
    agent.run_until("search", "second")
    agent.run("and now?")

    assert agent.server.refused == []
    assert told(agent.sent[-1]) == WHOLE + SAID["search"]


def replace_id(call, new):
    return dataclasses.replace(call, id=new)


def with_mark_at_the_end(messages):
    """Move the cache mark to the newest block, as agent loops do at each request."""
    moved = []
    for message in messages:
        if not isinstance(message, dict) or message["role"] != "user":
            moved.append(message)
            continue
        blocks = [
            {k: v for k, v in block.items() if k != "cache_control"}
            for block in message["content"]
        ]
        moved.append({**message, "content": blocks})
    moved[-1]["content"][-1] |= MARK
    return moved


@streamed
def test_a_chat_whose_cache_mark_moves_goes_on(stream, root):
    """All but the mark is as it was sent, and there is one mark, at the end."""
    answers = [asks(1), SAYS, asks(2), SAYS]
    agent = Agent(Anthropic, answers, root, stream=stream, killed=True)
    request = agent.sdk.request
    agent.sdk.request = lambda messages, **more: request(
        with_mark_at_the_end(messages), **more
    )
    agent.run("first")
    agent.run_until("between", "second")
    agent.run("and now?")
    mark = json.dumps(MARK, separators=(",", ":"))[1:-1].encode()
    bare = [sent.replace(b"," + mark, b"") for sent in agent.sent]

    assert agent.server.refused == []
    assert [sent.count(mark) for sent in agent.sent] == [1] * 4
    assert [extends(a, b) for a, b in itertools.pairwise(bare)] == [True] * 3
    assert told(agent.sent[-1]) == WHOLE + SAID["between"]


ASYNC = {
    "openai_chat": lambda http: openai.AsyncOpenAI(api_key="none", http_client=http),
    "anthropic": lambda http: anthropic.AsyncAnthropic(
        api_key="none", http_client=http
    ),
}


@pytest.mark.parametrize("sdk", [Chat, Anthropic], ids=["openai_chat", "anthropic"])
def test_parallel_tools_of_an_async_client_are_told_apart(sdk, root):
    """One of two tools at once has ended when the program stops."""
    server = ModelServer([asks(1), SAYS])
    plain = sdk(server)
    agent = ASYNC[sdk.name](server.async_client())
    create = (
        agent.messages.create if sdk is Anthropic else agent.chat.completions.create
    )
    create = checkpointed_llm(name="ask")(create)
    ended = asyncio.Event()

    @checkpointed_tool
    async def search(q):
        ended.set()
        return f"found {q}"

    @checkpointed_tool
    async def send(to):
        await ended.wait()
        raise Stopped

    async def run(text, *, until_stopped):
        async with conversation("chat", root=root) as s:
            messages = s.messages() + plain.said(text)
            response = await create(**plain.request(messages))
            tools = {"search": search, "send": send}
            calls = plain.calls(response)
            await asyncio.gather(*(tools[name](**args) for _, name, args in calls))
            assert not until_stopped

    with pytest.raises(Stopped):
        asyncio.run(run("first", until_stopped=True))
    asyncio.run(run("and now?", until_stopped=False))

    assert server.refused == []
    assert told(server.requests[1].messages) == ["found", TOOL_OUTCOME_UNKNOWN]


def test_a_fake_chat_model_of_langchain_goes_on(root):
    """Without a provider's wire: the messages themselves are judged."""
    turns = [asks(1), SAYS]
    replies = iter([render_langchain.response(t, n) for n, t in enumerate(turns)])
    model = GenericFakeChatModel(messages=replies)
    ask = checkpointed_llm(name="ask")(lambda messages: model.invoke(messages))

    with (
        pytest.raises(Stopped),
        conversation("chat", root=root),
    ):
        ask([HumanMessage("first")])
        raise Stopped
    with conversation("chat", root=root) as s:
        messages = [*s.messages(), HumanMessage("and now?")]
        ask(messages)
        whole = s.messages()

    assert rules_langchain.check(messages) == []
    assert [m.type for m in messages] == ["human", "ai", "tool", "tool", "human"]
    assert whole[:-1] == messages
