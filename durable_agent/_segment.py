"""Frames: one event as one line, and what a line that fails its checks proves.

Pure but for reading through a `Disk`. The format itself is specified in `jsonl`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import orjson

from durable_agent.events import FORMAT, Event, Head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent._fs import Disk
    from durable_agent.events import Draft

#: ``prev`` of the first line of a log.
NO_PREV: Final = b"00000000"
#: What the body of a line begins with; it cannot occur inside a JSON string.
DATA: Final = b',"data":'
#: What a header begins with. One inside a segment is no event of a newer kind but an
#: old disk block that a power cut brought back.
HEADER: Final = b'{"format":'
#: ``,"crc":"9a8b7c6d"}``
_CRC_SIZE: Final = 18
#: ``,"blob":"<64 hex digits>"``, directly before the data.
_BLOB: Final = b',"blob":"'
_BLOB_SIZE: Final = 74
#: The members that every line begins with, in this order.
_HEAD: Final = re.compile(
    rb'\{"seq":(\d{1,19}),"prev":"([0-9a-f]{8})","durable":(-1|\d{1,19}),'
    rb'"time":(-?\d{1,19}),"type":"((?:[^"\\]|\\.)*)"(?:,"log":"([0-9a-f]{8})")?'
)
_AFTER_START: Final = re.compile(
    rb'(-1|\d{1,19}),"time":-?\d{1,19},"type":"((?:[^"\\]|\\.)*)"'
    rb'(?:,"log":"([0-9a-f]{8})")?'
)
#: What the members of a head may be.
_HEAD_TYPES: Final[tuple[tuple[type, ...], ...]] = (
    (int,),
    (int,),
    (str,),
    (str, type(None)),
    (str, type(None)),
    (dict,),
)
#: Where copying a line begins to cost more than a view of it.
_SHORT_BYTES: Final = 1 << 14
#: Segments are read in pieces of this size.
_CHUNK_BYTES: Final = 1 << 20

#: No line with a checksum is shorter.
LEAST_BYTES: Final = _CRC_SIZE
#: So many heads are tried from each end of a damaged piece.
_HEADS: Final = 64
#: Lines shorter than this on average are taken one by one: split, each costs more.
_TINY_BYTES: Final = 64

NAME: Final = re.compile(r"(\d{20})\.jsonl")


class Frame(NamedTuple):
    """What a good line says about itself, payload left aside."""

    seq: int
    prev: bytes
    durable: int
    crc: bytes
    type: bytes
    #: Of which log it is; None: it does not say.
    log: bytes | None
    blob: str | None
    #: The whole line without its newline.
    line: bytes


class Header(NamedTuple):
    """The first line of a segment."""

    format: int
    session: str
    first: int
    prev: bytes
    time: int
    log: bytes | None = None


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first event has this seq."""
    return f"{first:020d}.jsonl"


def body(draft: Draft, blob: str | None, log: bytes | None = None) -> bytes:
    """Encode the part of a line of a log that does not depend on its place.

    Raises `TypeError` or `ValueError` for what cannot be a head.
    """
    head: dict[str, Any] = {"type": draft.type}
    if log is not None:
        head["log"] = log.decode()
    if draft.call is not None:
        head["call"] = draft.call
    if draft.key is not None:
        head["key"] = draft.key
    if draft.meta:
        head["meta"] = dict(draft.meta)
    if blob is not None:
        head["blob"] = blob
    encoded = orjson.dumps(head)
    if b'"data":' in encoded:
        raise ValueError("meta cannot have a member called 'data'")
    if not draft.raw:
        raise ValueError("a payload is JSON; it cannot be empty")
    return b"%b%b%b" % (
        encoded[1:-1],
        DATA,
        b"null" if blob is not None else draft.raw,
    )


def seal(content: bytes) -> tuple[bytes, bytes]:
    """Add checksum and newline; return the line and the checksum."""
    crc = b"%08x" % crc32(content)
    return b'%b,"crc":"%b"}\n' % (content, crc), crc


def frame(
    seq: int, prev: bytes, durable: int, time: int, rest: bytes
) -> tuple[bytes, bytes]:
    """Return the line of an event and its checksum."""
    return seal(
        b'{"seq":%d,"prev":"%b","durable":%d,"time":%d,%b'
        % (seq, prev, durable, time, rest)
    )


def header(
    session: str, first: int, prev: bytes, time: int, log: bytes | None
) -> bytes:
    """Return the first line of a segment."""
    name = orjson.dumps(session)
    content = b'{"format":%d,"session":%b,"first":%d,"prev":"%b","time":%d' % (
        FORMAT,
        name,
        first,
        prev,
        time,
    )
    return seal(content if log is None else b'%b,"log":"%b"' % (content, log))[0]


def crc_is_good(line: bytes) -> bool:
    """Whether a line (without newline) ends in the checksum of what precedes it."""
    if line[-_CRC_SIZE:-10] != b',"crc":"' or line[-2:] != b'"}':
        return False
    # A short copy is cheaper than a view, a long one is not.
    short = len(line) < _SHORT_BYTES
    content = line[:-_CRC_SIZE] if short else memoryview(line)[:-_CRC_SIZE]
    return line[-10:-2] == b"%08x" % crc32(content)


def take(
    line: bytes, seq: int, prev: bytes, log: bytes | None
) -> tuple[int, bytes, str | None] | None:
    """Return watermark, type and blob of a good line that continues a log's chain.

    None for any other line. This is what opening a log costs, line by line.
    """
    start = b'{"seq":%d,"prev":"%b","durable":' % (seq, prev)
    if not line.startswith(start) or not crc_is_good(line):
        return None
    match = _AFTER_START.match(line, len(start))
    data = line.find(DATA) if match is not None else -1
    if match is None or data < 0:
        return None
    durable, type_, of = match.groups()
    if of != log:
        return None
    return int(durable), type_, _blob_before(line, data)


def parse(line: bytes) -> Frame | None:
    """Return what a line (without newline) says, None if it is damaged."""
    if not crc_is_good(line):
        return None
    match = _HEAD.match(line)
    if match is None:
        return None
    data = line.find(DATA, match.end())
    if data < 0:
        return None
    blob = _blob_before(line, data)
    seq, prev, durable, _, type_, log = match.groups()
    return Frame(int(seq), prev, int(durable), line[-10:-2], type_, log, blob, line)


def _blob_before(line: bytes, data: int) -> str | None:
    if line[data - _BLOB_SIZE : data - _BLOB_SIZE + 9] != _BLOB:
        return None
    return line[data - 65 : data - 1].decode("ascii", "replace")


def blob_of(line: bytes) -> str | None:
    """Return the name of the payload that a good line keeps aside, if it does."""
    return _blob_before(line, line.index(DATA))


def frames_within(piece: bytes) -> Iterator[tuple[int, Frame]]:
    """Yield the good lines that end where a damaged piece ends, with their offsets.

    Looked for by heads, because the lost byte may be the newline between two. Of more
    than damage leaves, the first and the last ones are tried: each is a checksum.
    """
    starts = [match.start() for match in _HEAD.finditer(piece)]
    if len(starts) > 2 * _HEADS:
        starts = starts[:_HEADS] + starts[-_HEADS:]
    for start in starts:
        if found := parse(piece[start:]):
            yield start, found


def read_header(line: bytes) -> Header | None:
    """Return the header, None if it is damaged.

    A newer format is told by its number alone, whatever else it changed.
    """
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(members, dict):
        return None
    number = members.get("format")
    if isinstance(number, int) and number > FORMAT:
        return Header(number, "", 0, NO_PREV, 0)
    try:
        if not crc_is_good(line):
            return None
        return Header(
            number if isinstance(number, int) else 0,
            str(members["session"]),
            int(members["first"]),
            str(members["prev"]).encode(),
            int(members["time"]),
            str(members["log"]).encode() if "log" in members else None,
        )
    except (KeyError, TypeError, ValueError):
        return None


def seq_of(line: bytes) -> int:
    """Return the seq of a good line."""
    return int(line[7 : line.index(b",")])


def head_of(line: bytes) -> Head:
    """Return the head of a good line. Raises `ValueError` for one of other types."""
    members = orjson.loads(line[: line.index(DATA)] + b"}")
    head = Head(
        members["seq"],
        members["time"],
        members["type"],
        members.get("call"),
        members.get("key"),
        members.get("meta") or {},
    )
    for value, kinds in zip(head, _HEAD_TYPES, strict=True):
        if type(value) not in kinds:
            raise ValueError(f"{type(value).__name__} where {kinds[0].__name__} is")
    return head


def event_of(head: Head, line: bytes, blob: bytes | None) -> Event:
    """Return the event of a good line, its payload taken from ``blob`` if given."""
    raw = blob if blob is not None else line[line.index(DATA) + 8 : -_CRC_SIZE]
    return Event(head.seq, head.time, head.type, raw, head.call, head.key, head.meta)


def _split(chunk: bytes) -> Iterator[bytes]:
    """Yield what lies between newlines."""
    if chunk.count(b"\n") * _TINY_BYTES < len(chunk):
        yield from chunk.split(b"\n")
        return
    start = 0
    while (end := chunk.find(b"\n", start)) >= 0:
        yield chunk[start:end]
        start = end + 1
    yield chunk[start:]


def pieces(
    disk: Disk, fd: int, start: int, end: int
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (offset, bytes without newline, whether a newline ended them).

    Splits on byte 0x0A only. Reads up to ``end``, or to where the file ends.
    """
    parts: list[bytes] = []
    offset = position = start
    while position < end:
        chunk = disk.read(fd, min(_CHUNK_BYTES, end - position), position)
        if not chunk:
            break
        position += len(chunk)
        rest = _split(chunk)
        parts.append(next(rest))
        for piece in rest:
            line = parts[0] if len(parts) == 1 else b"".join(parts)
            yield offset, line, True
            offset += len(line) + 1
            parts = [piece]
    if last := b"".join(parts):
        yield offset, last, False
