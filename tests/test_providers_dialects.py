"""The dialects, held against the providers' rules by judges that do not know them.

Scripts are rendered as the provider sends them, damaged as crashes and older versions
damage a history, balanced, and judged.
"""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_agent.transcript._types import Result
from tests.providers.conversations import (
    Model,
    history,
    ids_held,
    scripts,
)
from tests.providers.registry import PROVIDERS
from tests.providers.render_langchain import is_object

DIALECTS = {
    name: importlib.import_module(f"durable_agent.transcript.{name}")
    for name in PROVIDERS
}
by_provider = pytest.mark.parametrize("provider", list(PROVIDERS))
drawn = settings(max_examples=60, deadline=None)


def models_of(script):
    return [(n, turn) for n, turn in enumerate(script) if isinstance(turn, Model)]


def answer(turn, call):
    return Result(text=f"unknown: {call.name}", failed=True)


@st.composite
def damaged(draw, provider):
    """Draw a script, and a history of it whose results are not as they should be.

    Of each turn's results some are missing, given twice, out of order, or come late,
    after what the user said next.
    """
    dialect, script = PROVIDERS[provider].dialect, draw(scripts(provider))
    messages, late = [], []
    for n, turn in enumerate(script):
        if not isinstance(turn, Model):
            messages += dialect.said(turn)
            messages += late
            late = []
            continue
        messages += dialect.heard(dialect.response(turn, n))
        if turn.calls:
            places = st.integers(0, len(turn.calls) - 1)
            kept = [turn.calls[i] for i in draw(st.lists(places, max_size=4))]
            found = dialect.results(kept, ["ok"] * len(kept)) if kept else []
            if draw(st.booleans()):
                late += found
            else:
                messages += found
    return script, messages + late


@by_provider
@drawn
@given(st.data())
def test_a_damaged_history_is_balanced_so_that_the_provider_takes_it(provider, data):
    script, messages = data.draw(damaged(provider))
    balanced = DIALECTS[provider].balance(messages, answer)

    ids = ids_held(provider, script)
    assert PROVIDERS[provider].judge(balanced, ids=ids) == []


@by_provider
@drawn
@given(st.data())
def test_balancing_again_changes_nothing(provider, data):
    _, messages = data.draw(damaged(provider))
    balanced = DIALECTS[provider].balance(messages, answer)

    assert DIALECTS[provider].balance(balanced, answer) == balanced


@by_provider
@drawn
@given(st.data())
def test_a_whole_history_is_left_as_it_is(provider, data):
    """The very same objects, so that nothing about their bytes can change."""
    messages = history(PROVIDERS[provider].dialect, data.draw(scripts(provider)))
    balanced = DIALECTS[provider].balance(messages, answer)

    assert [id(message) for message in balanced] == [id(m) for m in messages]


@by_provider
@drawn
@given(st.data())
def test_balancing_does_not_change_what_it_is_given(provider, data):
    _, messages = data.draw(damaged(provider))
    before = repr(messages)
    DIALECTS[provider].balance(messages, answer)

    assert repr(messages) == before


@by_provider
@drawn
@given(st.data())
def test_the_calls_of_a_response_are_those_of_the_model(provider, data):
    dialect = DIALECTS[provider]
    for n, model in models_of(data.draw(scripts(provider))):
        turn = dialect.turn(PROVIDERS[provider].dialect.response(model, n))
        found = dialect.calls(turn)

        assert len({call.token for call in found}) == len(model.calls)
        told = [(call.id, call.name, call.arguments) for call in found]
        assert told == _told(model, apart=provider == "langchain")


def _told(model, *, apart):
    """Return id, name and arguments; None for arguments that are no object.

    None at all are no arguments: some servers write them so. ``apart``: LangChain keeps
    calls that it could not parse behind the others.
    """
    calls = sorted(model.calls, key=lambda call: apart and not is_object(call))
    return [
        (c.id, c.name, c.parsed if is_object(c) or not c.arguments else None)
        for c in calls
    ]


@by_provider
@drawn
@given(st.data())
def test_a_response_and_its_results_are_a_request_that_is_taken(provider, data):
    """What is appended after a crash: the turn, and an answer to each of its calls."""
    dialect, wire = DIALECTS[provider], PROVIDERS[provider].dialect
    script = data.draw(scripts(provider))
    n, model = data.draw(st.sampled_from(models_of(script)))
    script = script[: n + 1]
    messages = [
        *history(wire, script[:n]),
        *dialect.turn(wire.response(model, n)),
    ]
    balanced = dialect.balance(messages, answer)

    ids = ids_held(provider, script)
    assert PROVIDERS[provider].judge(balanced, ids=ids) == []
    assert list(balanced[: len(messages)]) == messages


@by_provider
@drawn
@given(st.data())
def test_a_stream_amounts_to_the_whole_response(provider, data):
    """LangChain mends arguments that do not parse in streams, and only there."""
    dialect, wire = DIALECTS[provider], PROVIDERS[provider].dialect
    drawn = scripts("anthropic" if provider == "langchain" else provider)
    for n, model in models_of(data.draw(drawn)):
        assembled = dialect.assemble(wire.stream(model, n))
        whole = dialect.turn(wire.response(model, n))

        assert assembled.complete
        turn = dialect.turn(assembled.response)
        assert dialect.calls(turn) == dialect.calls(whole)
        plain, wanted = (list(map(dialect.comparable, t)) for t in (turn, whole))
        assert _without_empty(plain) == _without_empty(wanted)


def _without_empty(value):
    """Return JSON without fields that say nothing, at any depth."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if isinstance(value, dict):
        told = {key: _without_empty(item) for key, item in value.items()}
        return {k: v for k, v in told.items() if v not in (None, [], {}, "")}
    return value


@by_provider
@drawn
@given(st.data())
def test_a_stream_that_was_cut_is_not_complete(provider, data):
    dialect, wire = DIALECTS[provider], PROVIDERS[provider].dialect
    for n, model in models_of(data.draw(scripts(provider))):
        chunks = wire.stream(model, n)
        final = [n for n, c in enumerate(chunks) if dialect.is_final_chunk(c)]
        # Gemini's SDK may go on after calls, so only the end of the stream is the end.
        assert final or (provider == "gemini" and model.calls)
        cut = data.draw(st.integers(0, final[0] if final else len(chunks) - 1))
        assembled = dialect.assemble(chunks[:cut])

        assert assembled is None or not assembled.complete
