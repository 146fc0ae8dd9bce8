"""Handlers of dates, numbers, identifiers and paths, and of pydantic's core types."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import (
    Path,
    PosixPath,
    PurePath,
    PurePosixPath,
    PureWindowsPath,
    WindowsPath,
)
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from durable_agent._value_code import (
    DECODERS,
    ENCODERS,
    LEAVES,
    LOOKUPS,
    Decoder,
    Encoder,
)
from durable_agent._value_names import loaded, name_of, refuse, refuse_to_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._value_plain import Json

_PATHS: Final[dict[str, type[PurePath]]] = {
    cls.__name__: cls
    for cls in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
}

_CORE: Final = "pydantic_core._pydantic_core"
_CORE_TYPES: Final = frozenset({"TzInfo", "Url", "MultiHostUrl"})


def _parts(delta: timedelta) -> list[int]:
    return [delta.days, delta.seconds, delta.microseconds]


LEAVES[date] = lambda value: {"$date": value.isoformat()}
DECODERS["$date"] = lambda body, _: date.fromisoformat(body)
LEAVES[timedelta] = lambda value: {"$timedelta": _parts(value)}
DECODERS["$timedelta"] = lambda body, _: timedelta(*body)
LEAVES[Decimal] = lambda value: {"$decimal": str(value)}
DECODERS["$decimal"] = lambda body, _: Decimal(body)
LEAVES[UUID] = lambda value: {"$uuid": str(value)}
DECODERS["$uuid"] = lambda body, _: UUID(body)
LEAVES[Fraction] = lambda f: {"$fraction": [hex(f.numerator), hex(f.denominator)]}
DECODERS["$fraction"] = lambda body, _: Fraction(*(int(part, 16) for part in body))


def _put_datetime(value: datetime, encoder: Encoder) -> Json:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return {"$datetime": [naive, value.fold, encoder.put(value.tzinfo, ".tzinfo")]}


def _get_datetime(body: Json, decoder: Decoder) -> datetime:
    naive, fold, zone = body
    value = datetime.fromisoformat(naive)
    return value.replace(fold=fold, tzinfo=decoder.get(zone))


def _put_time(value: time, encoder: Encoder) -> Json:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return {"$time": [naive, value.fold, encoder.put(value.tzinfo, ".tzinfo")]}


def _get_time(body: Json, decoder: Decoder) -> time:
    naive, fold, zone = body
    return time.fromisoformat(naive).replace(fold=fold, tzinfo=decoder.get(zone))


def _put_timezone(value: timezone, encoder: Encoder) -> Json:
    offset = _parts(value.utcoffset(None))
    name = value.tzname(None)
    named = name != timezone(value.utcoffset(None)).tzname(None)
    return {"$timezone": [*offset, encoder.put(name)] if named else offset}


def _get_timezone(body: Json, decoder: Decoder) -> timezone:
    days, seconds, micros, *name = body
    return timezone(timedelta(days, seconds, micros), *map(decoder.get, name))


def _put_zone(value: ZoneInfo, encoder: Encoder) -> Json:
    if value.key is None:
        refuse_to_store("zoneinfo:ZoneInfo", "it was read from a file and has no key")
    return {"$zone": encoder.put(value.key)}


def _put_path(value: PurePath, encoder: Encoder) -> Json:
    return {"$path": [type(value).__name__, encoder.put(str(value))]}


def _get_path(body: Json, decoder: Decoder) -> PurePath:
    name, text = body
    cls = _PATHS[name]
    if issubclass(cls, Path) and cls is not type(Path()):
        refuse(f"pathlib:{name}", "this system has no such paths")
    return cls(decoder.get(text))


ENCODERS[datetime] = _put_datetime
DECODERS["$datetime"] = _get_datetime
ENCODERS[time] = _put_time
DECODERS["$time"] = _get_time
ENCODERS[timezone] = _put_timezone
DECODERS["$timezone"] = _get_timezone
ENCODERS[ZoneInfo] = _put_zone
DECODERS["$zone"] = lambda body, _: ZoneInfo(body)
ENCODERS.update(dict.fromkeys(_PATHS.values(), _put_path))
DECODERS["$path"] = _get_path


def _put_core(cls: type, value: Any, encoder: Encoder) -> Json:
    """Return ``$core`` of a time zone or URL of pydantic's compiled core."""
    if cls.__name__ == "TzInfo":
        return {"$core": ["TzInfo", int(value.utcoffset(None).total_seconds())]}
    if cls(str(value)) != value:
        refuse_to_store(name_of(cls), "its text is not the whole of it")
    return {"$core": [cls.__name__, encoder.put(str(value))]}


def _look_up_core(cls: type) -> Callable[[Any, Encoder], Json] | None:
    if cls.__module__ != _CORE:
        return None
    if cls.__name__ not in _CORE_TYPES:
        return None
    return partial(_put_core, cls)


def _get_core(body: Json, decoder: Decoder) -> Any:
    name, argument = body
    cls = loaded(_CORE, name)
    if name not in _CORE_TYPES or cls is None:
        refuse(f"pydantic_core:{name}", "pydantic is not loaded")
    return cls(decoder.get(argument))


LOOKUPS.append(_look_up_core)
DECODERS["$core"] = _get_core
