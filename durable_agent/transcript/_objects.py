"""Arguments that hold messages, and the SDKs' objects as the JSON that they send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_agent.transcript._fields import get

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def find_messages(
    bound: Mapping[str, Any], name: str, is_message: Callable[[Any], bool]
) -> Any | None:
    """Return the argument of that name, else what holds messages; None: nothing does.

    A list all of which are messages does, and a dict that has a list of that name.
    """
    if not isinstance(bound, dict):
        return None
    found = bound.get(name)
    if found is not None:
        return found
    for value in bound.values():
        if isinstance(value, list | tuple) and value and all(map(is_message, value)):
            return value
        if isinstance(value, dict) and isinstance(value.get(name), list):
            return value[name]
    return None


def plain(thing: Any) -> Any:
    """Return an SDK's object as the JSON that the SDK sends; all else as it is.

    Fields that the provider did not set are left out, and those of ``__api_exclude__``
    (``anthropic._utils._json.openapi_model_dump``).
    """
    dump = None if isinstance(thing, dict) else get(thing, "model_dump")
    if not callable(dump):
        return thing
    unsent = get(thing, "__api_exclude__")
    for mode in ("json", "python"):
        try:
            return dump(
                mode=mode,
                by_alias=True,
                exclude_unset=True,
                exclude=unsent,
                warnings=False,
            )
        except Exception:  # noqa: BLE001, S112 - lone surrogates are no JSON to pydantic
            continue
    return thing
