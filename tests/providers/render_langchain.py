"""Scripts as LangChain messages, as its chat models for OpenAI make them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)

from tests.providers import render_openai_chat
from tests.providers.conversations import cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.providers.conversations import Call, Model, User

USAGE = {
    "input_tokens": 20,
    "output_tokens": 7,
    "total_tokens": 27,
    "input_token_details": {"cache_read": 16},
    "output_token_details": {"reasoning": 3},
}


def said(user: User) -> list[BaseMessage]:
    return [HumanMessage(render_openai_chat.said(user)[0]["content"])]


def response(model: Model, n: int) -> AIMessage:
    return AIMessage(
        content=model.text,
        id=f"lc_run--{n}",
        tool_calls=[_call(c) for c in model.calls if is_object(c)],
        invalid_tool_calls=[
            {"name": c.name, "args": c.arguments, "id": c.id, "error": "not an object"}
            for c in model.calls
            if not is_object(c)
        ],
        additional_kwargs=_extra(model),
        response_metadata={"model_name": render_openai_chat.MODEL},
        usage_metadata=USAGE,
    )


def _extra(model: Model) -> dict[str, Any]:
    return {"refusal": model.refusal} if model.refusal else {}


def _call(call: Call) -> Any:
    return {"name": call.name, "args": call.parsed, "id": call.id}


def is_object(call: Call) -> bool:
    """Whether the arguments of a call parse as what a tool can be called with."""
    try:
        return isinstance(json.loads(call.arguments), dict)
    except ValueError:
        return False


def stream(model: Model, n: int) -> list[AIMessageChunk]:
    known = {"id": f"lc_run--{n}"}
    chunks = [AIMessageChunk(content="", additional_kwargs=_extra(model), **known)]
    if model.text:
        chunks += [AIMessageChunk(content=p, **known) for p in cuts(model.text, 3)]
    for index, call in enumerate(model.calls):
        head = {"name": call.name, "args": "", "id": call.id, "index": index}
        chunks.append(AIMessageChunk(content="", tool_call_chunks=[head], **known))
        for piece in cuts(call.arguments):
            more = {"name": None, "args": piece, "id": None, "index": index}
            chunks.append(AIMessageChunk(content="", tool_call_chunks=[more], **known))
    last = AIMessageChunk(
        content="", usage_metadata=USAGE, chunk_position="last", **known
    )
    return [*chunks, last]


def heard(response: AIMessage) -> list[BaseMessage]:
    return [response]


def results(calls: Sequence[Call], texts: Sequence[str]) -> list[BaseMessage]:
    """Return the answers in the order of the message: parsed calls, then the others."""
    pairs = sorted(
        zip(calls, texts, strict=True), key=lambda pair: not is_object(pair[0])
    )
    return [
        ToolMessage(
            content=text,
            name=call.name,
            tool_call_id=call.id or "",
            status="error" if call.fate.kind == "error" else "success",
        )
        for call, text in pairs
    ]
