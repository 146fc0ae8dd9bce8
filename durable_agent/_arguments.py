"""The arguments of recorded calls, whole; ``_edits`` says how requests are stored."""

from __future__ import annotations

from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, evolve, field

from durable_agent import _edits_apply
from durable_agent._conversations import newest
from durable_agent._edits import EVENT_BYTES, Made
from durable_agent._edits_apply import EditError, is_edited
from durable_agent._edits_compare import replaces
from durable_agent._edits_index import REQUESTS, Recalled, is_request
from durable_agent._edits_parts import survey
from durable_agent._edits_sources import EVENTS, OUTCOMES
from durable_agent._requests import Load
from durable_agent.errors import LogCorruptError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from durable_agent._core import Core
    from durable_agent._edits_parts import Snapshot
    from durable_agent._requests import Request
    from durable_agent.events import Event
    from durable_agent.store import LogReader

#: Requests inside other calls that are read when a session goes on.
_INSIDE: Final = 8
#: Requests kept whole while a log is read from one end to the other.
_KEPT: Final = 8
#: Outcomes read again when a session goes on: events looked at, bytes.
_RECALL_EVENTS: Final = 4 * EVENTS
_RECALL_BYTES: Final = 8 << 20


def arguments_of(log: LogReader, event: Event | int) -> dict[str, Any]:
    """Return the arguments of a recorded call as JSON, values still type-tagged.

    ``event`` is the intent or its seq. They may share parts: not to be changed.

    Raises:
        LogCorruptError: it is stored as a difference to what is not in the log.
    """
    return Arguments(log).of(log.get(event) if isinstance(event, int) else event)


def whole_events(log: LogReader, from_seq: int = 0) -> Iterator[Event]:
    """Yield the events from ``from_seq`` on, requests with their arguments whole."""
    arguments = Arguments(log, _KEPT)
    for event in log.read(from_seq):
        yield arguments.whole(event)


@define(eq=False)
class Arguments:
    """Reads the arguments of one log's calls; the last few are kept for the next."""

    _log: LogReader
    _keep: int = 0
    _kept: dict[int, Any] = field(factory=dict)
    #: Bytes to be read to have a request whole, events counted in; of those kept.
    costs: dict[int, int] = field(factory=dict)
    _spent: int = 0

    def of(self, event: Event) -> dict[str, Any]:
        """Return the whole arguments of an intent."""
        return self._read(event.data, event)[0]

    def whole(self, event: Event) -> Event:
        """Return the event as if its arguments had been stored whole."""
        if not is_request(event):
            return event
        data = event.data
        if type(data) is not dict or "args" not in data:
            return event
        edited = is_edited(data)
        args, raw = self._read(data, event)
        if not edited:
            return event
        whole = {name: value for name, value in data.items() if name != "edit"}
        whole["args"] = args if raw is None else orjson.Fragment(raw)
        return evolve(event, raw=orjson.dumps(whole))

    def _read(self, data: Any, event: Event) -> tuple[dict[str, Any], bytes | None]:
        try:
            return self._put_together(data, event)
        except EditError as error:
            raise LogCorruptError(
                f"the arguments of this request cannot be read: {error}.",
                session=self._log.report.session,
                seq=event.seq,
            ) from error

    def _put_together(
        self, data: Any, event: Event
    ) -> tuple[dict[str, Any], bytes | None]:
        self._spent = len(event.raw) + EVENT_BYTES
        chain: list[tuple[int, Any, int]] = []
        seq: int | None = event.seq
        args: Any = None
        at = data
        cost = 0
        while seq is not None:
            if seq in self._kept:
                args, cost = self._kept[seq], self.costs[seq]
                break
            if seq != event.seq:
                self._spent = 0
                at = self._payload(seq)
            if not is_edited(at):
                if type(at) is not dict or type(at.get("args")) is not dict:
                    raise EditError(f"event {seq} has no arguments")
                args = at["args"]
                cost = self._spent
                self._remember(seq, args, cost)
                break
            chain.append((seq, at, self._spent))
            seq = _edits_apply.base_of(at, seq)
        for step, edit, own in reversed(chain):
            self._spent = own
            args = _edits_apply.apply(edit, step, args, self._payload)
            cost += self._spent
            self._remember(step, args, cost)
        raw = _edits_apply.check(data, args) if is_edited(data) else None
        return args, raw

    def _payload(self, seq: int) -> Any:
        try:
            event = self._log.get(seq)
        except LookupError as error:
            raise EditError(f"it names event {seq}, which is not there") from error
        self._spent += len(event.raw) + EVENT_BYTES
        return event.data

    def _remember(self, seq: int, args: Any, cost: int) -> None:
        if not self._keep:
            return
        self._kept.pop(seq, None)
        self._kept[seq], self.costs[seq] = args, cost
        while len(self._kept) > self._keep:
            oldest = next(iter(self._kept))
            del self._kept[oldest], self.costs[oldest]


def make(core: Core, kind: str, name: str, raw: bytes) -> Made:
    """Write the arguments of a call: of a model request, what is new in them."""
    return core.edits.make(name, raw) if kind == "llm" else Made(raw)


def show_whole(core: Core, made: Made) -> None:
    """Let observers see the request that was just appended as it was made."""
    if core.unseen and made.edit:
        event = core.unseen[-1]
        head = event.raw[: -len(made.raw)]
        whole = head + Made(made.whole).raw
        core.unseen[-1] = evolve(event, raw=whole)


def remember(core: Core, kind: str, name: str) -> Generator[Request, Any, None]:
    """Have read what a model request is compared with: once for a function and run."""
    if kind != "llm" or core.edits.knows(name):
        return
    ends = [s.intent for s in newest(core.history, branches=True) if s.name == name]
    inside = (
        slot.intent
        for slot in core.history.slots
        if slot.kind == "llm" and slot.name == name and (slot.parent or slot.side)
    )
    wanted = {*ends, *nlargest(_INSIDE, inside)}
    found = Recalled((), ())
    if wanted:
        found = yield Load(partial(recall, core.log, wanted))
    core.edits.recall(name, found)


def recall(log: LogReader, requests: Iterable[int]) -> Recalled:
    """Read what the next request of a function is compared with.

    ``requests`` are the newest ones recorded. It may do I/O; what cannot be read is
    left out: then the next request is stored whole.
    """
    found: dict[int, Snapshot] = {}
    arguments = Arguments(log, _KEPT)
    for seq in sorted(requests)[-REQUESTS:]:
        try:
            event = log.get(seq)
            args = arguments.of(event)
        except (OSError, LookupError):
            continue
        known = {
            item.digest: item
            for each in found.values()
            for items in each.lists.values()
            for item in items
        }
        snapshot = survey(args, len(orjson.dumps(args)), known).snapshot
        snapshot.seq, snapshot.cost = seq, arguments.costs[seq]
        data = event.data
        base = found.get(data["edit"]["base"]) if is_edited(data) else None
        if base is not None and replaces(snapshot, base):
            del found[base.seq]
        found[seq] = snapshot
    return Recalled([*found.values()], _outcomes(log, sorted(found)))


def _outcomes(log: LogReader, requests: list[int]) -> list[Event]:
    """Return the outcomes after the oldest of these requests, the last of them."""
    if not requests:
        return []
    found: list[Event] = []
    newest = requests[-1]
    size = 0
    try:
        for event in log.read(max(requests[0], newest - _RECALL_EVENTS)):
            if event.type in OUTCOMES:
                found.append(event)
                size += len(event.raw)
                while size > _RECALL_BYTES or len(found) > EVENTS:
                    size -= len(found.pop(0).raw)
    except OSError:
        return []
    return found
