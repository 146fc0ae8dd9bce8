"""Objects that stand for streams which are no generators: SDK streams, iterators.

They record by way of the generator inside, also for helpers that take the stream to its
end; everything else is the original's. A replayed stream has no original. Both answer
for the original's class, so that ``isinstance`` says what it says of the original.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from durable_agent import _stream_helpers as helpers
from durable_agent._carriers import response_of, stream_class

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Generator,
        Iterator,
        Mapping,
    )
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


class _Stream:
    """What both kinds share: the original, or the chunks that stand for it."""

    def __init__(
        self,
        original: Any,
        asked: Mapping[str, Any] | None,
        carrier: Mapping[str, Any] | None,
    ) -> None:
        self._original = original
        self._asked = asked or {}
        self._carrier = carrier or {}
        #: Of a replayed stream: what it gave so far.
        self._given: list[Any] = []

    @property  # type: ignore[misc]  # read-only, as of proxies
    def __class__(self) -> type:
        return stream_class(self._carrier) or type(self)

    def _note(self, chunk: Any) -> Any:
        if self._original is None:
            self._given.append(chunk)
        return chunk

    def __getattr__(self, name: str) -> Any:
        if "_original" not in self.__dict__:
            raise AttributeError(name)
        original = self._original
        if name == helpers.TEXTS and (original is None or hasattr(original, name)):
            return self._texts()
        if helpers.takes_all(name):
            # Unknown ones are unknown at once.
            return partial(self._finish, self._helper(name))
        if original is not None:
            return helpers.attribute(original, name)
        if name.endswith("_snapshot"):
            return helpers.snapshot(name, self._given)
        if name == "response" and "response" in self._carrier:
            self.__dict__[name] = response_of(self._carrier)
            return self.__dict__[name]
        return helpers.told(stream_class(self._carrier), name, self)

    def _helper(self, name: str) -> Any:
        if self._original is None:
            return helpers.helper(name, self, self._given, self._asked)
        return getattr(self._original, name)

    def _own(self, result: Any) -> Any:
        """Return this stream where a helper returns the original."""
        return self if result is not None and result is self._original else result


async def _later(helper: Callable[[], Any]) -> Any:
    return helper()


class SyncStream(_Stream):
    """An iterator, closable, and a context manager that closes."""

    def __init__(
        self,
        source: Generator[Any, Any, Any],
        original: Any,
        asked: Mapping[str, Any] | None = None,
        carrier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(original, asked, carrier)
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._note(next(self._source))

    def send(self, value: Any) -> Any:
        """As of a generator."""
        return self._note(self._source.send(value))

    def throw(self, error: BaseException) -> Any:
        """As of a generator."""
        return self._note(self._source.throw(error))

    def _texts(self) -> Iterator[str]:
        for chunk in self:
            text = helpers.text_of(chunk)
            if text is not None:
                yield text

    def _finish(self, helper: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in self:
            pass
        return self._own(helper(*args, **kwargs))

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


class AsyncStream(_Stream):
    """An async iterator, closable, and an async context manager that closes."""

    def __init__(
        self,
        source: AsyncGenerator[Any, Any],
        original: Any,
        asked: Mapping[str, Any] | None = None,
        carrier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(original, asked, carrier)
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._note(await self._source.__anext__())

    async def asend(self, value: Any) -> Any:
        """As of an async generator."""
        return self._note(await self._source.asend(value))

    async def athrow(self, error: BaseException) -> Any:
        """As of an async generator."""
        return self._note(await self._source.athrow(error))

    async def _texts(self) -> AsyncIterator[str]:
        async for chunk in self:
            text = helpers.text_of(chunk)
            if text is not None:
                yield text

    def _finish(self, helper: Any, *args: Any, **kwargs: Any) -> Any:
        # Made, a coroutine has not begun; what gives none cannot take chunks.
        made = helper(*args, **kwargs)
        return self._drained(made) if inspect.isawaitable(made) else self._own(made)

    async def _drained(self, helper: Any) -> Any:
        try:
            async for _ in self:
                pass
        except BaseException:
            if inspect.iscoroutine(helper):
                helper.close()
            raise
        return self._own(await helper)

    def _helper(self, name: str) -> Any:
        helper = super()._helper(name)
        return helper if self._original is not None else partial(_later, helper)

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


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Nothing:
    """Nothing, for those who await it too."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


_NOTHING: Final = _Nothing()


class EitherStream(SyncStream):
    """A stream for ``for`` and for ``async for``: what it is asked for first, it is.

    ``other`` makes its async generator, ``leave`` ends the sync one unstarted.
    """

    def __init__(
        self,
        source: Generator[Any, Any, Any],
        original: Any,
        asked: Mapping[str, Any] | None,
        carrier: Mapping[str, Any] | None,
        *,
        other: Callable[[], AsyncGenerator[Any, Any]],
        leave: Callable[[], None],
    ) -> None:
        super().__init__(source, original, asked, carrier)
        self._other = other
        self._leave = leave
        self._taken: str = ""
        self._twin: AsyncStream | None = None

    def _take(self, how: str) -> None:
        if self._taken not in {"", how}:
            msg = f"this stream is taken by `{self._taken}` already, not by `{how}`"
            raise TypeError(msg)
        self._taken = how

    def _asynchronous(self) -> AsyncStream:
        self._take("async for")
        if self._twin is None:
            self._leave()
            self._twin = AsyncStream(
                self._other(), self._original, self._asked, self._carrier
            )
        return self._twin

    def __next__(self) -> Any:
        self._take("for")
        return super().__next__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._asynchronous().__anext__()

    async def asend(self, value: Any) -> Any:
        """As of an async generator."""
        return await self._asynchronous().asend(value)

    async def athrow(self, error: BaseException) -> Any:
        """As of an async generator."""
        return await self._asynchronous().athrow(error)

    async def aclose(self) -> None:
        """Close the stream; what it gave so far is its outcome."""
        if self._taken == "for":
            super().close()
        else:
            await self._asynchronous().aclose()

    def close(self) -> Any:
        """Close the stream, now or by awaiting what this returns."""
        if self._taken != "for" and _in_loop():
            return self.aclose()
        super().close()
        return _NOTHING

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
