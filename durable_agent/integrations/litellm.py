"""litellm: one interface to many providers.

What this does not do: it adapts nothing. ``litellm.completion``, ``acompletion``,
``responses`` and ``aresponses`` are decorated as functions, and so are the methods of a
router; their streams, which are for both loops, stay so. What litellm does within a
call (its own retries, fallbacks, caches and callbacks) is part of that call. The id of
a tool call is not to be had: tools are your functions, found by name and arguments. It
refuses a router itself, whose methods would go past any wrapper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent._frameworks import Integration
from durable_agent.errors import DecorationError
from durable_agent.integrations._adapting import is_a

if TYPE_CHECKING:
    from durable_agent._spec import Spec


def adapt(obj: Any, _: Spec) -> None:
    """Refuse a router. Raises `DecorationError`."""
    if is_a(obj, "litellm.router", "Router"):
        raise DecorationError(
            f"{type(obj).__qualname__} objects have no call of their own that could be "
            "recorded.",
            advice="Decorate the method that you call: "
            "ask = checkpointed_llm(router.completion), or router.acompletion.",
        )


INTEGRATION: Final = Integration(adapt=adapt)
