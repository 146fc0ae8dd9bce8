"""Where the text of a request may stand already: in outcomes recorded before it."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, field, frozen

from durable_agent import events as ev
from durable_agent._edits_parts import (
    PART_BYTES,
    Path,
    members,
    parts_of,
    text_digest,
    text_hash,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CHUNKS: Final = frozenset({ev.LLM_CHUNK, ev.TOOL_CHUNK})
#: What a later request may repeat.
OUTCOMES: Final = CHUNKS | {
    ev.LLM_RESPONSE,
    ev.TOOL_RESULT,
    ev.TOOL_RESOLVE,
    ev.VALUE,
}
#: Outcomes remembered, and their parts.
EVENTS: Final = 64
_PARTS: Final = 8192
#: Streams that go on at once, and strings followed in one.
_STREAMS: Final = 32
_RUNS: Final = 32
_CHUNK_NODES: Final = 512
#: The JSON texts of larger values are not worked out.
_TEXT_BYTES: Final = 256 << 10

#: How a value became text: the arguments of `json.dumps`.
FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "json": {},
    "json-utf8": {"ensure_ascii": False},
    "compact": {"separators": (",", ":")},
    "compact-utf8": {"separators": (",", ":"), "ensure_ascii": False},
}


@frozen(eq=False)
class Source:
    """A part of an outcome: the reference, the event (the first one), bytes to read."""

    reference: dict[str, Any]
    seq: int
    cost: int


@define(eq=False)
class _Run:
    """Strings at one place of chunks that follow one another, joined."""

    hashed: Any = field(factory=text_hash)
    size: int = 0
    #: [seq, first chunk, last chunk]
    pieces: list[list[int]] = field(factory=list)


@define(eq=False)
class _Stream:
    runs: dict[Path, _Run] = field(factory=dict)
    #: Runs that ended, with their places.
    ended: list[tuple[Path, _Run]] = field(factory=list)
    cost: int = 0


@define(eq=False)
class Sources:
    """The parts of the outcomes recorded last, by digest."""

    found: dict[bytes, Source] = field(factory=dict)
    _recent: deque[tuple[int, list[bytes]]] = field(factory=deque)
    _streams: dict[tuple[str | None, Any], _Stream] = field(factory=dict)

    def add(
        self, seq: int, type_: str, raw: bytes, call: str | None, attempt: Any
    ) -> None:
        """Remember the parts of an outcome, and of the stream that it ends."""
        new: dict[bytes, Source] = {}
        if len(raw) >= PART_BYTES or type_ in CHUNKS:
            data = orjson.loads(raw)
            if type(data) is not dict:
                return
            for part in parts_of(data):
                reference = {"$from": [seq, *part.path]}
                new[part.digest] = Source(reference, seq, len(raw))
            if type_ in CHUNKS:
                self._follow((call, attempt), seq, data.get("chunks"), len(raw))
            elif len(raw) <= _TEXT_BYTES:
                new |= _texts(seq, data.get("value"), len(raw))
        if type_ not in CHUNKS:
            stream = self._streams.pop((call, attempt), None)
            if stream is not None:
                new |= _joined(stream)
        if new:
            self._keep(seq, new)

    def _keep(self, seq: int, new: dict[bytes, Source]) -> None:
        recent = self._recent
        self.found |= new
        recent.append((seq, list(new)))
        while len(recent) > EVENTS or (len(self.found) > _PARTS and len(recent) > 1):
            old, digests = recent.popleft()
            for each in digests:
                if each in self.found and self.found[each].seq <= old:
                    del self.found[each]

    def _follow(
        self, where: tuple[str | None, Any], seq: int, chunks: Any, size: int
    ) -> None:
        stream = self._streams.setdefault(where, _Stream())
        stream.cost += size
        while len(self._streams) > _STREAMS:
            del self._streams[next(iter(self._streams))]
        for n, chunk in enumerate(chunks or ()):
            strings = dict(_strings(chunk))
            for path in [p for p in stream.runs if p not in strings]:
                stream.ended.append((path, stream.runs.pop(path)))
            for path, text in strings.items():
                run = stream.runs.setdefault(path, _Run())
                run.hashed.update(text.encode())
                run.size += len(text)
                if run.pieces and run.pieces[-1][0] == seq:
                    run.pieces[-1][2] = n
                else:
                    run.pieces.append([seq, n, n])


def _strings(value: Any, path: Path = ()) -> list[tuple[Path, str]]:
    """Return the strings within a chunk: the first few."""
    found: list[tuple[Path, str]] = []
    pending: deque[tuple[Path, Any]] = deque([(path, value)])
    left = _CHUNK_NODES
    while pending and len(found) < _RUNS and left:
        left -= 1
        path, node = pending.popleft()
        if type(node) is str:
            found.append((path, node))
        elif len(pending) < _CHUNK_NODES:
            pending += [((*path, key), child) for key, child in members(node)]
    return found


def _joined(stream: _Stream) -> dict[bytes, Source]:
    """Return the strings that chunks spelled out one after the other."""
    found: dict[bytes, Source] = {}
    for path, run in [*stream.ended, *stream.runs.items()]:
        # A single chunk's string is a part of its own.
        pieces = run.pieces
        if run.size >= PART_BYTES and (len(pieces) > 1 or pieces[0][1] < pieces[0][2]):
            reference = {"$join": {"chunks": pieces, "path": list(path)}}
            source = Source(reference, pieces[0][0], stream.cost)
            found[bytes(run.hashed.digest())] = source
    return found


def _texts(seq: int, value: Any, cost: int) -> dict[bytes, Source]:
    """Return the JSON texts as which a tool loop may show a value."""
    found: dict[bytes, Source] = {}
    if value is None:
        return found
    for form, options in FORMS.items():
        try:
            text = json.dumps(value, **options)
        except RecursionError:  # the caller has little stack left
            return found
        if len(text) >= PART_BYTES:
            reference = {"$text": [form, seq, "value"]}
            found.setdefault(text_digest(text), Source(reference, seq, cost))
    return found
