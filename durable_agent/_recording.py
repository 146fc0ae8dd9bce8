"""``Session.record`` and ``Session.resolve``: values, and what a person found out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import orjson
from attrs import define

from durable_agent import _current, values
from durable_agent import events as ev
from durable_agent._identity import call_id, encode_arguments, identify
from durable_agent._requests import Eager, Fetch
from durable_agent.errors import OutcomeExistsError
from durable_agent.events import Draft
from durable_agent.outcomes import Completed, NotApplied, Unknown
from durable_agent.recovery import is_open, may_settle

if TYPE_CHECKING:
    from collections.abc import Generator

    from durable_agent._core import Core
    from durable_agent._requests import Request
    from durable_agent.outcomes import Call, Outcome


@define(eq=False)
class Recorder:
    """One value that the log should remember."""

    core: Core
    name: str
    key: str
    parent: str | None
    #: A plain function handed back an awaitable.
    awaitable: bool = False

    def look(self) -> Generator[Request, Any, tuple[bool, Any]]:
        """Return whether it is recorded, and the value."""
        core = self.core
        core.check()
        slot = core.replay.take(self.parent, self.key, None, None)
        if slot is None or slot.outcome is None:
            return False, None
        slot.delivered = True
        event = yield Fetch(slot.outcome.seq)
        self.awaitable = event.meta.get("as") == "awaitable"
        return True, values.decode(orjson.dumps(event.data["value"]))

    def keep(self, value: Any) -> Generator[Request, Any, None]:
        """Append it; return when it survives a killed process."""
        core = self.core
        raw = b'{"value":' + values.encode(value) + b"}"
        core.check()
        n = core.replay.occurrence(self.parent, self.key)
        call = call_id(self.parent, self.key, None, None, n)
        meta = {"name": self.name}
        if self.parent is not None:
            meta["parent"] = self.parent
        if self.awaitable:
            meta["as"] = "awaitable"
        seq = core.append(Draft(ev.VALUE, raw, call, self.key, meta))
        yield Eager(seq, finish=True)


def record_value(core: Core, name: str, args: tuple[Any, ...]) -> Recorder:
    """Return the recorder of one value, identified by name and arguments."""
    encoded = encode_arguments({"args": args}, ignore=())
    identity = identify("value", name, encoded, scope=_current.SCOPE.get())
    frame = _current.FRAME.get()
    parent = None
    if frame is not None and frame.core is core and frame.enclosing is not None:
        parent = frame.enclosing.call.id
    return Recorder(core, name, identity.key, parent)


def resolution(core: Core, call: Call | str, outcome: Outcome) -> int:
    """Append a person's outcome of a call in doubt; return its seq."""
    wanted = call if isinstance(call, str) else call.id
    slots = [s for s in core.history.slots if s.call == wanted and s.kind == "tool"]
    if not slots:
        msg = f"session {core.id!r} has no tool call {wanted!r}"
        raise LookupError(msg)
    slot = slots[-1]
    settles = may_settle(core.history, slot, resolving=True)
    if not settles and not is_open(slot):
        raise OutcomeExistsError(
            f"call {slot.call} of {slot.name} has an outcome that stands",
            session=core.id,
            advice="To go another way, fork the session before it.",
        )
    meta: dict[str, Any] = {"cause": "resolved"}
    raw = b"{}"
    match outcome:
        case Completed(value):
            raw = b'{"value":' + values.encode(value) + b',"cause":"resolved"}'
            meta["status"] = "value"
        case NotApplied():
            meta["status"] = "not_applied"
        case Unknown():
            raw = orjson.dumps({"code": ev.TOOL_OUTCOME_UNKNOWN})
            meta |= {"status": "code", "code": ev.TOOL_OUTCOME_UNKNOWN}
        case _:
            assert_never(outcome)
    if settles:
        return core.append_outcome(slot, ev.TOOL_RESOLVE, raw, meta)
    # A run went on past "unknown", so replay keeps it: this is a note for people.
    note = {"attempt": slot.attempt, **meta}
    return core.append(Draft(ev.TOOL_RESOLVE, raw, slot.call, slot.key, note))
