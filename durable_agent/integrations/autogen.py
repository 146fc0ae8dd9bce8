"""AutoGen (``autogen-core``, ``autogen-agentchat``).

What this does not do: it records no agents, teams, runtimes, memories and workbenches,
only tools and requests to models. AutoGen runs a synchronous function in a bare pool
of threads: decorated innermost, its calls are found only through the process's one
session, know no tool call and nest nowhere; an adapted tool takes its context along.
AutoGen shows a model the text of an error. An agent or a team that is a tool is
``composite`` unless stated. Its messages are no dialect of `Session.messages`.

An adapted tool or model client is of a subclass with the same name, which cannot be
pickled.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._current import tool_call_id as tool_call
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
    refuse,
    subclass_of,
    unknown_version,
)
from durable_agent.integrations._json_tools import by_names, check_known, check_names

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_DISTRIBUTION: Final = "autogen-core"
_TOOLS: Final = "autogen_core.tools._base"
_STREAMED: Final = "run_json_stream"

#: What sends requests, with what their calls are told by.
_METHODS: Final = {"create": "", "create_stream": ".stream"}
#: The arguments of both, in order.
_NAMES: Final = (
    *("messages", "tools", "tool_choice", "json_output", "extra_create_args"),
    "cancellation_token",
)
#: What holds tools and models: module, class, what to do instead.
_REFUSED: Final = (
    ("autogen_core._base_agent", "BaseAgent", "Decorate its tools and its client."),
    (
        "autogen_agentchat.agents._base_chat_agent",
        "BaseChatAgent",
        "Decorate its tools and its client.",
    ),
    (
        "autogen_core.tools._workbench",
        "Workbench",
        "Decorate what it is made of: `StaticWorkbench([checkpointed_tool(t)])`.",
    ),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model client whose calls are recorded.

    None of anything else. Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "BaseTool"):
        demand_kind(obj, spec.kind, "tool")
        demand(type(obj), ("run", "run_json"), _DISTRIBUTION)
        return _adapt_tool(obj, evolve(spec, short=obj.name))
    if is_a(obj, "autogen_core.models._model_client", "ChatCompletionClient"):
        demand_kind(obj, spec.kind, "llm")
        return _adapt_client(obj, spec)
    refuse(obj, _REFUSED)
    return None


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    cls = type(tool)
    made = hasattr(cls, "__durable_made__")
    if not made:
        _demand_own_ways(cls)
    namespace: dict[str, Any] = {}
    copied = copy.copy(tool)
    if is_a(tool, "autogen_core.tools._function_tool", "FunctionTool"):
        if "_func" not in vars(tool):
            raise unknown_version("FunctionTool", "_func", _DISTRIBUTION)
        copied._func = _decorated(tool, spec)  # noqa: SLF001 - it is there, see above
        same = copied._func is tool._func  # noqa: SLF001 - the same
        namespace["run"] = _carrying(cls)
    else:
        namespace |= _methods(tool, spec)
        same = all(function_of(cls, name) is fn for name, fn in namespace.items())
    if made and same:
        return tool
    if not made:
        namespace["__durable_made__"] = True
        for name in ("run_json", _STREAMED):
            if hasattr(cls, name):
                namespace[name] = _numbered(cls, name)
    copied.__class__ = subclass_of(cls, namespace)
    return copied


def _demand_own_ways(cls: type) -> None:
    """Refuse a tool that AutoGen would run past what is recorded."""
    for base, method in (("BaseTool", "run_json"), ("BaseStreamTool", _STREAMED)):
        own, usual = getattr(cls, method, None), loaded(_TOOLS, base)
        if own is not None and own is not getattr(usual, method, None):
            raise DecorationError(
                f"{cls.__qualname__} objects run by a {method}() of their own.",
                advice="Decorate what it calls.",
            )


def _decorated(tool: Any, spec: Spec) -> Any:
    function = tool._func  # noqa: SLF001 - demanded before
    origin = Origin(function)
    if spec.name is None and origin.short_name != tool.name:
        # Functions made alike, in a loop, are many.
        spec = evolve(spec, name=f"{origin.qualified_name}[{tool.name}]")
    return decorate(function, spec)


def _carrying(cls: type) -> Any:
    """Return ``run``, which takes its context along into the pool of threads."""
    inner = function_of(cls, "run")

    @functools.wraps(inner)
    async def run(self: Any, args: Any, cancellation_token: Any) -> Any:
        if asyncio.iscoroutinefunction(self._func):
            return await inner(self, args, cancellation_token)
        once = copy.copy(self)
        context = contextvars.copy_context()
        once._func = functools.partial(context.run, self._func)  # noqa: SLF001 - as above
        return await inner(once, args, cancellation_token)

    return run


def _methods(tool: Any, spec: Spec) -> dict[str, Any]:
    """Return what a tool with a class of its own runs by, recorded."""
    cls = type(tool)
    base = loaded(_TOOLS, "BaseTool")
    check_names(spec, tool.schema["parameters"], f"the tool {tool.name!r}")
    if "effect" not in spec.given and is_a(
        tool, "autogen_agentchat.tools._task_runner_tool", "TaskRunnerTool"
    ):
        spec = evolve(spec, effect="composite")
    title = (
        spec.name or f"{module_name(cls.__module__)}:{cls.__qualname__}[{tool.name}]"
    )
    found = {}
    for method, suffix in (("run", ""), ("run_stream", ".stream")):
        if hasattr(cls, method) and getattr(cls, method) is not getattr(
            base, method, None
        ):
            name = title + suffix if isinstance(title, str) else title
            how = evolve(spec, name=name, unpack=_given)
            found[method] = decorate(function_of(cls, method), how)
    cover_each_other(found.values())
    return found


def _given(bound: dict[str, Any]) -> dict[str, Any]:
    """Return what a model gave, of the model of arguments that a tool is run with."""
    for value in bound.values():
        if hasattr(value, "model_fields_set"):
            return {name: getattr(value, name) for name in type(value).model_fields}
    return bound


def _numbered(cls: type, name: str) -> Any:
    """Return what AutoGen calls, which is told the id of the tool call."""
    inner = function_of(cls, name)
    if name == "run_json":

        @functools.wraps(inner)
        async def run_json(
            self: Any, args: Any, cancellation_token: Any, call_id: Any = None
        ) -> Any:
            with tool_call(call_id) if isinstance(call_id, str) else nullcontext():
                return await inner(self, args, cancellation_token, call_id)

        return run_json

    @functools.wraps(inner)
    async def run_json_stream(
        self: Any, args: Any, cancellation_token: Any, call_id: Any = None
    ) -> Any:
        stream = inner(self, args, cancellation_token, call_id)
        while True:
            # Around each step: a generator's context is its consumer's.
            with tool_call(call_id) if isinstance(call_id, str) else nullcontext():
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    return
            yield item

    return run_json_stream


def _adapt_client(client: Any, spec: Spec) -> Any:
    cls = type(client)
    demand(cls, _METHODS, _DISTRIBUTION)
    check_known(spec, _NAMES, f"requests of {cls.__qualname__}")
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}"
    namespace: dict[str, Any] = {}
    for method, suffix in _METHODS.items():
        how = evolve(spec, unpack=_request)
        if not callable(spec.name):
            how = evolve(how, name=(spec.name or title) + suffix)
        namespace[method] = decorate(function_of(cls, method), how)
    cover_each_other(namespace.values())
    copied = copy.copy(client)
    copied.__class__ = subclass_of(cls, namespace)
    return copied


def _request(bound: dict[str, Any]) -> dict[str, Any]:
    """Return a request's arguments as they are recorded: what the model is sent."""
    told = by_names(bound, _NAMES)
    told.pop("cancellation_token", None)
    told["messages"] = list(told["messages"])
    told["tools"] = [_schema(tool) for tool in told.get("tools") or ()]
    told["tool_choice"] = _schema(told.get("tool_choice"))
    shape = told.get("json_output")
    if isinstance(shape, type):
        told["json_output"] = shape.__name__
    return told


def _schema(tool: Any) -> Any:
    return getattr(tool, "schema", tool)


def injected_types() -> tuple[type, ...]:
    """Return the class of what AutoGen passes to tools."""
    cls = loaded("autogen_core._cancellation_token", "CancellationToken")
    return () if cls is None else (cls,)


def injects(annotation: Any) -> bool:
    """Whether AutoGen fills in a parameter with this annotation."""
    return isinstance(annotation, type) and issubclass(annotation, injected_types())


INTEGRATION: Final = Integration(
    adapt=adapt, injects=injects, injected_types=injected_types
)
