"""Handlers of the builtin types and of the containers of ``collections``."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from durable_agent._redaction import REDACTED, Redacted
from durable_agent._value_code import DECODERS, ENCODERS, LEAVES, Decoder, Encoder
from durable_agent._value_names import is_class, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from durable_agent._value_plain import Json

_ESCAPED: Final = re.compile(r"[\\\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")
_CONSTANTS: Final[dict[str, Any]] = {
    "Ellipsis": Ellipsis,
    "NotImplemented": NotImplemented,
}


def _leaf(cls: type, tag: str, encode: Callable[[Any], Json], decode: Any) -> None:
    LEAVES[cls] = lambda value: {tag: encode(value)}
    DECODERS[tag] = lambda body, _: decode(body)


def _put_items(items: Iterable[Any], encoder: Encoder) -> list[Json]:
    return [encoder.put(v, f"[{i}]") for i, v in enumerate(items)]


def _get_list(body: Json, decoder: Decoder) -> list[Any]:
    if type(body) is not list:
        raise TypeError("a list is missing")
    return [decoder.get(item) for item in body]


def _sequence(
    cls: type, tag: str, items: Callable[[Any], Iterable[Any]] = iter
) -> None:
    ENCODERS[cls] = lambda value, encoder: {tag: _put_items(items(value), encoder)}
    DECODERS[tag] = lambda body, decoder: cls(_get_list(body, decoder))


def _put_float(value: float) -> Json:
    return value if value - value == 0 else {"$float": repr(value)}


def _get_float(text: str) -> float:
    if text not in {"nan", "inf", "-inf"}:
        raise ValueError(text)
    return float(text)


def _put_text(text: str) -> Json:
    escaped = _ESCAPED.sub(
        lambda m: r"\\" if m[0] == "\\" else f"\\u{ord(m[0]):04x}", text
    )
    return {"$str": escaped}


def _get_text(body: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else "\\", body)


def _b64(value: bytes) -> str:
    return b64encode(value).decode()


def _unb64(body: str) -> bytes:
    return b64decode(body, validate=True)


LEAVES[float] = _put_float
LEAVES[Redacted] = lambda _: {"$redacted": True}
DECODERS["$redacted"] = lambda _body, _decoder: REDACTED
DECODERS["$float"] = lambda body, _: _get_float(body)
LEAVES[str] = _put_text
DECODERS["$str"] = lambda body, _: _get_text(body)
_leaf(int, "$int", hex, lambda body: int(body, 16))
_leaf(bytes, "$bytes", _b64, _unb64)
_leaf(bytearray, "$bytearray", _b64, lambda body: bytearray(_unb64(body)))
for _cls in (type(Ellipsis), type(NotImplemented)):
    LEAVES[_cls] = lambda value: {"$constant": str(value)}
DECODERS["$constant"] = lambda body, _: _CONSTANTS[body]

_sequence(tuple, "$tuple")
_sequence(set, "$set")
_sequence(frozenset, "$frozenset")
_sequence(range, "$range", lambda r: (r.start, r.stop, r.step))
DECODERS["$range"] = lambda body, decoder: range(*_get_list(body, decoder))
_sequence(slice, "$slice", lambda s: (s.start, s.stop, s.step))
DECODERS["$slice"] = lambda body, decoder: slice(*_get_list(body, decoder))
_sequence(complex, "$complex", lambda c: (c.real, c.imag))
DECODERS["$complex"] = lambda body, decoder: complex(*_get_list(body, decoder))
ENCODERS[list] = _put_items


def _put_dict(value: dict[Any, Any], encoder: Encoder) -> Json:
    return encoder.put_dict(value, "[{!r}]".format)


def _pairs(body: Json, decoder: Decoder) -> list[tuple[Any, Any]]:
    return [(decoder.get(k), decoder.get(v)) for k, v in body]


def _put_ordered(value: OrderedDict[Any, Any], encoder: Encoder) -> Json:
    pairs = [[encoder.put(k, ".key"), encoder.put(v, "[…]")] for k, v in value.items()]
    return {"$ordered": pairs}


def _put_default(value: defaultdict[Any, Any], encoder: Encoder) -> Json:
    factory = encoder.put(value.default_factory, ".default_factory")
    return {"$default": [factory, encoder.put(dict.copy(value))]}


def _get_default(body: Json, decoder: Decoder) -> defaultdict[Any, Any]:
    factory = decoder.get(body[0])
    if factory is not None and not is_class(factory):
        refuse("collections:defaultdict", "its default_factory is not a class")
    return defaultdict(factory, decoder.get(body[1]))


ENCODERS[dict] = _put_dict
DECODERS["$dict"] = lambda body, decoder: dict(_pairs(body, decoder))
ENCODERS[OrderedDict] = _put_ordered
DECODERS["$ordered"] = lambda body, decoder: OrderedDict(_pairs(body, decoder))
ENCODERS[defaultdict] = _put_default
DECODERS["$default"] = _get_default
ENCODERS[deque] = lambda value, encoder: {
    "$deque": [value.maxlen, _put_items(value, encoder)]
}
DECODERS["$deque"] = lambda body, decoder: deque(_get_list(body[1], decoder), body[0])
