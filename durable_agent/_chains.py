"""Which model request goes on with which: the chains that conversations are.

A request extends the one whose answer it holds, else the one whose last message it
holds. Only digests are kept, and of the newest requests that nothing extends. The link
is written into the intent, so that reading a log needs no payload to tell its
conversations apart.
"""

from __future__ import annotations

import contextlib
import json
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, field, frozen

from durable_agent._requests import Load
from durable_agent._transcripts import Transcript, newest
from durable_agent.transcript import (
    assembled,
    fingerprint,
    goes_on_after,
    messages_in,
    response_id,
    turn_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from durable_agent._core import Core
    from durable_agent._requests import Request

#: Conversations of one session that may be gone on with.
_TIPS: Final = 64
#: Those that are read from the log when a run begins to be live.
_READ: Final = 8


@define
class _Tip:
    """The end of a chain: its last message and the turn that answered, as digests."""

    length: int
    last: bytes
    turn: bytes = b""
    #: How many messages the turn has.
    added: int = 0
    #: The provider's id of the response.
    response: str | None = None


@frozen
class Link:
    """A request in its chain: the first seq of the one that it extends, if any."""

    extends: int | None
    length: int
    last: bytes


@define(eq=False)
class Chains:
    """The ends of the chains of one open session, by the first seq of the request."""

    _tips: dict[int, _Tip] = field(factory=dict)
    _read: bool = False

    def unread(self, core: Core) -> bool:
        """Whether the log has requests that were not looked at in this run."""
        if not self._read and not core.history.slots:
            self._read = True
        return not self._read

    def read_log(self, core: Core) -> None:
        """Read the newest requests of the log; does I/O, outside of locks."""
        self._read = True
        transcript = Transcript(core.history, core.log, core.id)
        old = [slot for slot in newest(core.history) if slot.first not in self._tips]
        found: dict[int, _Tip] = {}
        for slot in old[-_READ:]:
            # What cannot be read here is gone on with by nobody.
            with contextlib.suppress(OSError, LookupError):
                messages = messages_in(transcript.arguments(slot))
                if messages:
                    tip = _Tip(len(messages), digest(messages[-1]))
                    said = transcript.said(slot)
                    if said is not None and said.complete:
                        _add_turn(tip, turn_of(said.response), said.response)
                    found[slot.first] = tip
        self._tips = found | self._tips

    def extended(self, messages: Sequence[Any], after: str | None = None) -> int | None:
        """Return the request that these messages go on with, None for none.

        ``after``: the id of the response that the provider is told to go on after.
        """
        seen: dict[int, bytes] = {}

        def at(index: int) -> bytes:
            if index not in seen and 0 <= index < len(messages):
                seen[index] = digest(messages[index])
            return seen.get(index, b"")

        newest_first = list(reversed(self._tips.items()))
        for seq, tip in newest_first:
            if after is not None and tip.response == after:
                return seq
        for seq, tip in newest_first:
            if tip.turn and at(tip.length + tip.added - 1) == tip.turn:
                return seq
        for seq, tip in newest_first:
            if at(tip.length - 1) == tip.last:
                return seq
        # Trimmed, or edited in front: wherever they stand.
        every = {at(index) for index in range(len(messages))}
        for seq, tip in newest_first:
            if (tip.turn and tip.turn in every) or tip.last in every:
                return seq
        return None

    def asked(self, seq: int, link: Link) -> None:
        """Note a request that was recorded."""
        if link.extends is not None:
            self._tips.pop(link.extends, None)
        self._tips[seq] = _Tip(link.length, link.last)
        while len(self._tips) > _TIPS:
            del self._tips[next(iter(self._tips))]

    def answered(self, seq: int, response: Any) -> None:
        """Note what a request was answered with."""
        tip = self._tips.get(seq)
        if tip is None:
            return
        found = assembled(response) if isinstance(response, list) else None
        whole = response if found is None else found.response
        _add_turn(tip, turn_of(whole), whole)


def _add_turn(tip: _Tip, turn: Sequence[Any] | None, response: Any) -> None:
    if turn:
        tip.turn, tip.added = digest(turn[-1]), len(turn)
    tip.response = response_id(response)


def link_of(
    core: Core, bound: Mapping[str, Any]
) -> Generator[Request, Any, Link | None]:
    """Find what a request that is about to be made goes on with.

    None: it has no messages.
    """
    messages = messages_in(bound)
    if not messages:
        return None
    if core.chains.unread(core):
        yield Load(partial(core.chains.read_log, core))
    extends = core.chains.extended(messages, goes_on_after(bound))
    return Link(extends, len(messages), digest(messages[-1]))


def digest(message: Any) -> bytes:
    """Return what stands for a message, whatever providers let move left out."""
    plain = fingerprint(message)
    try:
        raw = orjson.dumps(plain, default=str, option=_SORTED)
    except (TypeError, ValueError):
        raw = json.dumps(plain, default=str, sort_keys=True).encode()
    return blake2b(raw, digest_size=16).digest()


_SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
