"""Scripts in the form of Anthropic's Messages API."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from tests.providers.conversations import PIXEL, cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.providers.conversations import Call, Json, Model, User

MODEL = "claude-test"
USAGE = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 16,
    "output_tokens": 7,
    "service_tier": "standard",
}


def said(user: User) -> list[Json]:
    if not user.images:
        return [{"role": "user", "content": user.text}]
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    images = [{"type": "image", "source": source}] * user.images
    text = {"type": "text", "text": user.text}
    return [{"role": "user", "content": [*images, text]}]


def blocks(model: Model) -> list[Json]:
    """Return the content blocks of an answer."""
    found: list[Json] = []
    if model.thinking:
        signature = base64.b64encode(model.thinking.encode()).decode()
        thought = {"type": "thinking", "thinking": model.thinking}
        found.append({**thought, "signature": f"sig{signature}"})
    texts = (model.text, model.refusal)
    found += [{"type": "text", "text": text} for text in texts if text]
    for call in model.calls:
        known = {"type": "tool_use", "id": call.id, "name": call.name}
        found.append({**known, "input": call.parsed})
    return found


def response(model: Model, n: int) -> Json:
    return {**_head(n), "content": blocks(model), "stop_reason": _stopped(model)}


def _stopped(model: Model) -> str:
    if model.refusal:
        return "refusal"
    return "tool_use" if model.calls else "end_turn"


def _head(n: int) -> Json:
    return {
        "id": f"msg_{n}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }


def stream(model: Model, n: int) -> list[Json]:
    begun = {**_head(n), "usage": {**USAGE, "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    events.append({"type": "ping"})
    for index, block in enumerate(blocks(model)):
        start, deltas = _deltas(block)
        at = {"index": index}
        events.append({"type": "content_block_start", **at, "content_block": start})
        events += [{"type": "content_block_delta", **at, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", **at})
    ended = {"stop_reason": _stopped(model), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": USAGE})
    return [*events, {"type": "message_stop"}]


def _deltas(block: Json) -> tuple[Json, list[Json]]:
    """Return the block as it starts, and what comes to it after."""
    if block["type"] == "text":
        pieces = cuts(block["text"], 3)
        return {**block, "text": ""}, [
            {"type": "text_delta", "text": piece} for piece in pieces
        ]
    if block["type"] == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        thoughts: list[Json] = [
            {"type": "thinking_delta", "thinking": piece}
            for piece in cuts(block["thinking"])
        ]
        sign = {"type": "signature_delta", "signature": block["signature"]}
        return start, [*thoughts, sign]
    pieces = cuts(json.dumps(block["input"])) if block["input"] else [""]
    return {**block, "input": {}}, [
        {"type": "input_json_delta", "partial_json": piece} for piece in pieces
    ]


def heard(response: Json) -> list[Json]:
    return [{"role": "assistant", "content": response["content"]}]


def results(calls: Sequence[Call], texts: Sequence[str]) -> list[Json]:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": text,
            **({"is_error": True} if call.fate.kind == "error" else {}),
        }
        for call, text in zip(calls, texts, strict=True)
    ]
    return [{"role": "user", "content": blocks}]
