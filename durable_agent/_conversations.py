"""Which conversations a history holds, by the links between requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_agent.recovery import History, Slot


def newest(
    history: History, of: str | int | None = None, *, branches: bool = False
) -> list[Slot]:
    """Return the newest request of each conversation, oldest first.

    Of a conversation that was gone on with in several ways, the newest one; those of
    other functions, such as a title generator, are conversations of their own. With
    ``of``, of that function's requests only; a seq is that of a request of the one
    conversation that is meant. With ``branches``, every end.
    """
    requests = [
        slot
        for slot in history.slots
        if slot.kind == "llm" and slot.parent is None and not slot.side
    ]
    if isinstance(of, int):
        return _of_request(requests, of)
    roots: dict[int, int] = {}
    extended: set[int] = set()
    for slot in requests:
        roots[slot.first] = roots.get(slot.extends, slot.first)
        extended.add(slot.extends)
    ends = [slot for slot in requests if slot.first not in extended]
    if branches:
        return ends
    if of is not None:
        mine = {roots[slot.first]: slot for slot in requests if slot.name == of}
        return sorted(mine.values(), key=lambda slot: slot.intent)
    # What failed, and was tried in another way, is no end of anything.
    live = [s for s in ends if s is requests[-1] or _was_answered(s)] or ends
    found = {(roots[slot.first], slot.name): slot for slot in live}
    return sorted(found.values(), key=lambda slot: slot.intent)


def _of_request(requests: list[Slot], seq: int) -> list[Slot]:
    """Return the newest of a request and those that go on with it."""
    meant: set[int] = set()
    found: list[Slot] = []
    for slot in requests:
        if seq in {slot.first, slot.intent} or slot.extends in meant:
            meant.add(slot.first)
            found = [slot]
    return found


def _was_answered(slot: Slot) -> bool:
    return slot.outcome is not None and slot.outcome.status == "value"
