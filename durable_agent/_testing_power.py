"""What a power cut may leave of a simulated disk.

The rules are those of POSIX as file systems keep them. A synced file holds what it held
when the sync began. Of what was written since, each sector (512 bytes) may be there,
older, or zeros; the file may end at any byte between its sizes since then; sectors
that were given to it anew may hold what they held for another file. A name is safe
once its directory was synced; others changed or did not in any combination, a renaming
as a whole, or, on a journaling file system, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from durable_agent._testing_files import Directory, File, apply, files

if TYPE_CHECKING:
    import random

    from durable_agent._testing_files import Renaming

SECTOR: Final = 512
#: How likely it is that a sector that was allocated anew holds another file's bytes.
_STALE: Final = 0.1


def cut_power(
    top: Directory,
    renamings: list[Renaming],
    choices: random.Random,
    *,
    ordered: bool = False,
) -> Directory:
    """Return the files of a disk as they may be found after a power cut."""
    happened = _happened(renamings, choices, ordered=ordered)
    stale = [bytes(file.now) for file in files(top) if file.now]
    return _Survivors(happened, stale, choices).directory(top)


def _happened(
    renamings: list[Renaming], choices: random.Random, *, ordered: bool
) -> dict[Directory, dict[str, File | Directory | None]]:
    """Choose which changes of names reached the platter; return them by directory."""
    if ordered:
        chosen = renamings[: choices.randint(0, len(renamings))]
    else:
        # All, none, or any: the ends are what most programs forget.
        likely = choices.choice((0.0, 0.5, 0.9, 1.0))
        chosen = [each for each in renamings if choices.random() < likely]
    found: dict[Directory, dict[str, File | Directory | None]] = {}
    for renaming in chosen:
        for (directory, name), node in renaming.names.items():
            found.setdefault(directory, {})[name] = node
    return found


class _Survivors:
    """Copies of what survived, each file once."""

    def __init__(
        self,
        happened: dict[Directory, dict[str, File | Directory | None]],
        stale: list[bytes],
        choices: random.Random,
    ) -> None:
        self._happened = happened
        self._stale = stale
        self._choices = choices
        self._made: dict[int, File | Directory] = {}

    def directory(self, node: Directory) -> Directory:
        copy = Directory(node.number, node.path)
        self._made[node.number] = copy
        names: dict[str, File | Directory | None] = dict(node.safe)
        names.update(self._happened.get(node, {}))
        for name, child in sorted(names.items()):
            if child is not None:
                copy.now[name] = self._made.get(child.number) or self._copied(child)
        copy.safe = dict(copy.now)
        return copy

    def _copied(self, node: File | Directory) -> File | Directory:
        if isinstance(node, Directory):
            return self.directory(node)
        content = torn(node, self._stale, self._choices)
        copy = File(
            node.number, node.path, bytearray(content), bytearray(content), content
        )
        self._made[node.number] = copy
        return copy


def torn(file: File, stale: list[bytes], choices: random.Random) -> bytes:
    """Return what may be read back of a file."""
    versions = [file.safe]
    content = bytearray(file.safe)
    for change in file.changes:
        apply(content, [change])
        versions.append(bytes(content))
    likely = choices.random()
    if likely < 0.1:  # noqa: PLR2004 - a tenth each: nothing and all of it was written
        return versions[0]
    if likely > 0.9:  # noqa: PLR2004 - see above
        return versions[-1]
    sizes = sorted({len(version) for version in versions})
    size = choices.choice([choices.randint(sizes[0], sizes[-1]), sizes[-1]])
    found = bytearray()
    for start in range(0, size, SECTOR):
        end = min(start + SECTOR, size)
        found += _sector(versions, slice(start, end), stale, choices)
    return bytes(found)


def _sector(
    versions: list[bytes],
    where: slice,
    stale: list[bytes],
    choices: random.Random,
) -> bytes:
    """Choose what a sector holds: what it held at any time since the sync, or none."""
    start, end = where.start, where.stop
    held = list(dict.fromkeys(version[start:end] for version in versions))
    if len(held) == 1 and len(held[0]) == end - start:
        return held[0]
    new = start >= len(versions[0])
    if new and stale and choices.random() < _STALE:
        # A block that was freed and given to this file, not written yet.
        old = choices.choice(stale)
        at = choices.randrange(0, len(old), SECTOR)
        return old[at : at + end - start].ljust(end - start, b"\0")
    # The newest is the likeliest: it is the one that leads somewhere.
    chosen = choices.choice([*held, held[-1], held[-1], b""] if new else held)
    return chosen.ljust(end - start, b"\0")
