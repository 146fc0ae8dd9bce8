"""Provider messages, and the tool calls and results in them.

A dialect is one provider's message format: it finds the assistant turn in a recorded
response, its tool calls, and says where and how a result is put. Everything here is a
function from values to values; no provider's package is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from durable_agent.transcript import (
    anthropic,
    gemini,
    langchain,
    openai_chat,
    openai_responses,
)
from durable_agent.transcript._render import error_text, result_text
from durable_agent.transcript._types import (
    Assembled,
    Dialect,
    Result,
    Tokens,
    ToolCall,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
    "fingerprint",
    "goes_on_after",
    "is_final_chunk",
    "messages_in",
    "read",
    "response_id",
    "result_text",
    "turn_of",
    "usage_of",
]

#: Asked in this order: those whose forms nobody else has come first.
DIALECTS: Final[tuple[Dialect, ...]] = (
    langchain,
    gemini,
    openai_responses,
    anthropic,
    openai_chat,
)
#: What the providers call their messages; a person's own function may use any name.
_ANY_NAME: Final = ("messages", "input", "contents")


@frozen
class Exchange:
    """A request, and the assistant turn that answered it."""

    dialect: Dialect
    messages: list[Any]
    #: Messages for the next request; None: no response, or none that shows a turn.
    turn: list[Any] | None = None


def dialect_named(name: str) -> Dialect:
    """Return a dialect by its name; ``ValueError`` names the known ones."""
    for dialect in DIALECTS:
        if name == dialect.NAME:
            return dialect
    known = ", ".join(repr(dialect.NAME) for dialect in reversed(DIALECTS))
    msg = f"unknown dialect {name!r}; known: {known}"
    raise ValueError(msg)


def read(
    bound: Mapping[str, Any], response: Any = None, dialect: Dialect | None = None
) -> Exchange:
    """Return what a request and its response say, in the dialect that both are in.

    ``response`` is None while there is none. A text is a turn that says it. A stream's
    response is what `assembled` makes of it.
    """
    asked = DIALECTS if dialect is None else (dialect,)
    requests = [(d, _messages(d, bound)) for d in asked]
    known = [(d, m) for d, m in requests if m and d.knows(m)]
    rest = [pair for pair in requests if pair not in known]
    if isinstance(response, str):
        chosen, messages = known[0] if known else _by_name(requests, bound)
        return Exchange(chosen, messages or [], chosen.text_turn(response))
    for candidate, messages in (*known, *rest):
        turn = None if response is None else candidate.turn(response)
        if turn is not None:
            # Where the SDK went on by itself, with calls of its own, it says so.
            more = gemini.history(response) if candidate is gemini else None
            return Exchange(candidate, more or messages or [], turn)
    chosen, messages = known[0] if known else _by_name(requests, bound)
    return Exchange(chosen, messages or [])


def _by_name(
    requests: Sequence[tuple[Dialect, list[Any] | None]], bound: Mapping[str, Any]
) -> tuple[Dialect, list[Any] | None]:
    """Choose where no message tells: by what the provider calls its messages."""
    flat = dict(_flat(bound))
    wanted = openai_chat.NAME
    if "contents" in flat and "messages" not in flat:
        wanted = gemini.NAME
    elif "input" in flat and "messages" not in flat:
        wanted = openai_responses.NAME
    return next((pair for pair in requests if wanted == pair[0].NAME), requests[-1])


def goes_on_after(bound: Mapping[str, Any]) -> str | None:
    """Return the id of the response that a request goes on after, None: unsaid.

    Where the provider keeps the conversation, a request holds what is new only
    (``previous_response_id`` of OpenAI Responses).
    """
    found = dict(_flat(bound)).get("previous_response_id")
    return found if isinstance(found, str) and found else None


def response_id(response: Any) -> str | None:
    """Return the provider's id of a response."""
    is_dict = isinstance(response, dict)
    found = response.get("id") if is_dict else getattr(response, "id", None)
    return found if isinstance(found, str) else None


def messages_in(bound: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a request, whichever dialect they are in; empty: none.

    A list under a provider's name is returned as it is, and not looked into.
    """
    flat = dict(_flat(bound))
    for name in _ANY_NAME:
        if isinstance(flat.get(name), list):
            found: list[Any] = flat[name]
            return found
    return read(bound).messages


def _messages(dialect: Dialect, bound: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages by the provider's name, else the first list of messages."""
    flat = dict(_flat(bound))
    found = dialect.request(flat)
    if found is not None:
        return found
    for value in flat.values():
        if isinstance(value, list) and value and all(map(_is_message, value)):
            return dialect.request(dict.fromkeys(_ANY_NAME, value))
    return None


def _flat(bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments, those in ``*args``, ``**kwargs`` and one request too."""
    for name, value in bound.items():
        if isinstance(value, tuple):
            yield from ((f"{name}[{i}]", member) for i, member in enumerate(value))
        if isinstance(value, dict) and not name.startswith("_"):
            for inner, member in value.items():
                if isinstance(inner, str) and inner not in bound:
                    yield inner, member
        yield name, value


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


def turn_of(response: Any) -> list[Any] | None:
    """Return the assistant turn of a response, in the first dialect that sees one.

    A text says itself; a list that is no response is the chunks of a stream.
    """
    if isinstance(response, str):
        return openai_chat.text_turn(response)
    for dialect in DIALECTS:
        turn = dialect.turn(response)
        if turn is not None:
            return turn
    if isinstance(response, list) and response:
        whole = assembled(response)
        if whole is not None and not isinstance(whole.response, list):
            return turn_of(whole.response)
    return None


def fingerprint(message: Any) -> Any:
    """Return a message as plain JSON without what may move, whoever's it is."""
    for dialect in DIALECTS:
        if dialect.knows([message]):
            return dialect.comparable(message)
    return openai_chat.comparable(message)


def calls_in(response: Any) -> list[ToolCall]:
    """Return the tool calls of a response, in order; empty where none are seen.

    A list that is no response is taken for the chunks of a stream.
    """
    for dialect in DIALECTS:
        turn = dialect.turn(response)
        if turn:
            calls = dialect.calls(turn)
            if calls:
                return calls
    if isinstance(response, list) and response:
        whole = assembled(response)
        if whole is not None and not isinstance(whole.response, list):
            return calls_in(whole.response)
    return []


def is_final_chunk(chunk: Any) -> bool:
    """Whether this chunk of a stream says that the answer is complete."""
    return any(dialect.is_final_chunk(chunk) for dialect in DIALECTS)


def continues(dialect: Dialect, recorded: list[Any], request: Sequence[Any]) -> bool:
    """Whether a request's messages begin with the recorded conversation.

    Cache marks, and message ids that frameworks draw anew, are not compared. More may
    have been added to the last message, as after results in the user's turn.
    """
    if not recorded or len(request) < len(recorded):
        return False
    *before, last = recorded
    return all(
        dialect.comparable(old) == dialect.comparable(new)
        for old, new in zip(before, request, strict=False)
    ) and _begins(dialect.comparable(last), dialect.comparable(request[len(before)]))


def _begins(old: Any, new: Any) -> bool:
    if old == new:
        return True
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return False
    if old.get("role") != "user" or old.keys() != new.keys():
        return False
    for name, value in old.items():
        longer = new[name]
        if isinstance(value, list) and isinstance(longer, list):
            if longer[: len(value)] != value:
                return False
        elif value != longer:
            return False
    return True


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
