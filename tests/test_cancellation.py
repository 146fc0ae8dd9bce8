"""Cancelled before the body, during it, and after: what the log says of each."""

import asyncio
import os
import signal
import threading

import pytest

from durable_agent import (
    ABORTED_BEFORE_DISPATCH,
    TOOL_OUTCOME_UNKNOWN,
    ToolAbortedError,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    register_control_flow,
    session,
    step_boundary,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import Disk, crash

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


class HeldDisk(Disk):
    """Syncs stop while they are held: a checkpoint is pending for as long."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.began = threading.Event()
        #: Called in the thread of a sync, once.
        self.meanwhile = None

    def hold(self):
        self.go_on.clear()
        self.began.clear()

    def sync(self, fd, *, metadata=False):
        self.began.set()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.go_on.wait(20)
        super().sync(fd, metadata=metadata)

    async def reached(self):
        while not self.began.is_set():
            await asyncio.sleep(0)


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def store(disk, tmp_path):
    return JsonlStore(tmp_path, fs=disk)


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


@checkpointed_tool
async def atool(n):
    RAN.append(n)
    return n


@checkpointed_tool
async def hangs(n):
    RAN.append(n)
    await asyncio.Event().wait()


@checkpointed_llm
async def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": "yes"}


def codes(tmp_path):
    """Return (type, status or code) of the outcomes in the log."""
    with inspect_session("s", root=tmp_path) as looked:
        return [
            event.meta.get("code") or event.meta["status"]
            for event in looked.events()
            if event.type in {"tool/result", "llm/response"}
        ]


def cancelled_while_pending(store, disk, make, *, cancel):
    """Cancel a call whose checkpoint is pending; return what its task ended with."""

    async def main():
        async with session("s", store=store) as s:
            await atool(0)
            disk.hold()
            task = asyncio.create_task(make())
            await disk.reached()
            cancel(s, task)
            await asyncio.sleep(0)
            disk.go_on.set()
            try:
                return await task
            except BaseException as error:
                return error

    return asyncio.run(main())


@pytest.mark.parametrize(
    "make", [lambda: atool(1), lambda: ask([])], ids=["tool", "model"]
)
def test_a_task_cancelled_before_the_body_is_recorded_as_aborted(
    store, disk, tmp_path, make
):
    result = cancelled_while_pending(
        store, disk, make, cancel=lambda s, task: task.cancel("enough")
    )

    assert isinstance(result, asyncio.CancelledError)
    assert result.args == ("enough",)
    assert RAN == [0]
    assert codes(tmp_path) == ["value", ABORTED_BEFORE_DISPATCH]


def test_session_cancel_aborts_what_is_pending_and_refuses_what_is_new(
    store, disk, tmp_path
):
    result = cancelled_while_pending(
        store, disk, lambda: atool(1), cancel=lambda s, task: s.cancel("budget spent")
    )

    assert isinstance(result, ToolAbortedError)
    assert any("budget spent" in note for note in result.__notes__)
    assert RAN == [0]
    assert codes(tmp_path) == ["value", ABORTED_BEFORE_DISPATCH]


def test_session_cancel_refuses_new_calls(tmp_path):
    with session("s", root=tmp_path) as s:
        tool(0)
        s.cancel("stop")
        with pytest.raises(ToolAbortedError):
            tool(1)

    assert RAN == [0]
    assert codes(tmp_path) == ["value"]


def test_session_cancel_reaches_a_thread_whose_checkpoint_is_pending(
    store, disk, tmp_path
):
    with session("s", store=store) as s:
        tool(0)
        disk.meanwhile = lambda: s.cancel("stop")
        with pytest.raises(ToolAbortedError):
            tool(1)

    assert RAN == [0]
    assert codes(tmp_path) == ["value", ABORTED_BEFORE_DISPATCH]


def test_ctrl_c_before_the_body_is_recorded_as_aborted(store, disk, tmp_path):
    """A real signal, in the middle of the sync."""

    def run():
        with session("s", store=store):
            tool(0)
            disk.meanwhile = lambda: os.kill(os.getpid(), signal.SIGINT)
            tool(1)

    with pytest.raises(KeyboardInterrupt):
        run()

    assert RAN == [0]
    assert codes(tmp_path) == ["value", ABORTED_BEFORE_DISPATCH]


def test_an_aborted_call_whose_run_ended_there_is_made_by_the_next(
    store, disk, tmp_path
):
    """The body never ran, so nothing can be doubled."""

    def run():
        with session("s", store=store):
            tool(0)
            disk.meanwhile = lambda: os.kill(os.getpid(), signal.SIGINT)
            tool(1)

    with pytest.raises(KeyboardInterrupt):
        run()
    with session("s", store=store):
        assert (tool(0), tool(1)) == (0, 1)

    assert RAN == [0, 1]


def test_a_task_cancelled_in_the_body_is_in_doubt(tmp_path):
    async def main():
        async with session("s", root=tmp_path):
            task = asyncio.create_task(hangs(1))
            while not RAN:
                await asyncio.sleep(0)
            task.cancel("enough")
            await task

    with pytest.raises(asyncio.CancelledError) as raised:
        asyncio.run(main())

    assert raised.value.args == ("enough",)
    assert codes(tmp_path) == [TOOL_OUTCOME_UNKNOWN]


def test_the_cancellation_that_goes_up_is_the_one_that_the_body_saw(tmp_path):
    """Frameworks compare it with the one they sent."""
    seen = []

    @checkpointed_tool
    async def body():
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    async def main():
        async with session("s", root=tmp_path):
            task = asyncio.current_task()
            try:
                await body()
            except asyncio.CancelledError as error:
                seen.append(error)
                task.uncancel()

    asyncio.run(main())

    assert len(seen) == 2
    assert seen[0] is seen[1]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt("k"), SystemExit(3), GeneratorExit("g")]
)
def test_what_is_no_exception_passes_unchanged_and_is_in_doubt(tmp_path, error):
    @checkpointed_tool
    def raises():
        RAN.append(1)
        raise error

    def run():
        with session("s", root=tmp_path):
            raises()

    with pytest.raises(type(error)) as raised:
        run()

    assert raised.value is error
    assert codes(tmp_path) == [TOOL_OUTCOME_UNKNOWN]
    # Not a final error and no success: asked for again, nobody knows.
    with session("s", root=tmp_path), pytest.raises(ToolOutcomeUnknownError):
        raises()
    assert RAN == [1]


def test_a_cancelled_read_only_call_is_made_again(tmp_path):
    attempts = []

    @checkpointed_tool(effect="read_only")
    async def look():
        attempts.append(1)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return "seen"

    async def main():
        async with session("s", root=tmp_path):
            async with asyncio.timeout(0.05):
                return await look()

    with pytest.raises(TimeoutError):
        asyncio.run(main())

    assert asyncio.run(main()) == "seen"
    assert len(attempts) == 2


def test_a_time_out_that_the_run_went_on_from_happens_again(tmp_path):
    """The caller's path was taken: the same is taken again, and nothing runs."""

    async def main():
        async with session("s", root=tmp_path):
            try:
                async with asyncio.timeout(0.5):
                    await hangs(1)
            except TimeoutError:
                return await atool("fall back"), RAN.count(1)
            return "no time-out"

    first = asyncio.run(main())
    RAN.clear()

    with pytest.warns(match="ended normally"):
        again = asyncio.run(main())

    assert first == ("fall back", 1)
    assert again == ("fall back", 0)
    assert RAN == []


def test_a_cancelled_call_that_nobody_cancels_again_times_out(tmp_path):
    """Waiting for a cancellation is bounded by ``replay_wait``."""

    async def main(limit):
        async with session("s", root=tmp_path, replay_wait=0.05):
            try:
                async with asyncio.timeout(limit):
                    await hangs(1)
            except TimeoutError:
                return await atool("after")
            return "no time-out"

    asyncio.run(main(0.05))
    RAN.clear()

    with pytest.warns(match="ended normally"):
        assert asyncio.run(main(None)) == "after"
    assert RAN == []


def test_a_result_that_is_there_already_is_not_lost_to_a_cancellation(
    disk, store, tmp_path
):
    """The write that has begun is finished before the cancellation goes up."""

    @checkpointed_tool(durable_outcome=True)
    async def pays():
        RAN.append("paid")
        disk.hold()
        return 5

    async def main():
        async with session("s", store=store):
            task = asyncio.create_task(pays())
            while not RAN:
                await asyncio.sleep(0)
            await disk.reached()
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            disk.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())

    assert codes(tmp_path) == ["value"]


def test_a_cancelled_call_blocks_nobody_and_seq_has_no_gap(store, disk, tmp_path):
    """Cancelled in the queue of a barrier; the others go on."""

    async def main():
        async with session("s", store=store):
            await atool(0)
            disk.hold()
            tasks = [asyncio.create_task(atool(n)) for n in range(1, 9)]
            await disk.reached()
            for _ in range(5):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.sleep(0)
            disk.go_on.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())

    assert results[1::2] == [2, 4, 6, 8]
    assert all(isinstance(r, asyncio.CancelledError) for r in results[::2])
    assert sorted(RAN) == [0, 2, 4, 6, 8]
    with inspect_session("s", root=tmp_path) as looked:
        events = list(looked.events())
        assert [event.seq for event in events] == list(range(len(events)))
        begun = {event.call for event in events if event.type == "tool/call"}
        ended = {event.call for event in events if event.type == "tool/result"}
        assert begun == ended


class Pause(Exception):
    """As a framework's interrupt: an ordinary exception that is no outcome."""


register_control_flow(Pause)


def test_a_control_flow_exception_passes_and_the_tool_runs_again(tmp_path):
    answers = []
    paused = Pause("which one?")

    @checkpointed_tool
    def asks():
        tool("before")
        if not answers:
            raise paused
        return answers[0]

    def run():
        with session("s", root=tmp_path):
            return asks()

    with pytest.raises(Pause) as raised:
        run()
    assert raised.value is paused
    assert codes(tmp_path) == ["value", "suspended"]
    answers.append("this one")

    assert run() == "this one"
    assert RAN == ["before"]


@pytest.mark.filterwarnings("ignore::durable_agent.errors.FinishedSessionWarning")
@pytest.mark.parametrize("killed", [True, False])
def test_what_is_done_after_a_pause_is_not_done_again_by_a_replay(tmp_path, killed):
    """Once approved, the tool would not pause a second time: it would pay."""
    approved = []

    @checkpointed_tool
    def pay(amount):
        if not approved:
            raise Pause("may I?")
        RAN.append(amount)
        return f"paid {amount}"

    def run():
        with session("s", root=tmp_path) as s:
            try:
                pay(5)
            except Pause as pause:
                approved.append(str(pause))
            paid = pay(5)
            if killed:
                crash(s)
            return paid

    assert [run() for _ in range(3)] == ["paid 5"] * 3
    assert RAN == [5]
    assert approved == ["may I?"] * 3


def test_code_before_a_pause_runs_once_however_often_it_resumes(tmp_path):
    """A node pays, then pauses in a loop: one payment, also in the same process."""
    given = []

    @step_boundary
    def node():
        paid = tool("pay")
        return paid, [ask_person(n) for n in range(5)]

    @checkpointed_tool
    def ask_person(n):
        if len(given) <= n:
            raise Pause(n)
        return given[n]

    def resume_in_process():
        with session("s", root=tmp_path):
            for n in range(3):
                try:
                    node()
                except Pause:
                    given.append(n)
            return node()

    def resume_across():
        with session("s", root=tmp_path):
            return node()

    with pytest.raises(Pause):
        resume_in_process()
    for n in range(3, 5):
        given.append(n)
        if n == 3:
            with pytest.raises(Pause):
                resume_across()

    assert resume_across() == ("pay", [0, 1, 2, 3, 4])
    assert RAN == ["pay"]


def test_asyncio_errors_that_are_exceptions_are_ordinary(tmp_path):
    @checkpointed_tool
    async def raises():
        RAN.append(1)
        raise asyncio.InvalidStateError("odd")

    async def main():
        async with session("s", root=tmp_path):
            try:
                await raises()
            except asyncio.InvalidStateError as error:
                return str(error)

    assert asyncio.run(main()) == "odd"
    with pytest.warns(match="ended normally"):
        assert asyncio.run(main()) == "odd"
    assert RAN == [1]


def test_stop_iteration_from_a_tool_is_an_ordinary_error(tmp_path):
    @checkpointed_tool
    def raises():
        RAN.append(1)
        raise StopIteration(7)

    def run():
        with session("s", root=tmp_path), pytest.raises(StopIteration) as raised:
            raises()
        return raised.value.value

    assert run() == 7
    with pytest.warns(match="ended normally"):
        assert run() == 7
    assert RAN == [1]
