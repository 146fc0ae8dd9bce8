"""Calls and conversations made in unusual ways: nothing is guessed wrong."""

import asyncio
import json
import threading

import pytest

from durable_agent import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    EqualCallsWarning,
    ResultNotStorableWarning,
    ToolOutcomeUnknownError,
    TranscriptError,
    TranscriptWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    current_call,
    session,
    tool_call_id,
)
from tests.disks import crash, cut


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def wants(*calls):
    entries = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments, id_ in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": entries}


def model(*answers, name="ask", **options):
    left = list(answers)

    @checkpointed_llm(name=name, **options)
    def ask(messages, **more):
        return left.pop(0)

    return ask


@checkpointed_tool(name="pay")
def pay(n=0):
    return f"paid {n}"


def texts(messages):
    return [m["content"] for m in messages if m["role"] == "tool"]


def codes(messages):
    return [text.split(":")[0] for text in texts(messages)]


# a call whose link was lost -------------------------------------------------------


def test_a_tool_that_ran_while_its_response_was_still_streamed_is_not_called_unstarted(
    root,
):
    """Some loops start a tool as soon as its call is whole."""
    call = {"index": 0, **wants(("pay", {"n": 1}, "t1"))["tool_calls"][0]}
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "tool_calls": [call]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]

    @checkpointed_llm(name="ask")
    def ask(messages):
        yield from chunks

    with session("s", root=root) as s:
        stream = ask([user("a")])
        next(stream)
        pay(1)
        list(stream)
        assert texts(s.messages()) == ["paid 1"]
        events = list(s.events())
        crash(s)
    # Cut after the intent: it may have run.
    cut(root / "s", next(e.seq for e in events if e.type == "tool/call") + 1)
    with conversation("s", root=root) as s:
        assert TOOL_NOT_STARTED not in str(s.messages())


@pytest.mark.parametrize("explicit", [False, True])
def test_a_model_called_in_another_task_does_not_cost_the_result(root, explicit):
    """Tasks and threads do not give their context back."""
    ask = model(wants(("pay", {"n": 1}, "t1")))

    async def run():
        async with session("s", root=root) as s:
            await asyncio.create_task(asyncio.to_thread(ask, [user("a")]))
            if explicit:
                with tool_call_id("t1"):
                    pay(1)
            else:
                pay(1)
            return s.messages()

    assert texts(asyncio.run(run())) == ["paid 1"]


def test_a_result_is_found_for_equal_calls_of_threads_each_once(root):
    ask = model(wants(*(("draw", {}, f"t{n}") for n in range(3))))
    drawn = iter(range(3))

    @checkpointed_tool(name="draw")
    def draw():
        return next(drawn)

    with session("s", root=root) as s:
        ask([user("a")])
        for _ in range(2):
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()

        shown = texts(s.messages())
    assert shown[:2] == ["0", "1"]
    assert shown[2].startswith(TOOL_OUTCOME_UNKNOWN)


def test_a_side_request_does_not_come_between_a_response_and_its_tools(root):
    ask = model(wants(("pay", {"n": 1}, "t1")))
    title = model(said("A title"), name="title", transcript=False)
    with session("s", root=root) as s:
        ask([user("a")])
        title([user("a title for: a")])
        pay(1)
        (intent,) = [e for e in s.events() if e.type == "tool/call"]

        assert intent.meta["tcid"] == "t1"
        assert texts(s.messages()) == ["paid 1"]


def test_an_id_that_no_response_has_is_no_proof_that_a_call_never_started(root):
    """A program that says the id of the item, not of the call."""
    ask = model(wants(("pay", {"n": 1}, "t1")))
    with session("s", root=root) as s:
        ask([user("a")])
        with tool_call_id("fc_1"):
            pay(2)

        assert codes(s.messages()) == [TOOL_OUTCOME_UNKNOWN]


def test_two_agents_in_lockstep_are_not_told_lies(root):
    """One context, equal calls: whose call it was cannot be told."""
    turn = wants(("pay", {"n": 1}, "t1"))
    one, two = model(turn, name="one"), model(turn, name="two")
    with session("s", root=root) as s:
        one([user("a")])
        two([user("b")])
        pay(1)

        assert codes(s.messages(of=one)) == [TOOL_OUTCOME_UNKNOWN]
        assert texts(s.messages(of=two)) == ["paid 1"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"n": "5"}, {"n": 5}),
        ({"n": 5, "why": "made up"}, {"n": 5}),
    ],
)
def test_arguments_put_right_on_the_way_still_find_the_call(root, asked, given):
    ask = model(wants(("pay", asked, "t1")))
    with session("s", root=root) as s:
        ask([user("a")])
        pay(**given)

        assert texts(s.messages()) == ["paid 5"]


def test_other_arguments_are_another_call(root):
    ask = model(wants(("pay", {"n": 1}, "t1")))
    with session("s", root=root) as s:
        ask([user("a")])
        pay(2)

        assert codes(s.messages()) == [TOOL_OUTCOME_UNKNOWN]


def test_a_call_that_was_made_for_a_later_request_is_not_the_earlier_one_s(root):
    ask = model(wants(("pay", {"n": 1}, "t1")), said("ok"))
    with session("s", root=root) as s:
        ask([user("a")])
        ask([user("a"), wants(("pay", {"n": 1}, "t1")), user("well?")])
        pay(1)

        assert codes(s.messages()) == [TOOL_OUTCOME_UNKNOWN]


@pytest.mark.parametrize("first", [{}, {"filter": {}}])
def test_the_call_that_says_most_of_what_was_given_is_meant(root, first):
    more = {"n": 2} if not first else {"filter": {"city": "Rome"}}

    @checkpointed_tool(name="f")
    def f(n=1, filter=None):
        return json.dumps([n, filter])

    ask = model(wants(("f", first, "t1"), ("f", more, "t2")))
    with session("s", root=root) as s:
        ask([user("a")])
        second = f(**more)
        assert codes(s.messages())[0] == TOOL_NOT_STARTED
        f(**first)

        assert texts(s.messages())[1] == second
        assert codes(s.messages())[0] != TOOL_NOT_STARTED


@pytest.mark.parametrize("error", [TimeoutError, asyncio.CancelledError, ValueError])
def test_a_retry_of_a_tool_call_is_the_same_call(root, error):
    """One key for every attempt, and the model sees how the last one ended."""
    keys = []

    @checkpointed_tool(name="try_it")
    async def try_it():
        keys.append(current_call().idempotency_key)
        if len(keys) == 1:
            raise error
        return "done"

    ask = model(wants(("try_it", {}, "t1")))

    async def run():
        async with session("s", root=root) as s:
            ask([user("a")])
            with pytest.raises(error):
                await try_it()
            await try_it()
            return s.messages()

    assert texts(asyncio.run(run())) == ["done"]
    assert len(set(keys)) == 1


# which conversation ---------------------------------------------------------------


def test_agents_that_get_the_same_task_in_different_roles_are_not_mixed_up(root):
    ask = model(said("1"), said("2"), said("3"), said("4"))
    with session("s", root=root) as s:
        for more in ({"system": "a"}, {"system": "b"}):
            ask([user("go")], **more)
        with pytest.raises(TranscriptError, match="several"):
            s.messages()
    with session("t", root=root) as s:
        for role in ("cook", "critic"):
            ask([{"role": "system", "content": role}, user("go")])
        with pytest.raises(TranscriptError, match="several"):
            s.messages()


def test_a_title_generator_that_is_not_marked_is_no_guess(root):
    ask, title = model(said("1"), said("3")), model(said("A title"), name="title")
    with session("s", root=root) as s:
        ask([user("go")])
        history = s.messages()
        title([*history[:1], user("A title, please.")])
        with pytest.raises(TranscriptError, match="ask, title"):
            s.messages()
        ask([*history, user("on")])
        assert s.messages(of=ask)[-1] == said("3")


def test_models_that_stand_in_for_one_another_are_one_conversation(root):
    """One fails, another answers, the first goes on with a longer request."""
    tries = []

    @checkpointed_llm(name="dear")
    def dear(messages):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("busy")
        return said("dear")

    cheap = model(said("cheap"), name="cheap")
    with session("s", root=root) as s:
        with pytest.raises(ConnectionError):
            dear([user("a")])
        cheap([user("a")])
        assert s.messages() == [user("a"), said("cheap")]
        dear([*s.messages(), user("b")])
        assert s.messages()[-1] == s.messages(of=dear)[-1] == said("dear")


def test_an_answer_in_other_words_is_gone_on_with_all_the_same(root):
    """Programs append the text alone; system prompts have clocks in them."""
    whole = {**said("hello"), "refusal": None, "annotations": [], "audio": None}
    ask = model(whole, said("2"))

    def clock(n):
        return {"role": "system", "content": f"It is {n} o'clock."}

    with session("s", root=root) as s:
        ask([clock(1), user("a")])
        ask([clock(2), user("a"), said("hello"), user("b")])

        assert s.messages()[-1] == said("2")


def test_what_chats_have_in_common_does_not_make_them_one(root):
    ask = model(*(said("OK") for _ in range(4)))
    with session("s", root=root) as s:
        ask([user("first"), said("x"), user("continue")])
        ask([user("second"), said("y"), user("continue")])
        ask([user("third"), said("OK"), user("continue")])
        with pytest.raises(TranscriptError, match="several"):
            s.messages()
        seqs = [e.seq for e in s.events() if e.type == "llm/request"]
        starts = [s.messages(of=seq)[0]["content"] for seq in seqs]
    assert starts == ["first", "second", "third"]


@pytest.mark.parametrize("again", [False, True])
def test_many_small_requests_in_between_do_not_end_a_conversation(root, again):
    ask = model(said("1"), said("2"))
    classify = model(*(said("yes") for _ in range(70)), name="classify")
    s = conversation("s", root=root).__enter__()
    ask([user("a")])
    history = s.messages(of=ask)
    for n in range(70):
        classify([user(f"is {n} large?")])
    if again:
        s.close()
        s = conversation("s", root=root).__enter__()
    ask([*history, user("b")])
    assert s.messages(of=ask)[-1] == said("2")
    s.close()


def test_a_conversation_that_the_provider_keeps_is_known_by_its_id(root):
    def response(n):
        content = [{"type": "output_text", "text": str(n)}]
        item = {"type": "message", "role": "assistant", "content": content}
        return {"object": "response", "id": f"r{n}", "output": [item]}

    answers = [response(1), response(2)]

    @checkpointed_llm(name="ask")
    def ask(**request):
        return answers.pop(0)

    with session("s", root=root) as s:
        ask(input="one", conversation="conv_1")
        ask(input=[user("two")], conversation={"id": "conv_1"})
        assert len(s.messages()) == 2


# other things ---------------------------------------------------------------------


def test_messages_in_positional_arguments_are_seen(root):
    @checkpointed_llm(name="ask")
    def ask(*args):
        return said("yes")

    with session("s", root=root) as s:
        ask("m", [user("a")])
        assert s.messages() == [user("a"), said("yes")]


def test_a_request_that_shows_no_messages_is_warned_of(root):
    @checkpointed_llm(name="ask")
    def ask(prompt):
        return said("yes")

    with session("s", root=root) as s:
        ask("a")
        with pytest.warns(TranscriptWarning, match="no messages"):
            assert s.messages() == [said("yes")]


def test_what_a_model_call_costs_is_counted_once(root):
    usage = {"prompt_tokens": 10, "completion_tokens": 5}

    def completion():
        return {"model": "m", "choices": [{"message": said("x")}], "usage": usage}

    @checkpointed_llm(name="inner")
    def inner(messages):
        return completion()

    @checkpointed_llm(name="outer")
    def outer(messages):
        return inner(messages)

    @checkpointed_llm(name="text")
    def text(messages):
        return inner(messages)["choices"][0]["message"]["content"]

    with session("s", root=root) as s:
        outer([user("a")])
        assert s.usage.total.input == 10
        text([user("b")])
        assert s.usage.total.input == 20


def test_any_of_many_conversations_can_be_gone_on_with_in_a_later_run(root):
    """How many are looked at first is a matter of speed, not of meaning."""
    ask = model(*(said(str(n)) for n in range(40)))
    with conversation("s", root=root) as s:
        for n in range(12):
            ask([user(f"chat {n}")])
        seqs = [e.seq for e in s.events() if e.type == "llm/request"]
    for n in range(12):
        with conversation("s", root=root) as s:
            ask([*s.messages(of=seqs[n]), user("more")])
            shown = s.messages(of=seqs[n])
        wanted = [f"chat {n}", str(n), "more", f"{12 + n}"]
        assert [m["content"] for m in shown] == wanted


def test_a_call_has_one_outcome_and_one_result_however_it_ends(root):
    """It returned, and then raised; it completed, and its value cannot be stored."""

    class Odd:
        def __reduce__(self):
            raise RuntimeError("not to be pickled, nor anything else")

    @checkpointed_tool(name="late")
    def late():
        try:
            return "returned"
        finally:
            raise ValueError("in the end")

    @checkpointed_tool(name="odd")
    def odd():
        return lambda: Odd()

    ask = model(wants(("late", {}, "t1"), ("odd", {}, "t2")))
    with session("s", root=root) as s:
        ask([user("a")])
        with pytest.raises(ValueError, match="in the end"):
            late()
        with pytest.warns(ResultNotStorableWarning):
            odd()
        outcomes = [e.call for e in s.events() if e.type == "tool/result"]
        shown = s.messages()

    assert len(outcomes) == len(set(outcomes)) == 2
    assert [m["tool_call_id"] for m in shown if m["role"] == "tool"] == ["t1", "t2"]
    assert codes(shown) == ["ValueError", "RESULT_NOT_STORABLE"]


def test_agents_that_ask_at_once_with_the_same_words_are_two(root):
    """One that is still being asked is not gone on with by another."""
    answers = iter(["1", "2", "3", "4"])

    @checkpointed_llm(name="ask")
    async def ask(messages):
        await asyncio.sleep(0)
        return said(next(answers))

    async def run():
        async with session("s", root=root) as s:
            await asyncio.gather(*(ask([user("go")]) for _ in range(2)))
            with pytest.raises(TranscriptError, match="several"):
                s.messages()
            seqs = [e.seq for e in s.events() if e.type == "llm/request"]
            first = s.messages(of=seqs[0])
            await ask([*first, user("on")])
            return [s.messages(of=seq) for seq in seqs]

    with pytest.warns(EqualCallsWarning):
        one, other = asyncio.run(run())
    assert [len(one), len(other)] == [4, 2]


def test_what_failed_and_was_tried_in_another_way_is_no_conversation(root):
    """A stand-in that failed too, then a shorter request of the first."""
    tries = []

    @checkpointed_llm(name="dear")
    def dear(messages):
        tries.append(1)
        if len(tries) == 2:
            raise ConnectionError("busy")
        return said(f"dear {len(tries)}")

    @checkpointed_llm(name="cheap")
    def cheap(messages):
        raise ValueError("too long")

    with session("s", root=root) as s:
        dear([user("a")])
        history = s.messages()
        for model_, error in ((dear, ConnectionError), (cheap, ValueError)):
            with pytest.raises(error):
                model_([*history, user("a long question")])
        dear([*history, user("short")])

        assert s.messages()[-1] == said("dear 3")


def test_a_response_that_failed_is_no_turn(root):
    item = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": '{"n'}
    failed = {"object": "response", "id": "r", "status": "failed", "output": [item]}

    @checkpointed_llm(name="ask")
    def ask(input):
        return failed

    with session("s", root=root) as s:
        ask([user("a")])
        assert s.messages() == [user("a")]


def test_what_the_model_was_told_is_in_doubt_is_not_run_for_the_same_tool_call(root):
    """A graph that goes on from a state of its own asks for its tools again."""
    ran = []

    @checkpointed_tool(name="once")
    def once():
        ran.append(1)
        return "done"

    ask = model(wants(("once", {}, "t1")))
    with session("s", root=root) as s:
        ask([user("a")])
        with tool_call_id("t1"):
            once()
        events = list(s.events())
        crash(s)
    cut(root / "s", next(e.seq for e in events if e.type == "tool/call") + 1)
    with conversation("s", root=root) as s:
        with pytest.raises(ToolOutcomeUnknownError), tool_call_id("t1"):
            once()
        s.append("app/note")
        with pytest.raises(ToolOutcomeUnknownError), tool_call_id("t1"):
            once()
        assert codes(s.messages()) == [TOOL_OUTCOME_UNKNOWN]
    assert ran == [1]
