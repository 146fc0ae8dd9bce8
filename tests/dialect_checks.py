"""What the tests of dialects share: damaged conversations, and odd input."""

from __future__ import annotations

import copy
import types
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
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

#: For tests of drawn conversations: a busy machine is no fault of a dialect.
drawn = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    same_objects(dialect.balance(balanced, never), balanced)
    return balanced


def check_whole(dialect: Any, provider: str, script: Script) -> None:
    """A conversation as a loop of tools keeps it stays the very same objects."""
    whole = history(PROVIDERS[provider].dialect, script)
    same_objects(dialect.balance(whole, never), whole)


def same_objects(found: list[Any], wanted: list[Any]) -> None:
    """Not only equal: the very same messages, in order."""
    assert list(map(id, found)) == list(map(id, wanted))


def check_repaired(
    dialect: Any, messages: list[Any], answer: Any, unpaired: Any, role: str
) -> list[Any]:
    """Balance blocks: all pairs, stable, nothing changed, the model's words kept."""
    original = copy.deepcopy(messages)

    balanced: list[Any] = dialect.balance(messages, answer)

    assert not unpaired(balanced)
    assert messages == original
    same_objects(dialect.balance(balanced, answer), balanced)
    said = [m for m in messages if m["role"] == role]
    same_objects([m for m in balanced if m["role"] == role], said)
    return balanced


def asked(script: Script) -> list[Model]:
    """Return the answers of the model in a script."""
    return [turn for turn in script if not isinstance(turn, User)]
