"""A decorated function looks, pickles and fails like the undecorated one."""

# ruff: noqa: S301, S102, PLR0917 - own pickles; parameters are the point

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import sys
import types
import typing
from collections import abc
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from durable_agent import _wrapping, inspect_session, session
from durable_agent._kinds import Kind
from durable_agent._spec import bind
from durable_agent.decorators import checkpointed_llm, checkpointed_tool, step_boundary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

#: The functions are called without a session here.
pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning")


def plain(a: int, *, b: Annotated[str, "note"] = "") -> tuple[int, str]:
    """Say what."""
    return a, b


async def coroutine(a: int, *, b: str = "") -> tuple[int, str]:
    """Say what."""
    await asyncio.sleep(0)
    return a, b


def generator(a: int, *, b: str = "") -> Iterator[Any]:
    """Say what."""
    got = yield a
    return (b, got)


async def async_generator(a: int, *, b: str = "") -> AsyncIterator[Any]:
    """Say what."""
    got = yield a
    yield (b, got)


class Callable_:
    """An object that is called."""

    limit = 3

    def __call__(self, a: int, *, b: str = "") -> tuple[int, str]:
        return a, b

    def other(self) -> int:
        return self.limit


class AsyncCallable(Callable_):
    async def __call__(self, a: int, *, b: str = "") -> tuple[int, str]:
        return a, b


FUNCTIONS = [plain, coroutine, generator, async_generator]
CALLABLES = [
    *FUNCTIONS,
    Callable_(),
    AsyncCallable(),
    functools.partial(coroutine, b="x"),
    functools.lru_cache(plain),
    len,
]
DECORATORS = [checkpointed_llm, checkpointed_tool, step_boundary]
PREDICATES = [
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
    asyncio.iscoroutinefunction,
    inspect.isfunction,
    inspect.isroutine,
    inspect.ismethod,
    inspect.isclass,
    inspect.isbuiltin,
    inspect.isawaitable,
    inspect.isgenerator,
    callable,
]

every_decorator = pytest.mark.parametrize(
    "decorate", DECORATORS, ids=["llm", "tool", "step"]
)
every_callable = pytest.mark.parametrize(
    "fn", CALLABLES, ids=[str(n) for n in range(len(CALLABLES))]
)
every_function = pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)


@every_decorator
@every_callable
def test_the_kind_is_that_of_the_undecorated(decorate, fn):
    decorated = decorate(fn)

    assert [is_(decorated) for is_ in PREDICATES] == [is_(fn) for is_ in PREDICATES]
    for is_ in PREDICATES[:4]:
        assert is_(decorated.__call__) == is_(fn.__call__)


@every_decorator
@every_callable
def test_the_signature_is_that_of_the_undecorated(decorate, fn):
    assert inspect.signature(decorate(fn)) == inspect.signature(fn)


@every_decorator
@every_function
def test_names_documentation_and_annotations_are_kept(decorate, fn):
    decorated = decorate(fn)

    assert inspect.getfullargspec(decorated) == inspect.getfullargspec(fn)
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__annotations__",
        "__defaults__",
        "__kwdefaults__",
        "__code__",
        "__globals__",
    ):
        assert getattr(decorated, name) == getattr(fn, name)
    assert inspect.getsource(decorated) == inspect.getsource(fn)
    assert str(decorated) == str(fn)


@every_function
def test_postponed_annotations_resolve(fn, monkeypatch):
    """Names that are imported for the type checker only fail, or not, alike."""
    decorated = checkpointed_tool(fn)

    def hints(of):
        try:
            return typing.get_type_hints(of, include_extras=True)
        except NameError as error:
            return str(error)

    assert hints(decorated) == hints(fn)
    assert hints(checkpointed_tool(plain))["b"] == Annotated[str, "note"]

    namespace = {name: getattr(abc, name) for name in ("Iterator", "AsyncIterator")}
    for_checker = typing.get_type_hints(decorated, localns=namespace)
    assert for_checker == typing.get_type_hints(fn, localns=namespace)


@every_decorator
def test_every_kind_gives_what_it_gives_undecorated(decorate):
    async def consume():
        return [item async for item in decorate(async_generator)(1, b="x")]

    items = decorate(generator)(1, b="x")
    with pytest.raises(StopIteration) as stopped:
        next(items)
        items.send("sent")

    assert decorate(plain)(1, b="x") == (1, "x")
    assert asyncio.run(decorate(coroutine)(1, b="x")) == (1, "x")
    assert stopped.value.value == ("x", "sent")
    assert asyncio.run(consume()) == [1, ("x", None)]
    assert decorate(Callable_())(1, b="x") == (1, "x")
    assert asyncio.run(decorate(AsyncCallable())(1, b="x")) == (1, "x")
    assert asyncio.run(decorate(functools.partial(coroutine, 1))(b="x")) == (1, "x")


@every_decorator
def test_what_is_sent_or_thrown_into_a_generator_arrives(decorate):
    def echo():
        try:
            yield (yield 1)
        except KeyError as error:
            yield error

    async def aecho():
        try:
            yield (yield 1)
        except KeyError as error:
            yield error

    error = KeyError()
    items = decorate(echo)()

    async def consume():
        items = decorate(aecho)()
        return [
            await items.asend(None),
            await items.asend(2),
            await items.athrow(error),
        ]

    assert [next(items), items.send(2), items.throw(error)] == [1, 2, error]
    assert asyncio.run(consume()) == [1, 2, error]


@every_decorator
def test_coroutines_and_generators_are_named_after_the_function(decorate):
    """Tracebacks, task names and "never awaited" warnings say which tool it was."""
    made = [
        decorate(coroutine)(1),
        decorate(generator)(1),
        decorate(async_generator)(1),
        decorate(AsyncCallable())(1),
    ]

    assert [one.__name__ for one in made] == [
        "coroutine",
        "generator",
        "async_generator",
        "__call__",
    ]
    assert made[3].__qualname__ == "AsyncCallable.__call__"
    assert [inspect.iscoroutine(one) for one in made] == [True, False, False, True]
    assert inspect.isgenerator(made[1])
    assert inspect.isasyncgen(made[2])
    for one in (made[0], made[3]):
        one.close()


@every_decorator
@every_function
def test_arguments_that_do_not_fit_are_refused_at_once(decorate, fn):
    """A dispatcher that catches `TypeError` around the call must see it there."""
    with pytest.raises(TypeError) as undecorated:
        fn()
    with pytest.raises(TypeError) as decorated:
        decorate(fn)()

    assert str(decorated.value) == str(undecorated.value)


def test_the_exception_is_the_body_s_own():
    error = ValueError("no")
    error.__suppress_context__ = True

    @checkpointed_tool
    def fail():
        raise error

    with pytest.raises(ValueError) as raised:
        fail()

    assert raised.value is error
    assert error.__cause__ is error.__context__ is None


def test_a_coroutine_runs_nothing_before_it_is_awaited(monkeypatch):
    """Never awaited: no record, and no call that was begun (DA-070)."""
    log = []

    async def acall(_spec, target, args, kwargs):
        log.append(("intent", target.short_name))
        try:
            return await target.fn(*args, **kwargs)
        finally:
            log.append(("outcome", target.short_name))

    monkeypatch.setitem(_wrapping._RUNNERS, Kind.COROUTINE, acall)
    tool = checkpointed_tool(coroutine)

    async def later():
        made = tool(1)
        await asyncio.sleep(0)
        assert log == []
        return await asyncio.create_task(made)

    assert asyncio.run(later()) == (1, "")
    assert log == [("intent", "coroutine"), ("outcome", "coroutine")]

    log.clear()
    forgotten = [tool(1)]
    with pytest.warns(RuntimeWarning, match="'coroutine' was never awaited"):
        forgotten.clear()
    assert log == []


def test_a_plain_function_around_a_coroutine_function_is_awaited_in_a_loop(monkeypatch):
    """So are the methods of asynchronous SDK clients; no sync may block the loop."""
    drives = []
    for name in ("call", "acall"):
        real = getattr(_wrapping._calls, name)
        monkeypatch.setattr(
            _wrapping._calls,
            name,
            lambda *a, _n=name, _r=real: drives.append(_n) or _r(*a),
        )

    @functools.wraps(coroutine)
    def create(*args, **kwargs):
        return coroutine(*args, **kwargs)

    @functools.wraps(coroutine)
    def bridge(*args, **kwargs):
        return asyncio.run(coroutine(*args, **kwargs))

    async def main():
        return await checkpointed_llm(create)(1)

    assert asyncio.run(main()) == (1, "")
    assert checkpointed_llm(bridge)(1) == (1, "")
    assert drives == ["acall", "call"]


@pytest.mark.filterwarnings("ignore:Assigning a code object:DeprecationWarning")
def test_live_reloading_swaps_code_and_kind():
    """``%autoreload`` puts new code into the old function; the wrapper stays."""

    def tool(a):
        return a

    async def edited(a, b=2):
        return a, b

    decorated = checkpointed_tool(tool)
    assert decorated(1) == 1

    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        setattr(decorated, name, getattr(edited, name))

    assert inspect.iscoroutinefunction(decorated)
    assert asyncio.run(decorated(1)) == (1, 2)


def test_attributes_pass_through_both_ways():
    def tool(): ...

    decorated = checkpointed_tool(tool)
    decorated.schema = {"type": "object"}
    tool.other = 1

    assert tool.schema == {"type": "object"}
    assert decorated.other == 1
    assert vars(decorated) == vars(tool)
    del decorated.schema
    assert not hasattr(tool, "schema")


def test_a_callable_object_stays_an_instance_of_its_class():
    decorated = checkpointed_tool(Callable_())
    decorated.limit = 4

    assert isinstance(decorated, Callable_)
    assert decorated.other() == 4
    assert decorated.__call__(1) == (1, "")
    assert not hasattr(type(decorated), "__get__")


@checkpointed_tool
def at_module_level(a):
    return a


later = checkpointed_tool(plain)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_functions_pickle_by_name(protocol):
    def again(obj):
        return pickle.loads(pickle.dumps(obj, protocol))

    assert again(at_module_level) is at_module_level
    assert again(later)(1) == (1, "")
    assert type(again(later)) is type(later)
    assert again(checkpointed_tool(Callable_()))(1) == (1, "")
    assert asyncio.run(again(checkpointed_tool(AsyncCallable()))(1)) == (1, "")
    assert again(checkpointed_tool(functools.partial(plain, 1)))(b="x") == (1, "x")
    assert again(step_boundary(name="s")(functools.partial(plain, 1)))() == (1, "")


def test_what_does_not_pickle_by_name_is_refused_as_undecorated():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(checkpointed_tool(lambda: None))


def test_options_survive_pickling():
    tool = checkpointed_tool(
        functools.partial(plain, 1), effect="read_only", ignore="b"
    )

    restored = pickle.loads(pickle.dumps(tool))

    assert _wrapping.spec_of(restored) == _wrapping.spec_of(tool)


def test_functions_copy_as_themselves():
    assert copy.copy(at_module_level) is at_module_level
    assert copy.deepcopy({"tool": at_module_level})["tool"] is at_module_level


def test_callable_objects_copy_with_their_state_and_stay_decorated():
    original = Callable_()
    original.seen = []
    decorated = checkpointed_tool(original, effect="read_only")

    shallow, deep = copy.copy(decorated), copy.deepcopy(decorated)

    assert shallow.seen is original.seen
    assert deep.seen == []
    assert deep.seen is not original.seen
    for one in (shallow, deep):
        assert _wrapping.spec_of(one) == _wrapping.spec_of(decorated)
        assert one(1) == (1, "")


def test_a_parameter_may_have_any_name(monkeypatch):
    calls = []

    def call(_spec, target, args, kwargs):
        calls.append(bind(target, args, kwargs))
        return target.fn(*args, **kwargs)

    monkeypatch.setitem(_wrapping._RUNNERS, Kind.PLAIN, call)
    names = dict.fromkeys(("self", "fn", "wrapped", "instance", "args", "kwargs"), 1)

    @checkpointed_tool
    def tool(self, fn, wrapped, instance, args, kwargs):
        return self, fn, wrapped, instance, args, kwargs

    assert tool(**names) == (1,) * 6
    assert calls == [names]


def test_the_modules_of_functions_need_not_be_loaded():
    """As of functions whose module was removed from ``sys.modules`` by a reload."""
    source = types.ModuleType("short_lived")
    exec("def tool(a): return a", vars(source))
    tool = checkpointed_tool(source.tool)

    assert "short_lived" not in sys.modules
    assert tool(1) == 1
    with pytest.raises((pickle.PicklingError, ModuleNotFoundError)):
        pickle.dumps(tool)


def test_a_cache_by_function_tells_the_decorated_from_the_undecorated_one(root):
    """Frameworks keep what they made of a function; the plain one records nothing."""
    made = functools.lru_cache(lambda fn: functools.partial(fn, 5))

    def tool(n):
        return n

    decorated = checkpointed_tool(tool)
    assert made(tool)() == 5
    with session("s", root=root):
        assert made(decorated)() == 5

    assert decorated != tool
    assert tool != decorated
    assert decorated == checkpointed_tool(tool)
    assert decorated != checkpointed_tool(tool, effect="read_only")
    assert len({tool, decorated, checkpointed_tool(tool)}) == 2
    with inspect_session("s", root=root) as looked:
        assert [e.type for e in looked.events()].count("tool/call") == 1


def test_bound_methods_of_one_object_are_equal():
    class Agent:
        @checkpointed_tool
        def run(self):
            """Run."""

    agent = Agent()

    assert agent.run == agent.run
    assert agent.run != Agent().run
