"""Pydantic AI.

What this does not do: it records no agents, graphs, capabilities, output functions,
batches and counts of tokens, only tools and requests to models; toolsets are not
adapted: what they are made of is. An agent's own decorators (``@agent.tool``) register
the function that they get: ours goes innermost, and then the id of a tool call is
known only with a ``RunContext`` as the first parameter. ``ApprovalRequired`` and
``CallDeferred`` suspend a call; ``ModelRetry`` does, too, and is raised again on replay
where the run went on. Of a request, time-outs and headers are not recorded, of a
provider's own tools only the kind. A finished tool replays without what is in it: an
agent inside counts nothing into a ``usage`` that it was given.

An adapted model is of a subclass with the same name, which cannot be pickled.
"""

from __future__ import annotations

import copy
import typing
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
from durable_agent.integrations._json_tools import check_known
from durable_agent.integrations._pydantic_ai_models import NAMES, asked, streaming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_agent._spec import Spec

_DISTRIBUTION: Final = "pydantic-ai-slim"
_MODELS: Final = "pydantic_ai.models"
_ERRORS: Final = "pydantic_ai.exceptions"

#: What a schema's subclass of ours is known by.
_MADE: Final = "__durable_made__"

#: What holds tools and models: module, class, what to do instead.
_REFUSED: Final = (
    ("pydantic_ai.agent", "AbstractAgent", "Decorate its tools and its model."),
    (
        "pydantic_ai.toolsets",
        "AbstractToolset",
        "Decorate what it is made of: `FunctionToolset([checkpointed_tool(f)])`.",
    ),
)


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model whose calls are recorded.

    None of anything else. Raises `DecorationError`.
    """
    if is_a(obj, "pydantic_ai.tools", "Tool"):
        demand_kind(obj, spec.kind, "tool")
        return _adapt_tool(obj, spec)
    if is_a(obj, "pydantic_ai.models.instrumented", "InstrumentedModel"):
        # Agents look through it, and ask what is inside.
        demand_kind(obj, spec.kind, "llm")
        copied = copy.copy(obj)
        copied.wrapped = decorate(obj.wrapped, spec)
        return copied
    if is_a(obj, _MODELS, "Model"):
        demand_kind(obj, spec.kind, "llm")
        return _adapt_model(obj, spec)
    refuse(obj, _REFUSED)
    return None


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    schema = vars(tool).get("function_schema")
    for name in ("function", "call", "takes_ctx", "is_async"):
        if not hasattr(schema, name):
            raise unknown_version("Tool.function_schema", name, _DISTRIBUTION)
    usual = loaded("pydantic_ai._function_schema", "FunctionSchema")
    if type(schema).call is not getattr(usual, "call", None):
        if not hasattr(schema, _MADE):
            raise unknown_version("Tool.function_schema", "known call", _DISTRIBUTION)
    function = schema.function
    origin = Origin(function)
    spec = evolve(spec, short=tool.name)
    if spec.name is None and origin.short_name != tool.name:
        # Functions made alike, in a loop, are many.
        spec = evolve(spec, name=f"{origin.qualified_name}[{tool.name}]")
    decorated = decorate(function, spec)
    if decorated is function and hasattr(schema, _MADE):
        return tool
    copied, schema = copy.copy(tool), copy.copy(schema)
    schema.function = copied.function = decorated
    if not hasattr(schema, _MADE):
        schema.__class__ = _calling(type(schema))
    copied.function_schema = schema
    return copied


def _calling(cls: type) -> type:
    """Return a subclass of a schema's class that says which tool call it answers."""
    run = function_of(cls, "call")

    async def call(self: Any, args_dict: dict[str, Any], ctx: Any) -> Any:
        given = _ids(ctx)[1]
        with nullcontext() if given is None else tool_call(given):
            return await run(self, args_dict, ctx)

    return subclass_of(cls, {"call": call, _MADE: True})


def _adapt_model(model: Any, spec: Spec) -> Any:
    cls = type(model)
    demand(cls, ("request", "request_stream"), _DISTRIBUTION)
    for name in ("CompletedStreamedResponse", "ModelRequestParameters"):
        if loaded(_MODELS, name) is None:
            raise unknown_version(_MODELS, name, _DISTRIBUTION)
    check_known(spec, NAMES, f"requests of {cls.__qualname__}")
    title = spec.name
    if title is None:
        title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{model.model_name}]"
    spec = evolve(spec, unpack=asked)
    whole = streamed = spec
    if isinstance(title, str):
        whole, streamed = (evolve(spec, name=title + s) for s in ("", ".stream"))
    request = decorate(function_of(cls, "request"), whole)
    request_stream, events = streaming(cls, streamed)
    cover_each_other([request, events])
    copied = copy.copy(model)
    try:
        copied.__class__ = subclass_of(
            cls, {"request": request, "request_stream": request_stream}
        )
    except TypeError as error:
        raise DecorationError(
            f"{cls.__qualname__} objects cannot be recorded: {error}",
            advice="Decorate what sends its requests.",
        ) from error
    return copied


def injects(annotation: Any) -> bool:
    """Whether Pydantic AI fills in a parameter with this annotation."""
    if typing.get_origin(annotation) is typing.Annotated:
        return injects(typing.get_args(annotation)[0])
    cls = typing.get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, injected_types())


def injected_types() -> tuple[type, ...]:
    """Return the class of what is passed to tools."""
    cls = loaded("pydantic_ai._run_context", "RunContext")
    return () if cls is None else (cls,)


def running_tool_call(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the tool call whose context a function was given.

    The function has the name of the tool.
    """
    named = map(_ids, arguments.values())
    return next((given for tool, given in named if given and tool == name), None)


def _ids(context: Any) -> tuple[str | None, str | None]:
    """Return the tool and the id of its call that a context is for."""
    known = isinstance(context, injected_types())
    return (context.tool_name, context.tool_call_id) if known else (None, None)


def control_flow() -> tuple[type[BaseException], ...]:
    """Return what pauses a tool call, or sends it back to the model."""
    names = ("CallDeferred", "ApprovalRequired", "ModelRetry")
    found = (loaded(_ERRORS, name) for name in names)
    return tuple(cls for cls in found if cls is not None)


def told() -> tuple[type[BaseException], ...]:
    """Return by which of these a tool tells its model something."""
    cls = loaded(_ERRORS, "ModelRetry")
    return () if cls is None else (cls,)


INTEGRATION: Final = Integration(
    adapt=adapt,
    injects=injects,
    injected_types=injected_types,
    tool_call_id=running_tool_call,
    control_flow=control_flow,
    told=told,
)
