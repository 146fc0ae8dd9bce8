"""Whose turn it is: those who wait for the recorded path, and hand-outs in waves.

Under asyncio the order in which tasks get their outcomes decides what the program does
next. So outcomes are handed out in *waves*: those that are ready in one pass of the
loop go out together; then nothing goes out until the loop had ``_DRAIN`` passes to
react. Live waves of more than one outcome are told to the log (``waves`` of the next
event), and a replay forms the same ones. Bare threads have no such passes: there a
replay hands out one by one, in the order of the log.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

from attrs import define, field

from durable_agent._sync_pool import is_worker

if TYPE_CHECKING:
    from collections.abc import Callable

#: Passes of the loop after a wave. A task's end reaches whoever waits for it in two
#: or three, and each layer of gather, wait_for or task group adds as many.
_DRAIN: Final = 16


@define(eq=False)
class Waiter:
    """Someone who waits until ``ready`` holds; ``wake`` is then called once."""

    ready: Callable[[], bool]
    wake: Callable[[], None]
    place: int = 0


@define(eq=False)
class Waves:
    """The hand-outs of one session in one loop; used in its thread only."""

    loop: asyncio.AbstractEventLoop
    #: Told the seqs of the live outcomes of a wave.
    released: Callable[[list[int]], None]
    _queue: deque[tuple[asyncio.Future[None], int | None]] = field(factory=deque)
    _busy: bool = False

    @property
    def idle(self) -> bool:
        """Whether a hand-out now would be the first of a new wave."""
        return not self._busy

    def join(self, future: asyncio.Future[None], live_seq: int | None) -> None:
        """Resolve the future with the next wave."""
        self._queue.append((future, live_seq))
        if not self._busy:
            self._busy = True
            self.loop.call_soon(self._release)

    def _release(self) -> None:
        live = []
        while self._queue:
            future, seq = self._queue.popleft()
            if future.done():
                continue
            future.set_result(None)
            if seq is not None:
                live.append(seq)
        if live:
            self.released(live)
        self.loop.call_soon(self._drain, _DRAIN)

    def _drain(self, left: int) -> None:
        if left:
            self.loop.call_soon(self._drain, left - 1)
        elif self._queue:
            self._release()
        else:
            self._busy = False


@define(eq=False)
class Turns:
    """Who uses a session, and who waits in it. Guarded by the session's lock."""

    released: Callable[[list[int]], None]
    #: Functions bound to the session that no thread has begun yet.
    unbegun: int = 0
    _waiters: list[Waiter] = field(factory=list)
    _threads: WeakSet[threading.Thread] = field(factory=WeakSet)
    _tasks: WeakSet[asyncio.Task[Any]] = field(factory=WeakSet)
    _waves: WeakKeyDictionary[asyncio.AbstractEventLoop, Waves] = field(
        factory=WeakKeyDictionary
    )

    def seen_thread(self) -> None:
        """Note that this thread uses the session."""
        self._threads.add(threading.current_thread())

    def begun(self) -> None:
        """Note that a bound function runs for the first time, in this thread."""
        self.unbegun -= 1
        self.seen_thread()

    def seen_task(self, task: asyncio.Task[Any]) -> None:
        """Note that this task uses the session."""
        self._tasks.add(task)

    @property
    def many_tasks(self) -> bool:
        """Whether more than one task that still lives used the session."""
        return len(self._tasks) > 1

    def alone_in_thread(self) -> bool:
        """Whether no other thread or task that used the session is alive.

        A function that was bound and never begun may be about to use it.
        """
        me = threading.current_thread()
        others = any(
            t.is_alive() and t is not me and not is_worker(t) for t in self._threads
        )
        return not (others or self.unbegun) and all(task.done() for task in self._tasks)

    def alone_in_loop(
        self, task: asyncio.Task[Any], holds: Callable[[asyncio.Task[Any]], bool]
    ) -> bool:
        """Whether no other task of the loop, and no other thread, can use the session.

        ``holds`` tells whether a task's context has the session.
        """
        for other in asyncio.all_tasks():
            if other is not task and (other in self._tasks or holds(other)):
                return False
        me = threading.current_thread()
        return not any(t.is_alive() and t is not me for t in self._threads)

    def waves(self, loop: asyncio.AbstractEventLoop) -> Waves:
        """Return the waves of this loop."""
        waves = self._waves.get(loop)
        if waves is None:
            waves = self._waves[loop] = Waves(loop, self.released)
        return waves

    def add(self, waiter: Waiter) -> None:
        """Wait: ``waiter.wake`` is called when ``waiter.ready`` holds."""
        self._waiters.append(waiter)

    def drop(self, waiter: Waiter) -> None:
        """Wait no more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def moved(self) -> None:
        """Wake those whose turn has come; call it whenever the path has moved."""
        if not self._waiters:
            return
        ready = [w for w in self._waiters if w.ready()]
        ready.sort(key=lambda waiter: waiter.place)
        for waiter in ready:
            self._waiters.remove(waiter)
            waiter.wake()
