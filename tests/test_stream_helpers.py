"""Helpers of SDK streams: what they take is recorded, and a replay gives it again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from dataclasses import dataclass
from typing import Any, TypeVar

import anthropic
import openai
import pydantic
import pytest

from durable_agent import checkpointed_llm, conversation, inspect_session, session
from durable_agent import values as v
from durable_agent.errors import (
    OutcomeNotRecordedError,
    ValueNotRebuildableError,
    ValueNotStorableError,
)
from tests import value_types
from tests.disks import crash
from tests.providers import render_openai_chat
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
    pytest.mark.filterwarnings("ignore::durable_agent.ReplayDivergedWarning"),
]

ASKS = Model("hm", (Call("x", '{"n": 1}', "call_a"),), thinking="th")
SAYS = Model("fine")
#: Not the one that the model was declared with.
Kept = TypeVar("Kept")


class Answer(pydantic.BaseModel):
    number: int


@dataclass(frozen=True)
class Sdk:
    name: str
    sync: type
    asynchronous: type
    path: str
    final: str
    request: dict[str, Any]

    def _at(self, client):
        for part in self.path.split("."):
            client = getattr(client, part)
        return client

    def stream(self, server):
        client = self.sync(api_key="none", http_client=server.client())
        return self._at(client)

    def astream(self, server):
        client = self.asynchronous(api_key="none", http_client=server.async_client())
        return self._at(client)


HI = [{"role": "user", "content": "hi"}]
ANTHROPIC = Sdk(
    "anthropic",
    anthropic.Anthropic,
    anthropic.AsyncAnthropic,
    "messages.stream",
    "get_final_message",
    {"model": "m", "max_tokens": 9, "messages": HI},
)
BETA = Sdk(
    "anthropic-beta",
    anthropic.Anthropic,
    anthropic.AsyncAnthropic,
    "beta.messages.stream",
    "get_final_message",
    {"model": "m", "max_tokens": 9, "messages": HI},
)
CHAT = Sdk(
    "chat",
    openai.OpenAI,
    openai.AsyncOpenAI,
    "chat.completions.stream",
    "get_final_completion",
    {"model": "m", "messages": HI},
)
RESPONSES = Sdk(
    "responses",
    openai.OpenAI,
    openai.AsyncOpenAI,
    "responses.stream",
    "get_final_response",
    {"model": "m", "input": HI},
)
SDKS = [ANTHROPIC, BETA, CHAT, RESPONSES]
ROWS = {anthropic.Anthropic: "anthropic", openai.OpenAI: "openai"}
by_sdk = pytest.mark.parametrize(
    "sdk",
    [
        pytest.param(
            sdk, id=sdk.name, marks=pytest.mark.framework(ROWS[sdk.sync], "stream")
        )
        for sdk in SDKS
    ],
)


def twice(root, sdk, use, *models, asynchronous=False, **more):
    """Return what ``use`` makes of the stream, live and replayed; one request."""
    server = ModelServer(list(models))
    make = sdk.astream if asynchronous else sdk.stream
    ask = checkpointed_llm(make(server), name="ask")
    request = sdk.request | more

    async def arun():
        async with session("s", root=root), ask(**request) as stream:
            return await use(stream)

    def run():
        if asynchronous:
            return asyncio.run(arun())
        with session("s", root=root), ask(**request) as stream:
            return use(stream)

    results = [run(), run()]
    assert len(server.requests) == 1
    return results


def outcome(root):
    with inspect_session("s", root=root) as seen:
        (event,) = (e for e in seen.events() if e.type == "llm/response")
        return event.data["stream"]["end"], event.data["stream"]["chunks"]


def told(root):
    with conversation("s", root=root) as s:
        return len(s.messages()), s.usage.total.input


@by_sdk
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("taken", [0, 3, 10_000], ids=["none", "some", "all"])
def test_the_final_object_is_the_same_on_replay(sdk, asynchronous, taken, root):
    """Whatever was iterated before it: the record holds all."""

    def use(stream):
        for _ in zip(range(taken), stream, strict=False):
            pass
        return getattr(stream, sdk.final)()

    async def ause(stream):
        left = taken
        while left:
            left -= 1
            if await anext(stream, None) is None:
                break
        return await getattr(stream, sdk.final)()

    how = ause if asynchronous else use
    live, again = twice(root, sdk, how, ASKS, asynchronous=asynchronous)

    assert type(live) is type(again)
    assert live == again
    assert live.to_dict() == again.to_dict()
    assert outcome(root)[0] == "complete"
    assert outcome(root)[1] > 5
    assert told(root) >= (2, 20)


@by_sdk
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_until_done_records_the_stream(sdk, asynchronous, root):
    def use(stream):
        done = stream.until_done()
        return done is stream, done is None

    async def ause(stream):
        done = await stream.until_done()
        return done is stream, done is None

    how = ause if asynchronous else use
    live, again = twice(root, sdk, how, ASKS, asynchronous=asynchronous)

    assert live == again
    assert outcome(root)[0] == "complete"
    assert told(root) >= (2, 20)


@pytest.mark.parametrize("sdk", [ANTHROPIC, BETA], ids=["anthropic", "beta"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("helper", ["text_stream", "get_final_text"])
def test_texts_are_the_same_on_replay(sdk, asynchronous, helper, root):
    def use(stream):
        if helper == "text_stream":
            return [*stream.text_stream, stream.get_final_message().stop_reason]
        return stream.get_final_text()

    async def ause(stream):
        if helper == "text_stream":
            texts = [text async for text in stream.text_stream]
            return [*texts, (await stream.get_final_message()).stop_reason]
        return await stream.get_final_text()

    how = ause if asynchronous else use
    live, again = twice(root, sdk, how, ASKS, asynchronous=asynchronous)

    assert live == again
    assert live in (["h", "m", "tool_use"], "hm")
    assert outcome(root)[0] == "complete"


def test_texts_go_on_where_they_were_left(root):
    def use(stream):
        first = next(iter(stream.text_stream))
        return first, list(stream.text_stream)

    live, again = twice(root, ANTHROPIC, use, SAYS)

    assert live == again
    assert "".join([live[0], *live[1]]) == "fine"


def test_texts_that_are_left_early_leave_a_closed_stream(root):
    """Leaving the texts leaves the ``with`` block: nothing more is taken."""

    def use(stream):
        for text in stream.text_stream:
            return text

    live, again = twice(root, ANTHROPIC, use, SAYS)

    assert live == again
    assert outcome(root)[0] == "closed"


def test_a_final_text_that_is_not_there_is_the_same_error(root):
    def use(stream):
        with pytest.raises(RuntimeError) as raised:
            stream.get_final_text()
        return str(raised.value)

    live, again = twice(root, ANTHROPIC, use, Model("", (Call("x", "{}", "call_a"),)))

    assert live == again
    assert outcome(root)[0] == "complete"


@pytest.mark.parametrize(
    ("sdk", "name"),
    [(ANTHROPIC, "current_message_snapshot"), (CHAT, "current_completion_snapshot")],
    ids=["anthropic", "chat"],
)
def test_what_was_added_up_so_far_is_the_same_on_replay(sdk, name, root):
    def use(stream):
        for _ in range(8):
            next(stream)
        return getattr(stream, name).to_dict()

    live, again = twice(root, sdk, use, ASKS)

    assert live == again


def cut(root, sdk, use, events):
    server = ModelServer([ASKS], cut=events)
    ask = checkpointed_llm(sdk.stream(server), name="ask")
    for _ in range(2):
        with session("s", root=root), ask(**sdk.request) as stream:
            yield use(stream)
    assert len(server.requests) == 1


def test_a_message_without_an_end_is_the_same_on_replay(root):
    live, again = cut(root, ANTHROPIC, lambda s: s.get_final_message(), 6)

    assert type(live) is type(again)
    assert live == again
    assert live.stop_reason is None


def test_a_response_without_an_end_is_the_same_error_on_replay(root):
    def use(stream):
        with pytest.raises(RuntimeError, match=r"response\.completed") as raised:
            stream.get_final_response()
        return str(raised.value)

    live, again = cut(root, RESPONSES, use, 6)

    assert live == again


FORMATS = {
    "parsed": {"response_format": Answer},
    "plain": {},
    "tool": {"tools": [openai.pydantic_function_tool(Answer, name="x")]},
}


@pytest.mark.parametrize("more", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("hidden", [False, True], ids=["asked", "hidden"])
def test_what_was_parsed_is_the_same_on_replay(more, hidden, root):
    """Whether the arguments say how to parse, or the function does it inside."""
    model = Model('{"number": 1}', (Call("x", '{"number": 2}', "call_a"),))
    server = ModelServer([model])
    stream = CHAT.stream(server)
    inside = more if hidden else {}

    def fn(**request):
        return stream(**request, **inside)

    ask = checkpointed_llm(fn if hidden else stream, name="ask")
    request = CHAT.request | ({} if hidden else more)
    results = []
    for _ in range(2):
        with session("s", root=root), ask(**request) as entered:
            results.append(entered.get_final_completion())
    live, again = results

    message = live.choices[0].message
    if "response_format" in more:
        assert message.parsed == Answer(number=1)
    if "tools" in more:
        assert message.tool_calls[0].function.parsed_arguments == Answer(number=2)
    assert live == again
    assert live.choices[0].message.parsed == again.choices[0].message.parsed
    assert len(server.requests) == 1


UNFINISHED = {
    "parsed": (Model('{"number": 1}'), "parsed"),
    "tool": (Model("", (Call("x", '{"number": 1}', "call_a"),)), "tool_calls"),
}


@pytest.mark.parametrize("how", UNFINISHED)
@pytest.mark.parametrize("collected", [False, True], ids=["named", "collected"])
def test_what_no_event_shows_is_parsed_as_the_arguments_say(how, collected, root):
    """The API stopped before the event that would hold what was parsed."""
    model, member = UNFINISHED[how]
    events = len(render_openai_chat.stream(model, 0))
    server = ModelServer([model], cut=events - 2)
    stream = CHAT.stream(server)
    fn = (lambda **request: stream(**request)) if collected else stream
    ask = checkpointed_llm(fn, name="ask")
    found = []
    for _ in range(2):
        with session("s", root=root), ask(**CHAT.request, **FORMATS[how]) as entered:
            kinds = {event.type.rpartition(".")[2] for event in entered}
            found.append(entered.get_final_completion().choices[0].message)
    live, again = found
    held = live.parsed or live.tool_calls[0].function.parsed_arguments

    assert "done" not in kinds
    assert held == Answer(number=1)
    assert getattr(live, member) == getattr(again, member)


@by_sdk
def test_a_kill_in_the_middle_makes_the_request_again(sdk, root):
    """A helper that had begun to take the stream left no end of it."""
    server = ModelServer([ASKS, ASKS])
    ask = checkpointed_llm(sdk.stream(server), name="ask")
    with contextlib.suppress(OutcomeNotRecordedError), session("s", root=root) as s:
        manager = ask(**sdk.request)
        stream = manager.__enter__()
        next(stream)
        next(stream)
        crash(s)
        with contextlib.suppress(OutcomeNotRecordedError):
            getattr(stream, sdk.final)()
    with session("s", root=root), ask(**sdk.request) as stream:
        again = getattr(stream, sdk.final)()

    assert len(server.requests) == 2
    assert again.to_dict()
    assert outcome(root)[0] == "complete"


@by_sdk
def test_an_async_kill_in_the_middle_makes_the_request_again(sdk, root):
    server = ModelServer([ASKS, ASKS])
    ask = checkpointed_llm(sdk.astream(server), name="ask")

    async def killed():
        async with session("s", root=root) as s:
            stream = await ask(**sdk.request).__aenter__()
            await anext(stream)
            await anext(stream)
            crash(s)
            with contextlib.suppress(OutcomeNotRecordedError):
                await getattr(stream, sdk.final)()

    async def again():
        async with session("s", root=root), ask(**sdk.request) as stream:
            return await getattr(stream, sdk.final)()

    with contextlib.suppress(OutcomeNotRecordedError):
        asyncio.run(killed())
    final = asyncio.run(again())

    assert len(server.requests) == 2
    assert final.to_dict()
    assert outcome(root)[0] == "complete"


def test_a_cancelled_helper_leaves_nothing_that_is_not_awaited(root):
    """What was made to be awaited after the chunks is closed."""

    class Endless(OwnStream):
        async def __anext__(self):
            await asyncio.Event().wait()

    @checkpointed_llm(name="ask")
    def ask():
        return Endless()

    async def main():
        async with session("s", root=root):
            helping = asyncio.ensure_future(ask().get_final_text())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            helping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await helping

    asyncio.run(main())
    gc.collect()

    with inspect_session("s", root=root) as seen:
        assert [e.type for e in seen.events()].count("llm/response") == 1


@by_sdk
def test_a_helper_asks_again_for_what_a_closed_stream_left_out(sdk, root):
    server = ModelServer([ASKS, ASKS])
    ask = checkpointed_llm(sdk.stream(server), name="ask")
    with session("s", root=root), ask(**sdk.request) as stream:
        next(stream)
    with session("s", root=root), ask(**sdk.request) as stream:
        final = getattr(stream, sdk.final)()

    assert len(server.requests) == 2
    assert final.to_dict()


@by_sdk
def test_a_replayed_stream_says_what_it_does_not_have(sdk, root):
    server = ModelServer([ASKS])
    ask = checkpointed_llm(sdk.stream(server), name="ask")
    with session("s", root=root), ask(**sdk.request) as stream:
        stream.until_done()
    with session("s", root=root), ask(**sdk.request) as stream:
        with pytest.raises(AttributeError, match=r"'get_final_run'.*not recorded"):
            stream.get_final_run()
        with pytest.raises(AttributeError, match=r"'_raw_stream'.*not recorded"):
            _ = stream._raw_stream
        stream.until_done()


def test_a_method_that_is_not_known_does_not_take_the_stream_unseen(root, monkeypatch):
    """A later version of the SDK may have more of them."""
    cls = anthropic.MessageStream

    def drain(self):
        return list(self)

    drain.__module__ = cls.__module__
    monkeypatch.setattr(cls, "drain", drain, raising=False)
    monkeypatch.setattr(cls, "own", lambda self: 1, raising=False)
    monkeypatch.setattr(cls, "pieces", property(lambda self: (e for e in self)), False)
    ask = checkpointed_llm(ANTHROPIC.stream(ModelServer([ASKS])), name="ask")
    with session("s", root=root), ask(**ANTHROPIC.request) as stream:
        for name in ("drain", "pieces"):
            with pytest.raises(AttributeError, match=f"{name}.*past the recording"):
                getattr(stream, name)
        assert stream.own() == 1
        found = len(list(stream))

    assert outcome(root) == ("complete", found)


@by_sdk
def test_a_live_stream_keeps_its_other_attributes(sdk, root):
    ask = checkpointed_llm(sdk.stream(ModelServer([ASKS])), name="ask")
    with session("s", root=root), ask(**sdk.request) as stream:
        kept = [hasattr(stream, name) for name in ("_raw_stream", "get_final_nothing")]
        stream.close()

    assert kept == [True, False]


def test_a_raw_stream_has_no_helpers_of_others(root):
    """What ``stream=True`` gives has chunks; a replay cannot make more of them."""
    client = openai.OpenAI(
        api_key="none", http_client=ModelServer([SAYS]).client(), max_retries=0
    )
    ask = checkpointed_llm(client.chat.completions.create, name="ask")
    with session("s", root=root):
        stream = ask(**CHAT.request, stream=True)
        assert stream.response.status_code == 200
        assert not hasattr(stream, "get_final_completion")
        assert list(stream)
    with session("s", root=root):
        stream = ask(**CHAT.request, stream=True)
        with pytest.raises(TypeError, match=f"openai .{openai.__version__}"):
            stream.get_final_completion()


class OwnStream:
    """A stream of no SDK that is known."""

    def __init__(self):
        self.items = iter(["a", "b"])

    def __aiter__(self):
        return self

    async def __anext__(self):
        for item in self.items:
            return item
        raise StopAsyncIteration

    def get_final_name(self):
        return "own"

    async def get_final_text(self):
        return "".join([item async for item in self])

    @property
    def text_stream(self):
        return self


def test_an_own_streams_plain_helper_is_plain(root):
    """It awaits nothing, so it takes nothing."""

    @checkpointed_llm(name="ask")
    def ask():
        return OwnStream()

    async def main():
        async with session("s", root=root):
            stream = ask()
            return stream.get_final_name(), [item async for item in stream]

    assert asyncio.run(main()) == ("own", ["a", "b"])


def test_an_own_streams_texts_are_refused_rather_than_lost(root):
    @checkpointed_llm(name="ask")
    def ask():
        return OwnStream()

    async def main():
        async with session("s", root=root):
            stream = ask()
            with pytest.raises(AttributeError, match="text_stream"):
                await anext(stream.text_stream)
            await stream.aclose()

    asyncio.run(main())


def test_a_failed_stream_raises_in_its_helper_as_it_did(root):
    class Broken(OwnStream):
        async def __anext__(self):
            raise ValueError("lost")

    @checkpointed_llm(name="ask")
    def ask():
        return Broken()

    async def main():
        async with session("s", root=root):
            with pytest.raises(ValueError, match="lost"):
                await ask().get_final_text()

    for _ in range(2):
        asyncio.run(main())


def test_a_parsed_completion_is_storable(root):
    """Its class is a generic that holds the SDK's own type variable."""
    server = ModelServer([Model('{"number": 1}')])
    client = openai.OpenAI(api_key="none", http_client=server.client())
    ask = checkpointed_llm(client.chat.completions.parse, name="ask")
    found = []
    for _ in range(2):
        with session("s", root=root):
            found.append(ask(**CHAT.request, response_format=Answer))
    live, again = found

    assert type(live) is type(again)
    assert live == again
    assert again.choices[0].message.parsed == Answer(number=1)
    assert told(root) == (2, 20)
    assert len(server.requests) == 1


def test_a_type_variable_is_a_parameter_only_where_its_module_holds_it():
    kept = value_types.Boxed[Kept](item=1)
    hidden = value_types.Boxed[TypeVar("Hidden")](item=1)

    assert type(v.decode(v.encode(kept))) is type(kept)
    assert type(kept) is not value_types.Boxed
    with pytest.raises(ValueNotStorableError):
        v.encode(hidden)


@pytest.mark.parametrize("name", ["os:path", "os:system", "nowhere:T", "", None, 1])
def test_only_a_type_variable_is_taken_for_one(name):
    args = [{"variable": name}]
    spec = {"origin": "tests.value_types:Boxed", "args": args}
    raw = json.dumps({"$obj": {"type": spec}})
    with pytest.raises(ValueNotRebuildableError, match="type variable"):
        v.decode(raw.encode())
