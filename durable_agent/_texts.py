"""What the model reads where a tool result should stand.

The texts are the model's only guide, so they say what is known and nothing more.
"""

from __future__ import annotations

from typing import Final

from durable_agent.events import (
    ABORTED_BEFORE_DISPATCH,
    RESULT_NOT_STORABLE,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
)

_EFFECT_WORDS: Final = {
    "read_only": "The tool is declared read-only, so calling it again is safe.",
    "idempotent": "The tool is declared idempotent, so calling it again is safe.",
    "composite": (
        "The tool only calls other tools; look at what those did before you call "
        "it again."
    ),
    "side_effect": (
        "The tool is declared as having side effects: do not simply call it again. "
        "Check the outside state first, or ask the user."
    ),
}


def unknown_text(name: str, effect: str) -> str:
    """Say that the call was recorded before it ran and has no result."""
    advice = _EFFECT_WORDS.get(effect, _EFFECT_WORDS["side_effect"])
    return (
        f"{TOOL_OUTCOME_UNKNOWN}: the call of {name!r} was recorded before it ran, "
        "and the program stopped before a result was recorded. It may or may not "
        f"have taken effect. {advice}"
    )


def unseen_text(name: str) -> str:
    """Say that nothing at all is recorded of the call."""
    return (
        f"{TOOL_OUTCOME_UNKNOWN}: no result of {name!r} was recorded before the "
        "program stopped, nor whether it was started. It may or may not have taken "
        "effect. Call it again only if it is read-only or idempotent; else check the "
        "outside state first, or ask the user."
    )


def not_applied_text(name: str) -> str:
    """Say that somebody looked, and the call had no effect."""
    return (
        f"The call of {name!r} was interrupted. It was checked since: it did not take "
        "effect. Call it again if it is still needed."
    )


def not_started_text(name: str) -> str:
    """Say that the call was asked for and never started."""
    return (
        f"{TOOL_NOT_STARTED}: {name!r} was never started, because the program "
        "stopped first. Nothing happened. Call it again if it is still needed."
    )


def aborted_text(name: str) -> str:
    """Say that the call was cancelled before its body ran."""
    return (
        f"{ABORTED_BEFORE_DISPATCH}: the call of {name!r} was cancelled before it "
        "ran. Nothing happened. Call it again if it is still needed."
    )


def not_storable_text(name: str) -> str:
    """Say that the call completed and its value is lost."""
    return (
        f"{RESULT_NOT_STORABLE}: {name!r} completed in an earlier run, but what it "
        "returned could not be stored. Do not repeat it to get the value; look the "
        "result up elsewhere."
    )


def text_of(code: str, name: str, effect: str) -> str:
    """Return the text that stands for an outcome with a code."""
    match code:
        case "TOOL_NOT_STARTED":
            return not_started_text(name)
        case "ABORTED_BEFORE_DISPATCH":
            return aborted_text(name)
        case "RESULT_NOT_STORABLE":
            return not_storable_text(name)
        case _:
            return unknown_text(name, effect)
