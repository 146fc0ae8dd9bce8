"""Making a crashed log usable: keep and cut what is torn, write the tail again.

Both happen after the whole log was read and judged, and in an order in which a second
crash at any point changes nothing: the copy is durable before anything is cut, the
cut before anything is appended.

Bytes that are visible may live in the page cache only, since a failed sync drops the
promise and not the page. So the events that no durable watermark covers are written
again in place, byte for byte, and synced, before anyone sees them. One case waits
until the first append: a tail that is nothing but the seal of a clean close. Nothing
is replayed from a seal, and whoever acts on it appends first; so a session that only
replays writes nothing.
"""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING, Final

from durable_agent._blobs import clear_temporary, discard
from durable_agent._fs import write_all, write_all_at
from durable_agent._lease import make_directory
from durable_agent._paths import join, name_of
from durable_agent.events import RUN_END
from durable_agent.store import Torn

if TYPE_CHECKING:
    from durable_agent._jsonl_read import Index, Segment

_COPY_BYTES: Final = 1 << 20
_SEAL: Final = RUN_END.encode()


def keep_and_cut(index: Index) -> tuple[Torn, ...]:
    """Copy a torn tail under ``torn/``, durably, then cut it off, durably."""
    if index.torn is None:
        return ()
    offset, size = index.torn
    segment = index.segments[-1]
    disk = index.disk
    source = disk.open_rewrite(segment.path)
    try:
        kept = _keep(index, source, segment, size)
        disk.truncate(source, offset)
        disk.sync(source, metadata=True)
    finally:
        disk.close(source)
    index.torn = None
    return (Torn(segment.path, offset, size, kept),)


def _keep(index: Index, source: int, segment: Segment, size: int) -> str:
    disk = index.disk
    folder = join(index.directory, "torn")
    make_directory(disk, folder)
    taken = set(disk.listdir(folder))
    stem = f"{name_of(segment.path)}.{segment.end}"
    number = next(n for n in count() if f"{stem}.{n}" not in taken)
    path = join(folder, f"{stem}.{number}")
    target = disk.create(path)
    try:
        for start in range(0, size, _COPY_BYTES):
            part = disk.read(
                source, min(_COPY_BYTES, size - start), segment.end + start
            )
            write_all(disk, target, part)
        disk.sync(target, metadata=True)
    except OSError:
        discard(disk, path)
        raise
    finally:
        disk.close(target)
    disk.sync_dir(folder)
    disk.sync_dir(index.directory)
    return path


def tail_is_only_a_seal(index: Index) -> bool:
    """Whether all that no watermark covers is the last line, and that is a seal."""
    return index.attested == index.next_seq - 2 and index.last_type == _SEAL


def write_tail_again(index: Index) -> int:
    """Write what no watermark covers again, in place; return how many bytes.

    On return all events of the index are durable, and their names. A segment without
    any event only has its name made durable: its header was synced before it got one.
    """
    written = 0
    if index.attested + 1 < index.next_seq:
        written = rewrite_tail(index, sync=True)
        index.attested = index.next_seq - 1
    index.disk.sync_dir(index.directory)
    return written


def rewrite_tail(index: Index, *, sync: bool) -> int:
    """Write the bytes of the events that no watermark covers again, in place.

    Without ``sync`` they are durable with the next sync of the file.
    """
    disk = index.disk
    segment = index.segments[-1]
    written = 0
    offset = segment.offsets[index.attested + 1 - segment.first]
    fd = disk.open_rewrite(segment.path)
    try:
        for start in range(offset, segment.end, _COPY_BYTES):
            part = disk.read(fd, min(_COPY_BYTES, segment.end - start), start)
            if not part:
                raise OSError(errno.EIO, "the log became shorter")
            write_all_at(disk, fd, part, start)
            written += len(part)
        if sync:
            disk.sync(fd, metadata=True)
    finally:
        disk.close(fd)
    return written


def clear_temporaries(index: Index) -> None:
    """Remove what a crash left under temporary names; what is no file is refused."""
    for folder in (index.directory, join(index.directory, "blobs")):
        try:
            names = index.disk.listdir(folder)
        except FileNotFoundError:
            continue
        for name in names:
            if name.endswith(".tmp"):
                clear_temporary(index.disk, join(folder, name))
