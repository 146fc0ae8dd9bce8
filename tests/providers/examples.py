"""For each rule of each provider a request that it refuses, and a near one it accepts.

``EXAMPLES[provider][rule]`` is a pair of calls of ``check``: positional messages and
keyword options. The refused one breaks that rule alone.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

Check = tuple[Any, dict[str, Any]]
Pair = tuple[Check, Check]


def _pair(refused: Any, accepted: Any, **options: Any) -> Pair:
    return (refused, options), (accepted, options)


# OpenAI chat completions -------------------------------------------------------------
def _user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def _call(call_id: str = "a", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    function = {"name": "search", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


def _assistant(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def _tool(call_id: str = "a", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


_U, _A, _T = _user(), _assistant(_call()), _tool()
_TWO = _assistant(_call("a"), _call("b"))
_TEXT = {"role": "assistant", "content": "fine"}

OPENAI_CHAT: dict[str, Pair] = {
    "utf8": _pair([_user("\ud83c")], [_user("\ufffd")]),
    "role": _pair([{"role": "ai", "content": "x"}], [_TEXT]),
    "content": _pair([_U, _A, _tool(content=[])], [_U, _A, _tool(content="")]),
    "assistant-content": _pair(
        [_U, {"role": "assistant", "content": None}],
        [_U, {"role": "assistant", "content": None, "refusal": "no"}],
    ),
    "tool-calls-empty": _pair([_U, _assistant(content="x")], [_U, _TEXT]),
    "call-shape": _pair(
        [_U, _assistant(_call(type=None)), _T], [_U, _assistant(_call()), _T]
    ),
    "arguments": _pair(
        [_U, _assistant(_call(arguments={"q": 1})), _T],
        [_U, _assistant(_call(arguments='{"q": 1')), _T],
    ),
    "call-ids": _pair(
        [_U, _assistant(_call(), _call()), _T, _T], [_U, _TWO, _T, _tool("b")]
    ),
    "answered": _pair([_U, _TWO, _T, _U], [_U, _TWO, _tool("b"), _T, _U]),
    "tool-needs-call": _pair([_U, _TEXT, _T], [_U, _A, _T, _TEXT]),
    "answered-once": _pair([_U, _A, _T, _T], [_U, _A, _T, _A, _T]),
}

# OpenAI Responses --------------------------------------------------------------------
_FC = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
_FO = {"type": "function_call_output", "call_id": "a", "output": "ok"}
_FB, _FOB = {**_FC, "call_id": "b"}, {**_FO, "call_id": "b"}
_R = {"type": "reasoning", "id": "rs_1", "summary": []}
_M = {"type": "message", "role": "assistant", "content": [], "id": "msg_1"}

OPENAI_RESPONSES: dict[str, Pair] = {
    "utf8": _pair([_user("\udcff")], "a plain string"),
    "item": _pair([{"role": "user"}], [_U]),
    "call-shape": _pair([_U, {**_FC, "arguments": {}}, _FO], [_U, _FC, _FO]),
    "output-shape": _pair(
        [_U, _FC, {**_FO, "output": {"ok": 1}}],
        [_U, _FC, {**_FO, "output": [{"type": "input_text", "text": "ok"}]}],
    ),
    "answered": _pair([_U, _FC, _FB, _FO, _U], [_U, _FC, _FB, _FOB, _FO, _U]),
    "output-needs-call": (
        ([_FO, _U], {}),
        ([_FO, _U], {"previous_response_id": "resp_1"}),
    ),
    "answered-once": _pair([_U, _FC, _FO, _FO], [_U, _FC, _FO, _FB, _FOB]),
    "call-ids": _pair([_U, _FC, _FC, _FO, _FO], [_U, _FC, _FB, _FO, _FOB]),
    "item-ids": _pair([_U, _M, _M], [_U, _M, {**_M, "id": "msg_2"}]),
    "reasoning-followed": _pair([_U, _R, _U], [_U, _R, _FC, _FO]),
    "reasoning-summary": _pair([_U, {"type": "reasoning"}, _M], [_U, _R, _M]),
    "made-up-status": _pair(
        [_U, {**_R, "status": None}, _M], [_U, _R, {**_M, "status": "completed"}]
    ),
}


# Anthropic messages ------------------------------------------------------------------
def _use(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **more}


def _result(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok", **more}


def _says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


_B = {"type": "text", "text": "and now?"}
_MARK = {**_B, "cache_control": {"type": "ephemeral"}}
_THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
_GIVES = _user([_result()])

ANTHROPIC: dict[str, Pair] = {
    "utf8": _pair([_user("\ud800")], [_user("\x00")]),
    "role": _pair([{"role": "tool", "content": "x"}], [_U]),
    "content": _pair([_says(), _U], [_U, _says()]),
    "empty-text": _pair([_user([{"type": "text", "text": " \n"}])], [_user([_B])]),
    "place": _pair([_user([_use()])], [_U, _says(_use()), _GIVES]),
    "call-shape": _pair(
        [_U, _says(_use(input="{}")), _GIVES], [_U, _says(_use(input={"q": 1})), _GIVES]
    ),
    "call-ids": _pair(
        [_U, _says(_use()), _GIVES, _says(_use()), _GIVES],
        [_U, _says(_use()), _GIVES, _says(_use("b")), _user([_result("b")])],
    ),
    "calls-last": _pair(
        [_U, _says(_use(), _B), _GIVES], [_U, _says(_B, _use()), _GIVES]
    ),
    "answered": _pair(
        [_U, _says(_use(), _use("b")), _user([_result(), _B])],
        [_U, _says(_use(), _use("b")), _GIVES, _user([_result("b"), _B])],
    ),
    "result-needs-call": _pair([_U, _says(_B), _GIVES], [_U, _says(_use()), _GIVES]),
    "answered-once": _pair(
        [_U, _says(_use()), _user([_result(), _result()])],
        [_U, _says(_use(), _use("b")), _user([_result("b"), _result()])],
    ),
    "results-first": _pair(
        [_U, _says(_use()), _user([_B, _result()])],
        [_U, _says(_use()), _user([_result(), _B]), _U],
    ),
    "result-content": _pair(
        [_U, _says(_use()), _user([_result(content={"n": 1})])],
        [_U, _says(_use()), _user([_result(content=[_B])])],
    ),
    "error-content": _pair(
        [_U, _says(_use()), _user([_result(content="", is_error=True)])],
        [_U, _says(_use()), _user([_result(content="")])],
    ),
    "signature": _pair(
        [_U, _says({"type": "thinking", "thinking": "hm"}, _B)],
        [_U, _says(_THOUGHT, _B)],
    ),
    "thinking-first": _pair([_U, _says(_B, _THOUGHT, _B)], [_U, _says(_THOUGHT, _B)]),
    "thinking-last": _pair(
        [_U, _says(_THOUGHT, _B, _THOUGHT), _U], [_U, _says(_THOUGHT, _B), _U]
    ),
    "thinking-kept": _pair(
        [_U, _says(_use()), _GIVES],
        [_U, _says(_THOUGHT, _use()), _GIVES, _says(_use("b")), _user([_result("b")])],
        thinking=True,
    ),
    "cache-marks": _pair([_user([_MARK] * 5)], [_user([_MARK] * 4)]),
}


# Gemini contents ---------------------------------------------------------------------
def _user_parts(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def _model_parts(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def _fc(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}}


def _fr(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": 1}, **more}}


_P = _user_parts({"text": "hi"})
_SNAKE = {"function_call": {"name": "f", "args": {}}, "thought_signature": "c2ln"}
_STEP = _model_parts({**_fc(), "thoughtSignature": "c2ln"})
_STEP2, _ANSWERS2 = _model_parts(_SNAKE, _fc()), _user_parts(_fr(), _fr())

GEMINI: dict[str, Pair] = {
    "utf8": _pair([_user_parts({"text": "\udfff"})], [_P]),
    "role": _pair([{**_P, "role": "assistant"}], [{"parts": [{"text": "hi"}]}]),
    "parts": _pair([_P, _model_parts()], [_P, _model_parts({"text": ""})]),
    "data": _pair([_user_parts({"thought": True})], [_P]),
    "call-shape": _pair(
        [_P, _model_parts(_fc(args="{}")), _user_parts(_fr())],
        [_P, _model_parts(_fc()), _user_parts(_fr())],
    ),
    "response-shape": _pair(
        [_P, _model_parts(_fc()), _user_parts(_fr(response="1"))],
        [_P, _model_parts(_fc()), {**_user_parts(_fr()), "role": "function"}],
    ),
    "place": _pair([_user_parts(_fc())], [_P, _model_parts(_fc()), _user_parts(_fr())]),
    "counts": _pair(
        [_P, _model_parts(_fc(), _fc()), _user_parts(_fr()), _P],
        [_P, _model_parts(_fc(), _fc()), _user_parts(_fr(), _fr()), _P],
    ),
    "response-after-call": _pair(
        [_P, _model_parts({"text": "x"}), _user_parts(_fr())],
        [_P, _model_parts({"text": "x"}, _fc()), _user_parts(_fr())],
    ),
    "call-after-user": _pair(
        [_model_parts(_fc()), _user_parts(_fr())],
        [_P, _model_parts({"text": "x"}), _model_parts(_fc()), _user_parts(_fr())],
    ),
    "names": _pair(
        [_P, _model_parts(_fc("f"), _fc("g")), _user_parts(_fr("g"), _fr("f"))],
        [_P, _model_parts(_fc("f"), _fc("g")), _user_parts(_fr("f"), _fr("g"))],
    ),
    "ids": _pair(
        [_P, _model_parts(_fc(id="1")), _user_parts(_fr())],
        [_P, _model_parts(_fc(id="1")), _user_parts(_fr(id="1"))],
    ),
    "signatures": _pair(
        [_P, _STEP, _user_parts(_fr()), _model_parts(_fc()), _user_parts(_fr())],
        [_P, _model_parts(_fc()), _user_parts(_fr()), _P, _STEP2, _ANSWERS2],
        signatures=True,
    ),
}


# LangChain messages ------------------------------------------------------------------
def _ai(*ids: str | None, **more: Any) -> AIMessage:
    calls = [{"name": "f", "args": {}, "id": call_id} for call_id in ids]
    return AIMessage(content="", tool_calls=calls, **more)


def _tm(call_id: str = "a") -> ToolMessage:
    return ToolMessage("ok", tool_call_id=call_id)


_H = HumanMessage("hi")
_BAD = {"name": "f", "args": "{", "id": "b", "error": None}

LANGCHAIN: dict[str, Pair] = {
    "utf8": _pair([HumanMessage("\ud83c")], [HumanMessage("\ufffd")]),
    "call-ids": _pair(
        [_H, _ai("a", "a"), _tm(), _tm()], [_H, _ai("a", "b"), _tm("b"), _tm()]
    ),
    "convertible": _pair([_H, 7], [_H, ("ai", "x")]),
    "tool-call-id": _pair([_H, _ai("a"), _tm("")], [_H, _ai("a"), _tm()]),
    "answered": _pair(
        [_H, _ai("a", invalid_tool_calls=[_BAD]), _tm()],
        [_H, _ai("a", invalid_tool_calls=[_BAD]), _tm(), _tm("b")],
    ),
    "tool-needs-call": _pair([_H, _tm()], [_H, _ai("a"), _tm()]),
    "answered-once": _pair([_H, _ai("a"), _tm(), _tm()], [_H, _ai("a"), _tm()]),
}

EXAMPLES: dict[str, dict[str, Pair]] = {
    "openai_chat": OPENAI_CHAT,
    "openai_responses": OPENAI_RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "langchain": LANGCHAIN,
}
