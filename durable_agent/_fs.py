"""The disk: the only module that opens, writes, syncs, renames, locks and stats.

Each method is one operation, so that a test can count, fail or kill at each, and a
simulated disk can stand in. Nothing here knows about logs. Guarantees:

* Files are 0600 and directories 0700 from creation on, whatever the umask.
* Nothing is ever opened with truncation, nothing follows a symlink at the last
  component of a path, and no descriptor is inherited by an executed program.
* ``sync`` returns only after the file's data is on stable storage: ``F_FULLFSYNC``
  where the platform has it (with a fall-back where the file system refuses it),
  ``fdatasync`` or ``fsync`` elsewhere. A file system that has no sync at all is an
  error, unless ``allow_unsynced``.
* ``sync_dir`` tolerates file systems without directory syncs, and says so once.
* ``rename`` and ``unlink`` retry what a foreign reader's open handle does on Windows,
  a bounded number of times, and never anything else.
"""

# Paths are strings here: each method is one call to the operating system.
# ruff: noqa: PTH101, PTH102, PTH105, PTH106, PTH108, PTH208
from __future__ import annotations

import errno
import logging
import os
import platform
import stat
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import filelock

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]  # a platform without it

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("durable_agent")

_FILE_MODE: Final = 0o600
_DIR_MODE: Final = 0o700
#: Flags that some platforms do not have.
_SAFE: Final = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)
#: What a file system without this kind of sync answers.
_NO_SYNC: Final = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY}
)
#: "Access denied" and "sharing violation": somebody has the file open.
_WINDOWS_BUSY: Final = frozenset({5, 32})
#: Attempts at a rename that such a reader blocks; waits double from 10 ms.
_RENAME_TRIES: Final = 6


class Lock:
    """A held kernel lock and the descriptor it is on. Not inherited by a fork."""

    def __init__(self, lock: filelock.BaseFileLock, fd: int) -> None:
        self._lock = lock
        self.fd = fd

    def release(self) -> None:
        """Release it; the file stays. Idempotent."""
        self._lock.release(force=True)


class Disk:
    """The operating system's files."""

    #: The fcntl command for a real sync where ``fsync`` is none (macOS), or None.
    fullfsync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    #: Syncs the data and what is needed to read it back.
    datasync: Callable[[int], None] = staticmethod(getattr(os, "fdatasync", os.fsync))
    #: Whether a directory can be opened and synced at all.
    syncs_dirs: bool = os.name != "nt"

    def __init__(self, *, allow_unsynced: bool = False) -> None:
        #: Accept a file system that cannot sync: nothing then survives power loss.
        self.allow_unsynced = allow_unsynced
        self._told: set[str] = set()
        self._seek = threading.Lock()

    # -- open and create ------------------------------------------------------

    def open_read(self, path: str) -> int:
        """Open a file for reading."""
        return os.open(path, os.O_RDONLY | _SAFE)

    def open_append(self, path: str) -> int:
        """Open an existing file for writing at its end, wherever that is."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | _SAFE)

    def open_rewrite(self, path: str) -> int:
        """Open an existing file for writing in place (``O_APPEND`` would append)."""
        return os.open(path, os.O_RDWR | _SAFE)

    def create(self, path: str) -> int:
        """Create a file that does not exist, for appending."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE
        fd = os.open(path, flags, _FILE_MODE)
        try:
            # A umask may only have taken bits away; nothing was ever wider.
            if stat.S_IMODE(os.fstat(fd).st_mode) != _FILE_MODE and os.name != "nt":
                os.fchmod(fd, _FILE_MODE)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def mkdir(self, path: str) -> None:
        """Create one directory. Raises `FileExistsError`."""
        os.mkdir(path, _DIR_MODE)
        if os.name != "nt" and os.lstat(path).st_mode & _DIR_MODE != _DIR_MODE:
            os.chmod(path, _DIR_MODE)

    # -- bytes ----------------------------------------------------------------

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Read up to ``size`` bytes at ``offset``; fewer only at the end."""
        if hasattr(os, "pread"):
            data = os.pread(fd, size, offset)
        else:  # pragma: no cover - Windows
            with self._seek:
                os.lseek(fd, offset, os.SEEK_SET)
                data = os.read(fd, size)
        return data

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write once; return how many bytes were taken, which may be fewer."""
        return os.write(fd, data)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write once at ``offset`` of a file opened with ``open_rewrite``."""
        if hasattr(os, "pwrite"):
            return os.pwrite(fd, data, offset)
        with self._seek:  # pragma: no cover - Windows
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(fd, size)

    # -- syncs ----------------------------------------------------------------

    def sync(self, fd: int, *, metadata: bool = False) -> None:
        """Return when the whole file is on stable storage. Never retries a failure.

        ``metadata`` syncs everything about the file, not only what reading needs.
        """
        try:
            if self.fullfsync is not None:
                self._full_sync(fd, self.fullfsync)
            elif metadata:
                os.fsync(fd)
            else:
                self.datasync(fd)
        except OSError as error:
            if error.errno not in _NO_SYNC or not self.allow_unsynced:
                raise
            self._tell(
                "file",
                "This file system cannot sync files: nothing survives power loss.",
            )

    def _full_sync(self, fd: int, command: int) -> None:
        try:
            fcntl.fcntl(fd, command)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
            # Network and FUSE file systems refuse it; fsync is the best they have.
            os.fsync(fd)

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on stable storage."""
        if not self.syncs_dirs:
            return
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
            self._tell("dir", "This file system cannot sync directories; going on.")
        finally:
            os.close(fd)

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning(text)

    # -- names ----------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory its final name, replacing a file of that name."""
        self._insist(lambda: os.replace(source, target))

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self._insist(lambda: os.unlink(path))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._insist(lambda: os.rmdir(path))

    def _insist(self, action: Callable[[], None]) -> None:
        attempt = 1
        while True:
            try:
                return action()
            except PermissionError as error:
                busy = getattr(error, "winerror", None) in _WINDOWS_BUSY
                if not busy or attempt == _RENAME_TRIES:
                    raise
            self.pause(0.005 * 2**attempt)
            attempt += 1

    def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        time.sleep(seconds)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def realpath(self, path: str) -> str:
        """Return the absolute path without symlinks."""
        return os.path.realpath(path)

    def lstat(self, path: str) -> os.stat_result:
        """Return the status of what is at a path, a symlink included."""
        return os.lstat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    # -- the lock -------------------------------------------------------------

    def lock(self, path: str) -> Lock | None:
        """Try once to take the kernel lock on a file, creating it; None if held.

        The file is neither truncated nor ever deleted; a symlink there is an error.
        """
        got: list[int] = []
        lock = filelock.FileLock(
            path,
            mode=_FILE_MODE,
            thread_local=False,
            fallback_to_soft=False,
            preserve_lock_file=True,
            on_acquired=got.append,
        )
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            return None
        return Lock(lock, got[0])

    def write_note(self, lock: Lock, text: str) -> None:
        """Replace the content of a held lock file: who owns it, for people."""
        with suppress(OSError):
            os.ftruncate(lock.fd, 0)
            os.lseek(lock.fd, 0, os.SEEK_SET)
            os.write(lock.fd, text.encode())

    def read_note(self, path: str) -> str:
        """Return the content of a lock file, "" if there is none to be had."""
        try:
            fd = os.open(path, os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return ""
        try:
            return os.read(fd, 512).decode("utf-8", "replace").strip()
        except OSError:
            return ""
        finally:
            os.close(fd)

    def whoami(self) -> str:
        """Return "pid@host" of this process."""
        return f"{os.getpid()}@{platform.node()}"

    def user(self) -> int | None:
        """Return the user that files of ours belong to; None where files have none."""
        return os.geteuid() if hasattr(os, "geteuid") else None

    def is_alive(self, pid: int) -> bool | None:
        """Whether a process of this host lives; None where that cannot be told."""
        if sys.platform == "win32":  # pragma: no cover - signal 0 would end it there
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            return True
        return True


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write everything or raise; what was taken before an error stays in the file."""
    view = memoryview(data)
    while view:
        taken = disk.write(fd, view)
        if taken <= 0:
            raise OSError(errno.EIO, "the file took no bytes")
        view = view[taken:]


def write_all_at(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """As `write_all`, in place."""
    view = memoryview(data)
    while view:
        taken = disk.write_at(fd, view, offset)
        if taken <= 0:
            raise OSError(errno.EIO, "the file took no bytes")
        view = view[taken:]
        offset += taken


def lstat_or_none(disk: Disk, path: str) -> os.stat_result | None:
    """Return the status of a path, None only if there is provably nothing."""
    try:
        return disk.lstat(path)
    except FileNotFoundError:
        return None
