"""A model's server for tests: answers from a script, and refuses what breaks a rule.

``ModelServer`` speaks the wire format of all four APIs, by path: OpenAI's chat
completions and Responses, Anthropic's messages, Gemini's generateContent, each whole or
streamed. It is used as a transport (``client()``, ``async_client()``: no sockets) or as
a loopback server (``loopback()``: a real port, for other processes).
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx2

from tests.providers import (
    render_anthropic,
    render_gemini,
    render_openai_chat,
    render_openai_responses,
    rules_anthropic,
    rules_gemini,
    rules_openai_chat,
    rules_openai_responses,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.providers.conversations import Json, Model
    from tests.providers.rules_base import Ids


@dataclass(frozen=True)
class Wire:
    """One API: where it is, what it judges, how it streams and how it refuses."""

    path: str
    messages: str
    dialect: Any
    judge: Callable[[Json, str, Ids], list[str]]
    refusal: Callable[[str], Json]
    sse: Callable[[list[Json]], list[str]]


def _judge_chat(body: Json, path: str, ids: Ids) -> list[str]:
    return rules_openai_chat.check(body["messages"], ids=ids)


def _judge_responses(body: Json, path: str, ids: Ids) -> list[str]:
    before = body.get("previous_response_id")
    items = body["input"]
    return rules_openai_responses.check(items, ids=ids, previous_response_id=before)


def _judge_anthropic(body: Json, path: str, ids: Ids) -> list[str]:
    on = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    system = body.get("system", [])
    others = [*(system if isinstance(system, list) else []), *body.get("tools", [])]
    marks = sum(bool(block.get("cache_control")) for block in others)
    return rules_anthropic.check(body["messages"], ids=ids, thinking=on, marks=marks)


def _judge_gemini(body: Json, path: str, ids: Ids) -> list[str]:
    signatures = "gemini-3" in path
    return rules_gemini.check(body["contents"], ids=ids, signatures=signatures)


def _openai_refusal(text: str) -> Json:
    kind = "invalid_request_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def _anthropic_refusal(text: str) -> Json:
    error = {"type": "invalid_request_error", "message": text}
    return {"type": "error", "error": error}


def _gemini_refusal(text: str) -> Json:
    return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}


def _data(events: list[Json]) -> list[str]:
    return [f"data: {json.dumps(event)}\n\n" for event in events]


def _named(events: list[Json]) -> list[str]:
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]


WIRES = (
    Wire(
        "/chat/completions",
        "messages",
        render_openai_chat,
        _judge_chat,
        _openai_refusal,
        lambda events: [*_data(events), "data: [DONE]\n\n"],
    ),
    Wire(
        "/responses",
        "input",
        render_openai_responses,
        _judge_responses,
        _openai_refusal,
        _named,
    ),
    Wire(
        "/messages",
        "messages",
        render_anthropic,
        _judge_anthropic,
        _anthropic_refusal,
        _named,
    ),
    Wire(
        "enerateContent",  # generateContent and streamGenerateContent
        "contents",
        render_gemini,
        _judge_gemini,
        _gemini_refusal,
        _data,
    ),
)


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    body: bytes

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value

    @property
    def messages(self) -> bytes:
        """The bytes of the array of messages, as they were sent."""
        return member(self.body, wire_of(self.path).messages)


@dataclass
class ModelServer:
    """Answers each accepted request with the next turn of ``answers``.

    ``requests`` holds all that came, ``refused`` the breaches found. ``cut`` ends each
    stream after so many events, as a lost connection does. ``interrupt`` is raised in
    the program that asks, once its request is here and taken.
    """

    answers: list[Model]
    ids: Ids = "strict"
    cut: int | None = None
    interrupt: BaseException | None = None
    requests: list[Request] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    given: int = 0

    def answer(self, path: str, body: bytes) -> tuple[int, str, list[str]]:
        """Return status, content type and the pieces of the answer to one request."""
        path = path.partition("?")[0]
        wire = wire_of(path)
        self.requests.append(Request(path, body))
        asked = json.loads(body.decode("utf-8"))
        breaches = wire.judge(asked, path, self.ids)
        if breaches:
            self.refused += breaches
            refusal = json.dumps(wire.refusal("\n".join(breaches)))
            return 400, "application/json", [refusal]
        model, n = self.answers[self.given], self.given
        self.given += 1
        if self.interrupt is not None:
            raise self.interrupt
        if asked.get("stream") or "streamGenerateContent" in path:
            events = wire.sse(wire.dialect.stream(model, n))
            return 200, "text/event-stream", events[: self.cut]
        return 200, "application/json", [json.dumps(wire.dialect.response(model, n))]

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.raw_path.decode("ascii")
        status, kind, pieces = self.answer(path, request.read())
        content = "".join(pieces).encode("utf-8")
        number = f"req_{len(self.requests) - 1}"
        headers = {"content-type": kind, "x-request-id": number, "request-id": number}
        return httpx2.Response(status, headers=headers, content=content)

    async def _ahandle(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        return self._handle(request)

    def client(self) -> httpx2.Client:
        """Return an HTTP client, for an SDK, whose every request comes here."""
        return httpx2.Client(transport=httpx2.MockTransport(self._handle))

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._ahandle))

    @contextmanager
    def loopback(self) -> Iterator[str]:
        """Serve on a port of this machine; yields the URL in front of the paths."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(model: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            status, kind, pieces = model.answer(self.path, self.rfile.read(length))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece.encode("utf-8"))
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def wire_of(path: str) -> Wire:
    return next(wire for wire in WIRES if path.endswith(wire.path))


def member(body: bytes, name: str) -> bytes:
    """Return the bytes of a member of a JSON object, as they stand in it."""
    text, decode = body.decode("utf-8"), json.JSONDecoder().raw_decode
    at = text.index("{") + 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(" \n\r\t,"))
        key, at = decode(text, at)
        at = text.index(":", at) + 1
        at += len(text[at:]) - len(text[at:].lstrip())
        _, end = decode(text, at)
        if key == name:
            return text[at:end].encode("utf-8")
        at = end


def extends(before: bytes, after: bytes) -> bool:
    """Whether an array of messages begins, byte for byte, with an earlier one."""
    head = before.rstrip().removesuffix(b"]").rstrip()
    return after.startswith(head) and after[len(head) :].lstrip()[:1] in (b",", b"]")
