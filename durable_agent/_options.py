"""The options of the decorators: their static types, and their checks at run time.

A wrong option is a `DecorationError` that names it, when the decorator is applied;
nothing was decorated then.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from attrs import asdict, evolve

from durable_agent._spec import Spec, signature_of
from durable_agent.errors import DecorationError
from durable_agent.outcomes import EFFECTS, Effect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from durable_agent.outcomes import Call, Outcome

Arguments: TypeAlias = "Mapping[str, Any]"
Settle: TypeAlias = "Callable[[Call], Outcome | Awaitable[Outcome]]"
OnUnknown: TypeAlias = "Literal['raise', 'return'] | Settle | None"


class CommonOptions(TypedDict, total=False):
    """Options of ``checkpointed_llm`` and ``checkpointed_tool``."""

    name: str | Callable[[Arguments], str] | None
    key: str | Callable[[Arguments], Any] | None
    ignore: str | Iterable[str]
    redact: str | Iterable[str]
    replay: bool
    durable_outcome: bool | None


class LlmOptions(CommonOptions, total=False):
    """Options of ``checkpointed_llm``."""

    transcript: bool


class ToolOptions(CommonOptions, total=False):
    """Options of ``checkpointed_tool``."""

    effect: Effect | Callable[[Arguments], str]
    verify: Settle | None
    unknown_on: type[BaseException] | Iterable[type[BaseException]]
    on_unknown: OnUnknown
    arguments: str | None
    render: Callable[[Any], str] | None
    trust_annotations: bool


_COMMON = frozenset({"name", "key", "ignore", "redact", "replay", "durable_outcome"})
_OPTIONS = {
    "llm": _COMMON | {"transcript"},
    "tool": _COMMON
    | {"effect", "verify", "unknown_on", "on_unknown", "arguments", "render"}
    | {"trust_annotations"},
}


def make_spec(kind: Literal["llm", "tool"], options: Mapping[str, Any]) -> Spec:
    """Return the checked options. Raises `DecorationError` naming the wrong one."""
    decorator = f"checkpointed_{kind}"
    for name in options:
        if name not in _OPTIONS[kind]:
            known = ", ".join(sorted(_OPTIONS[kind]))
            raise DecorationError(
                f"{decorator}() has no option {name!r}.", advice=f"It has: {known}."
            )
    values = {}
    for name, value in options.items():
        try:
            values[name] = _CHECKS[name](value)
        except _WrongValue as wrong:
            raise DecorationError(
                f"{decorator}({name}=…) takes {wrong.wanted}, not {value!r}."
            ) from None
    if kind == "llm":
        values["unknown_on"] = ()
    return Spec(kind=kind, given=frozenset(options), **values)


def merge(first: Spec, second: Spec) -> Spec:
    """Return both decorations of one function as one.

    Raises `DecorationError` if both state an option and disagree, or if one records a
    model request and the other a tool call.
    """
    if first.kind != second.kind:
        raise DecorationError(
            f"It is decorated already, as checkpointed_{first.kind}.",
            advice=f"Decorate it once; checkpointed_{second.kind} would record "
            "the same call again.",
        )
    ours, theirs = (asdict(s, recurse=False) for s in (first, second))
    for name in sorted(first.given & second.given):
        if not _agree(ours[name], theirs[name]):
            raise DecorationError(
                f"It is decorated already, with {name}={ours[name]!r}, "
                f"which {name}={theirs[name]!r} contradicts.",
                advice="Decorate it once, or the undecorated function "
                "(``__wrapped__``) again.",
            )
    added = second.given - first.given
    short = first.short or second.short
    if not added and short == first.short:
        return first
    return evolve(
        first,
        short=short,
        given=first.given | added,
        **{name: theirs[name] for name in added},
    )


def check_parameters(spec: Spec, obj: Any) -> None:
    """Raise `DecorationError` if an option names a parameter that is not there."""
    if spec.trust_annotations:
        raise DecorationError(
            "trust_annotations=True is for sessions and clients of MCP.",
            advice="Say effect= for a function.",
        )
    if spec.unpack is not None:
        # An integration tells the arguments otherwise, and has seen to the names.
        return
    signature = signature_of(obj)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    named: dict[str, Iterable[str]] = {"ignore": spec.ignore, "redact": spec.redact}
    if isinstance(spec.key, str):
        named["key"] = [spec.key]
    if spec.arguments is not None:
        named["arguments"] = [spec.arguments]
    for option, names in named.items():
        for name in sorted(names):
            if name not in signature.parameters:
                have = ", ".join(signature.parameters) or "none"
                raise DecorationError(
                    f"{option}={name!r} names no parameter of "
                    f"{getattr(obj, '__qualname__', obj)!s}.",
                    advice=f"Its parameters: {have}.",
                )


class _WrongValue(Exception):  # noqa: N818 - a signal within this module
    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _name(value: Any) -> Any:
    if value is None or callable(value) or (isinstance(value, str) and value):
        return value
    raise _WrongValue("a name, or a callable on the bound arguments")


def _key(value: Any) -> Any:
    if value is None or callable(value) or (isinstance(value, str) and value):
        return value
    raise _WrongValue("the name of a parameter, or a callable on the bound arguments")


def _names(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    try:
        names = frozenset(value)
    except TypeError:
        names = frozenset({None})
    if not all(isinstance(name, str) for name in names):
        raise _WrongValue("names of parameters")
    return names


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue("True or False")
    return value


def _maybe_bool(value: Any) -> bool | None:
    return None if value is None else _bool(value)


def _effect(value: Any) -> Any:
    if callable(value) or (isinstance(value, str) and value in EFFECTS):
        return value
    words = ", ".join(repr(word) for word in EFFECTS)
    raise _WrongValue(f"one of {words}, or a callable on the bound arguments")


def _maybe_callable(value: Any) -> Any:
    if value is None or callable(value):
        return value
    raise _WrongValue("a callable")


def _types(value: Any) -> tuple[type[BaseException], ...]:
    try:
        types = (value,) if isinstance(value, type) else tuple(value)
    except TypeError:
        types = (None,)
    if not all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
        raise _WrongValue("exception types")
    return types


def _on_unknown(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if isinstance(value, str) and value in {"raise", "return"}:
        return value
    raise _WrongValue("'raise', 'return' or a handler")


def _parameter(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value.isidentifier()):
        return value
    raise _WrongValue("the name of a parameter")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "key": _key,
    "ignore": _names,
    "redact": _names,
    "replay": _bool,
    "durable_outcome": _maybe_bool,
    "effect": _effect,
    "verify": _maybe_callable,
    "unknown_on": _types,
    "on_unknown": _on_unknown,
    "arguments": _parameter,
    "transcript": _bool,
    "render": _maybe_callable,
    "trust_annotations": _bool,
}


def _agree(left: Any, right: Any) -> bool:
    """Whether two values of an option say the same.

    A function that was defined again from the same text, as in a cell that is run
    again, is the same.
    """
    if left == right:
        return True
    code, other = (getattr(value, "__code__", None) for value in (left, right))
    return (
        code is not None
        and code == other
        and left.__defaults__ == right.__defaults__
        and left.__closure__ == right.__closure__
    )
