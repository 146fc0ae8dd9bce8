"""The owner's half of a log file: what a group commit writes, syncs and rotates.

One thread at a time is in `Writer.write`, and one in `Writer.sync`; both may run at
once. The file is swapped only inside a sync, and then under the write lock.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from durable_agent import _recover, _segment
from durable_agent._blobs import Blobs, create_durably
from durable_agent._fs import lstat_or_none, write_all
from durable_agent._jsonl_read import Segment
from durable_agent._paths import identity, join, parent_of
from durable_agent.errors import LeaseLostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._jsonl_read import Index
    from durable_agent._lease import Lease


class Writer:
    """Appends to the last segment of a log that a scan found whole."""

    def __init__(
        self, index: Index, lease: Lease, blobs: Blobs, *, roll_bytes: int
    ) -> None:
        self._index = index
        self._disk = index.disk
        self._lease = lease
        self._blobs = blobs
        self._roll_bytes = roll_bytes
        self._fd = -1
        self._identity = (0, 0)
        #: Size of the last segment at its last successful sync.
        self._synced = -1
        #: Whether the file may hold bytes of ours that are not accounted for.
        self._begun = False
        #: Payloads of lines not yet written, by seq, with their names.
        self.payloads: dict[int, tuple[str, bytes]] = {}
        #: Seqs of seals not yet written.
        self.seals: set[int] = set()
        #: Called after lines were written, with the next seq to write.
        self.on_written: Callable[[int], None] = lambda _: None
        #: Set by the log: holds the write lock of the group commit.
        self.exclusive: Callable[[], AbstractContextManager[object]] = nullcontext

    # -- the batch ------------------------------------------------------------

    def write(self, batch: list[bytes]) -> None:
        """Hand all lines to the operating system, or raise.

        Payloads aside are durable before their lines are written, and everything
        before a seal is durable before the seal is. What an error left in the file is
        cut off again as far as that goes; the handle is not to be used any more.
        """
        try:
            self._write(batch)
        except OSError as error:
            self._cut_back()
            raise self._explain(error, "written to") from error

    def _write(self, batch: list[bytes]) -> None:
        self._ready()
        first = self._index.next_seq
        seqs = range(first, first + len(batch))
        if self.payloads:
            self._blobs.store([self.payloads[s] for s in seqs if s in self.payloads])
        start = 0
        for seq in sorted(self.seals.intersection(seqs)):
            self._put(batch[start : seq - first])
            start = seq - first
            if self._synced != self._index.segments[-1].end:
                self._sync_file()
        self._put(batch[start:])
        for seq in seqs:
            self.payloads.pop(seq, None)
        self.seals.difference_update(seqs)
        self.on_written(self._index.next_seq)

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            self._begun = True
            write_all(self._disk, self._fd, b"".join(lines))
            self._account(lines)
            self._begun = False

    def _account(self, lines: list[bytes]) -> None:
        index = self._index
        segment = index.segments[-1]
        offset = segment.end
        for line in lines:
            segment.offsets.append(offset)
            offset += len(line)
        segment.end = offset
        index.prev = lines[-1][-11:-3]
        index.next_seq += len(lines)

    def settle(self, batch: list[bytes]) -> bool | None:
        """Judge an interrupted write: all in the file, nothing, or cannot tell."""
        index = self._index
        if not batch or not index.segments or self._fd < 0:
            return None
        first = int(batch[0][7 : batch[0].index(b",")])
        size = self._disk.fstat(self._fd).st_size
        segment = index.segments[-1]
        if index.next_seq == first + len(batch) and size == segment.end:
            self._begun = False
            return True
        if index.next_seq != first or segment.first + len(segment.offsets) != first:
            return None
        if size == segment.end:
            self._begun = False
            return False
        if size == segment.end + sum(map(len, batch)):
            self._account(batch)
            self._begun = False
            return True
        return None

    def _cut_back(self) -> None:
        """Remove what a failed write left. It only tidies: opening would do it too."""
        if not self._begun:
            return  # what is there beyond the end is not ours
        with suppress(OSError):
            self.check_file(longer=True)
            end = self._index.segments[-1].end
            if self._disk.fstat(self._fd).st_size > end:
                self._disk.truncate(self._fd, end)
                self._disk.sync(self._fd, metadata=True)

    # -- before the first batch -----------------------------------------------

    def _ready(self) -> None:
        """Make sure that the file is there, ours, whole, and as long as we left it."""
        self._lease.check()
        if self._fd >= 0:
            self.check_file()
            return
        if not self._index.segments:
            self._create_segment(0)
            self._sync_above()
            return
        segment = self._index.segments[-1]
        self._fd = self._disk.open_append(segment.path)
        self._identity = identity(self._disk.fstat(self._fd))
        self.check_file()
        if _recover.tail_is_only_a_seal(self._index):
            # Its name is attested by what precedes it; the next sync is the file's.
            _recover.rewrite_tail(self._index, sync=False)
            return
        if self._index.attested < self._index.next_seq - 1 or not segment.offsets:
            _recover.write_tail_again(self._index)
        if self._index.next_seq == 0:
            self._sync_above()
        self._synced = segment.end

    def _sync_above(self) -> None:
        """Make the names above the session's durable, before its first event.

        Found or made, they may not have been synced by who made them.
        """
        root = parent_of(self._index.directory)
        self._disk.sync_dir(root)
        with suppress(PermissionError):
            self._disk.sync_dir(parent_of(root))

    def _create_segment(self, first: int) -> None:
        index = self._index
        path = join(index.directory, _segment.segment_name(first))
        if lstat_or_none(self._disk, path) is not None:
            raise LeaseLostError(
                "A segment that this owner did not write is in the way.",
                session=index.session,
                file=path,
            )
        line = _segment.header(
            index.session, first, index.prev, time.time_ns(), index.log
        )
        create_durably(self._disk, path, line)
        fd = self._disk.open_append(path)
        try:
            self._disk.sync_dir(index.directory)
            where = identity(self._disk.fstat(fd))
        except BaseException:
            self._disk.close(fd)
            raise
        old, self._fd, self._identity = self._fd, fd, where
        index.segments.append(Segment(path, first, len(line)))
        self._synced = len(line)
        if old >= 0:
            self._disk.close(old)

    def check_file(self, *, longer: bool = False) -> None:
        """Raise `LeaseLostError` unless the path leads to our file, at our length."""
        segment = self._index.segments[-1]
        status = lstat_or_none(self._disk, segment.path)
        if (
            status is None
            or identity(status) != self._identity
            or (status.st_size != segment.end and not longer)
        ):
            raise LeaseLostError(
                "The log file was moved, replaced or changed by another writer.",
                session=self._index.session,
                file=segment.path,
                offset=segment.end,
                advice="Nothing more is written; open the session again.",
            )

    # -- the barrier ----------------------------------------------------------

    def sync(self) -> None:
        """Make everything written before durable, or raise. Rotates if it is time."""
        try:
            first = self._fd < 0
            if first:
                # Nothing was written by this run: what opening left is proved.
                with self.exclusive():
                    self._ready()
            if not first or self._synced != self._index.segments[-1].end:
                self._sync_file()
            self._lease.check()
            if self._index.segments[-1].end >= self._roll_bytes:
                with self.exclusive():
                    self._rotate()
        except OSError as error:
            raise self._explain(error, "synced") from error

    def _sync_file(self) -> None:
        size = self._index.segments[-1].end
        self._disk.sync(self._fd)
        self._synced = size

    def _rotate(self) -> None:
        segment = self._index.segments[-1]
        self.check_file()
        if not segment.offsets:
            return
        if self._synced != segment.end:
            self._sync_file()
        self._create_segment(self._index.next_seq)

    def close(self) -> None:
        """Give up the file. Syncs nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                self._disk.close(fd)
            except OSError as error:
                # It may be the first to hear that eager lines were not written.
                raise self._explain(error, "closed") from error

    def _explain(self, error: OSError, what: str) -> OSError:
        if isinstance(error, StoreError):
            return error
        segments = self._index.segments
        return StoreError(
            f"The log could not be {what}: {error}.",
            session=self._index.session,
            file=segments[-1].path if segments else self._index.directory,
            seq=self._index.next_seq,
            advice="What was acknowledged is safe; open the session again.",
        )
