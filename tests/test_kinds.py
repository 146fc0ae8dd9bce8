"""The kind of a function is told from its code as it is now."""

import asyncio
import functools
import inspect
import sys

import pytest
import wrapt

from durable_agent._kinds import CODELESS, Kind, code_holder, is_lazy, kind_of


def plain(): ...


async def coroutine(): ...


def generator():
    yield


async def async_generator():
    yield


class Methods:
    def plain(self): ...

    async def coroutine(self): ...

    def generator(self):
        yield

    async def async_generator(self):
        yield

    @classmethod
    async def of_class(cls): ...

    @staticmethod
    async def static(): ...


class AsyncCallable:
    async def __call__(self): ...


class GeneratorCallable:
    def __call__(self):
        yield


@functools.wraps(coroutine)
def around_coroutine():
    return coroutine()


def looped(): ...


looped.__wrapped__ = looped

KINDS = [
    (plain, Kind.PLAIN),
    (coroutine, Kind.COROUTINE),
    (generator, Kind.GENERATOR),
    (async_generator, Kind.ASYNC_GENERATOR),
    (Methods().plain, Kind.PLAIN),
    (Methods().coroutine, Kind.COROUTINE),
    (Methods().generator, Kind.GENERATOR),
    (Methods().async_generator, Kind.ASYNC_GENERATOR),
    (Methods.of_class, Kind.COROUTINE),
    (Methods.static, Kind.COROUTINE),
    (functools.partial(coroutine), Kind.COROUTINE),
    (functools.partial(functools.partial(async_generator)), Kind.ASYNC_GENERATOR),
    (functools.partial(Methods().generator), Kind.GENERATOR),
    (AsyncCallable(), Kind.COROUTINE),
    (functools.partial(AsyncCallable()), Kind.COROUTINE),
    (GeneratorCallable(), Kind.GENERATOR),
    (around_coroutine, Kind.AROUND_COROUTINE),
    (functools.lru_cache(coroutine), Kind.AROUND_COROUTINE),
    (looped, Kind.PLAIN),
    (len, Kind.PLAIN),
    ("".join, Kind.PLAIN),
]


@pytest.mark.parametrize(("obj", "kind"), KINDS, ids=range(len(KINDS)))
def test_every_kind_of_callable_is_told_apart(obj, kind):
    assert kind_of(obj) is kind


def test_a_generator_function_that_makes_awaitables_is_awaited():
    import types

    @types.coroutine
    def suspend():
        yield

    assert kind_of(suspend) is Kind.AROUND_COROUTINE


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in 3.12")
def test_a_marked_plain_function_is_a_coroutine_function():
    @inspect.markcoroutinefunction
    def marked(): ...

    assert kind_of(marked) is Kind.COROUTINE
    assert not is_lazy(marked)


def test_the_older_mark_of_asyncio_is_known_too():
    """Libraries that support 3.11 mark so where ``inspect`` has no mark."""

    def marked(): ...

    marked._is_coroutine = asyncio.coroutines._is_coroutine

    assert kind_of(marked) is Kind.COROUTINE


@pytest.mark.filterwarnings("ignore:Assigning a code object:DeprecationWarning")
def test_the_kind_follows_code_that_is_replaced_in_place():
    def reloaded(): ...

    assert kind_of(reloaded) is Kind.PLAIN

    reloaded.__code__ = coroutine.__code__

    assert kind_of(reloaded) is Kind.COROUTINE


def test_only_functions_themselves_are_lazy():
    """A decorator of somebody else's may do anything when it is called."""
    foreign = wrapt.FunctionWrapper(coroutine, lambda fn, _self, a, k: fn(*a, **k))

    assert is_lazy(coroutine)
    assert is_lazy(functools.partial(Methods().async_generator))
    assert is_lazy(AsyncCallable())
    assert kind_of(foreign) is Kind.COROUTINE
    assert not is_lazy(foreign)
    assert not is_lazy(around_coroutine)
    assert not is_lazy(plain)
    assert not is_lazy(len)


def test_a_callable_without_code_has_a_stand_in():
    assert code_holder(len) is CODELESS
    assert code_holder(AsyncCallable()) is AsyncCallable.__call__
    assert code_holder(functools.partial(Methods().plain)) is Methods.plain
