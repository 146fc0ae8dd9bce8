"""What the dialects share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class ToolCall:
    """A tool call of an assistant turn.

    ``token`` tells it apart within its turn, also where ids are repeated or missing.
    ``arguments`` is None where they could not be parsed.
    """

    id: str | None
    name: str
    arguments: Mapping[str, Any] | None
    raw: Any = field(default=None, repr=False)
    token: str = ""
