"""What OpenAI's chat completions accept as ``messages``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.providers.rules_base import (
    UTF8,
    Judgement,
    Rule,
    check_bytes,
    repeated,
    surplus,
    table,
)

if TYPE_CHECKING:
    from tests.providers.rules_base import Ids

_REFERENCE = "https://platform.openai.com/docs/api-reference/chat/create#messages"
_ROLES = {"developer", "system", "user", "assistant", "tool", "function"}

RULES = table(
    UTF8,
    Rule("role", "the role is one of the six that the API has", _REFERENCE),
    Rule(
        "content",
        "content is a string or a list of typed parts with at least one part",
        _REFERENCE,
    ),
    Rule(
        "assistant-content",
        "an assistant message without content has tool calls, a refusal or audio",
        "\"Invalid value for 'content': expected a string, got null.\", "
        "https://github.com/vercel/ai/pull/13744",
    ),
    Rule(
        "tool-calls-empty",
        "tool_calls is left out rather than empty or null",
        _REFERENCE + " (\"[] is too short - 'messages.1.tool_calls'\")",
    ),
    Rule(
        "call-shape",
        "a tool call has an id, the type function and the name of the function",
        _REFERENCE,
    ),
    Rule(
        "arguments",
        "the arguments of a call are a string, whatever it holds",
        _REFERENCE + " (function.arguments: string; may be invalid JSON)",
    ),
    Rule(
        "call-ids",
        "the ids of the calls of one message differ",
        "\"Duplicate value for 'tool_call_id'\", "
        "https://github.com/openclaw/openclaw/pull/40996",
    ),
    Rule(
        "answered",
        "directly after an assistant message with tool calls comes one tool message "
        "for each of them, and nothing else in between",
        "\"An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'.\", "
        "https://github.com/BerriAI/litellm/issues/10083",
    ),
    Rule(
        "tool-needs-call",
        "a tool message answers a call of the assistant message before it",
        "\"messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'.\", https://github.com/miurla/morphic/issues/136",
    ),
    Rule(
        "answered-once",
        "no call is answered twice",
        "\"Duplicate value for 'tool_call_id' of 'call_…', in messages[7] and "
        'messages[8].", https://github.com/agno-agi/agno/issues/5116',
    ),
)


def check(messages: Any, *, ids: Ids = "strict") -> list[str]:
    """Return the rules that these messages break; empty if they are accepted."""
    judgement = Judgement(RULES)
    check_bytes(judgement, messages)
    for index, message in enumerate(messages):
        _check_message(judgement, f"messages[{index}]", message, ids)
    _check_pairing(judgement, messages, ids)
    return judgement.breaches


def _check_message(
    judgement: Judgement, where: str, message: dict[str, Any], ids: Ids
) -> None:
    role = message.get("role")
    judgement.check(role in _ROLES, "role", where, repr(role))
    content = message.get("content")
    if role == "assistant":
        _check_assistant(judgement, where, message, ids)
    if role != "assistant" or content is not None:
        judgement.check(_is_content(content), "content", where, repr(content))


def _is_content(content: Any) -> bool:
    if isinstance(content, str):
        return True
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content)
    )


def _check_assistant(
    judgement: Judgement, where: str, message: dict[str, Any], ids: Ids
) -> None:
    calls = message.get("tool_calls", [])
    if "tool_calls" in message and not calls:
        judgement.broken("tool-calls-empty", where)
        calls = []
    stands = calls or any(message.get(k) for k in ("refusal", "audio", "function_call"))
    judgement.check(
        stands or message.get("content") is not None, "assistant-content", where
    )
    for number, call in enumerate(calls):
        _check_call(judgement, f"{where}.tool_calls[{number}]", call, ids)
    if ids == "strict":
        again = repeated(call.get("id") for call in calls)
        judgement.check(not again, "call-ids", where, repr(again))


def _check_call(
    judgement: Judgement, where: str, call: dict[str, Any], ids: Ids
) -> None:
    function = call.get("function") or {}
    named = isinstance(function.get("name"), str) and function["name"] != ""
    has_id = ids == "lenient" or (isinstance(call.get("id"), str) and call["id"] != "")
    good = named and has_id and call.get("type") == "function"
    judgement.check(good, "call-shape", where, repr(call))
    judgement.check(isinstance(function.get("arguments"), str), "arguments", where)


def _check_pairing(judgement: Judgement, messages: list[Any], ids: Ids) -> None:
    index = 0
    while index < len(messages):
        message, index = messages[index], index + 1
        called = [
            call.get("id") or None
            for call in message.get("tool_calls") or []
            if message.get("role") == "assistant"
        ]
        start = index
        while index < len(messages) and messages[index].get("role") == "tool":
            index += 1
        answered = [tool.get("tool_call_id") or None for tool in messages[start:index]]
        _check_answers(judgement, f"messages[{start - 1}]", called, answered)
        if message.get("role") == "tool":  # only at the very beginning
            judgement.broken("tool-needs-call", f"messages[{start - 1}]")


def _check_answers(
    judgement: Judgement, where: str, called: list[Any], answered: list[Any]
) -> None:
    open_calls = surplus(called, answered)
    judgement.check(not open_calls, "answered", where, f"open: {open_calls}")
    for extra in surplus(answered, called):
        rule = "answered-once" if extra in called else "tool-needs-call"
        judgement.broken(rule, where, f"for {extra!r}")
