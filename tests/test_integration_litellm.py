"""litellm: completion and acompletion, whole and streamed, over scripted providers."""

from __future__ import annotations

import asyncio
import functools
import os

import openai
import pytest

from durable_agent import (
    ArgumentNotStorableError,
    DecorationError,
    checkpointed_llm,
    conversation,
    inspect_session,
    session,
)
from tests.frameworks.killing import Agent
from tests.frameworks.rows import ROWS
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
]
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network
litellm = pytest.importorskip("litellm")
framework = functools.partial(pytest.mark.framework, "litellm")
ASKS = Model("hm", (Call("x", '{"n": 1}', "call_a"),))
REQUEST = {
    "model": "openai/gpt-test",
    "messages": [{"role": "user", "content": "hi"}],
}


def asks(server, *, asynchronous=False):
    """litellm's function over an OpenAI client whose transport is the server."""
    scope = {"litellm": litellm}
    if asynchronous:
        http = server.async_client()
        client = openai.AsyncOpenAI(api_key="none", http_client=http, max_retries=0)
        ask = checkpointed_llm(litellm.acompletion, ignore=("client",))
    else:
        http = server.client()
        client = openai.OpenAI(api_key="none", http_client=http, max_retries=0)
        scope["checkpointed_llm"] = functools.partial(
            checkpointed_llm, ignore=("client",)
        )
        exec(ROWS["litellm"].line, scope)  # noqa: S102 - the README's own line
        ask = scope["ask"]
    return functools.partial(ask, **REQUEST, client=client)


def read(response):
    return type(response), response, response.model_dump(), response._hidden_params


def told(root):
    with conversation("s", root=root) as s:
        return "call_a" in str(s.messages()), s.usage.total.input


@framework("model")
def test_a_response_comes_back_whole(root):
    server = ModelServer([ASKS])
    found = []
    for _ in range(2):
        with session("s", root=root):
            found.append(read(asks(server)()))

    assert found[0] == found[1]
    assert found[0][0] is litellm.ModelResponse
    assert len(server.requests) == 1
    assert told(root) == (True, 20)


@framework("model")
def test_an_async_response_comes_back_whole(root):
    server = ModelServer([ASKS])

    async def main():
        async with session("s", root=root):
            return read(await asks(server, asynchronous=True)())

    found = [asyncio.run(main()) for _ in range(2)]

    assert found[0] == found[1]
    assert len(server.requests) == 1
    assert told(root) == (True, 20)


@framework("stream")
def test_a_stream_comes_back_with_the_same_chunks(root):
    """litellm's has both ``__next__`` and ``__anext__``."""
    server = ModelServer([ASKS])
    found = []
    for _ in range(2):
        with session("s", root=root):
            stream = asks(server)(stream=True)
            assert isinstance(stream, litellm.CustomStreamWrapper)
            found.append([(type(c), c.model_dump()) for c in stream])

    assert found[0] == found[1]
    assert len(found[0]) > 2
    assert len(server.requests) == 1
    assert told(root)[0] is True


@framework("stream")
def test_an_async_stream_comes_back_with_the_same_chunks(root):
    server = ModelServer([ASKS])

    async def main():
        async with session("s", root=root):
            stream = await asks(server, asynchronous=True)(stream=True)
            assert isinstance(stream, litellm.CustomStreamWrapper)
            return [(type(c), c.model_dump()) async for c in stream]

    found = [asyncio.run(main()) for _ in range(2)]

    assert found[0] == found[1]
    assert len(found[0]) > 2
    assert len(server.requests) == 1
    assert told(root)[0] is True


@framework("stream")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_stream_that_was_left_is_not_complete(asynchronous, root):
    server = ModelServer([ASKS, ASKS])

    async def arun(n):
        async with session("s", root=root):
            taken = []
            stream = await asks(server, asynchronous=True)(stream=True)
            while len(taken) < n:
                try:
                    taken.append(await anext(stream))
                except StopAsyncIteration:
                    break
            await stream.aclose()
            return len(taken)

    def run(n):
        if asynchronous:
            return asyncio.run(arun(n))
        with session("s", root=root):
            stream = asks(server)(stream=True)
            taken = [next(stream, None) for _ in range(n)]
            stream.close()
            return len([c for c in taken if c is not None])

    assert [run(1), run(1)] == [1, 1]
    assert len(server.requests) == 1
    with inspect_session("s", root=root) as seen:
        ends = [e.data["stream"]["end"] for e in seen.events() if "stream" in e.data]
    assert ends == ["closed"]
    assert run(1000) > 2
    assert len(server.requests) == 2


@framework("errors")
def test_an_error_is_the_same_on_replay(root):
    """litellm's own class, with what its retries look at."""
    server = ModelServer([ASKS])
    bad = [{"role": "odd", "content": "b"}]
    found = []
    for _ in range(2):
        with session("s", root=root):
            with pytest.raises(litellm.BadRequestError) as raised:
                asks(server)(messages=bad)
            error = raised.value
            found.append((str(error), error.status_code, error.llm_provider))

    assert found[0] == found[1]
    assert len(server.requests) == 1


def test_a_client_among_the_arguments_has_to_be_left_out(root):
    server = ModelServer([ASKS])
    client = openai.OpenAI(api_key="none", http_client=server.client())
    with session("s", root=root):
        with pytest.raises(ArgumentNotStorableError, match="ignore="):
            checkpointed_llm(litellm.completion)(**REQUEST, client=client)

    assert server.requests == []


@framework("killed")
@pytest.mark.parametrize("how", ["litellm", "litellm stream"])
@pytest.mark.parametrize("point", ["model 1: end", "body pay: begin", "body mail: end"])
def test_a_loop_that_was_killed_goes_on(tmp_path, run_python, how, point):
    agent = Agent("provider_agent.py", tmp_path, run_python)
    second, _ = agent.killed_at(point, how)
    sent = agent.requests()

    if point.startswith("model"):
        assert second.stdout == "all done\n"
        assert agent.effects() == ["mail", "pay"]
        assert sent == ["0", "1", "1", "2"]
    else:
        tool = point.split()[1].rstrip(":")
        assert second.stdout == f"in doubt: {tool}\n"
        assert agent.effects() == {"pay": [], "mail": ["mail", "pay"]}[tool]
        assert len(sent) == len(set(sent))


def test_a_routers_method_records_and_a_router_itself_is_refused(root):
    """A wrapper around the router would be walked around by its methods."""
    models = [
        {
            "model_name": "mine",
            "litellm_params": {
                "model": "openai/gpt-test",
                "api_key": "none",
                "mock_response": "all done",
            },
        }
    ]
    router = litellm.Router(model_list=models)
    with pytest.raises(DecorationError, match=r"router\.completion"):
        checkpointed_llm(router)
    ask = checkpointed_llm(router.completion)
    found = []
    for _ in range(2):
        with session("s", root=root) as s:
            response = ask(model="mine", messages=REQUEST["messages"])
            found.append((type(response), response.model_dump(), dict(s.stats)))

    assert found[0][:2] == found[1][:2]
    assert found[0][2]["ran_llm"] == 1
    assert "ran_llm" not in found[1][2]
