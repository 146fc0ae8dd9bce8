"""How far one log has got, and the errors that say why it goes no further."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, NoReturn

from durable_agent.errors import (
    DurableError,
    LogPoisonedError,
    SessionClosedError,
    SessionForkedError,
    StoreError,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Progress:
    """What is written, durable, failed and closed of one log.

    Each attribute only moves forward and is set after the fact, so that any thread
    may read it without a lock: ``written`` changes under the write lock, ``durable``
    by the leader, ``closed`` under the queue lock, ``failed`` by whoever fails.
    """

    def __init__(
        self, written: int, durable: int, name: str, check: Callable[[], object] | None
    ) -> None:
        self.written = written
        self.durable = durable
        self.failed: BaseException | None = None
        self.closed = False
        self._name = name
        self._check = check
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that owns the log."""
        return os.getpid() != self._pid

    def ready(self) -> None:
        """Raise if the handle must not be used."""
        if self.forked:
            raise SessionForkedError(
                "a forked child does not own the session.", session=self._name
            )
        if self.failed is not None:
            raise self._poisoned(self.failed)
        if self._check is not None:
            self._check()

    def admit(self) -> None:
        """Raise if nothing more may be queued or appended."""
        if self.failed is not None:
            raise self._poisoned(self.failed)
        if self.closed:
            raise SessionClosedError("the log was closed.", session=self._name)

    def fail(self, error: BaseException) -> None:
        """Keep the first failure; wakes nobody."""
        if self.failed is None:
            self.failed = error

    def require_durable(self, seq: int) -> None:
        """Raise a waiter's own error if its barrier did not come to be."""
        if seq > self.durable:
            raise self.broken()

    def require_written(self, seq: int) -> None:
        """Raise a waiter's own error if its write did not come to be."""
        if seq > self.written:
            raise self.broken()

    def broken(self) -> Exception:
        """Return one waiter's own error about the failure."""
        cause = self.failed
        error: Exception
        if isinstance(cause, DurableError):
            error = copy.copy(cause)
        else:
            error = StoreError(
                f"the log could not be written or synced: {cause}.",
                session=self._name,
            )
            error.errno = getattr(cause, "errno", None)
        error.__cause__ = cause
        return error

    def _poisoned(self, cause: BaseException) -> LogPoisonedError:
        error = LogPoisonedError(
            f"this handle failed before and stays failed: {cause}.",
            session=self._name,
            advice="Open the session again.",
        )
        error.__cause__ = cause
        return error

    def unsettled(self) -> StoreError:
        """Return the failure of an interrupted write that nobody can judge."""
        return StoreError(
            "a write was interrupted, and it cannot be told what arrived.",
            session=self._name,
        )

    def refuse(self) -> NoReturn:
        """Raise for a call that would wait for its own thread."""
        raise StoreError(
            "this thread is writing the log already: a finalizer or a signal handler "
            "ran inside and cannot wait for it.",
            session=self._name,
        )


def held(lock: threading.RLock) -> bool:
    """Whether this thread is inside the lock."""
    return lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 - Condition asks so too
