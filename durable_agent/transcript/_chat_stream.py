"""Streams of chat completions: chunks to the completion that they amount to.

Known are the chunks of the API, as objects or as JSON, and the SDK's events that hold
them (``type: chunk``). Servers of this form differ, so calls are told apart with care:
an index may be missing, or repeated for the next call, which a new id tells.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._fields import get, is_error, items, text_of
from durable_agent.transcript._objects import plain
from durable_agent.transcript._types import Assembled

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = ("id", "created", "model", "service_tier", "system_fingerprint")
#: Fields of a delta that are pieces of a text.
_GROWING: Final = frozenset({"content", "refusal", "reasoning_content", "reasoning"})
#: Reasons that are none; of OpenRouter, an error in the middle.
_UNFINISHED: Final = (None, "error")
_APART: Final = frozenset({"role", "tool_calls", "function_call", "audio"})


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk of a stream has a finish reason, and no error."""
    chunk = _chunk(chunk)
    choices = items(get(chunk, "choices"))
    reason = get(choices[0], "finish_reason") if choices else None
    return reason not in _UNFINISHED and not is_error(chunk)


def _chunk(thing: Any) -> Any:
    return get(thing, "chunk") if get(thing, "type") == "chunk" else thing


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the completion that chunks amount to, as the API gives it unstreamed.

    Arguments are the text that came, be it cut off. Sound is left out. After an error
    the completion is not complete.
    """
    response: dict[str, Any] = {"object": "chat.completion"}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    pieces: dict[str, list[str]] = {}
    calls = _Calls()
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": None}
    seen = False
    for chunk in map(_chunk, items(chunks)):
        for name in _HEAD:
            if name not in response and (told := get(chunk, name)) is not None:
                response[name] = told
        if (usage := get(chunk, "usage")) is not None:
            response["usage"] = plain(usage)
        for one in items(get(chunk, "choices")):
            delta = get(one, "delta", "message")
            if (get(one, "index") or 0) != 0:
                continue
            seen = seen or delta is not None
            _grow(message, pieces, calls, plain(delta))
            if (reason := get(one, "finish_reason")) is not None:
                choice["finish_reason"] = reason
    if not seen:
        return None
    message |= {name: "".join(texts) for name, texts in pieces.items()}
    if made := calls.made():
        message["tool_calls"] = made
    usage = response.pop("usage", None)
    response |= {"choices": [choice]} | ({} if usage is None else {"usage": usage})
    broken = any(is_error(_chunk(chunk)) for chunk in items(chunks))
    return Assembled(
        response, choice["finish_reason"] not in _UNFINISHED and not broken
    )


def _grow(
    message: dict[str, Any], pieces: dict[str, list[str]], calls: _Calls, delta: Any
) -> None:
    if not isinstance(delta, dict):
        return
    for entry in items(delta.get("tool_calls")):
        calls.add(plain(entry))
    if isinstance(legacy := plain(delta.get("function_call")), dict):
        whole = message.setdefault("function_call", {"name": "", "arguments": ""})
        _merge_function(whole, legacy)
    for name, value in delta.items():
        if name in _GROWING and isinstance(value, str):
            pieces.setdefault(name, []).append(value)
        elif name in _APART or value is None:
            continue
        elif isinstance(value, list):
            message[name] = [*items(message.get(name)), *value]
        else:
            message[name] = value


class _Calls:
    """The tool calls of an answer that comes in pieces."""

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._at: dict[Any, int] = {}

    def made(self) -> list[dict[str, Any]]:
        """Return the calls, each as it is unstreamed."""
        return self._calls

    def add(self, delta: Any) -> None:
        """Add a piece to its call, or begin one."""
        if not isinstance(delta, dict):
            return
        index = delta.get("index")
        at = self._at.get(index) if isinstance(index, int) else len(self._calls) - 1
        if at is None or at < 0 or _begins(self._calls[at], delta):
            at = len(self._calls)
            self._calls.append(_begun(delta))
        if isinstance(index, int):
            self._at[index] = at
        _merge(self._calls[at], delta)


def _begins(call: dict[str, Any], delta: dict[str, Any]) -> bool:
    """Whether a piece begins another call than the one that its index tells."""
    id_, of_call = text_of(get(delta, "id")), text_of(get(call, "id"))
    if id_ and of_call and id_ != of_call:
        return True
    function, whole = get(delta, "function"), get(call, "function")
    name, known = text_of(get(function, "name")), text_of(get(whole, "name"))
    given = get(function, "arguments")
    # Whole already, and a name again: a call that has the id of the one before.
    return bool(
        name
        and known
        and _is_object(get(whole, "arguments"))
        and (name != known or _is_object(given))
    )


def _is_object(text: Any) -> bool:
    try:
        return isinstance(text, dict) or isinstance(json.loads(text), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def _begun(delta: dict[str, Any]) -> dict[str, Any]:
    """Return a call with nothing in it yet, its members in the order of the API."""
    call: dict[str, Any] = {"id": delta.get("id"), "type": "function"}
    if delta.get("custom") is not None:
        return {**call, "type": "custom", "custom": {"name": "", "input": ""}}
    return {**call, "function": {"name": "", "arguments": ""}}


def _merge(call: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "function" and isinstance(value, dict):
            _merge_function(call.setdefault(name, {"name": "", "arguments": ""}), value)
        elif name == "custom" and isinstance(value, dict):
            _merge_function(call.setdefault(name, {"name": "", "input": ""}), value)
        elif name == "id":
            call["id"] = text_of(call.get("id")) or value
        elif name != "index" and value is not None:
            call[name] = value


def _merge_function(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        known = whole.get(name)
        if name in ("arguments", "input") and isinstance(value, str):
            whole[name] = known + value if isinstance(known, str) else value
        elif name == "name" and isinstance(value, str):
            # Some servers repeat the name with every piece.
            whole[name] = known if value == known else (known or "") + value
        elif value is not None:
            whole[name] = value
