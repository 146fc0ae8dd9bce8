"""Anthropic's SDK: the tools of its tool runner.

What this does not do: it adapts no client and no runner. ``client.messages.create`` and
the like are decorated as functions, and a runner is refused: with its client's
``beta.messages.create`` decorated, each of its requests is recorded. It tells nobody
the id of a tool call. Toolsets are not adapted.
"""

from __future__ import annotations

import copy
import functools
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._frameworks import Integration
from durable_agent._value_names import loaded
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_TOOLS: Final = "anthropic.lib.tools._beta_functions"
#: Where a tool keeps its function as it is called, with its arguments validated.
_VALIDATED: Final = "_func_with_validate"


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool whose calls are recorded; None of anything else.

    Raises `DecorationError` for what runs a loop of its own.
    """
    _refuse_runner(obj)
    if _is(obj, "BaseFunctionTool"):
        _demand_tool(obj, spec)
        return _adapt_function(obj, evolve(spec, short=obj.name))
    if _is(obj, "BetaBuiltinFunctionTool") or _is(obj, "BetaAsyncBuiltinFunctionTool"):
        _demand_tool(obj, spec)
        made = copy.copy(obj)
        named = evolve(spec, short=obj.name, arguments=spec.arguments or "input")
        # What an instance has goes before what its class has.
        made.call = decorate(obj.call, named)
        return made
    if _is_toolset(obj):
        raise DecorationError(
            f"{type(obj).__qualname__} objects run many tools, which are not adapted.",
            advice="Decorate the functions inside, or the bound method `tool_result`.",
        )
    return None


def _is(obj: Any, name: str) -> bool:
    cls = loaded(_TOOLS, name)
    return cls is not None and isinstance(obj, cls)


def _is_toolset(obj: Any) -> bool:
    module = type(obj).__module__
    return module.startswith("anthropic.lib.tools") and hasattr(obj, "tool_result")


def _refuse_runner(obj: Any) -> None:
    while isinstance(obj, functools.partial):
        obj = obj.func
    if not isinstance(obj, MethodType) or obj.__name__ != "tool_runner":
        return
    if not str(obj.__func__.__module__).startswith("anthropic."):
        return
    raise DecorationError(
        "A tool runner is a loop of requests and tools, and no request.",
        advice="Write `client.beta.messages.create = "
        "checkpointed_llm(client.beta.messages.create)`, and decorate its tools: each "
        "of them is recorded then.",
    )


def _demand_tool(obj: Any, spec: Spec) -> None:
    if spec.kind != "tool":
        raise DecorationError(
            f"{type(obj).__qualname__} objects are no models.",
            advice="Use checkpointed_tool.",
        )


def _adapt_function(tool: Any, spec: Spec) -> Any:
    """Return a copy whose function is recorded, within the validation of arguments."""
    validate = loaded("pydantic", "validate_call")
    if not callable(vars(tool).get(_VALIDATED)) or validate is None:
        version = loaded("anthropic._version", "__version__")
        raise DecorationError(
            f"{type(tool).__qualname__} of anthropic {version} has no {_VALIDATED}: "
            "this version is not known.",
            advice="Decorate the function that it is made from, innermost.",
        )
    func = decorate(tool.func, spec)
    if func is tool.func:
        return tool
    made = copy.copy(tool)
    made.func = func
    setattr(made, _VALIDATED, validate(func))
    return made


INTEGRATION: Final = Integration(adapt=adapt)
