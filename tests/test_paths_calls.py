"""Calls on the ways that are rarely taken: each ends with what the log can tell."""

import asyncio
import functools
import threading
import types

import pytest

from durable_agent import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Completed,
    DecorationError,
    NotApplied,
    OutcomeNotRecordedError,
    ResultNotStorableWarning,
    StoreError,
    ToolNotStartedError,
    ToolOutcomeUnknownError,
    Unknown,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    current_call,
    inspect_session,
    register_control_flow,
    session,
    tool_call_id,
)
from durable_agent._fs import Disk
from durable_agent.jsonl import JsonlStore
from tests.disks import CountingDisk, crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@checkpointed_tool(name="tool")
def tool(n=1):
    RAN.append(n)
    return f"tool {n}"


@checkpointed_tool(name="atool")
async def atool(n=1):
    RAN.append(n)
    return f"tool {n}"


@checkpointed_tool(name="export")
def export(count):
    RAN.append("export")
    yield from range(count)


@checkpointed_tool(name="aexport")
async def aexport(count):
    RAN.append("aexport")
    for n in range(count):
        yield n


@checkpointed_llm(name="ask")
def ask(messages):
    RAN.append("ask")
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": "t1", "function": {"name": "tool", "arguments": '{"n": 1}'}},
            {"id": "t2", "function": {"name": "tool", "arguments": '{"n": 2}'}},
        ],
    }


def user(text):
    return {"role": "user", "content": text}


def events(root, *types):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if not types or e.type in types]


def outcomes(root):
    found = events(root, "tool/result", "llm/response")
    return [e.meta.get("code") or e.meta["status"] for e in found]


def in_doubt(root, fn, *arguments):
    """Leave a session whose only call has an intent and no outcome."""
    with session("s", root=root) as s:
        made = fn(*arguments)
        if not isinstance(made, str):
            list(made)
        crash(s)
    cut(root / "s", 3)
    RAN.clear()


# before the body -----------------------------------------------------------------


def test_an_effect_that_is_none_stops_before_the_body(root):
    """What a callable says is known at the call only; nothing is recorded of it."""

    @checkpointed_tool(effect=lambda bound: bound["n"])
    def dispatch(n):
        RAN.append(n)

    with session("s", root=root) as s:
        with pytest.raises(DecorationError, match="'sideways'"):
            dispatch("sideways")
        assert s.seq == -1
    assert RAN == []


def test_an_idempotency_key_given_by_place_stays_the_callers(root):
    """Filling it in as well would give the parameter two values."""

    @checkpointed_tool(name="send")
    def send(to, idempotency_key=""):
        RAN.append(idempotency_key)
        return current_call().idempotency_key

    with session("s", root=root):
        send("ann", "")
        key = send("ben")

    assert RAN == ["", key]
    assert key


def test_a_positional_only_key_of_a_partial_is_had_from_the_call(root):
    """What a partial holds cannot be given again by place; the key is still told."""

    def send(to, idempotency_key="", /):
        RAN.append((to, idempotency_key))
        return current_call().idempotency_key

    to_ann = checkpointed_tool(functools.partial(send, "ann"), name="send")
    plain = checkpointed_tool(name="plain")(send)
    with session("s", root=root):
        assert to_ann()
        key = plain("ben")

    assert RAN == [("ann", ""), ("ben", key)]


def test_a_bridge_around_a_coroutine_may_return_a_value(root):
    """In a loop such a function is awaited, whatever it hands back."""

    async def inner(n):
        return n

    @checkpointed_tool(name="bridge")
    @functools.wraps(inner)
    def bridge(n):
        RAN.append(n)
        return n + 1 if n else inner(n)

    async def main():
        with pytest.warns(match="without a session"):
            assert await bridge(1) == 2
        async with session("s", root=root):
            return [await bridge(1), await bridge(0)]

    assert asyncio.run(main()) == [2, 0]
    assert RAN == [1, 1, 0]
    RAN.clear()

    async def again():
        async with session("s", root=root):
            return [await bridge(1), await bridge(0)]

    assert asyncio.run(again()) == [2, 0]
    assert RAN == []


def test_a_model_call_inside_a_model_call_costs_no_barrier(tmp_path):
    """A client that calls another one inside is one request to a provider."""
    disk = CountingDisk()

    @checkpointed_llm(name="inner")
    def inner(messages):
        RAN.append(disk.count["sync"])
        return "inner"

    @checkpointed_llm(name="outer")
    def outer(messages):
        RAN.append(disk.count["sync"])
        return inner(messages)

    with session("s", store=JsonlStore(tmp_path, fs=disk)):
        outer([user("a")])
        first, second = RAN
        inner([user("b")])

    assert first == second
    assert RAN[2] == second + 1


# in the body ---------------------------------------------------------------------


@types.coroutine
def _until(reached, coroutine):
    """Run a coroutine in this task up to where ``reached`` holds."""
    while True:
        future = coroutine.send(None)
        if reached():
            return
        yield future


@pytest.mark.parametrize("closes", ["after", "before"])
def test_a_coroutine_that_is_closed_in_its_body_is_in_doubt(root, closes):
    """Nothing can be awaited then: the outcome is appended, and closing keeps it."""

    @checkpointed_tool(name="hangs")
    async def hangs():
        RAN.append(1)
        await asyncio.Event().wait()

    async def main():
        s = session("s", root=root)
        await s.__aenter__()
        coroutine = hangs()
        await _until(lambda: RAN, coroutine)
        if closes == "before":
            await s.__aexit__(None, None, None)
        coroutine.close()
        if closes == "after":
            await s.__aexit__(None, None, None)

    asyncio.run(main())

    assert outcomes(root) == [TOOL_OUTCOME_UNKNOWN]
    assert events(root)[-1].type == "run/end"


def test_a_call_whose_coroutine_was_closed_waits_to_be_left_again(root):
    """Its run went on without it, so there is nothing that it could be given."""

    @checkpointed_tool(name="hangs")
    async def hangs():
        RAN.append(1)
        await asyncio.Event().wait()

    async def main(left):
        async with session("s", root=root, replay_wait=0.01):
            coroutine = hangs()
            if left:
                await _until(lambda: RAN, coroutine)
                coroutine.close()
            else:
                with pytest.raises(TimeoutError):
                    await coroutine

    asyncio.run(main(left=True))
    asyncio.run(main(left=False))
    assert RAN == [1]


def test_a_task_that_outlives_its_call_is_not_part_of_it(root):
    """A replay of the finished call could not answer it, so it stands by itself."""
    left = []

    @checkpointed_tool(name="starts", ignore=("go_on",))
    async def starts(go_on):
        left.append(asyncio.create_task(later(go_on)))
        return "started"

    async def later(go_on):
        inside = await atool(1)
        await go_on.wait()
        return inside, await atool(2)

    async def main():
        go_on = asyncio.Event()
        async with session("s", root=root):
            await starts(go_on)
            go_on.set()
            return await left[0]

    assert asyncio.run(main()) == ("tool 1", "tool 2")
    calls = {e.data["args"].get("n"): e for e in events(root, "tool/call")}
    assert calls[2].meta.get("parent") is None
    assert calls[2].meta["detached"]


def test_a_call_that_a_person_resolved_while_it_ran_keeps_that_outcome(root):
    """At most one outcome an attempt; the caller has the other one all the same."""

    @checkpointed_tool(name="slow")
    def slow():
        RAN.append(1)
        s.resolve(current_call(), Completed("by a person"))
        return "by the body"

    s = session("s", root=root)
    with pytest.raises(OutcomeNotRecordedError) as raised:
        with s as s:
            slow()

    assert raised.value.value == "by the body"
    with session("s", root=root):
        assert slow() == "by a person"
    assert RAN == [1]


def test_an_awaitable_whose_value_cannot_be_stored_is_awaited_again(root):
    @checkpointed_llm(name="create")
    def create(messages):
        async def response():
            RAN.append(1)
            return threading.Lock()

        return response()

    async def main():
        async with session("s", root=root):
            with pytest.warns(ResultNotStorableWarning):
                return await create([user("a")])

    assert asyncio.run(main()) is not None
    asyncio.run(main())
    assert RAN == [1, 1]
    assert [e.meta["as"] for e in events(root, "llm/response")] == ["awaitable"] * 2


def test_only_exception_types_are_control_flow():
    with pytest.raises(TypeError, match="exception type"):
        register_control_flow(str)


def test_a_pause_that_is_registered_twice_pauses_once(root):
    class Pause(Exception):
        pass

    register_control_flow(Pause)
    register_control_flow(Pause)

    @checkpointed_tool(name="pauses")
    def pauses():
        RAN.append(1)
        raise Pause

    with session("s", root=root), pytest.raises(Pause):
        pauses()
    assert outcomes(root) == ["suspended"]


# replaying -----------------------------------------------------------------------


class UnreadableDisk(Disk):
    """Reads until it is told that it cannot."""

    failing = False

    def read(self, fd, size, offset):
        if self.failing:
            raise OSError(5, "Input/output error")
        return super().read(fd, size, offset)


@pytest.mark.parametrize("fn", [tool, atool], ids=["sync", "async"])
def test_a_record_that_cannot_be_read_is_not_made_again(tmp_path, fn):
    """Unreadable is not absent: the session stops, also for who swallows the error."""
    disk = UnreadableDisk()
    store = JsonlStore(tmp_path, fs=disk)

    async def called(fn):
        made = fn(1)
        return made if isinstance(made, str) else await made

    async def first():
        async with session("s", store=store):
            await called(fn)

    asyncio.run(first())
    RAN.clear()

    async def second():
        async with session("s", store=store):
            disk.failing = True
            with pytest.raises(StoreError, match="cannot be read"):
                await called(fn)
            disk.failing = False
            with pytest.raises(StoreError, match="cannot be read"):
                await called(fn)

    with pytest.raises(StoreError, match="cannot be read"):
        asyncio.run(second())
    assert RAN == []


def test_a_parameter_that_came_with_a_default_finds_the_right_record(root):
    """Other calls of the function are passed over, and stay for those who ask."""

    @checkpointed_tool(name="send")
    def before(to):
        RAN.append(to)
        return f"sent to {to}"

    with session("s", root=root) as s:
        before("ann")
        before("ben")
        crash(s)
    RAN.clear()

    @checkpointed_tool(name="send")
    def send(to, urgent=False):
        RAN.append(to)
        return f"sent to {to}"

    with session("s", root=root):
        assert send("ben") == "sent to ben"
        assert send("ann") == "sent to ann"
    assert RAN == []


def test_a_request_without_messages_is_judged_like_any_call(root):
    """It cannot continue a conversation, so it may run while nothing is doubled."""

    @checkpointed_llm(name="title")
    def title(text):
        RAN.append(text)
        return text.upper()

    with session("s", root=root) as s:
        ask([user("a")])
        crash(s)
    with session("s", root=root):
        with pytest.warns(match="is not in the log"):
            assert title("new") == "NEW"
        assert ask([user("a")])["role"] == "assistant"
    assert RAN == ["ask", "new"]


@pytest.mark.parametrize("setting", ["raise", "return"])
def test_a_tool_call_that_the_model_was_told_never_started_is_not_run(root, setting):
    """The run went on with that answer; now to run it would be a second truth."""
    with session("s", root=root) as s:
        ask([user("a")])
        crash(s)
    with conversation("s", root=root) as s:
        longer = [*s.messages(), user("go on")]
        ask(longer)
    assert [e.meta["code"] for e in events(root, "tool/result")] == [
        TOOL_NOT_STARTED,
        TOOL_NOT_STARTED,
    ]
    RAN.clear()

    with session("s", root=root, on_unknown=setting):
        ask([user("a")])
        if setting == "raise":
            with pytest.raises(ToolNotStartedError, match="TOOL_NOT_STARTED"):
                tool(1)
        else:
            assert "TOOL_NOT_STARTED" in tool(1)
        ask(longer)
    assert RAN == []


def test_a_blanket_retry_does_not_run_what_may_have_happened(root):
    in_doubt(root, tool)

    with session("s", root=root):
        for _ in range(3):
            with pytest.raises(ToolOutcomeUnknownError):
                tool()
    assert RAN == []
    assert outcomes(root) == [TOOL_OUTCOME_UNKNOWN]


@pytest.mark.parametrize(
    ("said", "result", "ran"),
    [
        (Completed("it did happen"), "it did happen", []),
        (NotApplied(), "made again", [1]),
        (Unknown(), ValueError, []),
        (None, ValueError, []),
    ],
    ids=["completed", "not applied", "unknown", "nothing"],
)
def test_of_an_error_that_ended_the_run_the_verifier_decides(root, said, result, ran):
    broken = [True]

    @checkpointed_tool(name="pay", verify=lambda call: said)
    def pay():
        RAN.append(1)
        if broken:
            raise ValueError("the line broke")
        return "made again"

    with pytest.raises(ValueError, match="the line broke"), session("s", root=root):
        pay()
    RAN.clear()
    broken.clear()

    def run():
        with session("s", root=root):
            return pay()

    if result is ValueError:
        with pytest.raises(ValueError, match="the line broke") as raised:
            run()
        assert any("retry_failed" in note for note in raised.value.__notes__)
    else:
        assert run() == run() == result
    assert RAN == ran


@pytest.mark.parametrize(
    ("said", "chunks"),
    [([1, 2], [1, 2]), ((1, 2), [1, 2]), ("all of it", ["all of it"]), ([], [])],
    ids=["list", "tuple", "value", "nothing"],
)
@pytest.mark.parametrize("how", ["verifier", "person"])
def test_what_was_found_out_about_a_stream_is_given_in_its_chunks(
    root, said, chunks, how
):
    verify = None if how == "person" else lambda call: Completed(said)
    fn = checkpointed_tool(name="export", verify=verify)(export.__wrapped__)
    afn = checkpointed_tool(name="aexport", verify=verify)(aexport.__wrapped__)
    with session("s", root=root) as s:
        first = fn(3)
        next(first)
        crash(s)
    with pytest.raises(Exception, match="closed"):
        first.close()
    RAN.clear()

    async def main():
        async with session("t", root=root) as t:
            second = afn(3)
            await anext(second)
            crash(t)
        with pytest.raises(Exception, match="closed"):
            await second.aclose()
        RAN.clear()
        for _ in range(2):
            async with session("t", root=root) as t:
                for call in t.in_doubt() if how == "person" else ():
                    t.resolve(call, Completed(said))
                assert [item async for item in afn(3)] == chunks

    for _ in range(2):
        with session("s", root=root) as s:
            for call in s.in_doubt() if how == "person" else ():
                s.resolve(call, Completed(said))
            assert list(fn(3)) == chunks
    assert RAN == []
    asyncio.run(main())
    assert RAN == []


def test_a_stream_in_doubt_may_give_the_text_instead(root):
    """The consumer iterates, so the text for the model comes as the only chunk."""
    in_doubt(root, export, 1)

    with session("s", root=root, on_unknown="return"):
        (text,) = export(1)

    assert TOOL_OUTCOME_UNKNOWN in text
    assert RAN == []


def test_another_answer_to_a_tool_call_that_has_a_record_diverges(root):
    with session("s", root=root) as s:
        ask([user("a")])
        tool(1)
        crash(s)
    RAN.clear()

    def run():
        with session("s", root=root):
            ask([user("a")])
            with tool_call_id("t1"):
                tool(99)

    with pytest.raises(Exception, match="was not asked for again"):
        run()
    assert RAN == []
