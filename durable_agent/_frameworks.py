"""Which frameworks this process has loaded, and what is known of them.

A framework is never imported: it is looked for in ``sys.modules``, and only then is the
module of ours that knows it. What such a module gives is an `Integration`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import typing
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from durable_agent._spec import underlying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from durable_agent._spec import Spec, Target

#: A module of the framework -> the module that has its ``INTEGRATION``.
KNOWN: Final[dict[str, str]] = {
    "agent_framework": "durable_agent.integrations.agent_framework",
    "anthropic": "durable_agent.integrations.anthropic",
    "google.genai": "durable_agent.integrations.google_genai",
    "autogen_core": "durable_agent.integrations.autogen",
    "langchain_core": "durable_agent.integrations.langchain",
    "crewai.tools": "durable_agent.integrations.crewai",
    "dspy": "durable_agent.integrations.dspy",
    "smolagents.tools": "durable_agent.integrations.smolagents",
    "litellm": "durable_agent.integrations.litellm",
    "llama_index.core": "durable_agent.integrations.llama_index",
    # Its package has a name that is anybody's.
    "agents.tool_context": "durable_agent.integrations.openai_agents",
    "mcp": "durable_agent.integrations.mcp",
    "pydantic_ai": "durable_agent.integrations.pydantic_ai",
}


def _none(*_: Any) -> None:
    return None


def _false(_: Any) -> bool:
    return False


def _empty() -> tuple[type, ...]:
    return ()


@frozen(kw_only=True)
class Integration:
    """What one framework's module answers; no function of it imports the framework.

    ``prepare`` is called again and again: when something is decorated, when a session
    is opened.
    """

    #: The decorated object of the same type; None: the object is none of its own.
    adapt: Callable[[Any, Spec], Any | None] = _none
    #: Whether a parameter with this annotation is filled in by the framework.
    injects: Callable[[Any], bool] = _false
    #: Whether a parameter with this default is.
    fills: Callable[[Any], bool] = _false
    #: Types whose objects are passed in by the framework, annotated or not.
    injected_types: Callable[[], tuple[type, ...]] = _empty
    #: The provider's id of the tool call that runs here, by tool name and arguments.
    tool_call_id: Callable[[str, Mapping[str, Any]], str | None] = _none
    #: Exceptions by which it pauses a call.
    control_flow: Callable[[], tuple[type[BaseException], ...]] = _empty
    #: Those of them that tell a model something: raised again where a run went on.
    told: Callable[[], tuple[type[BaseException], ...]] = _empty
    #: Whether a tool's effect may have happened after this exception, by default.
    in_doubt: Callable[[BaseException], bool] = _false
    prepare: Callable[[], None] = _none


_found: Final[dict[str, Integration]] = {}
_lock: Final = threading.RLock()


def integrations() -> Iterator[Integration]:
    """Yield what is known of each framework that is loaded."""
    for package, module in KNOWN.items():
        if package in _found:
            yield _found[package]
        elif package in sys.modules:
            with _lock:
                found: Integration = importlib.import_module(module).INTEGRATION
                _found[package] = found
            yield found


def prepare() -> None:
    """Let each loaded framework's integration put itself in place."""
    for integration in integrations():
        integration.prepare()


def control_flow() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which the loaded frameworks pause a call."""
    return tuple(t for each in integrations() for t in each.control_flow())


def told() -> tuple[type[BaseException], ...]:
    """Return those by which a tool tells its model something."""
    return tuple(t for each in integrations() for t in each.told())


def in_doubt(error: BaseException) -> bool:
    """Whether a loaded framework says that the effect may have happened after it."""
    return any(each.in_doubt(error) for each in integrations())


def tool_call_id(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the provider's id of the tool call that a framework runs here."""
    for integration in integrations():
        found = integration.tool_call_id(name, arguments)
        if found is not None:
            return found
    return None


def injected(target: Target, bound: Mapping[str, Any]) -> frozenset[str]:
    """Return the parameters that a framework filled in: no part of what was asked.

    Told by the annotation, else by the type of the value.
    """
    asked = [*integrations()]
    if not asked:
        return frozenset()
    names = _annotated(target, asked)
    types: tuple[type, ...] | None = None
    for name, value in bound.items():
        if name in names or type(value).__module__ == "builtins":
            continue
        if types is None:
            types = tuple(t for each in asked for t in each.injected_types())
        if isinstance(value, types):
            names |= {name}
    return names


def _annotated(target: Target, asked: list[Integration]) -> frozenset[str]:
    origin = target.origin
    code = getattr(origin.function, "__code__", None)
    cached = origin.injected
    if cached is not None and cached[0] is code and cached[1] == len(asked):
        return cached[2]
    names = frozenset(
        name
        for name, annotation in hints(origin.function).items()
        if any(each.injects(annotation) for each in asked)
    ) | frozenset(
        parameter.name
        for parameter in target.signature.parameters.values()
        if any(each.fills(parameter.default) for each in asked)
    )
    origin.injected = (code, len(asked), names)
    return names


def hints(function: Any) -> dict[str, Any]:
    """Return the annotations of a function's parameters, as far as they resolve."""
    function = underlying(function)
    if not hasattr(function, "__annotations__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the class's own
    found: dict[str, Any] = {}
    try:
        found = typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - one name that does not resolve is enough
        raw = getattr(function, "__annotations__", {})
        scope = getattr(function, "__globals__", {})
        found = {name: _resolved(a, scope) for name, a in raw.items()}
    found.pop("return", None)
    return found


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = functools.partial(_none)
    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - it names what only a type checker sees
        return None
