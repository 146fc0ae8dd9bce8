"""Which calls an exception came from: how ``run/end`` names what ended a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent.recovery import Slot

_E = TypeVar("_E", bound=BaseException)

#: The attribute on an exception: a list of (call, attempt).
_CALLS: Final = "__durable_calls__"


def mark(error: _E, slot: Slot) -> _E:
    """Note on the exception that it is the outcome of this attempt."""
    try:
        calls: list[tuple[str, int]] = error.__dict__.setdefault(_CALLS, [])
    except AttributeError:
        return error
    if (slot.call, slot.attempt) not in calls:
        calls.append((slot.call, slot.attempt))
    return error


def unmarked(state: dict[str, Any]) -> dict[str, Any]:
    """Return an exception's state without the mark."""
    return {name: value for name, value in state.items() if name != _CALLS}


def marks(error: BaseException | None) -> set[tuple[str, int]]:
    """Return the attempts that an exception, its causes or its members came from."""
    found: set[tuple[str, int]] = set()
    for part in _parts(error):
        found.update(getattr(part, _CALLS, ()))
    return found


def _parts(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo = [error]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += [part.__cause__, part.__context__]
        if isinstance(part, BaseExceptionGroup):
            todo += part.exceptions
