"""What can go wrong, as facts.

::

    DurableError
    ├── DecorationError          TypeError      this cannot be decorated so
    ├── SessionIdError           ValueError     this id cannot name a session
    ├── SessionUseError          RuntimeError   the session cannot be used from here
    │   ├── NoSessionError                      none is open, and one is required
    │   ├── AmbiguousSessionError               several are open; which one is meant?
    │   ├── SessionClosedError                  it was closed
    │   └── SessionForkedError                  it belongs to the parent process
    ├── SessionNotFoundError     LookupError    must_exist=True, and it does not
    ├── SessionExistsError       FileExistsError  must_exist=False, and it does
    ├── SessionBusyError         TimeoutError   another owner has it open
    ├── StoreError               OSError        the store failed
    │   ├── LogPoisonedError                    this handle failed before and stays so
    │   ├── LogCorruptError                     promised data is damaged
    │   │   └── LogConflictError                two different records for one seq
    │   ├── LogUnsupportedError                 written by a newer version
    │   └── LeaseLostError                      the log is no longer ours
    ├── CheckpointError          OSError        no durable intent: the body did not run
    ├── OutcomeNotRecordedError  OSError        the body ran; its outcome is not kept
    ├── OutcomeExistsError       RuntimeError   this attempt has an outcome already
    ├── ArgumentNotStorableError TypeError      an argument cannot be recorded
    ├── ValueNotStorableError    TypeError      a value cannot be recorded
    ├── ValueNotRebuildableError ValueError     a recorded value cannot be rebuilt here
    ├── ResultNotStorableError   RuntimeError   it completed; its value was not stored
    ├── ReplayDivergedError      RuntimeError   the code left the recorded path
    ├── ToolOutcomeUnknownError  RuntimeError   it may or may not have happened
    ├── ToolNotStartedError      RuntimeError   the model was told it never started
    ├── ToolAbortedError         RuntimeError   cancelled before its body ran
    ├── RecordedToolError        Exception      a recorded error of an unknown type
    └── TranscriptError          LookupError    no single conversation can be shown

Every class also derives from the builtin that a caller would expect, keeps its
facts in fields, composes its message from them, and pickles. Advice for the
person is in ``__notes__`` where ``str(error)`` is meant for a model.
"""

from __future__ import annotations

from typing import Any, ClassVar

from durable_agent._error_base import (
    CallError,
    DurableError,
    LocatedError,
    PathError,
    WordedError,
)


class DecorationError(WordedError, TypeError):
    """The thing cannot be decorated, or not with these options; nothing was."""


class SessionIdError(WordedError, ValueError):
    """The id cannot name a session; nothing was opened or created."""


class SessionUseError(WordedError, RuntimeError):
    """The session cannot be used from here; nothing ran."""


class NoSessionError(SessionUseError):
    """No session is open and ``configure(require_session=True)`` asks for one."""


class AmbiguousSessionError(SessionUseError):
    """No session in this context, and the process had several open at once."""


class SessionClosedError(SessionUseError):
    """The session of this context is closed; nothing ran and nothing was recorded."""


class SessionForkedError(SessionUseError):
    """A forked child used a session that belongs to its parent process."""


class SessionNotFoundError(WordedError, LookupError):
    """``must_exist=True`` and there is no such session; nothing was created."""


class SessionExistsError(WordedError, FileExistsError):
    """``must_exist=False`` and the session exists; nothing was changed."""


class SessionBusyError(WordedError, TimeoutError):
    """Another owner has the session open; nothing was read or written."""

    _fields: ClassVar[tuple[str, ...]] = ("message", "session", "advice", "pid", "host")

    def __init__(
        self,
        message: str = "",
        *,
        session: str | None = None,
        advice: str = "",
        pid: int | None = None,
        host: str | None = None,
    ) -> None:
        super().__init__(message, session=session, advice=advice)
        #: Process id and host that the owner wrote down, if it could be read.
        self.pid = pid
        self.host = host


class StoreError(LocatedError, OSError):
    """The store could not read, write or sync; see ``__cause__`` for the errno."""


class LogPoisonedError(StoreError):
    """This handle failed before and stays failed; open the session again."""


class LogCorruptError(StoreError):
    """Data that was promised durable is damaged; nothing was changed."""


class LogConflictError(LogCorruptError):
    """Two different records claim one place in the log; nothing was changed."""


class LogUnsupportedError(StoreError):
    """The log was written by a newer version; its bytes are untouched."""


class LeaseLostError(StoreError):
    """The file is no longer the one this owner locked; nothing was written."""


class CheckpointError(LocatedError, OSError):
    """The intent could not be made durable, so the body did not run."""


class OutcomeNotRecordedError(LocatedError, OSError):
    """The body did run, and its outcome could not be recorded.

    ``value`` is what the body returned; ``error`` what it raised instead.
    A later run finds the call in doubt.
    """

    _fields: ClassVar[tuple[str, ...]] = (*LocatedError._fields, "value", "error")

    def __init__(
        self,
        message: str = "",
        *,
        session: str | None = None,
        advice: str = "",
        file: str | None = None,
        offset: int | None = None,
        seq: int | None = None,
        value: Any = None,
        error: BaseException | None = None,
    ) -> None:
        super().__init__(
            message, session=session, advice=advice, file=file, offset=offset, seq=seq
        )
        self.value = value
        self.error = error


class OutcomeExistsError(WordedError, RuntimeError):
    """This attempt has an outcome already; the second one was refused."""


class ArgumentNotStorableError(PathError, TypeError):
    """An argument cannot be recorded; the body did not run."""


class ValueNotStorableError(PathError, TypeError):
    """A value cannot be recorded so that it comes back equal and of its type."""


class ValueNotRebuildableError(PathError, ValueError):
    """A recorded value names what is not loaded or not allowed; nothing ran."""


class ToolOutcomeUnknownError(CallError, RuntimeError):
    """The call began and no outcome is recorded: it may or may not have happened."""


class ToolNotStartedError(CallError, RuntimeError):
    """The model was told that this call was never started; it is not run now."""


class ToolAbortedError(CallError, RuntimeError):
    """The call was cancelled before its body ran."""


class ResultNotStorableError(CallError, RuntimeError):
    """The call completed in an earlier run; its value could not be stored."""


class ReplayDivergedError(WordedError, RuntimeError):
    """The code asks for something else than the log holds; nothing ran.

    The session stays failed: every later recorded call raises this again.
    """

    _fields: ClassVar[tuple[str, ...]] = (
        "message",
        "session",
        "advice",
        "path",
        "recorded",
        "asked",
    )

    def __init__(
        self,
        message: str = "",
        *,
        session: str | None = None,
        advice: str = "",
        path: str = "",
        recorded: str = "",
        asked: str = "",
    ) -> None:
        super().__init__(message, session=session, advice=advice)
        #: The first difference: where, what was recorded, what is asked now.
        self.path = path
        self.recorded = recorded
        self.asked = asked


class RecordedToolError(DurableError):
    """A recorded error whose own type cannot be rebuilt here."""

    _fields: ClassVar[tuple[str, ...]] = ("type_name", "text")

    def __init__(self, type_name: str = "", text: str = "") -> None:
        super().__init__(type_name, text)
        #: Module and qualified name of the type that was raised.
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}" if self.text else self.type_name


class TranscriptError(WordedError, LookupError):
    """The log holds several conversations, or none that a dialect can show."""


class DurableWarning(UserWarning):
    """The root of the warnings."""


class NoSessionWarning(DurableWarning):
    """A decorated function ran without a session: nothing was recorded."""


class ReplayDivergedWarning(DurableWarning):
    """The code left the recorded path in a way that doubles nothing."""


class FinishedSessionWarning(DurableWarning):
    """The session had ended normally: the same code only replays."""


class ResultNotStorableWarning(DurableWarning):
    """A value could not be stored; the caller has it, a replay will not."""


class EqualCallsWarning(DurableWarning):
    """Equal calls were in flight at once: they are interchangeable on replay."""


class TranscriptWarning(DurableWarning):
    """A transcript shows less than there was."""


class ContinuedSessionWarning(DurableWarning):
    """Calls replayed before a request that continues the recorded conversation."""


__all__ = [
    "AmbiguousSessionError",
    "ArgumentNotStorableError",
    "CheckpointError",
    "ContinuedSessionWarning",
    "DecorationError",
    "DurableError",
    "DurableWarning",
    "EqualCallsWarning",
    "FinishedSessionWarning",
    "LeaseLostError",
    "LogConflictError",
    "LogCorruptError",
    "LogPoisonedError",
    "LogUnsupportedError",
    "NoSessionError",
    "NoSessionWarning",
    "OutcomeExistsError",
    "OutcomeNotRecordedError",
    "RecordedToolError",
    "ReplayDivergedError",
    "ReplayDivergedWarning",
    "ResultNotStorableError",
    "ResultNotStorableWarning",
    "SessionBusyError",
    "SessionClosedError",
    "SessionExistsError",
    "SessionForkedError",
    "SessionIdError",
    "SessionNotFoundError",
    "SessionUseError",
    "StoreError",
    "ToolAbortedError",
    "ToolNotStartedError",
    "ToolOutcomeUnknownError",
    "TranscriptError",
    "TranscriptWarning",
    "ValueNotRebuildableError",
    "ValueNotStorableError",
]
