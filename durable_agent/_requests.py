"""What the flow of a call asks its driver to do, and what it ends with.

A flow is a generator that decides; it runs under the session's lock and does nothing
outside memory. It yields one of the requests below, and one of two thin drivers, sync
and async, carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent.outcomes import Call
    from durable_agent.recovery import Slot


@frozen
class Wait:
    """Wait until ``ready`` and for one's turn, ``seconds`` at most; send whether so.

    A strand that is alone in its session does not wait. A plain call in a loop's thread
    cannot wait for the other tasks of the loop: send None.
    """

    ready: Callable[[], bool]
    seconds: float
    #: Among those who become ready at once, who is first.
    place: int = 0


@frozen
class Park:
    """Wait to be cancelled, ``seconds`` at most."""

    seconds: float


@frozen
class Eager:
    """Return when everything up to ``seq`` survives a killed process.

    With ``finish`` a cancellation waits until that is so. With ``behind`` a task does
    not wait at all: whatever is written next brings the event to the file.
    """

    seq: int
    finish: bool = False
    behind: bool = False


@frozen
class Barrier:
    """Return when everything up to ``seq`` survives power loss."""

    seq: int
    finish: bool = False


@frozen
class Fetch:
    """Send the event at ``seq``."""

    seq: int


@frozen
class Load:
    """Send what ``read`` returns; it may do I/O."""

    read: Callable[[], Any]


@frozen
class Consult:
    """Send what the person's callable says of the call."""

    fn: Callable[[Call], Any]
    call: Call


@frozen
class HandOut:
    """Wait for the next wave: the outcome at ``seq`` goes to its caller."""

    seq: int


Request: TypeAlias = Wait | Park | Eager | Barrier | Fetch | Load | Consult | HandOut


@frozen
class Recording:
    """A recorded stream: its chunks are the slot's, ``seq`` and ``data`` its end's."""

    slot: Slot
    seq: int
    data: Mapping[str, Any]


@frozen
class Run:
    """The body runs now, exactly once."""


@frozen
class Value:
    """The body does not run: the caller gets this.

    ``returned_as`` is what a plain function handed back when it ran: "" (the value),
    "awaitable", or a kind of stream; see ``events``.
    """

    value: Any
    returned_as: str = ""
    #: What it was handed over in, as recorded; see ``_carriers``.
    carrier: Any = None


@frozen
class Raise:
    """The body does not run: this is raised."""

    error: BaseException
    returned_as: str = ""


Verdict: TypeAlias = Run | Value | Raise
