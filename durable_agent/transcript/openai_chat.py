"""OpenAI chat completions: plain dicts, and the SDK's objects by their fields.

A response is a completion (``choices``) or an assistant message. Results are messages
with ``role: tool`` directly after it, in the order of its calls.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from durable_agent import values
from durable_agent.transcript._types import ToolCall

#: What providers let move between requests, and ids that frameworks draw anew.
_MOVING: Final = frozenset({"cache_control", "id"})


def assistant_message(response: Any) -> dict[str, Any] | None:
    """Return the assistant message of a response, unset fields left out."""
    plain = _plain(response)
    if not isinstance(plain, dict):
        return None
    choices = plain.get("choices")
    if isinstance(choices, list):
        if not choices or not isinstance(choices[0], dict):
            return None
        plain = choices[0].get("message")
    if not isinstance(plain, dict) or plain.get("role") != "assistant":
        return None
    return plain


def _plain(response: Any) -> Any:
    dump = getattr(response, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True, warnings=False)
    return response if isinstance(response, dict) else None


def tool_calls(message: Any) -> list[ToolCall]:
    """Return the function calls of an assistant message, in order."""
    entries = message.get("tool_calls") if isinstance(message, dict) else None
    found: list[ToolCall] = []
    seen: dict[str, int] = {}
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        function = entry.get("function")
        if not isinstance(function, dict):
            continue
        given = entry.get("id")
        id_ = given if isinstance(given, str) else None
        base = id_ or ""
        seen[base] = seen.get(base, 0) + 1
        token = base if base and seen[base] == 1 else f"{base}#{seen[base]}"
        raw = function.get("arguments")
        name = str(function.get("name", ""))
        found.append(ToolCall(id_, name, _arguments(raw), raw, token))
    return found


def _arguments(raw: Any) -> dict[str, Any] | None:
    if isinstance(raw, str):
        try:
            raw = orjson.loads(raw) if raw.strip() else {}
        except orjson.JSONDecodeError:
            return None
    return raw if isinstance(raw, dict) else None


def tool_message(call: ToolCall, text: str) -> dict[str, Any]:
    """Return the message that answers a call; lone surrogates become U+FFFD."""
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return {"role": "tool", "tool_call_id": call.id or "", "content": clean}


def result_text(value: Any) -> str:
    """Return the text of a tool's value: strings as they are, else JSON."""
    if isinstance(value, str):
        return value
    return orjson.dumps(
        values.to_plain(value), default=str, option=orjson.OPT_NON_STR_KEYS
    ).decode()


def error_text(error: BaseException) -> str:
    """Return the text of a tool's error; at least the name of its type."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def is_final_chunk(chunk: Any) -> bool:
    """Whether a chunk of a stream has a finish reason."""
    choices = (
        chunk.get("choices")
        if isinstance(chunk, dict)
        else getattr(chunk, "choices", None)
    )
    if not isinstance(choices, list) or not choices:
        return False
    first = choices[0]
    reason = (
        first.get("finish_reason")
        if isinstance(first, dict)
        else getattr(first, "finish_reason", None)
    )
    return reason is not None


def comparable(message: Any) -> Any:
    """Return a message without what may move."""
    plain = _plain(message) or message
    if not isinstance(plain, dict):
        return plain
    return {
        name: _unmarked(value)
        for name, value in plain.items()
        if name not in _MOVING and value is not None
    }


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: _unmarked(v) for n, v in value.items() if n != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


NAME = "openai"


def request(bound):
    m = bound.get("messages")
    return m if isinstance(m, list) else None


def knows(messages):
    return any(isinstance(m, dict) and (m.get("role") == "tool" or "tool_calls" in m) for m in messages)


def turn(response):
    m = assistant_message(response)
    return None if m is None else [m]


def text_turn(text):
    return [{"role": "assistant", "content": text}]


def assemble(chunks):
    from durable_agent.transcript._types import Assembled
    text, done = "", False
    for c in chunks:
        if not isinstance(c, dict) or "choices" not in c:
            return None
        for ch in c["choices"]:
            text += ch["delta"].get("content") or ""
            done = done or bool(ch.get("finish_reason"))
    return Assembled({"choices": [{"message": {"role": "assistant", "content": text}}]}, done)


def calls(turn):
    return [c for m in turn for c in tool_calls(m)]


def balance(messages, answer):
    out, i = [], 0
    messages = list(messages)
    while i < len(messages):
        m = messages[i]
        i += 1
        out.append(m)
        cs = tool_calls(m)
        if not cs:
            continue
        res = []
        while i < len(messages) and messages[i].get("role") == "tool":
            res.append(messages[i]); i += 1
        for c in cs:
            hit = next((r for r in res if r["tool_call_id"] == (c.id or "")), None)
            if hit:
                res.remove(hit)
                out.append(hit)
            else:
                out.append(tool_message(c, answer([m], c).text))
    return out


def usage(response):
    from durable_agent.transcript._types import Tokens
    plain = _plain(response)
    u = plain.get("usage") if isinstance(plain, dict) else None
    if not u:
        return None
    return plain.get("model", ""), Tokens(u["prompt_tokens"], u["completion_tokens"], (u.get("prompt_tokens_details") or {}).get("cached_tokens", 0), (u.get("completion_tokens_details") or {}).get("reasoning_tokens", 0))
