"""Provider messages, and the tool calls and results in them.

A dialect is one provider's message format: it finds the assistant turn in a recorded
response, its tool calls, and says where and how a result is put. Everything here is a
function from values to values; no provider's package is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from durable_agent.transcript import gemini, openai_chat, openai_responses
from durable_agent.transcript._compare import (
    continues,
    essence,
    fingerprint,
    goes_on_after,
    kept_by_provider,
    response_id,
    role_of,
)
from durable_agent.transcript._registry import DIALECTS, dialect_named, flattened
from durable_agent.transcript._render import error_text, result_text
from durable_agent.transcript._types import (
    Assembled,
    Dialect,
    Result,
    Tokens,
    ToolCall,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "DIALECTS",
    "Assembled",
    "Dialect",
    "Exchange",
    "Result",
    "Tokens",
    "ToolCall",
    "assembled",
    "calls_in",
    "continues",
    "dialect_named",
    "error_text",
    "essence",
    "fingerprint",
    "goes_on_after",
    "is_final_chunk",
    "kept_by_provider",
    "messages_in",
    "read",
    "response_id",
    "result_text",
    "role_of",
    "turn_of",
    "usage_of",
    "whole",
]

#: What the providers call their messages; a person's own function may use any name.
_ANY_NAME: Final = ("messages", "input", "contents")


@frozen
class Exchange:
    """A request, and the assistant turn that answered it."""

    dialect: Dialect
    messages: list[Any]
    #: Messages for the next request; None: no response, or none that shows a turn.
    turn: list[Any] | None = None


def read(
    bound: Mapping[str, Any], response: Any = None, dialect: Dialect | None = None
) -> Exchange:
    """Return what a request and its response say, in the dialect that both are in.

    ``response`` is None while there is none. A text is a turn that says it. A stream's
    response is what `assembled` makes of it.
    """
    asked = DIALECTS if dialect is None else (dialect,)
    flat = dict(flattened(bound))
    requests = [(d, _messages(d, flat)) for d in asked]
    known = [(d, m) for d, m in requests if m and d.knows(m)]
    rest = [pair for pair in requests if pair not in known]
    if isinstance(response, str):
        chosen, messages = known[0] if known else _by_name(requests, flat)
        return Exchange(chosen, messages or [], chosen.text_turn(response))
    for candidate, messages in (*known, *rest):
        turn = None if response is None else candidate.turn(response)
        if turn is not None:
            # Where the SDK went on by itself, with calls of its own, it says so.
            more = gemini.history(response) if candidate is gemini else None
            return Exchange(candidate, more or messages or [], turn)
    chosen, messages = known[0] if known else _by_name(requests, flat)
    return Exchange(chosen, messages or [])


def _by_name(
    requests: Sequence[tuple[Dialect, list[Any] | None]], flat: Mapping[str, Any]
) -> tuple[Dialect, list[Any] | None]:
    """Choose where no message tells: by what the provider calls its messages."""
    wanted = openai_chat.NAME
    if "contents" in flat and "messages" not in flat:
        wanted = gemini.NAME
    elif "input" in flat and "messages" not in flat:
        wanted = openai_responses.NAME
    return next((pair for pair in requests if wanted == pair[0].NAME), requests[-1])


def messages_in(bound: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a request, whichever dialect they are in; empty: none.

    A list under a provider's name is returned as it is, and not looked into.
    """
    flat = dict(flattened(bound))
    for name in _ANY_NAME:
        if isinstance(flat.get(name), list):
            found: list[Any] = flat[name]
            return found
    return read(bound).messages


def _messages(dialect: Dialect, flat: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages by the provider's name, else the first list of messages."""
    found = dialect.request(flat)
    if found is not None:
        return found
    for value in flat.values():
        if isinstance(value, list) and value and all(map(_is_message, value)):
            return dialect.request(dict.fromkeys(_ANY_NAME, value))
    return None


def _is_message(value: Any) -> bool:
    if isinstance(value, dict):
        return "role" in value
    return hasattr(value, "role") or hasattr(value, "content")


def assembled(chunks: Sequence[Any]) -> Assembled | None:
    """Return the response that the chunks of a stream amount to; None: unknown.

    Texts are joined; whether they are all, only the stream's own end can say.
    """
    if chunks and all(isinstance(chunk, str) for chunk in chunks):
        return Assembled("".join(chunks), complete=True)
    for dialect in DIALECTS:
        found = dialect.assemble(chunks)
        if found is not None:
            return found
    return None


def whole(response: Any) -> Any:
    """Return a response; of a list that is none, what its chunks amount to.

    A list in which no dialect sees a turn is the chunks of a stream.
    """
    if not isinstance(response, list) or turn_of(response) is not None:
        return response
    found = assembled(response)
    return response if found is None else found.response


def turn_of(response: Any) -> list[Any] | None:
    """Return the assistant turn of a response, in the first dialect that sees one.

    A text says itself. A stream's response is what `whole` makes of it.
    """
    if isinstance(response, str):
        return openai_chat.text_turn(response)
    turns = (dialect.turn(response) for dialect in DIALECTS)
    return next((turn for turn in turns if turn is not None), None)


def calls_in(response: Any) -> list[ToolCall]:
    """Return the tool calls of a response, in order; empty where none are seen.

    A stream's response is what `whole` makes of it.
    """
    for dialect in DIALECTS:
        calls = dialect.calls(dialect.turn(response) or [])
        if calls:
            return calls
    return []


def is_final_chunk(chunk: Any) -> bool:
    """Whether this chunk of a stream says that the answer is complete."""
    return any(dialect.is_final_chunk(chunk) for dialect in DIALECTS)


def usage_of(response: Any) -> tuple[str, Tokens] | None:
    """Return the model's name and the tokens that a response states, None: none."""
    for dialect in _likely(response):
        found = dialect.usage(response)
        if found is not None:
            return found
    return None


def _likely(response: Any) -> Iterable[Dialect]:
    """Return the dialects, first those that see a turn in the response."""
    seen = [d for d in DIALECTS if d.turn(response) is not None]
    return (*seen, *(d for d in DIALECTS if d not in seen))
