"""``with session(id):`` and ``async with``: contextvars are set, and reset."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from durable_agent._current import FRAME, RESPONSE, SCOPE, STEP, Frame
from durable_agent._lifecycle import aclose, close
from durable_agent._opening import Request, aopen_core, open_core
from durable_agent.errors import SessionClosedError
from durable_agent.session import Session, make

if TYPE_CHECKING:
    from types import TracebackType

    from durable_agent._core import Core


class Opening:
    """The context manager that ``session`` and ``conversation`` return.

    Sync and async; for one use at a time. An exception goes through unchanged.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._session: Session | None = None
        self._tokens: list[tuple[Any, Any]] = []

    def __enter__(self) -> Session:
        self._free()
        return self._enter(open_core(self._request))

    async def __aenter__(self) -> Session:
        self._free()
        return self._enter(await aopen_core(self._request))

    def _free(self) -> None:
        if self._session is not None:
            raise SessionClosedError(
                "this object is entered already",
                session=self._request.id,
                advice="Make a new one with session(id) for each opening.",
            )

    def _enter(self, core: Core) -> Session:
        self._session = make(core)
        pairs: list[tuple[Any, Any]] = [(FRAME, Frame(core)), (RESPONSE, None)]
        pairs += [(STEP, None), (SCOPE, "")]
        self._tokens = [(variable, variable.set(value)) for variable, value in pairs]
        return self._session

    def _leave(self) -> Core | None:
        session, self._session = self._session, None
        for variable, token in self._tokens:
            # A generator may be closed in another context.
            with contextlib.suppress(ValueError):
                variable.reset(token)
        self._tokens = []
        return None if session is None else session._core  # noqa: SLF001 - own class

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        core = self._leave()
        if core is not None:
            close(core, error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        core = self._leave()
        if core is not None:
            await aclose(core, error)
