"""Which types may be rebuilt, and how a type is named in a record.

A type is named ``module:Qualname`` and found in ``sys.modules`` through the plain
dictionaries of modules and classes, so looking a name up imports nothing and triggers
no module ``__getattr__``, lazy loader or descriptor. What is found must be of an
allowed kind or registered; otherwise it is refused, whatever it is.
"""

from __future__ import annotations

import builtins
import collections
import datetime as dt
import decimal
import enum
import sys
import types
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from attrs import frozen

from durable_agent.errors import ValueNotRebuildableError, ValueNotStorableError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind: TypeAlias = Literal["registered", "enum", "error", "state", "subclass"]

#: Flags of classes: made at run time, and (of those) compiled ones.
_HEAP_TYPE: Final = 1 << 9
_IMMUTABLE_TYPE: Final = 1 << 8
_MAX_GENERIC_DEPTH: Final = 8
_ADVICE: Final = "register_type(cls) allows a type that is safe to rebuild."

#: Builtin classes whose subclasses are rebuilt from the builtin value and the state.
CONTAINERS: Final[frozenset[type]] = frozenset(
    {
        *(str, int, float, complex, bytes, bytearray),
        *(tuple, list, dict, set, frozenset),
        *(collections.OrderedDict, collections.defaultdict, collections.deque),
    }
)
ERRORS: Final[frozenset[type]] = frozenset(
    v
    for v in vars(builtins).values()
    if isinstance(v, type) and issubclass(v, BaseException)
)
#: Classes that a record may name as values: they build data and nothing else.
_DATA_TYPES: Final[frozenset[type]] = frozenset(
    {
        *CONTAINERS,
        *(object, bool, type(None), range, slice),
        *(dt.date, dt.datetime, dt.time, dt.timedelta),
        *(decimal.Decimal, uuid.UUID),
    }
)
#: Bases that mark a kind rebuilt by state, where their module is loaded.
_STATE_BASES: Final = (
    ("pydantic.main", "BaseModel"),
    ("pydantic.networks", "_BaseUrl"),
    ("pydantic.networks", "_BaseMultiHostUrl"),
)
#: "Argument not given" of the provider SDKs: no state, and defaults of signatures.
_SENTINELS: Final = frozenset(
    f"{module}:{name}"
    for module in ("openai", "openai._types", "anthropic", "anthropic._types")
    for name in ("NotGiven", "Omit")
)


@frozen
class Codec:
    """How a registered type is written and read; both None: by state."""

    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None


_registered: Final[dict[type, Codec]] = {}
_registered_names: Final[dict[str, type]] = {}


def add(cls: type, codec: Codec) -> None:
    """Allow a type. A later registration of the type, or of its name, wins."""
    _registered[cls] = codec
    _registered_names[name_of(cls)] = cls


def codec_of(cls: type) -> Codec | None:
    """Return the registration of exactly this type."""
    return _registered.get(cls)


def name_of(cls: type) -> str:
    """Return ``module:Qualname``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def refuse(type_name: str, why: str, *, advice: str = "") -> NoReturn:
    """Raise `ValueNotRebuildableError`."""
    message = f"a value of type {type_name} cannot be rebuilt: {why}."
    raise ValueNotRebuildableError(message, type_name=type_name, advice=advice)


def refuse_to_store(type_name: str, why: str, *, advice: str = "") -> NoReturn:
    """Raise `ValueNotStorableError`; the encoder adds the path."""
    message = f"a value of type {type_name} cannot be stored: {why}."
    raise ValueNotStorableError(message, type_name=type_name, advice=advice)


def loaded(module: str, name: str) -> Any:
    """Return a module's attribute if the module is loaded, else None."""
    found = sys.modules.get(module)
    if not issubclass(type(found), types.ModuleType):
        return None
    return object.__getattribute__(found, "__dict__").get(name)


def _look_up(name: str) -> type | None:
    registered = _registered_names.get(name)
    if registered is not None:
        return registered
    module, _, qualname = name.partition(":")
    first, *rest = qualname.split(".")
    found = loaded(module, first)
    for part in rest:
        if not is_class(found):
            return None
        found = type.__getattribute__(found, "__dict__").get(part)
    return found if is_class(found) else None


def is_class(value: Any) -> bool:
    """Whether the value is a class; looks at its real type only."""
    return issubclass(type(value), type)


def mro_of(cls: type) -> tuple[type, ...]:
    """Return the method resolution order, past any metaclass."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return mro


def solid_base(cls: type) -> type:
    """Return the builtin class that gives the instances their memory layout."""
    base: type | None = cls
    while base is not None:
        if base in CONTAINERS or base in ERRORS or base is types.SimpleNamespace:
            return base
        if _is_compiled(base):
            return base
        base = type.__dict__["__base__"].__get__(base)
    return object


def _is_compiled(cls: type) -> bool:
    flags = cls.__flags__
    if not flags & _HEAP_TYPE or flags & _IMMUTABLE_TYPE:
        return True
    # struct_time and its like hide fields beyond those of the tuple.
    return "n_sequence_fields" in vars(cls)


def kind_of(cls: type) -> Kind | None:
    """Return how instances are rebuilt, or None: they are refused."""
    if cls in _registered:
        return "registered"
    mro = mro_of(cls)
    if enum.Enum in mro:
        return "enum"
    # What runs when an object dies would run on a state that a record chose.
    if any("__del__" in vars(k) for k in mro):
        return None
    if BaseException in mro:
        return "error" if solid_base(cls) in ERRORS else None
    base = solid_base(cls)
    if base in CONTAINERS:
        return "subclass" if cls is not base and not _is_numpy(mro) else None
    if cls is types.SimpleNamespace or (base is object and _is_stateful(cls, mro)):
        return "state"
    return None


def _is_numpy(mro: tuple[type, ...]) -> bool:
    return loaded("numpy", "generic") in mro


def _is_stateful(cls: type, mro: tuple[type, ...]) -> bool:
    marks = ("__dataclass_fields__", "__attrs_attrs__")
    if any(mark in vars(k) for k in mro for mark in marks):
        return True
    if any(loaded(*where) in mro for where in _STATE_BASES):
        return True
    return name_of(cls) in _SENTINELS


def spec_of(cls: type, depth: int = 0) -> Any:
    """Return the JSON that names a type so that reading finds this very class.

    A string, or for a parametrised pydantic generic its origin and arguments.
    Raises `ValueNotStorableError` if the class cannot be found by name.
    """
    name = name_of(cls)
    if _look_up(name) is cls or cls is type(None):
        return name
    meta = vars(cls).get("__pydantic_generic_metadata__")
    if meta and meta["origin"] is not None and depth < _MAX_GENERIC_DEPTH:
        args = [_argument(a, depth + 1) for a in meta["args"]]
        if None not in args:
            return {"origin": spec_of(meta["origin"], depth + 1), "args": args}
    if "<locals>" in name:
        why = "it is defined inside a function, where a later run cannot find it"
        advice = "Define it at the top of a module, or use register_type(cls)."
    elif _look_up(name) is None:
        why = "its module does not hold it under this name"
        advice = "Define it at the top of a module, or use register_type(cls)."
    else:
        why = "its module holds another class under this name"
        advice = "An instance made before a reload has the former class."
    refuse_to_store(name, why, advice=advice)


def _argument(arg: Any, depth: int) -> Any:
    """Return the JSON that names a parameter of a generic, None if it has no name."""
    if is_class(arg):
        return spec_of(arg, depth)
    if type(arg) is TypeVar and loaded(arg.__module__, arg.__name__) is arg:
        # SDKs leave their own variable in, where nothing was asked to be parsed.
        return {"variable": f"{arg.__module__}:{arg.__name__}"}
    return None


def class_of(spec: Any) -> type:
    """Return the class that a record names, if it is loaded and may be rebuilt.

    Raises `ValueNotRebuildableError`; imports nothing and runs nothing of the class.
    """
    if type(spec) is dict:
        return _parametrised(spec)
    if type(spec) is not str:
        refuse(repr(spec)[:80], "this is not the name of a type")
    if spec == name_of(type(None)):
        return type(None)
    cls = _look_up(spec)
    if cls is None:
        why = "no loaded module holds this class"
        advice = (
            "Import its module before reading. If it was renamed or removed, define"
            " it again, or use register_type(cls) on a class of this name."
        )
        refuse(spec, why, advice=advice)
    return cls


def _parametrised(spec: dict[str, Any]) -> type:
    origin = class_of(spec.get("origin"))
    args = tuple(_parameter(a) for a in spec.get("args", ()))
    name = name_of(origin)
    if loaded("pydantic.main", "BaseModel") not in mro_of(origin) or not args:
        refuse(name, "it is not a generic model")
    for arg in args:
        if type(arg) is not TypeVar:
            demand_data_type(arg)
    cls: Any = origin.__class_getitem__(args)  # type: ignore[attr-defined]  # a model
    if not is_class(cls):
        refuse(name, "it does not take these parameters")
    found: type = cls
    return found


def _parameter(spec: Any) -> Any:
    if type(spec) is not dict or "variable" not in spec:
        return class_of(spec)
    module, _, name = str(spec["variable"]).partition(":")
    found = loaded(module, name)
    if type(found) is not TypeVar:
        refuse(str(spec["variable"]), "no loaded module holds this type variable")
    return found


def may_be_value(cls: type) -> bool:
    """Whether the class itself may be recorded as a value."""
    return cls in _DATA_TYPES or cls in ERRORS or kind_of(cls) is not None


def demand_data_type(cls: type) -> None:
    """Raise `ValueNotRebuildableError` unless the class may stand as a value."""
    if not may_be_value(cls):
        refuse(name_of(cls), "a class of this kind is not allowed", advice=_ADVICE)


def demand_kind(cls: type, *kinds: Kind) -> None:
    """Raise `ValueNotRebuildableError` unless the class is of one of the kinds."""
    if kind_of(cls) not in kinds:
        refuse(name_of(cls), "a type of this kind is not allowed", advice=_ADVICE)


def unknown_kind(cls: type) -> NoReturn:
    """Raise `ValueNotStorableError` for a type that is of no kind."""
    if any("__del__" in vars(k) for k in mro_of(cls)):
        why = "it defines __del__, which would run on recorded state"
    else:
        why = "it is none of the types that can be rebuilt"
    refuse_to_store(name_of(cls), why, advice=_ADVICE)
