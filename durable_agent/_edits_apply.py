"""Model requests as differences: how one is read back. See ``_edits`` for the format.

What does not fit is an `EditError`, never another value: the whole is checked.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, field

from durable_agent._edits_sources import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent._edits_parts import Path

#: References stand no deeper than this: levels around the lists, then within items.
_LEVELS: Final = 32


class EditError(ValueError):
    """A request that is stored as a difference cannot be put together."""


def is_edited(data: Any) -> bool:
    """Whether the payload of an intent holds its arguments as a difference."""
    return type(data) is dict and "edit" in data


def base_of(data: Mapping[str, Any], seq: int) -> int | None:
    """Return the seq of the request that an edited one is a difference to."""
    try:
        base = data["edit"]["base"]
    except (KeyError, TypeError) as error:
        raise EditError("its edit names no base") from error
    if base is not None and not (type(base) is int and 0 <= base < seq):
        raise EditError(f"its base {base!r} is no earlier event")
    return base


def apply(
    data: Mapping[str, Any], seq: int, base: Any, payload: Callable[[int], Any]
) -> Any:
    """Return the whole arguments of an edited request.

    ``base`` is the base's whole arguments, None for none; ``payload`` returns the
    payload of an event as parsed JSON.
    """
    try:
        return _Applying(seq, base, payload).resolve(data["args"], ())
    except EditError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise EditError(f"what its edit names is not there ({what[:200]})") from error


def check(data: Mapping[str, Any], args: Any) -> bytes:
    """Return the arguments' JSON; raise unless they are those that were written."""
    raw = orjson.dumps(args)
    if data["edit"].get("crc") != f"{zlib.crc32(raw):08x}":
        raise EditError("put together, its arguments do not match their checksum")
    return raw


@define
class _Applying:
    seq: int
    base: Any
    payload: Callable[[int], Any]
    #: The payloads of outcomes that were read.
    _read: dict[int, Any] = field(factory=dict)

    def resolve(self, node: Any, path: Path) -> Any:
        """Return the node with everything that stands for something replaced."""
        if len(path) > _LEVELS:
            return node
        if type(node) is dict:
            if len(node) == 1:
                ((key, value),) = node.items()
                match key:
                    case "$edit":
                        return self._edit(value, path)
                    case "$part":
                        return _at(self.base, value)
                    case "$from":
                        return _at(self._event(value[0]), value[1:])
                    case "$text":
                        found = _at(self._event(value[1]), value[2:])
                        return json.dumps(found, **FORMS[value[0]])
                    case "$join":
                        return self._join(value)
                    case _:
                        pass
            return {
                name: self.resolve(child, (*path, name))
                if type(child) in {dict, list}
                else child
                for name, child in node.items()
            }
        if type(node) is list:
            return [
                self.resolve(child, (*path, index))
                if type(child) in {dict, list}
                else child
                for index, child in enumerate(node)
            ]
        return node

    def _edit(self, listed: list[Any], path: Path) -> list[Any]:
        old = _at(self.base, path)
        if type(old) is not list or type(listed) is not list:
            raise EditError(f"its base has no list at {path!r}")
        new: list[Any] = []
        for index, item in enumerate(listed):
            if type(item) is dict and len(item) == 1 and "$keep" in item:
                start, stop = item["$keep"]
                new += old[start:stop]
            else:
                new.append(self.resolve(item, (*path, index)))
        return new

    def _join(self, value: Mapping[str, Any]) -> str:
        texts: list[str] = []
        for seq, first, last in value["chunks"]:
            chunks = self._event(seq)["chunks"]
            texts += [
                _at(chunks, (index, *value["path"])) for index in range(first, last + 1)
            ]
        return "".join(texts)

    def _event(self, seq: Any) -> Any:
        if not (type(seq) is int and 0 <= seq < self.seq):
            raise EditError(f"it names {seq!r}, which is no earlier event")
        if seq not in self._read:
            self._read[seq] = self.payload(seq)
        return self._read[seq]


def _at(node: Any, path: Any) -> Any:
    for key in path:
        node = node[key]
    return node
