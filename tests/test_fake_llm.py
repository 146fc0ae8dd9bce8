"""The fake model speaks four dialects, remembers nothing, refuses what they refuse."""

from __future__ import annotations

import asyncio
import doctest
import json

import pytest

from durable_agent import _testing_llm, checkpointed_llm, session
from durable_agent.testing import FakeLLM, FakeLLMError, ToolCall
from durable_agent.transcript import assembled, calls_in, usage_of, whole
from tests.providers.registry import PROVIDERS

DIALECTS = ("openai", "openai-responses", "anthropic", "gemini")
RULES = {
    "openai": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
WANTED = [
    "Let me look.",
    ToolCall("search", {"q": "tides"}),
    ToolCall("search", {"q": "ports"}),
]
SCRIPT = [WANTED, "High at six."]


def user(dialect, text="When is high tide?"):
    if dialect == "gemini":
        return [{"role": "user", "parts": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def heard(dialect, response):
    """What a loop of tools keeps of an answer."""
    match dialect:
        case "openai":
            return [response["choices"][0]["message"]]
        case "openai-responses":
            return response["output"]
        case "anthropic":
            return [{"role": "assistant", "content": response["content"]}]
        case _:
            return [response["candidates"][0]["content"]]


def results(dialect, response):
    """One result for each call, as the provider wants them."""
    calls = calls_in(response)
    match dialect:
        case "openai":
            return [
                {"role": "tool", "tool_call_id": c.id, "content": "6"} for c in calls
            ]
        case "openai-responses":
            kind = {"type": "function_call_output", "output": "6"}
            return [{**kind, "call_id": c.id} for c in calls]
        case "anthropic":
            kind = {"type": "tool_result", "content": "6"}
            return [
                {
                    "role": "user",
                    "content": [{**kind, "tool_use_id": c.id} for c in calls],
                }
            ]
        case _:
            parts = [
                {
                    "functionResponse": {
                        "id": c.id,
                        "name": c.name,
                        "response": {"output": "6"},
                    }
                }
                for c in calls
            ]
            return [{"role": "user", "parts": parts}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_loop_of_tools_comes_to_the_end_of_the_script(dialect):
    """Read by the product's own dialect, judged by the rules of the provider."""
    llm = FakeLLM(SCRIPT, dialect=dialect)
    asked = user(dialect)
    first = llm(asked)
    calls = [(call.name, dict(call.arguments)) for call in calls_in(first)]
    messages = [*asked, *heard(dialect, first), *results(dialect, first)]
    last = llm(messages)

    assert calls == [("search", {"q": "tides"}), ("search", {"q": "ports"})]
    assert "High at six." in json.dumps(last)
    assert calls_in(last) == []
    assert llm.requests == [asked, messages]
    assert usage_of(first)[1].input > 0
    assert PROVIDERS[RULES[dialect]].judge(messages) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_chunks_put_together_are_the_whole_answer(dialect):
    llm = FakeLLM(SCRIPT, dialect=dialect)
    chunks = list(llm(user(dialect), stream=True))
    found = assembled(chunks)
    wanted = llm(user(dialect))

    assert found.complete
    assert len(chunks) > 4
    assert calls_in(found.response) == calls_in(wanted)
    assert "Let me look." in json.dumps(whole(found.response))
    assert chunks == list(llm.stream(user(dialect)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_async_is_the_same(dialect):
    llm = FakeLLM(SCRIPT, dialect=dialect)
    name = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")

    async def main():
        whole_ = await llm.acreate(**{name: user(dialect)})
        streamed = [c async for c in await llm.acreate(user(dialect), stream=True)]
        direct = [c async for c in llm.astream(user(dialect))]
        return whole_, streamed, direct

    whole_, streamed, direct = asyncio.run(main())

    assert whole_ == llm(user(dialect))
    assert streamed == direct == list(llm.stream(user(dialect)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_conversations_that_do_not_pair_are_refused(dialect):
    llm = FakeLLM(SCRIPT, dialect=dialect)
    asked = user(dialect)
    first = llm(asked)
    said, given = heard(dialect, first), results(dialect, first)
    half = given[:1]
    if len(given) == 1:
        key = "parts" if dialect == "gemini" else "content"
        half = [{**given[0], key: given[0][key][:1]}]

    for messages, says in (
        ([], "is empty"),
        ([*asked, *said], "tool calls without a result"),
        ([*asked, *said, *asked], "tool calls without a result"),
        ([*asked, *said, *half], "tool calls without a result"),
        ([*asked, *said, *half, *asked], "tool calls without a result"),
        ([*asked, *given], "a tool result without its tool call"),
        ([*asked, *said, *given, *given], "a tool result without its tool call"),
    ):
        with pytest.raises(FakeLLMError, match=says):
            llm(messages)
    assert len(llm.refused) == 7
    assert llm.requests == [asked]


def test_another_process_would_get_the_same_answer():
    """Nothing is remembered: a new object answers the middle of a conversation."""
    first = FakeLLM(SCRIPT)(user("openai"))
    messages = [*user("openai"), *heard("openai", first), *results("openai", first)]

    assert FakeLLM(SCRIPT)(user("openai")) == first
    assert FakeLLM(SCRIPT)(messages) == FakeLLM(SCRIPT)(messages)
    assert (
        first["choices"][0]["message"]["tool_calls"][0]["id"]
        != (FakeLLM(SCRIPT)(user("openai", "And low tide?")))["choices"][0]["message"][
            "tool_calls"
        ][0]["id"]
    )


def test_a_function_decides_a_turn_or_every_turn():
    def echo(messages):
        return messages[-1]["content"].upper()

    for llm in (FakeLLM(echo), FakeLLM([echo])):
        assert llm("hi")["choices"][0]["message"]["content"] == "HI"


def test_an_exception_in_the_script_is_raised():
    with pytest.raises(TimeoutError, match="busy"):
        FakeLLM([TimeoutError("busy")])("hi")


def test_a_conversation_beyond_the_script_is_an_error_that_says_so():
    said = {"role": "assistant", "content": "one"}

    with pytest.raises(FakeLLMError, match=r"spoken 1 times.*its script has 1 turns"):
        FakeLLM(["one"])([*user("openai"), said, *user("openai")])


def test_mistakes_in_making_one_are_told_at_once():
    with pytest.raises(TypeError, match="list of turns"):
        FakeLLM("one")
    with pytest.raises(ValueError, match="openai-responses"):
        FakeLLM(["one"], dialect="cohere")


@pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
@pytest.mark.parametrize("stream", [False, True])
def test_a_decorated_fake_model_replays(root, stream):
    llm = FakeLLM(["one two"])
    ask = checkpointed_llm(llm.stream if stream else llm, name="ask")
    seen = []
    for _ in range(2):
        with session("s", root=root) as s:
            answer = ask(messages=user("openai"))
            seen.append(list(answer) if stream else answer)
            replayed = s.stats.get("replayed_llm", 0)
            text = s.messages()[-1]["content"]

    assert seen[0] == seen[1]
    assert (len(llm.requests), replayed, text) == (1, 1, "one two")


def test_its_documentation_runs():
    done = doctest.testmod(_testing_llm, optionflags=doctest.ELLIPSIS)

    assert done.failed == 0
    assert done.attempted >= 8
