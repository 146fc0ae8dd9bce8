"""LlamaIndex.

What this does not do: it records no retriever, query engine, embedding, index or
workflow step, only tools and models; it does not tell which tool call of a response a
tool runs for, LlamaIndex does not pass that on; callbacks and spans of a model are not
told of a request that replays. An agent runs plain functions in threads: decorated
innermost, parallel ones may come to it in another order on replay; the tool decorated,
they do not. An adapted model, or tool with a class of its own, is of a subclass with
the same name, which cannot be pickled.
"""

from __future__ import annotations

import copy
import functools
import typing
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._frameworks import Integration
from durable_agent._kinds import code_holder
from durable_agent._spec import Origin, module_name
from durable_agent._value_names import loaded
from durable_agent._wrapping import front_of
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

_DIST: Final = "llama-index-core"
_TOOLS: Final = "llama_index.core.tools.types"
_FUNCTION_TOOLS: Final = "llama_index.core.tools.function_tool"
_MODELS: Final = "llama_index.core.base.llms.base"

#: What a `FunctionTool` holds its functions in.
_FUNCTIONS: Final = ("_real_fn", "_fn", "_async_fn")
#: What makes one of the functions from the other, and the name of what it gives.
_BRIDGES: Final = {
    "sync_to_async": "sync_to_async.<locals>._async_wrapped_fn",
    "async_to_sync": "async_to_sync.<locals>._sync_wrapped_fn",
}

#: What runs a model, with what its requests are told by.
_REQUESTS: Final = {
    "chat": "",
    "achat": "",
    "stream_chat": ".stream",
    "astream_chat": ".stream",
    "complete": ".complete",
    "acomplete": ".complete",
    "stream_complete": ".complete.stream",
    "astream_complete": ".complete.stream",
}
#: The same, where a class does not leave them to those above.
_WITH_TOOLS: Final = {
    "chat_with_tools": ".tools",
    "achat_with_tools": ".tools",
    "stream_chat_with_tools": ".tools.stream",
    "astream_chat_with_tools": ".tools.stream",
}
#: What runs a tool that has a class of its own.
_CALLS: Final = ("call", "acall", "__call__")


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model whose calls are recorded; None of others.

    Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "BaseTool"):
        demand_kind(obj, spec.kind, "tool")
        if is_a(obj, _FUNCTION_TOOLS, "FunctionTool") and _runs_its_functions(obj):
            return _with_functions(obj, spec)
        return _adapt_tool(obj, spec)
    if is_a(obj, _MODELS, "BaseLLM"):
        demand_kind(obj, spec.kind, "llm")
        demand(loaded(_MODELS, "BaseLLM"), _REQUESTS, _DIST)
        return _adapt_model(obj, spec)
    return None


def _runs_its_functions(tool: Any) -> bool:
    """Whether a tool runs its functions as its class in LlamaIndex does."""
    base = loaded(_FUNCTION_TOOLS, "FunctionTool")
    return all(_same(type(tool), base, method) for method in _CALLS)


def _same(cls: type, base: Any, method: str) -> bool:
    """Whether a class has a method from a base.

    Methods are looked up without binding them: LlamaIndex wraps them for its spans, and
    what binding gives is another object each time.
    """
    if not hasattr(base, method) or not hasattr(cls, method):
        return False
    return function_of(cls, method) is function_of(base, method)


def _with_functions(tool: Any, spec: Spec) -> Any:
    """Return a copy of a tool made of functions, with these decorated.

    Where LlamaIndex made the other of the two from what it was given, it does so again.
    """
    missing = [name for name in _FUNCTIONS if name not in vars(tool)]
    bridges = {name: loaded(_FUNCTION_TOOLS, name) for name in _BRIDGES}
    missing += [name for name, bridge in bridges.items() if bridge is None]
    if missing:
        raise unknown_version("FunctionTool", ", ".join(missing), _DIST)
    given = {
        name: fn
        for name in ("_fn", "_async_fn")
        if not _is_bridge(fn := getattr(tool, name))
    }
    if tool._real_fn not in given.values():  # noqa: SLF001 - looked for above
        raise unknown_version("FunctionTool", "such functions", _DIST)
    name = str(tool.metadata.get_name())
    spec = evolve(spec, short=name)
    if spec.name is None:
        spec = evolve(spec, name=_name_of(next(iter(given.values())), name))
    made = {attribute: decorate(fn, spec) for attribute, fn in given.items()}
    if made == given and ("_async_fn" in made or front_of(tool._async_fn)):  # noqa: SLF001
        return tool
    real = next(iter(made.values()))
    if "_async_fn" not in made:
        # Around the thread that it runs in: what is handed out in threads comes to the
        # tasks of an agent in any order.
        bridged = functools.wraps(given["_fn"])(bridges["sync_to_async"](given["_fn"]))
        made["_async_fn"] = decorate(bridged, spec)
    cover_each_other(made.values())
    if "_fn" not in made:
        made["_fn"] = bridges["async_to_sync"](real)
    copied = copy.copy(tool)
    vars(copied).update(made, _real_fn=real)
    return copied


def _is_bridge(fn: Any) -> bool:
    """Whether LlamaIndex, or `adapt`, made it from the other function."""
    code = getattr(code_holder(fn), "__code__", None)
    return getattr(code, "co_qualname", "") in _BRIDGES.values()


def _name_of(fn: Any, tool: str) -> str:
    """Return a name for what is one tool, and may be made in a loop with others."""
    origin = Origin(fn)
    name = origin.qualified_name
    return name if origin.short_name == tool else f"{name}[{tool}]"


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    cls = type(tool)
    name = str(tool.metadata.get_name())
    spec = evolve(spec, short=name)
    if spec.name is None:
        title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{name}]"
        spec = evolve(spec, name=title)
    bases = (loaded(_TOOLS, "BaseTool"), loaded(_TOOLS, "AsyncBaseTool"))
    namespace = {m: decorate(method_of(cls, m), spec) for m in _own(cls, bases)}
    return _recast(tool, copy.copy(tool), namespace)


def _own(cls: type, bases: tuple[Any, ...]) -> list[str]:
    """Return what a class runs by itself, not by way of the others."""
    return [
        method
        for method in _CALLS
        if hasattr(cls, method) and not any(_same(cls, b, method) for b in bases)
    ]


def _adapt_model(model: Any, spec: Spec) -> Any:
    cls = type(model)
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{_model_name(model)}]"
    title = spec.name if isinstance(spec.name, str) else title
    namespace = {}
    base = loaded("llama_index.core.llms.function_calling", "FunctionCallingLLM")
    for method, suffix in (_REQUESTS | _WITH_TOOLS).items():
        if not hasattr(cls, method) or _same(cls, base, method):
            continue
        name = spec.name if callable(spec.name) else title + suffix
        how = evolve(spec, name=name, unpack=_unpack)
        namespace[method] = decorate(method_of(cls, method), how)
    return _recast(model, model.model_copy(), namespace)


def _model_name(model: Any) -> str:
    name = getattr(model.metadata, "model_name", None)
    return name if isinstance(name, str) else str(model.class_name())


def _recast(obj: Any, copied: Any, namespace: dict[str, Any]) -> Any:
    cls = type(obj)
    if not namespace:
        raise DecorationError(f"{cls.__qualname__} defines nothing that could run.")
    if all(made is function_of(cls, method) for method, made in namespace.items()):
        return obj
    cover_each_other(namespace.values())
    try:
        object.__setattr__(copied, "__class__", subclass_of(cls, namespace))
    except TypeError as error:
        raise DecorationError(
            f"{cls.__qualname__} objects ({version_of(_DIST)}) cannot be recorded: "
            f"{error}",
            advice="Decorate the function that it is made from, innermost.",
        ) from error
    return copied


def _unpack(bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request, with tools as a model is shown them."""
    shown: dict[str, Any] = replaced(bound, loaded(_TOOLS, "BaseTool"), _shown)
    return shown


def _shown(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.metadata.get_name(),
        "description": tool.metadata.description,
        "parameters": tool.metadata.get_parameters_dict(),
    }


def injects(annotation: Any) -> bool:
    """Whether LlamaIndex fills in a parameter: with the context of a workflow."""
    if typing.get_origin(annotation) is typing.Annotated:
        return injects(typing.get_args(annotation)[0])
    cls = typing.get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, injected_types())


def injected_types() -> tuple[type, ...]:
    """Return the class of contexts, which a tool is passed."""
    cls = loaded("llama_index.core.workflow.context", "Context")
    return () if cls is None else (cls,)


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what a tool waits for an event by: its step is run again."""
    waits = loaded("workflows.runtime.types.results", "WaitingForEvent")
    return () if waits is None else (waits,)


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    injected_types=injected_types,
    control_flow=control_flow,
)
