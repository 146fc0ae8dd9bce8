"""Tools and model clients of AutoGen, decorated below and above its own wrappers."""

import asyncio
import contextlib
import copy
import shutil
from typing import Any

import pytest

pytest.importorskip("autogen_agentchat")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, UserMessage
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench
from pydantic import BaseModel

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
from tests.agents.autogen_model import Scripted
from tests.frameworks.killing import Agent as Killed
from tests.frameworks.rows import ROWS

pytestmark = pytest.mark.more_frameworks

ROW = "autogen"
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


def with_token(
    query: str, cancellation_token: CancellationToken, limit: int = 3
) -> str:
    """Search the archive."""
    assert not cancellation_token.is_cancelled()
    return search(query, limit)


class Args(BaseModel):
    query: str
    limit: int = 3


class SearchTool(BaseTool[Args, str]):
    """A tool with a class of its own."""

    def __init__(self):
        super().__init__(Args, str, "search", "Search the archive.")
        self.client = object()

    async def run(self, args: Args, cancellation_token: CancellationToken) -> str:
        assert self.client is not None
        return search(args.query, args.limit)


# Innermost, a call is told by the function's own name.
asearch.__name__ = with_token.__name__ = "search"
FUNCTIONS = {"sync": search, "async": asearch, "token": with_token}


def plain(name):
    if name == "class":
        return SearchTool()
    return FunctionTool(FUNCTIONS[name], "Search the archive.", name="search")


def under(name):
    return FunctionTool(
        checkpointed_tool(FUNCTIONS[name]), "Search the archive.", name="search"
    )


def over(name):
    return checkpointed_tool(plain(name))


FORMS = [
    *(
        pytest.param(under, n, marks=pytest.mark.framework(ROW, "under"))
        for n in FUNCTIONS
    ),
    *(
        pytest.param(over, n, marks=pytest.mark.framework(ROW, "over"))
        for n in [*FUNCTIONS, "class"]
    ),
]


def run(tools, *turns, model=checkpointed_llm, **more):
    """What the model was shown, by the id of the call."""
    client = Scripted([*turns, "done"])
    agent = AssistantAgent(
        "main",
        model_client=model(client),
        tools=tools if isinstance(tools, list) else [tools],
        max_tool_iterations=9,
        **more,
    )
    result = asyncio.run(agent.run(task="hi"))
    assert result.messages[-1].content == "done"
    shown = [m.content for m in result.messages if m.type == "ToolCallExecutionEvent"]
    return {
        each.call_id: (each.content, each.is_error) for found in shown for each in found
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

    assert isinstance(decorated, type(before))
    assert type(decorated).__name__ == type(before).__name__
    assert decorated.schema == before.schema
    same = ("name", "description", "_strict", "component_provider_override")
    for attribute in same:
        assert getattr(decorated, attribute, None) == getattr(before, attribute, None)
    assert type(before) in {FunctionTool, SearchTool}


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, name):
    turns = [asks(query="a", limit=1), asks("tc-2", query="b")]

    with session("s", root=root):
        first = run(form(name), *turns)
    with again(root):
        second = run(form(name), *turns)

    assert first == {"tc-1": ("1 x a", False), "tc-2": ("3 x b", False)}
    assert second == first
    assert [label for label, _ in RAN] == ["a", "b"]
    found = recorded(root)
    assert [e.data["args"] for e in found] == [
        {"query": "a", "limit": 1},
        {"query": "b", "limit": 3},
    ]
    assert not any("parent" in e.head.meta for e in found)
    if form is over:
        assert RAN == [("a", "tc-1"), ("b", "tc-2")]
        assert [e.data["tool_call_id"] for e in found] == ["tc-1", "tc-2"]


@pytest.mark.framework(ROW, "under")
def test_where_the_context_is_lost_it_is_still_the_right_session(root):
    """AutoGen runs it in a bare pool of threads."""
    with session("s", root=root):
        run(under("sync"), asks(query="a"))

    (call,) = recorded(root)
    assert call.head.meta["detached"] is True


@pytest.mark.framework(ROW, "over")
def test_an_adapted_tool_takes_its_context_into_the_pool(root):
    @checkpointed_tool
    def inner(line: str) -> str:
        seen(line)
        return line

    def outer(query: str) -> str:
        """Search."""
        return inner(query)

    tool = checkpointed_tool(FunctionTool(outer, "d", name="search"))
    with session("s", root=root):
        run(tool, asks(query="a"))

    first, second = recorded(root)
    assert second.head.meta["parent"] == first.head.call
    assert "detached" not in second.head.meta


@pytest.mark.framework(ROW, "over")
def test_the_line_of_the_table_is_true(root):
    scope = {"checkpointed_tool": checkpointed_tool, "tools": [plain("sync")]}
    exec(ROWS[ROW].line, scope)  # noqa: S102 - it is the README's

    with session("s", root=root):
        run(scope["tools"], asks(query="a"))

    assert len(recorded(root)) == 1


def test_a_workbench_of_adapted_tools_is_recorded(root):
    workbench = StaticWorkbench([over("sync")])

    async def call():
        return await workbench.call_tool("search", {"query": "a"}, call_id="tc-1")

    with session("s", root=root):
        asyncio.run(call())

    assert [e.data["tool_call_id"] for e in recorded(root)] == ["tc-1"]


def test_a_tool_that_is_decorated_already_stays_itself():
    for name in (*FUNCTIONS, "class"):
        made = over(name)
        assert checkpointed_tool(made) is made
        other = checkpointed_tool(made, effect="read_only")
        assert other is not made
        with pytest.raises(DecorationError, match="effect"):
            checkpointed_tool(other, effect="idempotent")


def test_tools_made_alike_are_told_apart_by_their_names(root):
    def to(name):
        def send(text: str) -> str:
            seen(name)
            return name

        return checkpointed_tool(FunctionTool(send, "d", name=name))

    turn = [("one", {"text": "x"}, "1"), ("other", {"text": "x"}, "2")]
    with session("s", root=root):
        first = run([to("one"), to("other")], turn)
    with again(root):
        second = run([to("one"), to("other")], turn)

    assert first == second == {"1": ("one", False), "2": ("other", False)}
    assert len(RAN) == 2


def test_copies_of_an_adapted_tool_are_recorded_as_well(root):
    with session("s", root=root):
        run(copy.copy(over("class")), asks(query="a"))

    assert len(recorded(root)) == 1


def test_options_are_those_of_functions(root):
    for tool in (plain("sync"), plain("class")):
        with pytest.raises(DecorationError, match="limits"):
            checkpointed_tool(tool, ignore="limits")
    with pytest.raises(DecorationError, match="message"):
        checkpointed_llm(Scripted([]), ignore="message")
    how = checkpointed_tool(effect="read_only", ignore="limit", name="find")
    with session("s", root=root):
        run([how(plain("class"))], asks(query="a"))

    (call,) = recorded(root)
    assert call.head.meta["name"] == "find"
    assert call.data["args"] == {"query": "a"}


@pytest.mark.framework(ROW, "call id")
@pytest.mark.parametrize("name", [*FUNCTIONS, "class"])
def test_calls_of_one_turn_keep_their_ids(root, name):
    turn = [("search", {"query": "x"}, f"id-{n}") for n in range(8)]

    with session("s", root=root):
        first = run(over(name), turn)
    with again(root):
        second = run(over(name), turn)

    assert second == first
    assert sorted(RAN) == sorted(("x", f"id-{n}") for n in range(8))


# --- agents as tools ------------------------------------------------------------------


def nested():
    inner = AssistantAgent(
        "inner",
        model_client=checkpointed_llm(Scripted([asks(query="a"), "found"])),
        tools=[over("sync")],
        max_tool_iterations=9,
    )
    return checkpointed_tool(AgentTool(inner, return_value_as_last_message=True))


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_as_a_tool_holds_what_it_did(root, stream):
    turn = [("inner", {"task": "a?"}, "tc-in")]

    def ask():
        return run(nested(), turn, model_client_stream=stream)

    with session("s", root=root):
        first = ask()
    outer, inner = recorded(root)

    assert first["tc-in"] == ("found", False)
    assert outer.head.meta["effect"] == "composite"
    assert inner.head.meta["parent"] == outer.head.call
    assert [e.data["tool_call_id"] for e in (outer, inner)] == ["tc-in", "tc-1"]


# --- errors ---------------------------------------------------------------------------


def failing(query: str) -> str:
    """Fail."""
    seen(query)
    raise ValueError(f"no {query}")


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("above", [True, False])
def test_errors_are_shown_as_the_framework_does_and_replay(root, above):
    def tool(wrap=True):
        if not wrap:
            return FunctionTool(failing, "d", name="search")
        if above:
            return checkpointed_tool(FunctionTool(failing, "d", name="search"))
        return FunctionTool(checkpointed_tool(failing), "d", name="search")

    shown = run(tool(wrap=False), asks(query="a"), model=lambda m: m)
    with session("s", root=root):
        first = run(tool(), asks(query="a"))
    with again(root):
        second = run(tool(), asks(query="a"))

    assert first == second == shown == {"tc-1": ("no a", True)}
    assert len(RAN) == 2


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
                assert shown["tc-1"][1] is True
                monkeypatch.undo()

    assert RAN == []


@pytest.mark.framework(ROW, "errors")
def test_what_is_in_doubt_is_told_to_the_model(root, tmp_path):
    """The log is as if the process had been killed while the tool ran."""

    def cut(query: str) -> str:
        """Search."""
        seen(query)
        shutil.copytree(root, tmp_path / "killed")
        return "found"

    tool = checkpointed_tool(FunctionTool(cut, "d", name="search"))
    with session("s", root=root):
        run(tool, asks(query="a"))
    with session("s", root=tmp_path / "killed"):
        shown, is_error = run(tool, asks(query="a"))["tc-1"]

    assert "may or may not" in shown
    assert is_error
    assert len(RAN) == 1


# --- model clients --------------------------------------------------------------------


def whole(client):
    return asyncio.run(client.create([UserMessage(content="hi", source="user")]))


def streamed(client, count=99):
    async def take():
        found = []
        messages = [UserMessage(content="hi", source="user")]
        async with contextlib.aclosing(client.create_stream(messages)) as stream:
            async for item in stream:
                found.append(item)
                if len(found) == count:
                    break
        return found

    return asyncio.run(take())


@pytest.mark.framework(ROW, "model")
@pytest.mark.framework(ROW, "stream")
@pytest.mark.parametrize("way", [whole, streamed])
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way):
    sent: list[Any] = []

    def client():
        made = checkpointed_llm(Scripted(["it is done"], sent.append))
        assert isinstance(made, Scripted)
        assert type(made).__name__ == "Scripted"
        return made

    with session("s", root=root):
        first = way(client())
    with again(root):
        second = way(client())

    assert second == first
    assert sent == [0]
    (request,) = recorded(root, "llm/request")
    assert "cancellation_token" not in request.data["args"]


@pytest.mark.framework(ROW, "stream")
def test_a_stream_that_was_broken_off_is_not_complete(root):
    sent: list[Any] = []

    def client():
        return checkpointed_llm(Scripted(["it is done"], sent.append))

    with session("s", root=root):
        first = streamed(client(), 1)
    with again(root):
        assert streamed(client(), 1) == first == ["it"]
        assert sent == [0]
    with again(root):
        both = streamed(client())

    assert isinstance(both[-1], CreateResult)
    assert sent == [0, 0]


# --- refusals -------------------------------------------------------------------------


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize(
    "make",
    [
        lambda: AssistantAgent("a", model_client=Scripted(["x"])),
        lambda: StaticWorkbench([plain("sync")]),
    ],
    ids=["agent", "workbench"],
)
@pytest.mark.parametrize("decorator", [checkpointed_tool, checkpointed_llm])
def test_what_has_no_calls_of_its_own_is_refused(make, decorator):
    with pytest.raises(TypeError, match="Decorate"):
        decorator(make())


@pytest.mark.framework(ROW, "over")
def test_a_tool_that_is_run_past_its_run_is_refused():
    class Other(SearchTool):
        async def run_json(self, args, cancellation_token, call_id=None):
            return "not by run"

    with pytest.raises(DecorationError, match=r"run_json\(\) of their own"):
        checkpointed_tool(Other())


def test_a_tool_is_no_model_and_a_client_no_tool():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(plain("sync"))
    with pytest.raises(DecorationError, match="checkpointed_llm"):
        checkpointed_tool(Scripted([]))


@pytest.mark.framework(ROW, "over")
def test_a_version_without_what_is_needed_is_refused_by_name():
    tool = plain("sync")
    del tool._func

    with pytest.raises(DecorationError, match=r"autogen-core \d.*_func"):
        checkpointed_tool(tool)


# --- killed and run again -------------------------------------------------------------

KILLS = {"model 0: end": ["0"], "model 1: end": ["1"], "model 2: begin": []}
DOUBTS = [f"body {n}: {e}" for n in ("pay", "mail") for e in ("begin", "end")]


@pytest.fixture
def killed(tmp_path, run_python):
    return Killed("autogen_agent.py", tmp_path, run_python)


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("point", KILLS)
def test_a_killed_agent_goes_on_where_it_was(killed, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = killed.killed_at(point, way)

    for shown in ("'paid 5'", "'nothing at a'", "'sent paid'", "'all done'"):
        assert shown in second.stdout
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
