"""Payloads aside: ``blobs/<SHA-256 in hex>``, durable before a record names them.

A blob that is there is trusted only if a record that was found in the log names it;
otherwise it may be a page that a failed sync dropped, and is written anew.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from durable_agent._fs import lstat_or_none, write_all
from durable_agent._lease import make_directory, refuse_links
from durable_agent._paths import is_file, join
from durable_agent.errors import LogCorruptError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from durable_agent._fs import Disk


def blob_name(raw: bytes) -> str:
    """Return the name of a payload: its content's hash."""
    return sha256(raw).hexdigest()


class Blobs:
    """The blobs of one session. ``trusted`` holds the names known durable."""

    def __init__(self, disk: Disk, directory: str, session: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = join(directory, "blobs")
        self._session = session
        self.trusted: set[str] = set()

    def store(self, payloads: Iterable[tuple[str, bytes]]) -> None:
        """Return when all payloads are durable under their names."""
        todo = {name: raw for name, raw in payloads if name not in self.trusted}
        if not todo:
            return
        make_directory(self._disk, self._path)
        for name, raw in todo.items():
            create_durably(self._disk, join(self._path, name), raw)
        self._disk.sync_dir(self._path)
        self._disk.sync_dir(self._directory)
        self.trusted.update(todo)

    def load(self, name: str, *, file: str, seq: int) -> bytes:
        """Return a payload. Raises `LogCorruptError` if it is missing or altered."""
        path = join(self._path, name)
        try:
            refuse_links(self._disk, self._path)
            fd = self._disk.open_read(path)
            try:
                size = self._disk.fstat(fd).st_size
                raw = self._disk.read(fd, size, 0)
            finally:
                self._disk.close(fd)
        except FileNotFoundError:
            raw = None
        except OSError as error:
            raise StoreError(
                f"A payload cannot be read: {error}.",
                session=self._session,
                file=path,
                seq=seq,
            ) from error
        if raw is None or blob_name(raw) != name:
            state = "missing" if raw is None else "damaged"
            raise LogCorruptError(
                f"The payload {name} of a record in {file} is {state}.",
                session=self._session,
                file=path,
                seq=seq,
                advice="Nothing was changed; restore the file from a copy.",
            )
        return raw


def create_durably(disk: Disk, path: str, content: bytes) -> None:
    """Put a file under its name with its content synced; the name is not synced yet.

    Written under a temporary name first, so the final name never shows part of it.
    """
    temporary = f"{path}.tmp"
    clear_temporary(disk, temporary)
    fd = disk.create(temporary)
    try:
        try:
            write_all(disk, fd, content)
            disk.sync(fd, metadata=True)
        finally:
            disk.close(fd)
        disk.rename(temporary, path)
    except OSError:
        discard(disk, temporary)
        raise


def clear_temporary(disk: Disk, path: str) -> None:
    """Remove what a crash left under a temporary name. Refuses a symlink there."""
    status = lstat_or_none(disk, path)
    if status is None:
        return
    if not is_file(status):
        raise StoreError("Something that is no file is in the way.", file=path)
    disk.unlink(path)


def discard(disk: Disk, path: str) -> None:
    """Remove a temporary file as far as that goes, on the way out of an error."""
    try:
        disk.unlink(path)
    except OSError:
        # The error that brought us here is the one to tell; opening clears the rest.
        return
