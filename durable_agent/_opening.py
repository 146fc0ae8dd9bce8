"""Opening a session: the store, the lease, the history, and what the log says of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from attrs import frozen

from durable_agent import _current
from durable_agent._closing import closers
from durable_agent._core import Core, Options
from durable_agent._preview import printable
from durable_agent._progress import watched
from durable_agent._sync_pool import offload
from durable_agent.errors import (
    FinishedSessionWarning,
    SessionBusyError,
    SessionExistsError,
    StoreError,
)
from durable_agent.jsonl import JsonlStore
from durable_agent.policy import CheckpointPolicy
from durable_agent.recovery import fold, is_cut_off
from durable_agent.replay import Replay
from durable_agent.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_agent.recovery import History
    from durable_agent.store import SessionLog

_LOG = logging.getLogger("durable_agent")

#: The environment variable that names the root.
HOME_VARIABLE: Final = "DURABLE_AGENT_HOME"
#: The directory that is looked for from the current one upwards.
HOME_NAME: Final = ".durable_agent"
#: Characters of a session's id in a progress line.
_SHOWN_CHARS: Final = 40
#: How often a task looks whether a lease is free; a thread waits in the kernel.
_RETRY_SECONDS: Final = 0.05


@frozen(kw_only=True)
class Request:
    """What a person asked to open, and how."""

    id: str
    continued: bool
    root: str | os.PathLike[str] | None = None
    store: Store | None = None
    must_exist: bool | None = None
    policy: CheckpointPolicy | None = None
    lock_timeout: float = 0.0
    on_unknown: Any = None
    on_divergence: Literal["raise", "warn", "ignore"] = "raise"
    retry_failed: bool = False
    replay_wait: float = 10.0
    metadata: Mapping[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what makes no sense now, not at the first call that meets it."""
        for name, value, fits in (
            ("must_exist", self.must_exist, self.must_exist in {None, True, False}),
            ("policy", self.policy, _none_or(self.policy, CheckpointPolicy)),
            ("store", self.store, _none_or(self.store, Store)),
            ("lock_timeout", self.lock_timeout, _is_seconds(self.lock_timeout)),
            ("replay_wait", self.replay_wait, _is_seconds(self.replay_wait)),
            ("on_unknown", self.on_unknown, is_on_unknown(self.on_unknown)),
            (
                "on_divergence",
                self.on_divergence,
                self.on_divergence in {"raise", "warn", "ignore"},
            ),
        ):
            if not fits:
                msg = f"{name}={value!r} is no value of this option of a session"
                raise TypeError(msg)
        try:
            orjson.dumps(dict(self.metadata or {}))
        except (TypeError, ValueError) as error:
            msg = f"metadata of session {self.id!r} must be plain JSON: {error}"
            raise TypeError(msg) from error


def _none_or(value: object, kind: type) -> bool:
    return value is None or isinstance(value, kind)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def is_on_unknown(value: object) -> bool:
    """Whether it says what to do about a call in doubt; None: it says nothing."""
    return value is None or callable(value) or value in {"raise", "return"}


def find_root(root: str | os.PathLike[str] | None) -> Path:
    """Return the absolute directory of the sessions; it may not exist yet."""
    given = root or _current.SETTINGS.root or os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given).absolute()
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / HOME_NAME).is_dir():
            return directory / HOME_NAME
    return here / HOME_NAME


def store_of(root: str | os.PathLike[str] | None, store: Store | None) -> Store:
    """Return the store that these options name."""
    if store is not None:
        return store
    found = find_root(root)
    return JsonlStore(found, gitignore=found.name == HOME_NAME)


def open_core(request: Request) -> Core:
    """Open in this thread; blocks for the lease up to ``lock_timeout``."""
    store = store_of(request.root, request.store)
    return _open(request, store, request.lock_timeout)


async def aopen_core(request: Request) -> Core:
    """Open without blocking the loop, also while the lease is waited for."""
    store = store_of(request.root, request.store)
    until = time.monotonic() + request.lock_timeout
    while True:
        try:
            return await _try_to_open(request, store)
        except SessionBusyError:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


async def _try_to_open(request: Request, store: Store) -> Core:
    """Open without waiting for a lease; cancelled, nothing is open when that goes up.

    Whoever was cancelled may open it again at once.
    """
    work = offload(_open, request, store, 0.0, unclaimed=_close_unclaimed)
    opening = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        closing = asyncio.ensure_future(_give_back(opening))
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)
        raise


async def _give_back(opening: asyncio.Future[Core]) -> None:
    with contextlib.suppress(Exception):
        await offload(_close_unclaimed, await opening)


def _close_unclaimed(core: Core) -> None:
    core.open = False
    core.log.close()


def _open(request: Request, store: Store, lock_timeout: float) -> Core:
    if request.must_exist:
        store.inspect(request.id).close()
    log = store.open(request.id, lock_timeout=lock_timeout)
    try:
        if request.must_exist is False:
            _refuse_existing(log)
        return _core(request, store, log)
    except BaseException:
        log.close()
        raise


def _refuse_existing(log: SessionLog) -> None:
    if log.report.existed:
        raise SessionExistsError(
            f"it exists already, at {log.report.location}",
            session=log.report.session,
            advice="Open it with must_exist=None, or choose another id.",
        )


def _refuse_part(log: SessionLog, history: History) -> None:
    if is_cut_off(history.uids, log.next_seq):
        raise StoreError(
            "It was to be a fork, and making it was cut off.",
            session=log.report.session,
            file=log.report.location,
            advice="Fork again under this id, or delete it.",
        )


def _core(request: Request, store: Store, log: SessionLog) -> Core:
    opening = f"opening {printable(request.id, _SHOWN_CHARS)}"
    with watched(log.heads(), log.report.events, opening) as heads:
        history = fold(heads)
    _refuse_part(log, history)
    replay = Replay(history, continued=request.continued)
    replay.start()
    core = Core(
        id=request.id,
        store=store,
        log=log,
        history=history,
        replay=replay,
        options=Options(
            policy=request.policy or CheckpointPolicy(),
            on_unknown=request.on_unknown,
            on_divergence=request.on_divergence,
            retry_failed=request.retry_failed,
            replay_wait=request.replay_wait,
            metadata=request.metadata or {},
            parent=_parent(),
        ),
        recorded_appends=history.appended,
    )
    if request.continued:
        for where, steps in history.steps.items():
            core.steps_entered[where] = max(step.n for step in steps)
        core.before_live = closers(core)
    history.live = True
    _tell(core)
    return core


def _parent() -> dict[str, Any] | None:
    frame = _current.FRAME.get()
    if frame is None or frame.enclosing is None:
        return None
    return {"session": frame.core.id, "call": frame.enclosing.call.id}


def _tell(core: Core) -> None:
    report = core.log.report
    state = "resumed" if report.existed else "new"
    _LOG.info("session %r: %s, at %s", core.id, state, report.location)
    if report.died:
        _LOG.warning(
            "session %r: its former owner %s did not close it",
            core.id,
            printable(report.died, _SHOWN_CHARS),
        )
    for torn in report.torn:
        _LOG.warning(
            "session %r: cut a torn tail of %d bytes at offset %d of %s; kept in %s",
            core.id,
            torn.size,
            torn.offset,
            torn.file,
            torn.kept,
        )
    if core.history.finished and not core.replay.continued:
        warnings.warn(
            f"session {core.id!r} has ended normally: the same code only replays. Use "
            "a new id for new work, or conversation(id) to go on",
            FinishedSessionWarning,
            stacklevel=5,
        )
