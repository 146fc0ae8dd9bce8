"""MCP: the official SDK, and fastmcp.

What this does not do: it records no resources and prompts, only tools; it does not see
tools that are called by ``send_request``, or through the sessions of a group; progress
and log messages are not replayed. MCP has no ids of tool calls: they are found by name
and arguments. Of a server, the functions are recorded, decorated innermost, in the
server's own process; what its decorator gives back is not what the server runs.

A session or client cannot be copied, it has a connection. What comes back shares all
its state with the original, and is of a subclass with the same name.
"""

from __future__ import annotations

import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._frameworks import Integration
from durable_agent._options import merge
from durable_agent._value_names import loaded
from durable_agent._wrapping import recorded
from durable_agent.errors import DecorationError
from durable_agent.integrations._adapting import (
    demand,
    demand_kind,
    function_of,
    is_a,
    subclass_of,
    unknown_version,
    with_state,
)
from durable_agent.integrations._mcp_tools import CALLER, Tools, shown, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_agent._spec import Spec

#: What calls tools: module, class, distribution, and the method that is recorded.
_CALLERS: Final = (
    ("mcp.client.session", "ClientSession", "mcp", "call_tool"),
    ("mcp.client.client", "Client", "mcp", "call_tool"),
    ("mcp.client.session_group", "ClientSessionGroup", "mcp", "call_tool"),
    ("fastmcp.client.client", "Client", "fastmcp", "call_tool_mcp"),
)
#: A server's own tool objects: they run ``fn``.
_SERVER_TOOLS: Final = (
    ("mcp.server.mcpserver.tools.base", "Tool", "mcp"),
    ("fastmcp.tools.function_tool", "FunctionTool", "fastmcp"),
)
#: What holds functions or clients, and runs them past any wrapper.
_HOLDERS: Final = (
    ("mcp.server.mcpserver.server", "MCPServer"),
    ("mcp.server.lowlevel.server", "Server"),
    ("fastmcp.server.server", "FastMCP"),
    ("fastmcp.client.group", "ClientGroup"),
)
#: What servers fill in.
_CONTEXTS: Final = (
    ("mcp.server.mcpserver.context", "Context"),
    ("fastmcp.server.context", "Context"),
)
#: Parameters of the recorded methods that do not say what is asked for.
_IGNORED: Final = frozenset(
    {
        *("read_timeout_seconds", "progress_callback", "meta"),
        *("timeout", "progress_handler", "allow_claimed", "allow_input_required"),
    }
)
#: ``CONNECTION_CLOSED`` and ``REQUEST_TIMEOUT``, which was 408 once.
_DOUBTFUL_CODES: Final = frozenset({-32000, -32001, 408})

#: Where a subclass has the options that it was made with.
_OPTIONS: Final = "__durable_options__"


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a session or client that records, or a server's tool that does.

    Of a bound method that calls tools, that of such a session. None of anything else.
    Raises `DecorationError`.
    """
    if isinstance(obj, types.MethodType):
        return _adapt_method(obj, spec)
    for module, name, distribution, method in _CALLERS:
        if is_a(obj, module, name):
            demand_kind(obj, spec.kind, "tool")
            # Of a client, the session would be a way past it.
            needed = (method, "session") if name == "Client" else (method,)
            demand(type(obj), needed, distribution)
            if loaded("mcp_types", "CallToolResult") is None:
                raise unknown_version(name, "mcp_types.CallToolResult", "mcp")
            return _face(obj, spec, method, Tools(obj))
    for module, name, distribution in _SERVER_TOOLS:
        if is_a(obj, module, name):
            demand_kind(obj, spec.kind, "tool")
            return _adapt_server_tool(obj, spec, distribution)
    for module, name in _HOLDERS:
        if is_a(obj, module, name):
            raise DecorationError(
                f"{name} objects hold what they run: nothing of it would be recorded.",
                advice="Decorate what it is given: the clients, or the functions, "
                "innermost (`@mcp.tool` above `@checkpointed_tool`).",
            )
    return None


def _adapt_method(obj: Any, spec: Spec) -> Any | None:
    owner, name = obj.__self__, obj.__name__
    for module, cls, _, method in _CALLERS:
        if is_a(owner, module, cls) and name in {"call_tool", method}:
            return getattr(adapt(owner, spec), name)
    return None


def _adapt_server_tool(tool: Any, spec: Spec, distribution: str) -> Any:
    if "fn" not in type(tool).model_fields:
        raise unknown_version(type(tool).__qualname__, "fn", distribution)
    made = decorate(tool.fn, evolve(spec, short=tool.name))
    return tool if made is tool.fn else tool.model_copy(update={"fn": made})


def _face(obj: Any, spec: Spec, method: str, tools: Tools) -> Any:
    """Return an object with the state of another whose calls are recorded."""
    cls = type(obj)
    options = vars(cls).get(_OPTIONS)
    if options is not None:
        both = merge(options, spec)
        if both == options:
            return obj
        cls, spec = cls.__mro__[1], both
    how = _how(cls, spec, method, tools)
    calling = decorate(function_of(cls, method), how)
    namespace = {
        _OPTIONS: spec,
        method: tools.before(calling, spec.trust_annotations),
    }
    if hasattr(cls, "list_tools"):
        namespace["list_tools"] = tools.noting(function_of(cls, "list_tools"))
    session = _property(cls, "session")
    if session is not None:
        namespace["session"] = _sessions(session, spec, calling, tools)
    try:
        made = with_state(subclass_of(cls, namespace), obj.__dict__)
    except (TypeError, AttributeError) as error:
        raise DecorationError(
            f"{cls.__qualname__} objects cannot be recorded: {error}",
            advice=f"Decorate its bound method `{method}` in a function of your own.",
        ) from error
    return made


def _property(cls: type, name: str) -> property | None:
    found = inspect.getattr_static(cls, name, None)
    return found if isinstance(found, property) else None


def _sessions(session: property, spec: Spec, calling: Any, tools: Tools) -> property:
    """Return a property that gives the session below a client, recording as well.

    What the client itself asks of it is the client's own call.
    """
    (front,) = recorded(calling)[:1]
    last: list[tuple[Any, Any]] = []

    def get(self: Any) -> Any:
        inner = typing.cast("Any", session.fget)(self)
        if not last or last[0][0] is not inner:
            face: Any = _face(inner, spec, "call_tool", tools)
            last[:] = [(inner, face)]
            covers = {f.origin.function for f in recorded(type(face).call_tool)}
            front.origin.covers = (*covers.union(front.origin.covers),)
        return last[0][1]

    return property(get, doc=session.__doc__)


def _how(cls: type, spec: Spec, method: str, tools: Tools) -> Spec:
    """Return the options of the method: each tool has a name, as the model has it."""
    parameters = inspect.signature(function_of(cls, method)).parameters
    changes: dict[str, Any] = {
        "arguments": spec.arguments or "arguments",
        "ignore": spec.ignore | (_IGNORED & parameters.keys()),
        "render": spec.render or shown,
        "told": told,
        "trust_annotations": False,
    }
    if not callable(spec.name):
        changes["short"] = _tool_name
    if spec.name is None:
        changes["name"] = _full_name
    if spec.trust_annotations:
        if "effect" in spec.given:
            raise DecorationError(
                "effect= and trust_annotations=True contradict each other.",
                advice="State one of them.",
            )
        changes["effect"] = tools.effect
    return evolve(spec, **changes)


def _tool_name(bound: Mapping[str, Any]) -> str:
    return str(bound["name"])


def _full_name(bound: Mapping[str, Any]) -> str:
    """Return ``mcp:server/tool``: two servers may have tools of the same name."""
    info = getattr(CALLER.get(), "server_info", None)
    server = getattr(info, "name", None)
    pinned = (bound.get("meta") or {}).get("fastmcp")
    version = pinned.get("version") if isinstance(pinned, dict) else None
    name = f"mcp:{server or ''}/{bound['name']}"
    return name if version is None else f"{name}@{version}"


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what a server's tool asks for something by: the client calls it again."""
    asks = loaded("mcp.shared.exceptions", "UrlElicitationRequiredError")
    return () if asks is None else (asks,)


def injects(annotation: Any) -> bool:
    """Whether a server fills in a parameter with this annotation."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return injects(typing.get_args(annotation)[0])
    if origin in {typing.Union, types.UnionType}:
        return any(map(injects, typing.get_args(annotation)))
    cls = origin or annotation
    return isinstance(cls, type) and issubclass(cls, injected_types())


def fills(default: Any) -> bool:
    """Whether fastmcp fills in a parameter with this default: a dependency."""
    return is_a(default, "uncalled_for", "Dependency")


def injected_types() -> tuple[type, ...]:
    """Return the classes of the contexts that servers pass in."""
    found = (loaded(*where) for where in _CONTEXTS)
    return tuple(cls for cls in found if cls is not None)


def in_doubt(error: BaseException) -> bool:
    """Whether the connection was lost, or the answer did not come in time."""
    cls = loaded("mcp.shared.exceptions", "MCPError")
    if cls is not None and isinstance(error, cls):
        return error.error.code in _DOUBTFUL_CODES
    names = ("BrokenResourceError", "ClosedResourceError", "EndOfStream")
    lost = tuple(t for name in names if (t := loaded("anyio", name)) is not None)
    return isinstance(error, lost)


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    fills=fills,
    injected_types=injected_types,
    control_flow=control_flow,
    in_doubt=in_doubt,
)
