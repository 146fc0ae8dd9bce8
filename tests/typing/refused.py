"""User code that must not type-check; each ignore is needed by mypy and pyright."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from durable_agent.decorators import checkpointed_llm, checkpointed_tool, step_boundary


@checkpointed_tool
def function(to: str) -> int:
    return len(to)


function(5)  # type: ignore[arg-type]  # the parameters are kept
function()  # type: ignore[call-arg]  # and how many there are
function("a").upper()  # type: ignore[attr-defined]  # and what comes back


checkpointed_tool(efect="read_only")  # type: ignore[call-overload]  # misspelt
checkpointed_tool(effect="readonly")  # type: ignore[call-overload]  # no such effect
checkpointed_llm(effect="read_only")  # type: ignore[call-overload]  # of tools only
checkpointed_tool(function, "send")  # type: ignore[call-overload]  # by keyword only
step_boundary(name=5)  # type: ignore[call-overload]  # not a name
