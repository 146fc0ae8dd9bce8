"""The root directory: making it, listing what is in it, deleting from it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from durable_agent import _segment
from durable_agent._fs import lstat_or_none
from durable_agent._ids import decode_id
from durable_agent._lease import acquire, parse_note
from durable_agent._paths import is_dir, join, name_of, parent_of
from durable_agent.errors import LogUnsupportedError, SessionNotFoundError, StoreError
from durable_agent.events import FORMAT
from durable_agent.store import SessionInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent._fs import Disk

#: No encoded id begins with a dot.
_ASIDE: Final = ".deleted-"
#: A header is one short line; ids may be long.
_HEADER_BYTES: Final = 1 << 16


#: Keeps sessions out of version control.
_GITIGNORE: Final = b"*\n"


def ignore_in_git(disk: Disk, root: str) -> None:
    """Write a ``.gitignore`` into a new root; nothing depends on it."""
    try:
        fd = disk.create(join(root, ".gitignore"))
    except FileExistsError:
        return
    try:
        disk.write(fd, _GITIGNORE)
    finally:
        disk.close(fd)


def make_root(disk: Disk, root: str) -> bool:
    """Create the root and what is missing above it, each level durable in turn.

    Return whether the root is new.

    The parent of the lowest level that was found is synced too: whoever made that
    may have been cut off before its own sync.
    """
    missing: list[str] = []
    path = root
    while True:
        try:
            disk.mkdir(path)
        except FileExistsError:
            break
        except FileNotFoundError:
            missing.append(path)
            path = parent_of(path)
            continue
        missing.append(path)
        break
    if not missing:
        return False
    with suppress(PermissionError):
        disk.sync_dir(parent_of(parent_of(path)))
    for level in reversed(missing):
        with suppress(FileExistsError):
            disk.mkdir(level)
        disk.sync_dir(parent_of(level))
    return True


def sessions(disk: Disk, root: str) -> Iterator[SessionInfo]:
    """Yield a line for each session; one that cannot be read says why."""
    try:
        names = disk.listdir(root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"The sessions cannot be listed: {error}.", file=root
        ) from error
    for name in names:
        if not name.startswith("."):
            info = _session(disk, join(root, name), name)
            if info is not None:
                yield info


def _session(disk: Disk, directory: str, name: str) -> SessionInfo | None:
    session_id = decode_id(name)
    try:
        status = lstat_or_none(disk, directory)
        if status is None or not is_dir(status):
            return None
        segments = [n for n in disk.listdir(directory) if _segment.NAME.fullmatch(n)]
        if not segments:
            return None
        size = sum(_sizes(disk, directory))
        header = _first_header(disk, join(directory, segments[0]))
    except OSError as error:
        return SessionInfo(session_id or name, directory, None, 0, 0, str(error))
    busy = _busy(disk, directory)
    if header is None or int(segments[0][:20]) != 0:
        problem = "its first segment is damaged or missing"
        return SessionInfo(session_id or name, directory, busy, 0, size, problem)
    if header.format > FORMAT:
        problem = str(LogUnsupportedError(f"format {header.format} is newer"))
        return SessionInfo(session_id or name, directory, busy, 0, size, problem)
    return SessionInfo(header.session, directory, busy, header.time, size)


def _first_header(disk: Disk, path: str) -> _segment.Header | None:
    fd = disk.open_read(path)
    try:
        start = disk.read(fd, _HEADER_BYTES, 0)
    finally:
        disk.close(fd)
    line, newline, _ = start.partition(b"\n")
    return _segment.read_header(line) if newline else None


def _sizes(disk: Disk, directory: str) -> Iterator[int]:
    """Yield the sizes of all files in a session's directory."""
    for name in disk.listdir(directory):
        path = join(directory, name)
        status = lstat_or_none(disk, path)
        if status is None:
            continue
        if is_dir(status):
            yield from _sizes(disk, path)
        elif name != "lock":
            yield status.st_size


def _busy(disk: Disk, directory: str) -> bool | None:
    """Judge by the owner's note; trying the lock would turn an opening away."""
    note = disk.read_note(join(directory, "lock"))
    if not note:
        return False
    pid, host = parse_note(note)
    if pid is None or host != parse_note(disk.whoami())[1]:
        return None
    return disk.is_alive(pid)


def delete(disk: Disk, root: str, directory: str, session_id: str) -> None:
    """Delete one session, or raise with all of it there.

    An error from the moment on at which it is out of the way says that it is deleted.
    """
    gone = False
    aside = join(root, f"{_ASIDE}{name_of(directory)}")
    try:
        if lstat_or_none(disk, directory) is None:
            raise _not_found(root, session_id)
        lease = acquire(disk, directory, session_id, 0.0)
        try:
            if set(disk.listdir(directory)) <= {"lock"}:
                raise _not_found(root, session_id)
            while lstat_or_none(disk, aside) is not None:
                aside += "~"
            try:
                disk.rename(directory, aside)
            except PermissionError:
                # Where an open file keeps its directory in place (Windows).
                lease.release()
                disk.rename(directory, aside)
            gone = True
        finally:
            lease.release()
        disk.sync_dir(root)
        for name in disk.listdir(root):
            if name.startswith(_ASIDE):
                _remove(disk, join(root, name))
    except (StoreError, TimeoutError):
        raise
    except OSError as error:
        if gone:
            raise StoreError(
                f"The session is deleted, but files of it are left: {error}.",
                session=session_id,
                file=aside,
                advice="The next deletion removes them.",
            ) from error
        raise StoreError(
            f"The session cannot be deleted: {error}.",
            session=session_id,
            file=directory,
        ) from error


def _remove(disk: Disk, path: str) -> None:
    """Remove a tree, following no links; what another process removed is fine."""
    with suppress(FileNotFoundError):
        for name in disk.listdir(path):
            inner = join(path, name)
            status = lstat_or_none(disk, inner)
            if status is not None and is_dir(status):
                _remove(disk, inner)
            elif status is not None:
                with suppress(FileNotFoundError):
                    disk.unlink(inner)
        disk.rmdir(path)


def _not_found(root: str, session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(
        "There is no such session.", session=session_id, advice=f"Looked in {root}."
    )
