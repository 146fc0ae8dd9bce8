"""A record may be written by anybody: reading it does nothing but read it."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_agent.errors import RecordedToolError, ValueNotRebuildableError
from durable_agent.values import canonical, decode, decode_error, encode
from tests import strategies
from tests import value_types as vt

_STATE = {"type": None, "state": {"a": 1}}


def _obj(name, **more):
    return {"$obj": {"type": name, **more}}


_HOSTILE = {
    "a function": _obj("os:system", state={"a": 1}),
    "a function as a value": {"$type": "os:system"},
    "Popen": _obj("subprocess:Popen", state={"args": ["touch", "x"]}),
    "Popen as a value": {"$type": "subprocess:Popen"},
    "Popen as a factory": {"$default": [{"$type": "subprocess:Popen"}, {}]},
    "a function as a factory": {"$default": [{"$type": "builtins:eval"}, {}]},
    "a text as a factory": {"$default": ["os:system", {}]},
    "Popen by registration": {"$via": ["subprocess:Popen", ["touch", "x"]]},
    "a module": {"$type": "os:path"},
    "no module": _obj(":int"),
    "no name": _obj("os:"),
    "an attribute of a function": _obj("os:system.__call__"),
    "a name that is no text": _obj([1]),
    "a builtin that is no kind": _obj("builtins:object"),
    "a builtin container": _obj("builtins:list", value=[1]),
    "a type": _obj("builtins:type", state={}),
    "a class with __del__": _obj("tests.value_types:Dying", state={"a": 1}),
    "a class of no kind": _obj("tests.value_types:Unmarked", state={"a": 1}),
    "an error as an object": _obj("builtins:ValueError", state={}),
    "an object as an error": {
        "$error": [{"type": "tests.value_types:Plain", "text": "", "args": []}]
    },
    "an enum as an object": _obj("tests.value_types:Colour", state={"_value_": 1}),
    "an object as an enum": {"$enum": ["tests.value_types:Plain", "a"]},
    "a method as an enum member": {"$enum": ["tests.value_types:Colour", "__new__"]},
    "a flag that is none": {"$flag": ["tests.value_types:Colour", 1]},
    "a generic of no model": _obj({"origin": "builtins:list", "args": ["os:system"]}),
    "a generic of Popen": _obj(
        {"origin": "tests.value_types:Boxed", "args": ["subprocess:Popen"]}
    ),
    "an endless generic": _obj({"origin": {"origin": "a:b"}, "args": []}),
    "a tag nobody knows": {"$pickle": "gASVBQ=="},
    "content of another type": _obj("tests.value_types:Listed", value={"a": 1}),
    "state that is no mapping": _obj("tests.value_types:Plain", state=[1]),
    "state with other keys": _obj("tests.value_types:Plain", state={"$dict": [[1, 2]]}),
    "an attribute without a place": _obj(
        "tests.value_types:Slotted", state={"a": 1, "elsewhere": 2}
    ),
    "a key that cannot be one": {"$dict": [[[1], 2]]},
    "an item that cannot be in a set": {"$set": [[1]]},
    "text for a list": {"$tuple": "abc"},
    "an object for a list": {"$tuple": {"a": 1}},
    "no base64": {"$bytes": "a*b"},
    "no number": {"$float": "1e5"},
    "no int": {"$int": "10**9"},
    "no date": {"$date": "tomorrow"},
    "a duration without end": {"$timedelta": [10**12, 0, 0]},
    "a zone outside": {"$zone": "../../../etc/passwd"},
    "a path class": {"$path": ["Popen", "x"]},
    "pointers as data": {
        "$ndarray": {"shape": [1], "dtype": "O", "data": "AQAAAAAAAAA="}
    },
    "pointers among data": {
        "$ndarray": {"shape": [1], "dtype": "i8,O", "data": "A" * 21 + "w=="}
    },
    "pointers as a scalar": {"$npscalar": ["O", "AQAAAAAAAAA="]},
    "a shape without end": {
        "$ndarray": {"shape": [10**12], "dtype": "<i8", "data": "AQAAAAAAAAA="}
    },
    "a reference to nothing": {"$ref": 1},
    "a reference to itself": {"$deep": [[1], {"$ref": 1}]},
    "a reference backwards": {"$deep": [{"$ref": 1}, {"$ref": 0}]},
    "a node shared": {"$deep": [[{"$ref": 1}, {"$ref": 1}], [1]]},
    "a node of nobody": {"$deep": [[1], [2]]},
    "no nodes": {"$deep": []},
    "a group in itself": {
        "$error": [
            {
                "type": "builtins:ExceptionGroup",
                "text": "",
                "args": [],
                "message": "",
                "members": [0],
            }
        ]
    },
    "a core type": {"$core": ["SchemaValidator", "x"]},
    "a response of nothing": {"$response": ["os", {}]},
}


@pytest.mark.parametrize("name", sorted(_HOSTILE))
@pytest.mark.parametrize("nested", [False, True])
def test_hostile_records_are_refused(name, nested):
    record = {"a": [_HOSTILE[name]]} if nested else _HOSTILE[name]
    vt.DEEDS.clear()
    modules = set(sys.modules)

    with pytest.raises(ValueNotRebuildableError):
        decode(json.dumps(record).encode())

    assert vt.DEEDS == []
    assert set(sys.modules) == modules


def test_no_module_is_imported_because_a_record_names_it(tmp_path, monkeypatch):
    # One that is there to be imported, and that nobody else loads.
    (tmp_path / "there_to_be_loaded.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "antigravity" not in sys.modules
    assert "tests.not_loaded" not in sys.modules

    for name in (
        "antigravity:Anything",
        "tests.not_loaded:Thing",
        "there_to_be_loaded:X",
    ):
        with pytest.raises(ValueNotRebuildableError, match="no loaded module"):
            decode(json.dumps(_obj(name, state={})).encode())
        record = {"$error": [{"type": name, "text": "t", "args": []}]}
        assert type(decode_error(json.dumps(record).encode())) is RecordedToolError

    assert "antigravity" not in sys.modules
    assert "there_to_be_loaded" not in sys.modules


def test_a_lazy_module_is_not_made_to_load(monkeypatch):
    import types

    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError("the module was touched")

        def __getattr__(self, name):
            raise AssertionError("the module was touched")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "odd_module", object())

    for name in ("lazy_module:Thing", "odd_module:Thing"):
        with pytest.raises(ValueNotRebuildableError, match="no loaded module"):
            decode(json.dumps(_obj(name)).encode())


def test_state_is_restored_without_setstate_setters_or_constructor():
    record = _obj("tests.value_types:Harmful", state={"a": 1, "watched": 2})
    vt.DEEDS.clear()

    got = decode(json.dumps(record).encode())

    assert vt.DEEDS == []
    assert vars(got) == {"a": 1, "watched": 2}


def test_a_path_of_another_system_is_refused():
    with pytest.raises(ValueNotRebuildableError):
        decode(b'{"$path":["WindowsPath","c:\\\\a"]}')


@pytest.mark.parametrize("levels", [1_000, 1_024, 10_000, 200_000])
@pytest.mark.parametrize(
    ("start", "end"),
    [("[", "]"), ('{"a":', "}"), ('{"$tuple":[', "]}"), ('[{"$set":', "}]")],
)
def test_nesting_beyond_what_is_written_is_refused(levels, start, end):
    raw = (start * levels + '"$a"' + end * levels).encode()

    for read in (decode, canonical, decode_error):
        with pytest.raises(ValueNotRebuildableError):
            read(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"1" * 100_000,
        b"-" + b"9" * 20,
        b"[18446744073709551616]",
        b'{"a":-9223372036854775809.0,"b":123456789012345678901}',
        b"[0.12345678901234567890123, 123456789012345678901]",
        b'["\\"", 123456789012345678901]',
    ],
)
def test_an_untagged_huge_int_is_refused(raw):
    """It would silently be read as a float."""
    with pytest.raises(ValueNotRebuildableError):
        decode(raw)


def test_digits_in_texts_and_fractions_are_no_ints():
    value = [
        "123456789012345678901234",
        1.2345678901234567e-05,
        1.5,
        2**64 - 1,
        -(2**63),
    ]

    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"NaN", b"\xff", b'"\\ud800"', b"[1,]", b"\xef\xbb\xbf1", b"1 2"]
)
def test_what_is_not_json_is_refused(raw):
    for read in (decode, canonical):
        with pytest.raises(ValueNotRebuildableError):
            read(raw)


_names = st.sampled_from(
    [
        "tests.value_types:Plain",
        "tests.value_types:Colour",
        "tests.value_types:Listed",
        "builtins:ValueError",
        "collections:Counter",
        "os:system",
        "subprocess:Popen",
    ]
)
_TAGS = """
$int $float $str $bytes $bytearray $tuple $set $frozenset $complex $range $slice
$dict $ordered $default $deque $decimal $uuid $date $fraction $datetime $time
$timedelta $timezone $zone $path $constant $core $ndarray $npscalar $dtype $type
$enum $flag $obj $via $error $response $request $deep $ref $other
""".split()
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | _names,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "state", "value", "shape", "dtype", "data", "args"]
            ),
            inner,
            max_size=3,
        )
        | st.builds(lambda tag, body: {tag: body}, st.sampled_from(_TAGS), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=400, deadline=None)
@given(_json)
def test_any_json_is_read_or_refused(tree):
    raw = json.dumps(tree).encode()
    for read in (decode, canonical, decode_error):
        try:
            read(raw)
        except ValueNotRebuildableError:
            pass


@settings(max_examples=100, deadline=None)
@given(strategies.values(), st.data())
def test_a_damaged_record_is_read_or_refused(value, data):
    raw = bytearray(encode(value))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    for read in (decode, canonical):
        try:
            read(bytes(raw))
        except ValueNotRebuildableError:
            pass
