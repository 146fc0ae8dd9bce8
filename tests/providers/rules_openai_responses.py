"""What OpenAI's Responses API accepts as ``input`` items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.providers.rules_base import (
    UTF8,
    Judgement,
    Rule,
    check_bytes,
    repeated,
    table,
)

if TYPE_CHECKING:
    from tests.providers.rules_base import Ids

_REFERENCE = "https://platform.openai.com/docs/api-reference/responses/create#input"
_OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
_CALLS, _OUTPUTS = set(_OUTPUT_OF), set(_OUTPUT_OF.values())
_ROLES = {"user", "assistant", "system", "developer"}

RULES = table(
    UTF8,
    Rule(
        "item",
        "an item has a type, or is a message with a role and content",
        _REFERENCE,
    ),
    Rule(
        "call-shape",
        "a function call has a call_id, a name and its arguments as a string",
        _REFERENCE,
    ),
    Rule(
        "output-shape",
        "an output has a call_id, and is a string or a list of typed parts",
        _REFERENCE,
    ),
    Rule(
        "answered",
        "each call has an output after it",
        '"No tool output found for function call call_….", '
        "https://github.com/bytedance/trae-agent/issues/245",
    ),
    Rule(
        "output-needs-call",
        "each output has its call before it, in the input or in the response that "
        "previous_response_id names",
        '"No tool call found for function call output with call_id call_….", '
        "https://github.com/vercel/ai/issues/8216",
    ),
    Rule(
        "answered-once",
        "a call has one output",
        '"Duplicate call_ids submitted", '
        "https://github.com/alvesvaren/zod-to-openai-tool/issues/263",
    ),
    Rule(
        "call-ids",
        "the call_ids of the calls differ",
        "\"Duplicate 'call_id': undefined\", "
        "https://github.com/earendil-works/pi/issues/9057",
    ),
    Rule(
        "item-ids",
        "no item is given twice",
        '"Duplicate item found with id fc_…. Remove duplicate items from your input", '
        "https://github.com/vercel/ai/issues/13307",
    ),
    Rule(
        "reasoning-followed",
        "a reasoning item is followed by the message or call that it led to",
        "\"Item 'rs_…' of type 'reasoning' was provided without its required "
        'following item.", https://github.com/openai/openai-node/issues/1567',
    ),
    Rule(
        "reasoning-summary",
        "a reasoning item has its summary, be it empty",
        '"Input[N] missing required field `summary`", '
        "https://github.com/newo-ether/Agora/issues/141",
    ),
    Rule(
        "made-up-status",
        "a reasoning item has no status, and no item has one that is null",
        "\"Unknown parameter: 'input[1].status'\", "
        "https://github.com/openai/openai-python/issues/3008",
    ),
)


def check(
    items: Any, *, ids: Ids = "strict", previous_response_id: str | None = None
) -> list[str]:
    """Return the rules that this input breaks; empty if it is accepted."""
    judgement = Judgement(RULES)
    check_bytes(judgement, items)
    if isinstance(items, str):
        return judgement.breaches
    for index, item in enumerate(items):
        _check_item(judgement, f"input[{index}]", item, ids)
    again = repeated(item["id"] for item in items if item.get("id"))
    judgement.check(not again, "item-ids", "input", repr(again))
    _check_reasoning(judgement, items)
    _check_pairing(judgement, items, ids, linked=bool(previous_response_id))
    return judgement.breaches


def kind(item: dict[str, Any]) -> Any:
    """Return the type of an item; the short form of a message has none."""
    return item.get("type") or ("message" if "role" in item else None)


def _check_item(
    judgement: Judgement, where: str, item: dict[str, Any], ids: Ids
) -> None:
    what = kind(item)
    good = isinstance(what, str)
    if what == "message":
        good = item.get("role") in _ROLES and isinstance(
            item.get("content"), str | list
        )
    judgement.check(good, "item", where, repr(item))
    has_id = ids == "lenient" or (isinstance(item.get("call_id"), str))
    if what == "function_call":
        texts = isinstance(item.get("arguments"), str) and isinstance(
            item.get("name"), str
        )
        judgement.check(texts and has_id, "call-shape", where, repr(item))
    if what in _OUTPUTS:
        text = _is_output(item.get("output"))
        judgement.check(text and has_id, "output-shape", where, repr(item))
    no_status = what != "reasoning" and item.get("status", "") is not None
    judgement.check(
        no_status or "status" not in item, "made-up-status", where, repr(what)
    )


def _is_output(output: Any) -> bool:
    if isinstance(output, str):
        return True
    return isinstance(output, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in output
    )


def _check_reasoning(judgement: Judgement, items: list[Any]) -> None:
    for index, item in enumerate(items):
        if kind(item) != "reasoning":
            continue
        where = f"input[{index}]"
        judgement.check(
            isinstance(item.get("summary"), list), "reasoning-summary", where
        )
        after = items[index + 1] if index + 1 < len(items) else {}
        led_to = kind(after) is not None and kind(after) not in _OUTPUTS
        by_model = kind(after) != "message" or after.get("role") == "assistant"
        judgement.check(led_to and by_model, "reasoning-followed", where)


def _check_pairing(
    judgement: Judgement, items: list[Any], ids: Ids, *, linked: bool
) -> None:
    """Pair calls and outputs; an output may stand anywhere after its call.

    Lenient, an id that comes again within a turn of the model is another call, and one
    that comes again in a later turn leaves no call of that id open behind it.
    """
    waiting: list[tuple[str, Any]] = []
    done: list[tuple[str, Any]] = []
    turn: list[tuple[str, Any]] = []
    by_model = False
    for index, item in enumerate(items):
        where, what = f"input[{index}]", kind(item)
        was_by_model, by_model = by_model, _is_by_model(item)
        turn = turn if was_by_model else []
        pair = (_OUTPUT_OF.get(what, what), item.get("call_id") or None)
        if what in _CALLS:
            if ids == "strict":
                judgement.check(pair not in waiting + done, "call-ids", where)
            elif pair not in turn:
                _close(judgement, where, waiting, pair)
            waiting.append(pair)
            turn.append(pair)
        elif what in _OUTPUTS:
            _take(judgement, where, pair, waiting, done, linked=linked)
    for pair in dict.fromkeys(waiting):
        _close(judgement, "the end", waiting, pair)


def _is_by_model(item: dict[str, Any]) -> bool:
    if kind(item) == "message":
        return item.get("role") == "assistant"
    return kind(item) not in _OUTPUTS


def _close(
    judgement: Judgement,
    where: str,
    waiting: list[tuple[str, Any]],
    pair: tuple[str, Any],
) -> None:
    while pair in waiting:
        waiting.remove(pair)
        judgement.broken("answered", where, f"no output for {pair[1]!r}")


def _take(
    judgement: Judgement,
    where: str,
    pair: tuple[str, Any],
    waiting: list[tuple[str, Any]],
    done: list[tuple[str, Any]],
    *,
    linked: bool,
) -> None:
    if pair in waiting:
        waiting.remove(pair)
    elif pair in done:
        judgement.broken("answered-once", where, repr(pair[1]))
    elif not linked:
        judgement.broken("output-needs-call", where, repr(pair[1]))
    done.append(pair)
