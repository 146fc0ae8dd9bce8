"""Running user code: the only place where bodies, steps and recorded functions run.

`call` and `acall` are the two drivers around one flow: before the body, the body once
in the caller's own thread and task, and what came of it.
"""

from __future__ import annotations

import contextlib
import inspect
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from durable_agent import _current, _frameworks, _returned, _streams
from durable_agent._claims import handed_out
from durable_agent._current import FRAME, RESPONSE, STEP, TOOL_CALL_ID, Frame
from durable_agent._driving import adrive, drive
from durable_agent._ending import is_control_flow, pack_error, record
from durable_agent._flow import Flow
from durable_agent._identity import encode_arguments, identify, key_value
from durable_agent._requests import Raise, Run, Value
from durable_agent._sealing import leave_behind
from durable_agent._spec import asked, at_default, flatten, given, names
from durable_agent._stepping import enter_step, leave_step
from durable_agent.errors import DecorationError
from durable_agent.outcomes import EFFECTS
from durable_agent.transcript import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from durable_agent._core import Core
    from durable_agent._current import StepFrame
    from durable_agent._spec import Spec, Target

#: The parameter that is filled in when the caller left it at its default.
_KEY_PARAMETER = "idempotency_key"


def call(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call in this thread; what comes back may turn out to be lazy."""
    frame = _current.find(target.qualified_name)
    if frame is None or covered(frame, target):
        return target.fn(*args, **kwargs)
    flow = prepare(frame, spec, target, args, kwargs)
    verdict = drive(flow.core, flow.before())
    match verdict:
        case Value():
            again = partial(_make, flow, target, args, kwargs)
            return _returned.replayed(flow, verdict, again)
        case Raise(error, returned_as):
            return _returned.raising(error, returned_as)
        case Run():
            pass
        case _:
            assert_never(verdict)
    args, kwargs = fill_key(flow, target, args, kwargs)
    try:
        with inside(flow):
            result = target.fn(*args, **kwargs)
    except BaseException as error:
        drive(flow.core, record(flow, pack_error(flow, error)))
        raise
    if inspect.isawaitable(result):
        return _watched(flow, result)
    return _returned.recorded(flow, result)


async def acall(
    spec: Spec, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call in this task. Nothing happens before the coroutine is first awaited."""
    frame = _current.find(target.qualified_name)
    if frame is None or covered(frame, target):
        made = target.fn(*args, **kwargs)
        return await made if inspect.isawaitable(made) else made
    flow = prepare(frame, spec, target, args, kwargs)
    verdict = await adrive(flow.core, flow.before())
    match verdict:
        case Value():
            again = partial(_make, flow, target, args, kwargs)
            return _returned.replayed(flow, verdict, again, awaited=True)
        case Raise(error):
            raise error
        case Run():
            pass
        case _:
            assert_never(verdict)
    args, kwargs = fill_key(flow, target, args, kwargs)
    try:
        with inside(flow):
            result = target.fn(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
    except GeneratorExit as error:
        abandon(flow, error)
        raise
    except BaseException as error:
        await adrive(flow.core, record(flow, pack_error(flow, error)))
        raise
    return await _returned.arecorded(flow, result)


def _make(
    flow: Flow, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    args, kwargs = fill_key(flow, target, args, kwargs)
    return target.fn(*args, **kwargs)


def delivered(flow: Flow, value: Any) -> None:
    """Note what the caller has now: a response's tool calls may be answered."""
    if flow.spec.kind == "llm" and flow.slot is not None:
        side = not flow.spec.transcript
        response = whole(value)
        handed_out(flow.core, flow.slot.call, response, side=side)
        flow.core.chains.answered(flow.slot.first, response)


def abandon(flow: Flow, error: BaseException) -> None:
    """Record the end of a coroutine that is being closed and can await nothing."""
    leave_behind(flow.core, record(flow, pack_error(flow, error)))


def _watched(flow: Flow, awaitable: Any) -> Any:
    """Await and record; an awaitable that nobody awaits has an outcome too."""
    begun: list[bool] = []
    made = _streams.awaiting(flow, awaitable, begun)
    weakref.finalize(made, _never_awaited, flow, begun).atexit = False
    return made


def _never_awaited(flow: Flow, begun: list[bool]) -> None:
    if not begun:
        abandon(flow, GeneratorExit("never awaited"))


def covered(frame: Frame, target: Target) -> bool:
    """Whether the call around this one is the same call of a sync and async pair."""
    if frame.enclosing is None or not frame.enclosing.covers:
        return False
    return not frame.enclosing.done and target.function in frame.enclosing.covers


def prepare(
    frame: Frame,
    spec: Spec,
    target: Target,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Flow:
    """Bind, name and identify a call, before its body could change the arguments.

    Raises:
        ArgumentNotStorableError: naming the parameter; the body does not run.
        TypeError: the arguments do not fit, as the function itself would say.
    """
    core = frame.core
    bound = given(spec, target, args, kwargs)
    name, short = names(spec, target, bound)
    effect = spec.effect if isinstance(spec.effect, str) else spec.effect(bound)
    if effect not in EFFECTS:
        raise DecorationError(
            f"effect= of {name} gave {effect!r}",
            advice=f"Use one of {sorted(EFFECTS)}.",
        )
    encoded = core.redaction.arguments(
        spec.kind,
        encode_arguments(
            bound,
            ignore=spec.ignore | _frameworks.injected(target, bound),
            functions=spec.kind == "llm",
        ),
        spec.redact,
        _current.SETTINGS.redact_names,
    )
    key = None
    if spec.key is not None:
        key = key_value(spec.key, bound, name)
    identity = identify(
        spec.kind,
        name,
        encoded,
        scope=_current.SCOPE.get(),
        key=key,
        keyed=spec.key is not None,
    )
    return Flow(
        core=core,
        frame=frame,
        spec=spec,
        name=name,
        short=short,
        effect=effect,
        bound=bound,
        asked=asked(spec, target, bound),
        at_default=at_default(target, bound),
        identity=identity,
        step=STEP.get(),
        covers=target.origin.covers,
        started=time.monotonic(),
    )


def fill_key(
    flow: Flow, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Fill in the idempotency key where the caller left it at its default."""
    if _KEY_PARAMETER not in flow.at_default or flow.call is None:
        return args, kwargs
    fn, all_args, all_kwargs = flatten(target.fn, args, kwargs)
    signature = target.origin.signature(fn)
    bound = signature.bind(*all_args, **all_kwargs)
    if _KEY_PARAMETER in bound.arguments and _KEY_PARAMETER not in kwargs:
        return args, kwargs
    if signature.parameters[_KEY_PARAMETER].kind is inspect.Parameter.POSITIONAL_ONLY:
        if fn is not target.fn:
            return args, kwargs
        bound.apply_defaults()
        bound.arguments[_KEY_PARAMETER] = flow.call.idempotency_key
        return bound.args, bound.kwargs
    return args, {**kwargs, _KEY_PARAMETER: flow.call.idempotency_key}


@contextlib.contextmanager
def inside(flow: Flow) -> Iterator[None]:
    """Be inside the call: what is called now is nested in it."""
    frame = FRAME.set(Frame(flow.core, flow.enclosing))
    explicit = TOOL_CALL_ID.set(None)
    response = RESPONSE.set(None)
    try:
        yield
    finally:
        # A coroutine or generator may be closed in another context.
        with contextlib.suppress(ValueError):
            FRAME.reset(frame)
            TOOL_CALL_ID.reset(explicit)
            RESPONSE.reset(response)


class StepScope:
    """A step around a block; see ``step_boundary``. Sync and async."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered: tuple[Core, StepFrame, Any] | None = None

    def __enter__(self) -> None:
        core = self._core()
        if core is not None:
            self._enter(core, drive(core, enter_step(core, self._name)))

    async def __aenter__(self) -> None:
        core = self._core()
        if core is not None:
            self._enter(core, await adrive(core, enter_step(core, self._name)))

    def _core(self) -> Core | None:
        frame = _current.find(f"step {self._name!r}")
        return None if frame is None else frame.core

    def _enter(self, core: Core, step: StepFrame) -> None:
        self._entered = (core, step, STEP.set(step))

    def _leave(self) -> tuple[Core, StepFrame] | None:
        if self._entered is None:
            return None
        core, step, token = self._entered
        self._entered = None
        with contextlib.suppress(ValueError):
            STEP.reset(token)
        return core, step

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = self._leave()
        if left is not None:
            core, step = left
            drive(core, leave_step(core, step, error, _paused(error)))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = self._leave()
        if left is not None:
            core, step = left
            await adrive(core, leave_step(core, step, error, _paused(error)))


def _paused(error: BaseException | None) -> bool:
    return error is not None and is_control_flow(error)


def step(name: str) -> StepScope:
    """Return a step around a block."""
    return StepScope(name)


def run_recorded(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run what ``Session.record`` remembers."""
    return fn(*args)
