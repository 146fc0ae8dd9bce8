"""A log that somebody made to harm its readers harms none of them."""

import os
import tracemalloc

import pytest

from durable_agent import inspect_session, session
from durable_agent.errors import DurableError
from durable_agent.jsonl import JsonlStore
from tests.fuzz.reading import Reading


def _search(lines, seed):
    reading, count, number = Reading(), 0, seed
    while count < lines:
        count += reading.one(number)["lines"]
        number += 1
    return reading.violations


def test_hostile_lines_raise_our_errors_and_nothing_else_happens():
    """No import, no file, no process, no code, no hang, no memory beyond the log."""
    assert _search(1500, 0) == []


@pytest.mark.slow
def test_many_hostile_lines_do_no_harm():
    assert _search(int(os.environ.get("DURABLE_AGENT_SEEDS", "25")) * 400, 10**6) == []


@pytest.fixture
def segment(root):
    with session("s", root=root) as s:
        s.append("app/note", "x" * 100)
    return root / "s" / f"{0:020d}.jsonl"


@pytest.mark.parametrize(
    "tail",
    [
        b"x" * (6 << 20),
        b"\n" * (1 << 18),
        b'{"seq":4,' * (1 << 19),
        b'{"seq":4,"prev":"00000000","durable":9,"time":1,"type":"a"' * 60_000,
        b"[" * (4 << 20),
        b"\0" * (6 << 20),
    ],
    ids=["one line", "empty lines", "beginnings", "heads", "nesting", "zeros"],
)
def test_reading_takes_no_more_memory_than_four_times_the_file(root, segment, tail):
    segment.write_bytes(segment.read_bytes() + tail)
    size = segment.stat().st_size
    tracemalloc.start()
    try:
        for _ in range(2):
            with inspect_session("s", root=root) as seen:
                assert len(list(seen.events())) == 4
        log = JsonlStore(root).open("s")
        log.close()
        peak = tracemalloc.get_traced_memory()[1]
    except DurableError as error:
        pytest.fail(f"a torn tail was refused: {error}")
    finally:
        tracemalloc.stop()

    assert peak <= 4 * size
    assert log.report.torn
