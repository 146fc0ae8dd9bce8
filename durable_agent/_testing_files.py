"""Files and directories of a simulated disk: what is seen, and what is safe.

A file has three contents: what readers see (``now``), what syncing it would put on the
platter (``kept``; a failed sync makes it another), and what the last sync did put
there (``safe``), with the changes since.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Literal

from attrs import define, field, frozen

from durable_agent._fs import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Bytes written at an offset, or (None) the file cut or extended to that size.
Change = tuple[int, "bytes | None"]


#: What a plan may answer beside None: take only a part, or fail a sync for good.
Verdict = Literal["short", "lost"]


class PowerCut(BaseException):
    """The simulated machine has stopped: nothing more is done on this disk.

    No `Exception`, so that no code on the way treats it as a failed operation.
    """


@frozen
class Operation:
    """One operation that a disk is asked for: which in order, its method, its path."""

    number: int
    name: str
    path: str


class SimulatedLock(Lock):
    """A lock on a file of a simulated disk."""

    def __init__(self, held: set[int], number: int, fd: int) -> None:
        self._held = held
        self._number = number
        self.fd = fd

    def release(self) -> None:
        """Release it. Idempotent."""
        self._held.discard(self._number)


@frozen
class Mark:
    """What a file held when a sync of it began."""

    content: bytes
    changes: int


@define(eq=False)
class File:
    """A file: as it is read, and as it would be found."""

    number: int
    #: Where it was made, for messages.
    path: str = ""
    now: bytearray = field(factory=bytearray)
    kept: bytearray = field(factory=bytearray)
    safe: bytes = b""
    changes: list[Change] = field(factory=list)
    #: How many changes there were before these.
    settled: int = 0

    def change(self, offset: int, data: bytes | None) -> None:
        """Write bytes at an offset; without any, make the file that long."""
        for content in (self.now, self.kept):
            apply(content, [(offset, data)])
        self.changes.append((offset, data))

    def mark(self) -> Mark:
        """Return what a sync that begins now writes."""
        return Mark(bytes(self.kept), self.settled + len(self.changes))

    def settle(self, begun: Mark) -> None:
        """Make what was there when a sync began safe; a later sync may have."""
        if begun.changes > self.settled:
            self.safe = begun.content
            del self.changes[: begun.changes - self.settled]
            self.settled = begun.changes

    def lose(self, begun: Mark) -> None:
        """Take what a failed sync was to write for written, though it is not.

        It stays visible until the machine is started anew; the size is remembered.
        """
        if begun.changes > self.settled:
            later = self.changes[begun.changes - self.settled :]
            self.changes = [(len(begun.content), None), *later]
            self.settled = begun.changes - 1
            self.kept = bytearray(self.safe)
            apply(self.kept, [*self.changes, (len(self.now), None)])


@define(eq=False)
class Directory:
    """A directory: the names as they are seen, and as they are safe."""

    number: int
    path: str = ""
    now: dict[str, File | Directory] = field(factory=dict)
    safe: dict[str, File | Directory] = field(factory=dict)


@define(eq=False)
class Renaming:
    """Names that change as a whole: (directory, name) to what it then names."""

    names: dict[tuple[Directory, str], File | Directory | None]


@frozen
class Status:
    """What is asked of ``os.stat_result``."""

    st_mode: int
    st_ino: int
    st_size: int
    st_nlink: int = 1
    st_dev: int = 1
    st_uid: int = field(factory=getattr(os, "getuid", lambda: 0))
    st_gid: int = field(factory=getattr(os, "getgid", lambda: 0))
    st_mtime: float = 0.0
    st_mtime_ns: int = 0


def status(node: File | Directory) -> Status:
    """Return the status of a file (0600) or a directory (0700)."""
    if isinstance(node, Directory):
        return Status(stat.S_IFDIR | 0o700, node.number, 0)
    return Status(stat.S_IFREG | 0o600, node.number, len(node.now))


def apply(content: bytearray, changes: Iterable[Change]) -> None:
    """Make changes to a content, in order; a hole reads as zeros."""
    for offset, data in changes:
        end = offset if data is None else offset + len(data)
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        if data is None:
            del content[end:]
        else:
            content[offset:end] = data


def files(top: Directory) -> Iterator[File]:
    """Yield every file below a directory once, as the names are now."""
    seen: set[int] = set()
    rest: list[File | Directory] = [top]
    while rest:
        node = rest.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if isinstance(node, File):
            yield node
        else:
            rest.extend(node.now.values())


def room_for(top: Directory, capacity: int | None, size: int) -> int:
    """Return how many bytes of a size fit on a disk of a capacity."""
    if capacity is None:
        return size
    return max(0, min(size, capacity - sum(len(file.now) for file in files(top))))


def named(top: Directory, path: str = "") -> Iterator[tuple[str, File]]:
    """Yield path and file of each name below a directory."""
    for name, node in sorted(top.now.items()):
        if isinstance(node, File):
            yield f"{path}/{name}", node
        else:
            yield from named(node, f"{path}/{name}")


def copied(top: Directory) -> Directory:
    """Return a copy of a directory and all below it, as seen, all of it safe."""
    made = Directory(top.number, top.path)
    for name, node in top.now.items():
        if isinstance(node, File):
            content = bytes(node.now)
            copy = bytearray(content)
            made.now[name] = File(
                node.number, node.path, copy, bytearray(copy), content
            )
        else:
            made.now[name] = copied(node)
    made.safe = dict(made.now)
    return made


def walk(top: Directory, path: str) -> File | Directory:
    """Return what is at a path. Raises what the operating system does."""
    node: File | Directory = top
    for part in filter(None, path.split("/")):
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        if part not in node.now:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        node = node.now[part]
    return node


def directory_at(top: Directory, path: str) -> Directory:
    """Return the directory at a path. Raises what the operating system does."""
    node = walk(top, path)
    if isinstance(node, File):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
    return node


def place_of(top: Directory, path: str) -> tuple[Directory, str]:
    """Return the directory that a path is in, and its name there."""
    parent, _, name = path.rpartition("/")
    return directory_at(top, parent), name
