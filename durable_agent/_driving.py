"""The two drivers: they carry out what a flow asks for, and decide nothing.

Each segment of a flow runs under the session's lock; each request is carried out
without it. An exception of a request is thrown into the flow at that place.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

from durable_agent import _current
from durable_agent._requests import (
    Barrier,
    Consult,
    Eager,
    Fetch,
    HandOut,
    Load,
    Park,
    Wait,
)
from durable_agent._sealing import begin_close, seal
from durable_agent._sync_pool import offload
from durable_agent._turns import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

    from durable_agent._core import Core
    from durable_agent._requests import Request

_T = TypeVar("_T")
_LOG = logging.getLogger("durable_agent")

#: How often a waiting task looks whether anybody is left that it could wait for.
_LOOK_SECONDS: Final = 0.1


def drive(core: Core, flow: Generator[Request, Any, _T]) -> _T:
    """Run a flow to its end in this thread."""
    with core.lock:
        core.turns.seen_thread()
    step: Callable[[Any], Request] = flow.send
    given: Any = None
    while True:
        try:
            with core.lock:
                request = step(given)
        except StopIteration as stop:
            result: _T = stop.value
            return _after(core, result)
        except BaseException:
            _seal_last(core)
            raise
        try:
            step, given = flow.send, _perform(core, request)
        except BaseException as error:  # noqa: BLE001 - the flow decides, and re-raises
            step, given = flow.throw, error


def _after(core: Core, result: _T) -> _T:
    """Show observers what was appended; the last call of a closed session seals."""
    if core.unseen:
        show(core)
    _seal_last(core)
    return result


def _seal_last(core: Core) -> None:
    if core.closing and begin_close(core, None):
        seal(core)


async def adrive(core: Core, flow: Generator[Request, Any, _T]) -> _T:
    """Run a flow to its end in this task."""
    task = asyncio.current_task()
    if task is not None:
        with core.lock:
            core.turns.seen_task(task)
    step: Callable[[Any], Request] = flow.send
    given: Any = None
    while True:
        try:
            with core.lock:
                request = step(given)
        except StopIteration as stop:
            result: _T = stop.value
            return await _aafter(core, result)
        except GeneratorExit:
            _seal_last(core)
            raise
        except BaseException:
            await _aseal_last(core)
            raise
        try:
            step, given = flow.send, await _aperform(core, request)
        except BaseException as error:  # noqa: BLE001 - the flow decides, and re-raises
            step, given = flow.throw, error


async def _aafter(core: Core, result: _T) -> _T:
    if core.unseen:
        show(core)
    await _aseal_last(core)
    return result


async def _aseal_last(core: Core) -> None:
    """Seal if this was the last call of a closed session; a cancellation waits."""
    if not core.closing or not begin_close(core, None):
        return
    sealing = asyncio.ensure_future(offload(seal, core))
    cancelled: BaseException | None = None
    while not sealing.done():
        try:
            await asyncio.shield(sealing)
        except asyncio.CancelledError as error:
            cancelled = error
    sealing.result()
    if cancelled is not None:
        raise cancelled


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _perform(core: Core, request: Request) -> Any:
    match request:
        case Barrier(seq, finish):
            _finish(core.log.flush, seq, finish)
        case Eager(seq, finish):
            _finish(core.log.write, seq, finish)
        case Fetch(seq):
            return core.log.get(seq)
        case Load(read):
            return read()
        case Consult(fn, call):
            said = fn(call)
            if inspect.isawaitable(said):
                if inspect.iscoroutine(said):
                    said.close()
                msg = f"{fn!r} is async, and the tool is not: give it a plain function"
                raise TypeError(msg)
            return said
        case Wait():
            return _wait(core, request)
        case Park(seconds):
            if not _in_loop():
                _wait(
                    core, Wait(lambda: core.cancelled is not None, seconds), park=True
                )
        case HandOut(seq):
            with core.lock:
                core.waves.append([seq])
        case _:
            assert_never(request)
    return None


def _finish(sync: Any, seq: int, finish: bool) -> None:
    try:
        sync(seq)
    except Exception:
        raise
    except BaseException:
        if finish:
            sync(seq)
        raise


def _wait(core: Core, wait: Wait, *, park: bool = False) -> bool | None:
    """Wait in a thread; None: others may come, and waiting would stop their loop."""
    gate = threading.Lock()
    with core.lock:
        if wait.ready():
            core.turns.moved()
            return True
        if not park and _in_loop():
            task = asyncio.current_task()
            alone = task is None or core.turns.alone_in_loop(task, _holder(core))
            return False if alone else None
        if not park and core.turns.alone_in_thread():
            return False
        gate.acquire()
        waiter = Waiter(wait.ready, gate.release, wait.place)
        core.turns.add(waiter)
    until = time.monotonic() + wait.seconds
    try:
        while (left := until - time.monotonic()) > 0:
            if gate.acquire(timeout=min(left, _LOOK_SECONDS)):
                break
            with core.lock:
                if not park and core.turns.alone_in_thread():
                    break
    finally:
        with core.lock:
            core.turns.drop(waiter)
            ready = wait.ready()
    return ready


async def _aperform(core: Core, request: Request) -> Any:
    match request:
        case Barrier(seq, finish):
            await _afinish(core.log.aflush(seq), finish)
        case Eager(seq, finish, behind):
            if not behind:
                await _afinish(core.log.awrite(seq), finish)
        case Fetch(seq):
            event = core.log.peek(seq)
            return event if event is not None else await offload(core.log.get, seq)
        case Load(read):
            return await offload(read)
        case Consult(fn, call):
            said = fn(call)
            return await said if inspect.isawaitable(said) else said
        case Wait():
            return await _await_turn(core, request)
        case Park(seconds):
            await asyncio.sleep(seconds)
        case HandOut(seq):
            loop = asyncio.get_running_loop()
            waves = core.turns.waves(loop)
            if waves.idle and not core.turns.many_tasks:
                with core.lock:
                    core.waves.append([seq])
            else:
                future = loop.create_future()
                waves.join(future, seq)
                await future
        case _:
            assert_never(request)
    return None


async def _afinish(work: Coroutine[Any, Any, None], finish: bool) -> None:
    """Await; with ``finish`` a cancellation goes up only when the work is done."""
    if not finish:
        await work
        return
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - taken from the task below
            pass
    if cancelled is not None:
        task.exception()
        raise cancelled
    task.result()


def _holder(core: Core) -> Any:
    """Return whether a task's context has the session; unknown counts as yes."""

    def holds(task: asyncio.Task[Any]) -> bool:
        context: Callable[[], Context] | None = getattr(task, "get_context", None)
        if context is None:
            return True  # before Python 3.12
        frame = context().get(_current.FRAME)
        return frame is not None and frame.core is core

    return holds


async def _await_turn(core: Core, wait: Wait) -> bool:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    waves = core.turns.waves(loop)
    with core.lock:
        ready = wait.ready()
        if task is None or core.turns.alone_in_loop(task, _holder(core)):
            return ready
        future: asyncio.Future[None] = loop.create_future()
        here = threading.get_ident()

        def wake() -> None:
            if threading.get_ident() == here:
                waves.join(future, None)
            else:
                loop.call_soon_threadsafe(waves.join, future, None)

        waiter = Waiter(wait.ready, wake, wait.place)
        core.turns.add(waiter)
        if ready:
            core.turns.moved()
    until = loop.time() + wait.seconds
    timer = None

    def look() -> None:
        nonlocal timer
        left = until - loop.time()
        if future.done():
            return
        with core.lock:
            alone = core.turns.alone_in_loop(task, _holder(core))
        if left <= 0 or alone:
            future.set_result(None)
        else:
            timer = loop.call_later(min(left, _LOOK_SECONDS), look)

    if not ready:
        timer = loop.call_later(min(wait.seconds, _LOOK_SECONDS), look)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()
        with core.lock:
            core.turns.drop(waiter)
            ready = wait.ready()
    return ready


def show(core: Core) -> None:
    """Show observers what was appended; their errors are logged and go no further."""
    with core.lock:
        unseen = core.take_unseen()
    for event in unseen:
        for observer in list(core.observers):
            try:
                observer(event)
            except Exception:  # noqa: BLE001 - the border to user code
                _LOG.exception("an observer of session %r failed", core.id)
