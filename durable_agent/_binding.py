"""Carrying session and nesting into bare threads, executors and timers."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from durable_agent._current import FRAME, RESPONSE, SCOPE, STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def bound_to(fn: Any, state: tuple[Any, ...], begin: Callable[[], None]) -> Any:
    """Return ``fn`` to run with this frame, step, scope and response.

    ``begin`` is called before each run, in its thread.
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
            return fn(*args, **kwargs)

    return run
