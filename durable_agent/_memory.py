"""A store in memory: the protocol without a disk. Nothing survives the process."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Literal

from durable_agent import _segment
from durable_agent._ids import encode_id
from durable_agent.errors import (
    LogUnsupportedError,
    SessionBusyError,
    SessionClosedError,
    SessionForkedError,
    SessionNotFoundError,
)
from durable_agent.events import SESSION_START, is_known
from durable_agent.store import OpenReport, SessionInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from durable_agent.events import Draft, Event, Head


class MemoryStore:
    """Sessions in this process. Events are encoded and decoded as on a disk."""

    eager: Literal["process", "none"] = "none"
    durability: Literal["power", "server", "none"] = "none"
    fencing: Literal["atomic", "advisory"] = "advisory"

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._logs: dict[str, list[bytes]] = {}
        self._owners: set[str] = set()

    def open(self, session_id: str, *, lock_timeout: float = 0.0) -> MemoryLog:
        """Own a session of this store. Raises `SessionBusyError` at once.

        It is open in this very process, so waiting ``lock_timeout`` could only help if
        another thread closed it; a caller waiting for itself would wait in vain.
        """
        del lock_timeout
        encode_id(session_id)
        with self._guard:
            if session_id in self._owners:
                raise SessionBusyError(
                    "It is open in this process already.",
                    session=session_id,
                    pid=os.getpid(),
                )
            lines = self._logs.get(session_id, [])
            for line in lines:
                head = _segment.head_of(line)
                if not is_known(head.type) and head.meta.get("ignorable") is not True:
                    raise LogUnsupportedError(
                        f"This version does not know events of type {head.type!r}.",
                        session=session_id,
                        seq=head.seq,
                    )
            self._owners.add(session_id)
        return MemoryLog(self, session_id, lines)

    def inspect(self, session_id: str) -> MemoryReader:
        """Read what is there now, beside an owner or not."""
        encode_id(session_id)
        with self._guard:
            lines = list(self._logs.get(session_id, ()))
        if not lines:
            raise SessionNotFoundError("There is no such session.", session=session_id)
        return MemoryReader(session_id, lines)

    def list(self) -> Iterator[SessionInfo]:
        """Yield what is there, by id."""
        with self._guard:
            found = [
                SessionInfo(
                    session_id,
                    "memory",
                    session_id in self._owners,
                    _segment.head_of(lines[0]).time,
                    sum(map(len, lines)),
                )
                for session_id, lines in sorted(self._logs.items())
            ]
        yield from found

    def delete(self, session_id: str) -> None:
        """Forget a session that nobody has open."""
        encode_id(session_id)
        with self._guard:
            if session_id in self._owners:
                raise SessionBusyError(
                    "It is open in this process.", session=session_id, pid=os.getpid()
                )
            if self._logs.pop(session_id, None) is None:
                raise SessionNotFoundError(
                    "There is no such session.", session=session_id
                )

    def _publish(self, session_id: str, lines: Sequence[bytes]) -> None:
        with self._guard:
            self._logs.setdefault(session_id, []).extend(lines)

    def _give_up(self, session_id: str) -> None:
        with self._guard:
            self._owners.discard(session_id)


class MemoryReader:
    """Reads a copy of the log made when it was opened."""

    def __init__(self, session_id: str, lines: Sequence[bytes]) -> None:
        self._lines = [*lines]
        self._found = len(lines)
        self.report = OpenReport(
            session_id, "memory", existed=self._found > 0, events=self._found
        )

    def heads(self) -> Iterator[Head]:
        """Yield the heads of the events found at opening, in order."""
        return map(_segment.head_of, self._lines[: self._found])

    def read(self, from_seq: int = 0) -> Iterator[Event]:
        """Yield the events from ``from_seq`` on, in order."""
        for line in self._lines[max(from_seq, 0) :]:
            yield _segment.event_of(_segment.head_of(line), line, None)

    def get(self, seq: int) -> Event:
        """Return one event. Raises `LookupError` if there is none."""
        if not 0 <= seq < len(self._lines):
            raise LookupError(f"there is no event {seq}")
        line = self._lines[seq]
        return _segment.event_of(_segment.head_of(line), line, None)

    def close(self) -> None:
        """Nothing is held, so nothing happens."""


class MemoryLog(MemoryReader):
    """The owner's handle. Others see what was written or flushed."""

    def __init__(
        self, store: MemoryStore, session_id: str, lines: Sequence[bytes]
    ) -> None:
        super().__init__(session_id, lines)
        self._store = store
        self._session = session_id
        self._append = threading.Lock()
        self._written = len(lines)
        self._durable = len(lines) - 1
        self._closed = False
        self._pid = os.getpid()

    @property
    def next_seq(self) -> int:
        """The seq that the next appended event will have."""
        return len(self._lines)

    @property
    def durable(self) -> int:
        """The highest seq that was flushed, -1 for none."""
        return self._durable

    def append(self, drafts: Sequence[Draft]) -> int:
        """Give the drafts their places, in order and together; return the last seq."""
        bodies = [_segment.body(draft, None) for draft in drafts]
        with self._append:
            self._ready()
            if drafts and not self._lines and drafts[0].type != SESSION_START:
                raise ValueError(f"the first event of a log is {SESSION_START}")
            now = time.time_ns()
            for seq, body in enumerate(bodies, len(self._lines)):
                line, _ = _segment.frame(seq, _segment.NO_PREV, -1, now, body)
                self._lines.append(line[:-1])
            return len(self._lines) - 1

    def write(self, seq: int) -> None:
        """Show everything up to ``seq``, and what else is appended, to others."""
        with self._append:
            self._ready()
            if seq >= len(self._lines):
                raise ValueError(f"seq {seq} was never appended")
            new = self._lines[self._written :]
            if new:
                self._store._publish(self._session, new)  # noqa: SLF001 - one module
                self._written = len(self._lines)

    def flush(self, seq: int) -> None:
        """As ``write``; nothing in memory survives more than that."""
        self.write(seq)
        self._durable = max(self._durable, self._written - 1)

    async def awrite(self, seq: int) -> None:
        """As ``write``."""
        self.write(seq)

    async def aflush(self, seq: int) -> None:
        """As ``flush``."""
        self.flush(seq)

    def peek(self, seq: int) -> Event | None:
        """Return the event: everything is in memory."""
        return self.get(seq) if 0 <= seq < len(self._lines) else None

    def close(self) -> None:
        """Give up the session. What was never written is lost. Idempotent."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._store._give_up(self._session)  # noqa: SLF001 - one module

    def _ready(self) -> None:
        if os.getpid() != self._pid:
            raise SessionForkedError(
                "This session belongs to the parent process.", session=self._session
            )
        if self._closed:
            raise SessionClosedError("It was closed.", session=self._session)
