"""Plain JSON: the proof that a value is plain, and bytes to JSON and back.

A value is *plain* if ``orjson`` writes it so that reading it gives an equal value of
the same types: None, bool, int of 64 bits, finite float, str, list, dict with str keys,
exactly those types, nested at most ``PLAIN_DEPTH`` levels. ``orjson`` turns tuples into
lists, NaN into null, enums into their values and more, all silently, so plainness is
proved before it writes. The proof goes level by level with ``map`` and ``chain`` and
touches each container once, so a shared or cyclic one costs no more than another.
"""

from __future__ import annotations

import re
from itertools import chain
from math import isfinite
from typing import Any, Final, TypeAlias

import orjson

Json: TypeAlias = Any

#: Deeper values are flattened, so that a record can hold an encoded value inside
#: containers of its own and stays far below the 254 levels that ``orjson`` writes.
PLAIN_DEPTH: Final = 64
#: The ints that ``orjson`` reads back as ints.
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1

_PLAIN: Final = frozenset({type(None), bool, int, float, str, list, dict})
_STR_ONLY: Final = frozenset({str})
_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
#: Digits become "0", the point stays, all else is a blank: memchr finds long runs.
_DIGITS: Final = bytes(
    0x30 if 0x30 <= b <= 0x39 else b if b == 0x2E else 0x20  # noqa: PLR2004 - ASCII
    for b in range(256)
)
_LONG_RUN: Final = b"0" * 20
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]{20,}(?![0-9.eE])', re.DOTALL)


def is_plain(value: Any, *, tag_free: bool = False) -> bool:
    """Whether the value is plain; with ``tag_free``, also that no key starts with $."""
    level: list[Any] = [value]
    for _ in range(PLAIN_DEPTH):
        kinds = set(map(type, level))
        if not kinds <= _PLAIN:
            return False
        if float in kinds and not all(
            map(isfinite, [v for v in level if type(v) is float])
        ):
            return False
        if list not in kinds and dict not in kinds:
            return True
        lists = {id(v): v for v in level if type(v) is list}.values()
        dicts = {id(v): v for v in level if type(v) is dict}.values()
        if not set(map(type, chain.from_iterable(dicts))) <= _STR_ONLY:
            return False
        if tag_free and any(k[:1] == "$" for k in chain.from_iterable(dicts)):
            return False
        level = [
            *chain.from_iterable(lists),
            *chain.from_iterable(map(dict.values, dicts)),
        ]
    return False


def dump_plain(value: Any) -> bytes | None:
    """Return the JSON of a plain value, or None: it is not plain, or needs a tag."""
    if not is_plain(value):
        return None
    try:
        raw = orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:  # an int beyond 64 bits, a lone surrogate
        return None
    # A "$ in the bytes is a key only sometimes ("$5" as text): then look again.
    if b'"$' in raw and not is_plain(value, tag_free=True):
        return None
    return raw


def dump(tree: Json) -> bytes:
    """Return the JSON of a tree that is JSON already."""
    return orjson.dumps(tree, option=_OPTIONS)


def load(raw: bytes) -> Json:
    """Return the JSON in the bytes.

    Raises `ValueError` for what is not JSON, is nested too deep, or holds a bare int
    beyond 64 bits (which ``orjson`` would read as a float; a writer tags it).
    """
    if _suspect_int(raw):
        for token in _TOKEN.finditer(raw):
            text = token.group()
            if text[:1] != b'"' and (
                len(text) > len("-18446744073709551615")
                or not INT_MIN <= int(text) <= INT_MAX
            ):
                raise ValueError("it holds an untagged int beyond 64 bits")
    return orjson.loads(raw)


def _suspect_int(raw: bytes) -> bool:
    """Whether 20 digits stand in a row, other than behind a decimal point."""
    digits = raw.translate(_DIGITS)
    at = digits.find(_LONG_RUN)
    while at >= 0:
        if at == 0 or digits[at - 1] != 0x2E:  # noqa: PLR2004 - the point
            return True
        # The fraction of a float: go on behind it.
        end = digits.find(b" ", at)
        at = digits.find(_LONG_RUN, end) if end > 0 else -1
    return False


def has_tags(raw: bytes) -> bool:
    """Whether the JSON may hold a tagged value; False is certain."""
    return b'"$' in raw
