"""What a call was given: the arguments that identity and record are made of."""

# ruff: noqa: PLR0917 - own pickles; parameters are the point

import functools
import runpy
import subprocess
import sys

import pytest

from durable_agent._spec import Origin, Target, bind, module_name, target


def tool(a, b=5, /, c=6, *rest, d=7, **more): ...


def five(a=5): ...


class Agent:
    def send(self, to, *, copy=False): ...

    @classmethod
    def make(cls, name): ...


class Search:
    def __call__(self, query, limit=3): ...


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((5,), {}), ((), {"a": 5})])
def test_the_forms_of_one_call_bind_alike(args, kwargs):
    assert bind(target(five), args, kwargs) == {"a": 5}


def test_keyword_order_is_that_of_the_signature():
    first = bind(target(tool), (1,), {"d": 2, "c": 3})
    second = bind(target(tool), (1,), {"c": 3, "d": 2})

    assert list(first) == list(second) == ["a", "b", "c", "rest", "d", "more"]


def test_variadic_and_positional_only_arguments_stay_apart():
    """``f(1, 2)`` and ``f(1, b=2)`` are different calls here."""
    positional = bind(target(tool), (1, 2), {})
    keyword = bind(target(tool), (1,), {"b": 2})

    assert positional["b"] == 2
    assert positional["more"] == {}
    assert keyword["b"] == 5
    assert keyword["more"] == {"b": 2}


def test_self_and_cls_are_left_out():
    assert bind(target(Agent().send), ("x",), {}) == {"to": "x", "copy": False}
    assert bind(target(Agent.make), ("n",), {}) == {"name": "n"}
    assert bind(target(Search()), ("q",), {}) == {"query": "q", "limit": 3}


def test_fixed_arguments_of_partials_count():
    nested = functools.partial(functools.partial(tool, 1), 2, d=4)

    bound = bind(target(nested), (3,), {"e": 5})

    assert bound == {"a": 1, "b": 2, "c": 3, "rest": (), "d": 4, "more": {"e": 5}}
    assert target(nested).short_name == "tool"
    assert bind(target(functools.partial(Agent().send, "x")), (), {})["to"] == "x"


def test_parameters_may_have_any_name():
    def odd(wrapped, instance, target, args, kwargs, function): ...

    names = ["wrapped", "instance", "target", "args", "kwargs", "function"]

    assert list(bind(target(odd), (), dict.fromkeys(names, 1))) == names


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"z": 1}), ((1,), {"a": 1})]
)
def test_a_call_that_does_not_fit_raises_what_the_function_raises(args, kwargs):
    ran = []

    def one(a):
        ran.append(a)

    with pytest.raises(TypeError) as called:
        one(*args, **kwargs)
    with pytest.raises(TypeError) as bound:
        bind(target(one), args, kwargs)

    assert str(bound.value) == str(called.value)
    assert ran == []


def test_a_decorator_below_may_take_arguments_of_its_own():
    """What it names as wrapped need not have its signature."""
    ran = []

    @functools.wraps(five)
    def with_timeout(*args, timeout, **kwargs):
        ran.append(timeout)

    assert bind(target(with_timeout), (1,), {"timeout": 3}) == {
        "args": (1,),
        "timeout": 3,
        "kwargs": {},
    }
    with pytest.raises(TypeError, match=r"five\(\)"):
        bind(target(with_timeout), (1, 2), {})
    assert ran == []


def test_a_callable_without_a_signature_binds_anything():
    class Untold:
        @property
        def __signature__(self):
            raise ValueError

        def __call__(self, x): ...

    assert bind(target(Untold()), (1,), {"b": 2}) == {"args": (1,), "kwargs": {"b": 2}}


def test_the_signature_follows_code_that_is_replaced_in_place():
    def reloaded(a): ...

    def edited(a, b=2): ...

    here = target(reloaded)
    assert bind(here, (1,), {}) == {"a": 1}

    reloaded.__code__, reloaded.__defaults__ = edited.__code__, edited.__defaults__

    assert bind(here, (1,), {}) == {"a": 1, "b": 2}


def test_names_are_module_and_qualname():
    assert target(Agent().send).qualified_name == f"{__name__}:Agent.send"
    assert target(Search()).qualified_name == f"{__name__}:Search"
    assert target(Search()).short_name == "Search"
    assert target([].append).qualified_name == "builtins:list.append"
    assert target(len).qualified_name == "builtins:len"
    assert Target(five, Origin(five)).function is five


SCRIPT = """
from durable_agent._spec import target
def tool(): ...
print(target(tool).qualified_name)
"""


def test_a_script_is_named_by_its_file(tmp_path):
    """The same function keeps its name when the script is imported."""
    (tmp_path / "agent.py").write_text(SCRIPT)

    assert _output([str(tmp_path / "agent.py")], tmp_path) == "agent:tool"


def test_a_module_run_as_a_program_is_named_by_its_spec(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "agent.py").write_text(SCRIPT)

    assert _output(["-m", "shop.agent"], tmp_path) == "shop.agent:tool"


def test_code_without_a_file_is_named_main(tmp_path):
    assert _output(["-c", SCRIPT], tmp_path) == "__main__:tool"


def test_other_modules_keep_their_names():
    assert module_name("os.path") == "os.path"
    assert module_name(runpy.__name__) == "runpy"


def _output(arguments, cwd):
    import durable_agent

    root = durable_agent.__path__[0].rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env={"PYTHONPATH": root},
    )
    return done.stdout.strip()
