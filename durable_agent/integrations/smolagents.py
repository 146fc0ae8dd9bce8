"""smolagents.

What this does not do: it records no agent and no code that an agent writes, only tools
and models; it does not tell which tool call of a response a tool runs for. A
`CodeAgent` runs its code in a thread without the caller's context: while one session is
open its tools are recorded there, as detached; with several open at once, give the
agent ``executor_kwargs={"timeout_seconds": None}``, and no thread is in between.

What comes back has the class of the original; its own ``forward``, or ``generate`` and
``generate_stream``, record. The source that an agent sends elsewhere is that of the
undecorated tool: what runs in another process or machine is not recorded.
"""

from __future__ import annotations

import copy
import functools
import typing
import uuid
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._frameworks import Integration
from durable_agent._options import merge
from durable_agent._spec import module_name
from durable_agent._value_names import loaded
from durable_agent._wrapping import front_of, recorded
from durable_agent.errors import DecorationError
from durable_agent.integrations._adapting import (
    cover_each_other,
    demand,
    demand_kind,
    function_of,
    is_a,
    replaced,
)

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_DIST: Final = "smolagents"
_TOOLS: Final = "smolagents.tools"
#: Classes whose ``__call__`` is known to run ``forward``.
_CALLING: Final = ("Tool", "PipelineTool")
#: What runs a model, with what its requests are told by.
_REQUESTS: Final = {"generate": "", "generate_stream": ".stream"}


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model whose calls are recorded; None of others.

    Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "BaseTool"):
        demand_kind(obj, spec.kind, "tool")
        return _adapt_tool(obj, spec)
    if is_a(obj, "smolagents.models", "Model"):
        demand_kind(obj, spec.kind, "llm")
        demand(type(obj), ["generate", "parse_tool_calls"], _DIST)
        return _adapt_model(obj, spec)
    if is_a(obj, "smolagents.agents", "MultiStepAgent"):
        raise DecorationError(
            f"{type(obj).__qualname__} objects are agents: they run past any wrapper.",
            advice="Decorate the tools and the model that it is given.",
        )
    return None


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    cls = type(tool)
    demand(cls, ["forward"], _DIST)
    known = [loaded(_TOOLS, name) for name in _CALLING]
    calling = function_of(cls, "__call__")
    if not any(base and calling is vars(base).get("__call__") for base in known):
        raise DecorationError(
            f"{cls.__qualname__} has a __call__ of its own, which may run anything.",
            advice="Decorate its methods, or the function that it is made from.",
        )
    spec = evolve(spec, short=tool.name)
    copied = copy.copy(tool)
    for front in recorded(vars(tool).get("forward")):
        # Decorated already.
        how = typing.cast("Spec", front.how)
        spec = merge(how, spec)
        if spec == how:
            return tool
        del copied.forward
    copied.forward = _forward(copied, copied.forward, spec)
    return copied


def _forward(tool: Any, own: Any, spec: Spec) -> Any:
    inner = getattr(own, "__wrapped__", None)
    if not isinstance(own, MethodType) and inner is not None and front_of(own) is None:
        # Of `@tool`: it shows a signature that it does not have, with a ``self``.
        made = decorate(inner, spec)

        @functools.wraps(own)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return made(*args, **kwargs)

        forward.__wrapped__ = made
        return forward
    if spec.name is None:
        spec = evolve(spec, name=f"{_class_name(tool)}[{tool.name}]")
    if isinstance(own, MethodType):
        own = MethodType(own.__func__, tool)
    return decorate(own, spec)


def _class_name(obj: Any) -> str:
    return f"{module_name(type(obj).__module__)}:{type(obj).__qualname__}"


def _adapt_model(model: Any, spec: Spec) -> Any:
    copied = copy.copy(model)
    title = f"{_class_name(model)}[{model.model_id or ''}]"
    title = spec.name if isinstance(spec.name, str) else title
    made = {}
    for method, suffix in _REQUESTS.items():
        own = getattr(model, method, None)
        if own is None:
            continue
        if front_of(own) is None and getattr(own, "__self__", None) is model:
            own = MethodType(own.__func__, copied)
        name = spec.name if callable(spec.name) else title + suffix
        made[method] = decorate(own, evolve(spec, name=name, unpack=_unpack))
    if all(vars(model).get(name) is fn for name, fn in made.items()):
        return model
    cover_each_other(made.values())
    vars(copied).update(made, parse_tool_calls=_parse(copied))
    return copied


def _parse(model: Any) -> Any:
    """Return ``parse_tool_calls``: for what it finds in a text it draws ids at random.

    They are sent with the next request, which would be another one in each run.
    """
    plain = MethodType(function_of(type(model), "parse_tool_calls"), model)

    @functools.wraps(plain)
    def parse_tool_calls(message: Any) -> Any:
        drawn = not message.tool_calls
        parsed = plain(message)
        for n, call in enumerate(parsed.tool_calls if drawn else ()):
            call.id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{n} {parsed.content}"))
        return parsed

    return parse_tool_calls


def _unpack(bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request, with tools as a model is shown them."""
    shown: dict[str, Any] = replaced(bound, loaded(_TOOLS, "BaseTool"), _shown)
    return shown


def _shown(tool: Any) -> dict[str, Any]:
    names = ("name", "description", "inputs", "output_type")
    return {name: getattr(tool, name, None) for name in names}


INTEGRATION: Final = Integration(adapt=adapt)
