"""Microsoft Agent Framework (``agent-framework-core``).

What this does not do: it records no agents, workflows, middleware and context
providers, only function tools and requests of chat clients. A tool whose function is
decorated innermost knows the id of its tool call only with a
``FunctionInvocationContext`` parameter, where there is middleware of functions; and
what is in doubt is shown to the model as any error is, unless it has
``on_unknown="return"``. Responses come back as ``to_dict`` has them: without what the
provider's SDK returned (``raw_representation``); a client's own finalizing of a stream
is the framework's. Its messages are no dialect of
`Session.messages`.

An adapted tool or client is of a subclass with the same name, which cannot be pickled.
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._current import tool_call_id as tool_call
from durable_agent._decorate import decorate
from durable_agent._error_base import CallError
from durable_agent._frameworks import Integration
from durable_agent._spec import Origin, module_name
from durable_agent._value_names import loaded
from durable_agent.errors import DecorationError
from durable_agent.integrations._adapting import (
    demand,
    demand_kind,
    function_of,
    is_a,
    refuse,
    subclass_of,
    unknown_version,
)
from durable_agent.integrations._json_tools import check_known

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from durable_agent._spec import Spec

_DISTRIBUTION: Final = "agent-framework-core"
_TOOLS: Final = "agent_framework._tools"
_TYPES: Final = "agent_framework._types"

#: Members of messages that are drawn anew, or not sent.
_UNSENT: Final = frozenset(
    {"id", "message_id", "additional_properties", "raw_representation"}
)
#: Options that do not say what is asked for, or that are secret.
_NO_OPTIONS: Final = frozenset({"extra_headers", "timeout"})
#: What holds tools and models: module, class, what to do instead.
_REFUSED: Final = (
    ("agent_framework._agents", "BaseAgent", "Decorate its tools and its client."),
    (
        "agent_framework._mcp",
        "MCPTool",
        "Decorate the session that it uses: `checkpointed_tool(session)`.",
    ),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a function tool or chat client whose calls are recorded.

    None of anything else. Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "FunctionTool"):
        demand_kind(obj, spec.kind, "tool")
        return _adapt_tool(obj, evolve(spec, short=obj.name))
    if is_a(obj, "agent_framework._clients", "BaseChatClient"):
        demand_kind(obj, spec.kind, "llm")
        return _adapt_client(obj, spec)
    refuse(obj, _REFUSED)
    return None


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    cls = type(tool)
    demand(cls, ("invoke", "_invoke_function"), _DISTRIBUTION)
    if "func" not in vars(tool):
        raise unknown_version("FunctionTool", "func", _DISTRIBUTION)
    if tool.func is None:
        raise DecorationError(
            f"The tool {tool.name!r} has no function: it is run elsewhere.",
            advice="Leave it as it is.",
        )
    origin = Origin(tool.func)
    if spec.name is None and origin.short_name != tool.name:
        # Functions made alike, in a loop, are many.
        spec = evolve(spec, name=f"{origin.qualified_name}[{tool.name}]")
    decorated = decorate(tool.func, spec)
    made = hasattr(cls, "__durable_made__")
    if made and decorated is tool.func:
        return tool
    copied = copy.copy(tool)
    copied.func = decorated
    if not made:
        namespace = {"invoke": _invoking(cls), "__durable_made__": True}
        copied.__class__ = subclass_of(cls, namespace)
    return copied


def _invoking(cls: type) -> Any:
    """Return ``invoke``, which says which tool call it answers."""
    inner = function_of(cls, "invoke")

    @functools.wraps(inner)
    async def invoke(self: Any, **kwargs: Any) -> Any:
        context = kwargs.get("context")
        given = kwargs.get("tool_call_id") or _id_of(context)
        try:
            with nullcontext() if given is None else tool_call(given):
                return await inner(self, **kwargs)
        except CallError as error:
            if given is None or kwargs.get("skip_parsing"):
                raise
            # Of errors, models are only told that there was one.
            return [loaded(_TYPES, "Content").from_text(str(error))]

    return invoke


def _id_of(context: Any) -> str | None:
    if not isinstance(context, injected_types()):
        return None
    found = typing.cast("Any", context).metadata.get("call_id")
    return found if isinstance(found, str) else None


def _adapt_client(client: Any, spec: Spec) -> Any:
    cls = type(client)
    needed = ("_inner_get_response", "_build_response_stream")
    demand(cls, needed, _DISTRIBUTION)
    check_known(spec, ("messages", "options"), f"requests of {cls.__qualname__}")
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}"
    model = getattr(client, "model", None)
    if isinstance(model, str):
        title += f"[{model}]"
    spec = evolve(spec, unpack=_request)
    how = (spec, spec)
    if not callable(spec.name):
        title = spec.name or title
        how = (evolve(spec, name=title), evolve(spec, name=f"{title}.stream"))
    copied = copy.copy(client)
    namespace = {"_inner_get_response": _asking(cls, *how)}
    copied.__class__ = subclass_of(cls, namespace)
    return copied


def _asking(cls: type, whole: Spec, streamed: Spec) -> Any:
    """Return what clients define, whose responses are recorded as plain JSON."""
    inner = function_of(cls, "_inner_get_response")

    async def get_response(self: Any, live: list[Any], request: Any) -> Any:
        live.append(await inner(self, stream=False, **request))
        return live[0].to_dict()

    async def get_updates(
        self: Any, live: list[Any], request: Any
    ) -> AsyncGenerator[Any, None]:
        made = inner(self, stream=True, **request)
        if inspect.isawaitable(made) and not hasattr(made, "__aiter__"):
            made = await made
        async for update in made:
            live.append(update)
            yield update.to_dict()

    for function in (get_response, get_updates):
        function.__qualname__ = f"{cls.__qualname__}._inner_get_response"
        function.__module__ = cls.__module__
    ask, ask_stream = decorate(get_response, whole), decorate(get_updates, streamed)

    async def response(self: Any, request: Any) -> Any:
        live: list[Any] = []
        plain = await ask(self, live, request)
        return live[0] if live else loaded(_TYPES, "ChatResponse").from_dict(plain)

    async def updates(self: Any, request: Any) -> AsyncGenerator[Any, None]:
        live: list[Any] = []
        async with aclosing(ask_stream(self, live, request)) as source:
            async for plain in source:
                kind = loaded(_TYPES, "ChatResponseUpdate")
                yield live.pop() if live else kind.from_dict(plain)

    @functools.wraps(inner)
    def _inner_get_response(self: Any, *, stream: bool, **request: Any) -> Any:
        if not stream:
            return response(self, request)
        shape = (request.get("options") or {}).get("response_format")
        return self._build_response_stream(  # what clients call, too
            updates(self, request), response_format=shape
        )

    return _inner_get_response


def _request(bound: dict[str, Any]) -> dict[str, Any]:
    """Return a request's arguments as they are recorded: what the model is sent."""
    given = bound["request"]
    options = given.get("options") or {}
    return {
        "messages": [_sent(message.to_dict()) for message in given["messages"]],
        "options": {
            name: _option(value)
            for name, value in options.items()
            if value is not None and name not in _NO_OPTIONS
        },
    }


def _sent(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {n: _sent(v) for n, v in tree.items() if n not in _UNSENT}
    return [_sent(v) for v in tree] if isinstance(tree, list) else tree


def _option(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_option(item) for item in value]
    if is_a(value, _TOOLS, "FunctionTool"):
        told = {"name": value.name, "description": value.description}
        return {**told, "parameters": value.parameters()}
    return value.__qualname__ if isinstance(value, type) else value


def injects(annotation: Any) -> bool:
    """Whether the framework fills in a parameter with this annotation."""
    cls = typing.get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, injected_types())


def injected_types() -> tuple[type, ...]:
    """Return the class of what is passed to tools."""
    cls = loaded("agent_framework._middleware", "FunctionInvocationContext")
    return () if cls is None else (cls,)


def running_tool_call(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the tool call whose context a function was given.

    The function has the name of the tool.
    """
    for context in arguments.values():
        given = _id_of(context)
        if given is not None and context.function.name == name:
            return given
    return None


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what asks the user, or ends the loop of calls."""
    where = (
        ("agent_framework.exceptions", "UserInputRequiredException"),
        ("agent_framework._middleware", "MiddlewareTermination"),
        ("agent_framework._middleware", "MiddlewareFailure"),
    )
    found = (loaded(*each) for each in where)
    return tuple(cls for cls in found if cls is not None)


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    injected_types=injected_types,
    tool_call_id=running_tool_call,
    control_flow=control_flow,
)
