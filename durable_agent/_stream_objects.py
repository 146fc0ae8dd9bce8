"""Objects that stand for streams which are no generators: SDK streams, iterators.

They record by way of the generator inside; everything else is the original's.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from types import TracebackType


async def close_async(stream: Any) -> None:
    """Close an async stream, whatever its method is called and returns."""
    for name in ("aclose", "close"):
        close = getattr(stream, name, None)
        if close is not None:
            closed = close()
            if inspect.isawaitable(closed):
                await closed
            return


class SyncStream:
    """An iterator, closable, and a context manager that closes."""

    def __init__(self, source: Generator[Any, Any, Any], original: Any) -> None:
        self._source = source
        self._original = original

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._source)

    def send(self, value: Any) -> Any:
        """As of a generator."""
        return self._source.send(value)

    def throw(self, error: BaseException) -> Any:
        """As of a generator."""
        return self._source.throw(error)

    def close(self) -> None:
        """Close the stream; what it gave so far is its outcome."""
        ended = inspect.getgeneratorstate(self._source) == inspect.GEN_CLOSED
        self._source.close()
        if ended and hasattr(self._original, "close"):
            # Exhausted is not closed: a connection may be behind it.
            self._original.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


class AsyncStream:
    """An async iterator, closable, and an async context manager that closes."""

    def __init__(self, source: AsyncGenerator[Any, Any], original: Any) -> None:
        self._source = source
        self._original = original

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._source.__anext__()

    async def asend(self, value: Any) -> Any:
        """As of an async generator."""
        return await self._source.asend(value)

    async def athrow(self, error: BaseException) -> Any:
        """As of an async generator."""
        return await self._source.athrow(error)

    async def aclose(self) -> None:
        """Close the stream; what it gave so far is its outcome."""
        ended = getattr(self._source, "ag_frame", None) is None
        await self._source.aclose()
        if ended:
            # Exhausted is not closed: a connection may be behind it.
            await close_async(self._original)

    async def close(self) -> None:
        """Close the stream, as SDK streams name it."""
        await self.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)
