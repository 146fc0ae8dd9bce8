"""DSPy.

What this does not do: it records no module, retriever or optimizer, only tools and
language models; it does not tell which tool call of a response a tool runs for; a
request that replays gives no chunks to stream listeners, no entry to the history and
no call of callbacks. ``Parallel`` and ``Evaluate`` run in threads without the caller's
context: while one session is open, what they do is recorded there, as detached; with
several open at once give them functions of ``session.bind``.

ReAct shows a model the traceback of a tool that failed. Of an adapted tool it ends
where the tool was called, live as on replay. Of a function that is decorated innermost
it does not, and a run that saw an error may not replay: decorate the ``dspy.Tool``.
"""

from __future__ import annotations

import functools
import inspect
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
)

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_DIST: Final = "dspy"
_TOOLS: Final = "dspy.adapters.types.tool"

#: The mark of functions whose errors have no traceback of their own.
_BARE: Final = "__durable_bare__"

#: What runs a model, with what its requests are told by.
_REQUESTS: Final = {
    "__call__": "",
    "acall": "",
    "forward": ".forward",
    "aforward": ".forward",
}


def adapt(obj: Any, spec: Spec) -> Any | None:
    """Return a copy of a tool or model whose calls are recorded; None of others.

    Raises `DecorationError`.
    """
    if is_a(obj, _TOOLS, "Tool"):
        demand_kind(obj, spec.kind, "tool")
        return _adapt_tool(obj, spec)
    if is_a(obj, "dspy.clients.base_lm", "BaseLM"):
        demand_kind(obj, spec.kind, "llm")
        demand(type(obj), [*_REQUESTS, "copy"], _DIST)
        return _adapt_model(obj, spec)
    if is_a(obj, "dspy.primitives.module", "Module"):
        raise DecorationError(
            f"{type(obj).__qualname__} objects are modules: they run past any wrapper.",
            advice="Decorate the tools and the language model that it is given.",
        )
    return None


def _adapt_tool(tool: Any, spec: Spec) -> Any:
    base = loaded(_TOOLS, "Tool")
    if "func" not in base.model_fields:
        raise unknown_version("Tool", "func", _DIST)
    for method in ("__call__", "acall"):
        if function_of(type(tool), method) is not function_of(base, method):
            raise DecorationError(
                f"{type(tool).__qualname__} has a {method} of its own, which may run "
                "anything.",
                advice="Decorate the function that it is made from, innermost.",
            )
    spec = evolve(spec, short=tool.name)
    if spec.name is None:
        origin = Origin(tool.func)
        if origin.short_name != tool.name:
            spec = evolve(spec, name=f"{origin.qualified_name}[{tool.name}]")
    func = tool.func
    if getattr(func, _BARE, False):
        func = func.__wrapped__
    made = decorate(func, spec)
    if made is func and func is not tool.func:
        return tool
    return tool.model_copy(update={"func": _bare(made)})


def _bare(decorated: Any) -> Any:
    """Return a function whose errors show nothing of where they came from inside."""
    if inspect.iscoroutinefunction(decorated):

        @functools.wraps(decorated)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            try:
                return await decorated(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - it goes on up
                shown = error
            raise shown.with_traceback(None)

        vars(arun)[_BARE] = True
        return arun

    @functools.wraps(decorated)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return decorated(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it goes on up
            shown = error
        raise shown.with_traceback(None)

    vars(run)[_BARE] = True
    return run


def _adapt_model(lm: Any, spec: Spec) -> Any:
    cls = type(lm)
    title = f"{module_name(cls.__module__)}:{cls.__qualname__}[{lm.model}]"
    title = spec.name if isinstance(spec.name, str) else title
    namespace = {}
    for method, suffix in _REQUESTS.items():
        name = spec.name if callable(spec.name) else title + suffix
        how = evolve(spec, name=name, unpack=_unpack)
        namespace[method] = decorate(method_of(cls, method), how)
    if all(made is function_of(cls, method) for method, made in namespace.items()):
        return lm
    cover_each_other(namespace.values())
    copied = lm.copy()
    object.__setattr__(copied, "__class__", subclass_of(cls, namespace))
    return copied


def _unpack(bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request, with the schemas of classes of answers."""
    shown: dict[str, Any] = replaced(bound, type, _shown)
    return shown


def _shown(cls: Any) -> Any:
    schema = getattr(cls, "model_json_schema", None)
    return cls.__qualname__ if schema is None else schema()


INTEGRATION: Final = Integration(adapt=adapt)
