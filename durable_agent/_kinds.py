"""What kind of function a callable is, told from its code and never remembered.

Live reloading replaces the code of a function in place, and with it the kind. A caller
that caches a kind keeps `code_holder` beside it and looks again when its code changed.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
from types import FunctionType, MethodType
from typing import Any, Final

from durable_agent._spec import underlying

#: How `asyncio` marks coroutine functions that are no ``async def``, before 3.12.
_ASYNCIO_MARK: Final = getattr(asyncio.coroutines, "_is_coroutine", object())


class Kind(enum.Enum):
    """What a call gives back, as far as the function tells."""

    #: Whatever the body returns, which may be lazy as well.
    PLAIN = enum.auto()
    #: A coroutine.
    COROUTINE = enum.auto()
    GENERATOR = enum.auto()
    ASYNC_GENERATOR = enum.auto()
    #: An awaitable when an event loop is running: a plain function around a coroutine
    #: function. Without a loop it may be a bridge that returns a value.
    AROUND_COROUTINE = enum.auto()


class _Codeless:
    """Stands for the function of callables that have none."""

    __code__ = None


CODELESS: Final = _Codeless()


def code_holder(obj: Any) -> Any:
    """Return the function whose ``__code__`` a call of ``obj`` enters first.

    Partials and bound methods are seen through; of a callable object it is the
    ``__call__`` of its class. ``CODELESS`` if there is none.
    """
    function = underlying(obj)
    if not isinstance(function, FunctionType):
        function = underlying(getattr(type(function), "__call__", None))  # noqa: B004 - the class's own
    return function if isinstance(function, FunctionType) else CODELESS


def kind_of(obj: Any) -> Kind:
    """Return what kind of function ``obj`` is now. Runs nothing of it."""
    code = code_holder(obj).__code__
    flags = code.co_flags if code is not None else 0
    if flags & inspect.CO_COROUTINE or _is_marked(underlying(obj)):
        return Kind.COROUTINE
    if flags & inspect.CO_ASYNC_GENERATOR:
        return Kind.ASYNC_GENERATOR
    if flags & inspect.CO_ITERABLE_COROUTINE or _is_around_coroutine(obj):
        return Kind.AROUND_COROUTINE
    if flags & inspect.CO_GENERATOR:
        return Kind.GENERATOR
    return Kind.PLAIN


def is_lazy(obj: Any) -> bool:
    """Whether calling ``obj`` binds the arguments and runs nothing at all.

    True of ``async def`` and generator functions themselves, not of what decorators of
    others made of them.
    """
    while type(obj) in {functools.partial, MethodType}:
        obj = obj.__func__ if type(obj) is MethodType else obj.func
    if type(obj) is not FunctionType:
        obj = getattr(type(obj), "__call__", None)  # noqa: B004 - the class's own
    if type(obj) is not FunctionType:
        return False
    return bool(
        obj.__code__.co_flags
        & (inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    )


def _is_marked(function: Any) -> bool:
    """Whether somebody said that it is a coroutine function."""
    mark = getattr(function, "_is_coroutine", None)
    return mark is _ASYNCIO_MARK or inspect.iscoroutinefunction(function)


def _is_around_coroutine(obj: Any) -> bool:
    """Whether it names a coroutine function as the one that it wraps."""
    try:
        inner = inspect.unwrap(underlying(obj))
    except ValueError:
        return False
    return inspect.iscoroutinefunction(inner)
