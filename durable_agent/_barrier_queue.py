"""Who waits for a barrier or a write, and who leads.

Every change happens under the queue lock, which is held for work in memory and for
wake-ups, never for I/O. A change first wakes and then records, so that `Queue.pass_on`
may be interrupted anywhere and repeated; who is woken for nothing looks and waits
again. The next leader is woken first, so that its barrier begins while the others of
the last one still wake up.
"""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING

from durable_agent._barrier_progress import held
from durable_agent._sync_pool import SYNCS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from durable_agent._barrier_progress import Progress


class Ticket:
    """One waiter: a thread at its gate, or a future of a loop."""

    __slots__ = ("future", "gate", "seq")

    def __init__(self, seq: int, future: asyncio.Future[None] | None = None) -> None:
        self.seq = seq
        self.future = future
        #: Held while the thread is to wait.
        self.gate = threading.Lock()

    def open(self) -> None:
        """Let the thread look. Harmless if it is not waiting; under the queue lock."""
        _open(self.gate)


class Queue:
    """Tickets in order of arrival, at most one leader, at most one write job.

    ``run_lead(ticket)`` and ``run_write()`` are the jobs for tickets of tasks.
    """

    def __init__(
        self,
        progress: Progress,
        run_lead: Callable[[Ticket], None],
        run_write: Callable[[], None],
    ) -> None:
        self._progress = progress
        self._run_lead = run_lead
        self._run_write = run_write
        # Re-entrant for `held`: a finalizer is refused rather than stuck.
        self._lock = threading.RLock()
        self._syncs: list[Ticket] = []
        self._writes: list[Ticket] = []
        self._leader: Ticket | None = None
        self._leader_thread = 0
        self._write_job = False
        self._closers: list[threading.Lock] = []

    @property
    def entered(self) -> bool:
        """Whether this thread is inside the queue, or leads."""
        return held(self._lock) or self._leader_thread == threading.get_ident()

    def enter(self, ticket: Ticket) -> bool:
        """Queue for a barrier; True if there was no leader, so that this one leads."""
        with self._lock:
            if ticket.seq <= self._progress.durable:
                return False
            self._progress.admit()
            if self._leader is not None and ticket.future is None:
                ticket.gate.acquire()
            self._syncs.append(ticket)
            if self._leader is not None:
                return False
            self._appoint(ticket)
            return True

    def enter_write(self, ticket: Ticket) -> None:
        """Queue a task's ticket for the next write on a sync thread."""
        with self._lock:
            if ticket.seq <= self._progress.written:
                return
            self._progress.admit()
            self._writes.append(ticket)
            if not self._write_job:
                self._start_write()

    def wait(self, ticket: Ticket) -> bool:
        """Wait to be served; True if leadership came instead."""
        progress = self._progress
        while ticket.seq > progress.durable and progress.failed is None:
            ticket.gate.acquire()
            # The lock only for those who are not served: the leader may hold it still.
            if ticket.seq > progress.durable and self.leads(ticket):
                return True
        return False

    def leads(self, ticket: Ticket) -> bool:
        """Whether the ticket is the leader's."""
        with self._lock:
            return self._leader is ticket

    def begin(self) -> None:
        """Note the leader's thread."""
        self._leader_thread = threading.get_ident()

    def end_write(self) -> None:
        """Serve after the write job, and start the next if somebody waits for it."""
        with self._lock:
            self._write_job = False
            self.pass_on()
            if self._writes:
                self._start_write()

    def pass_on(self, ticket: Ticket | None = None) -> None:
        """Serve whom the progress satisfies; if ``ticket`` leads, hand leadership on.

        ``ticket``, if it is a thread's, leaves the queue.
        """
        with self._lock:
            done, syncs = self._split(self._syncs, self._progress.durable, ticket)
            written, writes = self._split(self._writes, self._progress.written, None)
            if ticket is not None and self._leader is ticket:
                self._leader_thread = 0
                if syncs:
                    self._appoint(syncs[0])
                else:
                    self._leader = None
            _wake(done + written)
            self._syncs, self._writes = syncs, writes
            if self._closers and self._idle():
                for gate in self._closers:
                    _open(gate)
                self._closers = []

    def surely_pass_on(self, ticket: Ticket | None = None) -> None:
        """As ``pass_on`` while an interrupt goes up; further ones are dropped."""
        while True:
            try:
                return self.pass_on(ticket)
            except Exception:
                raise
            except BaseException:  # noqa: BLE001, S112 - the first one goes up
                continue

    def close(self) -> None:
        """Admit nobody any more; return when all who were admitted are served."""
        while True:
            gate = threading.Lock()
            gate.acquire()
            with self._lock:
                self._progress.closed = True
                if self._idle():
                    return
                self._closers.append(gate)
            gate.acquire()

    def _start_write(self) -> None:
        SYNCS.submit(self._run_write)
        self._write_job = True

    def _appoint(self, ticket: Ticket) -> None:
        if ticket.future is not None:
            SYNCS.submit(partial(self._run_lead, ticket))
        else:
            ticket.open()
        self._leader = ticket

    def _split(
        self, tickets: list[Ticket], reached: int, leaving: Ticket | None
    ) -> tuple[list[Ticket], list[Ticket]]:
        """Part those who are served, or have failed, from those who wait on."""
        if self._progress.failed is not None:
            return tickets, []
        served: list[Ticket] = []
        rest: list[Ticket] = []
        for ticket in tickets:
            if ticket.seq <= reached:
                served.append(ticket)
            elif ticket is not leaving or ticket.future is not None:
                rest.append(ticket)
        return served, rest

    def _idle(self) -> bool:
        return not (self._leader or self._syncs or self._writes or self._write_job)


def _open(gate: threading.Lock) -> None:
    # Only holders of the queue lock release a gate, so it cannot be freed in between.
    if gate.locked():
        gate.release()


def _wake(tickets: list[Ticket]) -> None:
    """Let threads look; resolve the futures of each loop in one call of that loop."""
    told: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for ticket in tickets:
        if ticket.future is None:
            ticket.open()
        else:
            told.setdefault(ticket.future.get_loop(), []).append(ticket.future)
    for loop, futures in told.items():
        # A closed loop: nobody waits in it any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, futures)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
