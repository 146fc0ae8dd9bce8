"""Streams: generators and async generators of tools and models, live and replayed.

The stream below is made only after its request is durable. Nesting is set around each
step of it, never across a ``yield``. A replay gives the recorded chunks with the same
borders, and ends as the recorded stream ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

from durable_agent import _calls, _current, _returned
from durable_agent._carriers import carrier_of_stream, encoded
from durable_agent._driving import adrive, drive
from durable_agent._ending import pack_error, record
from durable_agent._replayed import areplay, replay
from durable_agent._requests import Raise, Run, Value
from durable_agent._stream_objects import (
    AsyncStream,
    EitherStream,
    SyncStream,
    close_async,
)
from durable_agent._tape import Tape

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Iterator,
        Mapping,
    )

    from durable_agent._flow import Flow
    from durable_agent._spec import Spec, Target

#: Sent into a primed generator that nothing will be taken from.
_UNUSED: Final = object()


def generate(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Generator[Any, Any, Any]:
    """Run a generator function; its checkpoint is made at the first ``next``."""
    frame = _current.find(target.qualified_name)
    if frame is None or _calls.covered(frame, target):
        return (yield from target.fn(*args, **kwargs))
    flow = _calls.prepare(frame, spec, target, args, kwargs)
    verdict = drive(flow.core, flow.before())

    def make() -> Generator[Any, Any, Any]:
        a, k = _calls.fill_key(flow, target, args, kwargs)
        made: Generator[Any, Any, Any] = target.fn(*a, **k)
        return made

    match verdict:
        case Value(value):
            return (yield from replay(flow, value, lambda: live(flow, make)))
        case Raise(error):
            raise error
        case Run():
            return (yield from live(flow, make))
        case _:
            assert_never(verdict)


async def agenerate(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> AsyncGenerator[Any, Any]:
    """Run an async generator function; its checkpoint is made at the first step."""
    frame = _current.find(target.qualified_name)
    if frame is None or _calls.covered(frame, target):
        source = target.fn(*args, **kwargs)
    else:
        flow = _calls.prepare(frame, spec, target, args, kwargs)

        def make() -> AsyncGenerator[Any, Any]:
            a, k = _calls.fill_key(flow, target, args, kwargs)
            made: AsyncGenerator[Any, Any] = target.fn(*a, **k)
            return made

        verdict = await adrive(flow.core, flow.before())
        if isinstance(verdict, Raise):
            raise verdict.error
        if isinstance(verdict, Value):
            source = areplay(flow, verdict.value, lambda: alive(flow, make))
        else:
            source = alive(flow, make)
    sent: Any = None
    thrown: BaseException | None = None
    try:
        while True:
            try:
                item = await _aadvance(source, sent, thrown)
            except StopAsyncIteration:
                return
            sent = thrown = None
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the source
                thrown = error
    finally:
        await source.aclose()


def live(
    flow: Flow,
    make: Callable[[], Iterator[Any]],
    returned_as: str = "",
    *,
    primed: bool = False,
    carrier: Mapping[str, Any] | None = None,
) -> Generator[Any, Any, Any]:
    """Record a stream while its consumer takes it.

    ``primed`` yields once before anything else, so that a stream which nobody takes
    anything from is closed and has an outcome too.
    """
    core, tape = flow.core, Tape(flow, returned_as)
    source: Iterator[Any] | None = None
    sent: Any = None
    thrown: BaseException | None = None
    if primed:
        try:
            if (yield None) is _UNUSED:
                tape.ended = True
                return None
        except GeneratorExit:
            source = make()
            tape.carrier = _carrier(carrier, source)
            _close(source)
            drive(core, tape.end("closed"))
            raise
    while True:
        try:
            with _calls.inside(flow):
                if source is None:
                    source = make()
                    tape.carrier = _carrier(carrier, source)
                item = _advance(source, sent, thrown)
        except StopIteration as stop:
            drive(core, tape.end("complete", stop.value))
            _calls.delivered(flow, tape.chunks)
            return stop.value
        except BaseException as error:
            drive(core, tape.fail(error))
            raise
        sent = thrown = None
        drive(core, tape.chunk(item))
        try:
            sent = yield item
        except GeneratorExit:
            with _calls.inside(flow):
                _close(source)
            drive(core, tape.end("closed"))
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the source
            thrown = error


def _carrier(outer: Mapping[str, Any] | None, source: Any) -> bytes:
    """Return what a stream is handed over in: it itself, and what it came out of."""
    return encoded({**(outer or {}), **carrier_of_stream(source)})


def _advance(source: Iterator[Any], sent: Any, thrown: BaseException | None) -> Any:
    if thrown is not None:
        if not hasattr(source, "throw"):
            raise thrown
        return source.throw(thrown)
    if sent is not None and inspect.isgenerator(source):
        return source.send(sent)
    return next(source)


def _close(source: Any) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()


async def alive(
    flow: Flow,
    make: Callable[[], AsyncIterator[Any]],
    returned_as: str = "",
    *,
    primed: bool = False,
    carrier: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Any, Any]:
    """Record an async stream while its consumer takes it; see ``live``."""
    core, tape = flow.core, Tape(flow, returned_as)
    source: AsyncIterator[Any] | None = None
    sent: Any = None
    thrown: BaseException | None = None
    if primed:
        try:
            yield None
        except GeneratorExit:
            source = make()
            tape.carrier = _carrier(carrier, source)
            await close_async(source)
            await adrive(core, tape.end("closed"))
            raise
    while True:
        try:
            with _calls.inside(flow):
                if source is None:
                    source = make()
                    tape.carrier = _carrier(carrier, source)
                item = await _aadvance(source, sent, thrown)
        except StopAsyncIteration:
            await adrive(core, tape.end("complete"))
            _calls.delivered(flow, tape.chunks)
            return
        except BaseException as error:
            if error is thrown and isinstance(error, asyncio.CancelledError):
                # Its consumer has left it, and the loop that would close it ends.
                await adrive(core, tape.end("closed"))
            else:
                await adrive(core, tape.fail(error))
            raise
        sent = thrown = None
        await adrive(core, tape.chunk(item))
        try:
            sent = yield item
        except GeneratorExit:
            with _calls.inside(flow):
                await close_async(source)
            await adrive(core, tape.end("closed"))
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the source
            thrown = error


async def _aadvance(
    source: AsyncIterator[Any], sent: Any, thrown: BaseException | None
) -> Any:
    if thrown is not None:
        if not hasattr(source, "athrow"):
            raise thrown
        return await source.athrow(thrown)
    if sent is not None and hasattr(source, "asend"):
        return await source.asend(sent)
    return await source.__anext__()


def recorded(
    flow: Flow, stream: Any, prefix: str = "", carrier: Mapping[str, Any] | None = None
) -> Any:
    """Wrap what a plain or coroutine function returned: it records while it runs.

    Generators stay generators; other streams keep their class, attributes and methods.
    ``carrier`` is what the stream was handed over in.
    """
    of = {**(carrier or {}), **carrier_of_stream(stream)}

    def sync(kind: str) -> Generator[Any, Any, Any]:
        taken = live(flow, lambda: stream, prefix + kind, primed=True, carrier=of)
        next(taken)
        return taken

    def asynchronous(kind: str) -> AsyncGenerator[Any, Any]:
        items = alive(flow, lambda: stream, prefix + kind, primed=True, carrier=of)
        with contextlib.suppress(StopIteration):
            # Up to its first yield it awaits nothing.
            items.asend(None).send(None)
        return items

    if inspect.isgenerator(stream):
        return sync("generator")
    if inspect.isasyncgen(stream):
        return asynchronous("agenerator")
    kind = type(stream)
    if not hasattr(kind, "__anext__"):
        return SyncStream(sync("stream"), stream, None, of)
    if not hasattr(kind, "__next__"):
        return AsyncStream(asynchronous("astream"), stream, None, of)
    taken = sync("either")
    return EitherStream(
        taken,
        stream,
        None,
        of,
        other=lambda: asynchronous("either"),
        leave=partial(_unused, taken),
    )


def _unused(taken: Generator[Any, Any, Any]) -> None:
    """End a primed generator that another one takes the place of."""
    with contextlib.suppress(StopIteration):
        taken.send(_UNUSED)


async def awaiting(flow: Flow, awaitable: Awaitable[Any], begun: list[bool]) -> Any:
    """Await what a plain function returned, and record what comes of it."""
    begun.append(True)
    try:
        with _calls.inside(flow):
            result = await awaitable
    except GeneratorExit as error:
        _calls.abandon(flow, error)
        raise
    except BaseException as error:
        packed = pack_error(flow, error, "awaitable")
        await adrive(flow.core, record(flow, packed))
        raise
    return await _returned.arecorded(flow, result, "awaitable")
