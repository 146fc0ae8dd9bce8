"""The lease of a session directory: one owner at a time, from open to close.

A kernel lock on ``lock`` is what counts; nothing else is taken for ownership, so a
killed owner never blocks anyone. The file's content, ``pid@host``, is for people: a
clean close empties it, so finding it there while the lock is free says who died.

The lock fences only as long as the path leads to the locked file. `Lease.check`
compares them; it must be asked before each batch and after each sync. Between two
checks a former owner is not kept from writing: fencing is advisory.

A forked child owns nothing: it can neither use nor release the lease.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from durable_agent._fs import lstat_or_none
from durable_agent._paths import identity, is_dir, is_file, join
from durable_agent.errors import (
    LeaseLostError,
    SessionBusyError,
    SessionForkedError,
    StoreError,
)

if TYPE_CHECKING:
    from durable_agent._fs import Disk, Lock

#: Attempts at a lock whose file is replaced under us, beyond any timeout.
_LEAST_TRIES: Final = 5
_POLL_SECONDS: Final = 0.02

#: Directories open in this process, with the pid that opened them.
_open: dict[str, int] = {}
_guard = threading.Lock()


def _forget() -> None:
    global _guard  # noqa: PLW0603 - a thread that is gone here may hold the old one
    _guard = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


class Lease:
    """A held lease. ``died`` names a former owner that did not close."""

    def __init__(
        self, disk: Disk, directory: str, session: str, lock: Lock, key: str
    ) -> None:
        self._disk = disk
        self._path = join(directory, "lock")
        self._session = session
        self._lock = lock
        self._key = key
        self._pid = os.getpid()
        self._identity = identity(disk.fstat(lock.fd))
        self._released = False
        self.died: str | None = disk.read_note(self._path) or None
        disk.write_note(lock, disk.whoami())

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process took it, and is no forked child of that one."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """Raise `SessionForkedError` in a child of the process that took it."""
        if os.getpid() != self._pid:
            raise SessionForkedError(
                "This session belongs to the parent process; a forked child neither "
                "writes nor unlocks it.",
                session=self._session,
                advice="Open a session of its own in the child.",
            )

    def check(self) -> None:
        """Raise `LeaseLostError` if the path no longer leads to the locked file."""
        status = lstat_or_none(self._disk, self._path)
        if status is None or identity(status) != self._identity:
            raise LeaseLostError(
                "The lock file was deleted or replaced, or its directory was moved: "
                "another owner may be writing.",
                session=self._session,
                file=self._path,
                advice="Nothing more is written; open the session again.",
            )

    def release(self) -> None:
        """Give it up. Does nothing in a forked child. Idempotent."""
        if self._released or os.getpid() != self._pid:
            return
        self._released = True
        try:
            self._disk.write_note(self._lock, "")
            self._lock.release()
        finally:
            with _guard:
                _open.pop(self._key, None)


def acquire(disk: Disk, directory: str, session: str, timeout: float) -> Lease:
    """Take the lease of a session, creating its directory and lock file.

    A second opening in one process is refused at once; another process is waited for
    up to ``timeout`` seconds. Raises `SessionBusyError`, naming the owner.
    """
    key = disk.realpath(directory)
    with _guard:
        if key in _open:
            raise SessionBusyError(
                "It is open in this process already.",
                session=session,
                pid=os.getpid(),
                advice="Close it first, or use the session that is open.",
            )
        _open[key] = os.getpid()
    try:
        return _acquire(disk, directory, session, timeout, key)
    except BaseException:
        with _guard:
            _open.pop(key, None)
        raise


def _acquire(
    disk: Disk, directory: str, session: str, timeout: float, key: str
) -> Lease:
    path = join(directory, "lock")
    deadline = time.monotonic() + timeout
    tries = 0
    while True:
        tries += 1
        make_directory(disk, directory)
        try:
            lock = disk.lock(path)
        except FileNotFoundError:
            lock = None  # The directory was deleted in between.
        if lock is not None:
            try:
                if _is_ours(disk, path, lock):
                    return Lease(disk, directory, session, lock, key)
            except BaseException:
                lock.release()
                raise
            lock.release()
        late = time.monotonic() >= deadline
        gone = lock is not None or lstat_or_none(disk, path) is None
        if late and not (gone and tries < _LEAST_TRIES):
            raise _busy(disk, path, session)
        disk.pause(0.0 if gone else _POLL_SECONDS)


def _is_ours(disk: Disk, path: str, lock: Lock) -> bool:
    """Whether the path leads to the file just locked: it may have been replaced."""
    status = disk.fstat(lock.fd)
    refuse_strange(disk, path, status)
    named = lstat_or_none(disk, path)
    return named is not None and identity(named) == identity(status)


def make_directory(disk: Disk, path: str) -> None:
    """Create a directory of our own if it is missing; refuse anything else there."""
    try:
        disk.mkdir(path)
    except FileExistsError:
        status = refuse_links(disk, path)
        if status is not None:
            refuse_strange(disk, path, status)


def refuse_links(disk: Disk, path: str) -> os.stat_result | None:
    """Raise `StoreError` for what is there and is no directory, or a symlink to one.

    Return its status, None if there is nothing.
    """
    status = lstat_or_none(disk, path)
    if status is not None and not is_dir(status):
        raise StoreError(
            "This must be a directory, and not a symbolic link to one.", file=path
        )
    return status


def refuse_strange(disk: Disk, path: str, status: os.stat_result) -> None:
    """Raise `StoreError` for what others own, or reach by another name as well.

    Whoever plants it would read what we write, or have us write into his file.
    """
    if disk.user() not in {None, status.st_uid}:
        raise StoreError(
            f"It belongs to another user (uid {status.st_uid}); it is left alone.",
            file=path,
            advice="Run as that user, or give the whole session to this one.",
        )
    if is_file(status) and status.st_nlink > 1:
        raise StoreError(
            "It has a second hard link; its content is left alone.",
            file=path,
            advice="Remove the link that is not ours.",
        )


def parse_note(note: str) -> tuple[int | None, str | None]:
    """Return pid and host of an owner's note, None for what it does not say."""
    pid, at, host = note.partition("@")
    return (int(pid) if pid.isdecimal() else None), (host if at else None)


def _busy(disk: Disk, path: str, session: str) -> SessionBusyError:
    note = disk.read_note(path)
    pid, host = parse_note(note)
    owner = f"in process {pid} on {host}" if pid is not None else "elsewhere"
    return SessionBusyError(
        f"It is open {owner}; nothing was read or written.",
        session=session,
        pid=pid,
        host=host,
        advice="Wait for it (lock_timeout=) or end it; locks of dead processes "
        "release themselves.",
    )
