"""Streams: generators and async generators of tools and models, live and replayed.

The stream below is made only after its request is durable. Nesting is set around each
step of it, never across a ``yield``. A replay gives the recorded chunks with the same
borders, and ends as the recorded stream ended.
"""

from __future__ import annotations

import contextlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from durable_agent import _calls, _current, _managers
from durable_agent._driving import adrive, drive
from durable_agent._ending import pack_error, pack_value, record
from durable_agent._replayed import areplay, replay
from durable_agent._requests import Raise, Run, Value
from durable_agent._stream_objects import AsyncStream, SyncStream, close_async
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
            yield None
        except GeneratorExit:
            _close(make())
            drive(core, tape.end("closed"))
            raise
    while True:
        try:
            with _calls.inside(flow):
                source = make() if source is None else source
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
            await close_async(make())
            await adrive(core, tape.end("closed"))
            raise
    while True:
        try:
            with _calls.inside(flow):
                source = make() if source is None else source
                item = await _aadvance(source, sent, thrown)
        except StopAsyncIteration:
            await adrive(core, tape.end("complete"))
            _calls.delivered(flow, tape.chunks)
            return
        except BaseException as error:
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


def recorded(flow: Flow, stream: Any, prefix: str = "") -> Any:
    """Wrap what a plain or coroutine function returned: it records while it runs.

    Generators stay generators; other streams keep their attributes and methods.
    """
    if inspect.isasyncgen(stream) or hasattr(type(stream), "__anext__"):
        generator = inspect.isasyncgen(stream)
        kind = prefix + ("agenerator" if generator else "astream")
        items = alive(flow, lambda: stream, kind, primed=True)
        with contextlib.suppress(StopIteration):
            # Up to its first yield it awaits nothing.
            items.asend(None).send(None)
        return items if generator else AsyncStream(items, stream)
    generator = inspect.isgenerator(stream)
    kind = prefix + ("generator" if generator else "stream")
    taken = live(flow, lambda: stream, kind, primed=True)
    next(taken)
    return taken if generator else SyncStream(taken, stream)


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
    if _calls.is_stream(flow, result):
        return recorded(flow, result, "awaitable-")
    await adrive(flow.core, record(flow, pack_value(flow, result, "awaitable")))
    _calls.delivered(flow, result)
    return result


def replayed(
    flow: Flow,
    value: Any,
    returned_as: str,
    make: Callable[[], Any],
    *,
    awaited: bool = False,
) -> Any:
    """Return the same kind of thing as the recorded call did.

    ``make`` makes the call again, for a stream that was left and is asked for more.
    """
    first, _, kind = returned_as.rpartition("-")
    manager = {first, kind} & {_managers.SYNC, _managers.ASYNC}
    if manager:
        entered = partial(_entered, make)
        of = "" if kind in manager else kind
        inner = partial(replayed, flow, value, of, entered, awaited=True)
        return _managers.replayed(manager.pop(), inner)
    lazy = "awaitable" in {first, kind} and not awaited
    match kind:
        case "generator":
            value = replay(flow, value, lambda: live(flow, make, returned_as))
        case "stream":
            items = replay(flow, value, lambda: live(flow, make, returned_as))
            value = SyncStream(items, None, flow.bound)
        case "agenerator":
            value = areplay(flow, value, lambda: _again(flow, make, returned_as))
        case "astream":
            taken = areplay(flow, value, lambda: _again(flow, make, returned_as))
            value = AsyncStream(taken, None, flow.bound)
        case _:
            if not lazy:
                _calls.delivered(flow, value)
    return _ready(flow, value, kind) if lazy else value


async def _ready(flow: Flow, value: Any, kind: str) -> Any:
    if kind == "awaitable":
        _calls.delivered(flow, value)
    return value


async def _again(
    flow: Flow, make: Callable[[], Any], returned_as: str
) -> AsyncGenerator[Any, Any]:
    try:
        with _calls.inside(flow):
            made = make()
            stream = await made if inspect.isawaitable(made) else made
    except BaseException as error:
        await adrive(flow.core, record(flow, pack_error(flow, error, returned_as)))
        raise
    source = alive(flow, lambda: stream, returned_as)
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


def raising(error: BaseException, returned_as: str) -> Any:
    """Raise, or return what raises when it is taken, as the recorded call did."""
    if returned_as in {_managers.SYNC, _managers.ASYNC}:

        def enter() -> Any:
            raise error

        return _managers.replayed(returned_as, enter)
    if returned_as.startswith("awaitable"):
        return _raise(error)
    raise error


async def _raise(error: BaseException) -> Any:
    raise error
