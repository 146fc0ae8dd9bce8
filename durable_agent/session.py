"""Sessions: ``with session(id):`` replays, ``with conversation(id):`` goes on.

What a `Session` promises is in the docstrings of its methods; the log is the only
source of truth, and everything here is a view of it or an addition to it.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from attrs import field, frozen

from durable_agent import _calls, _current, _frameworks
from durable_agent import events as ev
from durable_agent._arguments import whole_events
from durable_agent._binding import bound_to
from durable_agent._closing import call_of, transcript_of
from durable_agent._current import FRAME, RESPONSE, SCOPE, STEP, Frame
from durable_agent._driving import adrive, drive, show
from durable_agent._forking import fork
from durable_agent._lifecycle import aclose, close, passing
from durable_agent._recording import record_value, resolution
from durable_agent._rows import of_core as report_of
from durable_agent._tables import to_html
from durable_agent._usage import Usage, usage
from durable_agent.events import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from durable_agent._core import Core
    from durable_agent.events import Event
    from durable_agent.outcomes import Call, Outcome
    from durable_agent.store import OpenReport

_F = TypeVar("_F")


@frozen
class Recovery:
    """What opening a session found, and what it closes with the first new event."""

    report: OpenReport
    #: The log held events.
    resumed: bool
    #: The last run ended normally.
    finished: bool
    #: Calls that had begun and have no outcome.
    in_doubt: tuple[str, ...] = ()
    #: Closers that a continued conversation appends.
    closed: int = 0


@frozen(eq=False)
class Session:
    """An open session."""

    _core: Core = field(alias="core")
    recovery: Recovery

    @property
    def id(self) -> str:
        """The id under which it was opened."""
        return self._core.id

    @property
    def seq(self) -> int:
        """The seq of the last event, -1 for none."""
        return self._core.log.next_seq - 1

    @property
    def closed(self) -> bool:
        """Whether it takes no new calls."""
        return not self._core.open

    @property
    def replaying(self) -> bool:
        """Whether nothing new was recorded in this run so far."""
        return not self._core.live

    @property
    def stats(self) -> Mapping[str, int]:
        """Counts of this run; absent where zero.

        ``ran_llm``, ``ran_tool``, ``replayed_llm``, ``replayed_tool``, ``in_doubt``,
        ``verified``.
        """
        return dict(self._core.stats)

    def events(self, from_seq: int = 0) -> Iterator[Event]:
        """Yield the events from ``from_seq`` on, those not yet durable too.

        Model requests are shown whole, also where they are stored as differences.
        """
        return whole_events(self._core.log, from_seq)

    def messages(self, dialect: str | None = None, *, of: Any = None) -> list[Any]:
        """Return the conversation; nothing is written.

        It is the last request's messages as they were sent, its response, and where
        the provider wants it one result for every tool call: what is recorded, else
        a text that says what is known. Calls that older messages left open are
        answered in their place too. A turn that was interrupted is left out; see
        `partial`. No conversation yet: an empty list.

        Args:
            dialect: The provider's message format: "openai" (chat completions),
                "openai-responses", "anthropic", "gemini" or "langchain"; found by the
                request and the response if None.
            of: A decorated model function, its recorded name, or the seq of a request
                of the conversation.

        Raises:
            TranscriptError: the log holds several conversations and none was chosen;
                or it is not in ``dialect``.
        """
        return transcript_of(self._core).messages(_name_of(of), dialect)

    def partial(self, dialect: str | None = None, *, of: Any = None) -> list[Any]:
        """Return the assistant turn that was interrupted, as far as it came.

        It is what the last request's stream gave before it broke off, as messages in
        the provider's format, to be shown or built upon; providers need not accept it.
        Empty where the last request was answered to its end, or with nothing.
        Arguments and errors are those of `messages`.
        """
        return transcript_of(self._core).partial(_name_of(of), dialect)

    @property
    def usage(self) -> Usage:
        """Tokens by model in the recorded responses, and what replay saved in this run.

        Reads every recorded response; nothing is kept.
        """
        core = self._core
        return usage(core.history, transcript_of(core), frozenset(core.replayed))

    def in_doubt(self) -> list[Call]:
        """Return the calls that began and have no known outcome, in order."""
        core = self._core
        with core.lock:
            slots = list(core.history.in_doubt())
        return [call_of(core.log, core.id, slot) for slot in slots]

    def append(self, type: str, data: Any = None) -> int | None:  # noqa: A002 - the word
        """Append an application event, eagerly; return its seq.

        ``type`` is ``space/name`` of a namespace of yours; ``data`` is plain JSON. An
        event that an earlier run appended at this place is not appended again: then
        None is returned.
        """
        space, _, name = type.partition("/")
        if not space or not name or space in ev.RESERVED_SPACES:
            msg = f"{type!r} is not an event type of an application (space/name)"
            raise ValueError(msg)
        raw = orjson.dumps(data)
        core = self._core
        with core.lock:
            core.check()
            core.appended += 1
            if not core.replay.continued and core.appended <= core.recorded_appends:
                return None
            seq = core.append(Draft(type, raw))
        core.log.write(seq)
        show(core)
        return seq

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        core = self._core
        if core.live:
            core.log.flush(core.log.next_seq - 1)

    async def aflush(self) -> None:
        """As ``flush``, without blocking the loop."""
        core = self._core
        if core.live:
            await core.log.aflush(core.log.next_seq - 1)

    def record(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Return ``fn(*args)``, remembered: a replay returns it without calling.

        Eager, without a barrier. Of a coroutine function, returns an awaitable.
        """
        core = self._core
        if inspect.iscoroutinefunction(inspect.unwrap(fn)):
            return self._arecord(name, fn, args)
        recorder = record_value(core, name, args)
        known, value = drive(core, recorder.look())
        if known:
            return _ready(value) if recorder.awaitable else value
        value = _calls.run_recorded(fn, args)
        if inspect.isawaitable(value):
            recorder.awaitable = True
            return self._finish_record(recorder, value)
        drive(core, recorder.keep(value))
        return value

    async def _arecord(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        core = self._core
        recorder = record_value(core, name, args)
        known, value = await adrive(core, recorder.look())
        if known:
            return value
        value = await _calls.run_recorded(fn, args)
        await adrive(core, recorder.keep(value))
        return value

    async def _finish_record(self, recorder: Any, value: Any) -> Any:
        result = await value
        await adrive(self._core, recorder.keep(result))
        return result

    def cancel(self, reason: str = "") -> None:
        """Cancel the calls whose checkpoints are pending, and refuse new ones.

        Bodies that run already are not stopped. A cancelled call raises
        `ToolAbortedError`; its body did not run.
        """
        core = self._core
        with core.lock:
            core.cancelled = reason or "cancelled"
            core.turns.moved()

    def resolve(self, call: Call | str, outcome: Outcome) -> None:
        """Settle a call in doubt by what a person found out; durable on return.

        Raises:
            LookupError: there is no such call.
            OutcomeExistsError: it has an outcome that stands.
        """
        core = self._core
        with core.lock:
            core.refuse_closed()
            seq = resolution(core, call, outcome)
        core.log.flush(seq)
        show(core)

    def fork(self, new_id: str, *, at: int | None = None) -> str:
        """Copy the log up to and with seq ``at`` into a new session, durably.

        The new session's later calls have idempotency keys of their own.
        """
        return fork(self._core, new_id, self.seq if at is None else at)

    def on_event(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``callback`` with each event after it was appended; return the undoing.

        What the callback raises is logged and goes no further.
        """
        observers = self._core.observers
        observers.append(callback)

        def undo() -> None:
            with contextlib.suppress(ValueError):
                observers.remove(callback)

        return undo

    def bind(self, fn: _F) -> _F:
        """Return ``fn`` to be run in a bare thread, executor, timer or request.

        There it is in this session, and in the call that is around ``bind``; if it is
        a generator or coroutine function, at each step of what it returns.
        """
        here = FRAME.get()
        frame = Frame(self._core)
        if here is not None and here.core is self._core:
            frame = here
        core = self._core
        begun = False

        def begin() -> None:
            nonlocal begun
            with core.lock:
                if not begun:
                    begun = True
                    core.turns.begun()

        with core.lock:
            core.turns.unbegun += 1
        state = (frame, STEP.get(), SCOPE.get(), RESPONSE.get())
        bound: _F = bound_to(fn, state, begin)
        return bound

    def close(self) -> None:
        """Refuse new calls; seal when those in flight have their outcomes.

        Idempotent. Raises the failure that latched the session, if any. Where an
        exception of a call passes by, in a ``finally``, the run ends by it.
        """
        close(self._core, passing())

    async def aclose(self) -> None:
        """As ``close``, without blocking the loop."""
        await aclose(self._core, passing())

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Session {self.id!r} {state} seq={self.seq}>"

    def _repr_html_(self) -> str:
        return to_html(report_of(self._core))


async def _ready(value: Any) -> Any:
    return value


def _name_of(of: Any) -> str | int | None:
    if of is None or isinstance(of, str | int):
        return of
    how = getattr(of, "__durable_name__", None)
    if how is not None:
        return str(how)
    module = getattr(of, "__module__", "")
    from durable_agent._spec import module_name  # noqa: PLC0415 - only here

    return f"{module_name(module)}:{getattr(of, '__qualname__', '')}"


def make(core: Core) -> Session:
    """Return the session of an opened core, noted in the process."""
    history = core.history
    report = core.log.report
    recovery = Recovery(
        report=report,
        resumed=report.existed,
        finished=history.finished,
        in_doubt=tuple(slot.name for slot in history.in_doubt()),
        closed=len(core.before_live),
    )
    core.recovery = recovery
    # Whoever opened it may call anything while a thread that it started waits.
    core.turns.seen_thread()
    _frameworks.prepare()
    _current.opened(core)
    return Session(core, recovery)


def of_core(core: Core) -> Session:
    """Return the session of a core that is open already."""
    return Session(core, core.recovery)
