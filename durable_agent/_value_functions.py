"""Functions among the arguments of a model request: tools that an SDK may call.

A function cannot come back from a log. What a request is told apart by is its name:
``$function`` of it reads as that name.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from durable_agent._value_code import DECODERS, Decoder

if TYPE_CHECKING:
    from durable_agent._value_plain import Json

_FUNCTIONS: Final = frozenset({FunctionType, MethodType, BuiltinFunctionType})


def function_name(value: Any) -> str | None:
    """Return ``module:qualname`` of a function or method, None of anything else.

    Of a decorated one, the name that it is recorded under.
    """
    kind = type(value)
    if hasattr(kind, "__durable_name__"):
        return str(value.__durable_name__)
    if kind not in _FUNCTIONS:
        return None
    return f"{value.__module__}:{value.__qualname__}"


def _named(body: Json, _: Decoder) -> str:
    return str(body)


DECODERS["$function"] = _named
