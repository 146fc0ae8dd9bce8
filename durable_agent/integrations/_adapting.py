"""What adapters of several frameworks do alike."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import inspect
import types
from types import FunctionType
from typing import TYPE_CHECKING, Any

from durable_agent._value_names import loaded
from durable_agent._wrapping import Wrapper, front_of
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def version_of(distribution: str) -> str:
    """Return a distribution's name and version, for messages."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (version unknown)"


def is_a(obj: Any, module: str, name: str) -> bool:
    """Whether an object is of a class of a framework, if that is loaded."""
    cls = loaded(module, name)
    return isinstance(cls, type) and isinstance(obj, cls)


def refuse(obj: Any, refused: Iterable[tuple[str, str, str]]) -> None:
    """Refuse what cannot be recorded itself: (module, class, what to do instead)."""
    for module, name, advice in refused:
        if is_a(obj, module, name):
            raise DecorationError(
                f"{type(obj).__qualname__} objects have no calls of their own that "
                "could be recorded.",
                advice=advice,
            )


def demand_kind(obj: Any, kind: str, wanted: str) -> None:
    """Refuse the decorator that is not for such objects."""
    if kind != wanted:
        words = {"tool": "tools", "llm": "models"}
        raise DecorationError(
            f"{type(obj).__qualname__} objects are no {words[kind]}.",
            advice=f"Use checkpointed_{wanted}.",
        )


def unknown_version(what: str, missing: str, distribution: str) -> DecorationError:
    """Return the error of a version that lacks what an adapter needs."""
    return DecorationError(
        f"{what} of {version_of(distribution)} has no {missing}: this version is not "
        "known, and it would look recorded and not be.",
        advice="Decorate the function that it is made from, innermost.",
    )


def demand(cls: type, names: Iterable[str], distribution: str) -> None:
    """Refuse a class that lacks one of these attributes."""
    missing = [name for name in names if not hasattr(cls, name)]
    if missing:
        raise unknown_version(cls.__qualname__, ", ".join(missing), distribution)


def function_of(cls: type, method: str) -> Any:
    """Return what a class has under a name, not bound to anything."""
    for owner in cls.__mro__:
        if method in vars(owner):
            return vars(owner)[method]
    raise AttributeError(method)


def method_of(cls: type, method: str) -> Any:
    """Return the same as a function, where a decorator of others made an object of it.

    Such an object makes another one each time that it is bound, which tells nothing.
    """
    found = function_of(cls, method)
    if issubclass(type(found), FunctionType | Wrapper):
        return found
    if inspect.iscoroutinefunction(found):

        @functools.wraps(found)
        async def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await found.__get__(self, type(self))(*args, **kwargs)

        return run

    @functools.wraps(found)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return found.__get__(self, type(self))(*args, **kwargs)

    return call


def subclass_of(cls: type, namespace: Mapping[str, Any]) -> type:
    """Return a subclass that has the name of the class, with this in it.

    Its objects can be copied, and cannot be pickled: a process that loads one would not
    have the class.
    """
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": _no_pickle,
        **namespace,
    }
    copying = {"__copy__": _copy, "__deepcopy__": _deepcopy}
    body |= {name: fn for name, fn in copying.items() if not hasattr(cls, name)}
    return types.new_class(cls.__name__, (cls,), {}, lambda ns: ns.update(body))


def with_state(cls: type, state: dict[str, Any]) -> Any:
    """Return an object of a class that was not constructed, with this very state."""
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", state)
    return made


def _copy(self: Any) -> Any:
    return with_state(type(self), {**self.__dict__})


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    made = memo[id(self)] = with_state(type(self), {})
    if getattr(type(self), "__setstate__", None) is not None:
        # It leaves out what cannot be copied, such as locks.
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
    else:
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def _no_pickle(self: Any, _protocol: Any) -> Any:
    msg = f"an adapted {type(self).__qualname__} cannot be pickled: adapt it there"
    raise TypeError(msg)


def replaced(value: Any, base: type, shown: Callable[[Any], Any]) -> Any:
    """Return a value with the objects of a class in its lists and dicts replaced."""
    if isinstance(value, base):
        return shown(value)
    if type(value) is list:
        return [replaced(each, base, shown) for each in value]
    if type(value) is dict:
        return {name: replaced(each, base, shown) for name, each in value.items()}
    return value


def cover_each_other(decorated: Iterable[Any]) -> None:
    """Let what one of these calls among the others be the same call as its own."""
    fronts = [front_of(each) for each in decorated if isinstance(each, Wrapper)]
    functions = tuple(f.origin.function for f in fronts if f is not None)
    for front in fronts:
        if front is not None:
            front.origin.covers = (*front.origin.covers, *functions)
