"""Recorded errors are recognised by the code that catches and retries them."""

from __future__ import annotations

import pickle
import subprocess

import httpx
import httpx2
import openai
import pydantic
import pytest
import requests
from hypothesis import given, settings
from langchain_core.exceptions import OutputParserException

from durable_agent.errors import (
    RecordedToolError,
    ToolOutcomeUnknownError,
    ValueNotRebuildableError,
    ValueNotStorableError,
)
from durable_agent.values import decode, decode_error, encode, encode_error
from tests import strategies
from tests import value_types as vt
from tests.strategies import same


def again(error):
    return decode_error(encode_error(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ValueError("a", 1, (2,)),
        KeyError("missing"),
        FileNotFoundError(2, "No such file", "name"),
        OSError(5, "two names", "a", None, "b"),
        BlockingIOError(11, "again", 7),
        TimeoutError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        UnicodeEncodeError("ascii", "\ud800", 0, 1, "ordinal"),
        ImportError("no", name="module", path="/x"),
        SyntaxError("bad", ("f.py", 1, 2, "text")),
        StopIteration({"value": 1}),
        SystemExit(3),
        KeyboardInterrupt(),
        NameError("n", name="n"),
        vt.ApiError("down", status=503),
        vt.SlottedError(7),
        OutputParserException("bad", observation="o", llm_output="raw"),
        subprocess.CalledProcessError(2, ["a"], b"out"),
        ToolOutcomeUnknownError("unknown", session="s"),
        RecordedToolError("gone:Error", "text"),
    ],
    ids=repr,
)
def test_an_error_comes_back_with_type_text_arguments_and_attributes(error):
    got = again(error)

    assert type(got) is type(error)
    assert (str(got), got.args) == (str(error), error.args)
    for name in (*vars(error), "errno", "filename2", "code", "value", "name", "lineno"):
        assert getattr(got, name, None) == getattr(error, name, None)


def test_a_constructor_that_does_not_take_args_is_not_called():
    """Unpickling such an error raises; a caller's predicate still has to see it."""
    error = vt.ApiError("down", status=503)
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    got = again(error)

    assert got.status == 503
    assert got.retry


def test_notes_causes_and_contexts_come_back():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            inner.add_note("look here")
            try:
                raise ValueError("while handling")
            except ValueError:
                raise vt.ApiError("outer", status=500) from inner
    except vt.ApiError as error:
        got = again(error)

    assert repr(got.__cause__) == "KeyError('inner')"
    assert got.__cause__.__notes__ == ["look here"]
    assert repr(got.__context__) == "ValueError('while handling')"
    assert got.__context__.__context__ is got.__cause__
    assert got.__suppress_context__
    assert got.__traceback__ is None


def test_a_suppressed_context_stays_suppressed():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as error:
        got = again(error)

    assert (got.__cause__, got.__suppress_context__) == (None, True)


def test_groups_come_back_with_their_members():
    inner = ExceptionGroup("in", [TypeError("t"), vt.ApiError("a", status=1)])
    inner.exceptions[0].__cause__ = KeyError("k")
    group = vt.GroupError("out", [ValueError("v"), inner])
    group.add_note("n")

    got = again(group)

    assert type(got) is vt.GroupError
    assert (str(got), got.__notes__) == (str(group), ["n"])
    matched, rest = got.split(vt.ApiError)
    assert matched.exceptions[0].exceptions[0].status == 1
    assert repr(rest.exceptions[1].exceptions[0].__cause__) == "KeyError('k')"


def test_a_group_with_a_member_of_a_type_that_is_gone_is_still_a_group(monkeypatch):
    raw = encode_error(ExceptionGroup("g", [vt.ApiError("a", status=1), KeyError(1)]))
    monkeypatch.delattr(vt, "ApiError")

    got = decode_error(raw)

    assert type(got) is ExceptionGroup
    assert str(got.exceptions[0]) == "tests.value_types:ApiError: a"
    assert type(got.exceptions[1]) is KeyError


@pytest.mark.parametrize("package", [httpx, httpx2])
def test_retry_predicates_see_the_response_of_an_http_error(package):
    request = package.Request(
        "POST", "https://x/v1?key=secret", headers={"a": "secret"}
    )
    response = package.Response(
        429,
        headers=[("retry-after", "7"), ("set-cookie", "secret")],
        json={"e": 1},
        request=request,
    )
    raw = encode_error(package.HTTPStatusError("e", request=request, response=response))
    got = decode_error(raw)

    assert b"secret" not in raw
    assert type(got) is package.HTTPStatusError
    assert got.response.status_code == 429
    assert got.response.headers["retry-after"] == "7"
    assert got.response.json() == {"e": 1}
    assert str(got.request.url) == str(got.response.request.url) == "https://x/v1"
    with pytest.raises(package.HTTPStatusError):
        got.response.raise_for_status()


def test_errors_of_requests_keep_their_status():
    response = requests.Response()
    response.status_code, response.url, response._content = 503, "https://x?a", b"busy"
    response.headers["Retry-After"] = "7"

    got = again(requests.HTTPError("e", response=response))

    assert got.response.status_code == 503
    assert got.response.headers["retry-after"] == "7"
    assert got.response.text == "busy"


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500])
def test_errors_of_the_openai_client_come_back(status):
    client = openai.OpenAI(api_key="secret", base_url="https://x")
    response = httpx2.Response(
        status,
        headers={"x-request-id": "req_1"},
        json={"error": {"code": "c", "message": "m"}},
        request=httpx2.Request("POST", "https://x", headers={"auth": "secret"}),
    )
    error = client._make_status_error_from_response(response)
    raw = encode_error(error)
    got = decode_error(raw)

    assert b"secret" not in raw
    assert type(got) is type(error)
    assert (got.status_code, got.code, got.request_id) == (status, "c", "req_1")
    assert (got.body, str(got)) == (error.body, str(error))
    client.close()


def test_connection_errors_of_the_openai_client_come_back():
    request = httpx2.Request("POST", "https://x")

    assert type(again(openai.APITimeoutError(request))) is openai.APITimeoutError


@pytest.mark.parametrize("wrong", [{}, {"count": "x"}, {"count": None}, "no mapping"])
def test_validation_errors_come_back(wrong):
    """Structured output that fails to validate is retried by its error's text."""
    with pytest.raises(pydantic.ValidationError) as caught:
        vt.Checked.model_validate(wrong)

    got = again(caught.value)

    assert type(got) is pydantic.ValidationError
    assert str(got) == str(caught.value)
    assert got.errors() == caught.value.errors()


def test_what_cannot_be_stored_of_an_error_is_left_out():
    error = vt.ApiError("down", status=503)
    error.client = open
    error.itself = [error]
    error.__cause__ = ValueError(print)

    got = again(error)

    assert vars(got) == {"status": 503, "retry": True}
    assert str(got.__cause__) == str(print)


def test_an_attribute_of_a_type_that_is_gone_is_left_out(monkeypatch):
    error = vt.ApiError("down", status=503)
    error.detail = vt.Plain(1)
    raw = encode_error(error)
    monkeypatch.delattr(vt, "Plain")

    got = decode_error(raw)

    assert type(got) is vt.ApiError
    assert vars(got) == {"status": 503, "retry": True}


def test_an_error_of_an_unknown_type_keeps_its_name_and_text():
    class LocalError(Exception):
        pass

    got = again(LocalError("what happened"))

    assert type(got) is RecordedToolError
    assert got.type_name.endswith("LocalError")
    assert got.text == "what happened"


def test_an_error_with_neither_text_nor_a_way_to_store_it_is_recorded():
    class Local(vt.BadText):
        args = property(lambda self: 1 / 0)

    assert type(again(vt.BadText(1))) is vt.BadText
    assert type(again(Local())) is RecordedToolError


def test_very_long_chains_are_cut():
    error = None
    for number in range(5000):
        error, last = ValueError(number), error
        error.__cause__ = last

    got, length = again(error), 0
    while got is not None:
        got, length = got.__cause__, length + 1

    assert 100 < length < 5000


def test_a_chain_that_leads_back_ends():
    one, two = ValueError(1), ValueError(2)
    one.__cause__, two.__cause__ = two, one

    got = again(one)

    assert got.__cause__.__cause__ is got


def test_errors_nested_in_errors_without_end_are_recorded():
    error = ValueError("deepest")
    for _ in range(300):
        error = ValueError(error)

    assert type(again(error)) is ValueError


@settings(max_examples=40, deadline=None)
@given(strategies.values())
def test_any_value_may_hang_on_an_error(value):
    error = ValueError("text", value)
    error.detail = value

    got = again(error)

    assert same(got.args, error.args)
    assert same(got.detail, value)


def test_an_error_as_a_value_is_complete_or_refused():
    """``gather(return_exceptions=True)`` returns them."""
    error = vt.ApiError("a", status=1)

    got = decode(encode([error]))[0]
    assert (type(got), vars(got)) == (vt.ApiError, vars(error))

    error.client = print
    with pytest.raises(ValueNotStorableError):
        encode([error])


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"1", b'{"$error":[]}', b'{"$error":{}}', b'{"$tuple":[1]}']
)
def test_what_is_no_record_of_an_error_is_refused(raw):
    with pytest.raises(ValueNotRebuildableError):
        decode_error(raw)
