"""The process's few I/O threads for event loops: one set for syncs, one for the rest.

A server holds a thousand sessions, so no session has a thread of its own. Jobs are
taken in the order they came; a log has at most one barrier and one write among them,
so logs are served in turn. Threads start on demand, up to the set's limit, are
daemons (the interpreter exits at any time without them), and never end. A forked
child starts with none.

What may block for long (opening, closing, reading) goes through `offload`, which has
threads of its own and so never stands in the way of a barrier.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

#: Barriers of different logs overlap usefully (a file system merges their commits);
#: more threads than this only wait for the same disk.
_SYNC_THREADS: Final = 8
#: Begins the names of the threads of ours.
_PREFIX: Final = "durable-agent-"
#: Openings may wait for a lease that a queued closing would give up.
_OFFLOAD_THREADS: Final = 32


def is_worker(thread: threading.Thread) -> bool:
    """Whether a thread is of a pool of ours: it runs no code of users."""
    return thread.name.startswith(_PREFIX)


class Pool:
    """A bounded set of daemon threads that run jobs in order of arrival."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # Re-entrant: a finalizer that runs inside may submit a job too.
        self._lock = threading.RLock()
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._threads = 0
        self._unfinished = 0

    def ready(self) -> bool:
        """Whether at least one thread serves this pool; tries to start one.

        False only where no thread can be started (limits, interpreter shutdown).
        """
        with self._lock:
            if not self._threads:
                self._start()
            return self._threads > 0

    def submit(self, job: Callable[[], object]) -> None:
        """Queue the job; one more thread is started if all are busy.

        ``ready`` must have been true. What the job raises is only reported.
        """
        with self._lock:
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self._limit:
                self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._work,
            args=(self._lock, self._jobs),
            name=f"{self._name}-{self._threads + 1}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:
            return
        self._threads += 1

    def _work(
        self, lock: threading.RLock, jobs: SimpleQueue[Callable[[], object]]
    ) -> None:
        while True:
            job = jobs.get()
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - reported, the thread stays
                threading.excepthook(
                    threading.ExceptHookArgs(
                        (type(error), error, error.__traceback__, None)
                    )
                )
            # An idle thread must not keep the last log or result alive.
            del job
            with lock:
                self._unfinished -= 1


#: Barriers and writes of all logs of the process.
SYNCS: Final = Pool(f"{_PREFIX}sync", _SYNC_THREADS)
_OFFLOADS: Final = Pool(f"{_PREFIX}io", _OFFLOAD_THREADS)


class _Offloaded:
    """One call on an I/O thread, and the future that tells its caller.

    Under the lock it is decided once who has the value: the caller, or nobody.
    """

    def __init__(
        self, run: Callable[[], Any], unclaimed: Callable[[Any], object] | None
    ) -> None:
        self._run = run
        self._unclaimed = unclaimed
        self._lock = threading.Lock()
        self._finished = self._left = False
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def work(self) -> None:
        try:
            self.value = self._run()
        except BaseException as error:  # noqa: BLE001 - raised again at the caller
            self.error = error
        with self._lock:
            self._finished, left = True, self._left
        if left:
            self._give_back()
            return
        # A closed loop: its tasks were cancelled, or will end with GeneratorExit.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell)

    def leave(self) -> None:
        """Note that the caller goes away without the value."""
        with self._lock:
            self._left, finished = True, self._finished
        if finished:
            _OFFLOADS.submit(self._give_back)

    def _tell(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _give_back(self) -> None:
        if self._unclaimed is not None and self.error is None:
            self._unclaimed(self.value)


async def offload(
    fn: Callable[..., _T],
    *args: Any,
    unclaimed: Callable[[_T], object] | None = None,
) -> _T:
    """Return ``fn(*args)``, run on an I/O thread in a copy of the caller's context.

    A cancelled caller does not stop ``fn``: it runs to its end, and a value that
    nobody receives is given to ``unclaimed`` (an opened log, to close it). At most 32
    run at once; the others wait in order. Where no thread can be started, at
    interpreter shutdown, ``fn`` runs here.
    """
    if not _OFFLOADS.ready():
        return fn(*args)
    context = contextvars.copy_context()
    call = _Offloaded(lambda: context.run(fn, *args), unclaimed)
    _OFFLOADS.submit(call.work)
    try:
        await call.future
    except BaseException:
        call.leave()
        raise
    if call.error is not None:
        try:
            raise call.error
        finally:
            del call  # the error's traceback holds this frame
    value: _T = call.value
    return value
