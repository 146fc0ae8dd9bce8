"""Arguments as frameworks pass them: as JSON, or past the signatures of models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    check_known(spec, schema.get("properties", {}), what)


def check_known(spec: Spec, names: Iterable[str], what: str) -> None:
    """Refuse options that name none of these arguments."""
    known = dict.fromkeys(names)
    named = {"ignore": spec.ignore, "redact": spec.redact}
    if isinstance(spec.key, str):
        named["key"] = frozenset({spec.key})
    if spec.arguments is not None:
        named["arguments"] = frozenset({spec.arguments})
    for option, stated in named.items():
        for name in sorted(stated - known.keys()):
            raise DecorationError(
                f"{option}={name!r} names no argument of {what}.",
                advice=f"Its arguments: {', '.join(known) or 'none'}.",
            )


def by_names(bound: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return arguments by the names that an interface gives them, in its order.

    What implements it has a signature of its own, ``*args, **kwargs`` too.
    """
    told: dict[str, Any] = {}
    for name, value in bound.items():
        if name not in names and isinstance(value, tuple):
            told |= zip(names[len(told) :], value, strict=False)
        elif name not in names and isinstance(value, dict):
            told |= value
        else:
            told[name] = value
    return told
