"""The objects that stand for decorated functions, and the calls they pass on.

A wrapper is a transparent proxy: name, signature, code, documentation and attributes
are those of the function, so that inspection, live reloading and pickling by name see
the function itself. As a method it binds to a real bound method. It holds no state of
calls; one `Front` beside it knows how they are to be run.
"""

from __future__ import annotations

import asyncio
import copy
import operator
import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from durable_agent import _calls, _managers, _step_runs, _streams
from durable_agent._current import TOOL_NAMES
from durable_agent._kinds import CODELESS, Kind, code_holder, is_lazy, kind_of
from durable_agent._spec import Origin, Spec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    class _Proxy:
        """What is used of the proxy, which has no types of its own."""

        __wrapped__: Any
        # Not in the classes below: annotations of a class would hide the function's.
        _self_front: Front

        def __init__(self, wrapped: Any, /) -> None: ...

else:
    from wrapt import BaseObjectProxy as _Proxy

_new_tuple: Final[Any] = tuple.__new__

#: Equal to no code object.
_NO_CODE: Final = object()

#: A chain of decorators longer than this is a cycle.
_CHAIN_LIMIT: Final = 100


def _call_around_coroutine(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call a plain function around a coroutine function.

    Where an event loop runs it is awaited, so that no sync of the log blocks the loop;
    of a model, or entered. Elsewhere it may be a bridge that returns a value.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _calls.call(spec, target, args, kwargs)
    made = _calls.acall(spec, target, args, kwargs)
    return _managers.Awaited(made) if spec.kind == "llm" else made


#: How a recorded call of each kind of function runs.
_RUNNERS: Final[dict[Kind, Callable[..., Any]]] = {
    Kind.PLAIN: _calls.call,
    Kind.COROUTINE: _calls.acall,
    Kind.GENERATOR: _streams.generate,
    Kind.ASYNC_GENERATOR: _streams.agenerate,
    Kind.AROUND_COROUTINE: _call_around_coroutine,
}


class Front:
    """How the calls of one decorated function run.

    ``how`` is the `Spec` of recorded calls, or the name of a step, by default that of
    the function.
    """

    __slots__ = (
        "_class_name",
        "_code",
        "_lazy",
        "holder",
        "how",
        "origin",
        "owned",
        "plain_code",
        "runner",
        "target",
        "view",
    )

    def __init__(self, fn: Any, how: Spec | str | None) -> None:
        self.origin = Origin(fn)
        self.how = self.origin.short_name if how is None else how
        if isinstance(how, Spec) and how.kind == "tool" and not callable(how.name):
            short = None if callable(how.short) else how.short
            TOOL_NAMES.add(short or how.name or self.origin.short_name)
        self.origin.covers = tuple(front.origin.function for front in recorded(fn))
        self.target = Target(fn, self.origin)
        #: What bound methods hold in place of a plain function; else None.
        self.view: Any = Receiver(fn, self) if type(fn) is FunctionType else None
        self.holder = code_holder(fn)
        self._look()
        name = getattr(fn, "__qualname__", "")
        self._class_name = name.rpartition(".")[0] if isinstance(name, str) else ""
        #: Whether it lives in a class, so that a first argument may be the receiver.
        self.owned = bool(
            self._class_name
            and not self._class_name.endswith("<locals>")
            and not isinstance(fn, MethodType)
        )

    def _look(self) -> None:
        """Tell the kind from the code that the function has now."""
        fn = self.target.fn
        self._code = self.holder.__code__
        kind = kind_of(fn)
        runners = _RUNNERS if isinstance(self.how, Spec) else _step_runs.RUNNERS
        self.runner = runners[kind]
        plain = kind in {Kind.PLAIN, Kind.AROUND_COROUTINE}
        #: The code with which ``runner`` may be called at once.
        self.plain_code = self._code if plain else _NO_CODE
        self._lazy = not plain and is_lazy(fn)

    def run(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call whose function is already bound."""
        if self.holder.__code__ is not self._code:
            self._look()
        if self._code is self.plain_code:
            return self.runner(self.how, target, args, kwargs)
        if self._lazy:
            # Arguments that do not fit are refused now, as the function does.
            probe = target.fn(*args, **kwargs)
            if hasattr(probe, "close"):
                probe.close()
        made = self.runner(self.how, target, args, kwargs)
        if self.holder is not CODELESS:
            made.__name__ = self.holder.__name__
            made.__qualname__ = self.holder.__qualname__
        return made

    def bound_to(self, receiver: Any) -> Target:
        """Return the target of a method call."""
        bound = self.target.fn.__get__(receiver, type(receiver))
        # Half the price of the class's own constructor; this is every method's call.
        target: Target = _new_tuple(Target, (bound, self.origin))
        return target

    def receives(self, wrapper: Any, first: object) -> bool:
        """Whether ``first`` is the instance or class that a method is called on.

        It is, if its class holds this function as a method: under its name, below
        whatever other decorators, or in the class that its qualified name tells.
        """
        function = self.origin.function
        classes = first.__mro__ if isinstance(first, type) else type(first).__mro__
        home = (function.__module__, self._class_name)
        for owner in classes:
            held = vars(owner).get(getattr(function, "__name__", ""))
            if held is None:
                continue
            at_home = (owner.__module__, owner.__qualname__) == home
            if at_home or any(link is wrapper for link in chain(held)):
                return not isinstance(held, staticmethod)
        return False


class Wrapper(_Proxy):
    """A decorated callable; everything but the call is that of the undecorated one."""

    def __init__(self, wrapped: Any, front: Front, /) -> None:
        super().__init__(wrapped)
        self._self_front = front

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        front = self._self_front
        target = front.target
        if front.owned and args and front.receives(self, args[0]):
            target, args = front.bound_to(args[0]), args[1:]
        if front.holder.__code__ is front.plain_code:
            # As `Front.run`, one frame less: this is what every plain call pays.
            return front.runner(front.how, target, args, kwargs)
        return front.run(target, args, kwargs)

    def __eq__(self, other: object) -> bool:
        """Whether both record the same function alike.

        It is not equal to the function: caches by function would give one for the
        other, and what they hold of the undecorated one records nothing.
        """
        if self is other:
            return True
        if not issubclass(type(other), Wrapper):
            return False
        wrapper: Any = other
        same: bool = self.__wrapped__ == wrapper.__wrapped__
        return same and self._self_front.how == wrapper._self_front.how

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    @property
    def __durable_name__(self) -> str:
        """The name under which calls are recorded, unless it varies by call."""
        how = self._self_front.how
        name = how.name if isinstance(how, Spec) else None
        return name if isinstance(name, str) else self._self_front.origin.qualified_name

    def __copy__(self) -> Any:
        return _again(copy.copy(self.__wrapped__), self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _again(copy.deepcopy(self.__wrapped__, memo), self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name where the name leads here, else as the wrapped object is."""
        wrapped = self.__wrapped__
        named = _named_by(wrapped) if isinstance(wrapped, FunctionType) else wrapped
        if named is wrapped:
            return restored, (wrapped, self._self_front.how)
        return wrapped.__qualname__


class WrappedFunction(Wrapper):
    """A decorated function, or another descriptor that binds as functions do."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._self_front.owned = True

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        front = self._self_front
        if front.view is not None:
            if instance is None:
                front.owned = True
                return self
            return MethodType(front.view, instance)
        wrapped = self.__wrapped__
        bound = wrapped.__get__(instance, owner)
        return self if bound is wrapped else _again(bound, self)


class Receiver(WrappedFunction):
    """A decorated function called as a method: its first argument is the receiver."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        front = self._self_front
        target = front.target
        if args:
            target, args = front.bound_to(args[0]), args[1:]
        if front.holder.__code__ is front.plain_code:
            return front.runner(front.how, target, args, kwargs)
        return front.run(target, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        named = _named_by(self.__wrapped__)
        if front_of(named) is not self._self_front:
            named = wrap(self.__wrapped__, self._self_front)
        return as_receiver, (named,)


class _Call:
    """``__call__`` of a decorated object, which shows the kind of the object's own."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._self_call  # noqa: SLF001 - its


class WrappedObject(Wrapper):
    """A decorated callable object. Frameworks look at its ``__call__`` as well."""

    def __init__(self, wrapped: Any, front: Front, /) -> None:
        super().__init__(wrapped, front)
        self._self_call = WrappedFunction(wrapped.__call__, front)

    __call__ = _Call()


def wrap(obj: Any, front: Front) -> Wrapper:
    """Return the wrapper of ``obj``, which binds if and only if ``obj`` does."""
    binds = hasattr(type(obj), "__get__")
    return (WrappedFunction if binds else WrappedObject)(obj, front)


def _named_by(function: Any) -> Any:
    """Return what module and qualified name of a function lead to, or None."""
    try:
        module = sys.modules[function.__module__]
        return operator.attrgetter(function.__qualname__)(module)
    except (KeyError, AttributeError):
        return None


def restored(obj: Any, how: Spec | str) -> Wrapper:
    """Return the wrapper that was pickled, around what it was around."""
    return wrap(obj, Front(obj, how))


def as_receiver(wrapper: Wrapper) -> Receiver:
    """Return the view of a pickled wrapper that bound methods hold."""
    view: Receiver = wrapper._self_front.view  # noqa: SLF001 - own class
    return view


def front_of(obj: Any) -> Front | None:
    """Return the front of a decorated function or bound method, None of others."""
    if type(obj) is MethodType:
        obj = obj.__func__
    if not issubclass(type(obj), Wrapper):
        return None
    front: Front = obj._self_front  # noqa: SLF001 - own class
    return front


def spec_of(obj: Any) -> Spec | None:
    """Return the options that ``obj`` itself is decorated with, if it is."""
    front = front_of(obj)
    return front.how if front is not None and isinstance(front.how, Spec) else None


def recorded(obj: Any) -> list[Front]:
    """Return the fronts that record calls in the chain of what ``obj`` wraps."""
    fronts = [front_of(link) for link in chain(obj)]
    return [f for f in fronts if f is not None and isinstance(f.how, Spec)]


def chain(obj: Any) -> Iterator[Any]:
    """Yield ``obj`` and what it says that it wraps, outermost first."""
    for _ in range(_CHAIN_LIMIT):
        yield obj
        for attribute in ("__wrapped__", "__func__", "func", "fget"):
            inner = getattr(obj, attribute, None)
            if callable(inner):
                obj = inner
                break
        else:
            return


def _again(obj: Any, wrapper: Wrapper) -> Any:
    """Decorate another object as ``wrapper`` decorates its own."""
    if obj is wrapper.__wrapped__:
        return wrapper
    front = wrapper._self_front  # noqa: SLF001 - own class
    return wrap(obj, Front(obj, front.how))
