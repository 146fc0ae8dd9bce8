"""The SDKs of the providers over a ``ModelServer``, driven alike.

Each class shows how a plain loop of tools uses one SDK: ``create`` is the SDK's own
method, ``request(messages)`` its keywords, ``whole(stream)`` what the SDK's stream adds
up to, ``heard`` and ``results`` what is appended to the messages, as objects of the SDK
where people append those.
"""

from __future__ import annotations

import functools
import json
import operator
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import openai
from google import genai
from google.genai import types
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.providers.servers import ModelServer

#: id, name, arguments
Asked = tuple[str | None, str, dict[str, Any]]
MARK = {"cache_control": {"type": "ephemeral"}}


class Chat:
    """OpenAI chat completions."""

    name: ClassVar = "openai_chat"
    refusal: ClassVar[type[Exception]] = openai.BadRequestError

    def __init__(self, server: ModelServer) -> None:
        self.client = openai.OpenAI(api_key="none", http_client=server.client())

    @property
    def create(self) -> Callable[..., Any]:
        return self.client.chat.completions.create

    @property
    def create_stream(self) -> Callable[..., Any]:
        return self.client.chat.completions.create

    def request(self, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
        streaming = {"stream": True} if stream else {}
        return {"model": "gpt-test", "messages": messages, **streaming}

    def said(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def whole(self, stream: Any) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls: list[dict[str, Any]] = []
        for chunk in stream:
            for choice in chunk.choices:
                for field in ("content", "refusal", "reasoning_content"):
                    piece = getattr(choice.delta, field, None)
                    if piece:
                        message[field] = (message.get(field) or "") + piece
                for part in choice.delta.tool_calls or []:
                    if part.index == len(calls):
                        function = {"name": part.function.name, "arguments": ""}
                        calls.append(
                            {"id": part.id, "type": "function", "function": function}
                        )
                    calls[part.index]["function"]["arguments"] += (
                        part.function.arguments
                    )
        return {**message, "tool_calls": calls} if calls else message

    def heard(self, response: Any) -> list[Any]:
        if isinstance(response, dict):
            return [response]
        return [response.choices[0].message]

    def calls(self, response: Any) -> list[Asked]:
        if isinstance(response, dict):
            return [
                (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                for c in response.get("tool_calls", [])
            ]
        return [
            (c.id, c.function.name, json.loads(c.function.arguments))
            for c in response.choices[0].message.tool_calls or []
        ]

    def results(self, calls: list[Asked], texts: list[str]) -> list[Any]:
        return [
            {"role": "tool", "tool_call_id": call_id, "content": text}
            for (call_id, _, _), text in zip(calls, texts, strict=True)
        ]


class Responses:
    """OpenAI Responses."""

    name: ClassVar = "openai_responses"
    refusal: ClassVar[type[Exception]] = openai.BadRequestError

    def __init__(self, server: ModelServer) -> None:
        self.client = openai.OpenAI(api_key="none", http_client=server.client())

    @property
    def create(self) -> Callable[..., Any]:
        return self.client.responses.create

    @property
    def create_stream(self) -> Callable[..., Any]:
        return self.client.responses.create

    def request(self, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
        streaming = {"stream": True} if stream else {}
        return {"model": "gpt-test", "input": messages, "store": False, **streaming}

    def said(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def whole(self, stream: Any) -> Any:
        events = list(stream)
        assert events[-1].type == "response.completed"
        return events[-1].response

    def heard(self, response: Any) -> list[Any]:
        return list(response.output)

    def calls(self, response: Any) -> list[Asked]:
        found = [item for item in response.output if item.type == "function_call"]
        return [(c.call_id, c.name, json.loads(c.arguments)) for c in found]

    def results(self, calls: list[Asked], texts: list[str]) -> list[Any]:
        return [
            {"type": "function_call_output", "call_id": call_id, "output": text}
            for (call_id, _, _), text in zip(calls, texts, strict=True)
        ]


class Anthropic:
    """Anthropic messages, with thinking on and the four cache marks that it may have.

    They are on the system prompt, and on the first three things that the user says.
    """

    name: ClassVar = "anthropic"
    refusal: ClassVar[type[Exception]] = anthropic.BadRequestError

    def __init__(self, server: ModelServer) -> None:
        self.client = anthropic.Anthropic(api_key="none", http_client=server.client())
        self.marks = 3

    @property
    def create(self) -> Callable[..., Any]:
        return self.client.messages.create

    @property
    def create_stream(self) -> Callable[..., Any]:
        return self.client.messages.create

    def request(self, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
        return {
            "model": "claude-test",
            "max_tokens": 4096,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "system": [{"type": "text", "text": "Be brief.", **MARK}],
            "messages": messages,
            **({"stream": True} if stream else {}),
        }

    def said(self, text: str) -> list[Any]:
        mark = MARK if self.marks else {}
        self.marks -= bool(self.marks)
        block = {"type": "text", "text": text, **mark}
        return [{"role": "user", "content": [block]}]

    def whole(self, stream: Any) -> Any:
        message: Any = None
        raw: list[str] = []
        for event in stream:
            if event.type == "message_start":
                message = event.message
            elif event.type == "content_block_start":
                message.content.append(event.content_block)
                raw.append("")
            elif event.type == "content_block_delta":
                raw[-1] += _grow(message.content[event.index], event.delta)
            elif event.type == "content_block_stop" and raw[event.index]:
                message.content[event.index].input = json.loads(raw[event.index])
        return message

    def heard(self, response: Any) -> list[Any]:
        return [{"role": "assistant", "content": response.content}]

    def calls(self, response: Any) -> list[Asked]:
        uses = [block for block in response.content if block.type == "tool_use"]
        return [(use.id, use.name, use.input) for use in uses]

    def results(self, calls: list[Asked], texts: list[str]) -> list[Any]:
        blocks = [
            {"type": "tool_result", "tool_use_id": call_id, "content": text}
            for (call_id, _, _), text in zip(calls, texts, strict=True)
        ]
        return [{"role": "user", "content": blocks}]


def _grow(block: Any, delta: Any) -> str:
    """Add a delta to its block; returns the JSON that is parsed at the end."""
    if delta.type == "input_json_delta":
        return str(delta.partial_json)
    field = delta.type.removesuffix("_delta")
    setattr(block, field, getattr(block, field) + getattr(delta, field))
    return ""


class Gemini:
    """Google's generateContent, with thought signatures."""

    name: ClassVar = "gemini"
    refusal: ClassVar[type[Exception]] = genai.errors.ClientError

    def __init__(self, server: ModelServer) -> None:
        options = types.HttpOptions(
            httpx_client=server.client(), httpx_async_client=server.async_client()
        )
        self.client = genai.Client(api_key="none", http_options=options)

    @property
    def create(self) -> Callable[..., Any]:
        return self.client.models.generate_content

    @property
    def create_stream(self) -> Callable[..., Any]:
        return self.client.models.generate_content_stream

    def request(self, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
        return {"model": "gemini-3-test", "contents": messages}

    def said(self, text: str) -> list[Any]:
        return [types.Content(role="user", parts=[types.Part(text=text)])]

    def whole(self, stream: Iterator[Any]) -> Any:
        parts = [p for chunk in stream for p in chunk.candidates[0].content.parts]
        content = types.Content(role="model", parts=parts)
        candidate = types.Candidate(content=content)
        return types.GenerateContentResponse(candidates=[candidate])

    def heard(self, response: Any) -> list[Any]:
        return [response.candidates[0].content]

    def calls(self, response: Any) -> list[Asked]:
        parts = response.candidates[0].content.parts
        found = [part.function_call for part in parts if part.function_call]
        return [(call.id, call.name, dict(call.args)) for call in found]

    def results(self, calls: list[Asked], texts: list[str]) -> list[Any]:
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call_id, name=name, response={"output": text}
                )
            )
            for (call_id, name, _), text in zip(calls, texts, strict=True)
        ]
        return [types.Content(role="user", parts=parts)]


class LangChain:
    """LangChain's chat model for OpenAI; requests are made of LangChain messages."""

    name: ClassVar = "langchain"
    refusal: ClassVar[type[Exception]] = openai.BadRequestError

    def __init__(self, server: ModelServer) -> None:
        self.client = ChatOpenAI(
            model="gpt-test",
            api_key="none",
            http_client=server.client(),
            http_async_client=server.async_client(),
        )

    @property
    def create(self) -> Callable[..., Any]:
        def create(messages: list[Any]) -> Any:
            return self.client.invoke(messages)

        return create

    @property
    def create_stream(self) -> Callable[..., Any]:
        def create_stream(messages: list[Any]) -> Iterator[Any]:
            yield from self.client.stream(messages)

        return create_stream

    def request(self, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
        return {"messages": messages}

    def said(self, text: str) -> list[Any]:
        return [HumanMessage(text)]

    def whole(self, stream: Iterator[Any]) -> Any:
        return functools.reduce(operator.add, stream)

    def heard(self, response: Any) -> list[Any]:
        return [response]

    def calls(self, response: Any) -> list[Asked]:
        return [(c["id"], c["name"], c["args"]) for c in response.tool_calls]

    def results(self, calls: list[Asked], texts: list[str]) -> list[Any]:
        return [
            ToolMessage(text, tool_call_id=call_id, name=name)
            for (call_id, name, _), text in zip(calls, texts, strict=True)
        ]


SDKS: tuple[type[Any], ...] = (Chat, Responses, Anthropic, Gemini, LangChain)
