"""Processes and threads: one owner at a time, and a child is not its parent."""

# ruff: noqa: PT031 - the warning comes from opening

import asyncio
import concurrent.futures
import contextvars
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from durable_agent import (
    AmbiguousSessionError,
    FinishedSessionWarning,
    SessionBusyError,
    SessionForkedError,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.conftest import clean_environment
from tests.disks import crash

AGENTS = Path(__file__).parent / "agents"
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


def events(root, type_, id_="s"):
    with inspect_session(id_, root=root) as looked:
        return [event for event in looked.events() if event.type == type_]


def test_of_two_processes_that_resume_one_session_one_is_refused(tmp_path):
    """200 times, at the same moment: effects at most once."""
    done = subprocess.run(
        [sys.executable, str(AGENTS / "race.py"), str(tmp_path), "200"],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    cases = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(cases) == 200
    for case in cases:
        assert case["effects"] == ["charge", "notify"], case
        assert sorted(case["ended"]) in (["answer", "answer"], ["answer", "busy"]), case
        assert case["answers"] in (["4"], ["4", "4"]), case
        for refusal in case["refusals"]:
            assert "nothing was read or written" in refusal, case
    assert Counter("busy" in case["ended"] for case in cases)[True] >= 100


def in_child(fn):
    """Run in a forked child; return what it returned."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writer, json.dumps(fn()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = json.loads(pipe.read() or "null")
    assert os.waitpid(pid, 0)[1] == 0
    return said


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_own_the_session(root):
    """It neither writes nor unlocks; the parent goes on undisturbed."""

    def child():
        said = []
        for attempt in (
            lambda: tool(2),
            lambda: s.append("app/x"),
            lambda: s.record("x", int),
            s.flush,
            s.close,
        ):
            try:
                attempt()
            except SessionForkedError as error:
                said.append(str(error))
            except BaseException as error:
                said.append(repr(error))
            else:
                said.append("went through")
        try:
            with session("s", root=root):
                said.append("opened")
        except SessionBusyError:
            said.append("busy")
        return said

    with session("s", root=root) as s:
        tool(1)
        before = [e.seq for e in s.events()]
        said = in_child(child)
        assert [e.seq for e in s.events()] == before
        with pytest.raises(SessionBusyError):
            session("s", root=root).__enter__()
        tool(3)

    assert all("child" in text for text in said[:3]), said
    assert said[3] == "went through" or "child" in said[3], said
    assert said[-1] == "busy"
    assert RAN == [1, 3]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_leaving_a_session_in_a_forked_child_leaves_the_log_alone(root):
    """As when ``os.fork`` returns twice inside the block."""

    def child():
        scope.__exit__(None, None, None)
        return sorted(path.stat().st_size for path in root.rglob("*.jsonl"))

    scope = session("s", root=root)
    scope.__enter__()
    tool(1)
    before = sorted(path.stat().st_size for path in root.rglob("*.jsonl"))
    assert in_child(child) == before
    tool(2)
    scope.__exit__(None, None, None)

    assert len(events(root, "run/end")) == 1
    assert len(events(root, "tool/result")) == 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_opens_a_session_of_its_own(root):
    def child():
        with session("child", root=root):
            return tool(5)

    with session("s", root=root):
        tool(1)
        assert in_child(child) == 5

    assert len(events(root, "tool/result", "child")) == 1


def spawned(root):
    with session("spawned", root=root):
        return tool(7)


def test_a_spawned_process_opens_a_session_of_its_own(root):
    context = multiprocessing.get_context("spawn")
    with (
        session("s", root=root),
        concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool,
    ):
        assert pool.submit(spawned, root).result() == 7
        tool(1)

    assert len(events(root, "tool/result", "spawned")) == 1


def in_thread(fn):
    found = []

    def run():
        try:
            found.append(fn())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_bare_thread_falls_back_to_the_only_session(root):
    """Threads lose contextvars; its calls are marked as detached."""
    with session("s", root=root):
        assert in_thread(lambda: tool(1)) == 1

    (call,) = events(root, "tool/call")
    assert call.meta["detached"] is True


def test_a_bare_thread_is_never_given_one_of_two_sessions(root):
    with session("s", root=root):
        with session("t", root=root):
            assert isinstance(in_thread(lambda: tool(1)), AmbiguousSessionError)
        # Once two were open together it would be a guess for ever.
        assert isinstance(in_thread(lambda: tool(1)), AmbiguousSessionError)
    assert RAN == []


def test_bind_carries_the_session_into_a_bare_thread(root):
    with session("s", root=root) as s, session("t", root=root):
        assert in_thread(s.bind(lambda: tool(1))) == 1

    assert [e.meta.get("detached") for e in events(root, "tool/call")] == [None]


def test_bind_carries_the_session_into_an_executor(root):
    pool = concurrent.futures.ThreadPoolExecutor(4)
    with session("s", root=root) as s, session("t", root=root), pool as executor:
        assert list(executor.map(s.bind(tool), range(8))) == list(range(8))

    assert len(events(root, "tool/result")) == 8
    assert {e.meta.get("detached") for e in events(root, "tool/call")} == {None}


def test_bind_carries_the_call_around_it(root):
    """What a tool starts in a thread is nested in it, and costs no barrier."""

    @checkpointed_tool
    def starts():
        return in_thread(s.bind(lambda: tool(1)))

    with session("s", root=root) as s:
        assert starts() == 1

    around, nested = events(root, "tool/call")
    assert nested.meta["parent"] == around.call
    assert nested.meta["nested"] is True


def test_bind_works_with_run_in_executor_and_coroutines(root):
    async def coroutine(n):
        return tool(n)

    async def main():
        loop = asyncio.get_running_loop()
        async with session("s", root=root) as s, session("t", root=root):
            one = await loop.run_in_executor(None, s.bind(tool), 1)
            two = await s.bind(coroutine)(2)
            three = await asyncio.to_thread(s.bind(tool), 3)
            return one, two, three

    assert asyncio.run(main()) == (1, 2, 3)
    assert len(events(root, "tool/result")) == 3


def test_calls_from_threads_replay_in_any_order(root):
    """Each finds its own record; effects happen once."""

    def run(order):
        with session("s", root=root) as s:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                results = dict(zip(order, pool.map(s.bind(tool), order), strict=True))
            crash(s)
        return results

    first = run([1, 2, 3, 4])
    again = run([4, 2, 1, 3])

    assert again == first
    assert sorted(RAN) == [1, 2, 3, 4]


def test_twenty_calls_at_once_on_one_object_are_twenty_top_level_calls(root):
    """Being inside a call follows the call chain, never a flag on the object."""

    class Box:
        @checkpointed_tool
        def take(self, n):
            gate.wait(10)
            return n

        @checkpointed_tool
        async def atake(self, n):
            await asyncio.sleep(0)
            return n

    box = Box()
    gate = threading.Barrier(10)

    async def main():
        async with session("s", root=root):
            loop = asyncio.get_running_loop()
            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                threads = [
                    loop.run_in_executor(
                        pool, contextvars.copy_context().run, box.take, n
                    )
                    for n in range(10)
                ]
                tasks = [box.atake(n) for n in range(10)]
                return await asyncio.gather(*threads, *tasks)

    assert asyncio.run(main()) == [*range(10), *range(10)]
    calls = events(root, "tool/call")
    assert len(calls) == 20
    assert {(c.meta.get("parent"), c.meta.get("nested")) for c in calls} == {
        (None, None)
    }


def test_a_late_completion_keeps_the_lock_until_it_is_recorded(root):
    """The run has stopped, a thread of it goes on: nobody resumes meanwhile."""
    began, go_on = threading.Event(), threading.Event()

    @checkpointed_tool(name="slow")
    def slow():
        began.set()
        go_on.wait(20)
        RAN.append("slow")
        return "late"

    with session("s", root=root) as s:
        thread = threading.Thread(target=s.bind(slow))
        thread.start()
        began.wait(20)

    with pytest.raises(SessionBusyError) as raised:
        session("s", root=root).__enter__()
    assert raised.value.pid == os.getpid()
    go_on.set()
    thread.join()

    with pytest.warns(FinishedSessionWarning), session("s", root=root) as again:
        assert slow() == "late"
        assert again.recovery.in_doubt == ()
    assert RAN == ["slow"]


def test_the_same_session_cannot_be_opened_twice_in_a_process(root):
    with session("s", root=root):
        tool(1)
        with pytest.raises(SessionBusyError) as raised:
            session("s", root=root).__enter__()
        assert raised.value.pid == os.getpid()
        tool(2)
    assert RAN == [1, 2]


HOLDER = """
import sys
from durable_agent import session
with session("s", root=sys.argv[1]) as s:
    s.append("app/mark")
    print("open", flush=True)
    sys.stdin.read()
"""


def test_waiting_for_the_lock_ends_when_it_is_free(root):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    )
    assert holder.stdout.readline() == b"open\n"
    with pytest.raises(SessionBusyError, match=f"process {holder.pid}"):
        session("s", root=root, lock_timeout=0.05).__enter__()
    threading.Timer(0.05, holder.stdin.close).start()

    with pytest.warns(FinishedSessionWarning):
        opened = session("s", root=root, lock_timeout=30)
        recovery = opened.__enter__().recovery
    opened.__exit__(None, None, None)

    assert recovery.resumed
    assert holder.wait(20) == 0
    holder.stdout.close()


def test_a_task_that_outlives_the_session_is_told_so(root):
    async def main():
        gate = asyncio.Event()

        async def late():
            await gate.wait()
            return tool(1)

        async with session("s", root=root):
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(task, return_exceptions=True)

    (error,) = asyncio.run(main())
    assert type(error).__name__ == "SessionClosedError"
    assert RAN == []


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_an_awaitable_that_nobody_awaits_does_not_keep_the_session_open(root):
    """It is in doubt, and the log is sealed and free when it is gone."""

    @checkpointed_tool(name="plain")
    def plain():
        return later()

    async def later():
        return RAN.append(1)

    async def main():
        async with session("s", root=root):
            made = plain()
        del made
        gc.collect()

    asyncio.run(main())

    assert RAN == []
    (outcome,) = events(root, "tool/result")
    assert outcome.meta["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert len(events(root, "run/end")) == 1
    with pytest.warns(FinishedSessionWarning):
        session("s", root=root).__enter__().close()
