"""What Anthropic's Messages API accepts as ``messages``."""

from __future__ import annotations

import re
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

_REFERENCE = "https://docs.claude.com/en/api/messages"
_TOOLS = "https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use"
_THINKING = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
_THOUGHTS = ("thinking", "redacted_thinking")
_MAX_CACHE_MARKS = 4
_ID = re.compile(r"[a-zA-Z0-9_-]+")

RULES = table(
    UTF8,
    Rule("role", "the role is user or assistant", _REFERENCE),
    Rule(
        "content",
        "content is a non-empty string or a non-empty list of typed blocks; only a "
        "last assistant message may be empty",
        '"all messages must have non-empty content except for the optional final '
        f'assistant message", {_REFERENCE}',
    ),
    Rule(
        "empty-text",
        "a text block holds more than white space",
        '"text content blocks must be non-empty", '
        "https://github.com/anthropics/claude-code/issues/59812",
    ),
    Rule(
        "place",
        "tool_use stands in assistant messages, tool_result in user messages",
        _TOOLS,
    ),
    Rule(
        "call-shape",
        "a tool_use has a name, an object as input and an id of letters, digits, _, -",
        _REFERENCE + " (id: String should match pattern '^[a-zA-Z0-9_-]+$')",
    ),
    Rule(
        "call-ids",
        "the ids of all tool_use blocks of a request differ",
        '"`tool_use` ids must be unique", '
        "https://github.com/NachoSEO/claudegram/issues/12",
    ),
    Rule(
        "calls-last",
        "in an assistant turn nothing follows the tool_use blocks",
        _TOOLS + " (a text after tool_use counts as: no result immediately after)",
    ),
    Rule(
        "answered",
        "the message after a tool_use holds a tool_result for it",
        '"`tool_use` ids were found without `tool_result` blocks immediately after", '
        "https://github.com/anthropics/claude-code/issues/5989",
    ),
    Rule(
        "result-needs-call",
        "a tool_result has its tool_use in the message before",
        '"unexpected `tool_use_id` found in `tool_result` blocks", '
        "https://github.com/anthropics/claude-code/issues/13460",
    ),
    Rule(
        "answered-once",
        "a tool_use has one tool_result",
        '"each tool_use must have a single result. Found multiple `tool_result` '
        'blocks with id", https://github.com/vectorize-io/hindsight/pull/4250',
    ),
    Rule(
        "results-first",
        "tool_result blocks come first in their message, before any text",
        f"{_TOOLS} (tool_result blocks must come FIRST in the content array)",
    ),
    Rule(
        "result-content",
        "the content of a tool_result is a string or a list of typed blocks, if given",
        _REFERENCE,
    ),
    Rule(
        "error-content",
        "a tool_result that is an error says something",
        '"content cannot be empty if `is_error` is true", '
        "https://github.com/bytedance/trae-agent/issues/230",
    ),
    Rule(
        "signature",
        "a thinking block has its signature, a redacted one its data",
        '"Invalid `signature` in `thinking` block", '
        "https://github.com/anthropics/anthropic-sdk-python/issues/1598",
    ),
    Rule(
        "thinking-first",
        "an assistant turn with thinking begins with it",
        '"If an assistant message contains any thinking blocks, the first block must '
        'be thinking or redacted_thinking.", '
        "https://github.com/anthropics/claude-code/issues/20705",
    ),
    Rule(
        "thinking-last",
        "an assistant message does not end with thinking",
        '"The final block in an assistant message cannot be `thinking`.", '
        "https://github.com/tailcallhq/forgecode/issues/3071",
    ),
    Rule(
        "thinking-kept",
        "with thinking on, the loop of tools that was just answered begins with the "
        "model's thinking",
        '"When `thinking` is enabled, a final `assistant` message must start with a '
        f'thinking block (preceeding the lastmost set of `tool_use`)", {_THINKING}',
    ),
    Rule(
        "cache-marks",
        "at most four blocks have a cache_control",
        '"A maximum of 4 blocks with cache_control may be provided.", '
        "https://github.com/continuedev/continue/pull/6937",
    ),
)


def check(
    messages: Any, *, ids: Ids = "strict", thinking: bool = False, marks: int = 0
) -> list[str]:
    """Return the rules that these messages break; empty if they are accepted.

    ``thinking`` says that the request turns extended thinking on. ``marks`` counts the
    cache marks that are elsewhere in it, on the system prompt and the tools.
    """
    judgement = Judgement(RULES)
    check_bytes(judgement, messages)
    for index, message in enumerate(messages):
        last = index == len(messages) - 1
        _check_message(judgement, f"messages[{index}]", message, ids, last=last)
    turns = merged(messages)
    for index, (role, blocks) in enumerate(turns):
        after = turns[index + 1][1] if index + 1 < len(turns) else []
        if role == "assistant":
            _check_assistant(judgement, f"turn {index}", blocks, after)
        elif index == 0:
            _check_answers(judgement, "turn 0", [], blocks)
    calls = [
        b.get("id") or None for _, blocks in turns for b in blocks if _is(b, "tool_use")
    ]
    if ids == "strict":
        judgement.check(not repeated(calls), "call-ids", "messages", str(calls))
    if thinking:
        _check_thinking_kept(judgement, turns)
    marks += sum(bool(b.get("cache_control")) for _, blocks in turns for b in blocks)
    judgement.check(marks <= _MAX_CACHE_MARKS, "cache-marks", "messages", str(marks))
    return judgement.breaches


def merged(messages: Any) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Return the turns: messages of one role in a row are one turn (API reference)."""
    turns: list[tuple[Any, list[dict[str, Any]]]] = []
    for message in messages:
        if not turns or turns[-1][0] != message.get("role"):
            turns.append((message.get("role"), []))
        turns[-1][1].extend(_blocks(message.get("content")))
    return turns


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content or [] if isinstance(b, dict)]


def _is(block: dict[str, Any], *types: str) -> bool:
    return block.get("type") in types


def _check_message(
    judgement: Judgement, where: str, message: dict[str, Any], ids: Ids, *, last: bool
) -> None:
    role, content = message.get("role"), message.get("content")
    judgement.check(role in ("user", "assistant"), "role", where, repr(role))
    typed = isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(b, dict) and isinstance(b.get("type"), str) for b in content)
    )
    full = bool(content) or (last and role == "assistant")
    judgement.check(typed and full, "content", where, repr(content))
    blocks = _blocks(content)
    thinks = role == "assistant" and bool(blocks) and _is(blocks[-1], *_THOUGHTS)
    judgement.check(not thinks, "thinking-last", where)
    for number, block in enumerate(blocks):
        _check_block(judgement, f"{where}.content[{number}]", role, block, ids)


def _check_block(
    judgement: Judgement, where: str, role: Any, block: dict[str, Any], ids: Ids
) -> None:
    if _is(block, "text"):
        text = block.get("text")
        judgement.check(isinstance(text, str) and text.strip(), "empty-text", where)
    elif _is(block, "tool_use"):
        judgement.check(role == "assistant", "place", where)
        known = isinstance(block.get("id"), str) and _ID.fullmatch(block["id"])
        good = isinstance(block.get("name"), str) and isinstance(
            block.get("input"), dict
        )
        judgement.check(good and (known or ids == "lenient"), "call-shape", where)
    elif _is(block, "tool_result"):
        judgement.check(role == "user", "place", where)
        _check_result(judgement, where, block)
    elif _is(block, "thinking"):
        judgement.check(block.get("signature"), "signature", where)
    elif _is(block, "redacted_thinking"):
        judgement.check(block.get("data"), "signature", where)


def _check_result(judgement: Judgement, where: str, block: dict[str, Any]) -> None:
    content = block.get("content", "")
    typed = isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(b, dict) and isinstance(b.get("type"), str) for b in content)
    )
    judgement.check(typed, "result-content", where, repr(content))
    if isinstance(content, str):
        says = bool(content.strip())
    else:
        says = bool(content)
        for number, part in enumerate(_blocks(content)):
            _check_block(
                judgement, f"{where}.content[{number}]", "user", part, "strict"
            )
    judgement.check(says or not block.get("is_error"), "error-content", where)


def _check_assistant(
    judgement: Judgement,
    where: str,
    blocks: list[dict[str, Any]],
    after: list[dict[str, Any]],
) -> None:
    calls = [b for b in blocks if _is(b, "tool_use")]
    if calls:
        rest = blocks[blocks.index(calls[0]) :]
        judgement.check(all(_is(b, "tool_use") for b in rest), "calls-last", where)
    if any(_is(b, *_THOUGHTS) for b in blocks):
        judgement.check(_is(blocks[0], *_THOUGHTS), "thinking-first", where)
    _check_answers(judgement, where, [b.get("id") or None for b in calls], after)


def _check_answers(
    judgement: Judgement, where: str, called: list[Any], after: list[dict[str, Any]]
) -> None:
    results = [b for b in after if _is(b, "tool_result")]
    first = all(_is(b, "tool_result") for b in after[: len(results)])
    judgement.check(first, "results-first", f"after {where}")
    answered = [b.get("tool_use_id") or None for b in results]
    open_calls = surplus(called, answered)
    judgement.check(not open_calls, "answered", where, f"open: {open_calls}")
    for extra in surplus(answered, called):
        rule = "answered-once" if extra in called else "result-needs-call"
        judgement.broken(rule, f"after {where}", f"for {extra!r}")


def _check_thinking_kept(
    judgement: Judgement, turns: list[tuple[Any, list[dict[str, Any]]]]
) -> None:
    """Look at the loop of tools that is still open at the end of the request.

    A loop is one turn of the model to the provider: its first message thinks.
    """
    index = len(turns) - 1
    while index >= 2 and any(_is(b, "tool_result") for b in turns[index][1]):
        index -= 2
    if index == len(turns) - 1 or index + 1 >= len(turns) or not turns[index + 1][1]:
        return
    begins = _is(turns[index + 1][1][0], *_THOUGHTS)
    judgement.check(begins, "thinking-kept", f"turn {index + 1}")
