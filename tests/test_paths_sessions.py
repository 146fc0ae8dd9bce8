"""What sessions say and do at their edges: opening, closing, forking, settings."""

import asyncio
import threading

import pytest

from durable_agent import (
    AmbiguousSessionError,
    CheckpointPolicy,
    Completed,
    DecorationError,
    DurableError,
    FinishedSessionWarning,
    NotApplied,
    RecordedToolError,
    SessionClosedError,
    StoreError,
    ToolOutcomeUnknownError,
    Unknown,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    current_call,
    current_session,
    inspect_session,
    list_sessions,
    register_control_flow,
    session,
    step_boundary,
)
from durable_agent._fs import Disk
from durable_agent._mark import mark, marks
from durable_agent.events import TOOL_OUTCOME_UNKNOWN
from durable_agent.jsonl import JsonlStore
from tests.disks import CountingDisk, FailingDisk, crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool(name="tool")
def tool(n=1):
    RAN.append(n)
    return f"tool {n}"


def events(root, *types, id_="s"):
    with inspect_session(id_, root=root) as looked:
        return [e for e in looked.events() if not types or e.type in types]


def in_doubt(root):
    with session("s", root=root) as s:
        tool()
        crash(s)
    cut(root / "s", 3)
    RAN.clear()


# opening -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"on_divergence": "explode"},
        {"on_unknown": "explode"},
        {"metadata": {"a": object()}},
        {"metadata": "text"},
        {"metadata": 7},
        {"replay_wait": -1},
        {"lock_timeout": "soon"},
        {"policy": "none"},
        {"store": "here"},
        {"must_exist": "maybe"},
    ],
    ids=lambda options: " ".join(f"{k}={type(v)}" for k, v in options.items()),
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_opened(
    root, options
):
    with pytest.raises(TypeError, match=next(iter(options))):
        session("s", **{"root": root, **options})
    assert not root.exists()


def test_a_former_owner_that_did_not_close_is_told(root, caplog):
    """The lock of a killed process is free, and what it wrote down is still there."""
    with session("s", root=root):
        tool()
    (root / "s" / "lock").write_text("4711@elsewhere")
    with session("s", root=root) as s:
        assert s.recovery.report.died == "4711@elsewhere"

    assert "former owner 4711@elsewhere did not close it" in caplog.text


def test_a_session_whose_opening_was_cancelled_is_closed_again(root):
    """Nobody has it, so nobody could ever give up its lock."""
    began, go_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def lock(self, path):
            lock = super().lock(path)
            began.set()
            go_on.wait()
            return lock

    async def main():
        async def use():
            async with session("s", store=JsonlStore(root, fs=SlowDisk())):
                RAN.append("in")

        task = asyncio.create_task(use())
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with session("s", root=root, lock_timeout=60):
            tool()

    asyncio.run(main())
    assert RAN == [1]
    assert [info.id for info in list_sessions(root=root)] == ["s"]


# closing -------------------------------------------------------------------------


def test_a_cancelled_closing_seals_first(tmp_path):
    """The cancellation goes up when the log is free, and nothing of it is lost."""
    began, go_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        slow = False

        def sync(self, fd, *, metadata=False):
            if self.slow:
                began.set()
                go_on.wait()
            super().sync(fd, metadata=metadata)

    disk = SlowDisk()

    async def main():
        async def use():
            async with session("s", store=JsonlStore(tmp_path, fs=disk)) as s:
                s.append("app/note", 1)
                disk.slow = True

        task = asyncio.create_task(use())
        await asyncio.to_thread(began.wait)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert events(tmp_path)[-1].type == "run/end"
    with session("s", root=tmp_path):
        tool()


def test_a_closed_session_takes_nothing_more(root):
    with session("s", root=root) as s:
        tool()
    before = s.seq

    for use in (
        lambda: s.append("app/note"),
        lambda: s.record("now", lambda: 1),
        lambda: s.resolve("any", NotApplied()),
    ):
        with pytest.raises(SessionClosedError):
            use()
    s.close()
    assert s.seq == before
    assert repr(s) == f"<Session 's' closed seq={before}>"


def test_leaving_without_having_entered_does_nothing(root):
    """As an exit stack does when entering failed."""
    s = session("s", root=root)
    s.__exit__(None, None, None)
    asyncio.run(s.__aexit__(None, None, None))

    assert not root.exists()


def test_closing_twice_by_hand_and_by_block_is_closing_once(root):
    with session("s", root=root) as s:
        tool()
        assert repr(s) == f"<Session 's' open seq={s.seq}>"
        s.close()
    assert [e.type for e in events(root)].count("run/end") == 1

    async def main():
        async with session("t", root=root) as t:
            t.append("app/note", 1)
            await t.aclose()

    asyncio.run(main())
    assert [e.type for e in events(root, id_="t")].count("run/end") == 1


@pytest.mark.parametrize("leaves", [True, False], ids=["raises", "returns"])
def test_a_step_whose_end_cannot_be_written_fails_the_session(tmp_path, leaves):
    """The body is over: its own error goes up, and the session says the rest."""
    disk = FailingDisk()

    def run():
        with session("s", store=JsonlStore(tmp_path, fs=disk)):
            tool()
            with step_boundary("plan"):
                disk.fail("write")
                if leaves:
                    raise KeyError("mine")

    with pytest.raises(KeyError if leaves else StoreError) as raised:
        run()
    if leaves:
        assert any("had failed before" in note for note in raised.value.__notes__)


def test_a_failure_that_is_no_error_of_ours_is_raised_as_it_is(root):
    """A store of somebody else's raises what it raises."""

    class Refusing:
        def __init__(self, log):
            self._log = log
            self.refuses = False

        def __getattr__(self, name):
            return getattr(self._log, name)

        def append(self, drafts):
            if self.refuses and drafts[0].type == "step/end":
                raise OSError(5, "not today")
            return self._log.append(drafts)

    s = session("s", root=root)
    with pytest.raises(OSError, match="not today") as raised:
        with s as opened:
            tool()
            opened._core.log = Refusing(opened._core.log)
            with pytest.raises(OSError, match="not today"):
                with step_boundary("plan"):
                    opened._core.log.refuses = True
            with pytest.raises(OSError, match="not today"):
                tool(2)
    assert not isinstance(raised.value, DurableError)
    assert RAN == [1]


def test_an_error_without_a_dict_of_its_own_is_passed_on(root):
    """It cannot be marked, so it cannot be named as what ended the run."""

    class Slotted(Exception):
        __slots__ = ()

        @property
        def __dict__(self):
            raise AttributeError

    @checkpointed_tool(name="fails")
    def fails():
        raise Slotted

    with pytest.raises(Slotted), session("s", root=root):
        fails()

    slot = type("Slot", (), {"call": "c", "attempt": 1})()
    error = ValueError()
    assert marks(mark(mark(error, slot), slot)) == {("c", 1)}
    assert error.__durable_calls__ == [("c", 1)]


# doubt, settled by people --------------------------------------------------------


def test_a_person_may_leave_a_call_unknown(root):
    in_doubt(root)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        s.resolve(call, Unknown())
        assert [c.id for c in s.in_doubt()] == [call.id]
    with session("s", root=root), pytest.raises(ToolOutcomeUnknownError):
        tool()
    assert RAN == []
    (note,) = events(root, "tool/resolve")
    assert note.meta["code"] == TOOL_OUTCOME_UNKNOWN


def test_what_a_run_went_on_past_is_only_annotated(root):
    """Replay keeps what the run saw; the log has what became known later."""
    in_doubt(root)

    def run():
        with session("s", root=root):
            with pytest.raises(ToolOutcomeUnknownError):
                tool()
            tool(2)

    run()
    with session("s", root=root, on_divergence="ignore") as s:
        (call,) = s.in_doubt()
        s.resolve(call, Completed("it did"))
    run()
    assert RAN == [2]
    assert len(events(root, "tool/resolve")) == 1


@pytest.mark.parametrize("interrupt", [None, KeyboardInterrupt], ids=["disk", "person"])
def test_an_unknown_outcome_that_cannot_be_made_durable_is_not_told(
    tmp_path, interrupt
):
    """Told and lost, the next run would ask again about what was decided."""
    in_doubt(tmp_path)

    class OneFailure(Disk):
        failing = False

        def sync(self, fd, *, metadata=False):
            failing, self.failing = self.failing, False
            if failing:
                raise interrupt or OSError(5, "Input/output error")
            super().sync(fd, metadata=metadata)

    disk = OneFailure()

    def run():
        with session("s", store=JsonlStore(tmp_path, fs=disk)) as s:
            s.append("app/note", 1)
            s.flush()
            disk.failing = True
            tool()

    with pytest.raises(interrupt or StoreError):
        run()
    assert RAN == []
    with session("s", root=tmp_path), pytest.raises(ToolOutcomeUnknownError):
        tool()
    assert RAN == []


# values and steps below calls ----------------------------------------------------


def test_values_and_steps_inside_a_call_belong_to_it(root):
    """An unfinished call that is made again finds them; another one does not."""
    clock = iter(range(9))

    @checkpointed_tool(name="agent", effect="composite")
    def agent(n):
        with step_boundary("plan"):
            now = current_session().record("now", lambda: next(clock))
        return tool(n), now

    with session("s", root=root) as s:
        assert agent(1) == ("tool 1", 0)
        crash(s)
    (value,) = events(root, "value")
    (call,) = events(root, "tool/call")[:1]
    assert value.meta["parent"] == call.call
    assert events(root, "step/start")[0].meta["parent"] == call.call
    cut(root / "s", value.seq + 1)
    RAN.clear()

    with session("s", root=root):
        assert agent(1) == ("tool 1", 0)
        assert agent(2) == ("tool 2", 1)
    assert RAN == [1, 2]


def test_an_outcome_that_took_the_place_of_one_was_not_missed(root):
    """What a person said stands, though the caller of the call never had the first."""

    @checkpointed_tool(name="pay")
    def pay():
        raise TimeoutError

    with session("s", root=root) as s:
        with pytest.raises(TimeoutError):
            pay()
        first = s.seq
        (call,) = s.in_doubt()
        s.resolve(call, Completed("paid"))
        (slot,) = s._core.history.slots
        s._core.not_handed(slot, first)
        assert slot.outcome.handed
    with session("s", root=root):
        assert pay() == "paid"


def test_steps_inside_a_step_that_paused_are_entered_again(root):
    class Pause(Exception):
        pass

    register_control_flow(Pause)
    given = []

    def run():
        with step_boundary("outer"):
            with step_boundary("inner"):
                tool()
            if not given:
                raise Pause
            return "done"

    with session("s", root=root):
        with pytest.raises(Pause):
            run()
        given.append(1)
        assert run() == "done"

    assert RAN == [1]
    starts = [(e.meta["name"], e.meta["n"]) for e in events(root, "step/start")]
    assert starts == [("outer", 1), ("inner", 1)]


# forks ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [510, 511, 512, 1100])
def test_a_fork_of_any_length_has_every_event(root, count):
    with session("s", root=root) as s:
        for n in range(count):
            s.append("app/note", n)
        assert s.fork("t") == "t"
        length = s.seq + 1
    copied = events(root, id_="t")

    assert [e.seq for e in copied] == list(range(length))
    assert [e.data for e in copied if e.type == "app/note"] == list(range(count))


# flushing, policies, counts ------------------------------------------------------


def test_without_barriers_only_a_flush_of_ones_own_syncs(tmp_path):
    disk = CountingDisk()
    store = JsonlStore(tmp_path, fs=disk)

    async def main():
        async with session("s", store=store, policy=CheckpointPolicy.none()) as s:
            await s.aflush()
            s.flush()
            assert disk.count["sync"] == 0
            tool()
            before = disk.count["sync"]
            tool(2)
            assert disk.count["sync"] == before
            await s.aflush()
            assert s._core.log.durable == s.seq
            tool(3)
            s.flush()
            assert s._core.log.durable == s.seq
            return s.stats

    assert asyncio.run(main()) == {"ran_tool": 3}
    assert RAN == [1, 2, 3]


def test_what_the_runs_of_a_session_were_is_counted(root):
    for runs in (1, 2):
        with session("s", root=root):
            for n in range(runs):
                tool(n)
    with inspect_session("s", root=root) as looked:
        assert looked.runs == 2
        assert looked.in_doubt() == []
        assert looked.messages() == []


# where code is -------------------------------------------------------------------


def test_outside_of_any_session_there_is_no_call_and_no_session(root):
    assert current_session() is None
    assert current_call() is None
    with session("s", root=root):
        assert current_call() is None


def test_without_the_fall_back_a_bare_thread_is_in_no_session(root):
    configure(session_fallback=False)
    got = []
    with session("s", root=root):
        _in_thread(lambda: got.append(current_session()))

    assert got == [None]


def test_a_bound_function_is_in_its_session_and_in_the_call_around(root):
    """Elsewhere a bare thread would be in no session, or in the wrong one."""
    got = []

    @checkpointed_tool(name="outer")
    def outer():
        thread = threading.Thread(target=s.bind(lambda: got.append(tool())))
        thread.start()
        thread.join()

    with session("s", root=root) as s, session("t", root=root):
        elsewhere = s.bind(lambda: got.append(tool(2)))
        with pytest.raises(AmbiguousSessionError):
            _in_thread(tool)
        _in_thread(elsewhere)
    with session("s", root=root, on_divergence="ignore") as s:
        outer()

    assert got == ["tool 2", "tool 1"]
    calls = {e.data["args"].get("n"): e.meta for e in events(root, "tool/call")}
    assert "parent" not in calls[2]
    assert calls[1]["parent"]


def _in_thread(fn):
    raised = []

    def run():
        try:
            fn()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_a_step_needs_one_name():
    for options in (("",), ("plan", "again")):
        with pytest.raises(DecorationError):
            step_boundary(*options[:1], **({"name": options[1]} if options[1:] else {}))
    with pytest.raises(DecorationError):
        step_boundary(name=7)


def test_a_recorded_error_of_an_unknown_type_says_which(root):
    error = RecordedToolError("sdk.errors:Busy", "try later")

    assert str(error) == "sdk.errors:Busy: try later"
    assert str(RecordedToolError("sdk.errors:Busy")) == "sdk.errors:Busy"


def test_a_dispatcher_without_arguments_answers_by_name(root):
    """What the model gave may be absent or no mapping at all."""
    calls = [{"id": "t1", "function": {"name": "look", "arguments": "{}"}}]

    @checkpointed_llm(name="ask")
    def ask(messages):
        return {"role": "assistant", "tool_calls": calls}

    @checkpointed_tool(name=lambda bound: bound["tool"], arguments="arguments")
    def dispatch(tool, arguments=None):
        RAN.append(tool)
        return "seen"

    with session("s", root=root) as s:
        ask([])
        dispatch("look")
        (intent,) = [e for e in s.events() if e.type == "tool/call"]
    assert (intent.meta["name"], intent.meta["tcid"]) == ("look", "t1")


def test_finished_work_says_so_when_it_is_opened_again(root):
    with session("s", root=root):
        tool()
    with pytest.warns(FinishedSessionWarning):
        with session("s", root=root):
            pass
