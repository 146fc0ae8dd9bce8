"""The arguments of recorded calls, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_agent.events import Event
    from durable_agent.store import LogReader


def arguments_of(log: LogReader, event: Event | int) -> dict[str, Any]:
    """Return the arguments of a recorded call as JSON, values still type-tagged.

    ``event`` is the intent or its seq.
    """
    found = log.get(event) if isinstance(event, int) else event
    arguments: dict[str, Any] = found.data["args"]
    return arguments
