"""Scripts in the form of Google's generateContent."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from tests.providers.conversations import PIXEL, cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.providers.conversations import Call, Json, Model, User

MODEL = "gemini-3-test"
USAGE = {
    "promptTokenCount": 20,
    "cachedContentTokenCount": 16,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 27,
}


def said(user: User) -> list[Json]:
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    parts = [{"text": user.text}, *[image] * user.images]
    return [{"role": "user", "parts": parts}]


def parts(model: Model, n: int) -> list[Json]:
    """Return the parts of an answer; the first call of a turn carries the signature."""
    found: list[Json] = []
    if model.thinking:
        found.append({"text": model.thinking, "thought": True})
    texts = (model.text, model.refusal)
    found += [{"text": text} for text in texts if text]
    for place, call in enumerate(model.calls):
        known = {} if call.id is None else {"id": call.id}
        part: Json = {"functionCall": {**known, "name": call.name, "args": call.parsed}}
        if place == 0:
            signature = base64.b64encode(f"signature {n}".encode()).decode()
            part["thoughtSignature"] = signature
        found.append(part)
    return found


def response(model: Model, n: int) -> Json:
    return {**_response(n, parts(model, n), "STOP"), "usageMetadata": USAGE}


def _response(n: int, found: list[Json], ended: str | None) -> Json:
    content = {"role": "model", "parts": found}
    candidate: Json = {"content": content, "index": 0}
    if ended:
        candidate["finishReason"] = ended
    head = {"modelVersion": MODEL, "responseId": f"response{n}"}
    return {"candidates": [candidate], **head}


def stream(model: Model, n: int) -> list[Json]:
    pieces: list[Json] = []
    for part in parts(model, n):
        if "text" in part:
            pieces += [{**part, "text": piece} for piece in cuts(part["text"], 3)]
        else:
            pieces.append(part)
    chunks = [_response(n, [piece], None) for piece in pieces]
    chunks[-1] = {**_response(n, pieces[-1:], "STOP"), "usageMetadata": USAGE}
    return chunks


def heard(response: Json) -> list[Json]:
    return [response["candidates"][0]["content"]]


def results(calls: Sequence[Call], texts: Sequence[str]) -> list[Json]:
    found = [
        {
            "functionResponse": {
                **({} if call.id is None else {"id": call.id}),
                "name": call.name,
                "response": {
                    "error" if call.fate.kind == "error" else "output": text,
                },
            }
        }
        for call, text in zip(calls, texts, strict=True)
    ]
    return [{"role": "user", "parts": found}]
