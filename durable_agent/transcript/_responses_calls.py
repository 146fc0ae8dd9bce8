"""The calls of OpenAI's Responses API, and the item that answers each kind.

From https://platform.openai.com/docs/api-reference/responses/create#input and the
guides of the tools. Tools that run at the provider (web and file search, code
interpreter, image generation, MCP, hosted shells) have no answer from the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.transcript._calls import parsed
from durable_agent.transcript._fields import get, items, kind_of, text_of
from durable_agent.transcript._objects import plain
from durable_agent.transcript._text import clean, sendable

if TYPE_CHECKING:
    from durable_agent.transcript._types import Result

#: The kinds of calls, and of the items that answer them.
OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
OUTPUTS: Final = frozenset(OUTPUT_OF.values())
#: Where a call without a name has what it asks for, and what it is called.
_ASKS: Final = {
    "computer_call": ("computer", "action"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "tool_search_call": ("tool_search", "arguments"),
}
#: Parts of which an output may consist, and the fields of which each has one.
_PARTS: Final = {
    "input_text": ("text",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_id", "file_data", "file_url"),
}
#: One black pixel: the smallest picture that is no screen.
_NO_SCREEN: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNg"
    "AAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="
)


def is_call(item: Any) -> bool:
    """Whether an item is a call that the client answers."""
    kind = kind_of(item)
    if kind == "tool_search_call":
        return bool(get(item, "execution") == "client")
    return kind in OUTPUT_OF


def id_of(call: Any) -> str | None:
    """Return the id that the answer to a call repeats."""
    name = "id" if get(call, "type") == "mcp_approval_request" else "call_id"
    given = get(call, name)
    return given if isinstance(given, str) else None


def pair_of(call: Any) -> tuple[str, str]:
    """Return what pairs a call with its answer: the kind of item and the id."""
    return OUTPUT_OF[kind_of(call)], id_of(call) or ""


def answered(item: Any) -> tuple[str, str] | None:
    """Return what pairs an answer with its call; None: the item is none."""
    kind = kind_of(item)
    if kind not in OUTPUTS:
        return None
    # Answers to local shells have the id of the call as ``id`` or as ``call_id``.
    names = {
        "mcp_approval_response": ("approval_request_id",),
        "local_shell_call_output": ("call_id", "id"),
    }.get(kind, ("call_id",))
    return kind, text_of(get(item, *names)) or ""


def asked(call: Any) -> tuple[str, dict[str, Any] | None, Any]:
    """Return name, arguments and raw arguments of a call."""
    kind = kind_of(call)
    if kind == "custom_tool_call":
        raw = get(call, "input")
        return text_of(get(call, "name")) or "", {"input": raw}, raw
    if kind in _ASKS:
        name, field = _ASKS[kind]
        raw = plain(get(call, field))
        if kind == "computer_call" and raw is None:
            raw = {"actions": [plain(one) for one in items(get(call, "actions"))]}
        return name, parsed(raw), raw
    raw = get(call, "arguments")
    return text_of(get(call, "name")) or "", parsed(raw), raw


def output(call: Any, result: Result) -> dict[str, Any]:
    """Return the item that answers a call.

    A value that is such an item, or the ``output`` of one, is put as it is, if the
    provider takes it. Else:

    - functions, custom tools, local shells: the text;
    - shells: the text as what was printed, on stderr with exit code 1 if it failed;
    - patches: the text with ``completed`` or ``failed``;
    - approvals: yes only for the value True, else no, with the text as the reason;
    - a search for tools: none found;
    - computers: the API takes only a screenshot. Where there is none, one black pixel,
      which tells nothing: the model has to look again.
    """
    kind, id_ = pair_of(call)
    given: Any = sendable(plain(result.value)) if result.has_value else None
    key = "approval_request_id" if kind == "mcp_approval_response" else "call_id"
    if _is_own(kind, given):
        if given.get("status", "") is None:
            given = {n: v for n, v in given.items() if n != "status"}
        # The id of an item is its own: only what names the call is corrected.
        return given if answered(given) == (kind, id_) else {**given, key: id_}
    item = {"type": kind, key: id_, **_body(kind, call, given, result)}
    if (caller := plain(get(call, "caller"))) is not None:
        item["caller"] = caller
    return item


def _body(kind: str, call: Any, given: Any, result: Result) -> dict[str, Any]:
    text = clean(result.text)
    parts = [kind_of(part) for part in items(given)]
    if kind == "computer_call_output":
        return {"output": _screen(given)}
    if kind == "shell_call_output":
        limit = get(get(call, "action"), "max_output_length")
        printed = (
            given if _is_printed(given) else [_printed(text, failed=result.failed)]
        )
        more = {"max_output_length": limit} if isinstance(limit, int) else {}
        return {"output": printed} | more
    if kind == "apply_patch_call_output":
        return {"status": "failed" if result.failed else "completed", "output": text}
    if kind == "mcp_approval_response":
        yes = given is True and not result.failed
        return {"approve": yes} if given in (True, False) else _refused(text)
    if kind == "tool_search_output":
        tools = given if all(parts) and parts else []
        return {"execution": "client", "status": "completed", "tools": tools}
    if kind != "local_shell_call_output" and _are_parts(given):
        return {"output": given}
    return {"output": text}


def _refused(text: str) -> dict[str, Any]:
    return {"approve": False, "reason": text}


def _is_own(kind: str, given: Any) -> bool:
    """Whether a value is an item of that kind which the provider takes."""
    if not isinstance(given, dict) or given.get("type") != kind:
        return False
    held = given.get("output")
    match kind:
        case "computer_call_output":
            return _is_screen(held)
        case "shell_call_output":
            return _is_printed(held)
        case "apply_patch_call_output":
            said = held is None or isinstance(held, str)
            return said and given.get("status") in ("completed", "failed")
        case "mcp_approval_response":
            return isinstance(given.get("approve"), bool)
        case "tool_search_output":
            tools = given.get("tools")
            return isinstance(tools, list) and all(map(kind_of, tools))
        case "local_shell_call_output":
            return isinstance(held, str)
        case _:
            return isinstance(held, str) or _are_parts(held)


def _are_parts(given: Any) -> bool:
    return bool(items(given)) and all(map(_is_part, items(given)))


def _is_part(part: Any) -> bool:
    names = _PARTS.get(kind_of(part), ()) if isinstance(part, dict) else ()
    return any(isinstance(part.get(name), str) for name in names)


def _is_screen(given: Any) -> bool:
    return kind_of(given) == "computer_screenshot" and any(
        text_of(get(given, name)) for name in ("image_url", "file_id")
    )


def _screen(given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and _is_screen(given):
        return given
    shown = get(given, "image_url") if isinstance(given, dict) else given
    known = isinstance(shown, str) and shown.startswith(("data:image/", "https://"))
    return {
        "type": "computer_screenshot",
        "image_url": shown if known else _NO_SCREEN,
    }


def _is_printed(given: Any) -> bool:
    return bool(items(given)) and all(
        isinstance(part, dict)
        and isinstance(part.get("stdout"), str)
        and isinstance(part.get("stderr"), str)
        and isinstance(part.get("outcome"), dict)
        for part in items(given)
    )


def _printed(text: str, *, failed: bool) -> dict[str, Any]:
    outcome = {"type": "exit", "exit_code": int(failed)}
    said = {"stdout": "", "stderr": text} if failed else {"stdout": text, "stderr": ""}
    return {**said, "outcome": outcome}
