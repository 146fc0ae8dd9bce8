"""Which session and call a piece of code is in: contextvars, and the process's session.

A context that never had a session falls back to the process's one, while exactly one is
open and never two were open together.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from durable_agent._redaction import REDACTED_NAMES
from durable_agent.errors import (
    AmbiguousSessionError,
    NoSessionError,
    NoSessionWarning,
    SessionClosedError,
    SessionForkedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent._core import Core
    from durable_agent.outcomes import Call
    from durable_agent.recovery import Slot


@define(eq=False)
class Enclosing:
    """A call whose body runs now."""

    call: Call
    slot: Slot
    #: Children have checkpoints of their own: a composite tool, or a model call.
    opens: bool
    #: Inside a model call, at any depth.
    in_model: bool
    #: Functions whose calls directly inside are this very call.
    covers: tuple[Any, ...] = ()
    #: Its outcome is recorded: what it left running is no longer part of it.
    done: bool = False
    #: What ran below it, so that a suspension can rewind.
    children: list[Slot] = field(factory=list)


@define(eq=False)
class StepFrame:
    """A step that is entered now."""

    name: str
    parent: str | None
    n: int
    outer: StepFrame | None
    slots: list[Slot] = field(factory=list)
    #: Steps entered inside, so that a pause can rewind them too.
    inner: list[tuple[str | None, str]] = field(factory=list)


@frozen
class Frame:
    """Where code is: the session, and the call around it."""

    core: Core
    enclosing: Enclosing | None = None
    detached: bool = False


#: Unset: this context never had a session. None: it had one, which has ended.
FRAME: ContextVar[Frame | None] = ContextVar("durable_agent_frame", default=None)
#: (response's call id, core) handed out last in this context.
RESPONSE: ContextVar[tuple[str, Core] | None] = ContextVar(
    "durable_agent_response", default=None
)
STEP: ContextVar[StepFrame | None] = ContextVar("durable_agent_step", default=None)
SCOPE: ContextVar[str] = ContextVar("durable_agent_scope", default="")
TOOL_CALL_ID: ContextVar[str | None] = ContextVar(
    "durable_agent_tool_call_id", default=None
)


@define
class Settings:
    """Process-wide settings; see ``configure``."""

    require_session: bool = False
    session_fallback: bool = True
    on_unknown: Any = None
    root: str | None = None
    redact_names: frozenset[str] = REDACTED_NAMES


SETTINGS = Settings()

#: What models call the tools that were decorated in this process.
TOOL_NAMES: Final[set[str]] = set()


@define(eq=False)
class _Process:
    """The sessions that are open in this process."""

    lock: threading.Lock = field(factory=threading.Lock)
    cores: list[Core] = field(factory=list)
    #: Two were open together once: falling back would be a guess for ever.
    crowded: bool = False
    warned: set[str] = field(factory=set)
    #: Grows in a forked child, so that it knows a session is not its own.
    generation: int = 0


PROCESS = _Process()


def _after_fork() -> None:
    PROCESS.generation += 1
    PROCESS.lock = threading.Lock()
    PROCESS.cores = []


os.register_at_fork(after_in_child=_after_fork)


def opened(core: Core) -> None:
    """Note that a session is open in this process."""
    with PROCESS.lock:
        PROCESS.cores.append(core)
        if len(PROCESS.cores) > 1:
            PROCESS.crowded = True


def ended(core: Core) -> None:
    """Note that a session is closed."""
    with PROCESS.lock:
        if core in PROCESS.cores:
            PROCESS.cores.remove(core)
            # Who was recorded until now is told again that it is not.
            PROCESS.warned.clear()


def find(function: str) -> Frame | None:
    """Return the frame that a call of this function belongs to; None: no session.

    Raises:
        SessionClosedError: the context holds a closed session.
        SessionForkedError: it holds its parent process's session.
        AmbiguousSessionError: no session here, and several are or were open.
        NoSessionError: none, and ``configure(require_session=True)``.
    """
    frame = FRAME.get()
    if frame is None:
        return _fall_back(function)
    core = frame.core
    if core.open and core.generation == PROCESS.generation:
        return frame
    while core.successor is not None:
        core = core.successor
    if core.generation != PROCESS.generation:
        raise SessionForkedError(
            f"{function} was called in a forked child",
            session=core.id,
            advice="The session belongs to the parent; open another one here.",
        )
    if core.open:
        return Frame(core)
    raise SessionClosedError(
        f"{function} was called after the session was closed",
        session=core.id,
        advice="Open it again, or wait for your tasks before closing it.",
    )


def _fall_back(function: str) -> Frame | None:
    if SETTINGS.session_fallback and PROCESS.cores:
        with PROCESS.lock:
            cores = list(PROCESS.cores)
        if PROCESS.crowded or len(cores) > 1:
            raise AmbiguousSessionError(
                f"{function} was called in a context without a session, and this "
                "process has had several open at once.",
                advice="Use session.bind(fn), or copy the context into the thread.",
            )
        return Frame(cores[0], detached=True)
    if SETTINGS.require_session:
        raise NoSessionError(
            f"{function} was called without a session.",
            advice="Call it under `with session(id):`.",
        )
    if function not in PROCESS.warned:
        PROCESS.warned.add(function)
        warnings.warn(
            f"{function} runs without a session: nothing is recorded",
            NoSessionWarning,
            stacklevel=5,
        )
    return None


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Keep the calls below apart from equal calls elsewhere.

    Scopes nest. The name is part of the identity of every call made inside, so it must
    be the same when the code runs again.
    """
    token = SCOPE.set(f"{SCOPE.get()}/{name}")
    try:
        yield
    finally:
        _reset(SCOPE, token)


@contextlib.contextmanager
def tool_call_id(provider_id: str) -> Iterator[None]:
    """Say which tool call of the last model response the next tool call answers.

    It is used by the first top-level tool call inside and by its repeats; nested calls
    do not see it.
    """
    token = TOOL_CALL_ID.set(provider_id)
    try:
        yield
    finally:
        _reset(TOOL_CALL_ID, token)


def _reset(variable: ContextVar[Any], token: Token[Any]) -> None:
    # An abandoned coroutine or generator is closed wherever it is collected; another
    # context is left as it is.
    with contextlib.suppress(ValueError):
        variable.reset(token)


def current_call() -> Call | None:
    """Return the recorded call whose body runs here, None outside of any."""
    frame = FRAME.get()
    if frame is None or frame.enclosing is None:
        return None
    return frame.enclosing.call
