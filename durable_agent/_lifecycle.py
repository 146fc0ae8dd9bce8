"""Closing a session, sync and async: the seal is written, a latch is raised again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

from durable_agent import _current
from durable_agent._driving import show
from durable_agent._mark import marks
from durable_agent._sealing import begin_close, latched, seal, tell_unused
from durable_agent._sync_pool import offload

if TYPE_CHECKING:
    from durable_agent._core import Core


def passing() -> BaseException | None:
    """Return the exception of a recorded call that is on its way through."""
    error = sys.exception()
    return error if marks(error) else None


def close(core: Core, error: BaseException | None) -> None:
    _refuse_foreign(core)
    if begin_close(core, error):
        seal(core)
    show(core)
    failed = latched(core, error)
    if failed is not None:
        raise failed
    tell_unused(core)


async def aclose(core: Core, error: BaseException | None) -> None:
    _refuse_foreign(core)
    if begin_close(core, error):
        sealing = asyncio.ensure_future(offload(seal, core))
        try:
            await asyncio.shield(sealing)
        except asyncio.CancelledError:
            while not sealing.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(sealing)
            raise
    show(core)
    failed = latched(core, error)
    if failed is not None:
        raise failed
    tell_unused(core)


def _refuse_foreign(core: Core) -> None:
    if core.generation != _current.PROCESS.generation:
        core.log.close()
