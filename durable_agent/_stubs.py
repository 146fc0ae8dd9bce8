"""Functions that take the arguments of another one and return them, at full speed."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable


def is_honest(function: Any) -> bool:
    """Whether a plain function has the signature that it shows."""
    if type(function) is not FunctionType:
        return False
    return not vars(function).keys() & {"__wrapped__", "__signature__"}


def make_stub(function: Any, bound: bool) -> Callable[..., dict[str, Any]]:
    """Return a function with the parameters of ``function`` that returns them.

    The dictionary is in the signature's order. With ``bound``, it lacks the first
    argument.
    """
    code = function.__code__
    names = list(code.co_varnames)
    positional = names[: code.co_argcount]
    keyword = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest = names[code.co_argcount + code.co_kwonlyargcount :]
    stars = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ""
    more = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else ""
    given = [*positional]
    if code.co_posonlyargcount:
        given.insert(code.co_posonlyargcount, "/")
    if stars or keyword:
        given.append(f"*{stars}")
    given += keyword
    if more:
        given.append(f"**{more}")
    values = {name: name for name in [*positional, stars, *keyword, more] if name}
    if bound and positional:
        del values[positional[0]]
    elif bound and stars:
        values[stars] = f"{stars}[1:]"
    items = ", ".join(f"{name!r}: {value}" for name, value in values.items())
    scope: dict[str, Any] = {}
    # Only identifiers that the compiler already accepted as parameters are in it.
    exec(f"def stub({', '.join(given)}): return {{{items}}}", scope)  # noqa: S102
    stub: Any = scope["stub"]
    stub.__name__, stub.__qualname__ = function.__name__, function.__qualname__
    stub.__defaults__ = function.__defaults__
    stub.__kwdefaults__ = function.__kwdefaults__
    return cast("Callable[..., dict[str, Any]]", stub)
