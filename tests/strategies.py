"""Hypothesis strategies, shared.

``values()`` draws nested mixtures of everything that a record may hold; ``ALONE`` has a
strategy for each type by name, so that none is left out unseen.
"""

from __future__ import annotations

import math
import struct
import types
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import openai
import pydantic
import pydantic_core
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from tests import value_types as vt

_SMALL = st.integers(-3, 3) | st.text(max_size=4)

#: Text with lone surrogates, NUL, line separators, dollars and backslashes.
texts = st.text(
    st.characters() | st.sampled_from("$\\\x00\u2028\ud800\udc80\udfff\x85\"'"),
    max_size=12,
) | st.sampled_from(["\ud800", "$\udc80\\ud800", "\\\\", "a\x00b", "\\u0000", "$tuple"])
ints = (
    st.integers()
    | st.integers(2**63 - 2, 2**64 + 2)
    | st.integers(-(2**63) - 2, -(2**63) + 2)
    | st.sampled_from([2**64 - 1, 2**64])
    | st.sampled_from([1, -1]).map(lambda sign: sign * 10**5000)
)
floats = st.floats() | st.sampled_from([-0.0, math.inf, -math.inf, math.nan, 1e16])
zones = (
    st.sampled_from(["Europe/Berlin", "UTC", "America/New_York"]).map(ZoneInfo)
    | st.just(UTC)
    | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
    | st.builds(timezone, st.just(timedelta(hours=1)), texts)
    | st.integers(-80000, 80000).map(pydantic_core.TzInfo)
)
datetimes = st.builds(
    lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold),
    st.datetimes(),
    st.none() | zones,
    st.integers(0, 1),
)
times = st.builds(
    lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold),
    st.times(),
    st.none() | zones,
    st.integers(0, 1),
)
_DTYPES = ["?", "b", ">i2", "<u8", "q", "<f2", ">f8", "<c16", "<M8[us]", "<m8[D]"]


def _array(dtype, shape, seed, fortran):
    size = math.prod(shape)
    dtype = np.dtype(dtype)
    whole = np.random.default_rng(seed).integers(0, 2, size * dtype.itemsize)
    array = np.frombuffer(whole.astype("u1").tobytes(), dtype, size)
    array = array.reshape(shape).copy()
    return np.asfortranarray(array) if fortran else array


arrays = st.builds(
    _array,
    st.sampled_from([*_DTYPES, "<U3", "S2", [("a", "<i4"), ("b", "<f8", (2,))]]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 9),
    st.booleans(),
)
scalars = st.builds(
    lambda dtype, seed: _array(dtype, (1,), seed, False)[0],
    st.sampled_from([*_DTYPES, "<U3", "S2"]),
    st.integers(0, 9),
) | st.sampled_from(
    [
        np.str_(""),
        np.bytes_(b""),
        np.float64("nan"),
        np.longlong(1),
        np.longdouble("0.1"),
    ]
)

_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"a": "\ud99c"}'},
}
_COMPLETION = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "odd", "tool_calls": [_CALL]}}],
    "unknown": {"x": [1]},
}


def _completion(request_id, extra):
    made = ChatCompletion.construct(**{**_COMPLETION, "extra": extra})
    made._request_id = request_id
    return made


completions = st.builds(_completion, st.none() | texts, _SMALL)
chunks = st.builds(
    lambda text: ChatCompletionChunk.construct(
        id="c", choices=[{"delta": {"content": text}, "index": 0}]
    ),
    texts,
)
responses = st.builds(
    lambda text: Response.construct(
        id="r",
        output=[
            {"type": "reasoning", "id": "a", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": text}]},
            {"type": "brand_new", "field": text},
        ],
    ),
    texts,
)
_TOOL_CALL = {"name": "f", "args": {"a": 1}, "id": "x", "type": "tool_call"}
_SAFE_TEXT = st.text(max_size=6)

#: One strategy for each type that holds no other value, by name.
LEAVES = {
    "None": st.none(),
    "bool": st.booleans(),
    "int": ints,
    "float": floats,
    "str": texts,
    "bytes": st.binary(max_size=8),
    "bytearray": st.binary(max_size=8).map(bytearray),
    "complex": st.complex_numbers() | st.just(complex(-0.0, math.nan)),
    "range": st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    "Ellipsis": st.sampled_from([..., NotImplemented]),
    "datetime": datetimes,
    "date": st.dates(),
    "time": times,
    "timedelta": st.timedeltas(),
    "tzinfo": zones,
    "Decimal": st.decimals() | st.sampled_from(["sNaN12", "-0", "1E+99"]).map(Decimal),
    "Fraction": st.builds(Fraction, st.integers(), st.integers(1, 10**30)),
    "UUID": st.uuids(),
    "Path": st.builds(
        lambda cls, text: cls(text),
        st.sampled_from([Path, PurePosixPath, PureWindowsPath]),
        texts,
    ),
    "Enum": st.sampled_from([*vt.Colour, *vt.Level, *vt.Word, *vt.Act]),
    "Flag": st.integers(0, 7).map(vt.Rights),
    "type": st.sampled_from([int, dict, vt.Model, vt.Colour, vt.Boxed[int], KeyError]),
    "sentinel": st.builds(openai.Omit) | st.builds(openai.NotGiven),
    "str subclass": texts.map(vt.Text),
    "int subclass": ints.map(vt.Whole),
    "float subclass": floats.map(vt.Real),
    "bytes subclass": st.binary(max_size=5).map(vt.Raw),
    "numpy array": arrays,
    "numpy scalar": scalars,
    "numpy dtype": st.sampled_from(_DTYPES).map(np.dtype),
    "openai response": completions | chunks | responses,
    "Url": st.just("https://user@example.org/a?b=c").map(pydantic.AnyUrl),
    "attrs with cached hash": st.builds(vt.Hashed, texts),
}
#: Those of them that can be in sets and be keys.
HASHABLE = st.one_of(
    *(
        LEAVES[name]
        for name in (
            "None bool int float str bytes complex range datetime date time timedelta"
            " tzinfo Fraction UUID Path Enum Flag type"
        ).split()
    ),
    texts.map(vt.Text),
    LEAVES["attrs with cached hash"],
)


def _tagged(text, note):
    made = vt.Tagged(text)
    made.note = note
    return made


def _late(value):
    return vt.Late.of(value)


def _model(a, b, extra, note, copied):
    made = vt.Model(a=a, extra=extra, **({} if b is None else {"b": b}))
    made._note = note
    return made.model_copy(update={"added": copied}) if copied is not None else made


def _error(cls, value):
    made = cls("text", value)
    made.detail = value
    made.add_note("a note")
    return made


def _objects(items):
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array


def _queue(cls):
    return lambda items, limit: cls(items, limit)


def containers(inner):
    """Return a strategy by name for each type that holds values of ``inner``."""
    items = st.lists(inner, max_size=3)
    pairs = st.dictionaries(HASHABLE, inner, max_size=3)
    named = st.dictionaries(texts, inner, max_size=3)
    keys = st.frozensets(
        HASHABLE | st.tuples(HASHABLE, st.frozensets(HASHABLE, max_size=2)), max_size=3
    )
    limit = st.none() | st.integers(0, 4)
    factory = st.sampled_from([None, int, list, dict, set])
    return {
        "list": items,
        "tuple": items.map(tuple),
        "dict": named,
        "dict of any keys": pairs,
        "dict with a tag": st.builds(lambda v: {"$tuple": v}, inner),
        "set": keys.map(set),
        "frozenset": keys,
        "slice": st.builds(slice, inner, inner, inner),
        "list subclass": items.map(vt.Listed),
        "dict subclass": pairs.map(vt.Mapped),
        "set subclass": keys.map(vt.Bag),
        "frozenset subclass": keys.map(vt.Frozen),
        "tuple subclass": items.map(vt.Row),
        "str with attributes": st.builds(_tagged, texts, inner),
        "Counter": st.dictionaries(HASHABLE, st.integers(), max_size=3).map(Counter),
        "OrderedDict": pairs.map(OrderedDict) | pairs.map(vt.Ordered),
        "defaultdict": st.builds(defaultdict, factory, pairs)
        | st.builds(vt.Default, factory, pairs),
        "deque": st.builds(_queue(deque), items, limit)
        | st.builds(_queue(vt.Queue), items, limit),
        "namedtuple": st.builds(lambda a, b: vt.Pair(a, b), inner, inner)
        | inner.map(lambda a: vt.Point(a)),
        "SimpleNamespace": named.map(lambda d: types.SimpleNamespace(**d)),
        "dataclass": st.builds(vt.Plain, inner, inner),
        "dataclass, frozen with slots": st.builds(vt.Slotted, a=inner, hidden=inner),
        "dataclass, init=False": inner.map(_late),
        "attrs": st.builds(vt.Card, inner, inner) | st.builds(vt.Loose, inner),
        "pydantic": st.builds(_model, inner, inner, inner, inner, inner),
        "pydantic generic": st.integers().map(lambda i: vt.Boxed[int](item=i)),
        "numpy array of objects": items.map(_objects),
        "exception": st.builds(
            _error, st.sampled_from([ValueError, KeyError, Exception]), inner
        ),
        "exception group": items.map(
            lambda vs: vt.GroupError("g", [ValueError(vs), vt.ApiError("a", status=1)])
        ),
        "langchain message": st.one_of(
            st.builds(lambda t: HumanMessage(t, id="1"), _SAFE_TEXT),
            st.builds(SystemMessage, _SAFE_TEXT),
            st.builds(lambda t: AIMessage(t, tool_calls=[_TOOL_CALL]), _SAFE_TEXT),
            st.builds(AIMessageChunk, _SAFE_TEXT),
            st.builds(lambda t: vt.Reply(t, score=0.5), _SAFE_TEXT),
            st.builds(
                lambda t, v: ToolMessage(t, tool_call_id="x", artifact=v),
                _SAFE_TEXT,
                inner,
            ),
        ),
    }


_leaf = st.one_of(*LEAVES.values())
#: Every type on its own, containers with leaves inside.
ALONE = {**LEAVES, **containers(_SMALL)}
#: Containers by name, with anything inside.
NESTED = containers(_leaf)


def values(max_leaves=12):
    """Return nested mixtures of everything."""
    return st.recursive(
        _leaf,
        lambda inner: st.one_of(*containers(inner).values()),
        max_leaves=max_leaves,
    )


#: What JSON itself can say.
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one, other):
    """Whether two values are equal and of the same types, all the way down.

    ``==`` alone proves little: 1 == 1.0 == True, and NaN differs from itself.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return _same_arrays(one, other)
    if isinstance(one, np.generic):
        same_bytes = one.tobytes() == other.tobytes()
        return one.dtype == other.dtype and (same_bytes or one == other)
    return _same_content(one, other) and _same_state(one, other)


def _same_arrays(one, other):
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.flags.f_contiguous != other.flags.f_contiguous:
        return False
    if one.dtype == object:
        return all(map(same, one.flat, other.flat))
    return one.dtype.type is other.dtype.type and one.tobytes() == other.tobytes()


def _same_content(one, other):
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or all(
            map(math.isnan, (one, other))
        )
    if isinstance(one, complex):
        return same([one.real, one.imag], [other.real, other.imag])
    if isinstance(one, dict):
        factories = [getattr(v, "default_factory", None) for v in (one, other)]
        pairs = [list(dict.items(v)) for v in (one, other)]
        return factories[0] is factories[1] and same(*pairs)
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and _matched(list(one), list(other))
    if isinstance(one, list | tuple | deque):
        ones, others = _items(one), _items(other)
        limits = [getattr(v, "maxlen", None) for v in (one, other)]
        return (
            len(ones) == len(others)
            and limits[0] == limits[1]
            and all(map(same, ones, others))
        )
    if isinstance(one, slice):
        parts = [[v.start, v.stop, v.step] for v in (one, other)]
        return same(*parts)
    if isinstance(one, BaseException):
        return same(one.args, other.args)
    if isinstance(one, str | int | bytes):
        return one == other
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if hasattr(one, "fold"):
        return (one, one.fold) == (other, other.fold) and same(one.tzinfo, other.tzinfo)
    # What has state is compared by it.
    return bool(_state(one)) or isinstance(one, _STATELESS) or one == other


def _items(value):
    return list(list.__iter__(value) if isinstance(value, list) else value)


def _matched(ones, others):
    for each in ones:
        for index, candidate in enumerate(others):
            if same(each, candidate):
                del others[index]
                break
        else:
            return False
    return not others


_STATELESS = (types.SimpleNamespace, openai.Omit, openai.NotGiven)
_NOT_STATE = {"__weakref__", "_attrs_cached_hash", "__dict__"}


def _state(value):
    """Return the attributes of an instance of a class that is written in Python."""
    found = {}
    if isinstance(value, type | Enum | date | time | Fraction | UUID | PurePath):
        return found
    for cls in type(value).__mro__:
        for name in {*vars(cls).get("__slots__", ())} - _NOT_STATE:
            mangled = f"_{cls.__name__}{name}" if name.startswith("__") else name
            for attribute in (name, mangled):
                if hasattr(value, attribute):
                    found[attribute] = getattr(value, attribute)
    return {**found, **getattr(value, "__dict__", {})}


def _same_state(one, other):
    ones, others = _state(one), _state(other)
    return ones.keys() == others.keys() and all(same(ones[k], others[k]) for k in ones)
