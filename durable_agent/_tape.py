"""A stream while it is recorded: the first chunk, packed batches, then how it ended.

Chunks are eager, not durable. The end is recorded when the final chunk is seen, else at
exhaustion, and always before it is handed out.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import orjson
from attrs import define, field

from durable_agent import _current, values
from durable_agent import events as ev
from durable_agent._ending import PARTIAL_CAUSE, Packed, pack_error, record, rendered
from durable_agent._requests import Eager
from durable_agent._sealing import leave_behind
from durable_agent.errors import (
    DurableError,
    OutcomeNotRecordedError,
    ValueNotStorableError,
)
from durable_agent.events import Draft
from durable_agent.transcript import is_final_chunk

if TYPE_CHECKING:
    from collections.abc import Generator

    from durable_agent._flow import Flow
    from durable_agent._requests import Request

#: A batch is appended when it has so many chunks, bytes, or is so old.
_BATCH_CHUNKS: Final = 32
_BATCH_BYTES: Final = 16 * 1024
_BATCH_SECONDS: Final = 0.1

#: How a stream ended: exhausted (or its final chunk seen), or left by its consumer.
End: TypeAlias = Literal["complete", "closed"]


def is_final(flow: Flow, item: Any) -> bool:
    """Whether the end of a stream is recorded before this chunk is handed out."""
    return flow.spec.kind == "llm" and is_final_chunk(item)


@define(eq=False)
class Tape:
    """What a stream has given so far. Its methods are flows."""

    flow: Flow
    returned_as: str = ""
    #: What it was handed over in: a member of the end's payload.
    carrier: bytes = b""
    count: int = 0
    ended: bool = False
    _pending: list[bytes] = field(factory=list)
    _bytes: int = 0
    _since: float = 0.0
    _batches: int = 0
    _unstorable: str = ""
    _live: list[Any] = field(factory=list)

    def chunk(self, item: Any) -> Generator[Request, Any, None]:
        """Note a chunk; when it is final the end is recorded before it goes out."""
        self.count += 1
        try:
            raw = values.encode(item)
        except ValueNotStorableError as error:
            self._unstorable = self._unstorable or str(error)
            raw = b"null"
        if not self._pending:
            self._since = time.monotonic()
        self._pending.append(raw)
        self._bytes += len(raw)
        self._live.append(item)
        if not self.ended and is_final(self.flow, item):
            yield from self.end("complete")
        elif self.ended or self._due():
            yield from self._append()

    def _due(self) -> bool:
        # The first one alone: the log says that it is a stream, and where it began,
        # before its consumer does anything with it.
        return (
            not self._batches
            or len(self._pending) >= _BATCH_CHUNKS
            or self._bytes >= _BATCH_BYTES
            or time.monotonic() - self._since >= _BATCH_SECONDS
        )

    def _batch(self) -> Draft | None:
        slot = self.flow.slot
        if not self._pending or slot is None:
            return None
        raw = b'{"chunks":[' + b",".join(self._pending) + b"]}"
        self._pending, self._bytes = [], 0
        self._batches += 1
        meta = {"attempt": slot.attempt, "n": self._batches}
        kind = ev.LLM_CHUNK if self.flow.spec.kind == "llm" else ev.TOOL_CHUNK
        return Draft(kind, raw, slot.call, None, meta)

    def _append(self) -> Generator[Request, Any, None]:
        batch = self._batch()
        if batch is None:
            return
        core = self.flow.core
        try:
            yield Eager(core.append(batch))
        except (DurableError, OSError) as error:
            raise self._lost(error) from error

    def end(self, how: End, value: Any = None) -> Generator[Request, Any, None]:
        """Record that the stream ended, its chunks before it."""
        if self.ended:
            yield from self._append()
            return
        self.ended = True
        packed = self._packed(how, value)
        self._flush_batch()
        yield from record(self.flow, packed)

    def fail(self, error: BaseException) -> Generator[Request, Any, None]:
        """Record that the stream raised, its chunks before it."""
        if self.ended:
            yield from self._append()
            return
        self.ended = True
        packed = pack_error(self.flow, error, self.returned_as)
        if packed is not None and packed.raw.startswith(b'{"error"'):
            raw = b'{"stream":{"end":"error"}' + self.carrier + b"," + packed.raw[1:]
            packed = Packed(raw, packed.meta, error=error)
        self._flush_batch()
        yield from record(self.flow, packed)

    def _flush_batch(self) -> None:
        batch = self._batch()
        if batch is not None:
            try:
                self.flow.core.append(batch)
            except (DurableError, OSError) as error:
                raise self._lost(error) from error

    def _packed(self, how: End, value: Any) -> Packed:
        meta: dict[str, Any] = {"status": "value"}
        if how == "closed":
            meta["cause"] = PARTIAL_CAUSE
        if self.returned_as:
            meta["as"] = self.returned_as
        returned = b"null"
        if not self._unstorable:
            try:
                returned = values.encode(value)
            except ValueNotStorableError as error:
                self._unstorable = str(error)
        if self._unstorable:
            warning = f"a stream of {self.flow.name} cannot be stored: "
            meta |= {"status": "code", "code": ev.RESULT_NOT_STORABLE}
            return Packed(
                orjson.dumps({"code": ev.RESULT_NOT_STORABLE}),
                meta,
                warning=warning + self._unstorable,
            )
        raw = (
            b'{"stream":{"end":"'
            + how.encode()
            + b'","chunks":%d,"return":' % self.count
            + returned
            + b"}"
            + self.carrier
            + rendered(self.flow, list(self._live))
            + b"}"
        )
        return Packed(raw, meta, value=list(self._live))

    def _lost(self, error: BaseException) -> OutcomeNotRecordedError:
        failed = OutcomeNotRecordedError(
            f"a stream of {self.flow.name} could not be recorded: {error}",
            session=self.flow.core.id,
            value=list(self._live),
        )
        self.flow.core.fail(failed)
        return failed

    def __del__(self) -> None:
        """End a stream whose generator is gone: it had no loop left to be closed in."""
        if self.ended or sys.is_finalizing():
            return
        core = self.flow.core
        if core.generation == _current.PROCESS.generation:
            leave_behind(core, self.end("closed"))

    @property
    def chunks(self) -> list[Any]:
        """The chunks so far, as they were handed out."""
        return self._live
