"""Each provider in one place: how scripts are put for it, who judges, what it calls it.

A test of the product drives a fake model with these: it calls a recorded function with
``{provider.argument: messages}``, answers with ``dialect.response(turn, n)`` or
``dialect.stream(turn, n)``, and has ``judge`` look at what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.providers import (
    render_anthropic,
    render_gemini,
    render_langchain,
    render_openai_chat,
    render_openai_responses,
    rules_anthropic,
    rules_gemini,
    rules_langchain,
    rules_openai_chat,
    rules_openai_responses,
)

if TYPE_CHECKING:
    from tests.providers.rules_base import Ids, Rule


@dataclass(frozen=True)
class Provider:
    """One provider; ``argument`` is the parameter that holds its request's messages."""

    name: str
    argument: str
    dialect: Any
    rules: Any

    def judge(self, messages: Any, *, ids: Ids = "strict", **options: Any) -> list[str]:
        found: list[str] = self.rules.check(messages, ids=ids, **options)
        return found

    @property
    def table(self) -> dict[str, Rule]:
        rules: dict[str, Rule] = self.rules.RULES
        return rules


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai_chat", "messages", render_openai_chat, rules_openai_chat),
        Provider(
            "openai_responses", "input", render_openai_responses, rules_openai_responses
        ),
        Provider("anthropic", "messages", render_anthropic, rules_anthropic),
        Provider("gemini", "contents", render_gemini, rules_gemini),
        Provider("langchain", "messages", render_langchain, rules_langchain),
    )
}
