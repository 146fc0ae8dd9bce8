"""Scripts in the form of OpenAI's Responses API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.providers.conversations import PIXEL, cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.providers.conversations import Call, Json, Model, User

MODEL = "gpt-test"
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 27,
}


def said(user: User) -> list[Json]:
    if not user.images:
        return [{"role": "user", "content": user.text}]
    url = f"data:image/png;base64,{PIXEL}"
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    text = {"type": "input_text", "text": user.text}
    return [
        {"type": "message", "role": "user", "content": [text, *[image] * user.images]}
    ]


def items(model: Model, n: int) -> list[Json]:
    """Return the output items of an answer."""
    found: list[Json] = []
    if model.thinking:
        summary = [{"type": "summary_text", "text": model.thinking}]
        found.append({"id": f"rs_{n}", "type": "reasoning", "summary": summary})
    parts: list[Json] = []
    if model.text:
        part = {"type": "output_text", "text": model.text}
        parts.append({**part, "annotations": [], "logprobs": []})
    if model.refusal:
        parts.append({"type": "refusal", "refusal": model.refusal})
    if parts:
        head = {"id": f"msg_{n}", "type": "message", "status": "completed"}
        found.append({**head, "role": "assistant", "content": parts})
    for place, call in enumerate(model.calls):
        known = {"id": f"fc_{n}_{place}", "type": "function_call"}
        body = {"arguments": call.arguments, "call_id": call.id, "name": call.name}
        found.append({**known, "status": "completed", **body})
    return found


def response(model: Model, n: int) -> Json:
    return _response(n, "completed", items(model, n))


def _response(n: int, status: str, output: list[Json]) -> Json:
    return {
        "id": f"resp_{n}",
        "object": "response",
        "created_at": 1764551234,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": USAGE if status == "completed" else None,
    }


def stream(model: Model, n: int) -> list[Json]:
    events: list[Json] = []
    for kind in ("created", "in_progress"):
        begun = _response(n, "in_progress", [])
        events.append({"type": f"response.{kind}", "response": begun})
    for index, item in enumerate(items(model, n)):
        events += _item_events(index, item)
    whole = response(model, n)
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": i} for i, event in enumerate(events)]


def _item_events(index: int, item: Json) -> list[Json]:
    at = {"output_index": index, "item_id": item["id"]}
    empty: dict[str, Any] = {
        "message": {"content": []},
        "reasoning": {"summary": []},
        "function_call": {"arguments": ""},
    }
    begun = {**item, **empty[item["type"]]}
    if "status" in item:
        begun["status"] = "in_progress"
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    inner: list[Json] = []
    if item["type"] == "function_call":
        event = "response.function_call_arguments"
        inner = [
            {"type": f"{event}.delta", **at, "delta": piece}
            for piece in cuts(item["arguments"])
        ]
        told = {"name": item["name"], "arguments": item["arguments"]}
        inner.append({"type": f"{event}.done", **at, **told})
    elif item["type"] == "message":
        for place, part in enumerate(item["content"]):
            inner += _part_events({**at, "content_index": place}, part)
    else:
        for place, part in enumerate(item["summary"]):
            inner += _summary_events({**at, "summary_index": place}, part)
    return [added, *inner, done]


def _part_events(at: Json, part: Json) -> list[Json]:
    key = "refusal" if part["type"] == "refusal" else "text"
    event = "response.refusal" if key == "refusal" else "response.output_text"
    more: Json = {} if key == "refusal" else {"logprobs": []}
    added = {"type": "response.content_part.added", **at, "part": {**part, key: ""}}
    deltas = [
        {"type": f"{event}.delta", **at, "delta": piece, **more}
        for piece in cuts(part[key], 3)
    ]
    done = {"type": f"{event}.done", **at, key: part[key], **more}
    return [
        added,
        *deltas,
        done,
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _summary_events(at: Json, part: Json) -> list[Json]:
    event = "response.reasoning_summary"
    deltas = [
        {"type": f"{event}_text.delta", **at, "delta": piece}
        for piece in cuts(part["text"])
    ]
    return [
        {"type": f"{event}_part.added", **at, "part": {**part, "text": ""}},
        *deltas,
        {"type": f"{event}_text.done", **at, "text": part["text"]},
        {"type": f"{event}_part.done", **at, "part": part},
    ]


def heard(response: Json) -> list[Json]:
    return list(response["output"])


def results(calls: Sequence[Call], texts: Sequence[str]) -> list[Json]:
    return [
        {"type": "function_call_output", "call_id": call.id, "output": text}
        for call, text in zip(calls, texts, strict=True)
    ]
