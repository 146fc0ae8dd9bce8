"""What a history is made of: runs, steps, calls and their outcomes, by their heads."""

from __future__ import annotations

from typing import Final

from attrs import define, field, frozen

VALUE_STATUS: Final = "value"
ERROR: Final = "error"
CODE: Final = "code"
SUSPENDED: Final = "suspended"
NOT_APPLIED: Final = "not_applied"

#: A rerun takes the place of an earlier attempt; a retry is asked for by the code.
RERUN: Final = "rerun"
RETRY: Final = "retry"

#: Causes of an outcome that no body produced.
RECOVERY_CAUSE: Final = "recovery"
CLOSER_CAUSE: Final = "closer"
CANCEL_CAUSE: Final = "cancel"
ERROR_CAUSE: Final = "error"
#: Of a pause that was recorded with its exception.
PAUSE_CAUSE: Final = "pause"


@frozen
class Recorded:
    """One recorded outcome, by its head.

    ``turn`` is its place in the order of hand-outs; those of one turn went together.
    """

    seq: int
    run: int
    time: int
    status: str
    code: str = ""
    cause: str = ""
    turn: tuple[int, int] = (0, 0)
    place: int = 0
    returned_as: str = ""
    #: False: its caller was cancelled before it had the outcome.
    handed: bool = True


@define(eq=False)
class Slot:
    """One occurrence of a call: its latest attempt in place, and how far replay is.

    Attempts that the code asked for one after the other have a slot each and share
    ``call``; an attempt that recovery made anew takes its predecessor's slot.
    """

    call: str
    kind: str
    name: str
    key: str
    parent: str | None
    #: seq of the first intent (the order of asking) and of the latest.
    first: int
    intent: int
    attempt: int
    run: int
    time: int
    effect: str = "side_effect"
    resp: str | None = None
    tcid: str | None = None
    keyed: bool = False
    detached: bool = False
    nested: bool = False
    side: bool = False
    #: ``first`` of the model request that this one extends, -1 for none.
    extends: int = -1
    outcome: Recorded | None = None
    chunks: list[int] = field(factory=list)
    #: seq of the first chunk that any attempt gave, -1 for none.
    began: int = -1
    #: Replay: there to be asked for; asked for; waiting for its turn; handed out;
    #: written off.
    recorded: bool = True
    asked: bool = False
    waiting: bool = False
    delivered: bool = False
    off: bool = False
    #: Its caller was cancelled before it had anything: it may be asked for again.
    given_up: bool = False
    #: It replays again, since what was around it was paused, not left out.
    rewound: bool = False
    #: A later slot is the retry of this one.
    retried: bool = False


@define
class Run:
    """One opening for writing."""

    epoch: int
    last_intent: int = -1
    ok: bool = False
    ended: bool = False


@define(eq=False)
class Step:
    """One entering of a step."""

    name: str
    parent: str | None
    n: int
    start: int
    end: int | None = None
    used: bool = False
