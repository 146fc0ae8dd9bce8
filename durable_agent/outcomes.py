"""What a verifier, a handler or a person says of a call, and the call itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What running a tool again would do.
Effect: TypeAlias = Literal["read_only", "idempotent", "side_effect", "composite"]

EFFECTS: frozenset[str] = frozenset(
    {"read_only", "idempotent", "side_effect", "composite"}
)


@frozen
class Completed:
    """It did happen, and this is what the call returns."""

    value: Any = None


@frozen
class NotApplied:
    """It did not happen: running it now is safe."""


@frozen
class Unknown:
    """It cannot be told; the model is told so."""


Outcome: TypeAlias = Completed | NotApplied | Unknown


@frozen(kw_only=True)
class Call:
    """One call as it is recorded. ``arguments`` are those bound before the body.

    ``idempotency_key`` is the same for every attempt at the call and may be passed
    outside. Redacted and ignored parameters are not in ``arguments``.
    """

    id: str
    name: str
    kind: Literal["llm", "tool"]
    session: str
    attempt: int = 1
    idempotency_key: str = ""
    tool_call_id: str | None = None
    parent: str | None = None
    effect: str = "side_effect"
    #: The seq of the intent; -1 before it is appended.
    seq: int = -1
    arguments: Mapping[str, Any] = field(factory=dict, repr=False)
