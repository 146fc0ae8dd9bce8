"""A call that the log does not have: on the path, continuing it, or off it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from durable_agent._closing import closers, transcript_of
from durable_agent._conversations import newest
from durable_agent._identity import first_difference
from durable_agent._recorded import (
    closed,
    recorded_arguments,
    recorded_call,
    unknown,
    wait_for_turn,
)
from durable_agent._requests import Load, Raise, Value
from durable_agent._value_canonical import compared
from durable_agent.errors import (
    ContinuedSessionWarning,
    ReplayDivergedError,
    ReplayDivergedWarning,
)
from durable_agent.recovery import is_open
from durable_agent.replay import END, last_request
from durable_agent.transcript import continues, read

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from durable_agent._core import Core
    from durable_agent._flow import Flow
    from durable_agent._requests import Request
    from durable_agent.recovery import Slot
    from durable_agent.replay import OffPath

#: Values in messages are cut here: they may be whole prompts.
_SHOWN = 120


def judge(flow: Flow) -> Generator[Request, Any, Value | Raise | None]:
    """Decide whether a call without a record may run; None: it may."""
    core = flow.core
    replay = core.replay
    if flow.resp is not None and flow.tcid is not None:
        if (flow.resp, flow.tcid) in core.history.closers:
            return closed(flow)
    before = replay.retry_of(flow.parent, flow.identity.key, flow.resp, flow.tcid)
    if before is None or (before.call, before.attempt) not in core.told_unknown:
        before = _in_doubt(flow)
    if before is not None:
        # A blanket retry around the tool must not run what may have happened, nor may
        # code that goes on from a state of its own.
        call = yield from recorded_call(core, before)
        return unknown(flow, before, call)
    if replay.continued:
        return None
    could_wait = yield from wait_for_turn(core, flow.parent, END)
    if flow.nested or flow.detached:
        return None
    if flow.spec.kind == "llm" and flow.parent is None and flow.spec.transcript:
        if (yield from _continue(flow)):
            return None
    off = replay.off_path(
        flow.spec.kind,
        parent=flow.parent,
        effect=flow.effect,
        keyed=flow.identity.keyed,
        resp=flow.resp,
        tcid=flow.tcid,
    )
    if off is None:
        return None
    return (yield from _off_path(flow, off, could_wait))


def _in_doubt(flow: Flow) -> Slot | None:
    """Return what an earlier run recorded for this tool call, if nobody knows its end.

    The continued conversation has told the model so.
    """
    core = flow.core
    if not core.replay.continued or flow.resp is None or flow.tcid is None:
        return None
    found = core.history.by_tool_call.get((flow.resp, flow.tcid))
    if not found or not found[-1].recorded or not is_open(found[-1]):
        return None
    return found[-1] if flow.effect == "side_effect" else None


def _continue(flow: Flow) -> Generator[Request, Any, bool]:
    """Whether this request continues the recorded conversation; then close it."""
    core = flow.core
    if core.live or core.replay.replayed_model or last_request(core.history) is None:
        return False
    if not (yield Load(partial(_goes_on, core, flow.bound))):
        return False
    replayed = core.replay.replayed
    core.replay.use_all()
    core.replay.continued = True
    core.before_live += yield Load(partial(closers, core))
    core.turns.moved()
    if replayed:
        core.warn(
            ContinuedSessionWarning,
            f"{', '.join(sorted(set(replayed)))} replayed before a request that "
            "continues the recorded conversation; open a chat with conversation(...)",
        )
    return True


def _goes_on(core: Core, bound: Mapping[str, Any]) -> bool:
    """Whether a request's messages begin with one of the recorded conversations."""
    transcript = transcript_of(core)
    for last in reversed(newest(core.history)):
        seen = transcript.exchange(last, quiet=True)
        asked = read(bound, dialect=seen.dialect).messages
        if continues(seen.dialect, transcript.shown(last, seen), asked):
            return True
    return False


def _off_path(
    flow: Flow, off: OffPath, could_wait: bool
) -> Generator[Request, Any, Value | Raise | None]:
    core = flow.core
    setting = core.options.on_divergence
    if setting == "ignore":
        return None
    if not off.dangerous or setting == "warn":
        core.warn(
            ReplayDivergedWarning,
            f"{flow.name} is not in the log, while {off.slot.name} (seq "
            f"{off.slot.intent}) was not asked for again",
            once=f"off:{flow.name}",
        )
        return None
    error = yield from diverged(flow, off.slot)
    if not could_wait:
        error.add_note(
            "Other tasks of this event loop may still ask for it, and a plain function "
            "cannot wait for them: make it async, or call it with asyncio.to_thread."
        )
    core.fail(error)
    return Raise(error)


def diverged(flow: Flow, slot: Slot) -> Generator[Request, Any, ReplayDivergedError]:
    """Build the error that shows the first difference to an unused record."""
    recorded = yield from recorded_arguments(flow.core, slot)
    now = orjson.loads(flow.identity.raw)
    found: tuple[str, Any, Any] | None = ("function", slot.name, flow.name)
    if slot.name == flow.name:
        found = first_difference(compared(recorded), compared(now))
    path, old, new = found or ("occurrence", 1, 2)
    return ReplayDivergedError(
        f"{flow.name} asks for what the log does not have, while {slot.name} (seq "
        f"{slot.intent}, {slot.effect}) was not asked for again. The code is not "
        f"deterministic here. First difference at {path}: recorded {_show(old)}, "
        f"now {_show(new)}. Nothing ran.",
        session=flow.core.id,
        advice=(
            "Record clocks and the like with session.record(name, fn); state with "
            "key= or ignore= what may vary; go on with conversation(id); or use a "
            "new or forked session."
        ),
        path=path,
        recorded=_show(old),
        asked=_show(new),
    )


def _show(value: Any) -> str:
    text = orjson.dumps(value, default=str).decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} chars)"
