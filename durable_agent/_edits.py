"""Model requests as differences: how one is written. Pure; nothing is read.

The format is described in ``events``. An edit is written only where it is shorter, and
only of parts whose digests are those of what stands elsewhere: the whole arguments
come back byte for byte.

Reading one back costs no more than some 8 times its size: a request is written whole
where the events that it is made of would be more. So a sliding window is written whole
now and then, and a stream's text once more if its chunks weigh ten times as much.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, field, frozen

from durable_agent._edits_compare import best, left_out, ranges, replaces
from durable_agent._edits_parts import (
    Item,
    Part,
    Path,
    Snapshot,
    Survey,
    members,
    survey,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from durable_agent._edits_sources import Source

#: The keys that are special in an edit.
TAGS: Final = ("$edit", "$keep", "$part", "$from", "$text", "$join")
_TAG_KEYS: Final = tuple(f'"{tag}":'.encode() for tag in TAGS)
#: Smaller requests are stored whole.
WHOLE_BYTES: Final = 512
#: So many times its size may be read to have a request whole, and this much more.
LIMIT: Final = 8
_LIMIT_BYTES: Final = 8192
#: What an event costs to read beside its payload, in bytes.
EVENT_BYTES: Final = 256
#: An outcome so much larger than what is wanted of it is not read for that.
_SOURCE_LIMIT: Final = 8
_SOURCE_BYTES: Final = 4096


@frozen(eq=False)
class Made:
    """A request as it is written, and what is remembered of it."""

    whole: bytes
    #: The member ``edit`` with a comma, or nothing.
    edit: bytes = b""
    #: What is written in place of the whole arguments.
    args: bytes = b""
    #: None: nothing later could be compared with it.
    snapshot: Snapshot | None = None
    base: Snapshot | None = None
    #: The base is of no further use: this request has most of it.
    replaces: bool = False

    @property
    def raw(self) -> bytes:
        """The last members of the intent's payload, and its end."""
        if not self.edit:
            return b'"args":' + self.whole + b"}"
        return self.edit + b'"args":' + self.args + b"}"


def make(
    raw: bytes, candidates: Sequence[Snapshot], sources: Mapping[bytes, Source]
) -> Made:
    """Write the arguments of a request, as an edit if that is shorter.

    ``candidates`` are earlier requests of the function, the newest last.
    """
    args = orjson.loads(raw)
    if orjson.dumps(args) != raw or (
        b'"$' in raw and any(key in raw for key in _TAG_KEYS)
    ):
        return Made(raw)
    known = {
        item.digest: item
        for each in candidates
        for items in each.lists.values()
        for item in items
    }
    found = survey(args, len(raw), known)
    mine = found.snapshot
    limit = LIMIT * len(raw) + _LIMIT_BYTES
    base = best(mine, [each for each in candidates if each.cost < limit], sources)
    mine.cost = len(raw) + EVENT_BYTES
    if len(raw) >= WHOLE_BYTES:
        written = _write(args, found, base, sources)
        if written is not None and written.cost <= limit:
            mine.cost = written.cost
            edit = {
                "base": written.base.seq if written.base else None,
                "crc": f"{zlib.crc32(raw):08x}",
            }
            member = b'"edit":' + orjson.dumps(edit) + b","
            if len(member) + len(written.args) < len(raw):
                old = written.base
                over = old is not None and replaces(mine, old)
                return Made(raw, member, written.args, mine, old, replaces=over)
            mine.cost = len(raw) + EVENT_BYTES
    return Made(raw, snapshot=mine)


@frozen(eq=False)
class _Written:
    args: bytes
    cost: int
    base: Snapshot | None


@define(eq=False)
class _Offers:
    """Where parts stand already: in the base, else in an outcome."""

    parts: dict[bytes, list[str | int]]
    sources: Mapping[bytes, Source]
    #: Outcomes that are too large for what is wanted of them.
    refused: set[int] = field(factory=set)
    #: Outcome -> bytes to read, bytes wanted.
    used: dict[int, tuple[int, int]] = field(factory=dict)

    def reference(self, part: Part) -> Any:
        """Return what stands for the part, None if it has to be written."""
        path = self.parts.get(part.digest)
        if path is not None:
            found: dict[str, Any] = {"$part": path}
            if len(orjson.dumps(found)) < part.size:
                return found
        source = self.sources.get(part.digest)
        if source is None or source.seq in self.refused:
            return None
        if len(orjson.dumps(source.reference)) >= part.size:
            return None
        cost, wanted = self.used.get(source.seq, (0, 0))
        self.used[source.seq] = (max(cost, source.cost), wanted + part.size)
        return source.reference

    def refuse(self) -> bool:
        """Refuse the outcomes that are too large; whether there were any."""
        too_large = {
            seq
            for seq, (cost, wanted) in self.used.items()
            if cost > _SOURCE_LIMIT * wanted + _SOURCE_BYTES
        }
        self.refused |= too_large
        self.used = {}
        return bool(too_large)


def _write(
    args: Any, found: Survey, base: Snapshot | None, sources: Mapping[bytes, Source]
) -> _Written | None:
    """Write the arguments by reference to the base and outcomes, where that helps."""
    offered: dict[bytes, list[str | int]] = {}
    mine = found.snapshot
    for path, old in base.lists.items() if base else ():
        for index, part in left_out(mine.lists.get(path, ()), old):
            offered.setdefault(part.digest, [*path, index, *part.path])
    offers = _Offers(offered, sources)
    while True:
        changed = _changed(found, base, offers)
        used = offers.used
        if not offers.refuse():
            break
    if not changed:
        return None
    written = orjson.dumps(_replaced(args, changed))
    cost = len(written) + EVENT_BYTES + (base.cost if base else 0)
    cost += sum(size + EVENT_BYTES for size, _ in used.values())
    return _Written(written, cost, base)


def _changed(found: Survey, base: Snapshot | None, offers: _Offers) -> dict[Path, Any]:
    """Return what is written in place of the lists and longer values that repeat."""
    changed: dict[Path, Any] = {}
    mine = found.snapshot
    for path, (hashed, size) in mine.others.items():
        old = base.others.get(path) if base else None
        text = type(found.values[path]) is str
        if old == (hashed, size):
            changed[path] = {"$part": list(path)}
        elif reference := offers.reference(Part(hashed, path, size, text)):
            changed[path] = reference
    for path, items in mine.lists.items():
        values = found.values[path]
        there = base.lists.get(path) if base else None
        if there is None:
            new = [_squeezed(v, i, offers) for v, i in zip(values, items, strict=True)]
            if any(a is not b for a, b in zip(new, values, strict=True)):
                changed[path] = new
            continue
        listed: list[Any] = []
        for index, keep in ranges(there, items):
            if keep is None:
                listed.append(_squeezed(values[index], items[index], offers))
            else:
                listed.append({"$keep": keep})
        changed[path] = {"$edit": listed}
    return changed


def _squeezed(value: Any, item: Item, offers: _Offers) -> Any:
    """Return an item with references in place of what stands elsewhere already."""
    if not item.parts:
        return value
    parts = {part.path: part for part in item.parts}

    def squeeze(node: Any, path: Path) -> Any:
        part = parts.get(path)
        if part is None:
            return node
        reference = offers.reference(part)
        if reference is not None or part.text:
            return node if reference is None else reference
        new = {key: squeeze(child, (*path, key)) for key, child in members(node)}
        if all(new[key] is child for key, child in members(node)):
            return node
        return new if type(node) is dict else list(new.values())

    return squeeze(value, ())


def _replaced(node: Any, changed: Mapping[Path, Any], path: Path = ()) -> Any:
    """Return a copy of the request's outer dicts with what is written in places."""
    if path in changed:
        return changed[path]
    if not any(each[: len(path)] == path for each in changed):
        return node
    new = {key: _replaced(child, changed, (*path, key)) for key, child in members(node)}
    return new if type(node) is dict else list(new.values())


__all__ = ["EVENT_BYTES", "LIMIT", "TAGS", "Made", "make"]
