"""A call that the log has: hand its outcome out in turn, or settle what is in doubt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_never, cast

import orjson

from durable_agent import events as ev
from durable_agent import values
from durable_agent._arguments import arguments_of
from durable_agent._claims import answered
from durable_agent._closing import call_of
from durable_agent._current import SETTINGS
from durable_agent._ending import rendered
from durable_agent._identity import same_arguments
from durable_agent._mark import mark
from durable_agent._requests import (
    Barrier,
    Consult,
    Fetch,
    HandOut,
    Load,
    Park,
    Raise,
    Recording,
    Value,
    Wait,
)
from durable_agent._texts import not_started_text, not_storable_text, unknown_text
from durable_agent.errors import (
    DurableError,
    ResultNotStorableError,
    ToolNotStartedError,
    ToolOutcomeUnknownError,
)
from durable_agent.outcomes import Completed, NotApplied, Unknown
from durable_agent.recovery import RECOVERY_CAUSE
from durable_agent.replay import END
from durable_agent.replay import settle as decide

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from durable_agent._core import Core
    from durable_agent._flow import Flow
    from durable_agent._requests import Request
    from durable_agent.events import Event
    from durable_agent.outcomes import Call, Outcome
    from durable_agent.recovery import Recorded, Slot


def take_similar(flow: Flow) -> Generator[Request, Any, Slot | None]:
    """Take a record that differs only by a parameter that is at its new default."""
    if flow.identity.keyed or not flow.at_default:
        return None
    replay = flow.core.replay
    slots = replay.similar(flow.spec.kind, flow.name, flow.parent, flow.resp, flow.tcid)
    for slot in slots:
        recorded = yield from recorded_arguments(flow.core, slot)
        if not slot.asked and same_arguments(
            recorded, flow.identity.arguments, flow.at_default
        ):
            return replay.use(slot)
    return None


def settle(flow: Flow, slot: Slot) -> Generator[Request, Any, Value | Raise | None]:
    """Do what is to be done with a recorded call; None: make it again."""
    core, spec = flow.core, flow.spec
    if not spec.replay:
        yield from _before_live(flow, slot)
        return None
    action = decide(
        core.history,
        slot,
        effect=flow.effect,
        verify=spec.verify is not None,
        retry_failed=core.options.retry_failed,
    )
    match action:
        case "deliver":
            return (yield from _deliver(flow, slot))
        case "rerun" | "pause":
            turn = END if action == "rerun" else (slot.first, 0)
            yield from _before_live(flow, slot, turn)
            return None
        case "park":
            flow.settled = slot.delivered = True
            core.turns.moved()
            yield Park(core.options.replay_wait)
            return Raise(mark(TimeoutError(), slot))
        case "ask":
            yield from _before_live(flow, slot)
            return (yield from _ask(flow, slot))
        case "verify":
            yield from _before_live(flow, slot)
            verify = cast("Callable[[Call], Any]", spec.verify)
            return (yield from _verify_error(flow, slot, verify))
        case "unknown":
            call = yield from recorded_call(core, slot)
            yield from _own_turn(core, slot, cast("Recorded", slot.outcome))
            return unknown(flow, slot, call)
        case "lost":
            slot.delivered = True
            core.turns.moved()
            error = ResultNotStorableError(
                not_storable_text(flow.short),
                call=(yield from recorded_call(core, slot)),
                session=core.id,
            )
            return Raise(mark(error, slot))
        case _:
            assert_never(action)


def _before_live(
    flow: Flow, slot: Slot, turn: tuple[int, int] = END
) -> Generator[Request, Any, None]:
    """Wait until every recorded call had its chance: nothing runs live before.

    Of a stream without an end, those before its first chunk: later ones may have come
    of its chunks.
    """
    slot.delivered = True
    flow.core.turns.moved()
    broken = slot.outcome is None and slot.began >= 0
    turn = (slot.began, 0) if broken else turn
    yield from wait_for_turn(flow.core, slot.parent, turn)


def _own_turn(
    core: Core, slot: Slot, outcome: Recorded
) -> Generator[Request, Any, None]:
    """Wait until the slot's recorded outcome may be handed out."""
    slot.waiting = True
    yield from wait_for_turn(core, slot.parent, outcome.turn, outcome.place)
    slot.delivered = True
    core.turns.moved()


def _begin_stream(core: Core, slot: Slot) -> Generator[Request, Any, None]:
    """Wait until the recorded stream gives its first chunk; its end has its own turn.

    What its consumer did between two chunks was recorded before the end.
    """
    began = slot.intent if slot.began < 0 else slot.began
    yield from wait_for_turn(core, slot.parent, (began, 0))
    if not slot.chunks:
        # Nobody may take anything this time either, and nobody waits for that.
        slot.delivered = True
        core.turns.moved()


def end_stream(core: Core, slot: Slot) -> Generator[Request, Any, None]:
    """Wait until the end of a replayed stream may be handed out."""
    if not slot.delivered and slot.outcome is not None:
        yield from _own_turn(core, slot, slot.outcome)


def wait_for_turn(
    core: Core, parent: str | None, turn: tuple[int, int], place: int = 0
) -> Generator[Request, Any, bool]:
    """Wait for ``turn`` under ``parent``; what is missing then is written off.

    False: it could not wait, and others may still ask for what is missing.
    """
    lane = core.replay.lane(parent)
    if not lane.asks:
        return True
    in_time = yield Wait(partial(lane.ready, turn), core.options.replay_wait, place)
    if in_time is False:
        lane.write_off(turn)
        core.turns.moved()
    return in_time is not None


def _deliver(flow: Flow, slot: Slot) -> Generator[Request, Any, Value | Raise]:
    core, outcome = flow.core, cast("Recorded", slot.outcome)
    event = yield Fetch(outcome.seq)
    if "stream" in event.data:
        yield from _begin_stream(core, slot)
    else:
        yield from _own_turn(core, slot, outcome)
    flow.slot = slot
    core.stats["replayed_" + slot.kind] += 1
    if slot.kind == "llm":
        core.replay.replayed_model = True
        core.replayed.add(outcome.seq)
    answered(core, slot)
    return _from_event(flow, slot, event)


def _from_event(flow: Flow, slot: Slot, event: Event) -> Value | Raise:
    data = event.data
    returned_as, carrier = event.meta.get("as", ""), data.get("carrier")
    if "stream" in data:
        return Value(Recording(slot, event.seq, data), returned_as, carrier)
    if "error" not in data:
        value = values.decode(orjson.dumps(data.get("value")))
        return Value(value, returned_as, carrier)
    error = mark(values.decode_error(orjson.dumps(data["error"])), slot)
    if flow.core.history.ended_run(slot):
        error.add_note(
            "This is the recorded error that ended an earlier run. To try again, open "
            "the session with retry_failed=True, or resolve the call as not applied."
        )
    return Raise(error, returned_as)


def recorded_arguments(core: Core, slot: Slot) -> Generator[Request, Any, Any]:
    """Return a recorded call's arguments as JSON."""
    event = yield Fetch(slot.intent)
    if slot.kind == "llm":
        return (yield Load(partial(arguments_of, core.log, event)))
    return arguments_of(core.log, event)


def recorded_call(core: Core, slot: Slot) -> Generator[Request, Any, Call]:
    """Return the call as it was recorded, its arguments decoded."""
    if slot.kind == "llm":
        call: Call = yield Load(partial(call_of, core.log, core.id, slot))
        return call
    event = yield Fetch(slot.intent)
    return call_of(core.log, core.id, slot, event)


def _handler(flow: Flow) -> Any:
    """Return who decides about unknown outcomes: tool, session, process."""
    for setting in (
        flow.spec.on_unknown,
        flow.core.options.on_unknown,
        SETTINGS.on_unknown,
    ):
        if setting is not None:
            return setting
    return "raise"


def _ask(flow: Flow, slot: Slot) -> Generator[Request, Any, Value | Raise | None]:
    """Settle a call in doubt: verifier, then handler, else it stays unknown."""
    call = yield from recorded_call(flow.core, slot)
    handler = _handler(flow)
    for fn in (flow.spec.verify, handler if callable(handler) else None):
        if fn is None:
            continue
        said = _checked(fn, (yield Consult(fn, call)))
        if isinstance(said, NotApplied):
            return None
        if isinstance(said, Completed):
            return (yield from _completed(flow, slot, said))
    core = flow.core
    raw = orjson.dumps({"code": ev.TOOL_OUTCOME_UNKNOWN, "cause": RECOVERY_CAUSE})
    meta = {
        "status": "code",
        "code": ev.TOOL_OUTCOME_UNKNOWN,
        "cause": RECOVERY_CAUSE,
    }
    seq = core.append_outcome(slot, ev.TOOL_RESULT, raw, meta)
    yield from _hand_out(flow, slot, seq)
    core.stats["in_doubt"] += 1
    return unknown(flow, slot, call)


def _checked(fn: Any, said: Any) -> Outcome:
    """Refuse what is no answer; the call is asked about again next time.

    Who says nothing does not know.
    """
    if said is None:
        return Unknown()
    if isinstance(said, (Completed, NotApplied, Unknown)):
        return said
    who = getattr(fn, "__qualname__", repr(fn))
    msg = f"{who} must return Completed(value), NotApplied() or Unknown(), not {said!r}"
    raise TypeError(msg)


def _completed(
    flow: Flow, slot: Slot, said: Completed
) -> Generator[Request, Any, Value]:
    raw = b'{"value":' + values.encode(said.value)
    raw += rendered(flow, said.value) + b',"cause":"verified"}'
    meta = {"status": "value", "cause": "verified"}
    seq = flow.core.append_outcome(slot, ev.TOOL_RESOLVE, raw, meta)
    yield from _hand_out(flow, slot, seq)
    flow.core.stats["verified"] += 1
    answered(flow.core, slot)
    return Value(said.value)


def _hand_out(flow: Flow, slot: Slot, seq: int) -> Generator[Request, Any, None]:
    """Make a settled outcome durable, and wait for its turn as any outcome."""
    flow.settled = True
    try:
        yield Barrier(seq, finish=True)
        yield HandOut(seq)
    except (DurableError, OSError):
        raise
    except BaseException:
        flow.core.not_handed(slot, seq)
        raise


def _verify_error(
    flow: Flow, slot: Slot, verify: Callable[[Call], Any]
) -> Generator[Request, Any, Value | Raise | None]:
    """Make a call whose error ended the run again only if it was not applied."""
    call = yield from recorded_call(flow.core, slot)
    said = _checked(verify, (yield Consult(verify, call)))
    if isinstance(said, NotApplied):
        return None
    if isinstance(said, Completed):
        return (yield from _completed(flow, slot, said))
    return (yield from _deliver(flow, slot))


def unknown(flow: Flow, slot: Slot, call: Call) -> Value | Raise:
    """Tell the caller that nobody knows: raise, or return the model-visible text."""
    answered(flow.core, slot)
    text = unknown_text(flow.short, flow.effect)
    if _handler(flow) == "return":
        return _told(flow, text)
    flow.core.told_unknown.add((slot.call, slot.attempt))
    error = ToolOutcomeUnknownError(text, call=call, session=flow.core.id)
    error.advise(
        f"Call {slot.call} of session {flow.core.id!r} has no outcome. Find out what "
        "happened, then session.resolve(call, ...); or give the tool verify=."
    )
    return Raise(mark(error, slot))


def _told(flow: Flow, text: str) -> Value:
    return Value((flow.spec.told or str)(text))


def closed(flow: Flow) -> Value | Raise:
    """Answer a call that the model was told was never started: it stays so."""
    text = not_started_text(flow.short)
    if _handler(flow) == "return":
        return _told(flow, text)
    return Raise(ToolNotStartedError(text, session=flow.core.id))
