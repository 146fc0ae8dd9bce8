"""Faults that were reported of other logs: what was recorded came back as another."""

from __future__ import annotations

import decimal
import os
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from openai import Omit
from openai.types.chat import ChatCompletion, ParsedChatCompletion
from openai.types.responses import Response

from durable_agent import values
from durable_agent.errors import ValueNotStorableError
from durable_agent.values import canonical, decode, encode, to_plain
from tests import value_types as vt
from tests.strategies import same


@pytest.mark.parametrize(
    "text", [b"\xb2".decode("utf-8", "surrogateescape"), "\ud83c", '{"a": "\ud99c"}']
)
def test_lone_surrogates_are_stored_as_utf_8_and_come_back(text):
    """Bytes that are not UTF-8 come out of subprocesses and file names so."""
    for value in (text, {text: text}, [("x", text)], vt.Model(a=text)):
        raw = encode(value)
        raw.decode("utf-8")

        assert same(decode(raw), value)
    assert to_plain((text,)) == [text]


@pytest.mark.parametrize("text", ["a\x00b", "\\u0000", "\\\\u0000", "\u2028\x85\n"])
def test_nul_and_text_that_looks_escaped_come_back(text):
    value = {text: [text, (text, text.encode())]}

    assert decode(encode(value)) == value


def test_values_with_a_habit_of_coming_back_as_others_do_not():
    value = {
        "enum": vt.Model(a=vt.Colour.RED, b=[vt.Level.HIGH, vt.Word.YES]),
        "counter": Counter("aab"),
        "default": defaultdict(int, a=1),
        "ordered": OrderedDict(b=1, a=2),
        "tuple": vt.Pair(1, (2,)),
        "late": vt.Late.of({1}),
        "frozen": vt.Slotted(a=frozenset({b"x"})),
        "decimal": decimal.Decimal("1.10"),
        "time": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2), "X")),
        "path": Path("/a"),
        "uuid": uuid.UUID(int=5),
        "numpy": [np.float32(1.5), np.array([[1, 2]], dtype="<i2")],
        "keys": {1: "a", "1": "b", True.__class__: "c"},
        "private": vt.Model(a=1),
    }
    value["private"]._note = {"deep": (1,)}

    assert same(decode(encode(value)), value)


def test_sdk_responses_come_back_as_the_same_class_though_they_do_not_validate():
    """A union was rebuilt as the wrong member, and the agent saw no answer."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    completion = ChatCompletion.construct(
        id="x",
        choices=[
            {
                "index": 0,
                "finish_reason": "brand_new",
                "message": {"role": "assistant", "tool_calls": [call]},
            }
        ],
        invented={"a": 1},
    )
    completion._request_id = "req_1"
    response = Response.construct(
        id="r",
        output=[
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
            {"type": "brand_new", "x": [1]},
        ],
    )
    for live in (completion, response):
        got = decode(encode(live))

        assert type(got) is type(live)
        assert got == live
        assert got.model_dump(warnings=False) == live.model_dump(warnings=False)
        assert got.model_fields_set == live.model_fields_set
        assert same(got, live)
    got = decode(encode(completion))
    assert got._request_id == "req_1"
    assert got.choices[0].message.tool_calls[0].function.name == "f"
    assert decode(encode(response)).output_text == "hi"


def test_a_parsed_response_keeps_its_type_parameter():
    parsed = ParsedChatCompletion[vt.Checked].construct(
        id="x",
        choices=[{"index": 0, "message": {"parsed": {"count": 1}, "content": "{}"}}],
    )

    got = decode(encode(parsed))

    assert type(got) is ParsedChatCompletion[vt.Checked]
    assert type(got.choices[0].message.parsed) is vt.Checked


def test_an_application_message_comes_back_with_its_tool_calls():
    call = {"name": "f", "args": {"a": (1,)}, "id": "1", "type": "tool_call"}
    message = vt.Reply("text", tool_calls=[call], score=0.5, id="m")

    got = decode(encode([message]))[0]

    assert type(got) is vt.Reply
    assert got == message
    assert got.tool_calls == [call]
    assert got.model_dump() == message.model_dump()


def test_an_int_of_any_size_comes_back():
    """The interpreter refuses to write more than 4,300 decimal digits."""
    for value in (10**4999, -(10**5000), 2**64, -(2**63) - 1):
        assert decode(encode({"n": value})) == {"n": value}


def test_a_result_that_is_refused_says_what_and_where():
    value = {"ok": 1, "stream": iter([])}

    with pytest.raises(ValueNotStorableError, match="list_iterator") as caught:
        encode(value)

    assert caught.value.path == "['stream']"


_PROGRAM = """
import enum, sys
from dataclasses import dataclass
import attrs
from durable_agent.values import canonical, decode, encode

@attrs.frozen(cache_hash=True)
class Key:
    name: str

@dataclass
class Row:
    keys: set

class Kind(enum.Enum):
    ONE = Key("one")

value = Row({Key("a"), Key("b"), Kind.ONE, ("x", frozenset("xyz"))})
if sys.argv[1:]:
    with open(sys.argv[1], "rb") as file:
        raw = file.read()
    got = decode(raw)
    assert got == value, got
    assert Key("a") in got.keys
    assert canonical(raw) == canonical(encode(value))
else:
    sys.stdout.buffer.write(encode(value))
"""


def test_another_process_with_other_hashes_reads_the_same(tmp_path):
    """Hashes of strings differ from process to process; some classes keep them."""
    program, recorded = tmp_path / "agent.py", tmp_path / "recorded"
    program.write_text(_PROGRAM)
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    run = [sys.executable, str(program)]

    written = subprocess.run(
        run,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    recorded.write_bytes(written.stdout)
    read = subprocess.run(
        [*run, str(recorded)],
        env={**os.environ, "PYTHONHASHSEED": "2", "PYTHONPATH": path},
        check=False,
        capture_output=True,
    )

    assert (read.returncode, read.stderr.decode()) == (0, "")


def test_an_error_is_the_same_argument_whatever_address_its_text_shows():
    """The text of an error with an object in it differs from process to process."""
    recorded = values.encode(ValueError("text", Omit()))

    again = values.encode(values.decode(recorded))

    assert again != recorded
    assert values.canonical(again) == values.canonical(recorded)


@pytest.mark.parametrize(
    "dtype", ["g", "G", ">g", ("g", (2,)), [("a", "i1"), ("b", "g", (2,)), ("c", "G")]]
)
def test_bytes_that_hold_nothing_are_no_part_of_identity(dtype):
    """A long double of 80 bits leaves bytes of its place as they were before."""
    dtype = np.dtype(dtype)
    size = 3 * dtype.itemsize
    arrays = []
    for dirt in (0, 255):
        array = np.frombuffer(bytearray([dirt]) * size, np.uint8).view(dtype.base)
        array = array.copy()
        for place in [array] if array.dtype.names is None else array.dtype.names:
            (array if place is array else array[place])[...] = 0.1
        arrays.append(array)

    encoded = {canonical(encode(array)) for array in arrays}

    assert len(encoded) == 1
    assert np.array_equal(decode(encode(arrays[1])), arrays[1])
    assert len({canonical(encode(array[0])) for array in arrays}) == 1
