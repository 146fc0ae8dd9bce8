"""What decorating an object comes to: a wrapper, the same object, or a refusal.

Nothing may look recorded and not be: what a framework would walk around, and what has
no call to record, is refused with what to do instead.
"""

from __future__ import annotations

import functools
import inspect
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from durable_agent import _frameworks
from durable_agent._options import check_parameters, merge
from durable_agent._spec import Spec
from durable_agent._wrapping import Front, Wrapper, front_of, recorded, wrap
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Methods by which frameworks run their tools and models, past ``__call__``.
_ENTRANCES: Final = (
    "invoke",
    "ainvoke",
    "run",
    "arun",
    "run_json",
    "acall",
    "on_invoke_tool",
)

_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def decorate(obj: Any, how: Spec | str | None) -> Any:
    """Return ``obj`` decorated: recorded as a `Spec` says, or run as a named step.

    Of a ``staticmethod``, ``classmethod`` or ``partialmethod`` the function inside is.
    What is decorated already is returned itself, unless the options add something.
    Raises `DecorationError`.
    """
    _refuse_kinds(obj)
    if isinstance(obj, staticmethod | classmethod):
        return type(obj)(decorate(obj.__func__, how))
    if isinstance(obj, functools.partialmethod):
        inner = decorate(obj.func, how)
        return type(obj)(inner, *obj.args, **obj.keywords)
    decorated = _decorated_already(obj, how)
    if decorated is not None:
        return decorated
    if isinstance(how, Spec):
        _frameworks.prepare()
        for integration in _frameworks.integrations():
            adapted = integration.adapt(obj, how)
            if adapted is not None:
                return adapted
    _refuse_objects(obj)
    if isinstance(how, Spec):
        check_parameters(how, obj)
        for front in recorded(obj):
            # A decorator in between calls the inner one: both are one call, and what
            # is stated further in holds for it.
            how = merge(front.how, how) if isinstance(front.how, Spec) else how
    return wrap(obj, Front(obj, how))


def _decorated_already(obj: Any, how: Spec | str | None) -> Any:
    """Return the decorated object to use in place of decorating ``obj``, or None."""
    if isinstance(obj, functools.partial):
        # A call of the partial is a call of what is inside.
        inner = _decorated_already(obj.func, how)
        if inner is None:
            return None
        same = inner is obj.func
        return obj if same else type(obj)(inner, *obj.args, **obj.keywords)
    front = front_of(obj)
    both = None if front is None else _both(front.how, how)
    if front is None or both is None or both == front.how:
        return None if both is None else obj
    if isinstance(obj, Wrapper):
        return wrap(obj.__wrapped__, Front(obj.__wrapped__, both))
    function = obj.__func__.__wrapped__
    return MethodType(Front(function, both).view, obj.__self__)


def _both(first: Spec | str, second: Spec | str | None) -> Spec | str | None:
    """Return two decorations as one; None if one is a step and one is recorded."""
    if isinstance(first, Spec) and isinstance(second, Spec):
        return merge(first, second)
    if isinstance(first, Spec) or isinstance(second, Spec):
        return None
    if second is not None and first != second:
        raise DecorationError(
            f"It is a step already, named {first!r}, not {second!r}.",
            advice="Use `with step_boundary(…)` inside it for a step within the step.",
        )
    return first


def _refuse_kinds(obj: Any) -> None:
    """Refuse what is not a function and only looks like one."""
    if isinstance(obj, type):
        raise DecorationError(
            f"{obj.__qualname__} is a class: its calls make objects.",
            advice="Decorate its methods, or an object of it that can be called.",
        )
    if isinstance(obj, property | functools.cached_property):
        raise DecorationError(
            "A property is read, not called.",
            advice="Decorate the function inside: `@property` above the decorator, "
            "or a method.",
        )
    if isinstance(obj, functools.singledispatchmethod):
        raise DecorationError(
            "A singledispatchmethod has no single function to record.",
            advice="Decorate the methods that are registered with it.",
        )
    made = (
        inspect.isawaitable(obj) or inspect.isgenerator(obj) or inspect.isasyncgen(obj)
    )
    if made and not callable(obj):
        raise DecorationError(
            f"{type(obj).__qualname__} objects are calls that were made already.",
            advice="Decorate the function, without calling it.",
        )


def _refuse_objects(obj: Any) -> None:
    """Refuse what cannot be called, or would be called past the wrapper."""
    name = type(obj).__qualname__
    if isinstance(obj, _FUNCTIONS):
        return
    for entrance in _ENTRANCES:
        if inspect.getattr_static(obj, entrance, None) is not None:
            raise DecorationError(
                f"{name} objects run by .{entrance}(), and no integration knows them: "
                "it would look recorded, and not be.",
                advice="Decorate the function that it is made from, innermost; or "
                f"the bound method, as in `checkpointed_tool(tool.{entrance})`.",
            )
    if not callable(obj):
        raise DecorationError(
            f"{name} objects cannot be called.",
            advice="Decorate a function or a bound method, such as "
            "`client.chat.completions.create`.",
        )


def decorator(how: Spec) -> Callable[[Any], Any]:
    """Return the decorator that the options make."""

    def apply(obj: Any, /) -> Any:
        return decorate(obj, how)

    return apply
