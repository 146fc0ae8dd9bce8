"""A disk that fails: no body without its durable intent, and what failed stays so."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from durable_agent import (
    CheckpointError,
    OutcomeNotRecordedError,
    StoreError,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    session,
    step_boundary,
)
from durable_agent.jsonl import JsonlStore
from tests.disks import FailingDisk

RAN = []
#: The first and a later failure of a run.
KEPT = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    KEPT.clear()


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


@checkpointed_tool
async def atool(n):
    RAN.append(n)
    return n


@checkpointed_llm
def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": "yes"}


@checkpointed_llm
def stream(messages):
    RAN.append("stream")
    yield from range(100)


@pytest.fixture
def disk():
    return FailingDisk()


@pytest.fixture
def store(disk, tmp_path):
    return JsonlStore(tmp_path, fs=disk)


faults = pytest.mark.parametrize(
    ("what", "number"),
    [
        ("write", errno.EIO),
        ("write", errno.ENOSPC),
        ("short", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync", errno.ENOSPC),
    ],
)


def run_sync(store, disk, what, number):
    with session("s", store=store):
        tool(1)
        disk.fail(what, number)
        try:
            tool(2)
        except CheckpointError as error:
            first = error
        disk.mend()
        # A framework has swallowed the first one.
        with pytest.raises(CheckpointError) as second:
            tool(3)
        with pytest.raises(CheckpointError):
            ask([{"role": "user", "content": "a"}])
        KEPT.extend([first, second.value])


def run_async(store, disk, what, number):
    async def main():
        async with session("s", store=store):
            await atool(1)
            disk.fail(what, number)
            try:
                await atool(2)
            except CheckpointError as error:
                first = error
            disk.mend()
            with pytest.raises(CheckpointError) as second:
                await atool(3)
            KEPT.extend([first, second.value])

    return asyncio.run(main())


@pytest.mark.parametrize("run", [run_sync, run_async])
@faults
def test_body_does_not_run_when_the_checkpoint_fails(store, disk, run, what, number):
    """And closing says so again, because frameworks swallow what tools raise."""
    with pytest.raises(CheckpointError) as closing:
        run(store, disk, what, number)

    message = str(closing.value)
    assert RAN == [1]
    assert disk.failures == 1
    assert os.strerror(number) in message
    assert "did not run" in message
    assert closing.value.file == str(next(Path(store.root, "s").glob("*.jsonl")))
    assert closing.value.file in message


@pytest.mark.parametrize("run", [run_sync, run_async])
@faults
def test_later_calls_raise_the_first_failure_again(store, disk, run, what, number):
    with pytest.raises(CheckpointError) as closing:
        run(store, disk, what, number)

    # An error of its own each time, which points at the first one.
    first, second = KEPT
    assert second is not first
    assert second.__cause__ is first
    assert str(second) == str(first) == str(closing.value)
    assert first.__cause__ is not None


@faults
def test_opening_again_tells_the_truth(store, disk, what, number):
    """A failed barrier does not prove the record absent: it is in doubt, or not there.

    A failed write leaves nothing, so the call is simply made; after a failed sync the
    intent may be in the file, so nobody knows, though here the body never ran.
    """
    with pytest.raises(CheckpointError):
        run_sync(store, disk, what, number)
    disk.mend()
    RAN.clear()

    with session("s", store=store) as s:
        assert tool(1) == 1
        if what == "sync":
            with pytest.raises(ToolOutcomeUnknownError):
                tool(2)
        else:
            assert tool(2) == 2
        assert tool(3) == 3
        seqs = [event.seq for event in s.events()]

    assert RAN == ([3] if what == "sync" else [2, 3])
    assert seqs == list(range(len(seqs)))


def test_the_failure_stays_when_the_caller_raises_something_else(store, disk):
    def run():
        with session("s", store=store):
            disk.fail("write")
            try:
                tool(1)
            except CheckpointError:
                raise KeyError("mine") from None

    with pytest.raises(KeyError) as raised:
        run()

    assert any("did not run" in note for note in raised.value.__notes__)


def test_a_failed_checkpoint_that_leaves_the_session_is_raised_once(store, disk):
    """As it is, not wrapped in itself."""

    def run():
        with session("s", store=store):
            disk.fail("sync")
            tool(1)

    with pytest.raises(CheckpointError) as raised:
        run()

    assert not isinstance(raised.value.__cause__, CheckpointError)
    assert isinstance(raised.value.__cause__, StoreError)


@pytest.mark.parametrize(("what", "number"), [("write", 5), ("short", 28)])
def test_an_outcome_that_cannot_be_written_is_attached_to_the_error(
    store, disk, what, number
):
    @checkpointed_tool
    def pays():
        disk.fail(what, number)
        return {"paid": 5}

    def run():
        with session("s", store=store):
            with pytest.raises(OutcomeNotRecordedError) as raised:
                pays()
            assert raised.value.value == {"paid": 5}
            assert "did run" in str(raised.value)
            assert os.strerror(number) in str(raised.value)
            disk.mend()
            tool(1)

    with pytest.raises(OutcomeNotRecordedError):
        run()
    with session("s", store=store), pytest.raises(ToolOutcomeUnknownError):
        pays()
    assert RAN == []


def test_an_error_that_cannot_be_written_is_attached_too(store, disk):
    boom = ValueError("boom")

    @checkpointed_tool
    def fails():
        disk.fail("write")
        raise boom

    def run():
        with session("s", store=store):
            fails()

    with pytest.raises(OutcomeNotRecordedError) as raised:
        run()

    assert raised.value.error is boom


def test_a_durable_outcome_that_cannot_be_synced_is_not_handed_out(store, disk):
    @checkpointed_tool(durable_outcome=True)
    def pays():
        disk.fail("sync")
        return 5

    def run():
        with session("s", store=store):
            pays()

    with pytest.raises(OutcomeNotRecordedError) as raised:
        run()

    assert raised.value.value == 5


def test_an_async_outcome_that_cannot_be_written_is_attached(store, disk):
    @checkpointed_tool
    async def pays():
        disk.fail("write")
        return 5

    async def main():
        async with session("s", store=store):
            await pays()

    with pytest.raises(OutcomeNotRecordedError) as raised:
        asyncio.run(main())

    assert raised.value.value == 5


def test_a_model_request_is_not_sent_when_its_checkpoint_fails(store, disk):
    def run():
        with session("s", store=store):
            disk.fail("sync")
            ask([{"role": "user", "content": "a"}])

    with pytest.raises(CheckpointError):
        run()
    assert RAN == []


def test_a_stream_is_not_made_when_its_checkpoint_fails(store, disk):
    def run():
        with session("s", store=store):
            disk.fail("sync")
            next(stream([]))

    with pytest.raises(CheckpointError):
        run()
    assert RAN == []


def test_a_stream_that_cannot_be_recorded_stops_with_what_it_gave(store, disk):
    def run():
        with session("s", store=store):
            for n in stream([]):
                if n == 3:
                    disk.fail("write")

    with pytest.raises(OutcomeNotRecordedError) as raised:
        run()

    assert raised.value.value[:4] == [0, 1, 2, 3]


def test_a_step_does_not_begin_when_what_came_before_is_not_durable(store, disk):
    def run():
        with session("s", store=store):
            tool(1)
            disk.fail("sync")
            with step_boundary("next"):
                RAN.append("in step")

    with pytest.raises(CheckpointError, match="did not begin"):
        run()
    assert RAN == [1]


def test_a_nested_call_is_not_made_when_its_intent_cannot_be_written(store, disk):
    """It has no barrier of its own, and an intent all the same."""

    @checkpointed_tool
    def outer():
        disk.fail("write")
        return tool(1)

    def run():
        with session("s", store=store):
            outer()

    with pytest.raises(CheckpointError):
        run()
    assert RAN == []


def test_a_failed_seal_is_raised(store, disk):
    def run():
        with session("s", store=store):
            tool(1)
            disk.fail("sync")

    with pytest.raises(StoreError):
        run()
    disk.mend()

    with session("s", store=store) as s:
        assert not s.recovery.finished
        assert tool(1) == 1
    assert RAN == [1]


def test_a_store_that_cannot_be_opened_for_writing_says_why(store, disk):
    """The first segment is made with the first event; its failure is a checkpoint's."""

    def run():
        with session("s", store=store):
            tool(1)

    disk.fail("write", errno.EROFS)
    with pytest.raises(CheckpointError, match="Read-only file system"):
        run()
    assert RAN == []


def test_every_task_of_a_failed_barrier_is_told_and_no_body_runs(store, disk):
    async def main():
        async with session("s", store=store):
            await atool(0)
            disk.fail("sync")
            results = await asyncio.gather(
                *(atool(n) for n in range(1, 9)), return_exceptions=True
            )
            assert {type(result) for result in results} == {CheckpointError}

    with pytest.raises(CheckpointError):
        asyncio.run(main())
    assert RAN == [0]


def test_a_recorded_value_that_cannot_be_written_is_an_error(store, disk):
    def run():
        with session("s", store=store) as s:
            tool(1)
            disk.fail("write")
            try:
                s.record("clock", lambda: 1)
            except OSError:
                disk.mend()
            tool(2)

    with pytest.raises(OSError, match="Input/output error"):
        run()
    assert RAN == [1]


def test_an_application_event_that_cannot_be_written_is_an_error(store, disk):
    def run():
        with session("s", store=store) as s:
            tool(1)
            disk.fail("write")
            try:
                s.append("app/mark")
            except OSError:
                disk.mend()
            tool(2)

    with pytest.raises(OSError, match="Input/output error"):
        run()
    assert RAN == [1]
