"""Sessions as directories of JSON lines; this text specifies the format, version 1.

Files::

    <root>/<encoded session id>/
        lock                        kernel lock of the owner; "pid@host" for people
        00000000000000000000.jsonl  a segment, named after the seq of its first event
        00000000000000018311.jsonl
        blobs/<sha256>              payloads kept aside
        torn/<segment>.<offset>.<n> what recovery cut off
        *.tmp                       being created; never read, removed at the next open

Directory names are `_ids.encode_id` of the session id. A directory without segments,
with nothing in ``blobs`` and ``torn``, is no session. Segments are contiguous: each
begins with the seq after the last one of the segment before.

**Lines.** A segment is a sequence of lines, each ended by byte 0x0A, which no line
contains. UTF-8 JSON, members in a fixed order. The first line is the header::

    {"format":1,"session":"t-1","first":0,"prev":"00000000","time":…,"log":"c01d5eaf",
     "crc":"…"}

``first`` is the number in the file's name; ``prev`` is the checksum of the last event
before this segment; ``log`` is drawn at random when the log is made, the same in all
its segments. Every other line is one event::

    {"seq":1,"prev":"5f0c11d2","durable":0,"time":1764551234567890123,"type":"tool/call",
     "log":"c01d5eaf","call":"c1","key":"9f…","meta":{"attempt":1},"data":{"n":1},
     "crc":"9a8b7c6d"}

(each on one line). ``seq``, ``prev``, ``durable``, ``time``, ``type`` and ``log``
(whose line it is) begin each event, in this order. ``call``, ``key``, ``meta`` and
``blob`` are absent where there is nothing to say; unknown members may stand between
``log`` and ``blob`` and are ignored. No member before the payload is called ``data``,
so the first ``,"data":`` ends the head, and the payload is the bytes from there to
``,"crc":`` 18 bytes before the end, exactly as appended. ``blob``, if present, is the
last member of the head: the payload is the file of that name (its SHA-256), and
``data`` is null. Payloads above a threshold, or with a newline in them, are kept so.

* ``crc``: CRC-32 (zlib), 8 lower-case hex digits, of all bytes of the line before
  ``,"crc"``.
* ``prev``: the ``crc`` of the event before, across segments; "00000000" at seq 0.
* ``durable``: the *watermark*, the highest seq known to be on stable storage when the
  line was made; -1 for none. A line attests all events up to its watermark; a header
  attests all events before its segment. The seal, ``run/end``, has the seq before its
  own: what precedes it was synced before it was written.
* ``time``: nanoseconds since the epoch, information only.

**Reading.** Take lines in order. A line is good if its checksum holds, its head has
the form above and this log's ``log``, its ``seq`` is the next one and its ``prev`` the
checksum of the event before. An exact duplicate of an earlier line is skipped.
Anything else is damage:

* Bytes that fail, followed by a good line that continues the chain, are junk, skipped:
  nothing is missing. A good line may begin inside junk (a lost newline); it is found by
  ``{"seq":`` and must end where the junk line ends.
* A line of another ``log`` is damage whatever it says: a disk block that was another
  file's before a power cut.
* *Conflict*: a good line, not behind damage, with a ``seq`` already taken or expected
  but other bytes or another ``prev``: two writers. Refused. Behind damage it may be
  what an old disk block held, and is part of the damage.
* *Corrupt*: damage in a segment that is not the last, a bad header, a missing segment;
  or damage at seq n with any good line later in the file whose watermark is n or more.
  Refused, nothing is changed.
* *Torn*: any other damage in the last segment. The log ends before it, whatever good
  lines follow: a power cut may lose a sector and keep the next. A flipped bit in the
  last lines, which nothing later attests, cannot be told from a tear.
* *Unsupported*: a header with a higher ``format``, whatever its checksum; a line with
  a good checksum and another form (a header inside a segment is plain damage: an old
  disk block). And, for a writer, an event type of this package's namespaces that it
  does not know, unless ``meta`` has ``"ignorable":true``.

**Writing.** One owner holds the lock from open to close and compares path, inode and
length before each batch. A segment is created under a temporary name with its header,
synced, renamed, its directory synced; the first one with the directory above. Lines
are appended in ``seq`` order in one write a batch. A blob is created like a segment,
and durable, name and all, before its line is written. A barrier is one sync of the
whole file. A segment that has reached the roll size after a barrier's sync is followed
by a new one within that barrier, when everything in it is synced. After any failed
write or sync the handle is of no more use; nothing is tried again.

**Opening for writing.** Read and judge everything first. Copy a torn tail under
``torn``, sync the copy and its names, cut the segment, sync it. Write the events above
the highest watermark again, the same bytes in place, sync file and directory: what is
visible may be a page that a failed sync dropped. If those events are the seal alone,
that is put off to just before the first append, and synced with it: nothing is
replayed from a seal, so opening and closing a finished log writes nothing.

A failed barrier does not prove its events absent: they may be there after opening.

Fencing is advisory: a former owner that lost its lock is stopped at its next batch or
barrier, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from durable_agent import _recover, _shelf
from durable_agent._blobs import Blobs
from durable_agent._fs import Disk, lstat_or_none
from durable_agent._ids import encode_id
from durable_agent._jsonl_log import JsonlLog, JsonlReader
from durable_agent._jsonl_read import unreadable
from durable_agent._jsonl_scan import scan
from durable_agent._lease import acquire, refuse_links
from durable_agent._paths import absolute, join
from durable_agent.errors import (
    LogCorruptError,
    LogUnsupportedError,
    SessionNotFoundError,
    StoreError,
)
from durable_agent.store import OpenReport, Torn

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from durable_agent._jsonl_read import Index
    from durable_agent._lease import Lease
    from durable_agent.store import SessionInfo

#: A segment is followed by a new one from this size on.
_ROLL_BYTES: Final = 64 << 20
#: Payloads above this size are kept aside.
_BLOB_BYTES: Final = 1 << 20
#: Readings of a log that seems damaged while its owner repairs or extends it.
_INSPECT_TRIES: Final = 3

__all__ = ["JsonlLog", "JsonlReader", "JsonlStore"]


class JsonlStore:
    """Sessions under one directory of a local file system.

    The root is made absolute once and created by the first opening for writing.
    ``fs`` stands in for the disk. ``allow_unsynced`` accepts a file system that cannot
    sync files; nothing is then promised to survive power loss. With ``gitignore`` a new
    root gets a ``.gitignore`` that keeps it out of version control.
    """

    eager: Literal["process", "none"] = "process"
    durability: Literal["power", "server", "none"] = "power"
    fencing: Literal["atomic", "advisory"] = "advisory"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        fs: Disk | None = None,
        roll_bytes: int = _ROLL_BYTES,
        blob_bytes: int = _BLOB_BYTES,
        allow_unsynced: bool = False,
        gitignore: bool = False,
    ) -> None:
        self.root = absolute(root)
        self._disk = Disk() if fs is None else fs
        if allow_unsynced:
            self._disk.allow_unsynced = True
            self.durability = "none"
        self._roll_bytes = roll_bytes
        self._blob_bytes = blob_bytes
        self._gitignore = gitignore

    def __repr__(self) -> str:
        return f"JsonlStore({self.root!r})"

    def open(self, session_id: str, *, lock_timeout: float = 0.0) -> JsonlLog:
        """Take the lease, judge the log, and repair a torn tail.

        For a session that does not exist only its directory and lock file are made.
        Raises `SessionBusyError`, `LogCorruptError`, `LogUnsupportedError` and
        `StoreError`, each with the log unchanged.
        """
        directory = self._directory(session_id)
        try:
            if _shelf.make_root(self._disk, self.root) and self._gitignore:
                _shelf.ignore_in_git(self._disk, self.root)
            refuse_links(self._disk, directory)
            lease = acquire(self._disk, directory, session_id, lock_timeout)
        except StoreError:
            raise
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise StoreError(
                f"The session cannot be opened: {error}.",
                session=session_id,
                file=directory,
            ) from error
        try:
            return self._open(directory, session_id, lease)
        except BaseException:
            lease.release()
            raise

    def _open(self, directory: str, session_id: str, lease: Lease) -> JsonlLog:
        index = scan(self._disk, directory, session_id, owner=True)
        if index.unsupported is not None:
            seq, type_, path = index.unsupported
            raise LogUnsupportedError(
                f"This version does not know events of type {type_!r}.",
                session=session_id,
                file=path,
                seq=seq,
                advice="Nothing was changed; use a newer version of durable_agent.",
            )
        blobs = Blobs(self._disk, directory, session_id)
        blobs.trusted = {*index.blobs}
        try:
            torn = _recover.keep_and_cut(index)
            rewritten = 0
            if not _recover.tail_is_only_a_seal(index):
                if index.attested < index.next_seq - 1:
                    rewritten = _recover.write_tail_again(index)
                _recover.clear_temporaries(index)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(
                f"The log cannot be recovered: {error}.",
                session=session_id,
                file=directory,
                advice="It is as readable as before; open it again.",
            ) from error
        report = OpenReport(
            session_id,
            directory,
            existed=index.next_seq > 0,
            events=index.next_seq,
            torn=torn,
            rewritten=rewritten,
            died=lease.died,
        )
        return JsonlLog(
            index,
            blobs,
            report,
            lease,
            roll_bytes=self._roll_bytes,
            blob_bytes=self._blob_bytes,
        )

    def inspect(self, session_id: str) -> JsonlReader:
        """Read what is there, beside an owner or not; never writes, takes no lock.

        Stops before a torn tail, which the report shows with nothing kept. Raises
        `SessionNotFoundError` if there is no event, and the errors of ``open``.
        """
        directory = self._directory(session_id)
        index = self._scan_beside(directory, session_id)
        if index is None or index.next_seq == 0:
            raise SessionNotFoundError(
                "There is no such session.",
                session=session_id,
                advice=f"Looked in {self.root}.",
            )
        torn: tuple[Torn, ...] = ()
        if index.torn is not None:
            torn = (Torn(index.segments[-1].path, *index.torn, kept=""),)
        report = OpenReport(
            session_id, directory, existed=True, events=index.next_seq, torn=torn
        )
        return JsonlReader(index, Blobs(self._disk, directory, session_id), report)

    def _scan_beside(self, directory: str, session_id: str) -> Index | None:
        tries = 0
        while True:
            tries += 1
            try:
                refuse_links(self._disk, directory)
                if lstat_or_none(self._disk, directory) is None:
                    return None
                return scan(self._disk, directory, session_id)
            except LogCorruptError:
                # An owner may have cut or rotated between two reads of ours.
                if tries == _INSPECT_TRIES:
                    raise
            except StoreError:
                raise
            except OSError as error:
                raise unreadable(session_id, directory, error) from error

    def list(self) -> Iterator[SessionInfo]:
        """Yield what is there, by directory name; reads one line of each session.

        ``busy`` is what the owner wrote down and whether that process lives: a hint.
        """
        return _shelf.sessions(self._disk, self.root)

    def delete(self, session_id: str) -> None:
        """Rename the session aside, durably, then remove its files.

        Raises `SessionNotFoundError`, and `SessionBusyError` while it is open.
        """
        _shelf.delete(self._disk, self.root, self._directory(session_id), session_id)

    def _directory(self, session_id: str) -> str:
        return join(self.root, encode_id(session_id))
