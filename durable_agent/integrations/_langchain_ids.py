"""Which tool call of LangChain a function runs for.

LangChain tells callback handlers the id of the tool call that a run of a tool is for.
One handler is put into every run by LangChain's own hook for that, and notes it by the
id of the run; inside the run, its id is that of the parent of whatever runs there.
langchain-core before 1.2 does not tell; then tool calls are found by their arguments.
"""

from __future__ import annotations

import importlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from durable_agent._value_names import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Runs of tools that are noted at most; more were not told to have ended.
_RUNS: Final = 4096


@define
class _Run:
    """One run of a tool."""

    tool_call_id: str
    tool: str
    inputs: frozenset[str]
    #: The function that the tool call was for: the first that fits.
    function: str | None = None


_runs: Final[dict[Any, _Run]] = {}
_hook: ContextVar[Any] | None = None


def running_tool_call(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the tool call that runs here, if this function is its tool.

    A function has the name of the tool, or parameters for all that the tool was given;
    what else is called in there answers no tool call of the model.
    """
    variable = loaded("langchain_core.runnables.config", "var_child_runnable_config")
    config = None if variable is None else variable.get()
    callbacks = None if config is None else config.get("callbacks")
    run = _runs.get(getattr(callbacks, "parent_run_id", None))
    if run is None:
        return None
    if run.function is None and (name == run.tool or run.inputs <= arguments.keys()):
        run.function = name
    return run.tool_call_id if run.function == name else None


class _Noting:
    """What the handler does; its class derives from LangChain's as well."""

    run_inline = True
    raise_error = False
    ignore_llm = ignore_chain = ignore_retriever = ignore_retry = True
    ignore_chat_model = ignore_custom_event = True

    def on_tool_start(
        self, serialized: Any, _input: str, *, run_id: Any, **kwargs: Any
    ) -> None:
        given = kwargs.get("tool_call_id")
        if not isinstance(given, str):
            return
        tool = str((serialized or {}).get("name"))
        inputs = frozenset(kwargs.get("inputs") or ())
        _runs[run_id] = _Run(given, tool, inputs)
        while len(_runs) > _RUNS:
            _runs.pop(next(iter(_runs)), None)

    def on_tool_end(self, _output: Any, *, run_id: Any, **_: Any) -> None:
        _runs.pop(run_id, None)

    def on_tool_error(self, _error: Any, *, run_id: Any, **_: Any) -> None:
        _runs.pop(run_id, None)


def install() -> None:
    """Put the handler into every run from now on, once."""
    global _hook  # noqa: PLW0603 - the process has one
    base = loaded("langchain_core.callbacks.base", "BaseCallbackHandler")
    if _hook is not None or base is None:
        return
    # A part of what is loaded already; it is loaded with the first run at the latest.
    context = importlib.import_module("langchain_core.tracers.context")
    handler = type("ToolCallIds", (_Noting, base), {"__module__": __name__})()
    # The default is what every context has.
    _hook = ContextVar("durable_agent_langchain", default=handler)
    context.register_configure_hook(_hook, inheritable=True)
