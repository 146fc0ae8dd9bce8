"""Which tool call of a response a call answers, in every provider's form."""

import asyncio
import contextvars
import dataclasses
import enum
import json

import pytest
from langchain_core.messages import AIMessage

from durable_agent import (
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
    tool_call_id,
)

# One response with these calls, each a name, arguments and an id (None: left out).


def _openai(calls):
    entries = []
    for name, arguments, id_ in calls:
        function = {"name": name, "arguments": json.dumps(arguments)}
        entry = {"type": "function", "function": function}
        entries.append(entry if id_ is None else {"id": id_, **entry})
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _responses(calls):
    items = []
    for name, arguments, id_ in calls:
        item = {
            "type": "function_call",
            "name": name,
            "arguments": json.dumps(arguments),
        }
        items.append(item if id_ is None else {**item, "call_id": id_})
    return {"object": "response", "id": "r", "output": items}


def _anthropic(calls):
    blocks = []
    for name, arguments, id_ in calls:
        block = {"type": "tool_use", "name": name, "input": arguments}
        blocks.append(block if id_ is None else {**block, "id": id_})
    return {"type": "message", "role": "assistant", "content": blocks}


def _gemini(calls):
    parts = []
    for name, arguments, id_ in calls:
        call = {"name": name, "args": arguments}
        parts.append({"functionCall": call if id_ is None else {**call, "id": id_}})
    return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


def _langchain(calls):
    return AIMessage(
        content="",
        tool_calls=[{"name": n, "args": a, "id": id_} for n, a, id_ in calls],
    )


FORMS = [_openai, _responses, _anthropic, _gemini, _langchain]

#: How ids may be: good, and as some servers give them.
IDS = {
    "own": ["a", "b", "c"],
    "repeated": ["a", "b", "a"],
    "constant": ["0", "0", "0"],
    "missing": [None, None, None],
    "some missing": ["a", None, None],
}


def linked(s):
    """Return the token of the tool call that each recorded call answers, in order."""
    return [e.meta.get("tcid") for e in s.events() if e.type == "tool/call"]


def model(*responses):
    left = list(responses)

    @checkpointed_llm(name="ask")
    def ask(messages):
        return left.pop(0)

    return ask


@checkpointed_tool(name="add")
def add(x, y=1):
    return f"{x}+{y}"


@checkpointed_tool(name="other")
def other(x):
    return f"other {x}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_calls_find_their_tool_calls_by_name_and_arguments(root, form, ids):
    """Whatever the ids, in whatever order: every call has one result, the right one."""
    calls = [("add", {"x": 1}), ("other", {"x": 1}), ("add", {"x": 2, "y": 3})]
    ask = model(form([(*call, id_) for call, id_ in zip(calls, ids, strict=True)]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        add(2, 3)
        other(1)
        add(1)
        tokens = linked(s)
        shown = _texts(s.messages())

    assert None not in tokens
    assert len(set(tokens)) == 3
    assert shown == ["1+1", "other 1", "2+3"]


@pytest.mark.parametrize("form", FORMS)
def test_equal_calls_are_answered_in_order(root, form):
    given = iter(["first", "second"])

    @checkpointed_tool(name="draw")
    def draw():
        return next(given)

    ask = model(form([("draw", {}, None), ("draw", {}, None)]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        draw()
        draw()

        assert len(set(linked(s))) == 2
        assert _texts(s.messages()) == ["first", "second"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("restarted", [["a", "b"], ["0", "0"], [None, None]])
def test_ids_that_start_anew_with_each_response_are_told_apart(root, form, restarted):
    ask = model(
        *(
            form([("add", {"x": n}, restarted[0]), ("other", {"x": n}, restarted[1])])
            for n in (1, 2)
        )
    )
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        add(1)
        other(1)
        ask([*s.messages(), {"role": "user", "content": "on"}])
        other(2)
        add(2)
        messages = s.messages()

    assert _texts(messages) == ["1+1", "other 1", "2+1", "other 2"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_said_explicitly_wins(root, form):
    ask = model(form([("add", {"x": 1}, "a"), ("add", {"x": 1}, "b")]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        with tool_call_id("b"):
            add(1)

        assert linked(s) == ["b"]


def test_an_id_that_was_given_twice_and_is_said_goes_to_the_call_that_waits(root):
    """Not to the first again, because that one failed; but a retry goes to it."""

    @checkpointed_tool(name="f")
    def f(n):
        if n == 1 and not tries:
            tries.append(n)
            raise ValueError("busy")
        return n

    tries = []
    ask = model(_openai([("f", {"n": 1}, "a"), ("f", {"n": 2}, "a")]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        with tool_call_id("a"):
            with pytest.raises(ValueError, match="busy"):
                f(1)
            f(1)
            f(2)

        assert linked(s) == ["a", "a", "a#2"]
        assert _texts(s.messages()) == ["1", "2"]


@pytest.mark.parametrize("form", FORMS)
def test_a_replay_links_as_the_first_run_did(root, form):
    response = form([("add", {"x": n}, None) for n in (1, 2, 1)])
    ask = model(response)

    def run():
        with session("s", root=root) as s:
            ask([{"role": "user", "content": "go"}])
            for n in (1, 1, 2):
                add(n)
            return linked(s), _texts(s.messages())

    first = run()
    with pytest.warns(FinishedSessionWarning):
        again = run()

    assert first == again


@pytest.mark.parametrize("form", FORMS)
def test_parallel_calls_find_their_own(root, form):
    @checkpointed_tool(name="wait")
    async def wait(n):
        for _ in range(3 - n):
            await asyncio.sleep(0)
        return n

    ask = model(form([("wait", {"n": n}, None) for n in (0, 1, 2)]))

    async def run():
        async with session("s", root=root) as s:
            ask([{"role": "user", "content": "go"}])
            await asyncio.gather(*map(wait, (2, 0, 1)))
            return _texts(s.messages())

    assert asyncio.run(run()) == ["0", "1", "2"]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


@pytest.mark.parametrize(
    ("asked", "given", "same"),
    [
        ({"v": 1}, 1.0, True),
        ({"v": 1}, True, False),
        ({"v": True}, True, True),
        ({"v": "red"}, Colour.RED, True),
        ({"v": {"width": 2}}, Size(2), True),
        ({"v": {"width": 2, "height": 3}}, Size(2), False),
        ({"v": [1, {"a": None}]}, (1, {"a": None}), True),
        ({"v": [1]}, [1, 2], False),
        ({"v": "a"}, "b", False),
        ({"w": 1}, 1, False),
    ],
)
def test_arguments_are_compared_as_json(root, asked, given, same):
    @checkpointed_tool(name="f")
    def f(v):
        return "done"

    ask = model(_openai([("f", asked, "a")]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        f(given)

        assert linked(s) == (["a"] if same else [None])


def test_ids_of_any_length_and_letters_are_found_again(root):
    ids = ["x" * 5000, "\ud83c", "ü" * 200]
    ask = model(_openai([("add", {"x": n}, id_) for n, id_ in enumerate(ids)]))
    with session("s", root=root) as s:
        ask([{"role": "user", "content": "go"}])
        for n in range(3):
            add(n)
        assert _texts(s.messages()) == ["0+1", "1+1", "2+1"]


def _texts(messages):
    """The texts of the results, in the order in which they stand."""
    found = []
    for message in messages:
        found += _results(message)
    return found


def _results(message):
    if not isinstance(message, dict):
        return [message.content] if message.type == "tool" else []
    if message.get("role") == "tool":
        return [message["content"]]
    if message.get("type") == "function_call_output":
        return [message["output"]]
    blocks = message.get("content")
    if isinstance(blocks, list):
        return [b["content"] for b in blocks if b.get("type") == "tool_result"]
    answers = [
        part.get("functionResponse") or part.get("function_response")
        for part in message.get("parts", ())
    ]
    return [answer["response"]["result"] for answer in answers if answer]


def _linked(root):
    """For each tool call of the log: its arguments, and the request it answers."""
    with inspect_session("s", root=root) as seen:
        events = list(seen.events())
    requests = {e.call: e.data["args"] for e in events if e.type == "llm/request"}
    return [
        (e.data["args"], requests[e.meta["resp"]])
        for e in events
        if e.type == "tool/call"
    ]


@pytest.mark.filterwarnings("ignore::durable_agent.errors.FinishedSessionWarning")
def test_of_agents_that_were_told_the_same_id_the_one_that_asked_is_answered(root):
    """Graphs run each node in a context of its own, and servers count anew."""
    ran = []

    @checkpointed_llm
    def ask(messages):
        return _openai([("send", {"to": messages}, "call_0")])

    @checkpointed_tool
    def send(to):
        ran.append(to)

    def run():
        with session("s", root=root):
            for name in ("ann", "bob", "cyd"):
                contextvars.copy_context().run(ask, name)
            for name in ("ann", "cyd", "bob"):
                with tool_call_id("call_0"):
                    contextvars.copy_context().run(send, name)

    for _ in range(2):
        run()

    assert ran == ["ann", "cyd", "bob"]
    assert _linked(root) == [
        ({"to": name}, {"messages": name}) for name in ("ann", "cyd", "bob")
    ]


@pytest.mark.filterwarnings("ignore::durable_agent.errors.FinishedSessionWarning")
def test_of_equal_calls_with_the_same_id_the_one_of_the_same_agent_is_answered(root):
    """Two agents run as tools of a third, each asked for the very same thing."""

    @checkpointed_llm
    def ask(messages):
        return _openai([("send", {"to": "ann"}, "call_0")])

    @checkpointed_tool
    def send(to):
        return to

    told = {}

    @checkpointed_tool(effect="composite")
    async def agent(name):
        contextvars.copy_context().run(ask, name)
        told[name].set()
        # The first that asked is the first that sends, when both have asked.
        await told["sent" if name == "two" else "two"].wait()
        with tool_call_id("call_0"):
            sent = contextvars.copy_context().run(send, "ann")
        told["sent"].set()
        return sent

    async def main():
        told.update({name: asyncio.Event() for name in ("one", "two", "sent")})
        async with session("s", root=root):
            return await asyncio.gather(agent("one"), agent("two"))

    asyncio.run(main())
    with inspect_session("s", root=root) as seen:
        events = list(seen.events())
    asked = {e.call: e.meta["parent"] for e in events if e.type == "llm/request"}
    sent = [e.meta for e in events if e.type == "tool/call" and e.meta.get("resp")]

    assert len(sent) == 2
    assert all(asked[meta["resp"]] == meta["parent"] for meta in sent)
