"""What an open session holds, shared by the flow of calls and by `Session`.

Every method is called under ``Core.lock`` unless it says otherwise; none blocks or does
I/O except through the log's own rules. Decisions are in ``replay.py``.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import orjson
from attrs import define, evolve, field

from durable_agent import events as ev
from durable_agent._chains import Chains
from durable_agent._current import PROCESS
from durable_agent._edits_index import Index
from durable_agent._identity import idempotency_key, new_uid
from durable_agent._redaction import Redaction
from durable_agent._turns import Turns
from durable_agent._version import __version__
from durable_agent.errors import (
    DurableError,
    DurableWarning,
    OutcomeExistsError,
    SessionClosedError,
)
from durable_agent.events import Draft, Event, Head
from durable_agent.recovery import may_settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from durable_agent.policy import CheckpointPolicy
    from durable_agent.recovery import History, Slot
    from durable_agent.replay import Replay
    from durable_agent.store import SessionLog, Store


@define(kw_only=True)
class Options:
    """The options of one opening; see `durable_agent.session`."""

    policy: CheckpointPolicy
    on_unknown: Any = None
    on_divergence: Literal["raise", "warn", "ignore"] = "raise"
    retry_failed: bool = False
    replay_wait: float = 10.0
    metadata: Mapping[str, Any] = field(factory=dict)
    parent: Mapping[str, Any] | None = None


@define(eq=False)
class Core:
    """One open session: its log, what is recorded, how far replay is, who waits."""

    id: str
    store: Store
    log: SessionLog
    history: History
    replay: Replay
    options: Options
    #: The payload and meta of ``session/start``; read when the log had one.
    uid: str = ""
    lock: threading.RLock = field(factory=threading.RLock)
    generation: int = field(init=False)
    open: bool = True
    #: New calls are refused; those in flight may still record their outcomes.
    closing: bool = False
    #: Code asked for something in this run: it is the program, not a visit.
    used: bool = False
    #: This run has appended something.
    live: bool = False
    #: What `Session.recovery` shows.
    recovery: Any = None
    latch: BaseException | None = None
    cancelled: str | None = None
    successor: Core | None = None
    #: Drafts that go before the first live event of this run: closers, step ends.
    before_live: list[Draft] = field(factory=list)
    #: Outcomes handed out since the last event, in the groups they went out in.
    waves: list[list[int]] = field(factory=list)
    observers: list[Callable[[Event], object]] = field(factory=list)
    unseen: list[Event] = field(factory=list)
    #: Application events: asked for in this run; in the log when it was opened.
    appended: int = 0
    recorded_appends: int = 0
    in_flight: int = 0
    #: How the run ended, and the attempts that its exception came from.
    ended_by: BaseException | None = None
    fatal: list[tuple[str, int]] = field(factory=list)
    sealed: bool = False
    #: The recorded calls that this run left out, for people.
    unused: str = ""
    #: An outcome above this seq, handed out alone and next, needs no telling.
    handed: int = -1
    #: Outcomes recorded since the last event that never reached their caller.
    unhanded: list[int] = field(factory=list)
    #: (parent, name) -> how often a step was entered on the session's path.
    steps_entered: dict[tuple[str | None, str], int] = field(factory=dict)
    stats: Counter[str] = field(factory=Counter)
    #: Outcomes of model requests that this run got from the log, by seq.
    replayed: set[int] = field(factory=set)
    #: Which request goes on with which.
    chains: Chains = field(factory=Chains)
    redaction: Redaction = field(factory=Redaction)
    #: response -> its tool calls not yet answered in this run; see ``_claims``.
    claims: dict[str, list[Any]] = field(factory=dict)
    #: Responses of former runs among them that this run did not ask for, with the seq
    #: of each; None: not looked for.
    former: dict[str, int] | None = None
    #: Attempts whose unknown outcome was raised in this run.
    told_unknown: set[tuple[str, int]] = field(factory=set)
    warned: set[str] = field(factory=set)
    #: What model requests are stored as differences to.
    edits: Index = field(factory=Index)
    turns: Turns = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.generation = PROCESS.generation
        self.turns = Turns(self._released)

    # state -------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a new call on a session that is closing or has failed."""
        self.used = True
        self.refuse_closed()

    def refuse_closed(self) -> None:
        """Refuse what would be appended to a session that is closing or has failed."""
        if self.latch is not None:
            raise self.again() from self.latch
        if self.closing or not self.open:
            raise SessionClosedError(
                "the session is closing and takes no new calls", session=self.id
            )

    def fail(self, error: BaseException) -> None:
        """Latch: every later recorded call and closing raise this again."""
        if self.latch is None:
            self.latch = error
        self.turns.moved()

    def again(self) -> BaseException:
        """Return the latched error as a fresh object that points at the first one."""
        latch = self.latch
        if not isinstance(latch, DurableError):
            return latch or AssertionError("nothing is latched")
        function, arguments, *_ = latch.__reduce__()
        fresh: BaseException = function(*arguments)
        fresh.__cause__ = latch
        return fresh

    @property
    def poisoned(self) -> bool:
        """Whether the log handle failed and takes nothing more."""
        return isinstance(self.latch, OSError)

    def warn(
        self, category: type[DurableWarning], text: str, *, once: str = ""
    ) -> None:
        """Warn about this session; with ``once``, one time for that word."""
        if once:
            if once in self.warned:
                return
            self.warned.add(once)
        warnings.warn(f"session {self.id!r}: {text}", category, stacklevel=6)

    def key_of(self, call: str, first: int) -> str:
        """Return the idempotency key of a call first recorded at seq ``first``."""
        uid = self.history.uid_at(first) if self.history.uids else self._own_uid()
        return idempotency_key(uid, call)

    def _own_uid(self) -> str:
        if not self.uid:
            self.uid = new_uid()
        return self.uid

    def _released(self, seqs: list[int]) -> None:
        with self.lock:
            self.waves.append(seqs)

    # appending ---------------------------------------------------------------

    def append(self, *drafts: Draft) -> int:
        """Append events in order; return the last seq. Nothing is on disk yet.

        The first events of a run are preceded by ``session/start`` (of a new log),
        ``run/start`` and whatever opening left to be closed.
        """
        first = not self.live
        batch = [*self._preamble(), *drafts] if first else list(drafts)
        if self.waves or self.unhanded:
            batch[0] = self._with_hand_outs(batch[0])
        last = self.log.append(batch)
        self.live = True
        self.before_live = []
        now = time.time_ns()
        seq = last - len(batch)
        self.edits.seen(seq + 1, batch)
        for draft in batch:
            seq += 1
            self.history.apply(
                Head(seq, now, draft.type, draft.call, draft.key, draft.meta)
            )
            if self.observers:
                self.unseen.append(
                    Event(
                        seq,
                        now,
                        draft.type,
                        draft.raw,
                        draft.call,
                        draft.key,
                        draft.meta,
                    )
                )
        return last

    def _preamble(self) -> Iterator[Draft]:
        if not self.history.uids:
            data = {
                "format": ev.FORMAT,
                "id": self.id,
                "created": time.time_ns(),
                "metadata": dict(self.options.metadata),
                "parent": self.options.parent,
            }
            uids = [[0, self._own_uid()]]
            yield Draft(ev.SESSION_START, orjson.dumps(data), meta={"uids": uids})
        data = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "versions": {
                "durable_agent": __version__,
                "python": platform.python_version(),
                "platform": sys.platform,
            },
        }
        resume = "continue" if self.replay.continued else "replay"
        meta = {
            "epoch": self.history.epoch + 1,
            "resume": resume,
            "intents": self.options.policy.intents_durable,
        }
        yield Draft(ev.RUN_START, orjson.dumps(data), meta=meta)
        yield from self.before_live

    def _with_hand_outs(self, draft: Draft) -> Draft:
        waves, self.waves = self.waves, []
        unhanded, self.unhanded = self.unhanded, []
        flat = [seq for wave in waves for seq in wave]
        meta = dict(draft.meta)
        one_by_one = len(waves) == len(flat)
        if not one_by_one or [self.handed, *flat] != sorted([self.handed, *flat]):
            meta["waves"] = waves
            self.handed = self.log.next_seq
        else:
            self.handed = max(self.handed, *flat, -1)
        if unhanded:
            meta["unhanded"] = unhanded
        return draft._replace(meta=meta)

    def append_outcome(
        self,
        slot: Slot,
        type_: str,
        raw: bytes,
        meta: Mapping[str, Any],
    ) -> int:
        """Append the outcome of the slot's latest attempt.

        Raises:
            OutcomeExistsError: the attempt has one that stands; nothing is appended.
        """
        if not may_settle(self.history, slot, resolving=type_ == ev.TOOL_RESOLVE):
            raise OutcomeExistsError(
                f"attempt {slot.attempt} of {slot.name} (call {slot.call}) already has "
                "an outcome",
                session=self.id,
                advice="The first one stands; nothing was recorded.",
            )
        meta = {"attempt": slot.attempt, **meta}
        seq = self.append(Draft(type_, raw, slot.call, slot.key, meta))
        self.turns.moved()
        return seq

    def not_handed(self, slot: Slot, seq: int) -> None:
        """Note that an outcome never reached its caller, who was cancelled."""
        self.unhanded.append(seq)
        if slot.outcome is not None and slot.outcome.seq == seq:
            slot.outcome = evolve(slot.outcome, handed=False)

    def take_unseen(self) -> Sequence[Event]:
        """Return the events that observers have not been shown, once."""
        unseen, self.unseen = self.unseen, []
        return unseen
