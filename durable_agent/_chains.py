"""Which model request goes on with which: the chains that conversations are.

A request extends the one whose answer it holds, else the one whose last message it
holds, put to the same model's role. Only digests are kept, of the newest requests of
each function. The link is written into the intent, so that reading a log needs no
payload to tell its conversations apart.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, evolve, field, frozen

from durable_agent._conversations import newest
from durable_agent._requests import Load
from durable_agent._responses import recorded_arguments, said
from durable_agent.errors import LogCorruptError
from durable_agent.transcript import (
    essence,
    fingerprint,
    goes_on_after,
    kept_by_provider,
    messages_in,
    response_id,
    role_of,
    turn_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from durable_agent._core import Core
    from durable_agent._requests import Request
    from durable_agent.recovery import Slot

#: Requests of one function that may be gone on with.
_TIPS: Final = 1024
#: Those that are read from the log when a run begins to be live, of one function. The
#: others are read where none of these is gone on with.
_READ: Final = 8
_SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


@frozen
class Link:
    """A request in its chain."""

    name: str
    #: The first seq of the request that it extends, if any.
    extends: int | None
    length: int
    #: The first message that is no system prompt, and the last one.
    first: bytes
    last: bytes
    #: What says who the model is to be.
    role: bytes
    #: The conversation that the provider keeps.
    kept: str | None = None


@define
class _Tip:
    """A request that may be gone on with, and the turn that answered it."""

    link: Link
    slot: Slot
    turn: bytes = b""
    #: How many messages the turn has.
    added: int = 0
    #: The provider's id of the response.
    response: str | None = None


@define(eq=False)
class Chains:
    """The requests of one open session that may be gone on with, by first seq."""

    _tips: dict[int, _Tip] = field(factory=dict)
    #: Ends of chains in the log that were not looked at in this run, oldest first.
    _unread: list[Slot] | None = None

    def unread(self, core: Core) -> bool:
        """Whether the log has requests that were not looked at in this run."""
        if self._unread is None:
            ends = newest(core.history, branches=True)
            self._unread = [slot for slot in ends if slot.recorded]
        return bool(self._unread)

    def read_log(self, core: Core, most: int) -> None:
        """Read ends of chains, ``most`` of each function; does I/O, outside of locks.

        Nothing is read twice. Raises an OSError if the log cannot be read now.
        """
        chosen, rest = _parted(self._unread or [], most)
        found: dict[int, _Tip] = {}
        for slot in chosen:
            if slot.first in self._tips:
                continue
            # What is damaged for good is gone on with by nobody.
            with contextlib.suppress(LogCorruptError, LookupError):
                bound = recorded_arguments(core.log, slot)
                messages = messages_in(bound)
                if messages:
                    tip = _Tip(_link(slot.name, bound, messages), slot)
                    answer = said(core.log, slot)
                    if answer is not None and answer.complete:
                        _add_turn(tip, answer.response)
                    found[slot.first] = tip
        self._tips = found | self._tips
        self._unread = rest

    def extended(
        self, messages: Sequence[Any], link: Link, after: str | None
    ) -> int | None:
        """Return the request that these messages go on with, None for none.

        ``after``: the id of the response that the provider is told to go on after.
        """
        ends = list(reversed(self._tips.items()))
        for seq, tip in ends:
            if after is not None and tip.response == after:
                return seq
            if link.kept is not None and tip.link.kept == link.kept:
                return seq
        return _in_place(ends, messages, link) or _anywhere(ends, messages, link)

    def asked(self, slot: Slot, link: Link) -> None:
        """Note a request that was recorded."""
        self._tips[slot.first] = _Tip(link, slot)
        mine = [s for s, tip in self._tips.items() if tip.link.name == link.name]
        if len(mine) > _TIPS:
            del self._tips[mine[0]]

    def answered(self, seq: int, response: Any) -> None:
        """Note what a request was answered with."""
        tip = self._tips.get(seq)
        if tip is not None:
            _add_turn(tip, response)


def _parted(slots: list[Slot], most: int) -> tuple[list[Slot], list[Slot]]:
    """Return the last of each function, and the others."""
    count: Counter[str] = Counter()
    chosen: list[Slot] = []
    rest: list[Slot] = []
    for slot in reversed(slots):
        count[slot.name] += 1
        (chosen if count[slot.name] <= most else rest).append(slot)
    # Those that are too many are left for good.
    return chosen[::-1], rest[::-1] if most < _TIPS else []


def _add_turn(tip: _Tip, response: Any) -> None:
    turn = turn_of(response)
    if turn:
        tip.turn, tip.added = _essence(turn[-1]), len(turn)
    tip.response = response_id(response)


def _in_place(
    ends: list[tuple[int, _Tip]], messages: Sequence[Any], link: Link
) -> int | None:
    """Return the request that is, at its place, the beginning of these messages."""
    last = _reader(messages, digest)
    turn = _reader(messages, _essence)
    ends = [
        (seq, tip)
        for seq, tip in ends
        if tip.link.first == link.first and last(tip.link.length - 1) == tip.link.last
    ]
    for seq, tip in ends:
        if tip.turn and turn(tip.link.length + tip.added - 1) == tip.turn:
            return seq
    return next((seq for seq, tip in ends if _is_again(tip, link)), None)


def _is_again(tip: _Tip, link: Link) -> bool:
    """Whether a request may be made again, or go on without the answer it got.

    Another function stands in for one that failed. One that is still being asked is
    another agent's.
    """
    if tip.link.role != link.role:
        return False
    if tip.slot.outcome is None:
        return tip.slot.recorded
    return tip.slot.outcome.status != "value" or tip.link.name == link.name


def _anywhere(
    ends: list[tuple[int, _Tip]], messages: Sequence[Any], link: Link
) -> int | None:
    """Return the request of messages that were trimmed, or edited in front.

    What several requests have in common ("continue", "OK") tells nothing.
    """
    turns = Counter(tip.turn for _, tip in ends)
    lasts = Counter(tip.link.last for _, tip in ends)
    said_here = set(map(_essence, messages))
    for seq, tip in ends:
        if tip.turn and turns[tip.turn] == 1 and tip.turn in said_here:
            return seq
    asked_here = set(map(digest, messages))
    for seq, tip in ends:
        if not tip.turn and _is_again(tip, link):
            if lasts[tip.link.last] == 1 and tip.link.last in asked_here:
                return seq
    return None


def _reader(
    messages: Sequence[Any], hashed: Callable[[Any], bytes]
) -> Callable[[int], bytes]:
    seen: dict[int, bytes] = {}

    def at(index: int) -> bytes:
        if index not in seen and 0 <= index < len(messages):
            seen[index] = hashed(messages[index])
        return seen.get(index, b"")

    return at


def link_of(
    core: Core, name: str, bound: Mapping[str, Any]
) -> Generator[Request, Any, Link | None]:
    """Find what a request that is about to be made goes on with.

    None: it has no messages.
    """
    messages = messages_in(bound)
    if not messages:
        return None
    link = _link(name, bound, messages)
    chains, after = core.chains, goes_on_after(bound)
    extends = None
    for most in (_READ, _TIPS):
        more = chains.unread(core)
        if more:
            yield Load(partial(chains.read_log, core, most))
        if more or most == _READ:
            extends = chains.extended(messages, link, after)
        if extends is not None:
            break
    return evolve(link, extends=extends)


def _link(name: str, bound: Mapping[str, Any], messages: Sequence[Any]) -> Link:
    said_to = role_of(bound, messages)
    first = next((m for m in messages if not any(m is part for part in said_to)), None)
    return Link(
        name=name,
        extends=None,
        length=len(messages),
        first=digest(first),
        last=digest(messages[-1]),
        role=_hash([fingerprint(part) for part in said_to]),
        kept=kept_by_provider(bound),
    )


def digest(message: Any) -> bytes:
    """Return what stands for a message, whatever providers let move left out."""
    return _hash(fingerprint(message))


def _essence(message: Any) -> bytes:
    """Return what stands for what a message says, in whatever form."""
    return _hash(essence(message))


def _hash(plain: Any) -> bytes:
    try:
        raw = orjson.dumps(plain, default=str, option=_SORTED)
    except (TypeError, ValueError):
        raw = json.dumps(plain, default=str, sort_keys=True).encode()
    return blake2b(raw, digest_size=16).digest()
