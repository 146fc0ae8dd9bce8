"""What one decorated function is: its options, its name, its arguments.

Pure: nothing here opens, records or runs anything. A `Spec` says how calls are to be
recorded, a `Target` what one call runs, and `bind` what it was given.
"""

from __future__ import annotations

import functools
import inspect
import sys
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from attrs import field, frozen

from durable_agent._stubs import is_honest, make_stub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent.outcomes import Effect

#: Exceptions after which the effect of a tool may have happened.
UNKNOWN_ON: Final[tuple[type[BaseException], ...]] = (TimeoutError, ConnectionError)

#: Names under which a module runs as a program; the second is what the children of
#: ``multiprocessing`` call the parent's.
_MAIN_NAMES: Final = frozenset({"__main__", "__mp_main__"})


@frozen(kw_only=True)
class Spec:
    """The options of one decoration, valid and with their defaults.

    ``given`` names the options that were stated; it takes no part in equality.
    """

    kind: Literal["llm", "tool"]
    name: str | Callable[[Mapping[str, Any]], str] | None = None
    #: What a model calls it, where an integration knows that; no option of the user's.
    short: str | Callable[[Mapping[str, Any]], str] | None = None
    #: The arguments of a call, from what its function was given; no option either.
    unpack: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    #: What stands for a text that is returned in place of a value; likewise.
    told: Callable[[str], Any] | None = None
    key: str | Callable[[Mapping[str, Any]], Any] | None = None
    ignore: frozenset[str] = frozenset()
    redact: frozenset[str] = frozenset()
    replay: bool = True
    durable_outcome: bool | None = None
    effect: Effect | Callable[[Mapping[str, Any]], str] = "side_effect"
    verify: Callable[..., Any] | None = None
    unknown_on: tuple[type[BaseException], ...] = UNKNOWN_ON
    on_unknown: Literal["raise", "return"] | Callable[..., Any] | None = None
    arguments: str | None = None
    trust_annotations: bool = False
    transcript: bool = True
    render: Callable[[Any], str] | None = None
    given: frozenset[str] = field(default=frozenset(), eq=False)


class Origin:
    """The undecorated function behind a decoration: names and signature, cached.

    The signature follows the function when its code is replaced in place, as live
    reloading does; names are computed once.
    """

    def __init__(self, obj: Any) -> None:
        #: The function below partials and bound methods; the object itself if it is
        #: a callable object.
        self.function: Any = underlying(obj)
        #: Decorated functions that this one calls through to. A call of one of them
        #: that has a call of this one directly around it is the same call.
        self.covers: tuple[Any, ...] = ()
        self._signatures: dict[bool, inspect.Signature] = {}
        self._stubs: dict[bool, Callable[..., dict[str, Any]] | None] = {}
        self._state: tuple[Any, ...] = ()
        #: Parameters that frameworks fill in, for this code and so many frameworks.
        self.injected: tuple[Any, int, frozenset[str]] | None = None

    @functools.cached_property
    def short_name(self) -> str:
        """``__name__``, or the name of the class of a callable object."""
        return _own_name(self.function, "__name__").rpartition(".")[2]

    @functools.cached_property
    def qualified_name(self) -> str:
        """``module:qualname``; a program's main module has its importable name."""
        function = self.function
        module: object = getattr(function, "__module__", None)
        if not isinstance(module, str):
            owner = getattr(function, "__self__", function)
            module = type(owner).__module__
        return f"{module_name(str(module))}:{_own_name(function, '__qualname__')}"

    def signature(self, fn: Any) -> inspect.Signature:
        """Return the public signature of ``fn``, this function or it bound."""
        self._forget_if_replaced()
        bound = isinstance(fn, MethodType)
        if bound not in self._signatures:
            self._signatures[bound] = signature_of(fn)
        return self._signatures[bound]

    def stub(self, fn: Any) -> Callable[..., dict[str, Any]] | None:
        """Return a function that takes the arguments of ``fn`` and returns them.

        It refuses what the function refuses, with the same words, and has no body.
        None of what is no plain function, or shows another signature than it has.
        """
        self._forget_if_replaced()
        bound = isinstance(fn, MethodType)
        if bound not in self._stubs:
            plain = type(fn) in {FunctionType, MethodType} and is_honest(self.function)
            self._stubs[bound] = make_stub(self.function, bound) if plain else None
        return self._stubs[bound]

    def _forget_if_replaced(self) -> None:
        function = self.function
        state = (
            getattr(function, "__code__", None),
            getattr(function, "__defaults__", None),
            getattr(function, "__kwdefaults__", None),
        )
        if len(self._state) != len(state) or not all(map(_is, self._state, state)):
            self._state = state
            self._signatures.clear()
            self._stubs.clear()


class Target(NamedTuple):
    """What one call runs: ``fn``, already bound, and the function it comes from."""

    fn: Callable[..., Any]
    origin: Origin

    @property
    def function(self) -> Any:
        """The underlying function, or the callable object itself."""
        return self.origin.function

    @property
    def qualified_name(self) -> str:
        """``module:qualname`` of the function."""
        return self.origin.qualified_name

    @property
    def short_name(self) -> str:
        """``__name__`` of the function."""
        return self.origin.short_name

    @property
    def signature(self) -> inspect.Signature:
        """The signature of what is called, below partials; without ``self``."""
        return self.origin.signature(flatten(self.fn, (), {})[0])


def target(fn: Callable[..., Any]) -> Target:
    """Return the target for a function, bound method, partial or callable object."""
    return Target(fn, Origin(fn))


def bind(
    target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the call was given, defaults applied, in the signature's order.

    The fixed arguments of partials count. ``self`` and ``cls`` are left out;
    positional-only parameters, ``*args`` and ``**kwargs`` keep places of their own.
    Raises the `TypeError` of the call itself where it does not bind; no body runs.
    """
    fn, args, kwargs = flatten(target.fn, args, kwargs)
    stub = target.origin.stub(fn)
    if stub is None:
        return _bind_publicly(target, fn, args, kwargs)
    if type(fn) is MethodType:
        return stub(fn.__self__, *args, **kwargs)
    return stub(*args, **kwargs)


def given(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call, as its options and its integration see them."""
    bound = bind(target, args, kwargs)
    if spec.unpack is not None:
        bound = spec.unpack(bound)
    lift(spec, target, bound)
    return bound


def names(spec: Spec, target: Target, bound: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name under which a call is recorded, and what a model calls it."""
    name, short = target.qualified_name, target.short_name
    if spec.name is not None:
        name = short = spec.name if isinstance(spec.name, str) else spec.name(bound)
    if spec.short is not None:
        short = spec.short if isinstance(spec.short, str) else spec.short(bound)
    return name, short


def lift(spec: Spec, target: Target, bound: dict[str, Any]) -> None:
    """Give what options name among ``**kwargs`` places of their own in ``bound``."""
    named = spec.ignore | spec.redact
    if isinstance(spec.key, str):
        named |= {spec.key}
    if not named.difference(bound):
        return
    rest = bound.get(_rest(target), {})
    bound |= {name: rest.pop(name) for name in sorted(named) if name in rest}


def _rest(target: Target) -> str:
    """Return the name of ``**kwargs``, "" if there is none."""
    parameters = target.signature.parameters.values()
    return next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")


def flatten(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Return the function below partials, and what it is really called with."""
    while isinstance(fn, functools.partial):
        args = (*fn.args, *args)
        kwargs = {**fn.keywords, **kwargs}
        fn = fn.func
    return fn, args, kwargs


def underlying(obj: Any) -> Any:
    """Return the function below partials and bound methods."""
    while True:
        if isinstance(obj, functools.partial):
            obj = obj.func
        elif isinstance(obj, MethodType):
            obj = obj.__func__
        else:
            return obj


def signature_of(fn: Any) -> inspect.Signature:
    """Return the public signature; any arguments, where there is none to be had."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return _ANYTHING


def module_name(module: str) -> str:
    """Return the name under which a module can be imported.

    ``__main__`` is named by its spec (``python -m``), else by the file's stem.
    """
    if module not in _MAIN_NAMES:
        return module
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return PurePath(file).stem if file else "__main__"


def _anything(*args: Any, **kwargs: Any) -> None: ...


_ANYTHING: Final = inspect.signature(_anything).replace(
    return_annotation=inspect.Signature.empty
)


def _is(left: object, right: object) -> bool:
    return left is right


def _own_name(function: Any, attribute: str) -> str:
    name = getattr(function, attribute, None)
    if not isinstance(name, str):
        name = getattr(type(function), attribute)
    return str(name)


def _bind_publicly(
    target: Target, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Bind by the public signature, else by the one that the call really has.

    A decorator below may take more, or fewer, arguments than the function that it
    names as its own.
    """
    try:
        bound = target.origin.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        try:
            real = inspect.signature(fn, follow_wrapped=False)
            bound = real.bind(*args, **kwargs)
        except (TypeError, ValueError):
            name = _own_name(target.function, "__qualname__")
            raise TypeError(f"{name}() {error}") from None
    bound.apply_defaults()
    return bound.arguments


def asked(spec: Spec, target: Target, bound: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as a model gave them."""
    if spec.arguments is not None:
        given = bound.get(spec.arguments)
        return given if isinstance(given, dict) else {}
    rest = _rest(target)
    return {**bound[rest], **bound} if rest in bound else bound


def at_default(target: Target, bound: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that are at their defaults."""
    names = []
    for parameter in target.signature.parameters.values():
        value = bound.get(parameter.name)
        match parameter.kind:
            case parameter.VAR_POSITIONAL | parameter.VAR_KEYWORD:
                same = not value
            case _:
                same = value is parameter.default or (
                    type(value) is type(parameter.default)
                    and isinstance(value, (str, int, float, bytes, tuple))
                    and value == parameter.default
                )
        if same:
            names.append(parameter.name)
    return frozenset(names)
