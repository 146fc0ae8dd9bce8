"""The step around a function or a block: entered before the body, left at its end.

The body of a coroutine function, a generator or an async generator is its whole run,
not its creation. A generator's body runs in a context of its own, so that the step is
current in the body and never in the consumer between two items.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import types
from typing import TYPE_CHECKING, Any

from durable_agent import _calls
from durable_agent._kinds import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping

    from durable_agent._spec import Target


def run(
    name: str, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Run a plain function as a step.

    What it returned may still have to run (an awaitable, a generator): that is a step
    of its own then, since the first one was over when the function returned.
    """
    with _calls.step(name):
        result = target.fn(*args, **kwargs)
    if inspect.isasyncgen(result):
        return _iterate_async(name, result)
    if inspect.isgenerator(result) and not inspect.isawaitable(result):
        return _iterate(name, result)
    if inspect.isawaitable(result):
        return _finish(name, result)
    return result


async def arun(
    name: str, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Await a coroutine function as a step; entered when it is first awaited."""
    async with _calls.step(name):
        return await target.fn(*args, **kwargs)


def generate(
    name: str, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Generator[Any, Any, Any]:
    """Iterate a generator as a step; entered at the first item."""
    return _iterate(name, target.fn(*args, **kwargs))


def agenerate(
    name: str, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> AsyncGenerator[Any, Any]:
    """Iterate an async generator as a step; entered at the first item."""
    return _iterate_async(name, target.fn(*args, **kwargs))


#: How a call of each kind of function runs as a step.
RUNNERS: dict[Kind, Callable[..., Any]] = {
    Kind.PLAIN: run,
    Kind.COROUTINE: arun,
    Kind.GENERATOR: generate,
    Kind.ASYNC_GENERATOR: agenerate,
    Kind.AROUND_COROUTINE: run,
}


class Steps:
    """The blocks that one ``step_boundary("name")`` has open now.

    One object may be entered by several threads and tasks at once; each leaves its
    own. A block left in another task than it was entered in (a dependency that is
    closed late) is the latest one that is still open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[object, Any]] = []

    def opened(self, entered: Any) -> None:
        """Remember what was entered here."""
        with self._lock:
            self._open.append((_here(), entered))

    def last(self) -> Any:
        """Return what is to be left here, and forget it."""
        here = _here()
        with self._lock:
            for index in range(len(self._open) - 1, -1, -1):
                if self._open[index][0] == here:
                    return self._open.pop(index)[1]
            return self._open.pop()[1]


def _here() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task if task is not None else threading.get_ident()


async def _finish(name: str, result: Awaitable[Any]) -> Any:
    async with _calls.step(name):
        return await result


def _iterate(name: str, source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    context = contextvars.copy_context()
    step = _calls.step(name)
    context.run(step.__enter__)
    try:
        result = yield from _Within(context, source)
    except BaseException as error:
        context.run(step.__exit__, type(error), error, error.__traceback__)
        raise
    context.run(step.__exit__, None, None, None)
    return result


async def _iterate_async(
    name: str, source: AsyncGenerator[Any, Any]
) -> AsyncGenerator[Any, Any]:
    context = contextvars.copy_context()
    step = _calls.step(name)
    await _await_within(context, step.__aenter__())
    try:
        advance = source.__anext__()
        while True:
            try:
                item = await _await_within(context, advance)
            except StopAsyncIteration:
                break
            try:
                sent = yield item
            except GeneratorExit:
                await _await_within(context, source.aclose())
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in from outside
                advance = source.athrow(error)
            else:
                advance = source.asend(sent)
    except BaseException as error:
        left = step.__aexit__(type(error), error, error.__traceback__)
        await _await_within(context, left)
        raise
    await _await_within(context, step.__aexit__(None, None, None))


class _Within:
    """A generator whose every step runs in one context."""

    def __init__(
        self, context: contextvars.Context, source: Generator[Any, Any, Any]
    ) -> None:
        self._context = context
        self._source = source

    def __iter__(self) -> _Within:
        return self

    def __next__(self) -> Any:
        return self._context.run(next, self._source)

    def send(self, value: Any) -> Any:
        return self._context.run(self._source.send, value)

    def throw(self, *error: Any) -> Any:
        return self._context.run(self._source.throw, *error)

    def close(self) -> None:
        self._context.run(self._source.close)


@types.coroutine
def _await_within(
    context: contextvars.Context, awaitable: Awaitable[Any]
) -> Generator[Any, Any, Any]:
    return (yield from _Within(context, awaitable.__await__()))
