"""The one streaming reader: whether a log is whole, torn or corrupt.

`scan` reads every segment once, payloads unparsed, and never writes. The rules are
those of `jsonl`: damage is *corrupt* if anything later proves that the damaged seq was
durable, and *torn* otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from durable_agent import _segment
from durable_agent._jsonl_read import (
    UNCHANGED,
    Index,
    Segment,
    read_range,
    unreadable,
)
from durable_agent._lease import refuse_strange
from durable_agent._paths import is_file, join, name_of
from durable_agent.errors import LogConflictError, LogUnsupportedError, StoreError
from durable_agent.events import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent._fs import Disk
    from durable_agent._segment import Frame


def scan(disk: Disk, directory: str, session: str, *, owner: bool = False) -> Index:
    """Read a whole log. A directory without any segment gives an empty index.

    As its owner, who is going to write, it refuses segments that may be another's.
    Raises `LogCorruptError`, `LogConflictError`, `LogUnsupportedError` (a newer
    format) and `StoreError` (it cannot be read).
    """
    index = Index(disk, directory, session)
    path = directory
    try:
        names = [n for n in disk.listdir(directory) if _segment.NAME.fullmatch(n)]
        if not names:
            _prove_absence(index)
        for name in names:
            path = join(directory, name)
            last = name == names[-1]
            _scan_segment(index, path, int(name[:20]), last=last, owner=owner)
    except StoreError:
        raise
    except OSError as error:
        raise unreadable(session, path, error) from error
    return index


def _prove_absence(index: Index) -> None:
    """Raise `LogCorruptError` if the directory shows that there was a log."""
    for name in ("blobs", "torn"):
        path = join(index.directory, name)
        try:
            left = index.disk.listdir(path)
        except FileNotFoundError:
            continue
        if left:
            index.corrupt("The log's segments are gone.", path, 0, 0)


def _scan_segment(
    index: Index, path: str, first: int, *, last: bool, owner: bool
) -> None:
    if first != index.next_seq:
        missing = join(index.directory, _segment.segment_name(index.next_seq))
        index.corrupt(
            f"A segment is missing before {name_of(path)}.",
            missing,
            0,
            index.next_seq,
        )
    status = index.disk.lstat(path)
    if not is_file(status):
        raise StoreError("A segment must be a file.", session=index.session, file=path)
    if owner:
        refuse_strange(index.disk, path, status)
    fd = index.disk.open_read(path)
    try:
        end = index.disk.fstat(fd).st_size
        lines = _segment.pieces(index.disk, fd, 0, end)
        _, line, whole = next(lines, (0, b"", False))
        segment = _begin(index, path, first, line if whole else b"")
        damage = _Scan(index, segment).run(lines)
    finally:
        index.disk.close(fd)
    if damage is None:
        return
    if not last:
        index.corrupt("A sealed segment is damaged.", path, damage, index.next_seq)
    if index.attested >= index.next_seq:
        index.corrupt(
            f"Data that was promised is damaged: a later line proves that event "
            f"{index.attested} was durable.",
            path,
            damage,
            index.next_seq,
        )
    index.torn = (segment.end, end - segment.end)


def _begin(index: Index, path: str, first: int, line: bytes) -> Segment:
    """Check the header of a segment and take it in."""
    header = _segment.read_header(line)
    if header is None:
        index.corrupt("The header of a segment is damaged.", path, 0, first)
    if header.format > FORMAT:
        raise LogUnsupportedError(
            f"The log has format {header.format}; this version reads up to {FORMAT}.",
            session=index.session,
            file=path,
            advice="Its bytes are untouched; use a newer version of durable_agent.",
        )
    if header.session != index.session:
        index.corrupt(
            f"The log says that it is session {header.session!r}.", path, 0, first
        )
    if first == 0:
        index.created, index.log = header.time, header.log
    if (header.first, header.prev, header.log) != (first, index.prev, index.log):
        index.corrupt("A segment does not continue the one before.", path, 0, first)
    # It was created after everything before it had been synced.
    index.attested = max(index.attested, first - 1)
    segment = Segment(path, first, len(line) + 1)
    index.segments.append(segment)
    return segment


class _Scan:
    """The lines of one segment, judged one by one."""

    def __init__(self, index: Index, segment: Segment) -> None:
        self._index = index
        self._segment = segment
        #: Where the first line is that no continuation made good.
        self._damage: int | None = None
        #: Whether the line that is judged stands behind damage.
        self._leftover = False

    def run(self, lines: Iterator[tuple[int, bytes, bool]]) -> int | None:
        """Take in all lines; return the offset of damage that stays."""
        index, segment = self._index, self._segment
        for offset, line, whole in lines:
            if whole and index.accept(segment, offset, line):
                self._damage = None
            else:
                self._doubt(offset, line, whole=whole)
        return self._damage

    def _doubt(self, offset: int, line: bytes, *, whole: bool) -> None:
        if len(line) < _segment.LEAST_BYTES:
            self._damage = offset if self._damage is None else self._damage
            return
        found = _segment.parse(line)
        if found is not None:
            within = iter([(0, found)])
        elif _segment.crc_is_good(line) and not line.startswith(_segment.HEADER):
            raise LogUnsupportedError(
                "A line has a good checksum and a form that this version cannot read.",
                session=self._index.session,
                file=self._segment.path,
                offset=offset,
                advice="Its bytes are untouched; use a newer version.",
            )
        else:
            within = _segment.frames_within(line)
        good = False
        for start, inner in within:
            self._leftover = start > 0 or self._damage is not None
            good = self._weigh(offset + start, inner, whole=whole) or good
        if not good and self._damage is None:
            self._damage = offset

    def _weigh(self, offset: int, found: Frame, *, whole: bool) -> bool:
        """Judge a good line that is out of place; True if it does no harm."""
        index = self._index
        if found.log != index.log:
            # What a disk block held for another log, before a power cut.
            return False
        # What was known durable when it was written is so whether or not it counts.
        index.attested = max(index.attested, found.durable)
        if found.seq < index.next_seq:
            if self._original(found.seq) == found.line:
                if self._damage is None:
                    self._segment.end = offset + len(found.line) + whole
                return whole
            return self._conflict(offset, found)
        if found.seq > index.next_seq:
            return False
        if found.prev != index.prev:
            return self._conflict(offset, found)
        # Junk before a line that continues the chain: nothing is missing.
        good = whole and index.accept(self._segment, offset, found.line)
        if good:
            self._damage = None
        return good

    def _original(self, seq: int) -> bytes:
        segment, start, end = self._index.locate(seq)
        data = read_range(self._index, segment.path, start, end)
        return data.split(b"\n", 1)[0]

    def _conflict(self, offset: int, found: Frame) -> Literal[False]:
        """Judge a record without a place: a second writer's, or, behind damage, old.

        A power cut may bring back a disk block that held a tail cut off long ago.
        """
        if self._leftover:
            return False
        raise LogConflictError(
            f"Two different records claim to be event {found.seq}: the log had two "
            f"writers.",
            session=self._index.session,
            file=self._segment.path,
            offset=offset,
            seq=found.seq,
            advice=UNCHANGED,
        )
