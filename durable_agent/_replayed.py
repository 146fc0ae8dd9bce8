"""Recorded streams handed out again: the same chunks, the same end.

A stream that its consumer had left gives what it gave then. Asked for more, it makes
the request again if nothing was recorded since; else the code has left the path. What
a person said instead (a verifier's value, the text of an unknown outcome) is given in
the chunks of a list or tuple, and as one chunk otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import _calls, values
from durable_agent._driving import adrive, drive
from durable_agent._mark import mark
from durable_agent._recorded import end_stream
from durable_agent._requests import Recording, Run
from durable_agent._sync_pool import offload
from durable_agent._tape import is_final
from durable_agent.errors import ReplayDivergedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from durable_agent._core import Core
    from durable_agent._flow import Flow
    from durable_agent.events import Event


def _chunks(event: Event) -> list[Any]:
    return [values.decode(orjson.dumps(raw)) for raw in event.data["chunks"]]


async def _achunks(core: Core, seq: int) -> list[Any]:
    event = core.log.peek(seq)
    return _chunks(await offload(core.log.get, seq) if event is None else event)


def _said(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def replay(
    flow: Flow,
    value: Any,
    again: Callable[[], Generator[Any, Any, Any]],
) -> Generator[Any, Any, Any]:
    """Hand out a recorded stream."""
    if not isinstance(value, Recording):
        yield from _said(value)
        return None
    core, handed = flow.core, []
    try:
        for seq in list(value.slot.chunks):
            for chunk in _chunks(core.log.get(seq)):
                handed.append(chunk)
                if is_final(flow, chunk):
                    drive(core, end_stream(core, value.slot))
                yield chunk
        if value.data["stream"]["end"] != "closed":
            drive(core, end_stream(core, value.slot))
    finally:
        _left(flow, value)
    if _is_complete(flow, value, handed):
        return values.decode(orjson.dumps(value.data["stream"].get("return")))
    verdict = drive(flow.core, flow.ask_for_more(value))
    if not isinstance(verdict, Run):
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
    value: Any,
    again: Callable[[], AsyncGenerator[Any, Any]],
) -> AsyncGenerator[Any, Any]:
    """Hand out a recorded async stream."""
    if not isinstance(value, Recording):
        for chunk in _said(value):
            yield chunk
        return
    core, handed = flow.core, []
    try:
        for seq in list(value.slot.chunks):
            for chunk in await _achunks(core, seq):
                handed.append(chunk)
                if is_final(flow, chunk):
                    await adrive(core, end_stream(core, value.slot))
                yield chunk
        if value.data["stream"]["end"] != "closed":
            await adrive(core, end_stream(core, value.slot))
    finally:
        _left(flow, value)
    if _is_complete(flow, value, handed):
        return
    verdict = await adrive(flow.core, flow.ask_for_more(value))
    if not isinstance(verdict, Run):
        raise _no_more(flow)
    source = again()
    try:
        for _ in handed:
            await anext(source, None)
        async for chunk in source:
            yield chunk
    finally:
        await source.aclose()


def _left(flow: Flow, stream: Recording) -> None:
    """Let nobody wait for a stream that its consumer has left, or has whole."""
    core = flow.core
    with core.lock:
        stream.slot.delivered = True
        core.turns.moved()


def _is_complete(flow: Flow, stream: Recording, handed: list[Any]) -> bool:
    """Whether it ended by itself; raises the error that it ended with."""
    end = stream.data["stream"]["end"]
    if end == "error":
        error = values.decode_error(orjson.dumps(stream.data["error"]))
        raise mark(error, stream.slot)
    if end == "complete":
        _calls.delivered(flow, handed)
    return bool(end == "complete")


def _no_more(flow: Flow) -> ReplayDivergedError:
    error = ReplayDivergedError(
        f"the recorded stream of {flow.name} was left early, and more of it is asked "
        "for now, while later calls are recorded. Nothing ran.",
        session=flow.core.id,
        advice="Go on with conversation(id), or use a new session.",
    )
    flow.core.fail(error)
    return error
