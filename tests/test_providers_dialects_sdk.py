"""The dialects on the SDKs' own objects: the server takes what they make of them."""

from __future__ import annotations

import importlib

import pytest

from durable_agent.transcript._types import Result
from tests.providers.clients import SDKS
from tests.providers.conversations import Call, Model
from tests.providers.registry import PROVIDERS
from tests.providers.servers import ModelServer, extends

CALLS = (
    Call("search", '{"q": "é"}', "c1"),
    Call("send", "{}", "c2"),
    Call("send", '{"to": ["a", {"b": null}]}', "c3"),
)
ASKS = Model("let me see", CALLS, thinking="hm")
TURNS = {
    "asks": ASKS,
    "only asks": Model(calls=CALLS, thinking="hm"),
    "says": Model("fine"),
    "refuses": Model(refusal="no"),
}
by_sdk = pytest.mark.parametrize("sdk", SDKS, ids=[sdk.name for sdk in SDKS])
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def dialect_of(sdk):
    return importlib.import_module(f"durable_agent.transcript.{sdk.name}")


def answer(turn, call):
    return Result(text=f"unknown: {call.name}", failed=True)


def ask(client, dialect, messages, *, stream):
    """Ask; returns the response, put together by the dialect if it was a stream."""
    if not stream:
        return client.create(**client.request(messages))
    chunks = list(client.create_stream(**client.request(messages, stream=True)))
    assembled = dialect.assemble(chunks)
    assert assembled.complete
    assert not dialect.assemble(chunks[:1]).complete
    return assembled.response


@by_sdk
@streamed
@pytest.mark.parametrize("turn", list(TURNS))
def test_a_turn_of_objects_is_answered_and_taken(sdk, stream, turn):
    """Twice, so that what was balanced once is sent and balanced again."""
    server = ModelServer([TURNS[turn], TURNS[turn], Model("fine")], ids="lenient")
    client, dialect = sdk(server), dialect_of(sdk)
    messages = client.said("hi")
    for _ in range(2):
        bound = client.request(messages)
        found = dialect.request(bound)
        response = ask(client, dialect, messages, stream=stream)
        said = dialect.turn(response)
        messages = dialect.balance([*found, *said], answer) + client.said("and now?")
        calls = [(c.name, c.arguments) for c in dialect.calls(said)]

        assert calls == [(c.name, c.parsed) for c in TURNS[turn].calls]
    ask(client, dialect, messages, stream=False)
    first, second, third = (request.messages for request in server.requests)

    assert server.refused == []
    assert extends(first, second)
    assert extends(second, third)


@by_sdk
def test_usage_is_what_the_provider_counted(sdk):
    client, dialect = sdk(ModelServer([Model("fine")])), dialect_of(sdk)
    _, tokens = dialect.usage(client.create(**client.request(client.said("hi"))))

    assert (tokens.input, tokens.output) == (20, 7)
    assert tokens.cached == 16


def test_all_dialects_have_an_sdk():
    assert {sdk.name for sdk in SDKS} == set(PROVIDERS)
