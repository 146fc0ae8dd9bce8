"""Gemini's streams: each chunk is a response; together they are one.

Texts next to each other are one text. A part with a thought signature stays alone: "do
not merge one part with a signature with another part without a signature"
(https://ai.google.dev/gemini-api/docs/thought-signatures).

Where the SDK calls the functions itself, one stream holds several responses. The last
one is the response; what came before is in its ``automatic_function_calling_history``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._fields import get, is_error, items
from durable_agent.transcript._gemini_parts import (
    member,
    parts_of,
    put,
    says,
    with_parts,
)
from durable_agent.transcript._objects import plain
from durable_agent.transcript._types import Assembled

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Reasons after which the answer goes on.
_GOES_ON: Final = frozenset({"FINISH_REASON_UNSPECIFIED", "CONTINUATION"})
_HISTORY: Final = "automatic_function_calling_history"


def candidate_of(response: Any) -> Any:
    """Return the first candidate of a response; None: it has none."""
    return next(iter(items(get(response, "candidates"))), None)


def is_response(thing: Any) -> bool:
    """Whether this looks like a response, or a chunk of one."""
    candidates = get(thing, "candidates")
    if isinstance(candidates, list | tuple) and candidates:
        first = candidates[0]
        fields = ("content", "finish_reason", "token_count")
        return any(member(first, name) is not None for name in fields)
    return counts_of(thing) is not None or member(thing, "prompt_feedback") is not None


def counts_of(response: Any) -> Any:
    """Return the counts of tokens of a response; None: it states none."""
    counts = member(response, "usage_metadata")
    names = ("prompt_token_count", "total_token_count")
    stated = any(member(counts, name) is not None for name in names)
    return counts if stated else None


def _finished(chunk: Any) -> bool:
    reason = member(candidate_of(chunk), "finish_reason")
    value = reason if isinstance(reason, str) else get(reason, "value")
    name = get(value, "value") or value
    blocked = member(member(chunk, "prompt_feedback"), "block_reason")
    return blocked is not None or (name is not None and name not in _GOES_ON)


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk says that the answer is complete.

    Not one with function calls: after it the SDK may go on with their results.
    """
    parts = parts_of(get(candidate_of(chunk), "content"))
    calls = any(member(part, "function_call") is not None for part in parts)
    return is_response(chunk) and _finished(chunk) and not calls


def assemble(chunks: Sequence[Any]) -> Assembled | None:
    """Return the response that chunks amount to, of their own kind.

    After an error it is not complete.
    """
    ours = _last_response([chunk for chunk in items(chunks) if is_response(chunk)])
    if not ours:
        return None
    contents = [content for chunk in ours if (content := _content(chunk)) is not None]
    ended = [chunk for chunk in ours if candidate_of(chunk) is not None]
    response = ended[-1] if ended else ours[-1]
    if contents:
        joined = _joined([part for content in contents for part in parts_of(content)])
        candidate = put(
            candidate_of(response), "content", with_parts(contents[0], joined)
        )
        reasons = [member(candidate_of(chunk), "finish_reason") for chunk in ended]
        reason = next((r for r in reversed(reasons) if r is not None), None)
        if reason is not None:
            candidate = put(candidate, "finish_reason", reason)
        response = put(response, "candidates", [candidate])
    counts = next((c for c in map(counts_of, reversed(ours)) if c is not None), None)
    if counts is not None:
        response = put(response, "usage_metadata", counts)
    broken = any(map(is_error, items(chunks)))
    return Assembled(response, any(map(_finished, ours)) and not broken)


def _content(chunk: Any) -> Any:
    return get(candidate_of(chunk), "content")


def _last_response(chunks: list[Any]) -> list[Any]:
    """Return the chunks that are not in the history that the SDK kept meanwhile."""
    history = next(
        (h for chunk in reversed(chunks) if (h := items(member(chunk, _HISTORY)))), []
    )
    past = [content for content in history if get(content, "role") == "model"]
    with_content = [
        at for at, chunk in enumerate(chunks) if _content(chunk) is not None
    ]
    told = [_content(chunks[at]) for at in with_content]
    for length in range(min(len(past), len(told)), 0, -1):
        if told[:length] == past[-length:]:
            return chunks[with_content[length - 1] + 1 :] or chunks
    return chunks


def _joined(parts: list[Any]) -> list[Any]:
    """Return parts without those that say nothing, texts next to each other as one."""
    groups: list[tuple[Any, list[str]]] = []
    for part in filter(says, parts):
        text = _bare_text(part)
        before = groups[-1] if groups else (None, [])
        thought = bool(get(part, "thought"))
        if text and before[1] and bool(get(before[0], "thought")) == thought:
            before[1].append(text)
        else:
            groups.append((part, [text] if text else []))
    return [
        put(part, "text", "".join(texts)) if len(texts) > 1 else part
        for part, texts in groups
    ]


def _bare_text(part: Any) -> str:
    """Return the text of a part that is nothing else; "" for all others."""
    fields = plain(part)
    names = {n for n, v in fields.items() if v is not None} if fields else set()
    text = get(part, "text")
    return text if isinstance(text, str) and names <= {"text", "thought"} else ""
