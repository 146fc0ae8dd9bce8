"""The OpenAI Agents SDK (``agents``).

What this does not do: it records no handoffs, guardrails, hooks, sessions and traces,
only tools that run here and requests to models; tools that run at the provider are part
of the response. A tool whose function is decorated innermost knows the id of its tool
call only with a ``ToolContext`` as its first parameter, and what is in doubt is shown
to the model as the SDK shows any error, unless it has ``on_unknown="return"``. What
``Agent.as_tool`` makes is ``composite`` unless stated: the agent inside is entered
again, and what it did replays; an approval that it waits for suspends it. Of a request,
the settings ``retry``, ``timeout``, ``extra_headers`` and the cache key that the runner
draws anew are not recorded, of tools that run at the provider only the name.

An adapted model or provider is of a subclass with the same name, which cannot be
pickled.
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._current import tool_call_id as tool_call
from durable_agent._decorate import decorate
from durable_agent._error_base import CallError
from durable_agent._frameworks import Integration
from durable_agent._options import merge
from durable_agent._spec import Origin, module_name
from durable_agent._value_names import loaded
from durable_agent._wrapping import Front, recorded, wrap
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
from durable_agent.integrations._json_tools import check_known, check_names, given_json
from durable_agent.integrations._openai_agents_nested import (
    AgentPausedError,
    demand_state,
    pausing,
    settled,
)
from durable_agent.integrations._openai_agents_requests import NAMES, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent._spec import Spec

_DISTRIBUTION: Final = "openai-agents"
_TOOL: Final = "agents.tool"
_MODELS: Final = "agents.models.interface"

#: Where the SDK has the function that a tool was made from.
_FUNCTION: Final = "__agents_function_tool_wrapped_callable__"
#: Where an invoker of ours has its options, what it invokes, and itself.
_MADE: Final = "__durable_made__"

#: What sends requests, with what their calls are told by.
_METHODS: Final = {"get_response": "", "stream_response": ".stream"}

_SERVER: Final = (
    "Decorate its method: `server.call_tool = checkpointed_tool(server.call_tool, "
    'name=lambda a: a["tool_name"], arguments="arguments")`.'
)
#: What holds tools and models, or runs elsewhere: module, class, what to do instead.
_REFUSED: Final = (
    ("agents.agent", "AgentBase", "Decorate its tools and its model."),
    ("agents.handoffs", "Handoff", "Decorate the other agent's tools and model."),
    (
        "agents.mcp.server",
        "MCPServer",
        _SERVER,
    ),
    (_TOOL, "ShellTool", "Decorate a function that its executor calls."),
    (_TOOL, "LocalShellTool", "Decorate a function that its executor calls."),
    (_TOOL, "ApplyPatchTool", "Decorate the methods of its editor."),
    (_TOOL, "ComputerTool", "Decorate the methods of its computer."),
    *(
        (_TOOL, name, "It runs at the provider: leave it as it is.")
        for name in (
            *("WebSearchTool", "FileSearchTool", "HostedMCPTool", "ToolSearchTool"),
            *("CodeInterpreterTool", "ImageGenerationTool"),
            "ProgrammaticToolCallingTool",
        )
    ),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool, model or provider of models whose calls are recorded.

    None of anything else. Raises `DecorationError`.
    """
    if is_a(obj, _TOOL, "FunctionTool"):
        demand_kind(obj, spec.kind, "tool")
        return _adapt_function_tool(obj, spec)
    if is_a(obj, _TOOL, "CustomTool"):
        demand_kind(obj, spec.kind, "tool")
        return _with_invoker(obj, _recording(obj, obj.on_invoke_tool, spec))
    if is_a(obj, _MODELS, "Model"):
        demand_kind(obj, spec.kind, "llm")
        return _adapt_model(obj, spec)
    if is_a(obj, _MODELS, "ModelProvider"):
        demand_kind(obj, spec.kind, "llm")
        return _adapt_provider(obj, spec)
    refuse(obj, _REFUSED)
    return None


def _adapt_function_tool(tool: Any, spec: Spec) -> Any:
    invoker = tool.on_invoke_tool
    handling = loaded(_TOOL, "_FailureHandlingFunctionToolInvoker")
    if handling is None:
        raise unknown_version("agents.tool", "failure handler", _DISTRIBUTION)
    if not isinstance(invoker, handling):
        return _with_invoker(tool, _recording(tool, invoker, spec))
    # Inside: outside of it errors look like results.
    inside = vars(invoker).get("_invoke_tool_impl")
    if inside is None:
        raise unknown_version(handling.__qualname__, "_invoke_tool_impl", _DISTRIBUTION)
    made = _recording(tool, inside, spec, _shows_errors())
    if made is inside:
        return tool
    copied = copy.copy(tool)
    invoker = copy.copy(copied.on_invoke_tool)
    invoker._invoke_tool_impl = made  # noqa: SLF001 - it is there, see above
    copied.on_invoke_tool = invoker
    return copied


def _with_invoker(tool: Any, made: Any) -> Any:
    if made is tool.on_invoke_tool:
        return tool
    copied = copy.copy(tool)
    copied.on_invoke_tool = made
    return copied


def _recording(
    tool: Any, inside: Any, spec: Spec, shows: Callable[..., bool] | None = None
) -> Any:
    """Return an invoker that records; the very same, if it does so already."""
    before, real, made = getattr(inside, _MADE, (spec, inside, None))
    if made is not inside:
        return _invoker(tool, inside, spec, shows)
    both = merge(before, spec)
    return inside if both == before else _invoker(tool, real, both, shows)


def _shows_errors() -> Callable[..., bool]:
    """Return what tells whether a tool's errors are shown in the SDK's own words."""
    resolve = loaded(_TOOL, "resolve_function_tool_failure_error_function")
    usual = loaded(_TOOL, "default_tool_error_function")
    if resolve is None or usual is None:
        raise unknown_version(_TOOL, "default_tool_error_function", _DISTRIBUTION)
    return lambda tool, context: resolve(tool, context) is usual


def _invoker(
    tool: Any, inside: Any, spec: Spec, shows: Callable[..., bool] | None
) -> Any:
    schema = getattr(tool, "params_json_schema", {"properties": {"input": {}}})
    check_names(spec, schema, f"the tool {tool.name!r}")
    function = getattr(inside, _FUNCTION, None)
    below = recorded(function) if callable(function) else []
    how = _named(tool, inside if function is None else function, spec)
    for front in below:
        how = merge(front.how, how) if not isinstance(front.how, str) else how
    agent = bool(getattr(tool, "_is_agent_tool", False))
    invoke = pausing(inside) if agent else inside

    async def run(context: Any, text: Any, /) -> Any:
        result = invoke(context, text)
        return await result if inspect.isawaitable(result) else result

    run.__qualname__ = run.__name__ = tool.name
    front = Front(run, evolve(how, unpack=_arguments))
    # A function that is decorated itself is this very call.
    front.origin.covers = tuple(each.origin.function for each in below)
    call = wrap(run, front)

    @functools.wraps(inside)
    async def invoker(context: Any, text: Any) -> Any:
        known = is_a(context, "agents.tool_context", "ToolContext")
        try:
            with tool_call(context.tool_call_id) if known else nullcontext():
                result = await call(context, text)
        except AgentPausedError as paused:
            return paused.shown
        except CallError as error:
            # The SDK's own words are "please try again", of what may have happened.
            if shows is None or not shows(tool, context):
                raise
            return str(error)
        if agent:
            settled(context)
        return result

    setattr(invoker, _MADE, (spec, inside, invoker))
    return invoker


def _named(tool: Any, function: Any, spec: Spec) -> Spec:
    """Return the options with the name of a tool's function, and the tool's own."""
    if getattr(tool, "_is_agent_tool", False):
        demand_state(_DISTRIBUTION)
        name = f"agents:Agent.as_tool[{tool.name}]"
        if "effect" not in spec.given:
            spec = evolve(spec, effect="composite")
    else:
        origin = Origin(function)
        name = origin.qualified_name
        if origin.short_name != tool.name:
            # Functions made alike, in a loop, are many.
            name = f"{name}[{tool.name}]"
    return evolve(spec, name=spec.name or name, short=tool.name)


def _arguments(bound: dict[str, Any]) -> dict[str, Any]:
    return given_json(bound["text"])


def _adapt_model(model: Any, spec: Spec) -> Any:
    cls = type(model)
    demand(cls, _METHODS, _DISTRIBUTION)
    check_known(spec, NAMES, f"requests of {cls.__qualname__}")
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}"
    named = getattr(model, "model", None)
    if isinstance(named, str):
        title += f"[{named}]"
    namespace: dict[str, Any] = {}
    for method, suffix in _METHODS.items():
        how = evolve(spec, unpack=asked)
        if not callable(spec.name):
            how = evolve(how, name=(spec.name or title) + suffix)
        namespace[method] = decorate(function_of(cls, method), how)
    cover_each_other(namespace.values())
    return _recast(model, namespace)


def _recast(obj: Any, namespace: Mapping[str, Any]) -> Any:
    copied = copy.copy(obj)
    try:
        copied.__class__ = subclass_of(type(obj), namespace)
    except TypeError as error:
        raise DecorationError(
            f"{type(obj).__qualname__} objects cannot be recorded: {error}",
            advice="Decorate what sends its requests.",
        ) from error
    return copied


def _adapt_provider(provider: Any, spec: Spec) -> Any:
    """Return a provider that gives models that record."""
    cls = type(provider)
    demand(cls, ("get_model",), _DISTRIBUTION)
    given: dict[int, tuple[Any, Any]] = {}

    def get_model(self: Any, model_name: str | None) -> Any:
        model = cls.get_model(self, model_name)
        # One and the same, as long as the provider's is.
        if id(model) not in given:
            given[id(model)] = (model, decorate(model, spec))
        return given[id(model)][1]

    return _recast(provider, {"get_model": get_model})


def injects(annotation: Any) -> bool:
    """Whether the SDK fills in a parameter with this annotation."""
    if typing.get_origin(annotation) is typing.Annotated:
        return injects(typing.get_args(annotation)[0])
    cls = typing.get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, injected_types())


def injected_types() -> tuple[type, ...]:
    """Return the class of what the SDK passes to tools."""
    cls = loaded("agents.run_context", "RunContextWrapper")
    return () if cls is None else (cls,)


def running_tool_call(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the tool call whose context a function was given.

    The function has the name of the tool, or parameters for all that it was given.
    """
    cls = loaded("agents.tool_context", "ToolContext")
    for context in arguments.values() if cls is not None else ():
        if isinstance(context, cls):
            given = given_json(context.tool_arguments)
            if name == context.tool_name or given.keys() <= arguments.keys():
                return str(context.tool_call_id)
    return None


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what suspends an agent that is called as a tool."""
    return (AgentPausedError,)


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    injected_types=injected_types,
    tool_call_id=running_tool_call,
    control_flow=control_flow,
)
