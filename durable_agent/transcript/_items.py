"""Balance where results are messages (or items) of their own, after the calls.

A conversation is cut into stretches: a run of what the model said with calls in it, and
what follows up to the next such run. A result answers a call of its own stretch, or
none: servers restart and repeat ids. Equal ids are matched in order.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from durable_agent.transcript._types import Answer, Result, ToolCall


class Form(Protocol):
    """How a provider puts calls and results; what `balance` asks of a dialect."""

    def is_model(self, message: Any) -> bool:
        """Whether the model says this message."""

    def calls(self, turn: Sequence[Any]) -> Sequence[tuple[ToolCall, Hashable]]:
        """Return the calls of a turn, each with what pairs it with its result."""

    def answers(self, message: Any) -> Hashable | None:
        """Return what pairs a result with its call; None: it is none, or it stays."""

    def stays(self, message: Any) -> bool:
        """Whether a result is where it may be, wherever that is."""

    def turns(self, run: Sequence[Any]) -> list[list[Any]]:
        """Cut a run of the model's messages where results have to stand."""

    def keeps_first(self) -> bool:
        """Whether results before all that the model says answer calls elsewhere."""

    def render(self, turn: Sequence[Any], call: ToolCall, result: Result) -> Any:
        """Return the message that answers a call."""


def balance(form: Form, messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each call has one result, as `Dialect.balance` says."""
    first, *stretches = _stretches(form, messages)
    balanced = _unpaired(form, first[1])
    for run, after in stretches:
        balanced += _balanced(form, run, after, answer)
    return balanced


def _stretches(
    form: Form, messages: Sequence[Any]
) -> list[tuple[list[Any], list[Any]]]:
    """Return runs with calls, each with what follows; the first run is empty."""
    stretches: list[tuple[list[Any], list[Any]]] = [([], [])]
    for of_model, group in groupby(messages, key=form.is_model):
        run = list(group)
        if of_model and any(form.calls(turn) for turn in form.turns(run)):
            stretches.append((run, []))
        else:
            stretches[-1][1].extend(run)
    return stretches


def _unpaired(form: Form, messages: list[Any]) -> list[Any]:
    """Return what comes before all calls: results there answer none in sight."""
    kept: list[Any] = []
    if form.keeps_first():
        kept = list(takewhile(lambda message: not form.is_model(message), messages))
    return [*kept, *_stripped(form, messages[len(kept) :])]


def _stripped(form: Form, messages: Sequence[Any]) -> list[Any]:
    return [message for message in messages if not _is_answer(form, message)]


def _is_answer(form: Form, message: Any) -> bool:
    return form.answers(message) is not None


def _balanced(
    form: Form, run: list[Any], after: list[Any], answer: Answer
) -> list[Any]:
    turns = [(turn, form.calls(turn)) for turn in form.turns(run)]
    near = list(takewhile(lambda m: form.stays(m) or _is_answer(form, m), after))
    # Results that stand directly after the one turn that has calls are in their place.
    wanted = Counter(key for _, key in turns[-1][1])
    there = Counter(form.answers(m) for m in near if _is_answer(form, m))
    if not any(calls for _, calls in turns[:-1]) and wanted == there:
        return [*run, *near, *_stripped(form, after[len(near) :])]
    found: dict[Hashable, deque[Any]] = {}
    for message in after:
        if (key := form.answers(message)) is not None:
            found.setdefault(key, deque()).append(message)
    out: list[Any] = []
    for turn, calls in turns:
        out += turn
        for call, key in calls:
            same = found.get(key)
            out.append(
                same.popleft() if same else form.render(turn, call, answer(turn, call))
            )
    return [*out, *_stripped(form, after)]


def after_calls(form: Form, run: Sequence[Any]) -> list[list[Any]]:
    """Cut a run after each message that has calls."""
    turns: list[list[Any]] = [[]]
    for message in run:
        if turns[-1] and form.calls(turns[-1][-1:]):
            turns.append([])
        turns[-1].append(message)
    return turns
