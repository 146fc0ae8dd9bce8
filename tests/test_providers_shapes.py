"""What a call of an SDK hands back: a replay gives the same kind of object again.

Each way of asking is driven live and replayed, over a server that counts; what a
program reads of it is compared.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest

from durable_agent import (
    CheckpointError,
    DecorationError,
    checkpointed_llm,
    conversation,
    inspect_session,
    session,
)
from durable_agent._stream_objects import SyncStream
from tests.frameworks.rows import ROWS
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning"),
    pytest.mark.filterwarnings("ignore::durable_agent.ReplayDivergedWarning"),
]

ASKS = Model("hm", (Call("x", '{"n": 1}', "call_a"),), thinking="th")
HI = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Api:
    row: str
    package: Any
    sync: type
    asynchronous: type
    path: str
    request: dict[str, Any]
    unknown: str

    def client(self, server, **more):
        client = self.sync(api_key="none", http_client=server.client(), **more)
        return self.at(client)

    def aclient(self, server):
        http = server.async_client()
        return self.at(self.asynchronous(api_key="none", http_client=http))

    def at(self, client):
        for part in self.path.split("."):
            client = getattr(client, part)
        return client


CHAT = Api(
    "openai",
    openai,
    openai.OpenAI,
    openai.AsyncOpenAI,
    "chat.completions",
    {"model": "m", "messages": HI},
    "finish_reason",
)
RESPONSES = Api(
    "openai",
    openai,
    openai.OpenAI,
    openai.AsyncOpenAI,
    "responses",
    {"model": "m", "input": HI},
    "status",
)
MESSAGES = Api(
    "anthropic",
    anthropic,
    anthropic.Anthropic,
    anthropic.AsyncAnthropic,
    "messages",
    {"model": "m", "max_tokens": 9, "messages": HI},
    "stop_reason",
)
BETA = Api(
    "anthropic",
    anthropic,
    anthropic.Anthropic,
    anthropic.AsyncAnthropic,
    "beta.messages",
    {"model": "m", "max_tokens": 9, "messages": HI},
    "stop_reason",
)
APIS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "beta": BETA}


def by_api(*checks):
    """Each API; a test of it shows these checks of the table of frameworks."""
    return pytest.mark.parametrize(
        "api",
        [
            pytest.param(
                api,
                id=name,
                marks=[pytest.mark.framework(api.row, check) for check in checks],
            )
            for name, api in APIS.items()
        ],
    )


def twice(root, fn, use, server):
    """Return what ``use`` reads of ``fn`` decorated, live and replayed: one request."""
    ask = checkpointed_llm(fn, name="ask")

    async def arun():
        async with session("s", root=root):
            return await use(ask)

    def run():
        if inspect.iscoroutinefunction(use):
            return asyncio.run(arun())
        with session("s", root=root):
            return use(ask)

    live, again = run(), run()
    assert len(server.requests) == 1
    assert server.refused == []
    return live, again


def read(response):
    """All that a program can read of a parsed response."""
    return (
        type(response),
        response,
        response.to_dict(),
        response.model_fields_set,
        response.model_extra,
        response._request_id,
    )


def told(root):
    """What the log says of it: the response is in the transcript, and counted."""
    with conversation("s", root=root) as s:
        return "call_a" in str(s.messages()), s.usage.total.input


@by_api("model")
def test_a_response_comes_back_whole(api, root):
    """Fields that were set, those that the SDK does not know, and the request id."""
    server = ModelServer([ASKS])
    live, again = twice(
        root, api.client(server).create, lambda ask: read(ask(**api.request)), server
    )

    assert live == again
    assert live[-1] == "req_0"
    assert told(root) == (True, 20)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@by_api("model")
def test_a_literal_that_the_sdk_does_not_know_comes_back(api, root, monkeypatch):
    """Validated, it would be refused."""
    server = ModelServer([ASKS])
    answer = server.answer

    def strange(path, body):
        status, kind, (piece,) = answer(path, body)
        for word in ('"tool_calls"', '"completed"', '"tool_use"'):
            piece = piece.replace(f'"{api.unknown}": {word}', f'"{api.unknown}": "odd"')
        return status, kind, [piece.replace("{", '{"new_field": [1], ', 1)]

    monkeypatch.setattr(server, "answer", strange)
    live, again = twice(
        root, api.client(server).create, lambda ask: read(ask(**api.request)), server
    )

    assert live == again
    assert "'odd'" in repr(live[1])
    assert live[4]["new_field"] == [1]


@by_api("model")
def test_an_async_response_comes_back_whole(api, root):
    """Its `create` may be a plain function that returns an awaitable."""
    server = ModelServer([ASKS])

    async def use(ask):
        return read(await ask(**api.request))

    async def in_tasks(ask):
        task = asyncio.create_task(ask(**api.request))
        (response,) = await asyncio.gather(task)
        return read(response)

    create = api.aclient(server).create
    live, again = twice(root, create, use, server)
    third = twice(root, create, in_tasks, server)

    assert live == again
    assert third == (live, live)
    assert live[-1] == "req_0"


@by_api("stream")
def test_a_stream_is_the_sdks_own(api, root):
    """As far as a program can tell, also on replay: class, response, close, with."""
    server = ModelServer([ASKS])

    def use(ask):
        stream = ask(**api.request, stream=True)
        assert isinstance(stream, api.package.Stream)
        told = (stream.response.status_code, headers_of(stream.response))
        with stream as entered:
            assert entered is stream
            chunks = [read_chunk(chunk) for chunk in entered]
        stream.close()
        return told, chunks

    live, again = twice(root, api.client(server).create, use, server)

    assert live == again
    assert live[0][0] == 200
    assert "req_0" in live[0][1].values()
    assert told(root) == (True, 20)


@by_api("stream")
def test_an_async_stream_is_the_sdks_own(api, root):
    server = ModelServer([ASKS])

    async def use(ask):
        stream = await ask(**api.request, stream=True)
        assert isinstance(stream, api.package.AsyncStream)
        told = (stream.response.status_code, headers_of(stream.response))
        async with stream as entered:
            assert entered is stream
            chunks = [read_chunk(chunk) async for chunk in entered]
        await stream.close()
        return told, chunks

    live, again = twice(root, api.aclient(server).create, use, server)

    assert live == again
    assert "req_0" in live[0][1].values()
    assert told(root) == (True, 20)


def read_chunk(chunk):
    """As it is now: SDKs add to the snapshots of events that they gave before."""
    return type(chunk), repr(chunk), sorted(chunk.model_fields_set)


def headers_of(response):
    """Those of a stream; its length is not known when it begins."""
    return {k: v for k, v in response.headers.items() if k != "content-length"}


@by_api("stream")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_stream_that_was_left_is_not_complete(api, asynchronous, root):
    """Asked for more, it makes the request again, and goes on after what it gave."""
    server = ModelServer([ASKS, ASKS])

    def first(ask):
        with ask(**api.request, stream=True) as stream:
            return [next(stream), next(stream)]

    async def afirst(ask):
        async with await ask(**api.request, stream=True) as stream:
            return [await anext(stream), await anext(stream)]

    def whole(ask):
        return list(ask(**api.request, stream=True))

    async def awhole(ask):
        return [c async for c in await ask(**api.request, stream=True)]

    if asynchronous:
        use, all_of_it, make = afirst, awhole, api.aclient
    else:
        use, all_of_it, make = first, whole, api.client
    live, again = twice(root, make(server).create, use, server)
    with inspect_session("s", root=root) as seen:
        ends = [e.data["stream"]["end"] for e in seen.events() if "stream" in e.data]
    asked = len(server.requests)
    ask = checkpointed_llm(make(server).create, name="ask")

    async def amore():
        async with session("s", root=root):
            return await all_of_it(ask)

    if asynchronous:
        more = asyncio.run(amore())
    else:
        with session("s", root=root):
            more = all_of_it(ask)

    assert live == again == more[:2]
    assert ends == ["closed"]
    assert (asked, len(server.requests)) == (1, 2)
    assert len(more) > 5


@by_api("stream")
def test_a_manager_sends_nothing_before_it_is_entered(api, root):
    """The request is durable before; entered, it gives the SDK's own stream."""
    server = ModelServer([ASKS])

    def use(ask):
        sent = len(server.requests)
        manager = ask(**api.request)
        assert len(server.requests) == sent
        with manager as stream:
            kind = stream.__class__
            return kind, isinstance(stream, kind), [read_chunk(c) for c in stream]

    live, again = twice(root, api.client(server).stream, use, server)

    assert live == again
    assert live[0].__module__.startswith(api.row)


@pytest.mark.framework("anthropic", "stream")
@pytest.mark.parametrize("api", [MESSAGES, BETA], ids=["messages", "beta"])
def test_a_managed_stream_knows_its_request_id(api, root):
    server = ModelServer([ASKS])

    def use(ask):
        with ask(**api.request) as stream:
            return stream.request_id, stream.until_done()

    live, again = twice(root, api.client(server).stream, use, server)

    assert live == again == ("req_0", None)


@by_api("model")
def test_another_client_made_by_with_options_is_decorated_by_itself(api, root):
    """It has the same name in the log: replays do not care which of them asked."""
    server = ModelServer([ASKS])
    client = api.sync(api_key="none", http_client=server.client())
    create = checkpointed_llm(api.at(client).create)
    slower = checkpointed_llm(api.at(client.with_options(timeout=99)).create)
    found = []
    for ask in (create, slower):
        with session("s", root=root):
            found.append(ask(**api.request))

    assert found[0] == found[1]
    assert len(server.requests) == 1


@by_api("model")
def test_a_decorated_bound_method_of_a_client_can_take_its_place(api, root):
    server = ModelServer([ASKS])
    client = api.client(server)
    client.create = checkpointed_llm(client.create)
    found = []
    for _ in range(2):
        with session("s", root=root):
            found.append(client.create(**api.request))

    assert found[0] == found[1]
    assert len(server.requests) == 1


def told_by(raw):
    """What a program reads of a raw response, beside what it parses to."""
    body = raw.text() if callable(raw.text) else raw.text
    return (
        type(raw),
        raw.status_code,
        dict(raw.headers),
        raw.request_id,
        raw.method,
        str(raw.url),
        raw.retries_taken,
        raw.is_closed,
        raw.http_response.json(),
        body,
        repr(raw),
    )


@by_api("model")
@pytest.mark.parametrize("how", ["with_raw_response", "with_streaming_response"])
def test_a_raw_response_is_the_sdks_own(api, how, root):
    server = ModelServer([ASKS])

    def use(ask):
        if how == "with_raw_response":
            raw = ask(**api.request)
            return [read(raw.parse()), *told_by(raw)[:-1]]
        with ask(**api.request) as raw:
            return [list(raw.iter_lines()), read(raw.parse()), *told_by(raw)[:-1]]

    live, again = twice(root, getattr(api.client(server), how).create, use, server)

    assert live == again
    assert "req_0" in live
    assert told(root) == (True, 20)


@by_api("model")
@pytest.mark.parametrize("how", ["with_raw_response", "with_streaming_response"])
def test_an_async_raw_response_is_the_sdks_own(api, how, root):
    """Of the streaming one, a plain function returns an async context manager."""
    server = ModelServer([ASKS])

    async def parsed(raw):
        found = raw.parse()
        found = await found if inspect.isawaitable(found) else found
        return [read(found), raw.status_code, raw.request_id, raw.http_response.json()]

    async def use(ask):
        if how == "with_raw_response":
            return await parsed(await ask(**api.request))
        sent = len(server.requests)
        manager = ask(**api.request)
        assert len(server.requests) == sent
        async with manager as raw:
            return await parsed(raw)

    live, again = twice(root, getattr(api.aclient(server), how).create, use, server)

    assert live == again
    assert "req_0" in live
    assert told(root) == (True, 20)


@by_api("stream")
@pytest.mark.parametrize("how", ["with_raw_response", "with_streaming_response"])
def test_the_stream_of_a_raw_response_is_recorded(api, how, root):
    """It is taken by parse(); what would take the bytes unseen says so."""
    server = ModelServer([ASKS])

    def take(raw):
        stream = raw.parse()
        assert stream is raw.parse()
        assert isinstance(stream, api.package.Stream)
        if how == "with_streaming_response":
            with pytest.raises(TypeError, match=r"iter_lines.*parse\(\)"):
                raw.iter_lines()
        return raw.status_code, [read_chunk(c) for c in stream]

    def use(ask):
        if how == "with_raw_response":
            return take(ask(**api.request, stream=True))
        with ask(**api.request, stream=True) as raw:
            return take(raw)

    live, again = twice(root, getattr(api.client(server), how).create, use, server)

    assert live == again
    assert len(live[1]) > 5
    assert told(root) == (True, 20)


@by_api("stream")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_raw_stream_that_was_left_goes_on(api, asynchronous, root):
    server = ModelServer([ASKS, ASKS])
    make = api.aclient if asynchronous else api.client
    create = make(server).with_streaming_response.create
    ask = checkpointed_llm(create, name="ask")

    def run(n):
        with session("s", root=root), ask(**api.request, stream=True) as raw:
            return [c for c, _ in zip(raw.parse(), range(n), strict=False)]

    async def arun(n):
        taken = []
        async with (
            session("s", root=root),
            ask(**api.request, stream=True) as raw,
        ):
            stream = await raw.parse()
            while len(taken) < n:
                try:
                    taken.append(await anext(stream))
                except StopAsyncIteration:
                    break
        return taken

    def some(n):
        return asyncio.run(arun(n)) if asynchronous else run(n)

    assert some(2) == some(2)
    assert len(server.requests) == 1
    whole = some(1000)
    assert whole[5:] == some(1000)[5:]
    assert len(whole) > 5
    assert len(server.requests) == 2


def test_a_replayed_raw_response_parses_as_nothing_else(root):
    server = ModelServer([ASKS])
    ask = checkpointed_llm(CHAT.client(server).with_raw_response.create)
    with session("s", root=root):
        ask(**CHAT.request)
    with session("s", root=root):
        raw = ask(**CHAT.request)
        for other in (str, dict):
            with pytest.raises(TypeError, match="replayed"):
                raw.parse(to=other)


def test_a_version_that_keeps_what_it_parsed_elsewhere_is_refused(root, monkeypatch):
    cls = type(
        CHAT.client(ModelServer([ASKS])).with_raw_response.create(**CHAT.request)
    )

    def parse(self):
        del self._parsed_by_type
        return 1

    monkeypatch.setattr(cls, "parse", parse)
    ask = checkpointed_llm(CHAT.client(ModelServer([ASKS])).with_raw_response.create)
    with pytest.raises(DecorationError, match=f"openai {openai.__version__}"):
        with session("s", root=root):
            ask(**CHAT.request)


@by_api("errors")
def test_an_error_of_the_api_is_the_same_on_replay(api, root):
    """Its status, body, request id and response, as retry predicates read them."""
    server = ModelServer([ASKS])
    bad = [{"role": "user", "content": "a"}, {"role": "odd", "content": "b"}]
    name = "input" if "input" in api.request else "messages"
    ask = checkpointed_llm(api.client(server).create)
    found = []
    for _ in range(2):
        with session("s", root=root):
            with pytest.raises(api.package.BadRequestError) as raised:
                ask(**{**api.request, name: bad})
            error = raised.value
            found.append(
                (
                    str(error),
                    error.status_code,
                    error.body,
                    error.request_id,
                    error.response.status_code,
                    dict(error.response.headers)["content-type"],
                )
            )

    assert found[0] == found[1]
    assert found[0][3] == "req_0"
    assert len(server.requests) == 1


class Answer(pydantic.BaseModel):
    number: int


PARSES = {
    "chat": ({"response_format": Answer}, lambda r: r.choices[0].message.parsed),
    "responses": ({"text_format": Answer}, lambda r: r.output_parsed),
    "messages": ({"output_format": Answer}, lambda r: r.parsed_output),
    "beta": ({"output_format": Answer}, lambda r: r.parsed_output),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@by_api("model")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_what_parse_made_of_an_answer_comes_back(api, asynchronous, root):
    name = next(name for name, each in APIS.items() if each is api)
    more, parsed = PARSES[name]
    server = ModelServer([Model('{"number": 1}')])

    def use(ask):
        response = ask(**api.request, **more)
        return type(response), response, parsed(response), response.model_fields_set

    async def ause(ask):
        response = await ask(**api.request, **more)
        return type(response), response, parsed(response), response.model_fields_set

    make, how = (api.aclient, ause) if asynchronous else (api.client, use)
    live, again = twice(root, make(server).parse, how, server)

    assert live == again
    assert live[2] == Answer(number=1)
    assert type(again[2]) is Answer


@by_api("errors")
def test_no_request_is_sent_whose_checkpoint_fails(api, root, monkeypatch):
    """And the session says so again, when it is used and when it closes."""
    server = ModelServer([ASKS])
    ask = checkpointed_llm(api.client(server).create)
    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:

            def refuse(*_):
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(type(opened._core), "append", refuse)
            for _ in range(2):
                with pytest.raises(CheckpointError):
                    ask(**api.request)

    assert server.requests == []


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.framework(row, "model"))
        for row in ("openai", "anthropic")
    ],
)
def test_the_line_of_the_table_is_all_it_takes(row, root):
    api = {"openai": CHAT, "anthropic": MESSAGES}[row]
    server = ModelServer([ASKS])
    scope = {
        "client": api.sync(api_key="none", http_client=server.client()),
        "checkpointed_llm": checkpointed_llm,
    }
    exec(ROWS[row].line, scope)  # noqa: S102 - the README's own line
    found = []
    for _ in range(2):
        with session("s", root=root):
            found.append(scope["ask"](**api.request))

    assert found[0] == found[1]
    assert len(server.requests) == 1


def test_a_version_of_the_sdk_with_no_other_class_is_still_a_stream(root, monkeypatch):
    """The class that a stream answers for is not loaded any more."""
    server = ModelServer([ASKS])
    ask = checkpointed_llm(CHAT.client(server).create)
    with session("s", root=root):
        live = [*ask(**CHAT.request, stream=True)]
    cls = openai.Stream
    monkeypatch.delattr(f"{cls.__module__}.{cls.__qualname__}")
    with session("s", root=root):
        stream = ask(**CHAT.request, stream=True)
        assert not isinstance(stream, cls)
        assert [*stream] == live


@pytest.mark.parametrize("name", ["os:system", "builtins:int", "nowhere:T", ""])
def test_a_log_makes_a_stream_answer_for_streams_only(name, root):
    server = ModelServer([ASKS])
    ask = checkpointed_llm(CHAT.client(server).create)
    with session("s", root=root):
        live = [*ask(**CHAT.request, stream=True)]
    stream = SyncStream(iter(()), None, None, {"stream": name})

    assert live
    assert stream.__class__ is SyncStream


def test_the_secrets_of_a_response_are_not_recorded(root, monkeypatch):
    """Cookies of the answer, headers and query of the request."""
    server = ModelServer([ASKS, ASKS])
    handle = server._handle

    def answer(request):
        response = handle(request)
        response.headers["set-cookie"] = "session=secret-cookie"
        return response

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = openai.OpenAI(api_key="secret-key", http_client=http)
    with session("s", root=root):
        stream = checkpointed_llm(client.chat.completions.create)
        assert [*stream(**CHAT.request, stream=True)]
        raw = checkpointed_llm(client.chat.completions.with_raw_response.create)
        raw(**CHAT.request, extra_query={"token": "secret-query"})
    files = [path for path in root.rglob("*") if path.is_file()]

    assert [p for p in files if b"secret" in p.read_bytes().replace(QUERY, b"")] == []


#: The arguments of the call itself are recorded, unless redact= or ignore= says else.
QUERY = b'"extra_query":{"token":"secret-query"}'


@by_api("errors")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_raw_response_that_cannot_be_parsed_is_an_error(
    api, asynchronous, root, monkeypatch
):
    """It is an error of the call itself, and the same on replay."""
    server = ModelServer([ASKS])
    answer = server.answer

    def cut(path, body):
        status, kind, (piece,) = answer(path, body)
        return status, kind, [piece[:40]]

    monkeypatch.setattr(server, "answer", cut)

    def use(ask):
        with pytest.raises(ValueError) as raised:
            ask(**api.request)
        return str(raised.value)

    async def ause(ask):
        with pytest.raises(ValueError) as raised:
            await ask(**api.request)
        return str(raised.value)

    make, how = (api.aclient, ause) if asynchronous else (api.client, use)
    live, again = twice(root, make(server).with_raw_response.create, how, server)

    assert live == again


def test_more_of_an_async_stream_may_fail(root):
    """The request that is made again for it is refused: so it says."""
    server = ModelServer([ASKS])

    async def main(n):
        async with session("s", root=root):
            stream = await checkpointed_llm(CHAT.aclient(server).create, name="ask")(
                **CHAT.request, stream=True
            )
            return [await anext(stream) for _ in range(n)]

    asyncio.run(main(1))
    server.answers = []
    with pytest.raises(IndexError):
        asyncio.run(main(2))

    assert len(server.requests) == 2
