"""Closing a session: what ended the run is named, and the seal attests the log."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import orjson

from durable_agent import _current
from durable_agent import events as ev
from durable_agent._mark import marks
from durable_agent.errors import DurableError, ReplayDivergedWarning
from durable_agent.events import Draft

if TYPE_CHECKING:
    from collections.abc import Generator

    from durable_agent._core import Core
    from durable_agent.recovery import History, Slot

#: How many unused records a warning lists.
_LISTED = 10


def begin_close(core: Core, error: BaseException | None) -> bool:
    """Refuse new calls; whether the log may be sealed now.

    While calls are in flight the log and its lock are kept; the last outcome seals.
    """
    with core.lock:
        if not core.closing:
            core.closing = True
            core.ended_by = error
            core.fatal = sorted(_fatal(core.history, error))
            if error is None and core.latch is None:
                core.unused = _unused(core)
        core.open = False
        _current.ended(core)
        if core.sealed or core.in_flight:
            return False
        core.sealed = True
        return True


def leave_behind(core: Core, ending: Generator[Any, Any, None]) -> None:
    """Append the outcome of what is gone and can wait for nothing; seal, if it is due.

    Whatever is written next brings the outcome to the file.
    """
    with contextlib.suppress(DurableError, OSError):
        with core.lock:
            next(ending, None)
            ending.close()
        if core.closing and begin_close(core, None):
            seal(core)


def _fatal(history: History, error: BaseException | None) -> set[tuple[str, int]]:
    """Return the attempts whose exception left the session, and those around them."""
    found = set(marks(error))
    todo = list(found)
    while todo:
        slot = history.attempts.get(todo.pop())
        if slot is None or slot.parent is None:
            continue
        attempt = 1
        while (slot.parent, attempt + 1) in history.attempts:
            attempt += 1
        around = (slot.parent, attempt)
        if around in history.attempts and around not in found:
            found.add(around)
            todo.append(around)
    return found


def tell_unused(core: Core) -> None:
    """Warn, once, of the recorded calls that a run without an error left out."""
    unused, core.unused = core.unused, ""
    if unused:
        core.warn(
            ReplayDivergedWarning,
            f"the run ended without asking for recorded calls: {unused}",
        )


def _unused(core: Core) -> str:
    if not core.used or core.replay.continued or core.options.on_divergence == "ignore":
        return ""
    unused = [s for s in core.replay.lane(None).unused() if _was_handed_out(s)]
    names = ", ".join(f"{s.name} (seq {s.first})" for s in unused[:_LISTED])
    more = f" and {len(unused) - _LISTED} more" if len(unused) > _LISTED else ""
    return f"{names}{more}"


def _was_handed_out(slot: Slot) -> bool:
    outcome = slot.outcome
    if outcome is None or slot.rewound:
        return False
    return outcome.handed and outcome.status in {"value", "error"}


def seal(core: Core) -> None:
    """Seal and close the log; blocking. Raises what the store raises."""
    try:
        if core.generation == _current.PROCESS.generation:
            _seal(core)
    finally:
        core.log.close()


def _seal(core: Core) -> None:
    with core.lock:
        known = core.history.fatal
        news = any(tuple(call) not in known for call in core.fatal)
        if not core.live and not (core.ended_by is not None and news):
            return
        if core.poisoned:
            return
        last = core.log.next_seq - 1
    if core.live:
        core.log.flush(last)
    data: dict[str, Any] = {"pid": os.getpid()}
    if core.ended_by is not None:
        data["error"] = type(core.ended_by).__qualname__
    meta: dict[str, Any] = {"ok": core.ended_by is None and core.latch is None}
    if not core.used:
        meta["visit"] = True
    if core.fatal:
        meta["fatal"] = [list(call) for call in core.fatal]
    with core.lock:
        seq = core.append(Draft(ev.RUN_END, orjson.dumps(data), meta=meta))
    core.log.flush(seq)


def latched(core: Core, error: BaseException | None) -> BaseException | None:
    """Return what closing must raise, because frameworks swallow exceptions."""
    latch = core.latch
    if latch is None or error is latch:
        return None
    if error is None:
        return core.again()
    if not isinstance(error, DurableError):
        error.add_note(f"The session had failed before: {latch}")
    return None
