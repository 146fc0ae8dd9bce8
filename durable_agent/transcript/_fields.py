"""Fields of what providers send, be they members of dicts or attributes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def get(thing: Any, *names: str) -> Any:
    """Return the first field of these names that is not None, of a dict or object."""
    for name in names:
        if isinstance(thing, Mapping):
            value = thing.get(name)
        else:
            try:
                value = getattr(thing, name, None)
            except Exception:  # noqa: BLE001 - a property of the user's
                value = None
        if value is not None:
            return value
    return None


def items(value: Any) -> list[Any]:
    """Return the items of a list or tuple; of anything else none."""
    return list(value) if isinstance(value, list | tuple) else []


def text_of(value: Any) -> str | None:
    """Return a text that says something; None for all else."""
    return value if isinstance(value, str) and value else None


def kind_of(thing: Any) -> str:
    """Return the ``type`` that something says it is; "" for none."""
    return text_of(get(thing, "type")) or ""


def count(thing: Any, *names: str) -> int:
    """Return a number of tokens; 0 where none is stated."""
    value = get(thing, *names)
    known = isinstance(value, int) and not isinstance(value, bool)
    return value if known else 0


def plain(thing: Any) -> Any:
    """Return an SDK's object as the JSON that the SDK sends; anything else as it is.

    Members that were not set are left out, and those that the SDK made up itself
    (``__api_exclude__``).
    """
    dump = None if isinstance(thing, dict) else get(thing, "model_dump")
    if not callable(dump):
        return thing
    unsent = get(thing, "__api_exclude__")
    # Lone surrogates are no JSON to pydantic.
    for mode in ("json", "python"):
        try:
            return dump(
                mode=mode,
                by_alias=True,
                exclude_unset=True,
                exclude=unsent,
                warnings=False,
            )
        except Exception:  # noqa: BLE001, S112 - an object of somebody else's
            continue
    return thing


def find_messages(
    bound: Any, name: str, is_message: Callable[[Any], bool]
) -> Any | None:
    """Return the argument of that name, else what holds messages; None: nothing does.

    A list all of which are messages does, and a mapping that has the name.
    """
    found = get(bound, name)
    if found is not None:
        return found
    for value in bound.values() if isinstance(bound, Mapping) else ():
        if isinstance(value, list | tuple) and value and all(map(is_message, value)):
            return value
        if isinstance(value, dict) and isinstance(value.get(name), list):
            return value[name]
    return None
