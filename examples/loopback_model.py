"""A chat-completions service on loopback, so that the examples run offline.

It speaks enough of the protocol for the real ``openai`` client: plain and streamed
answers, usage figures, and error 400 for a history that a provider would refuse. What
it answers is decided by a function from the messages to an `Answer`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: About how many characters of JSON make a token; only the usage figures use it.
_CHARACTERS_PER_TOKEN = 4


@dataclass
class Answer:
    """What the model says next: text, or calls of tools."""

    text: str | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def refusal(messages: list[dict[str, Any]]) -> str | None:
    """Return why a provider would refuse this history, None if it would not.

    Each tool call of an assistant message is answered exactly once, directly after it.
    """
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered not in waiting:
                return f"messages[{place}]: a tool result without its tool call"
            waiting.discard(str(answered))
            continue
        if waiting:
            return f"messages[{place}]: tool calls without a result: {sorted(waiting)}"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        return f"tool calls without a result: {sorted(waiting)}"
    return None if messages else "messages: is empty"


class ModelServer:
    """The service. Counts what it was asked and what it charged."""

    def __init__(self, model: Callable[[list[dict[str, Any]]], Answer]) -> None:
        self.model = model
        self.requests = 0
        self.refused: list[str] = []
        self.tokens = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.service = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The base URL for the client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the completion, or the error."""
        messages = request.get("messages") or []
        reason = refusal(messages)
        if reason is not None:
            with self._lock:
                self.refused.append(reason)
            return HTTPStatus.BAD_REQUEST, {
                "error": {"message": reason, "type": "invalid_request_error"}
            }
        message = _message(self.model(messages))
        reason = "tool_calls" if "tool_calls" in message else "stop"
        asked = len(json.dumps(request, ensure_ascii=False)) // _CHARACTERS_PER_TOKEN
        said = len(json.dumps(message, ensure_ascii=False)) // _CHARACTERS_PER_TOKEN
        with self._lock:
            self.requests += 1
            self.tokens += asked + said
        return HTTPStatus.OK, {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.get("model", "loopback"),
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls"
                    if "tool_calls" in message
                    else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": said,
                "total_tokens": asked + said,
            },
        }


def _message(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in answer.calls
        ]
    return message


def _chunks(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the completion as a provider streams it, a word at a time."""
    head = {name: completion[name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    text = completion["choices"][0]["message"]["content"] or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in text.replace(" ", " \0").split("\0")]
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield {**head, "choices": [choice]}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield {**head, "choices": [last], "usage": completion["usage"]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        service: ModelServer = self.server.service  # type: ignore[attr-defined]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = service.answer(request)
        # The client may have been killed meanwhile.
        with contextlib.suppress(ConnectionError):
            if status == HTTPStatus.OK and request.get("stream"):
                self._stream(body)
            else:
                self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, completion: dict[str, Any]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in _chunks(completion):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args: object) -> None:
        """Say nothing on stderr."""
