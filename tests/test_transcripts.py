"""What the model is shown after a crash: every call answered once, by what is known."""

import asyncio
import contextlib
import json
from contextlib import nullcontext

import pytest

from durable_agent import (
    ABORTED_BEFORE_DISPATCH,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Completed,
    DurableError,
    NotApplied,
    ToolAbortedError,
    TranscriptError,
    TranscriptWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    session,
    tool_call_id,
)
from durable_agent._fs import Disk
from durable_agent.jsonl import JsonlStore
from tests.disks import crash, cut

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")


class Killed(BaseException):
    """Stands for the death of the process: no code of ours runs after it."""


class CancellingDisk(Disk):
    """Cancels a session while a checkpoint is being made durable."""

    session = None

    def sync(self, fd, *, metadata=False):
        if self.session is not None:
            self.session.cancel("enough")
        super().sync(fd, metadata=metadata)


class World:
    """What ran, and what the model said when it was asked."""

    def __init__(self):
        self.ran = []
        self.asked = []
        self.turns = []
        self.die = None

    def body(self, name, value=None):
        self.ran.append(name)
        if self.die == name:
            raise Killed(name)
        return f"{name} done" if value is None else value


def chat(role, content, **more):
    return {"role": role, "content": content, **more}


def called(name, arguments=None, id_="t1"):
    text = json.dumps(arguments or {})
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def use(name, arguments=None, id_="t1"):
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments or {}}


def openai_turn(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def anthropic_turn(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def model(world, name="ask", **options):
    @checkpointed_llm(name=name, **options)
    def ask(messages):
        world.asked.append(list(messages))
        return world.turns.pop(0)

    return ask


@pytest.fixture
def world():
    return World()


def texts(messages):
    """Results by the order in which they stand, whichever the dialect."""
    found = []
    for message in messages:
        if message["role"] == "tool":
            found.append(message["content"])
        elif isinstance(message["content"], list):
            found += [
                block["content"]
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
    return found


def codes(messages):
    return [text.split(":")[0] for text in texts(messages)]


def tool_named(world, name, **options):
    @checkpointed_tool(name=name, **options)
    def tool(n=0):
        return world.body(name if not n else f"{name} {n}")

    return tool


def killed_session(root, world, run, id_="s"):
    """Run until the process dies in it."""
    opened = conversation(id_, root=root).__enter__()
    with pytest.raises(Killed):
        run(opened)
    # A killed process records no end of the call that it died in.
    last = max(e.seq for e in opened.events() if e.type == "tool/call")
    crash(opened)
    cut(root / id_, last + 1)


# interrupted batches -------------------------------------------------------------


@pytest.mark.parametrize("make", [openai_turn, anthropic_turn])
def test_an_interrupted_batch_has_a_result_for_every_call(root, world, make):
    """One real, one unknown, two never started; asked once, and nothing runs twice."""
    tool = tool_named(world, "pay")
    entry = called if make is openai_turn else use
    world.turns = [
        make(*(entry("pay", {"n": n}, f"t{n}") for n in (1, 2, 3, 4))),
        chat("assistant", "I see."),
    ]
    ask, world.die = model(world), "pay 2"

    def run(_):
        ask([chat("user", "Pay all four.")])
        for n in (1, 2, 3, 4):
            tool(n)

    killed_session(root, world, run)

    with conversation("s", root=root) as s:
        messages = s.messages()
        assert codes(messages) == [
            "pay 1 done",
            TOOL_OUTCOME_UNKNOWN,
            TOOL_NOT_STARTED,
            TOOL_NOT_STARTED,
        ]
        ask([*messages, chat("user", "And now?")])

    assert world.ran == ["pay 1", "pay 2"]
    assert len(world.asked) == 2
    with conversation("s", root=root) as s:
        assert s.messages()[: len(messages)] == messages


def test_a_batch_ended_by_the_keyboard_reaches_the_caller_and_is_told(root, world):
    tool = tool_named(world, "pay")
    world.turns = [openai_turn(*(called("pay", {"n": n}, f"t{n}") for n in (1, 2, 3)))]
    ask = model(world)

    @checkpointed_tool(name="stopped")
    def stopped():
        raise KeyboardInterrupt

    world.turns[0]["tool_calls"].insert(1, called("stopped", {}, "t9"))
    with pytest.raises(KeyboardInterrupt), session("s", root=root):
        ask([chat("user", "a")])
        tool(1)
        stopped()

    with conversation("s", root=root) as s:
        assert codes(s.messages()) == [
            "pay 1 done",
            TOOL_OUTCOME_UNKNOWN,
            TOOL_NOT_STARTED,
            TOOL_NOT_STARTED,
        ]


def test_results_stand_in_the_order_of_the_calls_not_of_their_ends(root, world):
    @checkpointed_tool(name="slow")
    async def slow(gate):
        await gate.wait()
        return "slow"

    @checkpointed_tool(name="fast")
    async def fast():
        return "fast"

    world.turns = [openai_turn(called("slow", {}, "a"), called("fast", {}, "b"))]
    world.turns[0]["content"] = "One moment."
    ask = model(world)

    async def run():
        gate = asyncio.Event()
        async with session("s", root=root) as s:
            ask([chat("user", "both")])

            async def second():
                with tool_call_id("b"):
                    await fast()
                gate.set()

            async def first():
                with tool_call_id("a"):
                    await checkpointed_tool(slow, ignore="gate")(gate)

            await asyncio.gather(first(), second())
            return s.messages()

    messages = asyncio.run(run())

    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
    assert texts(messages) == ["slow", "fast"]


def test_a_failed_parallel_call_keeps_its_id_and_has_a_text(root, world):
    @checkpointed_tool(name="f")
    async def f(n):
        if n == 2:
            raise ValueError
        return n

    calls = [called("f", {"n": n}, f"t{n}") for n in (1, 2, 3)]
    world.turns = [openai_turn(*calls)]
    ask = model(world)

    async def run():
        async with session("s", root=root) as s:
            ask([chat("user", "a")])
            await asyncio.gather(*map(f, (1, 2, 3)), return_exceptions=True)
            intents = [e for e in s.events() if e.type == "tool/call"]
            return s.messages(), intents

    messages, intents = asyncio.run(run())

    assert texts(messages) == ["1", "ValueError", "3"]
    assert [m["tool_call_id"] for m in messages[2:]] == ["t1", "t2", "t3"]
    assert [i.data["tool_call_id"] for i in intents] == ["t1", "t2", "t3"]


def test_a_call_that_was_cancelled_before_its_body_says_so(root, world):
    tool = tool_named(world, "pay")
    world.turns = [openai_turn(called("pay"))]
    ask = model(world)
    disk = CancellingDisk()
    with session("s", store=JsonlStore(root, fs=disk)) as s:
        ask([chat("user", "a")])
        disk.session = s
        with pytest.raises(ToolAbortedError):
            tool()
        assert codes(s.messages()) == [ABORTED_BEFORE_DISPATCH]
        assert world.ran == []


# calls that were left open further up --------------------------------------------


def _orphaned(make, entry, *more):
    return [
        chat("user", "one"),
        make(entry("pay", {}, "x")),
        chat("user", "still there?"),
        chat("assistant", "Yes."),
        *more,
    ]


@pytest.mark.parametrize(
    ("make", "entry"), [(openai_turn, called), (anthropic_turn, use)]
)
def test_an_orphan_in_the_middle_is_answered_where_it_stands(root, world, make, entry):
    """An older program went on talking after a crash, and never balanced."""
    tool = tool_named(world, "pay")
    world.turns = [make(entry("pay", {}, "x")), chat("assistant", "Well.")]
    ask, world.die = model(world), "pay"

    def run(_):
        ask([chat("user", "one")])
        tool()

    killed_session(root, world, run)
    with session("s", root=root, on_divergence="ignore") as s:
        ask(_orphaned(make, entry, chat("user", "so?")))
        messages = s.messages()

    assert codes(messages) == [TOOL_OUTCOME_UNKNOWN]
    assert messages[1] == make(entry("pay", {}, "x"))
    if make is openai_turn:
        assert messages[2]["tool_call_id"] == "x"
        assert messages[3:] == [
            *_orphaned(make, entry)[2:],
            chat("user", "so?"),
            chat("assistant", "Well."),
        ]
    else:
        result, text = messages[2]["content"]
        assert (result["tool_use_id"], text["text"]) == ("x", "still there?")


def test_an_id_that_an_earlier_turn_used_does_not_hide_an_orphan(root, world):
    """Some servers begin their ids anew with every turn."""
    tool = tool_named(world, "pay")
    turn = openai_turn(called("pay", {"n": 1}, "call-1"))
    again = openai_turn(called("pay", {"n": 2}, "call-1"))
    world.turns = [turn, again]
    ask, world.die = model(world), "pay 2"

    def run(opened):
        ask([chat("user", "a")])
        tool(1)
        ask([*opened.messages(), chat("user", "again")])
        tool(2)

    killed_session(root, world, run)

    with conversation("s", root=root) as s:
        assert codes(s.messages()) == ["pay 1 done", TOOL_OUTCOME_UNKNOWN]


def test_a_result_recorded_long_ago_is_put_where_its_call_is(root, world):
    """The program lost the result; the log did not."""
    tool = tool_named(world, "pay")
    world.turns = [openai_turn(called("pay", {}, "x")), chat("assistant", "Well.")]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "one")])
        tool()
        ask(_orphaned(openai_turn, called, chat("user", "so?")))

        assert texts(s.messages()) == ["pay done"]


def test_equal_turns_get_each_its_own_result(root, world):
    """Constant ids, equal names and arguments: told apart by where they stand."""
    values = iter(["first", "second"])

    @checkpointed_tool(name="pay")
    def pay():
        return next(values)

    turn = openai_turn(called("pay", {}, "0"))
    world.turns = [turn, dict(turn), chat("assistant", "ok")]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        pay()
        ask([chat("user", "a"), turn, chat("user", "b")])
        pay()
        ask([chat("user", "a"), turn, chat("user", "b"), turn, chat("user", "c")])

        assert texts(s.messages()) == ["first", "second"]


def test_arguments_that_were_cut_off_have_their_result(root, world):
    """Results are derived from the calls that are in the exported message."""
    broken = called("pay", {}, "t1")
    broken["function"]["arguments"] = '{"n": 1'
    tool_named(world, "pay")
    world.turns = [openai_turn(broken, called("pay", {"n": 2}, "t2"))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        messages = s.messages()

    assert [m.get("tool_call_id") for m in messages] == [None, None, "t1", "t2"]
    assert len(messages[1]["tool_calls"]) == 2


# who is never told "not started" -------------------------------------------------


@pytest.mark.parametrize("kept", [2, 3, 4])
@pytest.mark.parametrize("how", ["dispatcher", "aliased", "undecorated"])
def test_what_may_have_run_is_never_said_to_be_not_started(root, world, how, kept):
    """Cut before the tool's intent, after it, and after its outcome."""

    def plain(n):
        return world.body("plain")

    @checkpointed_tool(name="inner_name")
    def aliased(n):
        return world.body("aliased")

    @checkpointed_tool(name="dispatch")
    def dispatcher(name, arguments):
        return world.body(name)

    world.turns = [openai_turn(called("outer_name", {"n": 1}))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        match how:
            case "dispatcher":
                dispatcher("outer_name", {"n": 1})
            case "aliased":
                aliased(1)
            case _:
                plain(1)
                s.append("app/note", 1)
                s.append("app/note", 2)
        crash(s)
    cut(root / "s", 2 + kept)

    with conversation("s", root=root) as s:
        assert codes(s.messages()) == [TOOL_OUTCOME_UNKNOWN]
        assert "nor whether it was started" in texts(s.messages())[0]
    assert len(world.ran) == 1


def test_a_dispatcher_that_says_which_tool_it_runs_is_told_as_the_tool(root, world):
    @checkpointed_tool(name=lambda a: a["name"], arguments="arguments")
    def dispatch(name, arguments):
        return world.body(name)

    world.turns = [openai_turn(called("pay", {"n": 1}))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        dispatch("pay", {"n": 1})

        assert texts(s.messages()) == ["pay done"]


# what a person found out ---------------------------------------------------------


def test_a_call_that_a_person_settled_says_what_they_said(root, world):
    tool = tool_named(world, "pay")
    calls = [called("pay", {"n": n}, f"t{n}") for n in (1, 2)]
    world.turns = [openai_turn(*calls)]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        tool(1)
        tool(2)
        events = list(s.events())
        crash(s)
    cut(root / "s", next(e.seq for e in events if e.type == "tool/result"))
    with session("s", root=root) as s:
        (first,) = s.in_doubt()
        s.resolve(first, Completed("it was paid"))
    with conversation("s", root=root) as s:
        assert texts(s.messages())[0] == "it was paid"


# how a result is shown -----------------------------------------------------------


def test_a_tool_may_say_how_its_value_is_shown(root, world):
    @checkpointed_tool(name="look", render=lambda value: f"{len(value)} rows")
    def look():
        return [{"a": 1}, {"a": 2}]

    @checkpointed_tool(name="rows", render=len)
    def rows():
        return [1]

    @checkpointed_tool(name="breaks", render=lambda value: value.nothing)
    def breaks():
        return {"a": 1}

    @checkpointed_tool(name="stream", render="+".join)
    def stream():
        yield "a"
        yield "b"

    calls = [called(n, {}, n) for n in ("look", "rows", "breaks", "stream")]
    world.turns = [openai_turn(*calls)]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        assert look() == [{"a": 1}, {"a": 2}]
        with pytest.warns(TranscriptWarning, match="rows failed.*int"):
            assert rows() == [1]
        with pytest.warns(TranscriptWarning, match="AttributeError"):
            assert breaks() == {"a": 1}
        assert list(stream()) == ["a", "b"]
        shown = texts(s.messages())
    assert shown == ["2 rows", "[1]", '{"a":1}', "a+b"]
    with inspect_session("s", root=root) as looked:
        assert texts(looked.messages()) == shown


def test_what_a_verifier_found_is_shown_as_the_tool_says(root, world):
    @checkpointed_tool(
        name="look", render=lambda v: f"<{v}>", verify=lambda call: Completed("found")
    )
    def look():
        return "x"

    world.turns = [openai_turn(called("look"))]
    ask = model(world)

    def run():
        with session("s", root=root) as s:
            ask([chat("user", "a")])
            look()
            shown = texts(s.messages())
            crash(s)
            return shown

    assert run() == ["<x>"]
    cut(root / "s", 5)
    assert run() == ["<found>"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        ({"k": "ü"}, '{"k":"ü"}'),
        (2**70, str(2**70)),
        ("a\ud83cb", "a\ufffdb"),
        ({"a": "\udcff"}, '{"a":"\ufffd"}'),
        ("nul\x00", "nul\x00"),
        (b"\xff", '"\\\\xff"'),
    ],
)
def test_values_become_text_that_leaves_as_utf_8(root, world, value, text):
    @checkpointed_tool(name="f")
    def f():
        return value

    world.turns = [openai_turn(called("f"))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        f()
        messages = s.messages()

    assert texts(messages) == [text]
    json.dumps(messages, ensure_ascii=False).encode("utf-8")


# streams ------------------------------------------------------------------------


def _chunk(content=None, reason=None, **delta):
    if content is not None:
        delta["content"] = content
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def _streaming(chunks, error=None):
    @checkpointed_llm(name="ask")
    def ask(messages):
        yield from chunks
        if error is not None:
            raise error

    return ask


WHOLE = [
    _chunk("", role="assistant"),
    _chunk("Hel"),
    _chunk("lo"),
    _chunk(reason="stop"),
]


def test_a_finished_stream_is_one_turn(root):
    ask = _streaming(WHOLE)
    with session("s", root=root) as s:
        list(ask([chat("user", "a")]))

        assert s.messages() == [chat("user", "a"), chat("assistant", "Hello")]
        assert s.partial() == []


def test_who_stops_at_the_last_chunk_has_heard_all(root):
    ask = _streaming(WHOLE)
    with session("s", root=root) as s:
        for chunk in ask([chat("user", "a")]):
            if chunk["choices"][0]["finish_reason"]:
                break

        assert s.messages()[1:] == [chat("assistant", "Hello")]


@pytest.mark.parametrize("how", ["left", "raised", "killed"])
def test_an_interrupted_turn_is_left_out_and_offered(root, how):
    error = ConnectionError("gone") if how == "raised" else None
    # What is left of the process notices that its log is gone.
    dead = contextlib.suppress(DurableError) if how == "killed" else nullcontext()
    ask = _streaming(WHOLE[:2] if error else WHOLE, error)
    with dead, session("s", root=root) as s:
        stream = ask([chat("user", "a")])
        next(stream)
        next(stream)
        if how == "raised":
            with pytest.raises(ConnectionError):
                next(stream)
        elif how == "left":
            stream.close()
        if how != "killed":
            assert s.messages() == [chat("user", "a")]
            assert s.partial() == [chat("assistant", "Hel")]
        events = list(s.events())
        crash(s)
        with contextlib.suppress(DurableError):
            stream.close()
    cut(root / "s", len(events))
    with inspect_session("s", root=root) as looked:
        assert looked.messages() == [chat("user", "a")]
        # The newest chunks may still have been on their way to the file.
        (partial,) = looked.partial()
        assert "Hello".startswith(partial["content"] or "")


def test_text_and_streams_of_text_are_turns_that_say_it(root):
    @checkpointed_llm(name="plain")
    def plain(messages):
        return "yes"

    @checkpointed_llm(name="pieces")
    def pieces(messages):
        yield "y"
        yield "es"

    for name, ask in (("p", lambda m: plain(m)), ("q", lambda m: list(pieces(m)))):
        with session(name, root=root) as s:
            ask([chat("user", "a")])
            assert s.messages() == [chat("user", "a"), chat("assistant", "yes")]


def test_a_response_that_shows_no_turn_is_warned_of(root):
    @checkpointed_llm(name="ask")
    def ask(messages):
        return 42

    with session("s", root=root) as s:
        ask([chat("user", "a")])
        with pytest.warns(TranscriptWarning, match="no dialect.*int"):
            assert s.messages() == [chat("user", "a")]


# which conversation --------------------------------------------------------------


def test_two_conversations_of_one_function_are_not_mixed_up(root, world):
    world.turns = [chat("assistant", n) for n in "1234"]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "weather?")])
        first = s.messages()
        ask([chat("user", "trains?")])
        with pytest.raises(TranscriptError, match="several conversations"):
            s.messages()
        with pytest.raises(TranscriptError, match="several"):
            s.messages(of=ask)
        ask([*first, chat("user", "and tomorrow?")])
        with pytest.raises(TranscriptError, match="several"):
            s.messages()
        seqs = [e.seq for e in s.events() if e.type == "llm/request"]
        ends = [s.messages(of=seq)[-1]["content"] for seq in seqs]
        assert ends == ["3", "2", "3"]
        with pytest.raises(TranscriptError, match="no model request 0"):
            s.messages(of=0)


@pytest.mark.parametrize("across", [False, True])
def test_trimmed_edited_and_repeated_requests_are_one_conversation(root, world, across):
    """Also where they go on in another run."""
    world.turns = [chat("assistant", f"answer {n}") for n in range(6)]
    ask = model(world)
    system = chat("system", "Be brief.")
    s = conversation("s", root=root).__enter__()

    def say(messages):
        nonlocal s
        if across:
            s.close()
            s = conversation("s", root=root).__enter__()
        ask(messages)
        return s.messages()

    history = say([system, chat("user", "one")])
    history = say([*history, chat("user", "two")])
    trimmed = say([system, *history[3:], chat("user", "three")])
    summary = say([system, chat("user", "summary"), *trimmed[-2:], chat("user", "4")])
    marked = [*summary[:-1], {**summary[-1], "cache_control": {"type": "ephemeral"}}]
    last = say([*marked, chat("user", "five")])
    assert say(last[:-1])[-1]["content"] == "answer 5"
    s.close()


def test_requests_of_another_run_are_still_other_conversations(root, world):
    world.turns = [chat("assistant", n) for n in "12"]
    ask = model(world)
    with conversation("s", root=root):
        ask([chat("user", "weather?")])
    with conversation("s", root=root) as s:
        ask([chat("user", "trains?")])
        with pytest.raises(TranscriptError, match="several"):
            s.messages()


def test_a_changed_request_of_a_log_with_several_chats_is_a_divergence_not_a_guess(
    root, world
):
    world.turns = [chat("assistant", n) for n in "12"]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "weather?")])
        ask([chat("user", "trains?")])
        crash(s)
    world.turns = [chat("assistant", "3")]
    with session("s", root=root) as s:
        # One of the recorded conversations, gone on with.
        ask([chat("user", "weather?"), chat("assistant", "1"), chat("user", "why?")])
    assert len(world.asked) == 3


# other things ---------------------------------------------------------------------


def test_the_dialect_may_be_said(root, world):
    world.turns = [openai_turn(called("pay", {}, "x"))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        assert s.messages("openai") == s.messages()
        with pytest.raises(ValueError, match=r"'klingon'.*'openai'.*'anthropic'"):
            s.messages("klingon")


def test_objects_of_types_that_are_not_loaded_are_shown_as_json(root, tmp_path):
    """A process that looks at a log need not have the provider's package."""
    import subprocess
    import sys

    from openai.types.chat import ChatCompletion

    message = {
        "role": "assistant",
        "content": "hé",
        "tool_calls": [called("pay", {}, "x")],
        "extra": 1,
    }
    completion = ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        }
    )

    @checkpointed_llm(name="ask")
    def ask(messages):
        return completion

    with session("s", root=root) as s:
        ask([chat("user", "a")])
        here = s.messages()
        assert here[1] == message
        assert s.usage.total.input == 5
    code = (
        "import json, sys; from durable_agent import inspect_session\n"
        "looked = inspect_session('s', root=sys.argv[1])\n"
        "print(json.dumps([looked.messages(), looked.usage.total.input]))\n"
        "assert 'openai' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    messages, tokens = json.loads(done.stdout)
    assert messages[1] == message
    assert texts(messages)[0].startswith(TOOL_OUTCOME_UNKNOWN)
    assert tokens == 5


def test_usage_is_counted_by_model_and_what_replay_saved_is_told(root):
    def completion(model_, prompt, cached):
        return {
            "model": model_,
            "choices": [{"message": chat("assistant", "x"), "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
        }

    answers = [completion("a", 10, 4), completion("b", 20, 0), completion("a", 30, 20)]

    @checkpointed_llm(name="ask")
    def ask(messages):
        return answers.pop(0)

    def run(requests):
        with session("s", root=root) as s:
            for n in range(requests):
                ask([chat("user", str(n))])
            usage = s.usage
            crash(s)
            return usage

    first, again = run(2), run(3)

    assert (first.models["a"].input, first.models["a"].cached) == (10, 4)
    assert (first.models["b"].output, first.models["b"].reasoning) == (7, 3)
    assert first.saved == {}
    assert (first.requests, first.saved_requests) == (2, 0)
    assert again.models["a"].input == 40
    assert again.total.input == 60
    assert (again.total_saved.input, again.saved_requests) == (30, 2)
    with inspect_session("s", root=root) as looked:
        assert looked.usage.total == again.total


def test_a_resolution_that_nothing_happened_is_told(root, world):
    tool = tool_named(world, "pay")
    world.turns = [openai_turn(called("pay"))]
    ask = model(world)
    with session("s", root=root) as s:
        ask([chat("user", "a")])
        tool()
        crash(s)
    cut(root / "s", 5)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        s.resolve(call, NotApplied())
        assert "did not take effect" in texts(s.messages())[0]


def test_a_conversation_that_the_provider_keeps_is_put_together(root):
    """Requests that name the response that they go on after hold what is new only."""

    def response(n, *output):
        return {"object": "response", "id": f"resp_{n}", "output": list(output)}

    def said(text):
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "role": "assistant", "content": content}

    call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"}
    answers = [response(1, said("one")), response(2, call), response(3, said("three"))]

    @checkpointed_llm(name="ask")
    def ask(**request):
        return answers.pop(0)

    @checkpointed_tool(name="pay")
    def pay():
        return "paid"

    first, second = chat("user", "first"), chat("user", "second")
    output = {"type": "function_call_output", "call_id": "c1", "output": "paid"}
    with conversation("s", root=root) as s:
        ask(input="first")
        ask(input=[second], previous_response_id="resp_1")
        pay()
        assert s.messages() == [first, said("one"), second, call, output]
    with conversation("s", root=root) as s:
        ask(input=[output], previous_response_id="resp_2")
        assert s.messages() == [
            *(first, said("one"), second, call, output),
            said("three"),
        ]
    # One that began elsewhere: what was sent is all that is known.
    with conversation("other", root=root) as s:
        answers.append(response(9, said("nine")))
        ask(input=[output], previous_response_id="elsewhere")
        assert s.messages() == [output, said("nine")]


def test_what_an_sdk_did_between_request_and_response_is_shown(root):
    """google-genai calls functions by itself, and says afterwards what it sent."""
    from google.genai import types

    def content(role, *parts):
        return types.Content(role=role, parts=list(parts))

    asked = content("user", types.Part(text="How warm is it?"))
    call = content("model", types.Part.from_function_call(name="f", args={}))
    part = types.Part.from_function_response(name="f", response={"result": 20})
    answer = content("model", types.Part(text="20 degrees."))

    @checkpointed_llm(name="ask")
    def ask(contents):
        return types.GenerateContentResponse(
            candidates=[types.Candidate(content=answer)],
            automatic_function_calling_history=[asked, call, content("user", part)],
        )

    with session("s", root=root) as s:
        ask([asked])
        assert s.messages() == [asked, call, content("user", part), answer]
