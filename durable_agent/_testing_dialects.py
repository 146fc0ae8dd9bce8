"""Messages of four providers as a fake model sends and takes them: plain dicts.

Each dialect says which part of a request is the conversation, what stands in it as
calls and results, and how an answer looks, whole and streamed. The refusals are the
plainest that all providers share: a conversation is not empty, each tool call is
answered by what comes right after it, and nothing else is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
#: Characters that count as a token.
_PER_TOKEN: Final = 4


@frozen
class ToolCall:
    """A tool call that a fake model makes."""

    name: str
    arguments: Json = field(factory=dict)
    #: The provider's id; made from the conversation if "".
    id: str = ""


@frozen
class Answer:
    """What a model says; ``id`` is the same for the same conversation."""

    id: str
    text: str
    calls: tuple[ToolCall, ...]
    asked: int

    @property
    def said(self) -> int:
        """Tokens of the answer."""
        arguments = "".join(json.dumps(call.arguments) for call in self.calls)
        return (len(self.text) + len(arguments)) // _PER_TOKEN + 1


@frozen
class Heard:
    """One message: whether the model said it, its calls and results by id."""

    by_model: bool
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class Dialect(Protocol):
    """One provider's format."""

    #: The parameter that holds the conversation.
    parameter: str

    def heard(self, message: Json) -> Heard:
        """Return what a message holds."""

    def whole(self, answer: Answer) -> Json:
        """Return an answer as the provider sends it."""

    def streamed(self, answer: Answer) -> list[Json]:
        """Return the chunks of an answer."""


def refusal(dialect: Dialect, messages: Sequence[Json]) -> str | None:
    """Return why a provider refuses the conversation, None if it takes it."""
    if not messages:
        return f"{dialect.parameter}: is empty"
    waiting: list[str] = []
    answering = False
    for place, message in enumerate(messages):
        where = f"{dialect.parameter}[{place}]"
        heard = dialect.heard(message)
        if waiting and not heard.results and (answering or not heard.calls):
            return f"{where}: tool calls without a result before it: {waiting}"
        for result in heard.results:
            if result not in waiting:
                return f"{where}: a tool result without its tool call: {result!r}"
            waiting.remove(result)
            answering = True
        if heard.calls:
            # Calls of one turn may be items of their own.
            waiting += heard.calls
            answering = False
    return f"tool calls without a result: {waiting}" if waiting else None


def pieces(text: str) -> list[str]:
    """Return a text word by word, as it is streamed."""
    return text.replace(" ", " \0").split("\0") if text else []


class OpenAIChat:
    """OpenAI's chat completions."""

    parameter = "messages"

    def heard(self, message: Json) -> Heard:
        """Return what a message holds."""
        calls = tuple(call["id"] for call in message.get("tool_calls") or ())
        is_result = message.get("role") == "tool"
        results = (message.get("tool_call_id", ""),) if is_result else ()
        return Heard(message.get("role") == "assistant", calls, results)

    def whole(self, answer: Answer) -> Json:
        """Return a completion."""
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = [_chat_call(call) for call in answer.calls]
        ended = "tool_calls" if answer.calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": ended}
        head = {**_chat_head(answer), "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": _chat_usage(answer)}

    def streamed(self, answer: Answer) -> list[Json]:
        """Return chunks: the role, words, calls, the reason to end, the usage."""
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in pieces(answer.text)]
        for index, call in enumerate(answer.calls):
            deltas.append({"tool_calls": [{"index": index, **_chat_call(call)}]})
        ended = "tool_calls" if answer.calls else "stop"
        choices: list[Json] = [{"delta": d, "finish_reason": None} for d in deltas]
        choices.append({"delta": {}, "finish_reason": ended})
        head = {**_chat_head(answer), "object": "chat.completion.chunk"}
        chunks = [{**head, "choices": [{"index": 0, **c}]} for c in choices]
        return [*chunks, {**head, "choices": [], "usage": _chat_usage(answer)}]


def _chat_head(answer: Answer) -> Json:
    return {"id": f"chatcmpl-{answer.id}", "created": 0, "model": "fake"}


def _chat_call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _chat_usage(answer: Answer) -> Json:
    asked, said = answer.asked, answer.said
    total = {"total_tokens": asked + said}
    return {"prompt_tokens": asked, "completion_tokens": said, **total}


class OpenAIResponses:
    """OpenAI's Responses."""

    parameter = "input"

    def heard(self, message: Json) -> Heard:
        """Return what an item holds."""
        kind = message.get("type")
        call = (message["call_id"],) if kind == "function_call" else ()
        result = (message["call_id"],) if kind == "function_call_output" else ()
        said = message.get("role") == "assistant"
        return Heard(said or bool(call), call, result)

    def _items(self, answer: Answer) -> list[Json]:
        items: list[Json] = []
        if answer.text:
            part = {"type": "output_text", "text": answer.text, "annotations": []}
            head = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant"}
            items.append({**head, "status": "completed", "content": [part]})
        for place, call in enumerate(answer.calls):
            head = {"id": f"fc_{answer.id}_{place}", "type": "function_call"}
            known = {"call_id": call.id, "name": call.name, "status": "completed"}
            items.append({**head, **known, "arguments": json.dumps(call.arguments)})
        return items

    def whole(self, answer: Answer) -> Json:
        """Return a response."""
        usage = {"input_tokens": answer.asked, "output_tokens": answer.said}
        usage["total_tokens"] = answer.asked + answer.said
        items = self._items(answer)
        return {**self._head(answer, "completed"), "output": items, "usage": usage}

    def _head(self, answer: Answer, status: str) -> Json:
        head = {"id": f"resp_{answer.id}", "object": "response", "created_at": 0}
        return {**head, "model": "fake", "status": status, "output": []}

    def streamed(self, answer: Answer) -> list[Json]:
        """Return events, from ``response.created`` to ``response.completed``."""
        begun = self._head(answer, "in_progress")
        events: list[Json] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(self._items(answer)):
            at = {"output_index": index}
            blank: Json = {"content": []} if "content" in item else {"arguments": ""}
            started = {**item, **blank, "status": "in_progress"}
            added = "response.output_item.added"
            events.append({"type": added, **at, "item": started})
            at = {**at, "item_id": item["id"]}
            if "content" in item:
                event, texts = "response.output_text.delta", pieces(answer.text)
                at["content_index"] = 0
            else:
                event = "response.function_call_arguments.delta"
                texts = [item["arguments"]]
            events += [{"type": event, **at, "delta": text} for text in texts]
            done = {"type": "response.output_item.done", "output_index": index}
            events.append({**done, "item": item})
        whole = self.whole(answer)
        events.append({"type": "response.completed", "response": whole})
        return [{**event, "sequence_number": n} for n, event in enumerate(events)]


class Anthropic:
    """Anthropic's Messages."""

    parameter = "messages"

    def heard(self, message: Json) -> Heard:
        """Return what a message holds."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        calls = tuple(b["id"] for b in blocks if b.get("type") == "tool_use")
        results = [b for b in blocks if b.get("type") == "tool_result"]
        answered = tuple(b["tool_use_id"] for b in results)
        return Heard(message.get("role") == "assistant", calls, answered)

    def _blocks(self, answer: Answer) -> list[Json]:
        blocks: list[Json] = []
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            known = {"type": "tool_use", "id": call.id, "name": call.name}
            blocks.append({**known, "input": call.arguments})
        return blocks

    def _head(self, answer: Answer) -> Json:
        usage = {"input_tokens": answer.asked, "output_tokens": answer.said}
        head = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant"}
        more = {"stop_reason": None, "stop_sequence": None, "usage": usage}
        return {**head, "model": "fake", "content": [], **more}

    def _stop(self, answer: Answer) -> str:
        return "tool_use" if answer.calls else "end_turn"

    def whole(self, answer: Answer) -> Json:
        """Return a message."""
        content = self._blocks(answer)
        stop = self._stop(answer)
        return {**self._head(answer), "content": content, "stop_reason": stop}

    def streamed(self, answer: Answer) -> list[Json]:
        """Return events, from ``message_start`` to ``message_stop``."""
        events: list[Json] = [{"type": "message_start", "message": self._head(answer)}]
        for index, block in enumerate(self._blocks(answer)):
            at = {"index": index}
            if block["type"] == "text":
                begun = {**block, "text": ""}
                texts = pieces(block["text"])
                deltas = [{"type": "text_delta", "text": text} for text in texts]
            else:
                begun = {**block, "input": {}}
                part = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": part}]
            events.append({"type": "content_block_start", **at, "content_block": begun})
            events += [
                {"type": "content_block_delta", **at, "delta": d} for d in deltas
            ]
            events.append({"type": "content_block_stop", **at})
        delta = {"stop_reason": self._stop(answer), "stop_sequence": None}
        usage = {"output_tokens": answer.said}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        return [*events, {"type": "message_stop"}]


class Gemini:
    """Google's generateContent."""

    parameter = "contents"

    def heard(self, message: Json) -> Heard:
        """Return what a content holds; calls without ids are told by their names."""
        parts = message.get("parts") or []
        calls = [p["functionCall"] for p in parts if "functionCall" in p]
        results = [p["functionResponse"] for p in parts if "functionResponse" in p]
        return Heard(
            message.get("role") == "model",
            tuple(call.get("id") or call["name"] for call in calls),
            tuple(result.get("id") or result["name"] for result in results),
        )

    def _parts(self, answer: Answer) -> list[Json]:
        parts: list[Json] = [{"text": answer.text}] if answer.text else []
        for call in answer.calls:
            known = {"id": call.id, "name": call.name, "args": call.arguments}
            parts.append({"functionCall": known})
        return parts

    def _response(self, answer: Answer, parts: list[Json], *, last: bool) -> Json:
        content = {"role": "model", "parts": parts}
        candidate: Json = {"content": content, "index": 0}
        response: Json = {"candidates": [candidate], "modelVersion": "fake"}
        response["responseId"] = answer.id
        if last:
            candidate["finishReason"] = "STOP"
            response["usageMetadata"] = {
                "promptTokenCount": answer.asked,
                "candidatesTokenCount": answer.said,
                "totalTokenCount": answer.asked + answer.said,
            }
        return response

    def whole(self, answer: Answer) -> Json:
        """Return a response."""
        return self._response(answer, self._parts(answer), last=True)

    def streamed(self, answer: Answer) -> list[Json]:
        """Return responses with a part each."""
        parts: list[Json] = [{"text": piece} for piece in pieces(answer.text)]
        parts += [part for part in self._parts(answer) if "functionCall" in part]
        last = len(parts) - 1
        return [
            self._response(answer, [part], last=place == last)
            for place, part in enumerate(parts)
        ]


#: By the names that `Session.messages` takes.
DIALECTS: Final[dict[str, Dialect]] = {
    "openai": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
}
