"""Group commit: barriers that share one sync, for threads and event loops together.

Appending puts lines in a list. Whoever needs them in the file writes all that is
pending; whoever needs them durable queues a ticket. The first becomes *leader*: it
writes what is pending, reads the barrier's seq, syncs once, serves every ticket up to
that seq and hands leadership to the head of the queue. Lines appended meanwhile
belong to the next barrier, which covers all of them, so a caller waits for the
barrier in flight and for one more. A thread leads in its own call, without a hop; for
a task the leader is a job on the process's sync threads, and one wake-up per barrier
and loop resolves all its futures.

**Locks**, in this order, each optional: the *write lock* (one write at a time, not held
during a sync), the *append lock* (pending lines and ``next_seq``; memory only), the
*queue lock* (tickets and leadership; memory and wake-ups only). Every change of shared
state happens under one of them. What is read without one (``written``, ``durable``,
``failed``) is one attribute that only moves forward and is set after the fact, so
nothing here relies on a global interpreter lock.

**Failure.** A failed write or sync poisons: all waiters and all later calls get an
error of their own, chained to the first. No sync is tried again after a failure.

**Interrupts** (a KeyboardInterrupt, an exception raised by a signal handler). A waiter
leaves the queue. A leader interrupted in its sync acknowledges nothing and hands on;
the next leader syncs again, unless the interrupt came while a failure was handled:
then that failure counts. A write that was interrupted is *in doubt*, and the next
holder of the write lock asks ``settle_write`` what became of it. The queue's own steps
may be interrupted and repeated anywhere.

A finalizer or signal handler may run inside any of this and use the same log: what
would wait for its own thread is refused with a `StoreError` instead, and the lines it
appended are written with the next batch.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from durable_agent._barrier_progress import Progress, held
from durable_agent._barrier_queue import Queue, Ticket
from durable_agent._sync_pool import SYNCS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class GroupCommit:
    """The order, the writes and the barriers of one log.

    ``write(batch)`` hands all bytes to the operating system or raises; it gets every
    line once, in order. ``sync()`` makes all that was written before durable or
    raises; it may rotate, under ``exclusive()``. An error other than `OSError` from
    either counts as an interrupt. ``check()`` raises where the handle must not be used
    (a fork, a lost lease). ``settle_write(batch)`` judges an interrupted write: True,
    all of it is in the file; False, nothing is; None, it cannot tell, which poisons.
    """

    def __init__(
        self,
        write: Callable[[list[bytes]], object],
        sync: Callable[[], object],
        *,
        first_seq: int,
        durable: int,
        name: str,
        check: Callable[[], object] | None = None,
        settle_write: Callable[[list[bytes]], bool | None] | None = None,
    ) -> None:
        self._write = write
        self._sync = sync
        self._settle_write = settle_write
        self._progress = Progress(first_seq - 1, durable, name, check)
        self._queue = Queue(self._progress, self._run_lead, self._run_write)
        # Re-entrant for `held`: a finalizer is refused rather than stuck.
        self._write_lock = threading.RLock()
        self._append_lock = threading.RLock()
        #: Under the append lock.
        self._next = first_seq
        self._pending: list[bytes] = []
        #: Under the write lock: what is being written, and whether that began.
        self._batch: list[bytes] = []
        self._batch_last = first_seq - 1
        self._in_doubt = False

    @property
    def next_seq(self) -> int:
        """The seq that the next appended line will have."""
        return self._next

    @property
    def written(self) -> int:
        """The highest seq handed to the operating system."""
        return self._progress.written

    @property
    def durable(self) -> int:
        """The highest seq known durable."""
        return self._progress.durable

    @property
    def failed(self) -> BaseException | None:
        """The first failure; it stays."""
        return self._progress.failed

    def append(self, count: int, make: Callable[[int, int], list[bytes]]) -> int:
        """Give ``count`` lines their places, together; return the last seq.

        ``make(first_seq, durable)`` builds the lines under the append lock. Nothing is
        on disk yet. Any error inside poisons the handle.
        """
        self._progress.ready()
        if held(self._append_lock):
            self._progress.refuse()
        with self._append_lock:
            self._progress.admit()
            first = self._next
            try:
                lines = make(first, self._progress.durable)
                if len(lines) != count:
                    raise ValueError(  # noqa: TRY301 - a caller's mistake poisons too
                        f"{count} lines were promised, not {len(lines)}"
                    )
                self._pending += lines
                self._next = first + count
            except BaseException as error:
                if self._progress.failed is None:
                    self._progress.failed = error  # no call before it, as in ``_lead``
                self._queue.surely_pass_on()
                raise
            return first + count - 1

    def write(self, seq: int) -> None:
        """Return when everything up to ``seq`` was handed to the operating system."""
        progress = self._progress
        progress.ready()
        if seq <= progress.written:
            return
        self._admit(seq)
        try:
            with self._write_lock:
                if seq > progress.written:
                    if progress.failed is None:
                        progress.admit()
                    self._drain()
        except BaseException:
            if progress.failed is not None:
                self._queue.surely_pass_on()
            raise

    def flush(self, seq: int) -> None:
        """Return when everything up to ``seq`` is durable: written, and synced since.

        The sync is shared with all who wait.
        """
        progress = self._progress
        progress.ready()
        if seq <= progress.durable:
            return
        self._admit(seq)
        ticket = Ticket(seq)
        try:
            if self._queue.enter(ticket) or self._queue.wait(ticket):
                self._lead(ticket)
            progress.require_durable(seq)
        except BaseException:
            self._queue.surely_pass_on(ticket)
            raise

    async def awrite(self, seq: int) -> None:
        """As ``write``, on a sync thread. Cancelling it stops nothing."""
        progress = self._progress
        progress.ready()
        if seq <= progress.written:
            return
        self._admit(seq)
        if not SYNCS.ready():
            self.write(seq)
            return
        future = asyncio.get_running_loop().create_future()
        self._queue.enter_write(Ticket(seq, future))
        if seq > progress.written:
            await future
        progress.require_written(seq)

    async def aflush(self, seq: int) -> None:
        """As ``flush``, on a sync thread. Cancelling it stops nothing."""
        progress = self._progress
        progress.ready()
        if seq <= progress.durable:
            return
        self._admit(seq)
        if not SYNCS.ready():
            self.flush(seq)
            return
        future = asyncio.get_running_loop().create_future()
        try:
            # Whoever else is ready in this pass of the loop joins the same barrier.
            await asyncio.sleep(0)
        finally:
            self._queue.enter(Ticket(seq, future))
        if seq > progress.durable:
            await future
        progress.require_durable(seq)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the write lock: nothing is written meanwhile, by anybody."""
        if self._progress.forked:
            self._progress.ready()
        if held(self._write_lock):
            self._progress.refuse()
        with self._write_lock:
            if self._in_doubt and self._progress.failed is None:
                self._settle()
            yield

    def poison(self, error: BaseException) -> None:
        """Fail the handle for good: all waiters and all later calls get an error."""
        self._progress.fail(error)
        if not self._progress.forked:
            self._queue.pass_on()

    def close(self) -> None:
        """Refuse what comes, finish the barriers that are queued; no I/O comes after.

        Writes nothing by itself: pending lines that nobody waits for are dropped.
        Idempotent; does nothing in a forked child.
        """
        if self._progress.forked:
            return
        self._refuse_reentry()
        self._queue.close()
        with self._append_lock:
            pass
        with self._write_lock:
            pass

    def _lead(self, ticket: Ticket) -> None:
        """One barrier: write what is pending, sync once, serve, hand on."""
        progress = self._progress
        self._queue.begin()
        with self._write_lock:
            self._drain()
            reached = progress.written
        self._queue.pass_on()
        outer = sys.exception()
        try:
            self._sync()
        except OSError as error:
            # No call before this line: an interrupt that came first would lose the
            # only report of the failure, and the next sync would lie.
            if progress.failed is None:
                progress.failed = error
        except BaseException as interrupt:
            failure = _hidden_failure(interrupt, outer)
            if failure is not None:
                progress.fail(failure)
            raise
        if progress.failed is None:
            progress.durable = reached
        self._queue.pass_on(ticket)

    def _run_lead(self, ticket: Ticket) -> None:
        """Lead on a sync thread, for tasks; whatever goes wrong there poisons."""
        if not self._queue.leads(ticket):
            return
        try:
            self._lead(ticket)
        except BaseException as error:  # noqa: BLE001 - goes to every waiter
            self._progress.fail(error)
            self._queue.pass_on(ticket)

    def _run_write(self) -> None:
        """Write on a sync thread, for tasks; whatever goes wrong there poisons."""
        try:
            with self._write_lock:
                self._drain()
        except BaseException as error:  # noqa: BLE001 - goes to every waiter
            self._progress.fail(error)
        self._queue.end_write()

    def _drain(self) -> None:
        """Write everything pending. The write lock is held."""
        if self._progress.failed is not None:
            raise self._progress.broken()
        if self._in_doubt:
            self._settle()
        if self._batch:
            self._write_batch()  # an interrupted writer left it, nothing was written
        with self._append_lock:
            # In one step, so that an interrupt finds each line in one place.
            self._batch, self._pending, self._batch_last = (
                self._pending,
                [],
                self._next - 1,
            )
        if self._batch:
            self._write_batch()

    def _write_batch(self) -> None:
        self._in_doubt = True
        try:
            self._write(self._batch)
        except OSError as error:
            if self._progress.failed is None:
                self._progress.failed = error  # no call before it, as in ``_lead``
            raise self._progress.broken() from error
        self._progress.written = self._batch_last
        self._batch, self._in_doubt = [], False

    def _settle(self) -> None:
        """Find out what became of an interrupted write. The write lock is held."""
        try:
            settle = self._settle_write
            arrived = settle(self._batch) if settle is not None else None
        except Exception as error:
            self.poison(error)
            raise self._progress.broken() from error
        if arrived is None:
            self.poison(self._progress.unsettled())
            raise self._progress.broken()
        if arrived:
            self._progress.written = self._batch_last
            self._batch = []
        self._in_doubt = False

    def _admit(self, seq: int) -> None:
        if seq >= self._next:
            raise ValueError(f"seq {seq} was never appended")
        self._refuse_reentry()

    def _refuse_reentry(self) -> None:
        if held(self._write_lock) or held(self._append_lock) or self._queue.entered:
            self._progress.refuse()


def _hidden_failure(
    interrupt: BaseException, outer: BaseException | None
) -> OSError | None:
    """Return the `OSError` that a sync was handling when it was interrupted."""
    hidden = interrupt.__context__
    while hidden is not None and hidden is not outer:
        if isinstance(hidden, OSError):
            return hidden
        hidden = hidden.__context__
    return None
