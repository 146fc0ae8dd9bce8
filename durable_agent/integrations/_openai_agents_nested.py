"""An agent of the OpenAI Agents SDK that another one calls as a tool, and its pauses.

Where the agent inside waits for an approval, the SDK keeps the state of its run beside
the tool call and calls the tool again once there is an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent._value_names import loaded
from durable_agent.integrations._adapting import unknown_version

if TYPE_CHECKING:
    from collections.abc import Callable

_STATE: Final = "agents.agent_tool_state"
_NEEDED: Final = (
    *("peek_agent_tool_run_result", "consume_agent_tool_run_result"),
    "get_agent_tool_state_scope",
)


class AgentPausedError(Exception):
    """An agent that is called as a tool waits for an approval: no outcome."""

    #: The SDK has its state: it does not ask again for what it did.
    __durable_keeps_place__ = True

    def __init__(self, shown: Any) -> None:
        super().__init__("an agent that is called as a tool waits for an approval")
        #: What the SDK has returned meanwhile.
        self.shown = shown


def demand_state(distribution: str) -> None:
    """Refuse a version whose pauses would not be seen."""
    for name in _NEEDED:
        if loaded(_STATE, name) is None:
            raise unknown_version(_STATE, name, distribution)


def _kept(context: Any, name: str) -> Any:
    call = getattr(context, "tool_call", None)
    if call is None:
        return None
    scope = loaded(_STATE, "get_agent_tool_state_scope")(context)
    return loaded(_STATE, name)(call, scope_id=scope)


def pausing(inside: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs an agent as a tool, and says so when it is paused."""

    async def invoke(context: Any, text: Any) -> Any:
        shown = await inside(context, text)
        found = _kept(context, "peek_agent_tool_run_result")
        if getattr(found, "interruptions", None):
            raise AgentPausedError(shown)
        return shown

    return invoke


def settled(context: Any) -> None:
    """Drop the state of a run that was paused: its outcome is recorded."""
    _kept(context, "consume_agent_tool_run_result")
