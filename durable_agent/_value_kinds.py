"""Handlers of whole kinds: enums, classes as values, registered types, by state."""

from __future__ import annotations

import enum
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from durable_agent._value_canonical import canonical_tree
from durable_agent._value_code import DECODERS, KINDS, Decoder, Encoder
from durable_agent._value_names import (
    class_of,
    codec_of,
    demand_data_type,
    demand_kind,
    may_be_value,
    mro_of,
    name_of,
    refuse,
    refuse_to_store,
    spec_of,
)
from durable_agent._value_plain import dump, load
from durable_agent._value_state import decode_object, encode_object
from durable_agent.errors import ValueNotStorableError

if TYPE_CHECKING:
    from durable_agent._value_plain import Json


def _put_enum(value: enum.Enum, encoder: Encoder) -> Json:
    cls = type(value)
    member_value = value._value_
    if vars(cls)["_member_map_"].get(value._name_) is not value:
        return {"$flag": [spec_of(cls), _put_flag(cls, value)]}
    body = [spec_of(cls), value._name_]
    # A member that is a function, say, cannot be stored: its name has to do.
    with suppress(ValueNotStorableError):
        body.append(Encoder(encoder).run(member_value))
    return {"$enum": body}


def _put_flag(cls: type[enum.Enum], value: Any) -> Json:
    if not _is_simple_flag(cls) or cls(value._value_) is not value:
        refuse_to_store(name_of(cls), "it is no member of its enum")
    return value._value_


def _is_simple_flag(cls: type) -> bool:
    mro = mro_of(cls)
    maker = next(vars(k)["_missing_"] for k in mro if "_missing_" in vars(k))
    return enum.Flag in mro and maker is vars(enum.Flag)["_missing_"]


def _get_enum(body: Json, _: Decoder) -> enum.Enum:
    cls = class_of(body[0])
    demand_kind(cls, "enum")
    member: enum.Enum | None = vars(cls)["_member_map_"].get(body[1])
    if member is None:
        refuse(name_of(cls), f"it has no member {body[1]!r} now")
    if body[2:]:
        now = load(dump(Encoder().run(member._value_)))
        if dump(canonical_tree(now)) != dump(canonical_tree(body[2])):
            refuse(name_of(cls), f"its member {body[1]!r} has another value now")
    return member


def _get_flag(body: Json, _: Decoder) -> enum.Enum:
    cls = class_of(body[0])
    demand_kind(cls, "enum")
    if not _is_simple_flag(cls) or type(body[1]) is not int:
        refuse(name_of(cls), "it is not a plain Flag now")
    flag: enum.Enum = cls(body[1])
    return flag


def _put_class(value: type, _: Encoder) -> Json:
    if not may_be_value(value):
        refuse_to_store(name_of(value), "this class may not stand as a value")
    return {"$type": spec_of(value)}


def _get_class(body: Json, _: Decoder) -> type:
    cls = class_of(body)
    demand_data_type(cls)
    return cls


def _put_codec(value: Any, encoder: Encoder) -> Json:
    cls = type(value)
    codec = codec_of(cls)
    if codec is None or codec.encode is None:
        raise TypeError
    try:
        content = codec.encode(value)
    except Exception as error:
        name = name_of(cls)
        message = f"the registered encode of {name} raised {type(error).__name__}."
        raise ValueNotStorableError(message, type_name=name) from error
    return {"$via": [spec_of(cls), encoder.put(content)]}


def _get_codec(body: Json, decoder: Decoder) -> Any:
    cls = class_of(body[0])
    codec = codec_of(cls)
    if codec is None or codec.decode is None:
        advice = "Call register_type with its encode and decode before reading."
        refuse(name_of(cls), "it is not registered here", advice=advice)
    return codec.decode(decoder.get(body[1]))


KINDS["enum"] = _put_enum
DECODERS["$enum"] = _get_enum
DECODERS["$flag"] = _get_flag
KINDS["class"] = _put_class
DECODERS["$type"] = _get_class
KINDS["codec"] = _put_codec
DECODERS["$via"] = _get_codec
for _kind in ("state", "subclass", "registered"):
    KINDS[_kind] = encode_object
DECODERS["$obj"] = decode_object
