"""Handlers of numpy arrays and scalars; numpy is used only where it is loaded.

Array data is stored in C order whatever the layout, which is restored apart from
strides: an array comes back contiguous, and writable. Arrays of objects are stored
item by item. A dtype is stored only if what is written rebuilds an equal one.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from durable_agent._value_code import DECODERS, LOOKUPS, Decoder, Encoder
from durable_agent._value_names import loaded, mro_of, name_of, refuse, refuse_to_store

#: Bits of the fraction of an x87 long double.
_EXTENDED: Final = 63
_LITTLE: Final = sys.byteorder == "little"

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._value_plain import Json


def _look_up(cls: type) -> Callable[[Any, Encoder], Json] | None:
    if cls is loaded("numpy", "ndarray"):
        return _put_array
    generic = loaded("numpy", "generic")
    if generic is not None and generic in mro_of(cls):
        return _put_scalar
    dtype = loaded("numpy", "dtype")
    if dtype is not None and dtype in mro_of(cls):
        return lambda value, encoder: {"$dtype": _put_dtype(value, encoder)}
    return None


def _numpy() -> Any:
    module = sys.modules.get("numpy")
    if module is None:
        refuse("numpy:ndarray", "numpy is not loaded")
    return module


def _put_dtype(dtype: Any, encoder: Encoder) -> Json:
    # A type that is not what its text says, as longlong beside int64, by its letter.
    text = dtype.str
    np = _numpy()
    if dtype.names is not None:
        spec = encoder.put(dtype.descr)
    elif np.dtype(text).char != dtype.char:
        spec = dtype.char
    else:
        spec = text
    again = _get_dtype(spec, Decoder())
    same = again == dtype and again.type is dtype.type and again.itemsize > 0
    if not same or dtype.kind == "T":
        refuse_to_store("numpy:dtype", f"the dtype {dtype!r} is not restored by text")
    return spec


def _get_dtype(spec: Json, decoder: Decoder) -> Any:
    return _numpy().dtype(decoder.get(spec))


def _put_array(value: Any, encoder: Encoder) -> Json:
    dtype = value.dtype
    body: dict[str, Json] = {"shape": list(value.shape)}
    if dtype.kind == "O":
        body["items"] = [encoder.put(v, f"[{i}]") for i, v in enumerate(value.flat)]
    elif dtype.hasobject:
        refuse_to_store("numpy:ndarray", "its dtype mixes objects and data")
    else:
        body["dtype"] = _put_dtype(dtype, encoder)
        body["data"] = _data(value)
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        body["order"] = "F"
    return {"$ndarray": body}


def _data(array: Any) -> str:
    """Return an array's bytes; those that hold nothing are zero, not chance."""
    raw = bytearray(array.tobytes())
    for at in _padding(array.dtype):
        raw[at :: array.itemsize] = bytes(array.size)
    return b64encode(raw).decode()


def _padding(dtype: Any) -> list[int]:
    # A long double of 80 bits lies in 12 or 16 bytes, the rest is never written.
    if dtype.subdtype is not None:
        base, _ = dtype.subdtype
        inner = _padding(base)
        starts = range(0, dtype.itemsize, base.itemsize) if inner else ()
        return [start + at for start in starts for at in inner]
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        return [at + more for of, at, *_ in fields for more in _padding(of)]
    if dtype.char not in "gG" or _numpy().finfo(dtype).nmant != _EXTENDED:
        return []
    size = dtype.itemsize // 2 if dtype.char == "G" else dtype.itemsize
    rest = range(10, size) if dtype.isnative == _LITTLE else range(size - 10)
    return [start + at for start in range(0, dtype.itemsize, size) for at in rest]


def _get_array(body: Json, decoder: Decoder) -> Any:
    np = _numpy()
    shape = tuple(body["shape"])
    if "items" in body:
        items = [decoder.get(v) for v in body["items"]]
        flat = np.empty(len(items), dtype="O")
        for index, item in enumerate(items):
            flat[index] = item
    else:
        flat = _raw(np, _get_dtype(body["dtype"], decoder), body["data"])
    array = flat.reshape(shape)
    return np.asfortranarray(array) if body.get("order") == "F" else array


def _raw(np: Any, dtype: Any, data: str) -> Any:
    # Bytes read as an object dtype would be pointers.
    if dtype.hasobject or dtype.kind == "T":
        refuse("numpy:dtype", "raw data cannot hold objects")
    raw = bytearray(b64decode(data, validate=True))
    if dtype.itemsize == 0:
        refuse("numpy:dtype", "it has no size")
    return np.frombuffer(raw, dtype=dtype) if raw else np.empty(0, dtype=dtype)


def _put_scalar(value: Any, encoder: Encoder) -> Json:
    np = _numpy()
    if value.dtype.type is not type(value) or value.dtype.hasobject:
        refuse_to_store(name_of(type(value)), "it is not a scalar of numpy's own")
    if value.dtype.itemsize == 0:
        return {"$npscalar": [value.dtype.str]}
    spec = _put_dtype(value.dtype, encoder)
    return {"$npscalar": [spec, _data(np.asarray(value))]}


def _get_scalar(body: Json, decoder: Decoder) -> Any:
    np = _numpy()
    dtype = _get_dtype(body[0], decoder)
    if dtype.itemsize == 0 and dtype.kind in "SU":
        return dtype.type()
    return _raw(np, dtype, body[1])[0]


LOOKUPS.append(_look_up)
DECODERS["$ndarray"] = _get_array
DECODERS["$npscalar"] = _get_scalar
DECODERS["$dtype"] = _get_dtype
