"""The two drivers where threads, tasks and loops meet in one session.

What waits for the recorded path is woken by whoever moves it, gives up when nobody is
left who could, and never stops a loop.
"""

import asyncio
import contextvars
import threading
from types import SimpleNamespace

import pytest

from durable_agent import (
    ToolAbortedError,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from durable_agent._current import FRAME, Frame
from durable_agent._driving import _holder
from durable_agent.jsonl import JsonlStore
from tests.disks import Disk, crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

#: Longer than any test may take: what waits so long waits for ever.
FOR_EVER = 600
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool(name="tool")
def tool(n):
    RAN.append(n)
    return n


@checkpointed_tool(name="atool")
async def atool(n):
    RAN.append(n)
    return n


@checkpointed_llm(name="ask")
async def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": f"re: {messages[-1]['content']}"}


def user(text):
    return {"role": "user", "content": text}


def waiting(s):
    """Return how many wait in this session."""
    with s._core.lock:
        return len(s._core.turns._waiters)


def until(condition):
    """Let other threads run until it holds."""
    gate = threading.Event()
    while not condition():
        gate.wait(0.001)


async def auntil(condition):
    while not condition():
        await asyncio.sleep(0.001)


def outcomes(root):
    with inspect_session("s", root=root) as looked:
        return [
            event.meta.get("code") or event.meta["status"]
            for event in looked.events()
            if event.type in {"tool/result", "llm/response"}
        ]


def recorded(root, *numbers):
    """Record these calls, one after the other, and leave them as by a kill."""
    with session("s", root=root) as s:
        for n in numbers:
            tool(n)
        crash(s)
    RAN.clear()


# threads -------------------------------------------------------------------------


def test_a_thread_waits_for_what_was_recorded_before_it(root):
    """Whatever the threads do, the outcomes come in the order of the log."""
    recorded(root, 1, 2, 3)

    with session("s", root=root, replay_wait=FOR_EVER) as s:
        order = [tool(1)]
        thread = threading.Thread(target=s.bind(lambda: order.append(tool(3))))
        thread.start()
        until(lambda: waiting(s) == 1)
        order.append(tool(2))
        thread.join()

    assert order == [1, 2, 3]
    assert RAN == []


@pytest.fixture
def other(root):
    """A session that replays three calls, and a thread that has asked for the first.

    The thread lives until it is let go.
    """
    recorded(root, 1, 2, 3)
    began, go_on = threading.Event(), threading.Event()

    def run():
        tool(1)
        began.set()
        go_on.wait()

    def start(s):
        thread = threading.Thread(target=s.bind(run))
        thread.start()
        began.wait()
        return thread

    yield SimpleNamespace(start=start, let_go=go_on.set)
    go_on.set()


def test_a_thread_whose_others_have_ended_waits_no_more(root, other):
    """Nobody is left who could ask for the missing call."""
    with session("s", root=root, replay_wait=FOR_EVER) as s:
        threads = [
            other.start(s),
            threading.Thread(
                target=lambda: (until(lambda: waiting(s)), other.let_go())
            ),
        ]
        threads[1].start()
        assert tool(3) == 3
        for thread in threads:
            thread.join()
        assert tool(2) == 2
    assert RAN == []


def test_a_thread_waits_no_longer_than_it_may(root, other):
    with session("s", root=root, replay_wait=0.01) as s:
        thread = other.start(s)
        assert tool(3) == 3
        assert thread.is_alive()
        other.let_go()
        thread.join()
        assert tool(2) == 2
    assert RAN == []


@pytest.mark.parametrize("in_task", [True, False], ids=["task", "callback"])
def test_a_sync_call_that_is_alone_in_its_loop_waits_for_nobody(root, in_task):
    """Called from a bare callback of the loop nothing is known of others."""
    recorded(root, 1, 2)

    async def main():
        loop = asyncio.get_running_loop()
        with session("s", root=root, replay_wait=FOR_EVER):
            if in_task:
                return [tool(2), tool(1)]
            done = loop.create_future()
            loop.call_soon(lambda: done.set_result([tool(2), tool(1)]))
            return await done

    assert asyncio.run(main()) == [2, 1]
    assert RAN == []


def test_a_thread_that_is_alone_in_its_session_waits_for_nobody(root):
    recorded(root, 1, 2)

    with session("s", root=root, replay_wait=FOR_EVER):
        assert [tool(2), tool(1)] == [2, 1]
    assert RAN == []


class InterruptingDisk(Disk):
    """Raises what it is told to, once, in its next sync."""

    error = None

    def sync(self, fd, *, metadata=False):
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().sync(fd, metadata=metadata)


def test_an_outcome_is_durable_though_its_caller_is_interrupted(tmp_path):
    """A write that has begun is finished before the interrupt goes up."""
    disk = InterruptingDisk()

    @checkpointed_tool(name="pay", durable_outcome=True)
    def pay():
        RAN.append(1)
        disk.error = KeyboardInterrupt()
        return "paid"

    s = session("s", store=JsonlStore(tmp_path, fs=disk))
    with pytest.raises(KeyboardInterrupt), s as s:
        try:
            pay()
        finally:
            log = s._core.log
            assert log.durable == log.next_seq - 1

    assert outcomes(tmp_path) == ["value"]
    assert RAN == [1]


def test_an_interrupted_checkpoint_is_not_finished_first(tmp_path):
    disk = InterruptingDisk()

    def run():
        with session("s", store=JsonlStore(tmp_path, fs=disk)):
            tool(0)
            disk.error = KeyboardInterrupt()
            tool(1)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert outcomes(tmp_path) == ["value", "ABORTED_BEFORE_DISPATCH"]
    assert RAN == [0]


def aborted(tmp_path):
    """Leave a call that was interrupted at its checkpoint, and a run that went on."""
    disk = InterruptingDisk()
    with session("s", store=JsonlStore(tmp_path, fs=disk)):
        tool(0)
        disk.error = KeyboardInterrupt()
        try:
            tool(1)
        except KeyboardInterrupt:
            tool(2)
    RAN.clear()


def test_a_call_that_was_interrupted_is_waited_for_to_be_interrupted_again(tmp_path):
    aborted(tmp_path)

    with session("s", root=tmp_path, replay_wait=0.01):
        assert tool(0) == 0
        with pytest.raises(TimeoutError):
            tool(1)
        assert tool(2) == 2
    assert RAN == []


def test_cancelling_the_session_ends_that_wait(tmp_path):
    aborted(tmp_path)

    with session("s", root=tmp_path, replay_wait=FOR_EVER, on_divergence="ignore") as s:
        other = threading.Thread(
            target=lambda: (until(lambda: waiting(s)), s.cancel("enough"))
        )
        assert tool(0) == 0
        other.start()
        with pytest.raises(TimeoutError):
            tool(1)
        other.join()
        with pytest.raises(ToolAbortedError):
            tool(2)
    assert RAN == []


def test_in_a_running_loop_an_interrupted_sync_call_does_not_wait(tmp_path):
    aborted(tmp_path)

    async def main():
        with session("s", root=tmp_path, replay_wait=FOR_EVER):
            assert tool(0) == 0
            with pytest.raises(TimeoutError):
                tool(1)
            return tool(2)

    assert asyncio.run(main()) == 2
    assert RAN == []


def test_a_thread_that_ends_last_seals_the_session(root):
    """Closing keeps log and lock until the calls in flight have their outcomes."""
    began, go_on = threading.Event(), threading.Event()

    @checkpointed_tool(name="slow")
    def slow():
        began.set()
        go_on.wait()
        return "late"

    with session("s", root=root) as s:
        thread = threading.Thread(target=s.bind(slow))
        thread.start()
        began.wait()
    go_on.set()
    thread.join()

    assert outcomes(root) == ["value"]
    with inspect_session("s", root=root) as looked:
        assert list(looked.events())[-1].type == "run/end"
    with session("s", root=root):
        assert slow() == "late"


# tasks ---------------------------------------------------------------------------


def test_a_task_that_ends_last_seals_the_session(root):
    @checkpointed_tool(name="slow", ignore=("began", "go_on"))
    async def slow(began, go_on):
        began.set()
        await go_on.wait()
        return "late"

    async def main():
        began, go_on = asyncio.Event(), asyncio.Event()
        async with session("s", root=root):
            task = asyncio.create_task(slow(began, go_on))
            await began.wait()
        go_on.set()
        return await task

    assert asyncio.run(main()) == "late"
    assert outcomes(root) == ["value"]
    with inspect_session("s", root=root) as looked:
        assert list(looked.events())[-1].type == "run/end"


def _what(event):
    return event.head._replace(time=0), event.data


def test_observers_of_an_async_session_see_every_event(root):
    async def main():
        seen = []
        async with session("s", root=root) as s:
            s.on_event(seen.append)
            await atool(1)
            assert [event.seq for event in seen] == list(range(s.seq + 1))
            assert [_what(event) for event in seen] == list(map(_what, s.events()))

    asyncio.run(main())


def test_an_awaitable_that_a_sync_tools_verifier_returns_is_refused(root):
    """It would never be awaited; a future cannot even be closed."""
    asked = []

    class Later:
        def __await__(self):
            yield

    @checkpointed_tool(name="pay", verify=lambda call: asked.append(call) or Later())
    def pay():
        RAN.append(1)

    with session("s", root=root) as s:
        pay()
        crash(s)
    cut(root / "s", 3)
    RAN.clear()
    with session("s", root=root), pytest.raises(TypeError, match="is async"):
        pay()
    assert len(asked) == 1
    assert RAN == []


def test_a_chat_under_an_async_session_continues_what_is_recorded(root):
    async def main():
        async with session("s", root=root) as s:
            await ask([*s.messages(), user("one")])
            crash(s)
        async with session("s", root=root) as s:
            await ask([*s.messages(), user("two")])
            return s.messages()

    said = asyncio.run(main())
    assert [m["content"] for m in said] == ["one", "re: one", "two", "re: two"]
    assert RAN == ["ask", "ask"]


def arecorded(root, *numbers):
    async def main():
        async with session("s", root=root) as s:
            for n in numbers:
                await atool(n)
            crash(s)

    asyncio.run(main())
    RAN.clear()


def test_a_task_waits_no_longer_than_it_may(root):
    arecorded(root, 1, 2)

    async def main():
        go_on = asyncio.Event()
        async with session("s", root=root, replay_wait=0.3) as s:
            other = asyncio.create_task(go_on.wait())
            asks = asyncio.create_task(atool(2))
            await auntil(lambda: waiting(s))
            got = await asks
            go_on.set()
            await other
            return got, await atool(1)

    assert asyncio.run(main()) == (2, 1)
    assert RAN == []


def test_a_task_whose_others_have_ended_waits_no_more(root):
    arecorded(root, 1, 2)

    async def main():
        go_on = asyncio.Event()

        async def other():
            await go_on.wait()

        async with session("s", root=root, replay_wait=FOR_EVER) as s:
            others = asyncio.create_task(other())
            free = asyncio.get_running_loop()
            free.call_later(0.05, go_on.set)
            got = await atool(2)
            await others
            assert waiting(s) == 0
            return got, await atool(1)

    assert asyncio.run(main()) == (2, 1)
    assert RAN == []


def test_a_look_in_the_very_pass_of_a_wave_changes_nothing(root, monkeypatch):
    """A task that has its outcome is not given up, however often it looks around."""
    monkeypatch.setattr("durable_agent._driving._LOOK_SECONDS", 0)
    arecorded(root, 1, 2, 3)

    async def main():
        async with session("s", root=root, replay_wait=FOR_EVER):
            return await asyncio.gather(*(atool(n) for n in (3, 2, 1)))

    assert asyncio.run(main()) == [3, 2, 1]
    assert RAN == []


def test_a_task_is_woken_by_a_thread_that_moves_the_path(root):
    """A loop in one thread and plain code in another share the recorded order."""
    with session("s", root=root) as s:
        tool(1)
        tool(2)
        asyncio.run(atool(3))
        crash(s)
    RAN.clear()

    with session("s", root=root, replay_wait=FOR_EVER) as s:
        order = [tool(1)]

        async def main():
            order.append(await atool(3))

        thread = threading.Thread(target=s.bind(lambda: asyncio.run(main())))
        thread.start()
        until(lambda: waiting(s) == 1)
        order.append(tool(2))
        thread.join()

    assert order == [1, 2, 3]
    assert RAN == []


def test_a_task_that_is_cancelled_while_it_waits_for_its_wave_is_passed_over(root):
    """The others of the wave have their outcomes all the same."""
    arecorded(root, 1, 2, 3)

    async def main():
        async with session("s", root=root, replay_wait=FOR_EVER) as s:
            tasks = [asyncio.create_task(atool(n)) for n in (3, 2)]
            await auntil(lambda: waiting(s) == 2)
            # Woken, and cancelled before the loop has come to them.
            first = asyncio.create_task(atool(1))
            first.add_done_callback(lambda _: tasks[1].cancel())
            got = await asyncio.gather(first, *tasks, return_exceptions=True)
            return [r if isinstance(r, int) else type(r) for r in got]

    assert asyncio.run(main()) == [1, 3, asyncio.CancelledError]
    assert RAN == []


def drive_without_a_task(loop, coroutine):
    """Run a coroutine by callbacks of the loop, as other schedulers do."""
    done = loop.create_future()

    def step():
        try:
            future = coroutine.send(None)
        except StopIteration as stop:
            done.set_result(stop.value)
        except BaseException as error:
            done.set_exception(error)
        else:
            if future is None:
                loop.call_soon(step)
            else:
                future._asyncio_future_blocking = False
                future.add_done_callback(lambda _: step())

    loop.call_soon(step)
    return done


def test_calls_work_without_a_task_around_them(root):
    """Nothing can be known of others then, so nothing is waited for."""

    async def run(*numbers):
        loop = asyncio.get_running_loop()
        async with session("s", root=root, replay_wait=FOR_EVER):
            return [await drive_without_a_task(loop, atool(n)) for n in numbers]

    assert asyncio.run(run(1, 2)) == [1, 2]
    assert asyncio.run(run(2, 1)) == [2, 1]
    assert RAN == [1, 2]


def test_only_tasks_that_have_the_session_are_waited_for(root):
    """Where a task shows its context; where it does not, it may be one of them."""
    with session("s", root=root) as s, session("t", root=root) as t:
        holds = _holder(s._core)

        def task(core):
            context = contextvars.copy_context()
            context.run(FRAME.set, None if core is None else Frame(core))
            return SimpleNamespace(get_context=lambda: context)

        assert holds(task(s._core))
        assert not holds(task(t._core))
        assert not holds(task(None))
        assert holds(SimpleNamespace())


def test_a_thread_of_somebody_else_is_not_waited_for(root):
    """A library's thread lives as long as the process, and never asks."""
    recorded(root, 1, 2, 3)
    let_go = threading.Event()
    foreign = threading.Thread(target=let_go.wait)
    foreign.start()
    try:
        with session("s", root=root, replay_wait=FOR_EVER) as s:
            bound = threading.Thread(target=s.bind(tool), args=(1,))
            bound.start()
            bound.join()
            assert tool(3) == 3
            assert tool(2) == 2
    finally:
        let_go.set()
        foreign.join()
    assert RAN == []
