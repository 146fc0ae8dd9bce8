"""What a call hands back: recorded as what it is, and replayed as the same kind.

A plain function may return an awaitable, a stream, a context manager or an SDK's raw
response; an outcome's ``as`` says what it was, outermost first, as in
"awaitable-raw-stream".
"""

from __future__ import annotations

import inspect
import io
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import _calls, _managers, _raw_responses, _streams, values
from durable_agent._carriers import RAW
from durable_agent._driving import adrive, drive
from durable_agent._ending import pack_error, pack_value, record
from durable_agent._replayed import areplay, replay
from durable_agent._stream_objects import AsyncStream, EitherStream, SyncStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from durable_agent._flow import Flow
    from durable_agent._requests import Value


def is_stream(flow: Flow, result: Any) -> bool:
    """Whether a result is produced while it is consumed."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return True
    kind = type(result)
    if isinstance(result, (io.IOBase, AbstractContextManager)) and not (
        hasattr(kind, "__next__") and flow.spec.kind == "llm"
    ):
        return False
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")


def _lazily(
    flow: Flow, result: Any, prefix: str, carrier: Any, *, awaited: bool = False
) -> Any:
    """Wrap what is recorded while it is taken; None of a value."""
    lead = prefix and prefix + "-"
    if is_stream(flow, result):
        return _streams.recorded(flow, result, lead, carrier)
    if prefix not in {"", "awaitable"} or not _managers.is_manager(flow, result):
        return None
    if not awaited or hasattr(type(result), "__aenter__"):
        return _managers.recorded(flow, result, lead)
    return None


def _is_raw(flow: Flow, result: Any) -> bool:
    return flow.spec.kind == "llm" and _raw_responses.is_raw(result)


def recorded(flow: Flow, result: Any, prefix: str = "", carrier: Any = None) -> Any:
    """Record what a body returned, now or while it is taken; return it.

    ``prefix`` is what it came out of, ``carrier`` what it was handed over in.
    """
    if _is_raw(flow, result):
        try:
            parsed = result.parse()
        except BaseException as error:
            drive(flow.core, record(flow, pack_error(flow, error, prefix)))
            raise
        of = f"{prefix}-{RAW}" if prefix else RAW
        stream = recorded(flow, parsed, of, _raw_responses.carrier_of(result))
        if stream is not parsed:
            _raw_responses.hold(result, stream)
        return result
    lazy = _lazily(flow, result, prefix, carrier)
    if lazy is not None:
        return lazy
    drive(flow.core, record(flow, pack_value(flow, result, prefix, carrier)))
    _calls.delivered(flow, result)
    return result


async def arecorded(
    flow: Flow, result: Any, prefix: str = "", carrier: Any = None
) -> Any:
    """Record what a body returned; see ``recorded``."""
    if _is_raw(flow, result):
        try:
            parsed = result.parse()
            if inspect.isawaitable(parsed):
                parsed = await parsed
        except BaseException as error:
            await adrive(flow.core, record(flow, pack_error(flow, error, prefix)))
            raise
        of = f"{prefix}-{RAW}" if prefix else RAW
        stream = await arecorded(flow, parsed, of, _raw_responses.carrier_of(result))
        if stream is not parsed:
            _raw_responses.hold(result, stream)
        return result
    lazy = _lazily(flow, result, prefix, carrier, awaited=True)
    if lazy is not None:
        return lazy
    await adrive(flow.core, record(flow, pack_value(flow, result, prefix, carrier)))
    _calls.delivered(flow, result)
    return result


def replayed(
    flow: Flow, verdict: Value, make: Callable[[], Any], *, awaited: bool = False
) -> Any:
    """Return the same kind of thing as the recorded call did.

    ``make`` makes the call again, for a stream that was left and is asked for more.
    """
    said = verdict.carrier
    carrier = {} if said is None else values.decode(orjson.dumps(said))
    kind = verdict.returned_as
    if awaited:
        kind = kind.removeprefix("awaitable").removeprefix("-")
    return _again(
        _Replay(flow, verdict.returned_as, carrier), verdict.value, kind, make
    )


class _Replay:
    """What stays the same while the layers of a replayed outcome are put on."""

    def __init__(self, flow: Flow, whole: str, carrier: Mapping[str, Any]) -> None:
        self.flow = flow
        self.whole = whole
        self.carrier = carrier


def _again(this: _Replay, value: Any, kind: str, make: Callable[[], Any]) -> Any:
    layer, _, inner = kind.partition("-")
    match layer:
        case "awaitable":
            return _awaitable(this, value, inner, make)
        case _managers.SYNC | _managers.ASYNC:
            entered = partial(_entered, make)
            enter = partial(_again, this, value, inner, entered)
            return _managers.replayed(layer, enter)
        case "raw":
            parsed = _again(this, value, inner, partial(_parsed, make))
            return _raw_responses.rebuilt(this.carrier, parsed)
        case "":
            _calls.delivered(this.flow, value)
            return value
        case _:
            return _stream(this, value, layer, make)


def _stream(this: _Replay, value: Any, kind: str, make: Callable[[], Any]) -> Any:
    flow, carrier = this.flow, this.carrier

    def more() -> Any:
        return _streams.live(flow, make, this.whole, carrier=carrier)

    def amore() -> Any:
        return _amore(this, make)

    match kind:
        case "generator":
            return replay(flow, value, more)
        case "stream":
            return SyncStream(replay(flow, value, more), None, flow.bound, carrier)
        case "agenerator":
            return areplay(flow, value, amore)
        case "astream":
            return AsyncStream(areplay(flow, value, amore), None, flow.bound, carrier)
        case "either":
            items = replay(flow, value, more)
            return EitherStream(
                items,
                None,
                flow.bound,
                carrier,
                other=lambda: areplay(flow, value, amore),
                leave=items.close,
            )
        case _:
            _calls.delivered(flow, value)
            return value


async def _awaitable(
    this: _Replay, value: Any, kind: str, make: Callable[[], Any]
) -> Any:
    return _again(this, value, kind, make)


async def _amore(this: _Replay, make: Callable[[], Any]) -> AsyncGenerator[Any, Any]:
    flow, returned_as = this.flow, this.whole
    try:
        with _calls.inside(flow):
            made = make()
            stream = await made if inspect.isawaitable(made) else made
    except BaseException as error:
        await adrive(flow.core, record(flow, pack_error(flow, error, returned_as)))
        raise
    source = _streams.alive(flow, lambda: stream, returned_as, carrier=this.carrier)
    try:
        async for item in source:
            yield item
    finally:
        await source.aclose()


def _entered(make: Callable[[], Any]) -> Any:
    manager = make()
    if hasattr(type(manager), "__aenter__"):
        return manager.__aenter__()
    return manager.__enter__()


def _parsed(make: Callable[[], Any]) -> Any:
    raw = make()
    return _aparsed(raw) if inspect.isawaitable(raw) else raw.parse()


async def _aparsed(raw: Awaitable[Any]) -> Any:
    parsed = (await raw).parse()
    return await parsed if inspect.isawaitable(parsed) else parsed


def raising(error: BaseException, returned_as: str) -> Any:
    """Raise, or return what raises when it is taken, as the recorded call did."""
    layer = returned_as.partition("-")[0]
    if layer in {_managers.SYNC, _managers.ASYNC}:

        def enter() -> Any:
            raise error

        return _managers.replayed(layer, enter)
    if layer == "awaitable":
        return _raise(error)
    raise error


async def _raise(error: BaseException) -> Any:
    raise error
