"""A view of a live value for people and transcripts: JSON, and lossy."""

from __future__ import annotations

import datetime as dt
import enum
import math
from typing import Any, Final

from durable_agent._value_names import loaded, mro_of, name_of
from durable_agent._value_plain import INT_MAX, INT_MIN, Json, is_plain
from durable_agent._value_state import dict_of, state_of

#: Deeper parts of a value are shown as "…".
_MAX_DEPTH: Final = 60


def to_plain(value: Any) -> Json:
    """Return a JSON-able view of a live value. Never raises, never changes it.

    Models are dumped, dataclasses and attrs classes become objects, bytes text, sets
    and tuples lists, enums their values, dates ISO text; text is kept as it is, lone
    surrogates too. Of what has no view, the type is named.
    """
    return value if is_plain(value) else _view(value, ())


def _view(value: Any, above: tuple[int, ...]) -> Json:
    if len(above) > _MAX_DEPTH:
        return "…"
    if id(value) in above:
        return "<itself>"
    try:
        return _convert(value, (*above, id(value)))
    except Exception:  # noqa: BLE001 - user code
        return f"<{name_of(type(value))}>"


def _convert(value: Any, above: tuple[int, ...]) -> Json:
    if isinstance(value, enum.Enum):
        return _view(value._value_, above)
    if value is None or isinstance(value, bool | str | int | float):
        return _scalar(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_key(k): _view(v, above) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value, strict=True)
        return {str(k): _view(v, above) for k, v in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return [_view(v, above) for v in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return _object(value, above)


def _scalar(value: Any) -> Json:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        plain = float.__pos__(value)
        return plain if math.isfinite(plain) else str(plain)
    whole = int.__pos__(value)
    return whole if INT_MIN <= whole <= INT_MAX else hex(whole)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    plain = _view(key, ())
    return plain if isinstance(plain, str) else str(plain)


def _object(value: Any, above: tuple[int, ...]) -> Json:
    cls = type(value)
    mro = mro_of(cls)
    if isinstance(value, BaseException):
        return {"type": name_of(cls), "text": str(value)}
    if loaded("pydantic.main", "BaseModel") in mro:
        return _view(_dump(value), above)
    for mark in ("__dataclass_fields__", "__attrs_attrs__"):
        if any(mark in vars(k) for k in mro):
            return {k: _view(v, above) for k, v in state_of(value).items()}
    numpy = (loaded("numpy", "ndarray"), loaded("numpy", "generic"))
    if any(base is not None and base in mro for base in numpy):
        return _view(value.tolist(), above)
    if isinstance(value, type):
        return f"<{name_of(value)}>"
    has_text = any("__str__" in vars(k) for k in mro[:-1])
    return str(value) if has_text else f"<{name_of(cls)}>"


def _dump(model: Any) -> Any:
    try:
        return model.model_dump(warnings=False)
    except Exception:  # noqa: BLE001 - user code: its serializers
        return dict(dict_of(model) or {})
