"""Which session a call belongs to, and the forms in which sessions are opened."""

# ruff: noqa: PT031 - the warning comes from opening

import asyncio
import contextvars
import logging
import os
import threading
import warnings

import pytest

from durable_agent import (
    AmbiguousSessionError,
    FinishedSessionWarning,
    NoSessionError,
    NoSessionWarning,
    SessionClosedError,
    SessionExistsError,
    StoreError,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    conversation,
    current_session,
    inspect_session,
    list_sessions,
    open_conversation,
    open_session,
    session,
    step_boundary,
)
from tests.disks import cut

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


@checkpointed_llm(name="ask")
def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": f"answer {len(messages)}"}


def calls(root, id_="s"):
    with inspect_session(id_, root=root) as looked:
        return [e.data["args"]["n"] for e in looked.events() if e.type == "tool/call"]


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


def fresh(fn, *arguments):
    """Call in a context that never had a session."""
    return contextvars.Context().run(fn, *arguments)


def test_without_a_session_the_function_runs_and_one_warning_says_so():
    with pytest.warns(NoSessionWarning, match="nothing is recorded") as seen:
        assert [tool(1), tool(2)] == [1, 2]
    assert len([w for w in seen if w.category is NoSessionWarning]) == 1
    assert RAN == [1, 2]


def test_a_session_can_be_required():
    configure(require_session=True)
    with pytest.raises(NoSessionError):
        tool(1)
    with pytest.raises(NoSessionError), step_boundary("one"):
        pass
    assert RAN == []


def test_current_session_is_the_one_that_a_call_would_use(root):
    assert current_session() is None
    with session("s", root=root):
        assert current_session().id == "s"
        assert fresh(current_session).id == "s"
        with session("t", root=root):
            assert current_session().id == "t"
            with pytest.raises(AmbiguousSessionError):
                fresh(current_session)
        assert current_session().id == "s"
    assert current_session() is None


def test_a_context_without_a_session_falls_back_to_the_only_one(root):
    with session("s", root=root):
        assert fresh(tool, 1) == 1
    assert calls(root) == [1]


def test_the_fall_back_can_be_turned_off(root):
    """Servers do: another user's session is never the right one."""
    configure(session_fallback=False)
    with session("s", root=root):
        with pytest.warns(NoSessionWarning):
            fresh(tool, 1)
        configure(require_session=True)
        with pytest.raises(NoSessionError):
            fresh(tool, 2)
        tool(3)
    assert calls(root) == [3]


def test_after_two_were_open_together_there_is_no_fall_back(root):
    with session("s", root=root):
        with session("t", root=root):
            pass
        with pytest.raises(AmbiguousSessionError):
            fresh(tool, 1)
        tool(2)
    with session("u", root=root), pytest.raises(AmbiguousSessionError):
        fresh(tool, 3)
    assert RAN == [2]


def test_sessions_one_after_the_other_keep_the_fall_back(root):
    for id_ in "st":
        with session(id_, root=root):
            fresh(tool, id_)
    assert RAN == ["s", "t"]


def test_a_context_that_holds_a_closed_session_is_told_so(root):
    with session("s", root=root):
        context = contextvars.copy_context()

    with pytest.raises(SessionClosedError):
        context.run(tool, 1)
    # Not even while another one is open.
    with session("t", root=root), pytest.raises(SessionClosedError):
        context.run(tool, 2)
    assert RAN == []


def test_tasks_keep_the_session_they_were_made_in(root):
    async def main():
        async with session("s", root=root):
            one = asyncio.create_task(later(1))
            async with session("t", root=root):
                two = asyncio.create_task(later(2))
                await asyncio.gather(one, two)

    async def later(n):
        await asyncio.sleep(0)
        return tool(n)

    asyncio.run(main())
    assert (calls(root, "s"), calls(root, "t")) == ([1], [2])


def test_a_thousand_interleaved_tasks_never_meet_anothers_session(root):
    async def user(n):
        async with session(f"user-{n}", root=root):
            for k in range(3):
                await asyncio.sleep(0)
                tool(f"{n}/{k}")

    async def main():
        await asyncio.gather(*(user(n) for n in range(20)))

    asyncio.run(main())
    for n in range(20):
        assert calls(root, f"user-{n}") == [f"{n}/{k}" for k in range(3)]


def test_a_session_inside_a_generator_may_be_closed_in_another_context(root):
    """Yield-style dependencies of web frameworks do that."""

    def dependency():
        with session("s", root=root), step_boundary("request"):
            yield

    generator = dependency()
    next(generator)
    fresh(next, generator, None)

    # It is free again.
    with session("s", root=root):
        tool(1)


def test_an_async_session_inside_a_generator_may_be_closed_in_another_task(root):
    async def dependency():
        async with session("s", root=root):
            tool(1)
            yield

    async def main():
        generator = dependency()
        await asyncio.create_task(step(generator))
        with pytest.raises(StopAsyncIteration):
            await asyncio.create_task(step(generator))

    async def step(generator):
        return await anext(generator)

    asyncio.run(main())
    assert calls(root) == [1]


def test_a_child_session_records_its_parent_and_clears_nesting(root):
    @checkpointed_tool
    def delegates():
        with session("child", root=root):
            return tool(5)

    with session("s", root=root):
        assert delegates() == 5

    with inspect_session("child", root=root) as looked:
        events = list(looked.events())
    with inspect_session("s", root=root) as looked:
        (call,) = [e for e in looked.events() if e.type == "tool/call"]
    (child_call,) = [e for e in events if e.type == "tool/call"]
    assert events[0].data["parent"] == {"session": "s", "call": call.call}
    assert "parent" not in child_call.meta
    assert "nested" not in child_call.meta


def test_open_session_is_active_until_it_is_closed(root):
    s = open_session("s", root=root)
    assert tool(1) == 1
    assert in_thread(lambda: tool(2)) == 2
    s.close()
    with pytest.raises(SessionClosedError):
        tool(3)
    s.close()

    assert calls(root) == [1, 2]


def test_opening_the_active_session_again_starts_at_the_top(root):
    """A notebook's cell that is run again replays what it did."""
    first = open_session("s", root=root)
    assert tool(1) == 1
    with pytest.warns(FinishedSessionWarning):
        second = open_session("s", root=root)
    assert first.closed
    assert tool(1) == 1
    assert RAN == [1]
    tool(2)
    second.close()

    assert RAN == [1, 2]


def test_a_cell_that_is_run_again_in_a_live_kernel_executes_again(root):
    s = open_session("s", root=root)
    tool(1)
    tool(1)
    s.close()
    assert RAN == [1, 1]


def test_old_contexts_find_the_session_that_took_the_place_of_theirs(root):
    """Cells and tasks keep the context of the first opening."""
    open_session("s", root=root)
    context = contextvars.copy_context()
    tool(1)
    with pytest.warns(FinishedSessionWarning):
        s = open_session("s", root=root)
    tool(1)
    assert context.run(tool, 2) == 2
    s.close()

    assert RAN == [1, 2]


def test_open_conversation_goes_on(root):
    s = open_conversation("c", root=root)
    ask([{"role": "user", "content": "one"}])
    s = open_conversation("c", root=root)
    ask([*s.messages(), {"role": "user", "content": "two"}])
    assert [m["content"] for m in s.messages()] == [
        "one",
        "answer 1",
        "two",
        "answer 3",
    ]
    s.close()
    assert RAN == ["ask", "ask"]


def test_sync_sessions_work_inside_a_running_loop(root):
    """Notebooks: nothing calls ``asyncio.run`` from a sync path."""

    async def cell():
        s = open_session("s", root=root)
        tool(1)
        s.close()
        with pytest.warns(FinishedSessionWarning), session("s", root=root) as s:
            assert tool(1) == 1
            s.flush()
            return s.messages()

    assert asyncio.run(cell()) == []
    cut(root / "s", 3)

    async def repair():
        with session("s", root=root, on_unknown="return") as s:
            return tool(1), len(s.in_doubt())

    text, _ = asyncio.run(repair())
    assert "may or may not" in text
    assert RAN == [1]


def test_the_root_is_found_from_the_current_directory_upwards(tmp_path, monkeypatch):
    home = tmp_path / "project" / ".durable_agent"
    home.mkdir(parents=True)
    deep = tmp_path / "project" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with session("s") as s:
        tool(1)
        assert s.recovery.report.location == str(home / "s")


def test_a_new_root_is_made_here_with_a_gitignore(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with session("s"):
        tool(1)

    assert (tmp_path / ".durable_agent" / ".gitignore").read_text().strip() == "*"
    assert [info.id for info in list_sessions()] == ["s"]


def test_the_environment_names_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("DURABLE_AGENT_HOME", str(tmp_path / "env"))
    with session("s"):
        tool(1)
    assert (tmp_path / "env" / "s").is_dir()
    configure(root=tmp_path / "configured")
    with session("s"):
        tool(1)
    assert (tmp_path / "configured" / "s").is_dir()
    with session("s", root=tmp_path / "given"):
        tool(1)
    assert (tmp_path / "given" / "s").is_dir()
    assert len(RAN) == 3


def test_a_relative_root_is_resolved_once(tmp_path, monkeypatch):
    """A tool that changes the directory does not move the session."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with session("s", root="here"):
        tool(1)
        os.chdir("elsewhere")
        tool(2)

    assert calls(tmp_path / "here") == [1, 2]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_moved_project_resumes_where_it_is(tmp_path):
    """No absolute path is part of anything's identity."""
    with session("s", root=tmp_path / "old"):
        tool(1)
    (tmp_path / "old").rename(tmp_path / "new")

    with (
        pytest.warns(FinishedSessionWarning),
        session("s", root=tmp_path / "new", must_exist=True),
    ):
        assert tool(1) == 1
    assert RAN == [1]


def test_opening_says_whether_it_is_new_and_where(root, caplog):
    caplog.set_level(logging.INFO, logger="durable_agent")
    with session("s", root=root):
        tool(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session("s", root=root):
            pass

    said = [r.message for r in caplog.records if r.levelno == logging.INFO]
    assert said == [
        f"session 's': new, at {root / 's'}",
        f"session 's': resumed, at {root / 's'}",
    ]


def test_a_fork_is_a_session_of_its_own(root):
    keys = []

    @checkpointed_tool(name="keyed")
    def keyed(n, idempotency_key=""):
        keys.append(idempotency_key)
        return n

    with session("s", root=root, metadata={"a": 1}) as s:
        keyed(1)
        at = s.seq
        keyed(2)
        s.fork("t", at=at)
        with pytest.raises(SessionExistsError):
            s.fork("t")
        with pytest.raises(LookupError):
            s.fork("u", at=999)

    with session("t", root=root):
        assert keyed(1) == 1
        assert len(keys) == 2
        keyed(2)

    assert len(keys) == 3
    # Made beyond the fork: another call, another key.
    assert keys[2] != keys[1]
    with inspect_session("t", root=root) as looked:
        first = next(iter(looked.events()))
        assert first.data["parent"] == {"session": "s", "at": at}
        assert [e.seq for e in looked.events()] == list(range(looked.report.events))


def test_a_fork_keeps_the_keys_of_what_it_replays_and_runs_again(root):
    """A call in doubt before the fork has the key that went outside."""
    keys = []

    @checkpointed_tool(name="keyed", effect="idempotent")
    def keyed(n, idempotency_key=""):
        keys.append(idempotency_key)
        if len(keys) == 1:
            s.fork("t")
        return n

    with session("s", root=root) as s:
        keyed(1)
    with session("t", root=root):
        keyed(1)

    assert keys[0] == keys[1]


def test_a_fork_that_was_cut_off_is_no_session_and_is_made_anew(root):
    """Taken for one, it would make calls again that it was to replay."""
    with session("s", root=root) as s:
        tool(1)
        tool(2)
        at = s.fork("t")
    cut(root / "t", 3)

    for opening in (session, conversation):
        with pytest.raises(StoreError, match="making it was cut off"):
            opening("t", root=root).__enter__()
    with inspect_session("t", root=root) as looked:
        assert looked.report.events == 3
    with conversation("s", root=root) as s:
        assert s.fork("t", at=5) == at
    RAN.clear()
    with session("t", root=root):
        assert (tool(1), tool(2)) == (1, 2)
    assert RAN == []


@pytest.mark.parametrize("way", [open_session, open_conversation])
def test_closing_while_a_calls_error_passes_is_no_normal_end(root, way):
    """``finally: s.close()`` is what a script without ``with`` has."""

    @checkpointed_tool
    def broken():
        raise ValueError("no")

    s = way("s", root=root)
    with pytest.raises(ValueError, match="no"):
        try:
            broken()
        finally:
            s.close()
    s = way("t", root=root)
    with pytest.raises(KeyError):
        try:
            tool(1)
            raise KeyError(1)
        finally:
            s.close()
    try:
        raise KeyError(2)
    except KeyError:
        s = way("u", root=root)
        tool(1)
        s.close()

    def finished(id_):
        with inspect_session(id_, root=root) as looked:
            return looked.finished

    assert [finished(id_) for id_ in "stu"] == [False, True, True]


def test_a_conversation_may_be_opened_async(root):
    async def main(text):
        async with conversation("c", root=root) as s:
            ask([*s.messages(), {"role": "user", "content": text}])
            return len(s.messages())

    assert asyncio.run(main("one")) == 2
    assert asyncio.run(main("two")) == 4


def test_one_object_opens_one_session_at_a_time(root):
    opening = session("s", root=root)
    with opening:
        with pytest.raises(SessionClosedError):
            opening.__enter__()
        tool(1)
    with pytest.warns(FinishedSessionWarning), opening:
        assert tool(1) == 1
    assert RAN == [1]
