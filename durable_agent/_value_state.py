"""Objects by state: ``__new__`` of the builtin base, then ``__dict__`` and slots.

No constructor, validator, ``__setstate__``, ``__setattr__``, property or other
descriptor of the class runs, in either direction: ``__dict__`` and slots are read and
written through the descriptors that the interpreter made for them. What does run is
``__hash__`` and ``__eq__``, where an object is put into a set or is a key.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from durable_agent._value_names import (
    CONTAINERS,
    ERRORS,
    class_of,
    demand_kind,
    mro_of,
    name_of,
    refuse,
    refuse_to_store,
    solid_base,
    spec_of,
)

if TYPE_CHECKING:
    from durable_agent._value_code import Decoder, Encoder
    from durable_agent._value_plain import Json

#: attrs keeps a hash here; hashes of strings differ from process to process.
_ATTRS_HASH: Final = "_attrs_cached_hash"


def dict_of(obj: Any) -> dict[str, Any] | None:
    """Return the live ``__dict__`` of an object, or None if it has none."""
    for klass in mro_of(type(obj)):
        descriptor = vars(klass).get("__dict__")
        if type(descriptor) is types.GetSetDescriptorType:
            found: dict[str, Any] = descriptor.__get__(obj)
            return found
    # SimpleNamespace shows its own as a member.
    if type(obj) is types.SimpleNamespace:
        return obj.__dict__
    return None


def slots_of(cls: type) -> dict[str, Any]:
    """Return the descriptors of the slots that Python classes declare, by name."""
    found: dict[str, Any] = {}
    for klass in mro_of(cls):
        if "__slots__" not in vars(klass):
            continue
        for name, descriptor in vars(klass).items():
            if type(descriptor) is types.MemberDescriptorType:
                found.setdefault(name, descriptor)
    return found


def state_of(obj: Any) -> dict[str, Any]:
    """Return a copy of the object's attributes, those in slots too."""
    state = dict(dict_of(obj) or {})
    for name, descriptor in slots_of(type(obj)).items():
        try:
            value = descriptor.__get__(obj)
        except AttributeError:
            continue
        if name in state:
            why = f"it holds {name!r} both in a slot and in its __dict__"
            refuse_to_store(name_of(type(obj)), why)
        state[name] = None if name == _ATTRS_HASH else value
    return state


def set_state(obj: Any, state: Any) -> None:
    """Give a blank object its attributes. Raises `ValueNotRebuildableError`."""
    name = name_of(type(obj))
    if type(state) is not dict or not all(type(k) is str for k in state):
        refuse(name, "its recorded state is not a mapping of names")
    slots = slots_of(type(obj))
    own = dict_of(obj)
    for key, value in state.items():
        if key in slots:
            slots[key].__set__(obj, value)
        elif own is not None:
            own[key] = value
        else:
            refuse(name, f"the class has no place for the recorded attribute {key!r}")


def blank(cls: type) -> Any:
    """Return an instance without content or state; nothing of the class ran."""
    base: Any = solid_base(cls)
    if base in CONTAINERS or base in ERRORS or base is types.SimpleNamespace:
        return base.__new__(cls)
    return object.__new__(cls)


def base_value(obj: Any) -> Any:
    """Return the content of a subclass instance as its builtin base; a copy.

    Methods that the subclass overrides are not called.
    """
    base: Any = solid_base(type(obj))
    if base is str:
        return "".join([obj])  # noqa: FLY002 - a format calls __format__
    if base is bytes:
        return b"".join([obj])
    if base is bytearray:
        return bytearray(b"".join([obj]))
    if base in {int, float, complex}:
        return base.__pos__(obj)
    if base in {tuple, list}:
        return base.__getitem__(obj, slice(None))
    if base is dict:
        return dict.copy(obj)
    if base in {set, frozenset}:
        return base(base.__iter__(obj))
    if base is OrderedDict:
        return OrderedDict(OrderedDict.items(obj))
    if base is defaultdict:
        factory = vars(defaultdict)["default_factory"].__get__(obj)
        return defaultdict(factory, dict.copy(obj))
    maxlen = vars(deque)["maxlen"].__get__(obj)
    return deque(deque.__iter__(obj), maxlen)


def from_base(cls: type, value: Any) -> Any:
    """Return an instance of a subclass with the content of its builtin base."""
    base: Any = solid_base(cls)
    new: Any = base.__new__
    if type(value) is not base:
        refuse(name_of(cls), "its recorded content is of another type")
    if base in {str, int, float, complex, bytes, tuple, frozenset}:
        return new(cls, value)
    obj = new(cls)
    if base is list:
        list.extend(obj, value)
    elif base is bytearray:
        bytearray.extend(obj, value)
    elif base is set:
        set.update(obj, value)
    elif base is deque:
        deque.__init__(obj, value, value.maxlen)
    elif base is OrderedDict:
        for key, item in value.items():
            OrderedDict.__setitem__(obj, key, item)
    else:
        if base is defaultdict:
            factory = vars(defaultdict)["default_factory"]
            factory.__set__(obj, value.default_factory)
        dict.update(obj, value)
    return obj


def encode_object(obj: Any, encoder: Encoder) -> Json:
    """Return ``$obj`` of an object: its type, builtin content if any, and state."""
    cls = type(obj)
    body: dict[str, Json] = {"type": spec_of(cls)}
    base = solid_base(cls)
    if base in CONTAINERS:
        body["value"] = encoder.put(base_value(obj))
    state = state_of(obj)
    if state:
        body["state"] = encoder.put_state(state)
    return {"$obj": body}


def decode_object(body: Json, decoder: Decoder) -> Any:
    """Rebuild an object from ``$obj``."""
    cls = class_of(body["type"])
    demand_kind(cls, "registered", "state", "subclass")
    if solid_base(cls) in CONTAINERS:
        obj = from_base(cls, decoder.get(body["value"]))
    elif solid_base(cls) in {object, types.SimpleNamespace}:
        obj = blank(cls)
    else:
        refuse(name_of(cls), "it is not rebuilt from its state")
    if "state" in body:
        set_state(obj, decoder.get(body["state"]))
    return obj
