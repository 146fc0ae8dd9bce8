"""What an agent under test did to the outside: lines in a file beside its session.

`crash_points` names the file in the environment of the script that it runs. A line is
one JSON object in one ``write`` to a file that is open for appending, so a killed
process leaves whole lines, and what they say really happened.
"""

from __future__ import annotations

import os
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from attrs import frozen

from durable_agent import current_call
from durable_agent._fs import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Names the file in the environment.
VARIABLE: Final = "DURABLE_AGENT_EFFECTS"
#: The file of the case that a person is asked about; overrules the environment.
LOOKING_AT: ContextVar[str | None] = ContextVar("durable_agent_effects", default=None)
#: Effects of which the outside takes a second attempt at a call for the first.
_REPEATABLE: Final = frozenset({"read_only", "idempotent"})


def _nothing(label: str) -> None:
    """Stand in for what kills, where nothing kills."""


class Here:
    """Where this process is: what may kill it."""

    #: Called with a label at each place of interest.
    point: Callable[[str], None] = staticmethod(_nothing)


@frozen
class Line:
    """Something that happened outside."""

    kind: Literal["effect", "request", "answer"]
    label: str
    #: The recorded call in whose body it happened, its kind and declared effect.
    call: str = ""
    call_kind: str = ""
    declared: str = ""


def effect(label: str) -> None:
    """Say that something happened outside that must not happen twice.

    For the scripts that `crash_points` runs; call it where the e-mail leaves, or where
    a stand-in for the service takes it. On return the line is in a file that outlives
    the process. Everywhere else it does nothing, so it may stay in the code.

    The same label twice is an effect twice, unless a run that nobody harmed has it
    twice too, or both are attempts at one call that is declared ``idempotent`` or
    ``read_only``.
    """
    Here.point(f"before effect {label!r}")
    note("effect", label)
    Here.point(f"after effect {label!r}")


def happened(label: str) -> int:
    """Return how often an effect happened in this case, in all runs so far.

    What a verifier in the script and ``resolve=`` of `crash_points` may look at in
    place of the outside world. 0 outside of `crash_points`.
    """
    path = LOOKING_AT.get() or os.environ.get(VARIABLE)
    if not path:
        return 0
    return effects(parsed(Path(path).read_bytes()))[label]


def note(kind: Literal["effect", "request", "answer"], label: str) -> None:
    """Append a line, if anybody wants to know."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    call = current_call()
    line = {"kind": kind, "label": str(label)}
    if call is not None:
        line |= {"call": call.id, "call_kind": call.kind, "declared": call.effect}
    append(path, orjson.dumps(line, default=str))


def append(path: str, line: bytes) -> None:
    """Append a line to an existing file."""
    disk = Disk()
    fd = disk.open_append(path)
    try:
        disk.write(fd, line + b"\n")
    finally:
        disk.close(fd)


def parsed(text: bytes) -> list[Line]:
    """Return the lines of such a file."""
    found: list[dict[str, Any]] = [orjson.loads(line) for line in text.splitlines()]
    return [Line(**line) for line in found]


def effects(lines: Iterable[Line]) -> Counter[str]:
    """Return how often each effect happened, as the outside counts."""
    counts: Counter[str] = Counter()
    attempts: set[tuple[str, str]] = set()
    for line in lines:
        if line.kind != "effect":
            continue
        if line.declared in _REPEATABLE:
            if (line.call, line.label) in attempts:
                continue
            attempts.add((line.call, line.label))
        counts[line.label] += 1
    return counts
