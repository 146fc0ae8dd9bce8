"""A store over a simulated disk that knows what it promised, and what ran.

What a test asks after a power cut is asked here: `Watched.found` opens nothing and
repairs nothing, it compares what an opening found with what was appended.
"""

from __future__ import annotations

from attrs import define, field

from durable_agent import current_call
from durable_agent.jsonl import JsonlLog, JsonlStore
from durable_agent.testing import SimulatedDisk

#: A file system in memory has this directory already.
BASE = "/base"
ROOT = f"{BASE}/root"


@define
class Promises:
    """What was appended to one session, and what of it was promised."""

    appended: dict = field(factory=dict)
    #: What was appended and cut off again; an old disk block may bring it back.
    cut: dict = field(factory=dict)
    durable: int = -1
    #: It may have been deleted: then there is nothing.
    deleting: bool = False
    #: (call id, seq of its intent) of the bodies that ran at depth 0.
    bodies: list = field(factory=list)


@define
class Outside:
    """What survives every crash because it is not on this machine."""

    sessions: dict = field(factory=dict)
    effects: list = field(factory=list)
    #: Violations found where raising would be swallowed.
    wrong: list = field(factory=list)

    def of(self, session) -> Promises:
        return self.sessions.setdefault(session, Promises())

    def deleting(self, session):
        """From now on the session may be gone, but not a part of it."""
        self.of(session).deleting = True

    def body(self, label, session, *, nested=False):
        """A body begins: its intent is durable, by promise."""
        call = current_call()
        promises = self.of(session)
        seqs = [s for s, e in promises.appended.items() if e.call == call.id]
        if not seqs:
            self.wrong.append(f"{label}: no intent")
        elif not nested:
            if max(seqs) > promises.durable:
                self.wrong.append(f"{label}: its intent was not durable")
            promises.bodies.append((call.id, max(seqs)))
        self.effects.append((label, call.id, call.attempt))

    def reopened(self, session, events):
        """An opening found these events; raise if that breaks a promise."""
        promises = self.of(session)
        if promises.deleting and not events:
            promises = self.sessions[session] = Promises()
        assert [e.seq for e in events] == list(range(len(events)))
        assert len(events) > promises.durable, "a promised event is gone"
        for event in events:
            made = [promises.appended.get(event.seq)]
            if event.seq > promises.durable:
                made += promises.cut.get(event.seq, ())
            found = [d for d in made if d is not None and _facts(d) == _facts(event)]
            assert found, f"event {event.seq} is not what was appended"
            promises.appended[event.seq] = found[0]
        for call, seq in promises.bodies:
            assert seq < len(events), f"the intent of {call} is gone; its body ran"
        for seq in [s for s in promises.appended if s >= len(events)]:
            promises.cut.setdefault(seq, []).append(promises.appended.pop(seq))


def _facts(draft):
    return (draft.type, draft.call, draft.raw)


class WatchedLog(JsonlLog):
    """A log that notes what it is given, before, and what it promised, after."""

    outside: Outside
    session: str
    disk: SimulatedDisk

    def append(self, drafts):
        last = super().append(drafts)
        if self.disk.stopped:
            return last  # a finalizer of the machine that is gone; nobody is told
        promises = self.outside.of(self.session)
        promises.appended.update(enumerate(drafts, last + 1 - len(drafts)))
        return last

    def flush(self, seq):
        super().flush(seq)
        self._promised(seq)

    async def aflush(self, seq):
        await super().aflush(seq)
        self._promised(seq)

    def _promised(self, seq):
        if self.disk.stopped:
            return
        promises = self.outside.of(self.session)
        promises.durable = max(promises.durable, seq)


class WatchedStore(JsonlStore):
    """A store of small segments on a disk, watched from outside it."""

    def __init__(self, disk, outside, *, roll_bytes=2000, blob_bytes=400):
        super().__init__(ROOT, fs=disk, roll_bytes=roll_bytes, blob_bytes=blob_bytes)
        self.disk = disk
        self.outside = outside

    def open(self, session_id, *, lock_timeout=0.0):
        log = super().open(session_id, lock_timeout=lock_timeout)
        try:
            self.outside.reopened(session_id, list(log.read()))
        except BaseException:
            log.close()
            raise
        log.__class__ = WatchedLog
        log.outside, log.session, log.disk = self.outside, session_id, self.disk
        return log


def at(operation_number, error, *, names=None):
    """A plan: the n-th operation from now (of these names) raises."""
    left = [operation_number]

    def plan(operation):
        if names is not None and operation.name not in names:
            return
        left[0] -= 1
        if left[0] == 0:
            raise error

    return plan
