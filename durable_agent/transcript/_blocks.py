"""Balance where results are blocks of the message that follows the calls.

A conversation is cut into stretches: a run of the model's messages with calls, and what
follows up to the next such run. A result answers a call of its own stretch, or none:
providers restart and repeat ids. What is as the provider wants it is not touched.
"""

from __future__ import annotations

from itertools import groupby, islice, takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from durable_agent.transcript._types import Answer, Result, ToolCall


@frozen
class Slot:
    """What pairs a result with its call: id and name, or the name alone."""

    id: str | None
    name: str


class Form(Protocol):
    """How a provider puts calls and results; what `balance` asks of a dialect."""

    def is_model(self, message: Any) -> bool:
        """Whether the model says this message."""

    def calls(self, message: Any) -> list[ToolCall]:
        """Return the calls of one message of the model."""

    def slot(self, call: ToolCall) -> Slot:
        """Return what a result of this call has."""

    def blocks(self, message: Any) -> list[Any]:
        """Return the blocks of a message; those that cannot be results may lack."""

    def answers(self, block: Any) -> Slot | None:
        """Return what a result answers; None: the block is no result."""

    def begins_turn(self, message: Any) -> bool:
        """Whether this message cannot share results with calls just before it."""

    def placed(self, turns: Sequence[Sequence[Any]], after: Sequence[Any]) -> bool:
        """Whether the results in what comes after these turns stand in their place."""

    def render(self, message: Any, call: ToolCall, result: Result) -> Any:
        """Return the block of a result."""

    def keep(self, message: Any, blocks: list[Any]) -> Any | None:
        """Return a message with fewer blocks; None if nothing is left of it."""

    def place(self, results: list[Any], after: list[Any]) -> list[Any]:
        """Return what comes after a turn, with its results where they belong."""


def balance(form: Form, messages: Sequence[Any], answer: Answer) -> list[Any]:
    """Return messages in which each call has one result, as `Dialect.balance` says."""
    balanced: list[Any] = []
    for run, after in _stretches(form, messages):
        balanced += _balanced(form, run, after, answer)
    return balanced


def _stretches(
    form: Form, messages: Sequence[Any]
) -> list[tuple[list[Any], list[Any]]]:
    """Return runs with calls, each with what follows; the first run may be empty."""
    stretches: list[tuple[list[Any], list[Any]]] = [([], [])]
    for of_model, group in groupby(messages, key=form.is_model):
        run = list(group)
        if of_model and any(map(form.calls, run)):
            stretches.append((run, []))
        else:
            stretches[-1][1].extend(run)
    return stretches


def _balanced(
    form: Form, run: list[Any], after: list[Any], answer: Answer
) -> list[Any]:
    heads = list(takewhile(lambda message: not form.is_model(message), after))
    tail = after[len(heads) :]
    near = _results(form, heads)
    found = [*near, *_results(form, tail)]
    calls = [(message, call) for message in run for call in form.calls(message)]
    pairs = _pairs([form.slot(call) for _, call in calls], [slot for _, slot in found])
    turns = _turns(form, run)
    # As many results as calls, each of them paired: none is missing, none too many.
    if sorted(n for n in pairs if n is not None) == list(range(len(near))) and (
        len(near) == len(calls) and (not run or form.placed(turns, heads))
    ):
        return [*run, *heads, *_stripped(form, tail)]
    results = iter(
        form.render(message, call, answer([message], call))
        if at is None
        else found[at][0]
        for (message, call), at in zip(calls, pairs, strict=True)
    )
    out: list[Any] = []
    for turn in turns[:-1]:
        out += [*turn, *form.place(_take(form, turn, results), [])]
    last = turns[-1] if turns else []
    heads = _stripped(form, heads)
    own = _take(form, last, results)
    out += [*last, *(form.place(own, heads) if own else heads)]
    return [*out, *_stripped(form, tail)]


def _take(form: Form, turn: Sequence[Any], results: Iterator[Any]) -> list[Any]:
    return list(islice(results, sum(len(form.calls(message)) for message in turn)))


def _turns(form: Form, run: Sequence[Any]) -> list[list[Any]]:
    """Cut a run after calls where what follows cannot share their results."""
    turns: list[list[Any]] = []
    called = False
    for message in run:
        if not turns or (called and form.begins_turn(message)):
            turns.append([])
            called = False
        turns[-1].append(message)
        called = called or bool(form.calls(message))
    return turns


def _results(form: Form, messages: Sequence[Any]) -> list[tuple[Any, Slot]]:
    return [
        (block, slot)
        for message in messages
        if not form.is_model(message)
        for block in form.blocks(message)
        if (slot := form.answers(block)) is not None
    ]


def _stripped(form: Form, messages: Sequence[Any]) -> list[Any]:
    """Return messages without results, those that had none as they are."""
    kept: list[Any] = []
    for message in messages:
        blocks = [] if form.is_model(message) else form.blocks(message)
        others = [block for block in blocks if form.answers(block) is None]
        if len(others) == len(blocks):
            kept.append(message)
        elif (fewer := form.keep(message, others)) is not None:
            kept.append(fewer)
    return kept


def _pairs(calls: Sequence[Slot], results: Sequence[Slot]) -> list[int | None]:
    """Return which result answers each call, in order.

    Those of the same id and name first; then a name alone, where an id is missing.
    """
    pairs: list[int | None] = [None] * len(calls)
    free = dict.fromkeys(range(len(results)))
    for fits in (eq, _same_name):
        for at, call in enumerate(calls):
            if pairs[at] is None:
                hit = next((n for n in free if fits(call, results[n])), None)
                if hit is not None:
                    pairs[at] = hit
                    del free[hit]
    return pairs


def _same_name(call: Slot, result: Slot) -> bool:
    return call.name == result.name and (call.id is None or result.id is None)
