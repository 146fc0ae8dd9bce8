"""What is remembered of requests and outcomes: digests of their parts, no payloads.

A *part* is a string or container within a JSON value that is long enough to be worth
naming where it stands already, rather than being written again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson
from attrs import define, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Path: TypeAlias = tuple[str | int, ...]

#: Shorter parts cost about as much as a reference to them.
PART_BYTES: Final = 64
#: Levels and parts looked at within one value: it may be huge, and is walked in Python.
_LEVELS: Final = 16
_NODES: Final = 4096
#: Levels and members of the dicts around the lists of a request.
_SPINE_LEVELS: Final = 8
_SPINE_NODES: Final = 1024
#: A list of so few lists is looked into.
_BATCH: Final = 4
#: Lists of more and smaller items (vectors) are compared as a whole.
_MANY: Final = 64
_SMALL_BYTES: Final = 32
_DIGEST_BYTES: Final = 16


def digest(raw: bytes) -> bytes:
    """Return the digest of a container's JSON."""
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()


def text_hash() -> Any:
    """Return the hash of a string, to be fed with its UTF-8."""
    return hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"text")


def text_digest(text: str) -> bytes:
    """Return the digest of a string."""
    hashed = text_hash()
    hashed.update(text.encode())
    return bytes(hashed.digest())


class Part(NamedTuple):
    """A part: its digest, where it stands, its size, and whether it is a string."""

    digest: bytes
    path: Path
    size: int
    text: bool


def parts_of(value: Any) -> Iterator[Part]:
    """Yield the parts of a JSON value, itself among them, outer before inner.

    Of a value that is very deep or has very many, those further out.
    """
    level: list[tuple[Path, Any]] = [((), value)]
    left = _NODES
    for _ in range(_LEVELS):
        inner: list[tuple[Path, Any]] = []
        for path, node in level:
            if type(node) is str:
                if len(node) >= PART_BYTES:
                    yield Part(text_digest(node), path, len(node), text=True)
                continue
            raw = orjson.dumps(node)
            if len(raw) < PART_BYTES:
                continue
            yield Part(digest(raw), path, len(raw), text=False)
            inner += [
                ((*path, key), child)
                for key, child in members(node)
                if type(child) in {dict, list}
                or (type(child) is str and len(child) >= PART_BYTES)
            ]
        left -= len(inner)
        if left < 0:
            return
        level = inner


def members(node: Any) -> Any:
    """Return the keys or indexes of a JSON value, with what stands there."""
    if type(node) is dict:
        return node.items()
    return enumerate(node) if type(node) is list else ()


@frozen(eq=False)
class Item:
    """An item of a list: digest and size of its JSON, and its parts."""

    digest: bytes
    size: int
    parts: tuple[Part, ...]


@define(eq=False)
class Snapshot:
    """What is remembered of one request."""

    #: Size of its arguments, whole.
    size: int
    lists: Mapping[Path, Sequence[Item]]
    #: Longer values beside the lists: digest and size.
    others: Mapping[Path, tuple[bytes, int]]
    seq: int = -1
    #: Bytes to be read to have it whole, events counted in.
    cost: int = 0


@frozen(eq=False)
class Survey:
    """A request's lists and longer values, as they are and as digests."""

    snapshot: Snapshot
    values: Mapping[Path, Any]


def survey(args: Any, size: int, known: Mapping[bytes, Item]) -> Survey:
    """Find the lists of a request, anywhere within its dicts.

    Items whose digests are ``known`` are not looked into again.
    """
    lists: dict[Path, Sequence[Item]] = {}
    others: dict[Path, tuple[bytes, int]] = {}
    found: dict[Path, Any] = {}
    level: list[tuple[Path, Any]] = [((), args)]
    left = _SPINE_NODES
    for _ in range(_SPINE_LEVELS):
        inner: list[tuple[Path, Any]] = []
        for path, node in level:
            if type(node) is dict or _is_batch(node):
                inner += [((*path, key), child) for key, child in members(node)]
            elif type(node) is list and node:
                raws = [orjson.dumps(item) for item in node]
                if len(raws) > _MANY and sum(map(len, raws)) < _SMALL_BYTES * len(raws):
                    whole = b",".join(raws)
                    others[path], found[path] = (digest(whole), len(whole)), node
                    continue
                lists[path] = _items(node, raws, known)
                found[path] = node
            elif type(node) is str and len(node) >= PART_BYTES:
                others[path], found[path] = (text_digest(node), len(node)), node
        left -= len(inner)
        if left < 0 or not inner:
            break
        level = inner
    return Survey(Snapshot(size, lists, others), found)


def _is_batch(node: Any) -> bool:
    """Whether it is a batch of lists, or the pairs of an encoded dict."""
    if type(node) is not list or not 0 < len(node) <= _BATCH:
        return False
    kinds = set(map(type, node))
    return list in kinds and kinds <= {list, str}


def _items(
    values: list[Any], raws: list[bytes], known: Mapping[bytes, Item]
) -> list[Item]:
    items: list[Item] = []
    for value, raw in zip(values, raws, strict=True):
        hashed = digest(raw)
        item = known.get(hashed)
        if item is None:
            item = Item(hashed, len(raw), tuple(parts_of(value)))
        items.append(item)
    return items
