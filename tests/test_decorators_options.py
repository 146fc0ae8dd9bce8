"""What cannot be decorated, or not so, is refused; what is decorated stays so once."""

# ruff: noqa: S301 - own pickles; parameters are the point

import asyncio
import functools
import inspect
import pickle

import pytest

from durable_agent import _frameworks, _wrapping
from durable_agent._frameworks import Integration
from durable_agent._options import make_spec, merge
from durable_agent.decorators import checkpointed_llm, checkpointed_tool, step_boundary
from durable_agent.errors import DecorationError

DECORATORS = [checkpointed_llm, checkpointed_tool, step_boundary]

every_decorator = pytest.mark.parametrize(
    "decorate", DECORATORS, ids=["llm", "tool", "step"]
)


def tool(a, b=2): ...


class Invoked:
    """As the tools of frameworks that this package does not know."""

    def invoke(self, arguments): ...

    def __call__(self, arguments): ...


class Loose:
    """Has every attribute that is asked for, as test doubles and clients do."""

    def __getattr__(self, name):
        return name

    def __call__(self): ...


async def _coroutine(): ...


@every_decorator
@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (Invoked, "is a class"),
        (int, "is a class"),
        (property(tool), "property"),
        (functools.singledispatchmethod(tool), "singledispatchmethod"),
        (Invoked(), r"invoke"),
        (object(), "cannot be called"),
        (None, "cannot be called"),
        (5, "cannot be called"),
        ((n for n in ()), "without calling it"),
    ],
    ids=range(9),
)
def test_what_cannot_be_recorded_is_refused(decorate, refused, why):
    """Nothing may look recorded and not be."""
    with pytest.raises(DecorationError, match=why):
        decorate(refused)
    with pytest.raises(TypeError):
        decorate(refused)


def test_a_call_in_place_of_a_function_is_refused():
    made = _coroutine()
    with pytest.raises(DecorationError, match="without calling it"):
        checkpointed_tool(made)
    made.close()


def test_a_name_in_place_of_a_function_is_refused():
    with pytest.raises(DecorationError):
        checkpointed_tool("send")


def test_an_object_that_answers_to_any_name_is_only_called():
    assert callable(checkpointed_tool(Loose()))


def test_a_method_of_a_refused_object_may_be_decorated():
    assert inspect.ismethod(checkpointed_tool(Invoked().invoke))


@pytest.mark.parametrize(
    ("decorate", "option", "value"),
    [
        (checkpointed_tool, "efect", "read_only"),
        (checkpointed_tool, "effect", "readonly"),
        (checkpointed_tool, "effect", None),
        (checkpointed_tool, "name", ""),
        (checkpointed_tool, "name", 5),
        (checkpointed_tool, "key", 5),
        (checkpointed_tool, "key", "c"),
        (checkpointed_tool, "ignore", "c"),
        (checkpointed_tool, "ignore", 5),
        (checkpointed_tool, "ignore", [1]),
        (checkpointed_tool, "redact", ["a", "c"]),
        (checkpointed_tool, "replay", None),
        (checkpointed_tool, "durable_outcome", 1),
        (checkpointed_tool, "verify", "x"),
        (checkpointed_tool, "unknown_on", int),
        (checkpointed_tool, "unknown_on", 5),
        (checkpointed_tool, "on_unknown", "ask"),
        (checkpointed_tool, "arguments", "c"),
        (checkpointed_tool, "arguments", 5),
        (checkpointed_tool, "transcript", True),
        (checkpointed_tool, "trust_annotations", 1),
        (checkpointed_tool, "trust_annotations", True),
        (checkpointed_llm, "effect", "read_only"),
        (checkpointed_llm, "transcript", "no"),
        (step_boundary, "name", ""),
        (step_boundary, "name", 5),
    ],
)
def test_a_wrong_option_is_named_when_it_is_applied(decorate, option, value):
    with pytest.raises(DecorationError, match=option):
        decorate(**{option: value})(tool)


def test_options_of_any_parameter_are_allowed_for_keyword_arguments():
    """What a ``**kwargs`` takes cannot be told."""

    def loose(**kwargs): ...

    checkpointed_tool(loose, ignore="anything", redact=["else"], key="id")


def test_options_have_their_defaults():
    tools = make_spec("tool", {})
    models = make_spec("llm", {})

    assert tools.effect == "side_effect"
    assert tools.unknown_on == (TimeoutError, ConnectionError)
    assert models.unknown_on == ()
    assert tools.replay is models.replay is models.transcript is True
    assert tools.on_unknown is tools.durable_outcome is tools.verify is None


def test_options_are_stored_as_they_are_used():
    spec = make_spec(
        "tool",
        {"ignore": "clock", "redact": ["a", "b"], "unknown_on": KeyError, "key": len},
    )

    assert spec.ignore == {"clock"}
    assert spec.redact == {"a", "b"}
    assert spec.unknown_on == (KeyError,)
    assert spec.given == {"ignore", "redact", "unknown_on", "key"}
    assert make_spec("tool", {"unknown_on": ()}).unknown_on == ()


@every_decorator
def test_bare_with_options_and_with_empty_parentheses(decorate):
    for decorated in (decorate(tool), decorate()(tool), decorate(tool, name="t")):
        assert inspect.isfunction(decorated)
        assert decorated.__wrapped__ is tool


@every_decorator
def test_decorating_twice_is_decorating_once(decorate):
    once = decorate(tool)

    assert decorate(once) is once
    assert decorate()(once) is once
    assert decorate(functools.partial(once, 1)).func is once

    named = decorate(tool, name="t")
    assert decorate(named) is named
    assert decorate(named, name="t") is named


def test_a_second_decoration_may_add_options():
    bare = checkpointed_tool(tool)
    both = checkpointed_tool(bare, effect="read_only", ignore="a")
    third = checkpointed_tool(both, name="t")

    assert third.__wrapped__ is tool
    assert _wrapping.spec_of(third) == make_spec(
        "tool", {"effect": "read_only", "ignore": "a", "name": "t"}
    )
    assert _wrapping.spec_of(bare) == make_spec("tool", {})


def test_a_second_decoration_of_a_bound_method_keeps_its_instance():
    class Agent:
        @checkpointed_tool
        def send(self, to):
            return self, to

    agent = Agent()
    both = checkpointed_tool(agent.send, effect="read_only")

    assert checkpointed_tool(agent.send) == agent.send
    assert both.__self__ is agent
    assert _wrapping.spec_of(both).effect == "read_only"
    assert _wrapping.spec_of(agent.send).effect == "side_effect"


def test_contradicting_options_are_refused():
    read = checkpointed_tool(tool, effect="read_only")

    with pytest.raises(DecorationError, match=r"effect='read_only'.*'idempotent'"):
        checkpointed_tool(read, effect="idempotent")
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(read)
    with pytest.raises(DecorationError, match="a step already"):
        step_boundary(step_boundary(tool, name="a"), name="b")


def test_a_callable_option_from_a_cell_that_is_run_again_is_the_same():
    """The cell makes a new function object each time."""

    def cell(send, suffix):
        return checkpointed_tool(send, key=lambda call: call["a"] + suffix)

    once = cell(tool, "x")

    assert cell(once, "x") is once
    with pytest.raises(DecorationError, match="key"):
        cell(once, "y")
    with pytest.raises(DecorationError, match="key"):
        checkpointed_tool(once, key=lambda call: call["b"])


def test_a_decorator_in_between_is_covered_by_the_outer_one():
    """Both record the same call; the engine drops the inner record."""

    @functools.wraps(tool)
    def passed(*args):
        return inner(*args)

    inner = checkpointed_tool(tool, effect="read_only")
    between = functools.wraps(inner)(passed)
    outer = checkpointed_tool(between)

    assert _wrapping.front_of(outer).origin.covers == (tool,)
    assert _wrapping.spec_of(outer).effect == "read_only"
    with pytest.raises(DecorationError, match="effect"):
        checkpointed_tool(between, effect="idempotent")
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(between)


def test_a_step_and_a_record_of_one_function_go_together():
    both = step_boundary(checkpointed_tool(tool))
    other = checkpointed_tool(step_boundary(tool))

    assert _wrapping.spec_of(both) is None
    assert _wrapping.spec_of(both.__wrapped__) is not None
    assert _wrapping.spec_of(other) is not None
    assert _wrapping.front_of(other).origin.short_name == "tool"


def test_what_options_mean_does_not_depend_on_the_order():
    first = make_spec("tool", {"effect": "read_only"})
    second = make_spec("tool", {"name": "t"})

    assert merge(first, second) == merge(second, first)


def test_an_adapter_answers_for_objects_of_its_framework(monkeypatch):
    seen = []

    def adapt(obj, spec):
        if isinstance(obj, Invoked):
            seen.append(spec.effect)
            return obj
        return None

    monkeypatch.setitem(_frameworks.KNOWN, __name__, "found already")
    monkeypatch.setitem(_frameworks._found, __name__, Integration(adapt=adapt))
    framework = Invoked()

    assert checkpointed_tool(framework, effect="read_only") is framework
    assert checkpointed_tool(tool).__wrapped__ is tool
    assert seen == ["read_only"]


def test_errors_of_decoration_pickle_and_say_what_to_do():
    with pytest.raises(DecorationError) as refused:
        checkpointed_tool(Invoked())

    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value)
    assert "tool.invoke" in str(again)


def test_static_and_class_methods_of_other_types_keep_theirs():
    class Static(staticmethod):
        pass

    assert type(checkpointed_tool(Static(tool))) is Static
    assert type(checkpointed_tool(classmethod(tool))) is classmethod


def test_asynchronous_functions_take_options_too():
    @checkpointed_llm(transcript=False)
    async def ask(messages):
        return messages

    assert asyncio.iscoroutinefunction(ask)
    assert _wrapping.spec_of(ask).transcript is False
