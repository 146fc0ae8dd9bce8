"""Tools that frameworks give their arguments to as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_agent._spec import Spec


def given_json(text: Any) -> dict[str, Any]:
    """Return what a model gave; as ``input`` what is no JSON object."""
    if isinstance(text, dict):
        return text
    try:
        given = json.loads(text) if text else {}
    except (TypeError, ValueError):
        given = None
    return given if isinstance(given, dict) else {"input": text}


def check_names(spec: Spec, schema: Mapping[str, Any], what: str) -> None:
    """Refuse options that name no argument, as those of functions are.

    ``schema`` is what the model is told of the arguments.
    """
    known = schema.get("properties", {})
    named = {"ignore": spec.ignore, "redact": spec.redact}
    if isinstance(spec.key, str):
        named["key"] = frozenset({spec.key})
    if spec.arguments is not None:
        named["arguments"] = frozenset({spec.arguments})
    for option, names in named.items():
        for name in sorted(names - known.keys()):
            raise DecorationError(
                f"{option}={name!r} names no argument of {what}.",
                advice=f"Its arguments: {', '.join(known) or 'none'}.",
            )
