"""Context managers that a model function returns: entered, they give a stream or value.

SDKs return one from ``.stream(...)``. The request is durable before the manager is
made; what entering gives is recorded like any result. A replay returns a manager again.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from durable_agent import _calls, _returned
from durable_agent._driving import adrive, drive
from durable_agent._ending import pack_error, record
from durable_agent._raw_responses import held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import TracebackType

    from durable_agent._flow import Flow

#: How a recorded outcome names what the function returned.
SYNC: Final = "manager"
ASYNC: Final = "amanager"


def is_manager(flow: Flow, result: Any) -> bool:
    """Whether what a model function returned has to be entered first."""
    kind = type(result)
    if flow.spec.kind != "llm" or isinstance(result, io.IOBase):
        return False
    return hasattr(kind, "__enter__") or hasattr(kind, "__aenter__")


class _Manager:
    """What both kinds share: the original, and its end if it is never entered."""

    def __init__(self, flow: Flow | None, original: Any) -> None:
        self._flow = flow
        self._original = original
        self._entered: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __del__(self) -> None:
        flow = self.__dict__.get("_flow")
        if flow is not None:
            _calls.abandon(flow, GeneratorExit())


class SyncManager(_Manager):
    """A context manager whose entering is recorded, or replayed."""

    def __init__(
        self, flow: Flow | None, original: Any, enter: Callable[[], Any]
    ) -> None:
        super().__init__(flow, original)
        self._enter = enter

    def __enter__(self) -> Any:
        self._flow = None
        self._entered = self._enter()
        return self._entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        stream = _stream_in(self._entered)
        if stream is not None:
            stream.close()
        if self._original is None:
            return None
        suppressed: bool | None = self._original.__exit__(kind, error, traceback)
        return suppressed


class AsyncManager(_Manager):
    """An async context manager whose entering is recorded, or replayed."""

    def __init__(
        self, flow: Flow | None, original: Any, enter: Callable[[], Awaitable[Any]]
    ) -> None:
        super().__init__(flow, original)
        self._enter = enter

    async def __aenter__(self) -> Any:
        self._flow = None
        self._entered = await self._enter()
        return self._entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        stream = _stream_in(self._entered)
        if hasattr(stream, "aclose"):
            await stream.aclose()
        elif stream is not None:
            stream.close()
        if self._original is None:
            return None
        suppressed: bool | None = await self._original.__aexit__(kind, error, traceback)
        return suppressed


def _stream_in(entered: Any) -> Any:
    """Return the recorded stream that entering gave, None if it gave none."""
    is_own = hasattr(entered, "_source") or hasattr(entered, "aclose")
    return entered if inspect.isgenerator(entered) or is_own else held(entered)


def recorded(flow: Flow, original: Any, lead: str) -> SyncManager | AsyncManager:
    """Return a manager like the original, that records what entering it gives."""

    def enter() -> Any:
        try:
            with _calls.inside(flow):
                entered = original.__enter__()
        except BaseException as error:
            drive(flow.core, record(flow, pack_error(flow, error, lead + SYNC)))
            raise
        return _returned.recorded(flow, entered, lead + SYNC)

    async def aenter() -> Any:
        try:
            with _calls.inside(flow):
                entered = await original.__aenter__()
        except BaseException as error:
            await adrive(flow.core, record(flow, pack_error(flow, error, lead + ASYNC)))
            raise
        return await _returned.arecorded(flow, entered, lead + ASYNC)

    if hasattr(type(original), "__aenter__"):
        return AsyncManager(flow, original, aenter)
    return SyncManager(flow, original, enter)


def replayed(kind: str, enter: Callable[[], Any]) -> SyncManager | AsyncManager:
    """Return a manager of the recorded kind; entered, it gives what ``enter`` does."""
    if kind == SYNC:
        return SyncManager(None, None, enter)

    async def aenter() -> Any:
        return enter()

    return AsyncManager(None, None, aenter)


class Awaited(Coroutine[Any, Any, Any]):
    """A coroutine whose result, if it is a manager, may be entered at once.

    SDKs wrap a coroutine function in a plain one that returns an async context manager
    (``with_streaming_response``); this is for ``await`` and for ``async with``.
    """

    def __init__(self, made: Coroutine[Any, Any, Any]) -> None:
        self._made = made
        self._manager: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._made.__await__()

    def send(self, value: Any) -> Any:
        """As of a coroutine."""
        return self._made.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._made.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._made.close()

    async def __aenter__(self) -> Any:
        self._manager = await self._made
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        suppressed: bool | None = await self._manager.__aexit__(kind, error, traceback)
        return suppressed
