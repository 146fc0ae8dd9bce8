"""One call, from being asked for to its body: the decision both drivers share.

`Flow.before` is DESIGN's sequence: find the record, settle it, or judge that there is
none, and else make the intent durable. It ends with `Run`, `Value` or `Raise`.
``_ending.py`` records what came of the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from durable_agent import _recorded, _unrecorded
from durable_agent import events as ev
from durable_agent._arguments import make, remember, show_whole
from durable_agent._chains import link_of
from durable_agent._claims import Place, link
from durable_agent._current import Enclosing, StepFrame
from durable_agent._identity import call_id, short_id
from durable_agent._redaction import MARK
from durable_agent._requests import Barrier, Eager, Raise, Run, Value, Verdict
from durable_agent._texts import aborted_text
from durable_agent.errors import (
    CheckpointError,
    DurableError,
    EqualCallsWarning,
    StoreError,
    ToolAbortedError,
)
from durable_agent.events import Draft
from durable_agent.outcomes import Call
from durable_agent.recovery import RERUN, RETRY
from durable_agent.replay import END

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from durable_agent._chains import Link
    from durable_agent._core import Core
    from durable_agent._current import Frame
    from durable_agent._edits import Made
    from durable_agent._identity import Identity
    from durable_agent._requests import Recording, Request
    from durable_agent._spec import Spec
    from durable_agent.recovery import Slot


@define(eq=False, kw_only=True)
class Flow:
    """One call of a decorated function within a session."""

    core: Core
    frame: Frame
    spec: Spec
    name: str
    #: What a model calls the function.
    short: str
    effect: str
    bound: Mapping[str, Any]
    #: The arguments that a model gave, for matching its tool calls.
    asked: Mapping[str, Any]
    at_default: frozenset[str]
    identity: Identity
    #: The innermost step around the call.
    step: StepFrame | None = None
    #: Functions whose calls directly inside are this very call.
    covers: tuple[Any, ...] = ()
    #: Set on the way.
    parent: str | None = None
    nested: bool = False
    detached: bool = False
    resp: str | None = None
    tcid: str | None = None
    #: The provider's id of the tool call as it was given.
    provider_id: str | None = None
    slot: Slot | None = None
    started: float = 0.0
    call: Call | None = None
    #: What the log has of it is said: cancelled now, it is not asked for again.
    settled: bool = False
    #: Of a model request: the conversation that it belongs to.
    link: Link | None = None
    #: What is around the body; set by the checkpoint, before which nothing runs.
    enclosing: Enclosing = field(init=False)

    def before(self) -> Generator[Request, Any, Verdict]:
        """Decide what the caller gets; `Run` only after the checkpoint."""
        core = self.core
        core.check()
        if core.cancelled is not None:
            return Raise(self.aborted())
        yield from self._place()
        slot = core.replay.take(self.parent, self.identity.key, self.resp, self.tcid)
        if slot is None:
            slot = yield from _recorded.take_similar(self)
        if slot is not None:
            self._note(slot)
            core.turns.moved()
            try:
                verdict = yield from _recorded.settle(self, slot)
                if verdict is None:
                    yield from self._prepare()
            except BaseException as error:
                # A verifier or the disk failed, or the caller gave up waiting: asked
                # again, it is the same call.
                if isinstance(error, Exception):
                    core.replay.put_back(slot)
                elif not self.settled:
                    core.replay.give_up(slot)
                    core.turns.moved()
                if isinstance(error, StoreError):
                    core.fail(error)
                raise
        else:
            core.turns.moved()
            verdict = yield from _unrecorded.judge(self)
            if verdict is None:
                yield from self._prepare()
        if verdict is not None:
            return verdict
        return (yield from self._checkpoint(slot))

    def ask_for_more(self, stream: Recording) -> Generator[Request, Any, Verdict]:
        """Make a partly recorded stream's request again, if nothing came after it."""
        core, slot = self.core, stream.slot
        core.check()
        if any(s.recorded and s.first > stream.seq for s in core.history.slots):
            return Value(None)
        yield from _recorded.wait_for_turn(core, slot.parent, END)
        yield from self._prepare()
        return (yield from self._checkpoint(slot))

    def _place(self) -> Generator[Request, Any, None]:
        """Find the call's place: parent, and the tool call that it answers."""
        outer = self.frame.enclosing
        self.detached = self.frame.detached
        if outer is not None and outer.done:
            self.detached = True
        elif outer is not None:
            self.parent = outer.call.id
            self.nested = not outer.opens
        if self.spec.kind == "tool" and not self.nested and not self.detached:
            place = Place(self.parent, self.identity.key)
            found = yield from link(self.core, self.short, self.asked, place)
            self.resp, self.tcid, self.provider_id = found
            self.tcid = short_id(self.tcid)

    @property
    def barrier(self) -> bool:
        """Whether the body waits for its intent to be durable."""
        outer = self.frame.enclosing
        if self.spec.kind == "llm":
            if outer is not None and not self.detached and outer.in_model:
                return False
        elif self.nested:
            return False
        return self.core.options.policy.is_barrier(self.spec.kind, self.effect)

    def _note(self, slot: Slot) -> None:
        """Let the enclosing call and steps know what ran inside them."""
        outer = self.frame.enclosing
        if outer is not None and not self.detached:
            outer.children.append(slot)
        step = self.step
        while step is not None:
            step.slots.append(slot)
            step = step.outer

    def _checkpoint(
        self, again: Slot | None
    ) -> Generator[Request, Any, Run | Value | Raise]:
        """Append the intent and make it durable; the body runs next."""
        core = self.core
        core.check()
        made = make(core, self.spec.kind, self.name, self.identity.raw)
        draft = self._intent(again, made)
        try:
            seq = core.append(draft)
        except (StoreError, OSError) as error:
            raise self._failed_checkpoint(error) from error
        if self.spec.kind == "llm":
            core.edits.note(self.name, seq, made)
            show_whole(core, made)
        slot = core.history.attempts[draft.call or "", draft.meta["attempt"]]
        self.slot = slot
        if self.link is not None:
            core.chains.asked(slot, self.link)
        if again is None:
            self._note(slot)
        self.call = self._call(slot, seq)
        self.enclosing = self._enclose(self.call, slot)
        core.in_flight += 1
        core.turns.moved()
        try:
            yield Barrier(seq) if self.barrier else Eager(seq)
        except (StoreError, OSError) as error:
            core.in_flight -= 1
            raise self._failed_checkpoint(error) from error
        except BaseException:
            core.in_flight -= 1
            yield from self._abort(slot)
            raise
        if core.cancelled is None and core.latch is None:
            return Run()
        core.in_flight -= 1
        yield from self._abort(slot)
        core.check()
        return Raise(self.aborted())

    def _prepare(self) -> Generator[Request, Any, None]:
        """Have read what a model request is compared with, and find what it extends."""
        if self.spec.kind != "llm":
            return
        yield from remember(self.core, self.spec.kind, self.name)
        if self.parent is None and self.spec.transcript:
            try:
                self.link = yield from link_of(self.core, self.name, self.bound)
            except OSError as error:  # unlinked, it would be one of its own
                raise self._failed_checkpoint(error) from error

    def _abort(self, slot: Slot) -> Generator[Request, Any, None]:
        """Record that the body did not run, if the log still takes it."""
        core = self.core
        try:
            seq = core.append_outcome(
                slot,
                ev.LLM_RESPONSE if self.spec.kind == "llm" else ev.TOOL_RESULT,
                orjson.dumps({"code": ev.ABORTED_BEFORE_DISPATCH}),
                {"status": "code", "code": ev.ABORTED_BEFORE_DISPATCH},
            )
            yield Eager(seq, finish=True)
        except (DurableError, OSError) as error:
            core.fail(error)

    def _intent(self, again: Slot | None, made: Made) -> Draft:
        core, identity = self.core, self.identity
        replay = core.replay
        meta: dict[str, Any] = {"name": self.name}
        key = identity.key
        if again is not None:
            call, key, attempt = again.call, again.key, again.attempt + 1
            meta["again"] = RERUN
        else:
            before = replay.retry_of(self.parent, key, self.resp, self.tcid)
            if before is not None:
                call, attempt = before.call, before.attempt + 1
                meta["again"] = RETRY
            else:
                n = replay.occurrence(self.parent, key)
                call = call_id(self.parent, key, self.resp, self.tcid, n)
                attempt = 1
                self._warn_of_equals(key)
        meta["attempt"] = attempt
        facts = {
            "parent": self.parent,
            "resp": self.resp,
            "tcid": self.tcid,
            "effect": self.effect if self.spec.kind == "tool" else None,
            "keyed": identity.keyed or None,
            "detached": self.detached or None,
            "nested": self.nested or None,
            "extends": None if self.link is None else self.link.extends,
            "side": (self.spec.kind == "llm" and not self.spec.transcript) or None,
        }
        meta |= {name: fact for name, fact in facts.items() if fact is not None}
        raw = (
            b'{"function":'
            + orjson.dumps(self.short)
            + b',"idempotency_key":"'
            + self._key(call, again).encode()
            + b'","tool_call_id":'
            + orjson.dumps(_utf8(self.provider_id))
            + b","
            + made.raw
        )
        type_ = ev.LLM_REQUEST if self.spec.kind == "llm" else ev.TOOL_CALL
        return Draft(type_, raw, call, key, meta)

    def _key(self, call: str, again: Slot | None) -> str:
        core = self.core
        slot = core.history.attempts.get((call, 1)) if again is None else again
        first = core.log.next_seq if slot is None else slot.first
        return core.key_of(call, first)

    def _call(self, slot: Slot, seq: int) -> Call:
        return Call(
            id=slot.call,
            name=self.name,
            kind=self.spec.kind,
            session=self.core.id,
            attempt=slot.attempt,
            idempotency_key=self._key(slot.call, slot),
            tool_call_id=self.provider_id,
            parent=self.parent,
            effect=self.effect,
            seq=seq,
            arguments={
                name: value
                for name, value in self.bound.items()
                if self.identity.arguments.get(name, MARK) != MARK
            },
        )

    def _enclose(self, call: Call, slot: Slot) -> Enclosing:
        outer = self.frame.enclosing
        model = self.spec.kind == "llm"
        return Enclosing(
            call=call,
            slot=slot,
            opens=self.effect == "composite" or model,
            in_model=model or (outer is not None and outer.in_model),
            covers=self.covers,
        )

    def _warn_of_equals(self, key: str) -> None:
        if self.tcid is None and self.core.replay.equal_in_flight(self.parent, key):
            self.core.warn(
                EqualCallsWarning,
                f"equal calls of {self.name} are in flight at once; on a replay they "
                "may get each other's outcomes. Keep them apart with scope(...) or "
                "key=.",
                once="equal",
            )

    def aborted(self) -> ToolAbortedError:
        """Return the error of a call that the session cancelled before its body."""
        error = ToolAbortedError(
            aborted_text(self.short), call=self.call, session=self.core.id
        )
        return error.advise(f"session.cancel: {self.core.cancelled}")

    def _failed_checkpoint(self, error: BaseException) -> CheckpointError:
        """Latch the session, and return what it says from now on."""
        failed = CheckpointError(
            f"{self.name} did not run: its intent could not be made durable: {error}",
            session=self.core.id,
            advice="Mend the cause and open the session again.",
            file=getattr(error, "file", None),
            offset=getattr(error, "offset", None),
            seq=getattr(error, "seq", None),
        )
        self.core.fail(failed)
        return failed


def _utf8(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()
