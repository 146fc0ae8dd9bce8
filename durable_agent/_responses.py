"""What the log holds of a call's outcome: values, chunks, responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from durable_agent import values
from durable_agent._arguments import arguments_of
from durable_agent.errors import ValueNotRebuildableError
from durable_agent.transcript import assembled

if TYPE_CHECKING:
    from durable_agent.recovery import Recorded, Slot
    from durable_agent.store import LogReader


@frozen
class Said:
    """What a recorded request was answered with."""

    response: Any
    #: The answer was given to its end.
    complete: bool


def said(log: LogReader, slot: Slot) -> Said | None:
    """Return the response of a request; None: there is none, or no value of it."""
    outcome = slot.outcome
    if outcome is not None and outcome.status == "value":
        data = log.get(outcome.seq).data
        if "stream" not in data:
            value = decoded(data.get("value"))
            return None if value is None else Said(value, complete=True)
        whole = data["stream"]["end"] == "complete"
    else:
        whole = False
    found = assembled(recorded_chunks(log, slot)) if slot.chunks else None
    return None if found is None else Said(found.response, whole)


def recorded_arguments(log: LogReader, slot: Slot) -> dict[str, Any]:
    """Return the arguments of a call; what cannot be rebuilt here, as JSON."""
    recorded = arguments_of(log, slot.intent)
    return {name: decoded(value) for name, value in recorded.items()}


def recorded_value(log: LogReader, slot: Slot, outcome: Recorded) -> Any:
    """Return the recorded value of a call; chunks of a stream as a list."""
    data = log.get(outcome.seq).data
    if "stream" not in data:
        return decoded(data.get("value"))
    return recorded_chunks(log, slot)


def recorded_chunks(log: LogReader, slot: Slot) -> list[Any]:
    """Return the chunks of a stream, as far as they are recorded."""
    return [
        decoded(chunk) for seq in slot.chunks for chunk in log.get(seq).data["chunks"]
    ]


def decoded(value: Any) -> Any:
    """Return a value; where its type cannot be rebuilt here, as plain JSON."""
    raw = orjson.dumps(value)
    try:
        return values.decode(raw)
    except ValueNotRebuildableError:
        return values.look(raw)
