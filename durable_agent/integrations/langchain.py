"""LangChain and LangGraph.

What this does not do: it records no graph, node, chain, retriever or plain LLM, only
tools and chat models; it replaces no checkpointer; it does not see what a model does
past ``_generate`` and ``_stream``. An adapted tool or model that has a class of its own
is of a subclass with the same name, which cannot be pickled. ``Annotated[…,
InjectedToolArg]`` alone marks an argument like any other: it is recorded.
"""

from __future__ import annotations

import sys
import types
import typing
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
    subclass_of,
    version_of,
)
from durable_agent.integrations._langchain_ids import install, running_tool_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._spec import Spec

_DISTRIBUTION: Final = "langchain-core"
_TOOLS: Final = "langchain_core.tools.base"
_MODELS: Final = "langchain_core.language_models.chat_models"
_CALLBACKS: Final = "langchain_core.callbacks.base"
_TOOL_NODE: Final = "langgraph.prebuilt.tool_node"

#: What runs a tool, and what runs a chat model, with what their calls are told by.
_TOOL_METHODS: Final = {"_run": "", "_arun": ""}
_MODEL_METHODS: Final = {
    "_generate": "",
    "_agenerate": "",
    "_stream": ".stream",
    "_astream": ".stream",
    "_stream_chat_model_events": ".events",
    "_astream_chat_model_events": ".events",
}
#: Those that every version so far has.
_NEEDED: Final = {"tool": ("_run", "_arun"), "llm": ("_generate", "_stream")}

#: Classes whose objects LangChain and LangGraph pass in by themselves.
_INJECTED: Final = (
    (_TOOLS, "_DirectlyInjectedToolArg"),
    (_CALLBACKS, "BaseCallbackManager"),
    ("langchain_core.callbacks.manager", "BaseRunManager"),
    (_TOOL_NODE, "ToolRuntime"),
    ("langgraph.runtime", "Runtime"),
    ("langgraph.store.base", "BaseStore"),
)
#: The same, by the mark in ``Annotated``.
_MARKS: Final = (
    (_TOOLS, "InjectedToolCallId"),
    (_TOOL_NODE, "InjectedState"),
    (_TOOL_NODE, "InjectedStore"),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or chat model whose calls are recorded.

    A binding (of ``bind_tools``, ``with_retry`` and the like) is copied around such a
    copy. None of anything else. Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "BaseTool"):
        _demand(obj, spec, "tool", loaded(_TOOLS, "BaseTool"))
        return _adapt_tool(obj, spec)
    if is_a(obj, _MODELS, "BaseChatModel"):
        _demand(obj, spec, "llm", loaded(_MODELS, "BaseChatModel"))
        return _subclassed(obj, spec, loaded(_MODELS, "BaseChatModel"), _model_name)
    if is_a(obj, "langchain_core.runnables.base", "RunnableBindingBase"):
        inner = adapt(obj.bound, spec)
        return None if inner is None else obj.model_copy(update={"bound": inner})
    return None


def _demand(obj: Any, spec: Spec, kind: str, base: Any) -> None:
    """Refuse the other decorator, and a version that does not have what is needed."""
    demand_kind(obj, spec.kind, kind)
    demand(base, _NEEDED[kind], _DISTRIBUTION)


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    spec = evolve(spec, short=tool.name)
    for module, name in (
        ("langchain_core.tools.structured", "StructuredTool"),
        ("langchain_core.tools.simple", "Tool"),
    ):
        base = loaded(module, name)
        if base is not None and isinstance(tool, base) and _runs_as(tool, base):
            return _with_functions(tool, spec)
    return _subclassed(tool, spec, loaded(_TOOLS, "BaseTool"), _tool_name)


def _runs_as(tool: Any, base: Any) -> bool:
    """Whether a tool runs its functions, as its class in LangChain does."""
    return all(getattr(type(tool), n) is getattr(base, n) for n in _TOOL_METHODS)


def _with_functions(tool: Any, spec: Spec) -> Any:
    """Return a copy of a tool made of functions, with these decorated."""
    given = {n: getattr(tool, n, None) for n in ("func", "coroutine")}
    functions = {name: fn for name, fn in given.items() if fn is not None}
    if not functions:
        raise DecorationError(f"The tool {tool.name!r} has no function to record.")
    if spec.name is None:
        # Sync and async are one tool; and functions made alike, in a loop, are many.
        origin = Origin(next(iter(functions.values())))
        name = origin.qualified_name
        if origin.short_name != tool.name:
            name = f"{name}[{tool.name}]"
        if name != origin.qualified_name or len(functions) > 1:
            spec = evolve(spec, name=name)
    update = {name: decorate(fn, spec) for name, fn in functions.items()}
    cover_each_other(list(update.values()))
    if all(update[name] is fn for name, fn in functions.items()):
        return tool
    return tool.model_copy(update=update)


def _tool_name(tool: Any) -> str:
    return str(tool.name)


def _model_name(model: Any) -> str:
    for name in ("model_name", "model", "model_id"):
        value = getattr(model, name, None)
        if isinstance(value, str):
            return value
    return str(model._llm_type)  # noqa: SLF001 - what every chat model has to define


def _subclassed(obj: Any, spec: Spec, base: Any, named: Callable[[Any], str]) -> Any:
    """Return a copy of an object, of a subclass that records what its class runs by.

    Only what the class defines itself is overridden: LangChain looks whether it does.
    """
    cls = type(obj)
    methods = _TOOL_METHODS if spec.kind == "tool" else _MODEL_METHODS
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{named(obj)}]"
    if isinstance(spec.name, str):
        title = spec.name
    namespace: dict[str, Any] = {}
    for method, suffix in methods.items():
        own = getattr(cls, method, None)
        if own is None or own is getattr(base, method, None):
            continue
        how = spec if callable(spec.name) else evolve(spec, name=title + suffix)
        namespace[method] = decorate(function_of(cls, method), how)
    if not namespace:
        raise DecorationError(f"{cls.__qualname__} defines nothing that could run.")
    cover_each_other(list(namespace.values()))
    return _recast(obj, namespace)


def _recast(obj: Any, namespace: dict[str, Any]) -> Any:
    cls = type(obj)
    copied = obj.model_copy()
    try:
        object.__setattr__(copied, "__class__", subclass_of(cls, namespace))
    except TypeError as error:
        raise DecorationError(
            f"{cls.__qualname__} objects ({version_of(_DISTRIBUTION)}) cannot be "
            f"recorded: {error}",
            advice="Decorate the function that it is made from, innermost.",
        ) from error
    return copied


def injects(annotation: Any) -> bool:
    """Whether LangChain or LangGraph fills in a parameter with this annotation."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *marks = typing.get_args(annotation)
        return any(map(_is_mark, marks)) or injects(inner)
    if origin in {typing.Union, types.UnionType}:
        return any(map(injects, typing.get_args(annotation)))
    cls = origin or annotation
    if cls is None or not isinstance(cls, type):
        return False
    if cls is loaded("langchain_core.runnables.config", "RunnableConfig"):
        return True
    return issubclass(cls, injected_types())


def _is_mark(mark: Any) -> bool:
    kinds = _classes(_MARKS)
    return isinstance(mark, kinds) or (
        isinstance(mark, type) and issubclass(mark, kinds)
    )


def injected_types() -> tuple[type, ...]:
    """Return the loaded classes whose objects the framework passes in."""
    return _classes(_INJECTED)


def _classes(names: tuple[tuple[str, str], ...]) -> tuple[type, ...]:
    found = (loaded(*where) for where in names)
    return tuple(cls for cls in found if cls is not None)


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what LangGraph pauses and steers a graph by: an ``Exception``."""
    bubbles = loaded("langgraph.errors", "GraphBubbleUp")
    return () if bubbles is None else (bubbles,)


def prepare() -> None:
    """See to it that ids of tool calls are noted from now on."""
    if "langchain_core.callbacks.manager" in sys.modules:
        install()


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    injected_types=injected_types,
    tool_call_id=running_tool_call,
    control_flow=control_flow,
    prepare=prepare,
)
