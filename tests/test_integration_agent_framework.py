"""Tools and clients of Microsoft Agent Framework, decorated below and above."""

import asyncio
import contextlib
import copy
import shutil
from typing import Any

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    Agent,
    ChatOptions,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    function_middleware,
    tool,
)
from agent_framework.exceptions import UserInputRequiredException

from durable_agent import (
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    current_call,
    inspect_session,
    session,
)
from tests.agents.agent_framework_client import Scripted
from tests.frameworks.killing import Agent as Killed
from tests.frameworks.rows import ROWS

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("ignore:.*experimental"),
]

ROW = "agent-framework"
#: What ran, and the tool call that it ran for.
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def seen(label):
    call = current_call()
    RAN.append((label, call and call.tool_call_id))


def search(query: str, limit: int = 3) -> str:
    """Search the archive."""
    seen(query)
    return f"{limit} x {query}"


async def asearch(query: str, limit: int = 3) -> str:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, limit)


def with_context(ctx: FunctionInvocationContext, query: str, limit: int = 3) -> str:
    """Search the archive."""
    assert ctx.function.name == "search"
    return search(query, limit)


# Innermost, a call is told by the function's own name.
asearch.__name__ = with_context.__name__ = "search"
FUNCTIONS = {"sync": search, "async": asearch, "context": with_context}


def plain(name):
    return tool(FUNCTIONS[name])


def under(name):
    return tool(checkpointed_tool(FUNCTIONS[name]))


def over(name):
    return checkpointed_tool(plain(name))


FORMS = [
    *(
        pytest.param(under, n, marks=pytest.mark.framework(ROW, "under"))
        for n in FUNCTIONS
    ),
    *(
        pytest.param(over, n, marks=pytest.mark.framework(ROW, "over"))
        for n in FUNCTIONS
    ),
]


def run(tools, *turns, model=checkpointed_llm, **more):
    """What the model was shown, by the id of the call."""
    client = model(Scripted(turns=[*turns, "done"]))
    tools = tools if isinstance(tools, list) else [tools]
    response = asyncio.run(Agent(client=client, tools=tools, **more).run("hi"))
    assert response.text == "done"
    return shown_in(response)


@function_middleware
async def passing(context, call_next):
    """With middleware, the framework's context says which call it is for."""
    await call_next()


def shown_in(response):
    return {
        content.call_id: content.result
        for message in response.messages
        for content in message.contents
        if content.type == "function_result"
    }


def asks(id_="tc-1", name="search", **args):
    return [(name, args, id_)]


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root, kind="tool/call"):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type == kind]


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_decorated_tool_looks_like_the_undecorated_one(form, name):
    decorated, before = form(name), plain(name)

    assert isinstance(decorated, FunctionTool)
    assert type(decorated).__name__ == "FunctionTool"
    assert decorated.parameters() == before.parameters()
    assert decorated.to_json_schema_spec() == before.to_json_schema_spec()
    for attribute in ("name", "description", "approval_mode", "max_invocations"):
        assert getattr(decorated, attribute) == getattr(before, attribute)
    assert before.func is FUNCTIONS[name]


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, name):
    turns = [asks(query="a", limit=1), asks("tc-2", query="b")]

    with session("s", root=root):
        first = run(form(name), *turns, middleware=[passing])
    with again(root):
        second = run(form(name), *turns, middleware=[passing])

    assert first == {"tc-1": "1 x a", "tc-2": "3 x b"}
    assert second == first
    assert [label for label, _ in RAN] == ["a", "b"]
    found = recorded(root)
    assert [e.data["args"] for e in found] == [
        {"query": "a", "limit": 1},
        {"query": "b", "limit": 3},
    ]
    assert not any("parent" in e.head.meta for e in found)
    if form is over or name == "context":
        assert RAN == [("a", "tc-1"), ("b", "tc-2")]
        assert [e.data["tool_call_id"] for e in found] == ["tc-1", "tc-2"]


@pytest.mark.framework(ROW, "over")
def test_the_line_of_the_table_is_true(root):
    scope = {"checkpointed_tool": checkpointed_tool, "tools": [plain("sync")]}
    exec(ROWS[ROW].line, scope)  # noqa: S102 - it is the README's

    with session("s", root=root):
        run(scope["tools"], asks(query="a"))

    assert len(recorded(root)) == 1


def test_a_tool_may_be_called_itself(root):
    made = over("sync")

    with session("s", root=root):
        assert made("a") == "3 x a"
        found = asyncio.run(made.invoke(arguments={"query": "b"}))

    assert [content.text for content in found] == ["3 x b"]
    assert len(recorded(root)) == 2


def test_a_tool_of_a_class_is_bound(root):
    class Archive:
        place = "here"

        @checkpointed_tool
        @tool
        def search(self, query: str) -> str:
            """Search."""
            seen(query)
            return f"{self.place} {query}"

    with session("s", root=root):
        shown = run(Archive().search, asks(query="a"))

    assert shown == {"tc-1": "here a"}
    (call,) = recorded(root)
    assert call.data["args"] == {"query": "a"}


def test_a_tool_that_is_decorated_already_stays_itself():
    made = over("sync")

    assert checkpointed_tool(made) is made
    other = checkpointed_tool(made, effect="read_only")
    assert other is not made
    with pytest.raises(DecorationError, match="effect"):
        checkpointed_tool(other, effect="idempotent")


def test_copies_of_an_adapted_tool_are_recorded_as_well(root):
    with session("s", root=root):
        run(copy.copy(over("sync")), asks(query="a"))

    assert len(recorded(root)) == 1


def test_options_are_those_of_functions(root):
    with pytest.raises(DecorationError, match="limits"):
        checkpointed_tool(plain("sync"), ignore="limits")
    with pytest.raises(DecorationError, match="message"):
        checkpointed_llm(Scripted(turns=[]), ignore="message")
    how = checkpointed_tool(effect="read_only", ignore="limit", name="find")
    with session("s", root=root):
        run(how(plain("sync")), asks(query="a"))

    (call,) = recorded(root)
    assert call.head.meta["name"] == "find"
    assert call.data["args"] == {"query": "a"}


@pytest.mark.framework(ROW, "call id")
@pytest.mark.parametrize(
    ("form", "name"), [(over, "sync"), (over, "async"), (under, "context")]
)
def test_calls_of_one_turn_keep_their_ids(root, form, name):
    turn = [("search", {"query": "x"}, f"id-{n}") for n in range(8)]

    with session("s", root=root):
        first = run(form(name), turn, middleware=[passing])
    with again(root):
        second = run(form(name), turn, middleware=[passing])

    assert second == first
    assert sorted(RAN) == sorted(("x", f"id-{n}") for n in range(8))


# --- errors and pauses ----------------------------------------------------------------


def failing(query: str) -> str:
    """Fail."""
    seen(query)
    raise ValueError(f"no {query}")


failing.__name__ = "search"


def results_of(response):
    return [
        (content.result, content.exception)
        for message in response.messages
        for content in message.contents
        if content.type == "function_result"
    ]


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("above", [True, False])
def test_errors_are_shown_as_the_framework_does_and_replay(root, above):
    def ask(wrap=True):
        made = tool(failing)
        if wrap:
            made = (
                checkpointed_tool(made) if above else tool(checkpointed_tool(failing))
            )
        client = Scripted(turns=[asks(query="a"), "done"])
        client = checkpointed_llm(client) if wrap else client
        return results_of(asyncio.run(Agent(client=client, tools=[made]).run("hi")))

    shown = ask(wrap=False)
    with session("s", root=root):
        first = ask()
    with again(root):
        second = ask()

    assert first == second == shown
    assert len(RAN) == 2
    (result,) = recorded(root, "tool/result")
    assert result.head.meta["status"] == "error"


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("form", [under, over])
def test_a_failed_checkpoint_that_was_swallowed_is_raised_again(
    root, monkeypatch, form
):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            for _ in range(2):
                # A text, for the model.
                shown = run(form("sync"), asks(query="a"), model=lambda m: m)
                assert "rror" in shown["tc-1"]
                monkeypatch.undo()

    assert RAN == []


@pytest.mark.framework(ROW, "errors")
def test_what_is_in_doubt_is_told_to_the_model_in_our_words(root, tmp_path):
    """The log is as if the process had been killed while the tool ran."""

    def cut(query: str) -> str:
        """Search."""
        seen(query)
        shutil.copytree(root, tmp_path / "killed")
        return "found"

    cut.__name__ = "search"
    made = checkpointed_tool(tool(cut))
    with session("s", root=root):
        run(made, asks(query="a"))
    with session("s", root=tmp_path / "killed"):
        shown = run(made, asks(query="a"))["tc-1"]

    assert "may or may not" in shown
    assert len(RAN) == 1


@pytest.mark.framework(ROW, "pauses")
def test_a_tool_that_needs_the_user_is_no_outcome(root):
    def pay(amount: int) -> str:
        """Pay."""
        raise UserInputRequiredException(contents=[])

    made = checkpointed_tool(tool(pay))

    async def call():
        await made.invoke(arguments={"amount": 5}, tool_call_id="tc-1")

    with session("s", root=root), pytest.raises(UserInputRequiredException):
        asyncio.run(call())

    (result,) = recorded(root, "tool/result")
    assert result.data["suspended"] is True


@pytest.mark.framework(ROW, "pauses")
def test_an_approval_comes_before_the_tool_is_called(root):
    def ask():
        made = checkpointed_tool(tool(search, approval_mode="always_require"))
        client = checkpointed_llm(Scripted(turns=[asks(query="a"), "done"]))
        agent = Agent(client=client, tools=[made])

        async def approved():
            thread = agent.create_session()
            first = await agent.run("hi", session=thread)
            (asked,) = first.user_input_requests
            contents = [asked.to_function_approval_response(True)]
            answer = Message(role="user", contents=contents)
            return (await agent.run(answer, session=thread)).text

        return asyncio.run(approved())

    with session("s", root=root):
        first = ask()
    with again(root):
        assert ask() == first == "done"

    assert RAN == [("a", "tc-1")]
    assert len(recorded(root)) == 1


# --- clients --------------------------------------------------------------------------

HI = [Message(role="user", contents=["hi"])]


def bare(tree):
    """Without the ids that the framework draws where it passes something on."""
    if isinstance(tree, dict):
        return {name: bare(value) for name, value in tree.items() if name != "id"}
    return list(map(bare, tree)) if isinstance(tree, list) else tree


def whole(client):
    return bare(asyncio.run(client.get_response(HI)).to_dict())


def streamed(client):
    async def take():
        stream = client.get_response(HI, stream=True)
        found = [bare(update.to_dict()) async for update in stream]
        return [*found, (await stream.get_final_response()).text]

    return asyncio.run(take())


@pytest.mark.framework(ROW, "model")
@pytest.mark.framework(ROW, "stream")
@pytest.mark.parametrize("way", [whole, streamed])
@pytest.mark.parametrize("said", ["it is done", asks(query="a")])
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way, said):
    sent: list[Any] = []

    def client():
        made = checkpointed_llm(Scripted(turns=[said], send=sent.append))
        assert isinstance(made, Scripted)
        assert type(made).__name__ == "Scripted"
        return made

    with session("s", root=root):
        first = way(client())
    with again(root):
        second = way(client())

    assert second == first
    assert sent == [0]
    assert len(recorded(root, "llm/request")) == 1


@pytest.mark.framework(ROW, "stream")
def test_a_stream_that_was_broken_off_is_not_complete(root):
    sent: list[Any] = []

    async def take(count):
        client = checkpointed_llm(Scripted(turns=["it is done"], send=sent.append))
        stream = client.get_response(HI, stream=True)
        found = []
        async for update in stream:
            found.append(update.text)
            if len(found) == count:
                break
        await stream.close()
        return found

    with session("s", root=root):
        first = asyncio.run(take(1))
    with again(root):
        assert asyncio.run(take(1)) == first == ["it"]
        assert sent == [0]
    with again(root):
        assert asyncio.run(take(9)) == ["it", "is", "done"]

    assert sent == [0, 0]


@pytest.mark.framework(ROW, "model")
def test_what_the_model_is_sent_is_recorded(root):
    client = checkpointed_llm(Scripted(turns=["x"]))
    options = ChatOptions(temperature=0.5)
    options["extra_headers"] = {"Authorization": "secret-1"}
    agent = Agent(
        client=client,
        tools=[plain("sync")],
        instructions="Be brief.",
        default_options=options,
    )
    with session("s", root=root):
        asyncio.run(agent.run("hi"))

    (request,) = recorded(root, "llm/request")
    told = request.data["args"]["options"]
    assert told["instructions"] == "Be brief."
    assert told["temperature"] == 0.5
    assert [each["name"] for each in told["tools"]] == ["search"]
    assert "extra_headers" not in told
    assert request.data["args"]["messages"] == [
        {
            "type": "message",
            "role": "user",
            "contents": [{"type": "text", "text": "hi"}],
        }
    ]


# --- refusals -------------------------------------------------------------------------


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize("decorator", [checkpointed_tool, checkpointed_llm])
def test_an_agent_is_refused(decorator):
    with pytest.raises(TypeError, match="its tools and its client"):
        decorator(Agent(client=Scripted(turns=["x"])))


@pytest.mark.framework(ROW, "over")
def test_a_tool_that_is_run_elsewhere_is_refused():
    with pytest.raises(DecorationError, match="run elsewhere"):
        checkpointed_tool(FunctionTool(name="x", description="d"))


def test_a_tool_is_no_model_and_a_client_no_tool():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(plain("sync"))
    with pytest.raises(DecorationError, match="checkpointed_llm"):
        checkpointed_tool(Scripted(turns=[]))


@pytest.mark.framework(ROW, "over")
def test_a_version_without_what_is_needed_is_refused_by_name(monkeypatch):
    made, client = plain("sync"), Scripted(turns=[])
    monkeypatch.delattr(FunctionTool, "_invoke_function")
    monkeypatch.delattr("agent_framework.BaseChatClient._build_response_stream")

    with pytest.raises(DecorationError, match=r"agent-framework-core \d.*_invoke_func"):
        checkpointed_tool(made)
    with pytest.raises(DecorationError, match=r"agent-framework-core \d.*_build_resp"):
        checkpointed_llm(client)


# --- killed and run again -------------------------------------------------------------

KILLS = {"model 0: end": ["0"], "model 1: end": ["1"], "model 2: begin": []}
DOUBTS = [f"body {n}: {e}" for n in ("pay", "mail") for e in ("begin", "end")]


@pytest.fixture
def killed(tmp_path, run_python):
    return Killed("agent_framework_agent.py", tmp_path, run_python)


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("point", KILLS)
def test_a_killed_agent_goes_on_where_it_was(killed, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = killed.killed_at(point, way)

    text = second.stdout.replace("alldone", "all done")
    for shown in ("paid 5", "nothing at a", "sent paid", "all done"):
        assert shown in text
    assert killed.effects() == ["mail", "pay"]
    assert killed.requests() == sorted(["0", "1", "2", *KILLS[point]])


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize("point", DOUBTS)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(killed, point):
    second, _ = killed.killed_at(point)

    name = point.split()[1].rstrip(":")
    assert killed.effects().count(name) == point.endswith("end")
    requests = killed.requests()
    assert len(requests) == len(set(requests))
    assert "may or may not" in second.stdout
