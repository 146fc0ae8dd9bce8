"""The judges of request messages: each rule refuses what it names, and nothing else."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import PROJECT
from tests.providers import (
    render_anthropic,
    render_gemini,
    render_openai_responses,
    rules_anthropic,
    rules_gemini,
    rules_openai_responses,
)
from tests.providers.conversations import Call, Model, User, history, ids_held, scripts
from tests.providers.examples import EXAMPLES
from tests.providers.registry import PROVIDERS
from tests.providers.rules_base import rule_of

ALL_RULES = [
    (name, rule) for name in PROVIDERS for rule in PROVIDERS[name].table.values()
]
by_rule = pytest.mark.parametrize(
    ("provider", "rule"), ALL_RULES, ids=[f"{n}-{r.id}" for n, r in ALL_RULES]
)
by_provider = pytest.mark.parametrize("provider", list(PROVIDERS))


@by_rule
def test_each_rule_refuses_its_example_for_its_own_reason(provider, rule):
    (messages, options), _ = EXAMPLES[provider][rule.id]

    assert {rule_of(b) for b in PROVIDERS[provider].judge(messages, **options)} == {
        rule.id
    }


@by_rule
def test_each_rule_accepts_its_example(provider, rule):
    _, (messages, options) = EXAMPLES[provider][rule.id]

    assert PROVIDERS[provider].judge(messages, **options) == []


@by_rule
def test_each_rule_names_its_source_and_says_what_it_asks(provider, rule):
    assert rule.source.startswith("RFC") or "https://" in rule.source
    assert len(rule.says.split()) > 4


@by_provider
def test_examples_belong_to_rules(provider):
    assert set(EXAMPLES[provider]) == set(PROVIDERS[provider].table)


def test_judges_do_not_import_the_product(run_python):
    """A judge that shared code with the judged would share its faults."""
    modules = sorted(p.stem for p in (PROJECT / "tests" / "providers").glob("*.py"))
    imports = "; ".join(f"import tests.providers.{m}" for m in modules if m[0] != "_")
    loaded = "sorted(m for m in sys.modules if m.startswith('durable_agent'))"
    done = run_python(
        "-c", f"import sys; {imports}; print({loaded})", PYTHONPATH=PROJECT
    )

    assert done.stdout == "[]\n", done.stderr


@by_provider
@settings(deadline=None)
@given(st.data())
def test_whole_conversations_are_accepted(provider, data):
    script = data.draw(scripts(provider))
    messages = history(PROVIDERS[provider].dialect, script)

    assert PROVIDERS[provider].judge(messages, ids=ids_held(provider, script)) == []


@settings(deadline=None)
@given(scripts("anthropic"))
def test_lenient_ids_accept_what_strict_ids_accept(script):
    messages = history(render_anthropic, script)

    assert rules_anthropic.check(messages, ids="lenient") == []


@settings(deadline=None)
@given(scripts("gemini"))
def test_gemini_contents_keep_their_signatures(script):
    messages = history(render_gemini, script)

    assert rules_gemini.check(messages, signatures=True) == []


@by_provider
@settings(deadline=None)
@given(st.data())
def test_a_missing_answer_is_refused_however_lenient_the_ids(provider, data):
    """Counts decide where ids cannot."""
    script = data.draw(scripts(provider))
    answers = [n for n, t in enumerate(script) if isinstance(t, Model) and t.calls]
    if not answers:
        script, answers = (*script, User(), Model(calls=(Call(),))), [len(script) + 1]
    at = data.draw(st.sampled_from(answers))
    lost = data.draw(st.integers(0, len(script[at].calls) - 1))
    messages = _without(PROVIDERS[provider].dialect, script, at, lost)

    assert PROVIDERS[provider].judge(messages, ids="lenient") != []


def _without(dialect, script, at, lost):
    """Return the history of a script in which one call is never answered."""
    before, turn = history(dialect, script[:at]), script[at]
    kept = [call for n, call in enumerate(turn.calls) if n != lost]
    messages = before + dialect.heard(dialect.response(turn, at))
    if kept:
        messages += dialect.results(kept, ["ok"] * len(kept))
    whole = history(dialect, script)
    return messages + whole[len(history(dialect, script[: at + 1])) :]


@by_provider
@settings(deadline=None)
@given(st.data())
def test_an_answer_given_twice_is_refused_however_lenient_the_ids(provider, data):
    dialect = PROVIDERS[provider].dialect
    calls = data.draw(st.lists(st.just(Call()), min_size=1, max_size=3))
    asked = dialect.heard(dialect.response(Model(calls=tuple(calls)), 0))
    twice = [*calls, calls[0]]
    messages = [
        *dialect.said(User()),
        *asked,
        *dialect.results(twice, ["ok"] * len(twice)),
    ]

    assert PROVIDERS[provider].judge(messages, ids="lenient") != []


@pytest.mark.parametrize(
    "provider", ["openai_chat", "anthropic", "gemini", "langchain"]
)
def test_answers_that_come_after_the_next_question_are_refused(provider):
    dialect, calls = PROVIDERS[provider].dialect, (Call(id="a"), Call(id="b"))
    asked = dialect.heard(dialect.response(Model(calls=calls), 0))
    late = [
        *dialect.said(User()),
        *asked,
        *dialect.said(User("still there?")),
        *dialect.results(calls, ["ok", "ok"]),
    ]

    assert PROVIDERS[provider].judge(late) != []


def test_responses_with_lenient_ids_do_not_lend_an_output_to_another_turn():
    """A restarted id answered in one turn leaves the same id open in another."""
    (call,) = render_openai_responses.heard(
        render_openai_responses.response(Model(calls=(Call(),)), 0)
    )
    other = {**copy.deepcopy(call), "id": "fc_9"}
    output = render_openai_responses.results([Call()], ["ok"])
    user = render_openai_responses.said(User())

    broken = rules_openai_responses.check(
        [*user, call, *user, other, *output, *output], ids="lenient"
    )
    assert {rule_of(breach) for breach in broken} == {"answered", "answered-once"}


def test_responses_with_lenient_ids_close_a_turn_where_the_model_goes_on():
    """In a loop of tools no user stands between one turn of the model and the next."""
    first, second = (
        render_openai_responses.heard(render_openai_responses.response(model, n))
        for n, model in enumerate(
            [Model(calls=(Call(), Call())), Model(calls=(Call(),))]
        )
    )
    output = render_openai_responses.results([Call()], ["ok"])
    items = [*render_openai_responses.said(User()), *first, *output, *second]

    broken = rules_openai_responses.check([*items, *output, *output], ids="lenient")
    assert [rule_of(breach) for breach in broken] == ["answered", "answered-once"]


@by_provider
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_refused(provider, number):
    messages = history(PROVIDERS[provider].dialect, (User(),))
    if provider == "langchain":
        messages[0].additional_kwargs["n"] = number  # not sent, so not judged
        assert PROVIDERS[provider].judge(messages) == []
        return
    messages[0]["n"] = number

    assert {rule_of(b) for b in PROVIDERS[provider].judge(messages)} == {"utf8"}
