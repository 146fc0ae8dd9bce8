"""Recorded values come back equal and of the same type, or are refused when stored."""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np
import orjson
import pydantic
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from durable_agent import values
from durable_agent.errors import ValueNotRebuildableError, ValueNotStorableError
from durable_agent.values import canonical, decode, digest, encode, register_type
from tests import strategies
from tests import value_types as vt
from tests.strategies import same

_quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("name", sorted(strategies.ALONE))
def test_each_type_comes_back_equal_and_of_its_type(name):
    @settings(_quick, max_examples=25)
    @given(strategies.ALONE[name])
    def check(value):
        assert same(value, decode(encode(value)))

    check()


@pytest.mark.parametrize("name", sorted(strategies.NESTED))
def test_each_container_brings_back_anything_in_it(name):
    @settings(_quick, max_examples=25)
    @given(strategies.NESTED[name])
    def check(value):
        assert same(value, decode(encode(value)))

    check()


@_quick
@given(strategies.values())
def test_nested_mixtures_come_back(value):
    assert same(value, decode(encode(value)))


@_quick
@given(strategies.plain_values)
def test_plain_values_are_the_json_that_orjson_writes(value):
    """They are read with jq and grep; only a key with a dollar needs a tag."""
    raw = encode(value)

    assert same(value, decode(raw))
    assert b'"$' in raw or raw == orjson.dumps(value)


@_quick
@given(strategies.values(), st.integers(0, 30))
def test_an_encoded_value_stays_shallow_enough_to_be_put_into_a_record(value, levels):
    for _ in range(levels):
        value = {"a": [value]}
    record = orjson.dumps({"data": {"args": [orjson.Fragment(encode(value))]}})

    assert orjson.dumps(orjson.loads(record)) == record


#: What the design names, and a predicate that knows it when it sees it.
_NAMED = {
    "tuple": lambda v: type(v) is tuple,
    "set": lambda v: type(v) is set,
    "frozenset": lambda v: type(v) is frozenset,
    "bytes": lambda v: type(v) is bytes,
    "non-str keys": lambda v: type(v) is dict and any(type(k) is int for k in v),
    "ints beyond 64 bits": lambda v: type(v) is int and abs(v) > 2**64,
    "NaN": lambda v: type(v) is float and math.isnan(v),
    "Infinity": lambda v: type(v) is float and v in {float("inf"), -float("inf")},
    "lone surrogates": lambda v: (
        type(v) is str and any(0xD800 <= ord(c) <= 0xDFFF for c in v)
    ),
    "subclass of str": lambda v: type(v) is vt.Text,
    "subclass of int": lambda v: type(v) is vt.Whole,
    "subclass of list": lambda v: type(v) is vt.Listed,
    "subclass of dict": lambda v: type(v) is vt.Mapped,
    "datetime": lambda v: type(v) is datetime and v.fold == 1,
    "date": lambda v: type(v).__name__ == "date",
    "time": lambda v: type(v).__name__ == "time",
    "timedelta": lambda v: type(v).__name__ == "timedelta",
    "Decimal": lambda v: type(v) is Decimal and v.is_snan(),
    "UUID": lambda v: type(v).__name__ == "UUID",
    "Enum": lambda v: type(v) is vt.Colour,
    "Path": lambda v: isinstance(v, Path),
    "complex": lambda v: type(v) is complex,
    "namedtuple": lambda v: type(v) in {vt.Pair, vt.Point},
    "dataclass": lambda v: type(v) is vt.Slotted,
    "attrs": lambda v: type(v) is vt.Card,
    "pydantic": lambda v: type(v) is vt.Model,
    "exceptions": lambda v: isinstance(v, BaseException),
    "numpy arrays": lambda v: isinstance(v, np.ndarray),
    "numpy scalars": lambda v: isinstance(v, np.generic),
    "LangChain messages": lambda v: type(v).__name__ == "AIMessage",
    "provider SDK messages": lambda v: type(v).__name__ == "ChatCompletion",
}


def _parts(value):
    """Return what a container holds, one level down."""
    if isinstance(value, dict):
        return [*dict.values(value), *dict.keys(value)]
    if isinstance(value, list):
        return list(list.__iter__(value))
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, type | Enum):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _draw(strategy, note, examples):
    """Call ``note`` with what the strategy draws, the same at every run."""

    @settings(_quick, max_examples=examples, derandomize=True, phases=[Phase.generate])
    @given(strategy)
    def draw(value):
        note(value)

    draw()


@pytest.fixture(scope="module")
def drawn():
    """Return which of the named types the strategies drew, alone and in others."""
    seen = {"alone": set(), "nested": set()}

    def see(where, value):
        seen[where] |= {name for name, is_it in _NAMED.items() if is_it(value)}

    def see_parts(value):
        todo = _parts(value)
        while todo:
            part = todo.pop()
            see("nested", part)
            todo += _parts(part)

    for strategy in strategies.ALONE.values():
        _draw(strategy, lambda value: see("alone", value), 40)
    _draw(strategies.values(), see_parts, 1500)
    return seen


@pytest.mark.parametrize("where", ["alone", "nested"])
@pytest.mark.parametrize("name", sorted(_NAMED))
def test_the_strategies_draw_each_named_type(name, where, drawn):
    """A property proves nothing about a type that it never saw."""
    assert name in drawn[where]


def test_nesting_deeper_than_the_encoder_comes_back():
    deep = bottom = []
    for level in range(12_000):
        deep = [deep] if level % 3 else {"a": (deep,)} if level % 2 else {"b": deep}

    got = decode(encode(deep))

    levels = 0
    while deep is not bottom:
        assert type(got) is type(deep)
        (deep,), (got,) = (
            (v.values() if isinstance(v, dict) else v) for v in (deep, got)
        )
        levels += 1
    assert got == []
    assert levels > 12_000


@pytest.mark.parametrize("levels", [63, 64, 65, 253, 254, 255, 256, 1023, 1025])
def test_borders_of_nesting_come_back(levels):
    value = "$5"
    for _ in range(levels):
        value = [value]

    got = decode(encode(value))

    for _ in range(levels):
        assert type(got) is list
        (got,) = got
    assert got == "$5"


def _deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def _self_referring():
    value = [1]
    value.append({"a": value})
    return value


def _branching_cycle():
    """Walking it without noticing takes two to the depth steps."""
    value = []
    value += [value, value, (value,)]
    return value


#: Made in the test: a deep value is hard on whoever shows it.
_REFUSED = {
    "100,000 levels": lambda: _deep(100_000),
    "a list in itself": _self_referring,
    "a list in itself, branching": _branching_cycle,
    "lambda": lambda: lambda: None,
    "builtin function": lambda: len,
    "module": lambda: sys,
    "generator": lambda: (i for i in "a"),
    "memoryview": lambda: memoryview(b"a"),
    "object": object,
    "unknown class": lambda: vt.Unmarked(1),
    "class as a value": lambda: vt.Unmarked,
    "class with __del__": lambda: vt.Dying(1),
    "SecretStr": lambda: pydantic.SecretStr("secret"),
    "SecretBytes": lambda: pydantic.SecretBytes(b"secret"),
    "factory": lambda: defaultdict(lambda: 1),
    "objects in records": lambda: np.array(
        [(1, None)], dtype=[("a", "i4"), ("b", "O")]
    ),
    "masked array": lambda: np.ma.masked_array([1], [True]),
    "property": property,
    "struct_time": time.gmtime,
}


@pytest.mark.parametrize("name", sorted(_REFUSED))
def test_what_cannot_come_back_is_refused_when_stored(name):
    value = _REFUSED[name]()

    with pytest.raises(ValueNotStorableError):
        encode(value)
    with pytest.raises(ValueNotStorableError):
        encode({"a": (value,)})


def test_open_resources_are_refused(tmp_path):
    import asyncio
    import socket
    import threading

    async def body():
        """A coroutine is no value."""

    coroutine = body()
    loop = asyncio.new_event_loop()
    with (tmp_path / "f").open("w") as file, socket.socket() as sock:
        for value in (file, sock, coroutine, threading.Lock(), loop.create_future()):
            with pytest.raises(ValueNotStorableError):
                encode([value])
    coroutine.close()
    loop.close()


def test_a_refusal_names_the_place_and_the_type():
    value = {"a": [0, 1, vt.Plain(a={"k": {1, 2}, "f": print})]}

    with pytest.raises(ValueNotStorableError) as caught:
        encode(value)

    assert caught.value.path == "['a'][2].a['f']"
    assert caught.value.type_name == "builtins:builtin_function_or_method"
    assert "['a'][2].a['f']" in str(caught.value)


def test_a_class_inside_a_function_is_refused_with_the_reason():
    @dataclass
    class Local:
        a: int

    with pytest.raises(ValueNotStorableError, match="inside a function"):
        encode(Local(1))


def test_a_class_that_was_replaced_is_refused():
    """After a reload, an old instance would come back as another class."""
    old = vt.Plain
    value = old(1)
    try:
        vt.Plain = dataclass(type("Plain", (), {"__annotations__": {"a": int}}))
        with pytest.raises(ValueNotStorableError, match="another class"):
            encode(value)
    finally:
        vt.Plain = old


def test_what_is_stored_is_a_snapshot():
    value = {"a": [1, {2}], "b": vt.Plain([1])}
    before = copy.deepcopy(value)
    raw = encode(value)

    value["a"][1].add(3)
    value["b"].a.append(2)

    assert same(before, decode(raw))


def test_each_reader_gets_a_fresh_object():
    raw = encode([vt.Model(a=[1]), [1]])
    first = decode(raw)
    first[0].a.append(2)
    first[1].append(2)

    assert decode(raw) == [vt.Model(a=[1]), [1]]


def test_shared_parts_come_back_as_equal_objects_of_their_own():
    part = [1]
    one, two = decode(encode((part, part)))

    assert one == two == [1]
    assert one is not two


def test_neither_constructor_nor_validator_nor_setter_runs():
    value = object.__new__(vt.Harmful)
    value.__dict__.update(a=1, watched="shadowed")
    vt.DEEDS.clear()

    got = decode(encode([value]))[0]

    assert vt.DEEDS == []
    assert got.__dict__ == {"a": 1, "watched": "shadowed"}


def test_a_model_keeps_which_fields_were_set_extras_and_private_attributes():
    value = vt.Model(a=vt.Text("x"), more=[1])
    value._note = {"n": 1}

    got = decode(encode(value))

    assert got.a == "<x>"
    assert got.model_fields_set == {"a", "more"}
    assert got.model_extra == {"more": [1]}
    assert got._note == {"n": 1}
    assert got == value


def test_a_changed_class_gets_the_recorded_state(monkeypatch):
    """A deployment between crash and resume changes classes."""
    raw = encode(vt.Plain(1, 2))

    @dataclass
    class Plain:
        a: int
        new: str = "default"

    Plain.__module__, Plain.__qualname__ = vt.__name__, "Plain"
    monkeypatch.setattr(vt, "Plain", Plain)
    got = decode(raw)

    assert type(got) is Plain
    assert (got.a, got.new) == (1, "default")


def test_a_missing_class_is_named_with_the_way_out(monkeypatch):
    raw = encode(vt.Plain(1))
    monkeypatch.delattr(vt, "Plain")

    with pytest.raises(ValueNotRebuildableError, match="register_type") as caught:
        decode(raw)

    assert caught.value.type_name == "tests.value_types:Plain"


def test_an_enum_member_with_another_value_is_refused(monkeypatch):
    """A name that means something else now would change a recorded decision."""
    import enum

    raw = encode(vt.Colour.RED)
    changed = enum.Enum("Colour", {"RED": "blue"}, module=vt.__name__)
    monkeypatch.setattr(vt, "Colour", changed)

    with pytest.raises(ValueNotRebuildableError, match="another value"):
        decode(raw)


@pytest.fixture
def registry(monkeypatch):
    from durable_agent import _value_names

    monkeypatch.setattr(_value_names, "_registered", {})
    monkeypatch.setattr(_value_names, "_registered_names", {})


@pytest.mark.usefixtures("registry")
def test_a_registered_type_comes_back_by_state():
    register_type(vt.Unmarked)

    assert same(decode(encode({"a": vt.Unmarked((1,))})), {"a": vt.Unmarked((1,))})


@pytest.mark.usefixtures("registry")
def test_a_registered_type_comes_back_by_its_functions():
    register_type(
        pydantic.SecretStr,
        encode=lambda s: s.get_secret_value(),
        decode=pydantic.SecretStr,
    )

    assert decode(encode([pydantic.SecretStr("x")])) == [pydantic.SecretStr("x")]


@pytest.mark.usefixtures("registry")
def test_a_registered_local_class_is_found():
    class Local:
        pass

    register_type(Local)

    assert type(decode(encode(Local()))) is Local


@pytest.mark.usefixtures("registry")
def test_types_that_cannot_be_registered_are_refused():
    for cls in (str, dict, 5, type(sys._getframe())):
        with pytest.raises(TypeError):
            register_type(cls)
    with pytest.raises(TypeError, match="together"):
        register_type(vt.Unmarked, encode=vars)


@pytest.mark.usefixtures("registry")
def test_an_encode_that_raises_is_a_refusal():
    register_type(vt.Unmarked, encode=lambda v: 1 / 0, decode=vt.Unmarked)

    with pytest.raises(ValueNotStorableError, match="ZeroDivisionError"):
        encode(vt.Unmarked())


def _reordered(value):
    if type(value) is dict:
        return {k: _reordered(value[k]) for k in reversed(value)}
    if type(value) in (list, tuple):
        return type(value)(map(_reordered, value))
    if type(value) in (set, frozenset):
        return type(value)(reversed(list(value)))
    return value


@_quick
@given(strategies.values())
def test_equal_values_have_equal_canonical_bytes(value):
    """A changed order of keys is no other call."""
    first = canonical(encode(value))

    assert canonical(encode(_reordered(value))) == first
    assert canonical(encode(decode(encode(value)))) == first


def test_equal_numbers_of_different_types_are_told_apart():
    digests = {digest(canonical(encode([v]))) for v in (1, 1.0, True, "1", None)}

    assert len(digests) == 5
    assert all(len(d) == 32 for d in digests)


def test_different_values_have_different_canonical_bytes():
    different = [
        [],
        {},
        (),
        [[]],
        {"$tuple": []},
        {"a": 1},
        {"$dict": [["a", 1]]},
        "$dict",
        b"",
        "",
        set(),
        frozenset(),
        vt.Pair(1, 2),
        (1, 2),
        vt.Plain(1),
        vt.Loose(1),
        _deep(300),
        _deep(301),
        Counter(a=1),
    ]

    assert len({canonical(encode(v)) for v in different}) == len(different)


def test_deep_values_in_another_order_are_equal():
    def make(order):
        value = "end"
        for level in range(600):
            keys = {"x": [level], "y": value, "z": {1, (level,)}}
            value = {k: keys[k] for k in order}
        return value

    one, other = encode(make("xyz")), encode(make("zyx"))

    assert one != other
    assert canonical(one) == canonical(other)


def test_arrays_of_another_layout_are_equal():
    array = np.arange(6).reshape(2, 3)
    one, other = encode(array), encode(np.asfortranarray(array))

    assert one != other
    assert canonical(one) == canonical(other)


def test_the_example_of_the_format_is_what_is_written():
    raw = encode({"total": Decimal("1.50"), "at": (1, b"ok")})

    assert raw.decode() in values.__doc__


@pytest.mark.parametrize(
    ("value", "view"),
    [
        (vt.Model(a=b"\xffx", b=(1, {2})), {"a": "\\xffx", "b": [1, [2]]}),
        (vt.Plain(vt.Card(1, 2)), {"a": {"a": 1, "_private": 2}, "b": None}),
        ({1: "\ud800", "e": vt.Colour.RED}, {"1": "\ud800", "e": "red"}),
        (vt.Point(1, 2), {"x": 1, "y": 2}),
        ([2**70, float("nan"), None], [hex(2**70), "nan", None]),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (ValueError("bad"), {"type": "builtins:ValueError", "text": "bad"}),
        ((np.array([1, 2]), np.float64(0.5)), [[1, 2], 0.5]),
        (object(), "<builtins:object>"),
        (pydantic.SecretStr("x"), "**********"),
        (Path("/a"), "/a"),
    ],
)
def test_the_view_for_people_is_json(value, view):
    got = values.to_plain(value)

    assert got == view
    json.dumps(got)


@_quick
@given(strategies.values())
def test_anything_has_a_view(value):
    json.dumps(values.to_plain(value))


def test_the_view_of_what_contains_itself_ends():
    assert values.to_plain(_self_referring()) == [1, {"a": "<itself>"}]
    json.dumps(values.to_plain(_deep(5000)))
