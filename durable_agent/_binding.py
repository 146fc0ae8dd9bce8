"""Carrying session and nesting into bare threads, executors, timers and streams."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from durable_agent._current import FRAME, RESPONSE, SCOPE, STEP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    There = Callable[[], AbstractContextManager[None]]


def bound_to(fn: Any, state: tuple[Any, ...], begin: Callable[[], None]) -> Any:
    """Return ``fn`` to run with this frame, step, scope and response.

    ``begin`` is called before each run, in its thread. What a generator's consumer does
    between two steps runs as it would without.
    """
    variables = (FRAME, STEP, SCOPE, RESPONSE)

    @contextlib.contextmanager
    def there() -> Iterator[None]:
        begin()
        tokens = [v.set(x) for v, x in zip(variables, state, strict=True)]  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for variable, token in zip(variables, tokens, strict=True):
                # A coroutine or generator may be closed in another context.
                with contextlib.suppress(ValueError):
                    variable.reset(token)  # type: ignore[attr-defined]

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            with there():
                return await fn(*args, **kwargs)

        return arun

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        with there():
            made = fn(*args, **kwargs)
        if inspect.isgenerator(made):
            return _steps(made, there)
        if inspect.isasyncgen(made):
            return _asteps(made, there)
        return _awaited(made, there) if inspect.iscoroutine(made) else made

    return run


async def _awaited(made: Any, there: There) -> Any:
    with there():
        return await made


def _steps(source: Generator[Any, Any, Any], there: There) -> Generator[Any, Any, Any]:
    """Run each step of a generator there, and none of its consumer's."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            with there():
                item = source.send(sent) if thrown is None else source.throw(thrown)
        except StopIteration as stop:
            return stop.value
        sent = thrown = None
        try:
            sent = yield item
        except GeneratorExit:
            with there():
                source.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the source
            thrown = error


async def _asteps(
    source: AsyncGenerator[Any, Any], there: There
) -> AsyncGenerator[Any, Any]:
    """Run each step of an async generator there; see ``_steps``."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            with there():
                if thrown is None:
                    item = await source.asend(sent)
                else:
                    item = await source.athrow(thrown)
        except StopAsyncIteration:
            return
        sent = thrown = None
        try:
            sent = yield item
        except GeneratorExit:
            with there():
                await source.aclose()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the source
            thrown = error
