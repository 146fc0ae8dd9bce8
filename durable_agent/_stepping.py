"""Entering and leaving a step: what the last one produced is durable before the next.

While a run replays, marks that the log does not have wait for its first live event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_agent import events as ev
from durable_agent._current import FRAME, STEP, StepFrame
from durable_agent._requests import Barrier, Eager
from durable_agent.errors import CheckpointError, DurableError
from durable_agent.events import Draft

if TYPE_CHECKING:
    from collections.abc import Generator

    from durable_agent._core import Core
    from durable_agent._requests import Request
    from durable_agent.recovery import Step


def _where(core: Core, name: str) -> tuple[str | None, str]:
    frame = FRAME.get()
    inside = frame is not None and frame.core is core and frame.enclosing is not None
    if frame is None or frame.enclosing is None or not inside:
        return None, name
    return frame.enclosing.call.id, name


def enter_step(core: Core, name: str) -> Generator[Request, Any, StepFrame]:
    """Note the entering; when it returns, everything before is durable.

    Raises:
        CheckpointError: it could not be made durable; the body does not run.
    """
    core.check()
    where = _where(core, name)
    outer = STEP.get()
    n = core.steps_entered.get(where, 0) + 1
    core.steps_entered[where] = n
    step = StepFrame(name=name, parent=where[0], n=n, outer=outer)
    if outer is not None:
        outer.inner.append(where)
    if _recorded(core, step) is not None:
        return step
    draft = Draft(ev.STEP_START, meta=_meta(step))
    if not core.live:
        core.before_live.append(draft)
        return step
    seq = core.append(draft)
    try:
        yield Barrier(seq) if core.options.policy.at_step else Eager(seq)
    except (DurableError, OSError) as error:
        failed = CheckpointError(
            f"step {name!r} did not begin: what came before could not be made "
            f"durable: {error}",
            session=core.id,
            file=getattr(error, "file", None),
            seq=seq,
        )
        core.fail(failed)
        raise failed from error
    return step


def leave_step(
    core: Core, step: StepFrame, error: BaseException | None, paused: bool
) -> Generator[Request, Any, None]:
    """Note the leaving. A step left by a pause replays when it is entered again."""
    if paused:
        core.steps_entered[step.parent, step.name] -= 1
        for where in step.inner:
            core.steps_entered[where] -= 1
        core.replay.rewind(step.slots)
        return
    recorded = _recorded(core, step)
    if recorded is not None and recorded.end is not None:
        return
    draft = Draft(ev.STEP_END, meta={**_meta(step), "ok": error is None})
    if not core.live:
        core.before_live.append(draft)
        return
    try:
        # A replay does not wait here, so a task must not either: meanwhile others
        # would have their outcomes, and the order of ends would not come again.
        yield Eager(core.append(draft), finish=True, behind=True)
    except (DurableError, OSError) as failed:
        # The body is over: the failure is latched and met by the next call.
        core.fail(failed)
        if error is None:
            raise


def _recorded(core: Core, step: StepFrame) -> Step | None:
    for known in core.history.steps.get((step.parent, step.name), ()):
        if known.n == step.n:
            return known
    return None


def _meta(step: StepFrame) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": step.name, "n": step.n}
    if step.parent is not None:
        meta["parent"] = step.parent
    return meta
