"""Which earlier request a request goes on from, and what of it is there already."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from durable_agent._edits_parts import Item, Part, Snapshot


def best(
    mine: Snapshot, candidates: Sequence[Snapshot], elsewhere: Container[bytes]
) -> Snapshot | None:
    """Return the request that has most of this one, the newest of several.

    Items that stand ``elsewhere``, in outcomes, speak for none of them.
    """
    found, most = None, 0
    alone = len(candidates) == 1
    wanted = {
        path: [item for item in items if alone or not _stands(item, elsewhere)]
        for path, items in mine.lists.items()
    }
    for each in reversed(candidates):
        score = sum(
            size
            for path, (hashed, size) in mine.others.items()
            if each.others.get(path) == (hashed, size)
        ) + sum(
            _covered(items, each.lists.get(path, ())) for path, items in wanted.items()
        )
        if score > most:
            found, most = each, score
    return found


def _stands(item: Item, elsewhere: Container[bytes]) -> bool:
    texts = [part.digest for part in item.parts if part.text]
    return item.digest in elsewhere or (
        bool(texts) and all(text in elsewhere for text in texts)
    )


def _covered(items: Sequence[Item], old: Sequence[Item]) -> int:
    """Return the size of what a list has of another, items or strings within them."""
    there = {item.digest for item in old}
    fresh = [item for item in items if item.digest not in there]
    size = sum(item.size for item in items) - sum(item.size for item in fresh)
    if fresh:
        offered = {part.digest for _, part in left_out(items, old)}
        size += sum(
            part.size
            for item in fresh
            for part in item.parts
            if part.text and part.digest in offered
        )
    return size


def left_out(items: Sequence[Item], old: Sequence[Item]) -> Iterator[tuple[int, Part]]:
    """Yield the parts of the items that a list no longer has: what was edited."""
    here = {item.digest for item in items}
    for index, item in enumerate(old):
        if item.digest not in here:
            for part in item.parts:
                yield index, part


def replaces(mine: Snapshot, base: Snapshot) -> bool:
    """Whether a request goes on from another one: it has the last item of each list.

    Then nothing later goes on from the other. One that has the same beginning only is
    another conversation's, or another try.
    """
    return all(
        _goes_on(mine.lists.get(path, ()), items) for path, items in base.lists.items()
    )


def _goes_on(items: Sequence[Item], old: Sequence[Item]) -> bool:
    last = old[-1]
    if any(item.digest == last.digest for item in items):
        return True
    # It may have lost or gained a mark.
    here = {part.digest for _, part in left_out(old, items)}
    texts = [part.digest for part in last.parts if part.text]
    return bool(texts) and here.issuperset(texts)


def ranges(
    old: Sequence[Item], new: Sequence[Item]
) -> Iterator[tuple[int, list[int] | None]]:
    """Yield where in the new list each range of the old one begins, or a new item."""
    places: dict[bytes, list[int]] = {}
    for index, item in enumerate(old):
        places.setdefault(item.digest, []).append(index)
    begun: tuple[int, list[int]] | None = None
    for index, item in enumerate(new):
        follows = begun[1][1] if begun else 0
        if begun and follows < len(old) and old[follows].digest == item.digest:
            begun[1][1] += 1
            continue
        if begun:
            yield begun
            begun = None
        at = places.get(item.digest)
        if at is None:
            yield index, None
        else:
            place = at[bisect_left(at, follows) % len(at)]
            begun = index, [place, place + 1]
    if begun:
        yield begun
