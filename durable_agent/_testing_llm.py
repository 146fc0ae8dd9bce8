"""A scripted model for tests."""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from attrs import evolve

from durable_agent._testing_dialects import (
    DIALECTS,
    Answer,
    Dialect,
    Json,
    ToolCall,
    refusal,
)
from durable_agent._testing_world import Here, note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    Said: TypeAlias = str | ToolCall | Sequence[str | ToolCall] | BaseException
    Turn: TypeAlias = Said | Callable[[list[Json]], Said]

_ID_CHARACTERS: Final = 12
_PER_TOKEN: Final = 4


class FakeLLMError(ValueError):
    """The fake model refuses a request, as a provider does, or has no answer."""


class FakeLLM:
    """A model that answers from a script, the same after a restart.

    ``script`` has the model's turns in order: a text, a `ToolCall`, a list of both, an
    exception to raise, or a function from the conversation to one of these. Which turn
    it is, is told by the conversation that it is sent (how often the model has spoken
    in it), and by nothing else, so nothing is lost when the process dies. In place of
    the list, a function decides for every conversation.

    It is called as SDKs call, itself or `acreate`, `stream` and `astream`: with the
    conversation, alone or by its name in the dialect. Other parameters are ignored, but
    for ``stream=True``. Answers are dicts in the shape of the dialect: "openai" (chat
    completions), "openai-responses", "anthropic" or "gemini"::

        >>> llm = FakeLLM([ToolCall("refund", {"order": "A-1"}), "Refunded."])
        >>> asked = {"role": "user", "content": "Please refund A-1."}
        >>> first = llm([asked])["choices"][0]["message"]
        >>> first["tool_calls"][0]["function"]
        {'name': 'refund', 'arguments': '{"order": "A-1"}'}

    What a provider refuses, it refuses: a tool call without a result, a result without
    its call, an empty conversation::

        >>> llm([asked, first, asked])
        Traceback (most recent call last):
        durable_agent._testing_llm.FakeLLMError: messages[2]: tool calls without a ...

        >>> id_ = first["tool_calls"][0]["id"]
        >>> done = {"role": "tool", "tool_call_id": id_, "content": "ok"}
        >>> llm([asked, first, done])["choices"][0]["message"]["content"]
        'Refunded.'
        >>> len(llm.requests), len(llm.refused)
        (2, 1)
    """

    def __init__(
        self,
        script: Sequence[Turn] | Callable[[list[Json]], Said],
        *,
        dialect: str = "openai",
    ) -> None:
        if isinstance(script, str):
            msg = "the script of a FakeLLM is a list of turns, or a function"
            raise TypeError(msg)
        if dialect not in DIALECTS:
            msg = f"dialect={dialect!r} is none of {', '.join(DIALECTS)}"
            raise ValueError(msg)
        self._script = script
        self._dialect: Dialect = DIALECTS[dialect]
        #: The conversations that it took, in this process, as they were then.
        self.requests: list[list[Json]] = []
        #: Why it refused others.
        self.refused: list[str] = []

    def __call__(self, conversation: Any = None, /, **request: Any) -> Any:
        """Answer, whole; with ``stream=True`` return an iterator of chunks."""
        if request.get("stream"):
            return self.stream(conversation, **request)
        answer, label = self._take(conversation, request)
        return self._given(self._dialect.whole(answer), label)

    async def acreate(self, conversation: Any = None, /, **request: Any) -> Any:
        """As calling it, awaited; with ``stream=True`` an async iterator comes."""
        if request.get("stream"):
            return self.astream(conversation, **request)
        return self(conversation, **request)

    def stream(self, conversation: Any = None, /, **request: Any) -> Iterator[Json]:
        """Yield the chunks of an answer; it is asked when the first one is."""
        answer, label = self._take(conversation, request)
        chunks = self._dialect.streamed(answer)
        yield from chunks[:-1]
        yield self._given(chunks[-1], label)

    async def astream(
        self, conversation: Any = None, /, **request: Any
    ) -> AsyncIterator[Json]:
        """As ``stream``, async."""
        for chunk in self.stream(conversation, **request):
            yield chunk

    def _take(self, conversation: Any, request: Json) -> tuple[Answer, str]:
        """Take a request: refuse it, or count it and decide."""
        parameter = self._dialect.parameter
        given = request.get(parameter) if conversation is None else conversation
        messages = _messages(given, parameter)
        reason = refusal(self._dialect, messages)
        if reason is not None:
            self.refused.append(reason)
            raise FakeLLMError(reason)
        whole = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(whole).hexdigest()[:_ID_CHARACTERS]
        label = f"{_last_text(messages)} [{digest}]"
        self.requests.append(copy.deepcopy(messages))
        Here.point(f"before request {label}")
        note("request", label)
        Here.point(f"after request {label}")
        said = self._said(messages)
        if isinstance(said, BaseException):
            raise said
        items = [said] if isinstance(said, str | ToolCall) else list(said)
        calls = [item for item in items if isinstance(item, ToolCall)]
        texts = [item for item in items if isinstance(item, str)]
        named = tuple(
            evolve(call, id=call.id or f"call_{digest}_{place}")
            for place, call in enumerate(calls)
        )
        return Answer(digest, "".join(texts), named, len(whole) // _PER_TOKEN), label

    def _given(self, answer: Json, label: str) -> Json:
        note("answer", label)
        return answer

    def _said(self, messages: list[Json]) -> Said:
        if callable(self._script):
            return self._script(messages)
        heard = [self._dialect.heard(message) for message in messages]
        before = [False, *(one.by_model for one in heard[:-1])]
        # Items in a row that the model said are one turn.
        turn = sum(
            one.by_model and not after for one, after in zip(heard, before, strict=True)
        )
        if turn >= len(self._script):
            msg = (
                f"no answer is left: the model has spoken {turn} times in this "
                f"conversation, and its script has {len(self._script)} turns"
            )
            raise FakeLLMError(msg)
        said = self._script[turn]
        return said(messages) if callable(said) else said


def _messages(given: Any, parameter: str) -> list[Json]:
    if isinstance(given, str):
        key = {"contents": "parts"}.get(parameter, "content")
        return [{"role": "user", key: [{"text": given}] if key == "parts" else given}]
    return list(given or ())


def _last_text(messages: Sequence[Json]) -> str:
    """Return some of the last message, to tell requests apart for people."""
    last = messages[-1]
    told = last.get("content") or last.get("parts") or last.get("output") or ""
    text = told if isinstance(told, str) else orjson.dumps(told).decode()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


#: Characters of a message that are shown.
_SHOWN: Final = 30
