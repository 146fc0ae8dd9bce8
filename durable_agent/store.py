"""The store protocol: appends eagerly, and makes each requested flush a barrier.

A store never decides *when* to flush; the policy does. The session layer calls
``append`` (gives ``seq`` in order, no I/O, never blocks), then ``write``/``awrite``
where the event must survive a killed process before going on, or ``flush``/``aflush``
where it must survive power loss. A flush writes whatever is appended and not yet
written, so an intent costs one write and one sync.

Every blocking method may be called from any thread. ``awrite`` and ``aflush`` never
block the running loop and do their I/O on other threads. After any failure the handle
is poisoned: every later append, write or flush raises `LogPoisonedError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from durable_agent.events import Draft, Event, Head


@frozen
class Torn:
    """A never-promised tail that opening cut off and kept."""

    file: str
    offset: int
    size: int
    #: Where the bytes were kept.
    kept: str


@frozen
class OpenReport:
    """What opening a log found and did."""

    session: str
    #: Where the log is, for people: an absolute path, or a table and host.
    location: str
    #: Whether the log held any event.
    existed: bool
    #: Number of events found.
    events: int = 0
    torn: tuple[Torn, ...] = ()
    #: Bytes beyond the highest attested seq, written again and synced.
    rewritten: int = 0
    #: "pid@host" of a former owner that did not close the log.
    died: str | None = None


@frozen
class SessionInfo:
    """One line of ``list_sessions``: from heads only, no payload is parsed."""

    id: str
    location: str
    #: Whether an owner has it open now; None where that cannot be told.
    busy: bool | None
    #: Time of creation in ns since the epoch, 0 if unknown.
    created: int
    #: Size in bytes, as stored.
    size: int
    #: Why it could not be read, or "".
    problem: str = ""


class LogReader(Protocol):
    """Reading one log. Never writes, never repairs."""

    @property
    def report(self) -> OpenReport:
        """What opening found."""

    def heads(self) -> Iterator[Head]:
        """Yield the heads of all events that were there at opening, in order."""

    def read(self, from_seq: int = 0) -> Iterator[Event]:
        """Yield the events from ``from_seq`` on, in order.

        The owner sees every append; others a prefix with every durable event.
        """

    def get(self, seq: int) -> Event:
        """Return one event. Raises `LookupError` if there is none."""

    def close(self) -> None:
        """Give up files and lease. Idempotent."""


class SessionLog(LogReader, Protocol):
    """The owner's handle of one log."""

    @property
    def next_seq(self) -> int:
        """The seq that the next appended event will have."""

    @property
    def durable(self) -> int:
        """The highest seq known durable, -1 for none."""

    def append(self, drafts: Sequence[Draft]) -> int:
        """Give the drafts their places, in order and together; return the last seq.

        Nothing is on disk yet. Does no I/O and never blocks for it. Payloads over the
        store's threshold are made durable aside by the write that follows.
        """

    def write(self, seq: int) -> None:
        """Return when everything up to ``seq`` survives a killed process."""

    def flush(self, seq: int) -> None:
        """Return when everything up to ``seq`` survives power loss (a barrier)."""

    async def awrite(self, seq: int) -> None:
        """As ``write``, without blocking the loop. Cancelling it loses no event."""

    async def aflush(self, seq: int) -> None:
        """As ``flush``, without blocking the loop. Cancelling it loses no event."""

    def peek(self, seq: int) -> Event | None:
        """Return the event if that needs no I/O, else None."""


@runtime_checkable
class Store(Protocol):
    """Where sessions live."""

    #: What survives a killed process before a flush.
    eager: Literal["process", "none"]
    #: What a flush survives.
    durability: Literal["power", "server", "none"]
    #: How a former owner is kept from writing.
    fencing: Literal["atomic", "advisory"]

    def open(self, session_id: str, *, lock_timeout: float = 0.0) -> SessionLog:
        """Take the lease and recover the log; may write.

        A log that does not exist is opened empty (nothing is on disk but what the
        lease needs); its first event must be ``session/start``. Waits up to
        ``lock_timeout`` seconds, then raises `SessionBusyError`.
        """

    def inspect(self, session_id: str) -> LogReader:
        """Open for reading beside an owner, without a lease; never writes.

        Raises `SessionNotFoundError`.
        """

    def list(self) -> Iterator[SessionInfo]:
        """Yield what is there; a session that cannot be read has a ``problem``."""

    def delete(self, session_id: str) -> None:
        """Delete a session that nobody has open. Raises `SessionNotFoundError`."""
