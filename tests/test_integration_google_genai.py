"""google-genai: its own automatic function calls, its chats, its streams."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest
from google import genai
from google.genai import types

from durable_agent import (
    CheckpointError,
    DecorationError,
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    session,
)
from tests.frameworks.rows import ROWS
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer

framework = functools.partial(pytest.mark.framework, "google-genai")
pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
]

ASKS = Model("hm", (Call("send", '{"to": "bob"}', None),))
SAYS = Model("done")
RAN = []


def client_of(server):
    server.ids = "lenient"  # the SDK sends no ids back
    options = types.HttpOptions(
        httpx_client=server.client(), httpx_async_client=server.async_client()
    )
    return genai.Client(api_key="none", http_options=options)


def send(to: str, times: int = 1) -> str:
    """Send a mail.

    Args:
        to: who gets it
    """
    RAN.append(to)
    return f"sent to {to}"


async def asend(to: str, times: int = 1) -> str:
    """Send a mail."""
    RAN.append(to)
    return f"sent to {to}"


asend.__name__ = "send"


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def request_of(*tools):
    return {
        "model": "gemini-test",
        "contents": "mail bob",
        "config": types.GenerateContentConfig(tools=list(tools)),
    }


@framework("under")
@pytest.mark.parametrize("function", [send, asend], ids=["sync", "async"])
def test_the_schema_is_that_of_the_undecorated_function(function):
    found = []
    for tool in (function, checkpointed_tool(function)):
        server = ModelServer([SAYS])
        models = client_of(server).aio.models
        asyncio.run(models.generate_content(**request_of(tool)))
        found.append(server.requests[0].json["tools"])
        assert inspect.iscoroutinefunction(tool) is (function is asend)

    assert found[0] == found[1]
    assert "send" in str(found[0])


def whole(client, request):
    response = checkpointed_llm(client.models.generate_content)(**request)
    return response, response.text, response.automatic_function_calling_history


def stream(client, request):
    chunks = checkpointed_llm(client.models.generate_content_stream)(**request)
    assert inspect.isgenerator(chunks)
    return [(chunk, type(chunk)) for chunk in chunks]


async def awhole(client, request):
    ask = checkpointed_llm(client.aio.models.generate_content)
    response = await ask(**request)
    return response, response.text, response.automatic_function_calling_history


async def astream(client, request):
    ask = checkpointed_llm(client.aio.models.generate_content_stream)
    chunks = await ask(**request)
    assert inspect.isasyncgen(chunks)
    return [(chunk, type(chunk)) async for chunk in chunks]


WAYS = {
    "whole": (whole, send),
    "stream": (stream, send),
    "awhole": (awhole, send),
    "awhole-atool": (awhole, asend),
    "astream": (astream, send),
    "astream-atool": (astream, asend),
}


def run(way, root, server, tool):
    client, request = client_of(server), request_of(tool)

    async def arun():
        async with session("s", root=root):
            return await way(client, request)

    if inspect.iscoroutinefunction(way):
        return asyncio.run(arun())
    with session("s", root=root):
        return way(client, request)


def events(root, *kinds):
    with inspect_session("s", root=root) as seen:
        return [event for event in seen.events() if event.type in kinds]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                framework("under"),
                framework("stream" if "stream" in name else "model"),
            ],
        )
        for name in WAYS
    ],
)
def test_an_automatic_call_is_recorded_once_within_its_request(name, root):
    """Its intent is durable before it runs; a replay runs neither."""
    way, function = WAYS[name]
    server = ModelServer([ASKS, SAYS])
    tool = checkpointed_tool(function)
    live = run(way, root, server, tool)
    sent = len(server.requests)
    again = run(way, root, server, tool)
    (asked,) = events(root, "llm/request")
    (called,) = events(root, "tool/call")

    assert live == again
    assert (sent, len(server.requests)) == (2, 2)
    assert RAN == ["bob"]
    assert called.meta["parent"] == asked.call
    assert called.meta["effect"] == "side_effect"
    assert called.data["function"] == "send"
    assert [e.data["value"] for e in events(root, "tool/result")] == ["sent to bob"]


@framework("stream")
def test_a_stream_that_was_left_is_not_complete(root):
    server = ModelServer([Model("a long answer"), Model("a long answer")])
    ask = checkpointed_llm(client_of(server).models.generate_content_stream)
    request = {"model": "gemini-test", "contents": "hi"}
    for _ in range(2):
        with session("s", root=root):
            stream = ask(**request)
            next(stream)
            stream.close()
    sent = len(server.requests)
    with session("s", root=root):
        whole = "".join(chunk.text for chunk in ask(**request))

    assert whole == "a long answer"
    assert (sent, len(server.requests)) == (1, 2)


def fails(to: str) -> str:
    """Fail."""
    raise ValueError("no such person")


@framework("errors")
def test_the_error_of_a_tool_is_shown_as_the_sdk_shows_it(root):
    """The request that tells the model is, byte for byte, the undecorated one."""
    told = []
    for tool in (fails, checkpointed_tool(fails)):
        server = ModelServer([Model("", (Call("fails", '{"to": "bob"}', None),)), SAYS])
        with session("s", root=root):
            response = whole(client_of(server), request_of(tool))[0]
        told.append(server.requests[1].messages)
        if tool is not fails:
            assert "no such person" in str(response.automatic_function_calling_history)
        root = root / "other"

    assert told[0] == told[1]
    assert b"no such person" in told[0]


@framework("errors")
def test_a_failed_checkpoint_that_the_sdk_swallowed_is_raised_again(root, monkeypatch):
    """It makes a text of it for the model; no tool runs, and the session says so."""
    server = ModelServer([ASKS, SAYS])
    client, tool = client_of(server), checkpointed_tool(send)
    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            append = type(opened._core).append

            def refuse(self, draft):
                if draft.type == "tool/call":
                    raise OSError(28, "No space left on device")
                return append(self, draft)

            monkeypatch.setattr(type(opened._core), "append", refuse)
            checkpointed_llm(client.models.generate_content)(**request_of(tool))
            with pytest.raises(CheckpointError):
                tool("anybody")

    assert RAN == []


def chat_of(server, models=None):
    client = client_of(server)
    if models is None:
        line = ROWS["google-genai"].line
        scope = {"models": client.models, "checkpointed_llm": checkpointed_llm}
        exec(line, scope)  # noqa: S102 - the README's own line
    else:
        models(client.models)
    config = types.GenerateContentConfig(tools=[checkpointed_tool(send)])
    return client.chats.create(model="gemini-test", config=config)


@framework("model")
def test_a_chat_records_each_of_its_requests(root):
    """Its tools run between them, at depth 0; its history is the same on replay."""
    server = ModelServer([ASKS, SAYS, Model("again"), Model("third")])
    found = []
    for _ in range(2):
        with session("s", root=root):
            chat = chat_of(server)
            texts = [chat.send_message("mail bob").text, chat.send_message("more").text]
            found.append((texts, chat.get_history()))
    (called,) = events(root, "tool/call")
    with session("s", root=root):
        chat = chat_of(server)
        for message in ("mail bob", "more", "and more"):
            chat.send_message(message)

    assert found[0] == found[1]
    assert RAN == ["bob"]
    assert len(events(root, "llm/request")) == 4
    assert "parent" not in called.meta
    assert called.meta["resp"] == events(root, "llm/request")[0].call
    assert len(server.requests) == 4
    assert len(server.requests[-1].json["contents"]) == len(found[0][1]) + 1


@framework("stream")
def test_a_chat_of_streams_records_each_of_its_requests(root):
    def decorated(models):
        ask = checkpointed_llm(models.generate_content_stream)
        models.generate_content_stream = ask

    server = ModelServer([ASKS, SAYS])
    found = []
    for _ in range(2):
        with session("s", root=root):
            chat = chat_of(server, decorated)
            found.append([*chat.send_message_stream("mail bob")])
            found.append(chat.get_history())

    assert found[:2] == found[2:]
    assert RAN == ["bob"]
    assert len(server.requests) == 2


@framework("model")
def test_an_async_chat_records_each_of_its_requests(root):
    server = ModelServer([ASKS, SAYS])

    async def main():
        async with session("s", root=root):
            client = client_of(server)
            models = client.aio.models
            models.generate_content = checkpointed_llm(models.generate_content)
            tool = checkpointed_tool(asend)
            chat = client.aio.chats.create(model="m", config={"tools": [tool]})
            said = await chat.send_message("mail bob")
            return said.text, chat.get_history()

    found = [asyncio.run(main()) for _ in range(2)]

    assert found[0] == found[1]
    assert RAN == ["bob"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["send_message", "send_message_stream"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_method_of_a_chat_is_refused(name, asynchronous):
    """A replay would not put its history back, and nobody would notice."""
    client = client_of(ModelServer([]))
    chats = client.aio.chats if asynchronous else client.chats
    method = getattr(chats.create(model="m"), name)
    where = "client.aio.models" if asynchronous else "client.models"
    for obj in (method, functools.partial(method, "hi")):
        with pytest.raises(DecorationError) as raised:
            checkpointed_llm(obj)
        assert f"{where}.generate_content = " in str(raised.value)


def other(to: str, times: int = 1) -> str:
    """Send a mail."""


def test_other_tools_are_another_request(root):
    """What a function does is not recorded, which it is, is."""
    server = ModelServer([SAYS, SAYS])
    ask = checkpointed_llm(client_of(server).models.generate_content)
    with session("s", root=root):
        ask(**request_of(send))
    with pytest.warns(ReplayDivergedWarning), session("s", root=root):
        ask(**request_of(other))

    assert len(server.requests) == 2


def test_the_functions_of_a_request_are_shown_by_name(root):
    server = ModelServer([SAYS])
    ask = checkpointed_llm(client_of(server).models.generate_content)
    with session("s", root=root):
        ask(**request_of(send, checkpointed_tool(fails)))
    (asked,) = events(root, "llm/request")
    shown = asked.data["args"]["config"]["$obj"]["state"]["tools"]

    assert [tool["$function"].rpartition(":")[2] for tool in shown] == ["send", "fails"]


def test_what_a_chat_said_goes_on_in_a_conversation(root):
    """Automatic calls are in the messages, for the next request."""
    server = ModelServer([ASKS, SAYS, Model("hello again")])
    ask = checkpointed_llm(client_of(server).models.generate_content)
    with conversation("s", root=root):
        ask(**request_of(checkpointed_tool(send)))
    with conversation("s", root=root) as s:
        messages = s.messages()
        more = types.Content(role="user", parts=[types.Part(text="and now?")])
        ask(model="gemini-test", contents=[*messages, more])

    assert server.refused == []
    assert "sent to bob" in str(messages)
    assert [m["role"] for m in server.requests[-1].json["contents"]] == [
        "user",
        "model",
        "user",
        "model",
        "user",
    ]
