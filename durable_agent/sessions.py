"""Opening, listing, inspecting and deleting sessions: the functions people call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

from durable_agent import _current
from durable_agent._arguments import whole_events
from durable_agent._closing import call_of
from durable_agent._context import Opening
from durable_agent._current import FRAME, Frame
from durable_agent._opening import Request, is_on_unknown, open_core, store_of
from durable_agent._redaction import names_of
from durable_agent._rows import ROWS, Report, of_history
from durable_agent._tables import to_html
from durable_agent._transcripts import Transcript
from durable_agent._usage import Usage, usage
from durable_agent.recovery import fold
from durable_agent.session import Session, make, of_core

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from durable_agent.events import Event
    from durable_agent.outcomes import Call
    from durable_agent.policy import CheckpointPolicy
    from durable_agent.store import SessionInfo, Store


def session(
    id: str,  # noqa: A002 - the word people use
    /,
    *,
    root: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    must_exist: bool | None = None,
    policy: CheckpointPolicy | None = None,
    lock_timeout: float = 0.0,
    on_unknown: Any = None,
    on_divergence: Literal["raise", "warn", "ignore"] = "raise",
    retry_failed: bool = False,
    replay_wait: float = 10.0,
    metadata: Mapping[str, Any] | None = None,
) -> Opening:
    """Open a session to replay: the same code runs again, what finished replays.

    For ``with`` and ``async with``. Nothing is written before the first new event.

    Args:
        id: Any non-empty text; one session under one name.
        root: The directory of the sessions. Default: ``$DURABLE_AGENT_HOME``, else the
            nearest ``.durable_agent`` in the current directory or above, else a new one
            in the current directory.
        store: Where sessions live, in place of ``root``.
        must_exist: True: raise `SessionNotFoundError` rather than start. False: raise
            `SessionExistsError` rather than resume.
        policy: Which boundaries are barriers.
        lock_timeout: Seconds to wait for another owner; then `SessionBusyError`.
        on_unknown: For calls in doubt: ``"raise"``, ``"return"`` or a handler.
        on_divergence: What to do when the code leaves the recorded path.
        retry_failed: Make again a call with side effects whose error ended a run.
        replay_wait: Seconds that a replay waits for calls that other tasks recorded.
        metadata: Plain JSON, kept in a new session's first event.

    """
    return Opening(
        Request(
            id=id,
            continued=False,
            root=root,
            store=store,
            must_exist=must_exist,
            policy=policy,
            lock_timeout=lock_timeout,
            on_unknown=on_unknown,
            on_divergence=on_divergence,
            retry_failed=retry_failed,
            replay_wait=replay_wait,
            metadata=metadata,
        )
    )


def conversation(
    id: str,  # noqa: A002 - the word people use
    /,
    *,
    root: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    must_exist: bool | None = None,
    policy: CheckpointPolicy | None = None,
    lock_timeout: float = 0.0,
    on_unknown: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> Opening:
    """Open a session to go on from ``messages()``: nothing replays.

    Calls left open by a crash get their closers with the first new event, before it
    and durable no later. The options are those of `session`.
    """
    return Opening(
        Request(
            id=id,
            continued=True,
            root=root,
            store=store,
            must_exist=must_exist,
            policy=policy,
            lock_timeout=lock_timeout,
            on_unknown=on_unknown,
            metadata=metadata,
        )
    )


class ConversationOptions(TypedDict, total=False):
    """The options of `conversation`."""

    root: str | os.PathLike[str] | None
    store: Store | None
    must_exist: bool | None
    policy: CheckpointPolicy | None
    lock_timeout: float
    on_unknown: Any
    metadata: Mapping[str, Any] | None


class SessionOptions(ConversationOptions, total=False):
    """The options of `session`."""

    on_divergence: Literal["raise", "warn", "ignore"]
    retry_failed: bool
    replay_wait: float


def open_session(id: str, /, **options: Unpack[SessionOptions]) -> Session:  # noqa: A002
    """Open a session until ``.close()``, for notebooks; the options of `session`.

    If the id is active here it is closed and opened again, its cursor at the top: a
    cell that is run again in a live kernel executes again.
    """
    return _open(Request(id=id, continued=False, **options))


def open_conversation(
    id: str,  # noqa: A002
    /,
    **options: Unpack[ConversationOptions],
) -> Session:
    """Open a conversation until ``.close()``, for notebooks."""
    return _open(Request(id=id, continued=True, **options))


def _open(request: Request) -> Session:
    former = [core for core in list(_current.PROCESS.cores) if core.id == request.id]
    for core in former:
        of_core(core).close()
    opened = make(open_core(request))
    core = opened._core  # noqa: SLF001 - made here
    for old in former:
        old.successor = core
    FRAME.set(Frame(core))
    return opened


def current_session() -> Session | None:
    """Return the session that a call made here would be recorded in, None for none.

    Raises what a call would raise: `SessionClosedError`, `SessionForkedError`,
    `AmbiguousSessionError`.
    """
    falls_back = _current.SETTINGS.session_fallback and _current.PROCESS.cores
    if FRAME.get() is None and not falls_back:
        return None
    found = _current.find("current_session()")
    if found is None:
        return None
    return of_core(found.core)


class Inspection:
    """A session looked at from outside: never writes, repairs or locks.

    It shows a prefix of the log that holds every durable event. `close` gives the
    files up; also a context manager.
    """

    def __init__(self, id_: str, store: Store) -> None:
        self.id = id_
        self._log = store.inspect(id_)
        self._history = fold(self._log.heads())
        #: Where it is, and what a repair would find.
        self.report = self._log.report

    @property
    def finished(self) -> bool:
        """Whether the last run ended normally."""
        return self._history.finished

    @property
    def runs(self) -> int:
        """How often it was opened and something was recorded."""
        return len(self._history.runs)

    def events(self, from_seq: int = 0) -> Iterator[Event]:
        """Yield the events from ``from_seq`` on, model requests shown whole."""
        return whole_events(self._log, from_seq)

    def messages(
        self, dialect: str | None = None, *, of: str | int | None = None
    ) -> list[Any]:
        """Return the conversation, open calls closed in memory.

        See `Session.messages`. Objects whose types are not loaded are plain JSON.
        """
        return self._transcript().messages(of, dialect)

    def partial(
        self, dialect: str | None = None, *, of: str | int | None = None
    ) -> list[Any]:
        """Return the assistant turn that was interrupted; see `Session.partial`."""
        return self._transcript().partial(of, dialect)

    @property
    def usage(self) -> Usage:
        """Tokens by model in the recorded responses."""
        return usage(self._history, self._transcript())

    def _transcript(self) -> Transcript:
        return Transcript(self._history, self._log, self.id)

    def in_doubt(self) -> list[Call]:
        """Return the calls that began and have no known outcome."""
        slots = self._history.in_doubt()
        return [call_of(self._log, self.id, slot) for slot in slots]

    def close(self) -> None:
        """Give the files up."""
        self._log.close()

    def _report(self, rows: int = ROWS) -> Report:
        return of_history(self._history, self._log, self.id, rows)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"<Inspection {self.id!r} {state}>"

    def _repr_html_(self) -> str:
        return to_html(self._report())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def list_sessions(
    *, root: str | os.PathLike[str] | None = None, store: Store | None = None
) -> list[SessionInfo]:
    """Return what sessions there are; reads heads only, and no payload.

    One that cannot be read is listed with its ``problem``. Nothing is created.
    """
    return list(store_of(root, store).list())


def inspect_session(
    id: str,  # noqa: A002
    /,
    *,
    root: str | os.PathLike[str] | None = None,
    store: Store | None = None,
) -> Inspection:
    """Look at a session without writing; also while somebody has it open.

    Raises:
        SessionNotFoundError: there is none; nothing was created.
    """
    return Inspection(id, store_of(root, store))


def delete_session(
    id: str,  # noqa: A002
    /,
    *,
    root: str | os.PathLike[str] | None = None,
    store: Store | None = None,
) -> None:
    """Delete a session that nobody has open, its blobs and kept tails too.

    Raises:
        SessionNotFoundError: there is none.
        SessionBusyError: somebody has it open; nothing was deleted.
    """
    store_of(root, store).delete(id)


def configure(
    *,
    require_session: bool | None = None,
    session_fallback: bool | None = None,
    on_unknown: Any = None,
    root: str | os.PathLike[str] | None = None,
    redact_names: Iterable[str] | None = None,
) -> None:
    """Change process-wide settings; what is None stays as it is.

    Args:
        require_session: A decorated function without a session raises
            `NoSessionError` rather than run unrecorded.
        session_fallback: A context that never had a session uses the process's only
            one. Servers turn it off.
        on_unknown: The default for calls in doubt.
        root: The default root.
        redact_names: What secrets are called, in any case and with anything between
            the words: arguments and members of that name are recorded as redacted.
            `REDACTED_NAMES` is the default; ``()`` redacts nothing by its name.

    """
    settings = _current.SETTINGS
    if not is_on_unknown(on_unknown):
        msg = f"on_unknown={on_unknown!r} is neither 'raise', 'return' nor a handler"
        raise TypeError(msg)
    if require_session is not None:
        settings.require_session = require_session
    if session_fallback is not None:
        settings.session_fallback = session_fallback
    if on_unknown is not None:
        settings.on_unknown = on_unknown
    if redact_names is not None:
        settings.redact_names = names_of(redact_names)
    if root is not None:
        settings.root = str(root)
