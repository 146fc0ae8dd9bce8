"""A request of the OpenAI Agents SDK as it is recorded: what the model is sent.

Tools, handoffs and schemas of answers are objects with functions in them; recorded is
what the model sees of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.integrations._json_tools import by_names

if TYPE_CHECKING:
    from collections.abc import Callable

#: The arguments of ``get_response`` and ``stream_response``, in order.
NAMES: Final = (
    *("system_instructions", "input", "model_settings", "tools", "output_schema"),
    *("handoffs", "tracing", "previous_response_id", "conversation_id", "prompt"),
)
#: Settings of a request that do not say what is asked for, or that are secret.
_NO_SETTINGS: Final = frozenset({"retry", "timeout", "extra_headers"})
#: A hint to the provider's cache, drawn anew by each run.
_CACHE_KEY: Final = "prompt_cache_key"


def asked(bound: dict[str, Any]) -> dict[str, Any]:
    """Return a request's arguments by the names that the SDK's ``Model`` gives them."""
    told = by_names(bound, NAMES)
    told.pop("tracing", None)
    for name, make in _PLAIN.items():
        if told.get(name) is not None:
            told[name] = make(told[name])
    return told


def _settings(settings: Any) -> dict[str, Any]:
    found = {
        name: value
        for name, value in vars(settings).items()
        if value is not None and name not in _NO_SETTINGS
    }
    for name in ("extra_args", "extra_body"):
        if isinstance(found.get(name), dict):
            rest = {k: v for k, v in found[name].items() if k != _CACHE_KEY}
            found[name] = rest
            if not rest:
                del found[name]
    return found


def _tools(tools: Any) -> list[Any]:
    return [
        {
            name: getattr(tool, name)
            for name in ("name", "description", "params_json_schema")
            if hasattr(tool, name)
        }
        for tool in tools
    ]


def _schema(schema: Any) -> Any:
    return None if schema.is_plain_text() else schema.json_schema()


def _handoffs(handoffs: Any) -> list[Any]:
    return [
        {
            name: getattr(each, name)
            for name in ("tool_name", "tool_description", "input_json_schema")
        }
        for each in handoffs
    ]


_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "model_settings": _settings,
    "tools": _tools,
    "output_schema": _schema,
    "handoffs": _handoffs,
}
