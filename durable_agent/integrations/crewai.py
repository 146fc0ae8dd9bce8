"""CrewAI.

What this does not do: it records no crew, flow, agent, task, memory or knowledge, only
tools and models; it does not tell which tool call of a response a tool runs for; events
of a model are not sent for a request that replays, and chunks are not recorded, only
the answer. ``ainvoke`` of a plain function runs it in a thread without the caller's
context: while one session is open it is recorded there, as detached; with several open
at once, use coroutine functions.

An adapted model, or tool with a class of its own, is of a subclass with the same name,
which cannot be pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._frameworks import Integration
from durable_agent._spec import Origin, module_name
from durable_agent._value_names import loaded
from durable_agent.errors import DecorationError
from durable_agent.integrations._adapting import (
    cover_each_other,
    demand,
    demand_kind,
    function_of,
    is_a,
    method_of,
    replaced,
    subclass_of,
    unknown_version,
    version_of,
)

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_DIST: Final = "crewai"
_TOOLS: Final = "crewai.tools.base_tool"

#: What runs a tool, from the outside in.
_CALLS: Final = ("run", "arun", "_run", "_arun")
#: What runs a model.
_REQUESTS: Final = ("call", "acall")
#: Parameters of a model that do not say what is asked for.
_IGNORED: Final = frozenset(
    {"callbacks", "available_functions", "from_task", "from_agent"}
)
#: What runs tools and models past any wrapper.
_RUNNERS: Final = (
    ("crewai.crew", "Crew"),
    ("crewai.agents.agent_builder.base_agent", "BaseAgent"),
    ("crewai.flow.flow", "Flow"),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model whose calls are recorded; None of others.

    Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "BaseTool"):
        demand_kind(obj, spec.kind, "tool")
        demand(loaded(_TOOLS, "BaseTool"), ["_run", "run"], _DIST)
        if is_a(obj, _TOOLS, "Tool") and _runs_its_function(obj):
            return _with_function(obj, spec)
        return _adapt_tool(obj, spec)
    if is_a(obj, "crewai.tools.structured_tool", "CrewStructuredTool"):
        demand_kind(obj, spec.kind, "tool")
        return _with_function(obj, spec)
    if is_a(obj, "crewai.llms.base_llm", "BaseLLM"):
        demand_kind(obj, spec.kind, "llm")
        demand(loaded("crewai.llms.base_llm", "BaseLLM"), _REQUESTS, _DIST)
        return _adapt_model(obj, spec)
    for module, name in _RUNNERS:
        if is_a(obj, module, name):
            raise DecorationError(
                f"{type(obj).__qualname__} objects run past any wrapper.",
                advice="Decorate the tools and the model that its agents are given.",
            )
    return None


def _runs_its_function(tool: Any) -> bool:
    base = loaded(_TOOLS, "Tool")
    return all(
        function_of(type(tool), method) is function_of(base, method)
        for method in _CALLS
        if hasattr(base, method)
    )


def _with_function(tool: Any, spec: Spec) -> Any:
    if "func" not in type(tool).model_fields:
        raise unknown_version(type(tool).__qualname__, "func", _DIST)
    spec = evolve(spec, short=tool.name)
    if spec.name is None:
        origin = Origin(tool.func)
        if origin.short_name != tool.name:
            spec = evolve(spec, name=f"{origin.qualified_name}[{tool.name}]")
    made = decorate(tool.func, spec)
    return tool if made is tool.func else tool.model_copy(update={"func": made})


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    cls = type(tool)
    spec = evolve(spec, short=tool.name)
    if spec.name is None:
        title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{tool.name}]"
        spec = evolve(spec, name=title)
    base = loaded(_TOOLS, "BaseTool")
    namespace = {
        method: decorate(method_of(cls, method), spec)
        for method in _CALLS
        if hasattr(cls, method)
        and function_of(cls, method) is not vars(base).get(method)
    }
    return _recast(tool, namespace)


def _adapt_model(model: Any, spec: Spec) -> Any:
    cls = type(model)
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{model.model}]"
    if spec.name is None:
        spec = evolve(spec, name=title)
    spec = evolve(spec, unpack=_unpack)
    base = loaded("crewai.llms.base_llm", "BaseLLM")
    namespace = {
        method: decorate(method_of(cls, method), spec)
        for method in _REQUESTS
        if function_of(cls, method) is not vars(base).get(method)
    }
    return _recast(model, namespace)


def _recast(obj: Any, namespace: dict[str, Any]) -> Any:
    cls = type(obj)
    if not namespace:
        raise DecorationError(f"{cls.__qualname__} defines nothing that could run.")
    if all(made is function_of(cls, method) for method, made in namespace.items()):
        return obj
    cover_each_other(namespace.values())
    copied = obj.model_copy()
    # Classes are noted by name, to be found when a crew is loaded: that stays.
    noted: Any = loaded(_TOOLS, "_TOOL_TYPE_REGISTRY") or {}
    before = dict(noted)
    try:
        object.__setattr__(copied, "__class__", subclass_of(cls, namespace))
    except TypeError as error:
        raise DecorationError(
            f"{cls.__qualname__} objects ({version_of(_DIST)}) cannot be recorded: "
            f"{error}",
            advice="Decorate the function that it is made from, innermost.",
        ) from error
    finally:
        noted.update(before)
    return copied


def _unpack(bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request, with the schemas of classes of answers."""
    asked = {name: value for name, value in bound.items() if name not in _IGNORED}
    for name, value in asked.items():
        if isinstance(value, dict):
            asked[name] = {k: v for k, v in value.items() if k not in _IGNORED}
    shown: dict[str, Any] = replaced(asked, type, _shown)
    return shown


def _shown(cls: Any) -> Any:
    schema = getattr(cls, "model_json_schema", None)
    return cls.__qualname__ if schema is None else schema()


INTEGRATION: Final = Integration(adapt=adapt)
