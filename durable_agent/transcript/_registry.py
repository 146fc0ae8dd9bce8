"""The dialects, and where a request has its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript import (
    anthropic,
    gemini,
    langchain,
    openai_chat,
    openai_responses,
    pydantic_ai,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from durable_agent.transcript._types import Dialect

#: Asked in this order: those whose forms nobody else has come first.
DIALECTS: Final[tuple[Dialect, ...]] = (
    langchain,
    pydantic_ai,
    gemini,
    openai_responses,
    anthropic,
    openai_chat,
)


def dialect_named(name: str | None) -> Dialect | None:
    """Return a dialect by its name; ``ValueError`` names the known ones. None: None."""
    if name is None:
        return None
    for dialect in DIALECTS:
        if name == dialect.NAME:
            return dialect
    known = ", ".join(repr(dialect.NAME) for dialect in reversed(DIALECTS))
    msg = f"unknown dialect {name!r}; known: {known}"
    raise ValueError(msg)


def flattened(bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments, those in ``*args``, ``**kwargs`` and one request too."""
    for name, value in bound.items():
        if isinstance(value, tuple):
            yield from ((f"{name}[{i}]", member) for i, member in enumerate(value))
        if isinstance(value, dict) and not name.startswith("_"):
            for inner, member in value.items():
                if isinstance(inner, str) and inner not in bound:
                    yield inner, member
        yield name, value
