"""Messages and requests compared: what goes on with what, whoever's they are."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from durable_agent.transcript import openai_chat
from durable_agent.transcript._fields import get, text_of
from durable_agent.transcript._registry import DIALECTS, flattened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from durable_agent.transcript._types import Dialect


def goes_on_after(bound: Mapping[str, Any]) -> str | None:
    """Return the id of the response that a request goes on after, None: unsaid.

    Where the provider keeps the conversation, a request holds what is new only
    (``previous_response_id`` of OpenAI Responses).
    """
    return text_of(dict(flattened(bound)).get("previous_response_id"))


def response_id(response: Any) -> str | None:
    """Return the provider's id of a response."""
    return text_of(get(response, "id"))


def fingerprint(message: Any) -> Any:
    """Return a message as plain JSON without what may move, whoever's it is."""
    for dialect in DIALECTS:
        if dialect.knows([message]):
            return dialect.comparable(message)
    return openai_chat.comparable(message)


def essence(message: Any) -> Any:
    """Return what a message says: role, texts, calls; the same in every form of it.

    Programs put an answer into the next request in their own words: its text alone,
    or without the members that are empty. Of what says nothing, the whole message.
    """
    plain = fingerprint(message)
    if not isinstance(plain, dict):
        return plain
    dialect = next((d for d in DIALECTS if d.knows([message])), openai_chat)
    calls = [
        [call.id, call.name, call.raw if call.arguments is None else call.arguments]
        for call in dialect.calls([message])
    ]
    text = "".join(_texts(plain.get("content", plain.get("parts"))))
    if not (calls or text):
        return plain
    role = plain.get("role") or plain.get("type")
    ours = role in {"user", "system", "developer", "tool", "human"}
    return [role if ours else "assistant", text, calls]


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and not (
            isinstance(part, dict) and part.get("thought")
        ):
            yield text


def role_of(bound: Mapping[str, Any], messages: Sequence[Any]) -> list[Any]:
    """Return what a request says of who the model is to be: its system prompts."""
    flat = dict(flattened(bound))
    config = get(flat.get("config"), "system_instruction")
    named = ("system", "instructions", "system_instructions")
    said = (*map(flat.get, named), config)
    leading = itertools.takewhile(_is_system, messages)
    return [*(part for part in said if part is not None), *leading]


def _is_system(message: Any) -> bool:
    return any(get(message, n) in ("system", "developer") for n in ("role", "type"))


def kept_by_provider(bound: Mapping[str, Any]) -> str | None:
    """Return the id of the conversation that the provider keeps, None: none."""
    found = dict(flattened(bound)).get("conversation")
    return text_of(get(found, "id") if isinstance(found, dict) else found)


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
