"""Recorded streams handed out again: the same chunks, the same end.

A stream that its consumer had left gives what it gave then. Asked for more, it makes
the request again if nothing was recorded since; else the code has left the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import _calls, values
from durable_agent._driving import adrive, drive
from durable_agent._mark import mark
from durable_agent._requests import Run
from durable_agent._sync_pool import offload
from durable_agent.errors import ReplayDivergedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from durable_agent._flow import Flow
    from durable_agent.events import Event


def _chunks(event: Event) -> list[Any]:
    return [values.decode(orjson.dumps(raw)) for raw in event.data["chunks"]]


def _seqs(flow: Flow) -> list[int]:
    return [] if flow.slot is None else list(flow.slot.chunks)


def replay(
    flow: Flow,
    data: Mapping[str, Any],
    again: Callable[[], Generator[Any, Any, Any]] | None,
) -> Generator[Any, Any, Any]:
    """Hand out a recorded stream."""
    handed = []
    for seq in _seqs(flow):
        for chunk in _chunks(flow.core.log.get(seq)):
            handed.append(chunk)
            yield chunk
    end = data["stream"]["end"]
    _end(flow, end, data, handed)
    if end == "complete":
        return values.decode(orjson.dumps(data["stream"]["return"]))
    verdict = drive(flow.core, flow.ask_for_more())
    if again is None or not isinstance(verdict, Run):
        raise _no_more(flow)
    source = again()
    try:
        for _ in handed:
            next(source, None)
        return (yield from source)
    finally:
        source.close()


async def areplay(
    flow: Flow,
    data: Mapping[str, Any],
    again: Callable[[], AsyncGenerator[Any, Any]] | None,
) -> AsyncGenerator[Any, Any]:
    """Hand out a recorded async stream."""
    handed = []
    for seq in _seqs(flow):
        event = flow.core.log.peek(seq)
        if event is None:
            event = await offload(flow.core.log.get, seq)
        for chunk in _chunks(event):
            handed.append(chunk)
            yield chunk
    end = data["stream"]["end"]
    _end(flow, end, data, handed)
    if end == "complete":
        return
    verdict = await adrive(flow.core, flow.ask_for_more())
    if again is None or not isinstance(verdict, Run):
        raise _no_more(flow)
    source = again()
    try:
        for _ in handed:
            await anext(source, None)
        async for chunk in source:
            yield chunk
    finally:
        await source.aclose()


def _end(flow: Flow, end: str, data: Mapping[str, Any], handed: list[Any]) -> None:
    if end == "error":
        error = values.decode_error(orjson.dumps(data["error"]))
        raise error if flow.slot is None else mark(error, flow.slot)
    if end == "complete":
        _calls.delivered(flow, handed)


def _no_more(flow: Flow) -> ReplayDivergedError:
    error = ReplayDivergedError(
        f"the recorded stream of {flow.name} was left early, and more of it is asked "
        "for now, while later calls are recorded. Nothing ran.",
        session=flow.core.id,
        advice="Go on with conversation(id), or use a new session.",
    )
    flow.core.fail(error)
    return error
