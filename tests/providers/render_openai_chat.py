"""Scripts in the form of OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.providers.conversations import PIXEL, cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.providers.conversations import Call, Json, Model, User

MODEL = "gpt-test"
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 0},
}


def said(user: User) -> list[Json]:
    if not user.images:
        return [{"role": "user", "content": user.text}]
    url = {"url": f"data:image/png;base64,{PIXEL}"}
    images = [{"type": "image_url", "image_url": url}] * user.images
    return [{"role": "user", "content": [{"type": "text", "text": user.text}, *images]}]


def message(model: Model) -> Json:
    """Return the assistant message of an answer, with the nulls that the API sends."""
    answer: Json = {
        "role": "assistant",
        "content": model.text or None,
        "refusal": model.refusal or None,
        "annotations": [],
    }
    if model.thinking:  # not OpenAI's own: servers that show their reasoning
        answer["reasoning_content"] = model.thinking
    if model.calls:
        answer["tool_calls"] = [_call(call) for call in model.calls]
    return answer


def _call(call: Call) -> Json:
    known = {} if call.id is None else {"id": call.id}
    function = {"name": call.name, "arguments": call.arguments}
    return {**known, "type": "function", "function": function}


def response(model: Model, n: int) -> Json:
    choice = {
        "index": 0,
        "message": message(model),
        "logprobs": None,
        "finish_reason": "tool_calls" if model.calls else "stop",
    }
    return {
        "id": f"chatcmpl-{n}",
        "object": "chat.completion",
        "created": 1764551234,
        "model": MODEL,
        "choices": [choice],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def stream(model: Model, n: int) -> list[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
    if model.thinking:
        deltas += [{"reasoning_content": piece} for piece in cuts(model.thinking)]
    if model.text:
        deltas += [{"content": piece} for piece in cuts(model.text, 3)]
    if model.refusal:
        deltas += [{"refusal": piece} for piece in cuts(model.refusal)]
    for index, call in enumerate(model.calls):
        begun = _call(call)
        begun["function"] = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, **begun}]})
        for piece in cuts(call.arguments):
            part = {"index": index, "function": {"arguments": piece}}
            deltas.append({"tool_calls": [part]})
    ended = "tool_calls" if model.calls else "stop"
    chunks = [_chunk(n, delta, None) for delta in deltas] + [_chunk(n, {}, ended)]
    return [*chunks, {**chunks[-1], "choices": [], "usage": USAGE}]


def _chunk(n: int, delta: Json, ended: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ended}
    return {
        "id": f"chatcmpl-{n}",
        "object": "chat.completion.chunk",
        "created": 1764551234,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": None,
        "choices": [choice],
        "usage": None,
    }


def heard(response: Json) -> list[Json]:
    answer = response["choices"][0]["message"]
    kept = ("role", "content", "refusal", "tool_calls", "reasoning_content")
    return [{k: answer[k] for k in kept if answer.get(k) is not None or k == "content"}]


def results(calls: Sequence[Call], texts: Sequence[str]) -> list[Json]:
    return [
        {
            "role": "tool",
            **({} if call.id is None else {"tool_call_id": call.id}),
            "content": text,
        }
        for call, text in zip(calls, texts, strict=True)
    ]
