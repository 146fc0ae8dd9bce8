r"""Values to JSON and back: equal and of the same type, or refused when stored.

`encode` takes a snapshot: what happens to the value afterwards changes nothing.
`decode` gives a fresh object each time. Reading imports nothing, and runs no
constructor, validator, ``__setstate__`` or property: a type is rebuilt from its state,
if its module is loaded already and it is of an allowed kind or registered. Two
references to one object come back as two equal objects.

Format
======

JSON (UTF-8, as ``orjson`` writes it), nested fewer than 200 levels. null, true, false,
ints of 64 bits, finite floats, strings, arrays, and objects whose keys are strings that
do not begin with ``$`` stand for themselves. Everything else is an object with one
member, whose key is a tag; ``<v>`` is an encoded value, ``<type>`` is
``"module:Qualname"``, or ``{"origin": <type>, "args": [<type>, ...]}`` for a generic
model, whose argument may also be ``{"variable": "module:Name"}``, a type variable.
For example, ``{"total": Decimal("1.50"), "at": (1, b"ok")}`` is::

    {"total":{"$decimal":"1.50"},"at":{"$tuple":[1,{"$bytes":"b2s="}]}}

===============  =======================================================================
``$int``         hexadecimal text of an int beyond 64 bits: no limit of digits
``$float``       "nan", "inf", "-inf"
``$str``         text with lone surrogates: each as ``\udc80``, each backslash doubled
``$bytes``       base64; so ``$bytearray``
``$tuple``       [<v>, ...]; so ``$set``, ``$frozenset``, ``$complex``, ``$range``,
                 ``$slice``
``$dict``        [[<key>, <v>], ...]: keys that are no strings, begin with ``$``, or
                 hold lone surrogates
``$ordered``     the same, of an ``OrderedDict``
``$default``     [<factory>, <v>] of a ``defaultdict``
``$deque``       [maxlen, [<v>, ...]]
``$decimal``     text; so ``$uuid``, ``$date``; ``$fraction``: two hexadecimal texts
``$datetime``    [ISO text without zone, fold, <zone>]; so ``$time``
``$timedelta``   [days, seconds, microseconds]
``$timezone``    [days, seconds, microseconds] and a name, if it has one
``$zone``        key of a ``ZoneInfo``
``$path``        [class, text]
``$constant``    "Ellipsis", "NotImplemented"
``$core``        [name, <argument>]: zone or URL of pydantic's core
``$ndarray``     {"shape", "dtype", "data": base64 in C order}, or "items": [<v>, ...]
                 of an array of objects; "order": "F" if it is in Fortran order
``$npscalar``    [dtype, base64]; ``$dtype``: a dtype
``$type``        <type>: a class that is a value itself
``$enum``        [<type>, name, <value>]; the member must have this value still
``$flag``        [<type>, int]: several members of a ``Flag``
``$obj``         {"type", "value", "state"}: ``value`` is the content of a subclass of a
                 builtin type (namedtuple, Counter, ...), ``state`` is its ``__dict__``
                 and slots: dataclasses, attrs classes, pydantic models, and what is
                 registered without functions
``$via``         [<type>, <v>]: what a registered ``encode`` returned
``$error``       [{"type", "text", "args", "fields", "state", "message", "members",
                 "cause", "context", "suppress"}, ...]: the error first, the others by
                 index
``$function``    its name: only in the arguments of a model request
``$response``    [class, <view>]: an HTTP response that an error holds; so ``$request``
``$deep``        [node, ...]: a value nested deeper than one node goes; the first is
                 the value
``$ref``         index of a later node, which stands here; each node stands once
===============  =======================================================================

A tag that a reader does not know is `ValueNotRebuildableError`.

Not promised: identity of shared parts, strides of arrays, that a class which hashes by
more than its state can be a key. What a class does in ``__hash__`` and ``__eq__`` runs
when its instances are put into sets or are keys; a class with ``__del__`` is refused,
unless registered. `encode` must not race with a thread that changes the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from durable_agent import (  # noqa: F401 - importing them registers their handlers
    _value_kinds,
    _value_numpy,
    _value_stdlib,
    _value_types,
)
from durable_agent._value_canonical import canonical_bytes, digest
from durable_agent._value_code import Decoder, Encoder
from durable_agent._value_errors import get_error, put_error
from durable_agent._value_functions import function_name
from durable_agent._value_look import look
from durable_agent._value_names import Codec, add, is_class, name_of
from durable_agent._value_plain import dump, dump_plain, has_tags, load
from durable_agent._value_state import blank
from durable_agent._value_view import to_plain
from durable_agent.errors import (
    ValueNotRebuildableError,
    ValueNotStorableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._value_plain import Json

__all__ = [
    "canonical",
    "decode",
    "decode_error",
    "digest",
    "encode",
    "encode_error",
    "look",
    "register_type",
    "to_plain",
]

T = TypeVar("T")

_NATIVE: Final = frozenset({type(None), bool, int, float, str, list, dict})


def encode(value: Any, *, functions: bool = False) -> bytes:
    """Return the value as type-tagged JSON.

    With ``functions`` the names of functions stand for them, and come back as names.
    Raises `ValueNotStorableError` with the path of the part that cannot come back.
    """
    raw = dump_plain(value)
    if raw is not None:
        return raw
    try:
        names = function_name if functions else None
        return dump(Encoder(names=names).run(value))
    except ValueNotStorableError as error:
        if error.path:
            error.message = f"at {error.path}: {error.message}"
        raise
    except (TypeError, RuntimeError) as error:  # changed meanwhile, too little stack
        name = name_of(type(value))
        message = f"a value of type {name} cannot be stored: {error}."
        raise ValueNotStorableError(message, type_name=name) from error


def decode(raw: bytes) -> Any:
    """Return a fresh value, equal to what was encoded and of the same type.

    Raises `ValueNotRebuildableError` if it names what is not loaded or not allowed, or
    is not what `encode` writes.
    """
    tree = _load(raw)
    if not has_tags(raw):
        return tree
    try:
        return Decoder().get(tree)
    except ValueNotRebuildableError:
        raise
    except Exception as error:
        raise _malformed(error) from error


def canonical(raw: bytes) -> bytes:
    """Return bytes that are equal for equal encoded values; rebuilds nothing.

    The order of dicts and sets counts for nothing; 1, 1.0 and True differ. Raises
    `ValueNotRebuildableError` for what `encode` does not write.
    """
    tree = _load(raw)
    try:
        return canonical_bytes(tree)
    except Exception as error:
        raise _malformed(error) from error


def encode_error(exc: BaseException) -> bytes:
    """Return the record of an error that was raised. Never raises.

    What of it cannot be stored is left out: an attribute, or all but type and text.
    """
    try:
        return dump(put_error(exc, None))
    except Exception:  # noqa: BLE001 - an error whose class misbehaves
        return dump({"$error": [{"type": name_of(type(exc)), "text": ""}]})


def decode_error(raw: bytes) -> BaseException:
    """Return a fresh error of the recorded type, with its attributes, unraised.

    It is a `RecordedToolError` if its type is not loaded or cannot be rebuilt. Raises
    `ValueNotRebuildableError` only for what is not the record of an error.
    """
    tree = _load(raw)
    try:
        return get_error(tree["$error"], lenient=True)
    except Exception as error:
        raise _malformed(error) from error


def register_type(
    cls: type[T],
    *,
    encode: Callable[[T], Any] | None = None,
    decode: Callable[[Any], T] | None = None,
) -> None:
    """Allow instances of exactly this class in recorded values.

    With ``encode`` and ``decode``, they are stored as what ``encode`` returns. Without,
    they are rebuilt from ``__dict__`` and slots. Registering a secret's type stores the
    secret. Raises `TypeError` if the class cannot be registered so.
    """
    if not is_class(cls) or cls in _NATIVE:
        raise TypeError(f"{cls!r} is not a class that can be registered")
    if (encode is None) != (decode is None):
        raise TypeError("register_type takes encode and decode together, or neither")
    if encode is None:
        try:
            blank(cls)
        except TypeError as error:
            message = f"{name_of(cls)} cannot be rebuilt by state: give encode, decode"
            raise TypeError(message) from error
    add(cls, Codec(encode, decode))


def _load(raw: bytes) -> Json:
    try:
        return load(raw)
    except (ValueError, TypeError) as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> ValueNotRebuildableError:
    if isinstance(error, ValueNotRebuildableError):
        return error
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ValueNotRebuildableError(
        f"the record is not one that can be read here ({what[:200]})."
    )
