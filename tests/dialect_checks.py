"""What the tests of dialects share: damaged conversations, and odd input."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from durable_agent.transcript._types import Result
from tests.providers.conversations import (
    Model,
    Script,
    User,
    history,
    ids_held,
    scripts,
)
from tests.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable

#: What no provider sends, but what a function of a person may take or give.
ODD = [
    *(None, 0, 1.5, True, "", "text", b"bytes", [], {}, (), [None], [1, "a"], {"a": 1}),
    *({"role": 5}, {"role": "assistant"}, {"type": []}, {"choices": [None]}),
    *({"output": 3}, {"output": [None]}, {"output": {}}, {"choices": {}}, object()),
    *({"messages": None}, {"input": {}}, {"generations": [[]]}, {"usage": 1}),
    *({"role": "assistant", "tool_calls": 3, "content": {}}, ValueError("no")),
    *({"role": "assistant", "content": [None, 3, {"type": {}}]}, types),
    *({"type": "function_call"}, {"type": "message", "role": "assistant"}),
    *({"role": "tool", "tool_call_id": []}, {"type": "function_call_output"}),
    *([{"choices": [{"delta": {"tool_calls": [None, {"index": "a"}]}}]}],),
    *([{"type": "response.output_item.added"}, {"type": "response.refusal.delta"}],),
]


def never_raises(dialect: Any, odd: Any) -> None:
    """Call all that a dialect has with something odd."""
    many = odd if isinstance(odd, list) else [odd]
    dialect.request({"messages": odd, "input": odd, "other": odd})
    dialect.request({"other": odd})
    dialect.turn(odd)
    dialect.is_final_chunk(odd)
    dialect.usage(odd)
    dialect.comparable(odd)
    dialect.knows(many)
    dialect.calls(many)
    dialect.balance(many, lambda _turn, _call: Result("gone"))
    dialect.assemble(many)


def gone(_turn: Any, call: Any) -> Result:
    """Answer a call as one whose result is not known."""
    return Result(f"gone: {call.token}", failed=True)


def never(_turn: Any, call: Any) -> Result:
    """Answer no call: each of them has its result."""
    return pytest.fail(f"{call} is answered already")


@st.composite
def damaged(
    draw: st.DrawFn, provider: str, is_result: Callable[[Any], bool]
) -> tuple[Script, list[Any]]:
    """Draw a conversation in which results were lost, doubled or moved back."""
    script = draw(scripts(provider))
    messages: list[Any] = []
    for message in history(PROVIDERS[provider].dialect, script):
        fate = draw(st.sampled_from(["stay", "stay", "lose", "double", "move"]))
        if not is_result(message) or fate == "stay":
            messages.append(message)
        elif fate == "double":
            messages += [message, message]
        elif fate == "move":
            messages.insert(draw(st.integers(0, len(messages))), message)
    return script, messages


def check_balance(dialect: Any, provider: str, script: Script, given: list[Any]) -> Any:
    """Balance what was damaged: accepted by the rules, stable, nothing else lost."""
    balanced = dialect.balance(given, gone)

    assert PROVIDERS[provider].judge(balanced, ids=ids_held(provider, script)) == []
    again = dialect.balance(balanced, never)
    assert len(again) == len(balanced)
    assert all(a is b for a, b in zip(again, balanced, strict=True))
    return balanced


def check_whole(dialect: Any, provider: str, script: Script) -> None:
    """A conversation as a loop of tools keeps it stays the very same objects."""
    whole = history(PROVIDERS[provider].dialect, script)
    balanced = dialect.balance(whole, never)

    assert len(balanced) == len(whole)
    assert all(a is b for a, b in zip(balanced, whole, strict=True))


def asked(script: Script) -> list[Model]:
    """Return the answers of the model in a script."""
    return [turn for turn in script if not isinstance(turn, User)]
