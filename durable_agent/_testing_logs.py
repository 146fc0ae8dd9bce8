"""What the sessions of one case say: calls in doubt, requests sent again."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from durable_agent import events as ev
from durable_agent import inspect_session, list_sessions
from durable_agent._closing import call_of
from durable_agent._lifecycle import close
from durable_agent._opening import Request, open_core
from durable_agent._recording import resolution
from durable_agent.errors import DurableError, SessionNotFoundError
from durable_agent.outcomes import Call

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from durable_agent.events import Head
    from durable_agent.outcomes import Outcome
    from durable_agent.recovery import Slot
    from durable_agent.sessions import Inspection

#: Calls of these tools are settled by the code itself when it runs again.
_SETTLES_ITSELF: Final = frozenset({"read_only", "idempotent", "composite"})


@frozen
class Logs:
    """The sessions of a case, read without writing."""

    sessions: int = 0
    #: Calls without a known outcome.
    in_doubt: tuple[Call, ...] = ()
    #: Those of them of which the code was told, so that somebody has to settle them.
    told: tuple[Call, ...] = ()
    #: Intents of model requests by session and identity, and those answered.
    sent: Counter[tuple[str, str]] = field(factory=Counter)
    answered: Counter[tuple[str, str]] = field(factory=Counter)
    #: The name of each.
    names: dict[tuple[str, str], str] = field(factory=dict)
    #: Why a session could not be read.
    problems: tuple[str, ...] = ()


def read(home: Path) -> Logs:
    """Read all sessions below a directory."""
    found = Logs()
    for info in list_sessions(root=home):
        try:
            with inspect_session(info.id, root=home) as inspection:
                found = _with(found, inspection)
        except SessionNotFoundError:
            # It was killed before the first event was whole.
            continue
        except DurableError as error:
            text = f"session {info.id!r} cannot be read: {error}"
            found = evolve(found, problems=(*found.problems, text))
    return found


def _with(found: Logs, inspection: Inspection) -> Logs:
    _count(found, inspection.id, inspection._log.heads())  # noqa: SLF001 - a view of it
    slots = list(inspection._history.in_doubt())  # noqa: SLF001
    calls = [(slot, _call(inspection, slot)) for slot in slots]
    told = [c for slot, c in calls if slot.outcome is not None and for_a_person(c)]
    # A run that ended normally was told and went on: nobody can change that.
    told = [] if inspection.finished else told
    return evolve(
        found,
        sessions=found.sessions + 1,
        in_doubt=(*found.in_doubt, *(call for _, call in calls)),
        told=(*found.told, *told),
    )


def for_a_person(call: Call) -> bool:
    """Whether nothing that the tool declares settles it."""
    return call.kind == "tool" and call.effect not in _SETTLES_ITSELF


def _call(inspection: Inspection, slot: Slot) -> Call:
    try:
        return call_of(inspection._log, inspection.id, slot)  # noqa: SLF001
    except DurableError:
        # Its arguments are of types that this process has not loaded.
        return Call(
            id=slot.call,
            name=slot.name,
            kind="llm" if slot.kind == "llm" else "tool",
            session=inspection.id,
            attempt=slot.attempt,
            effect=slot.effect,
            seq=slot.intent,
        )


def _count(found: Logs, session: str, heads: Iterable[Head]) -> None:
    asked: dict[tuple[str, int], tuple[str, str]] = {}
    for head in heads:
        attempt = (head.call or "", head.meta.get("attempt", 0))
        if head.type == ev.LLM_REQUEST:
            asked[attempt] = identity = (session, head.key or "")
            found.sent[identity] += 1
            found.names[identity] = head.meta["name"]
        elif head.type == ev.LLM_RESPONSE and head.meta["status"] == "value":
            if attempt in asked:
                found.answered[asked[attempt]] += 1


def settle(home: Path, call: Call, outcome: Outcome) -> None:
    """Settle a call in doubt as a person does; durable on return.

    Nothing in this process takes the session for open, before or after.
    """
    core = open_core(Request(id=call.session, continued=False, root=home))
    with closing(core.log):
        core.log.flush(resolution(core, call.id, outcome))
        close(core, None)
