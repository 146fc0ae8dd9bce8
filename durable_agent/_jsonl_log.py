"""Handles of one JSONL log: the reader beside an owner, and the owner's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from durable_agent import _segment
from durable_agent._barrier import GroupCommit
from durable_agent._blobs import blob_name
from durable_agent._jsonl_write import Writer
from durable_agent.events import RUN_END, SESSION_START, Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from durable_agent._blobs import Blobs
    from durable_agent._jsonl_read import Index
    from durable_agent._lease import Lease
    from durable_agent.events import Draft, Head
    from durable_agent.store import OpenReport


class JsonlReader:
    """Reads what a scan found. Holds no lease and no open file; never writes."""

    def __init__(self, index: Index, blobs: Blobs, report: OpenReport) -> None:
        self._index = index
        self._blobs = blobs
        self._found = index.next_seq
        self.report = report

    def heads(self) -> Iterator[Head]:
        """Yield the heads of the events found at opening, in order."""
        for line in self._index.lines(0, self._found):
            yield self._index.head(line)

    def read(self, from_seq: int = 0) -> Iterator[Event]:
        """Yield the events from ``from_seq`` on, in order, payloads fetched on the way.

        Raises `LogCorruptError` where a line changed since it was found.
        """
        for line in self._index.lines(from_seq, self._end()):
            yield self._event(line)

    def get(self, seq: int) -> Event:
        """Return one event. Raises `LookupError` if there is none."""
        if not 0 <= seq < self._end():
            raise LookupError(f"there is no event {seq}")
        (line,) = self._index.lines(seq, seq + 1)
        return self._event(line)

    def close(self) -> None:
        """Nothing is held, so nothing happens."""

    def _end(self) -> int:
        return self._found

    def _event(self, line: bytes) -> Event:
        head = self._index.head(line)
        found = _segment.blob_of(line)
        if found is None:
            return _segment.event_of(head, line, None)
        path = self._index.locate(head.seq)[0].path
        raw = self._blobs.load(found, file=path, seq=head.seq)
        return _segment.event_of(head, line, raw)


class JsonlLog(JsonlReader):
    """The owner's handle. See `jsonl` for what is on disk when."""

    def __init__(
        self,
        index: Index,
        blobs: Blobs,
        report: OpenReport,
        lease: Lease,
        *,
        roll_bytes: int,
        blob_bytes: int,
    ) -> None:
        super().__init__(index, blobs, report)
        self._lease = lease
        self._blob_bytes = blob_bytes
        self._closed = False
        #: Under the append lock: the checksum of the last appended line.
        self._prev = index.prev
        #: Appended and not yet written, by seq.
        self._pending: dict[int, tuple[int, Draft]] = {}
        self._writer = Writer(index, lease, blobs, roll_bytes=roll_bytes)
        self._writer.on_written = self._forget
        self._forgotten = index.next_seq
        self._commit = GroupCommit(
            self._writer.write,
            self._writer.sync,
            first_seq=index.next_seq,
            durable=index.attested,
            name=index.session,
            check=lease.check_process,
            settle_write=self._writer.settle,
        )
        self._writer.exclusive = self._commit.exclusive

    @property
    def next_seq(self) -> int:
        """The seq that the next appended event will have."""
        return self._commit.next_seq

    @property
    def durable(self) -> int:
        """The highest seq known durable. A seal counts only once it was written again.

        So on a cleanly closed log that was only opened it is the seq before the seal.
        """
        return self._commit.durable

    def append(self, drafts: Sequence[Draft]) -> int:
        """Give the drafts their places; return the last seq. Nothing is on disk yet.

        What cannot be encoded raises `TypeError` or `ValueError` and leaves the log as
        it was. ``run/end`` is the seal: whatever precedes it is synced before it is
        written.
        """
        parts: list[tuple[Draft, str | None, bytes]] = []
        for draft in drafts:
            aside = len(draft.raw) > self._blob_bytes or b"\n" in draft.raw
            blob = blob_name(draft.raw) if aside else None
            parts.append((draft, blob, _segment.body(draft, blob, self._index.log)))
        if parts and parts[0][0].type != SESSION_START and self._commit.next_seq == 0:
            raise ValueError(f"the first event of a log is {SESSION_START}")

        def make(first: int, durable: int) -> list[bytes]:
            now = time.time_ns()
            lines: list[bytes] = []
            for seq, (draft, blob, body) in enumerate(parts, first):
                known = durable
                if draft.type == RUN_END:
                    known = seq - 1
                    self._writer.seals.add(seq)
                line, self._prev = _segment.frame(seq, self._prev, known, now, body)
                if blob is not None:
                    self._writer.payloads[seq] = (blob, draft.raw)
                self._pending[seq] = (now, draft)
                lines.append(line)
            return lines

        return self._commit.append(len(parts), make)

    def write(self, seq: int) -> None:
        """Return when everything up to ``seq`` survives a killed process."""
        self._commit.write(seq)

    def flush(self, seq: int) -> None:
        """Return when everything up to ``seq`` survives power loss."""
        self._commit.flush(seq)

    async def awrite(self, seq: int) -> None:
        """As ``write``, without blocking the loop. Cancelling it loses no event."""
        await self._commit.awrite(seq)

    async def aflush(self, seq: int) -> None:
        """As ``flush``, without blocking the loop. Cancelling it loses no event."""
        await self._commit.aflush(seq)

    def peek(self, seq: int) -> Event | None:
        """Return the event if it is not written yet, else None."""
        pending = self._pending.get(seq)
        if pending is None:
            return None
        time_ns, draft = pending
        return Event(
            seq, time_ns, draft.type, draft.raw, draft.call, draft.key, draft.meta
        )

    def close(self) -> None:
        """Give up the file and the lease. Writes and syncs nothing. Idempotent.

        In a forked child it does nothing at all: the parent goes on owning both.
        """
        if self._closed or not self._lease.is_of_this_process:
            return
        self._closed = True
        try:
            self._commit.close()
        finally:
            try:
                self._writer.close()
            finally:
                self._lease.release()

    def _end(self) -> int:
        """Hand everything to the operating system, so that it can be read back.

        A failed or closed handle shows what it had written.
        """
        self._lease.check_process()
        appended = self._commit.next_seq
        behind = self._index.next_seq < appended
        if behind and not self._closed and self._commit.failed is None:
            self._commit.write(appended - 1)
        return self._index.next_seq

    def _forget(self, next_seq: int) -> None:
        for seq in range(self._forgotten, next_seq):
            self._pending.pop(seq, None)
        self._forgotten = next_seq
