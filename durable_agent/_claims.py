"""Which tool call of a model response a call of a tool answers.

By what was said explicitly, else by name and arguments among the unanswered calls of
the last response that was handed out in the caller's context, in order.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from durable_agent import values
from durable_agent._current import RESPONSE, TOOL_CALL_ID
from durable_agent._frameworks import tool_call_id
from durable_agent._identity import short_id
from durable_agent._requests import Load
from durable_agent._responses import said
from durable_agent.recovery import CANCEL_CAUSE, ERROR, ERROR_CAUSE
from durable_agent.transcript import calls_in

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from durable_agent._core import Core
    from durable_agent._requests import Request
    from durable_agent.recovery import Slot
    from durable_agent.transcript import ToolCall

#: Responses whose calls may still be answered; older ones are forgotten.
_RESPONSES: Final = 256


@define
class Claim:
    """A tool call of a response, and how far it is answered in this run."""

    call: ToolCall
    #: "": unanswered; "open"; "done"; "error": may be claimed again.
    state: str = ""


@frozen
class Place:
    """Where a call stands: inside which other one, and with which identity."""

    parent: str | None = None
    key: str = ""


_NOWHERE: Final = Place()


def handed_out(core: Core, call: str, response: Any, *, side: bool = False) -> None:
    """Note a response that its caller has now, in the caller's context.

    One ``side`` request, such as a title, does not come between a response and its
    tools.
    """
    if core.former:
        core.former.pop(call, None)
    calls = calls_in(response)
    if calls or not side:
        RESPONSE.set((call, core))
    if calls:
        core.claims[call] = [Claim(c) for c in calls]
        while len(core.claims) > _RESPONSES:
            del core.claims[next(iter(core.claims))]


def unread(core: Core, explicit: str) -> bool:
    """Whether the log may have the response whose tool call has this id.

    A graph that is resumed in its middle has it from a state of its own.
    """
    if core.former is not None or any(
        c.call.id == explicit for claims in core.claims.values() for c in claims
    ):
        return False
    if not any(_answered(slot) for slot in core.history.slots):
        core.former = {}
    return core.former is None


def read_log(core: Core) -> list[tuple[str, list[Claim], int]]:
    """Return the tool calls of recorded responses; does I/O, outside of locks."""
    found = []
    for slot in [s for s in core.history.slots if _answered(s)][-_RESPONSES:]:
        # What cannot be read here is asked for again where it is needed.
        with contextlib.suppress(OSError, LookupError):
            response = said(core.log, slot)
            calls = [] if response is None else calls_in(response.response)
            if calls and slot.outcome is not None:
                found.append((slot.call, [Claim(c) for c in calls], slot.outcome.seq))
    return found


def _note(core: Core, read: list[tuple[str, list[Claim], int]]) -> None:
    """Note what was read, unless another call did so meanwhile."""
    if core.former is not None:
        return
    fresh = [each for each in read if each[0] not in core.claims]
    core.claims = {call: claims for call, claims, _ in fresh} | core.claims
    core.former = {call: seq for call, _, seq in fresh}


def _answered(slot: Slot) -> bool:
    return slot.kind == "llm" and slot.recorded and slot.outcome is not None


def link(
    core: Core, name: str, arguments: Mapping[str, Any], place: Place
) -> Generator[Request, Any, tuple[str | None, str | None, str | None]]:
    """Find the tool call that a call answers; see `claim` for what comes back.

    One of a response that this run did not ask for: the code goes on from a state of
    its own, after that response, and everything before it is taken as used.
    """
    explicit = TOOL_CALL_ID.get() or tool_call_id(name, arguments)
    if explicit is not None and unread(core, explicit):
        _note(core, (yield Load(partial(read_log, core))))
    found = claim(core, name, arguments, explicit, place)
    if found[0] is not None and core.former:
        seq = core.former.get(found[0])
        if seq is not None:
            core.replay.use_up_to(seq, found[0])
            core.replay.ask_again(found[0], short_id(found[1] or ""))
            core.turns.moved()
    return found


def claim(
    core: Core,
    name: str,
    arguments: Mapping[str, Any],
    explicit: str | None,
    place: Place = _NOWHERE,
) -> tuple[str | None, str | None, str | None]:
    """Return response, token and provider id of the tool call that this call answers.

    All None where it answers none.
    """
    found = RESPONSE.get()
    resp = found[0] if found is not None and found[1] is core else None
    claims: list[Claim] = core.claims.get(resp, []) if resp is not None else []
    if explicit is not None:
        chosen = _said(claims, explicit, name, arguments)
        if chosen is None or chosen.call.name != name:
            # Graphs run each node in a context of its own: the response was handed out
            # in another one, or what was handed out here is that of an outer agent.
            other, chosen = _elsewhere(core, explicit, name, arguments, place)
            resp = resp if other is None else other
        if chosen is None:
            return resp, explicit, explicit
        chosen.state = "open"
        return resp, chosen.call.token, explicit
    for wanted in ("", "error"):
        fits = [
            c for c in claims if c.state == wanted and matches(c.call, name, arguments)
        ]
        if fits:
            # Of several, the first of those that say most of what was given.
            candidate = max(fits, key=lambda c: _said_of(c.call.arguments))
            candidate.state = "open"
            return resp, candidate.call.token, candidate.call.id
    return None, None, None


def _elsewhere(
    core: Core,
    explicit: str,
    name: str,
    arguments: Mapping[str, Any],
    place: Place,
) -> tuple[str | None, Claim | None]:
    """Return the response, of any, whose tool call of this id a call answers.

    Agents that run at once may all be told "call_0". One that waits for its answer goes
    first; of those, one that asked for this very call, from inside the same other call;
    in a replay one that has a record of it; then the newest.
    """
    best: tuple[Any, str | None, Claim | None] = ((), None, None)
    for other in reversed(core.claims):
        chosen = _said(core.claims[other], explicit, name, arguments)
        if chosen is None:
            continue
        asked = core.history.attempts.get((other, 1))
        rank = (
            chosen.state in {"", "error"},
            matches(chosen.call, name, arguments),
            asked is not None and asked.parent == place.parent,
            _has_record(core, other, chosen, place),
        )
        if best[1] is None or rank > best[0]:
            best = rank, other, chosen
    return best[1], best[2]


def _has_record(core: Core, resp: str, chosen: Claim, place: Place) -> bool:
    """Whether the log has this very call as the answer, and nobody asked for it yet."""
    slots = core.history.by_tool_call.get((resp, short_id(chosen.call.token)), ())
    return any(s.recorded and not s.asked and s.key == place.key for s in slots)


def _said(
    claims: list[Claim], explicit: str, name: str, arguments: Mapping[str, Any]
) -> Claim | None:
    """Return the tool call of an id; where it was given twice, the one that fits best.

    One with this name and these arguments goes first, then one with this name; of
    those, one that waits for its answer, then one that failed.
    """
    same = [c for c in claims if c.call.id == explicit]
    named = [c for c in same if len(same) > 1 and c.call.name == name]
    # Of arguments that do not parse, programs make something; of others they do not.
    named.sort(key=lambda c: c.call.arguments is not None)
    fits = [c for c in named if matches(c.call, name, arguments)]
    for group in (fits, named, same):
        for state in ("", "error", "open"):
            found = next((c for c in group if c.state == state), None)
            if found is not None:
                return found
    return same[0] if same else None


def matches(call: ToolCall, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool that was called so does what a tool call asks for."""
    asked = call.arguments
    if call.name != name or asked is None:
        return False
    # What the model left out is at its default, or filled in by the framework.
    return all(
        key in arguments and _same_json(values.to_plain(arguments[key]), asked[key])
        for key in asked
    )


def alike(call: ToolCall, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call may have been made of what was asked for, put right on the way.

    Numbers that came as texts, dates that were parsed, arguments that there are not.
    """
    asked = call.arguments
    if call.name != name or asked is None:
        return False
    shared = [key for key in asked if key in arguments]
    return bool(shared) and all(
        _loose(arguments[key]) == _loose(asked[key]) for key in shared
    )


def _loose(value: Any) -> str:
    return str(values.to_plain(value)).replace("+00:00", "Z")


def _said_of(arguments: Any) -> int:
    """Return how many members a call states, those of objects inside too."""
    if not isinstance(arguments, dict):
        return 0
    return len(arguments) + sum(map(_said_of, arguments.values()))


def _same_json(given: Any, asked: Any) -> bool:
    """Whether two values are the same JSON: 1 is 1.0, and True is not 1."""
    if isinstance(asked, dict) and isinstance(given, dict):
        # What a model was parsed into has more members, at their defaults.
        return all(n in given and _same_json(given[n], v) for n, v in asked.items())
    if isinstance(asked, list) and isinstance(given, list):
        return len(given) == len(asked) and all(map(_same_json, given, asked))
    if isinstance(given, bool) is not isinstance(asked, bool):
        return False
    return bool(given == asked)


def answered(core: Core, slot: Slot) -> None:
    """Note how the tool call of a slot ended."""
    if slot.resp is None:
        return
    for candidate in core.claims.get(slot.resp, ()):
        if short_id(candidate.call.token) == slot.tcid:
            outcome = slot.outcome
            # After a time-out or a cancellation the code may try again, too.
            failed = outcome is not None and (
                outcome.status == ERROR or outcome.cause in {ERROR_CAUSE, CANCEL_CAUSE}
            )
            candidate.state = "error" if failed else "done"
