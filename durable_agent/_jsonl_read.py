"""What is known of a log on disk: where each event is, and how lines are read again.

It keeps 8 bytes an event; a scan fills it (``_jsonl_scan``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NoReturn

from durable_agent import _segment
from durable_agent._segment import NO_PREV
from durable_agent.errors import LogCorruptError, StoreError
from durable_agent.events import is_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent._fs import Disk
    from durable_agent.events import Head

UNCHANGED: Final = "Nothing was changed; restore the file from a copy, or salvage it."
#: Lines of one read are handed out from at most this many bytes.
_READ_BYTES: Final = 1 << 18


class Segment:
    """One file: the seq it begins with, and the offset of each of its lines."""

    __slots__ = ("end", "first", "offsets", "path")

    def __init__(self, path: str, first: int, end: int) -> None:
        self.path = path
        self.first = first
        self.offsets = array("Q")
        #: Where the good part ends: the next line goes here.
        self.end = end


class Index:
    """What a scan knows of a log. The owner's writer goes on extending it."""

    def __init__(self, disk: Disk, directory: str, session: str) -> None:
        self.disk = disk
        self.directory = directory
        self.session = session
        self.segments: list[Segment] = []
        self.next_seq = 0
        #: Checksum of the last good line.
        self.prev = NO_PREV
        #: The highest seq that the log itself proves durable.
        self.attested = -1
        #: Told from every other log's lines by this; a first header overrides it.
        self.log: bytes | None = token_hex(4).encode()
        #: Type of the last line.
        self.last_type = b""
        self.blobs: set[str] = set()
        #: The first event that a writer must not go on past.
        self.unsupported: tuple[int, str, str] | None = None
        #: (offset in the last segment, size) of a tail that nothing promised.
        self.torn: tuple[int, int] | None = None
        #: Seq and time of the first header, for listings.
        self.created = 0
        self._known: dict[bytes, bool] = {}

    def locate(self, seq: int) -> tuple[Segment, int, int]:
        """Return segment, start and an end of a line. Raises `LookupError`."""
        if not 0 <= seq < self.next_seq:
            raise LookupError(f"there is no event {seq}")
        starts = [segment.first for segment in self.segments]
        segment = self.segments[bisect_right(starts, seq) - 1]
        place = seq - segment.first
        offsets = segment.offsets
        end = offsets[place + 1] if place + 1 < len(offsets) else segment.end
        return segment, offsets[place], end

    def lines(self, from_seq: int, to_seq: int) -> Iterator[bytes]:
        """Yield the lines from one seq up to, not including, another, verified."""
        seq = max(from_seq, 0)
        while seq < to_seq:
            segment, start, end = self.locate(seq)
            place = seq - segment.first
            offsets = segment.offsets
            count = 1
            limit = min(len(offsets) - place, to_seq - seq)
            while count < limit and offsets[place + count] - start < _READ_BYTES:
                count += 1
            if place + count < len(offsets):
                end = offsets[place + count]
            else:
                end = segment.end
            data = read_range(self, segment.path, start, end)
            for index in range(count):
                begin = offsets[place + index] - start
                newline = data.find(b"\n", begin)
                line = data[begin:newline] if newline >= 0 else b""
                self._verify(line, segment.path, start + begin, seq + index)
                yield line
            seq += count

    def _verify(self, line: bytes, path: str, offset: int, seq: int) -> None:
        if not _segment.crc_is_good(line) or not line.startswith(b'{"seq":%d,' % seq):
            self.corrupt("A line changed after it was read.", path, offset, seq)

    def corrupt(self, what: str, path: str, offset: int, seq: int) -> NoReturn:
        """Raise `LogCorruptError`."""
        raise LogCorruptError(
            what,
            session=self.session,
            file=path,
            offset=offset,
            seq=seq,
            advice=UNCHANGED,
        )

    def accept(self, segment: Segment, offset: int, line: bytes) -> bool:
        """Take a line as the next event, if it is good and continues the chain."""
        found = _segment.take(line, self.next_seq, self.prev, self.log)
        if found is None:
            return False
        durable, type_, blob = found
        segment.offsets.append(offset)
        segment.end = offset + len(line) + 1
        self.next_seq += 1
        self.prev = line[-10:-2]
        self.last_type = type_
        self.attested = max(self.attested, durable)
        if blob is not None:
            self.blobs.add(blob)
        if type_ not in self._known or not self._known[type_]:
            self._look_at_type(type_, line, segment.path)
        return True

    def head(self, line: bytes) -> Head:
        """Return the head of a good line. Raises `LogCorruptError` if it has none."""
        try:
            return _segment.head_of(line)
        except (ValueError, KeyError, TypeError) as error:
            seq = _segment.seq_of(line)
            path = self.segments[-1].path
            with suppress(LookupError):
                path = self.locate(seq)[0].path
            self.corrupt(f"A line has a head that nobody wrote: {error}.", path, 0, seq)

    def _look_at_type(self, type_: bytes, line: bytes, path: str) -> None:
        head = self.head(line)
        self._known[type_] = known = is_known(head.type)
        ignorable = head.meta.get("ignorable") is True
        if not known and not ignorable and self.unsupported is None:
            self.unsupported = (head.seq, head.type, path)


def read_range(index: Index, path: str, start: int, end: int) -> bytes:
    """Return the bytes of a file. Raises `StoreError` if it cannot be read."""
    try:
        fd = index.disk.open_read(path)
        try:
            return index.disk.read(fd, end - start, start)
        finally:
            index.disk.close(fd)
    except OSError as error:
        raise unreadable(index.session, path, error) from error


def unreadable(session: str, path: str, error: OSError) -> StoreError:
    """Return the error for a file that is there and cannot be read."""
    return StoreError(
        f"The log cannot be read: {error}.",
        session=session,
        file=path,
        advice="This is not an absent session: nothing was started or changed.",
    )
