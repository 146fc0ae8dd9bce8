"""Graphs of LangGraph: killed and run again, paused and resumed."""

# ruff: noqa: E402, PLR0917 - skipped where it is not installed; what is filled in

import asyncio
import contextlib
import operator
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")
agents = pytest.importorskip("langchain.agents")

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from durable_agent import (
    CheckpointError,
    FinishedSessionWarning,
    ReplayDivergedError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    current_call,
    inspect_session,
    session,
    step_boundary,
)
from tests.agents.world import World
from tests.conftest import PROJECT

AGENT = Path(__file__).parent / "agents" / "langgraph_agent.py"

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    with inspect_session("s", root=root) as looked:
        return [
            (e.data["function"].rpartition(":")[2], e.data["tool_call_id"])
            for e in looked.events()
            if e.type in {"llm/request", "tool/call"}
        ]


# --- killed and run again -------------------------------------------------------------

TEXTS = ["pay and mail", "", "paid 5", "nothing at a", "", "sent paid", "all done"]

#: Where it is killed, and what may then have been sent twice: a request that was in
#: flight, nothing else.
KILLS = {
    "model 0: begin": [],
    "model 0: end": ["0"],
    "model 2: end": ["2"],
    "model 3: end": ["3"],
}
#: Killed there, a side effect may have happened.
DOUBTS = ["body pay: begin", "body pay: end", "body mail: begin", "body mail: end"]


@pytest.fixture
def world(tmp_path):
    (tmp_path / "world").mkdir()
    return World(tmp_path / "world")


@pytest.fixture
def agent(root, world, run_python):
    def run(way, point=""):
        return run_python("-W", "ignore", AGENT, root, world.directory, way, point)

    return run


@pytest.mark.framework("langchain", "killed")
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("point", KILLS)
def test_a_killed_agent_goes_on_where_it_was(agent, world, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    assert agent(way, point).returncode == -signal.SIGKILL
    second = agent(way)
    third = agent(way)

    assert second.stdout.splitlines() == TEXTS, second.stderr
    assert third.stdout == second.stdout
    assert sorted(world.lines("effects")) == [["mail"], ["pay"]]
    sent = [line for (line,) in world.lines("requests")]
    assert sorted(sent) == sorted(["0", "2", "3", *KILLS[point]])


@pytest.mark.framework("langchain", "killed")
@pytest.mark.parametrize("opener", ["session", "conversation"])
@pytest.mark.parametrize("point", ["tools written", *KILLS])
def test_a_killed_agent_with_a_checkpointer_goes_on_where_it_was(
    agent, world, point, opener
):
    """The graph resumes in its middle, from a file of LangGraph's own."""
    pytest.importorskip("langgraph.checkpoint.sqlite")
    first = agent(f"resume {opener}", point)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = agent(f"resume {opener}")

    assert second.stdout.splitlines() == TEXTS, second.stderr
    assert sorted(world.lines("effects")) == [["mail"], ["pay"]]
    sent = [line for (line,) in world.lines("requests")]
    assert sorted(sent) == sorted(["0", "2", "3", *KILLS.get(point, [])])


@pytest.mark.framework("langchain", "killed")
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("point", DOUBTS)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, world, way, point
):
    tool_name = point.split()[1].rstrip(":")
    assert agent(way, point).returncode == -signal.SIGKILL
    second = agent(way)

    assert second.returncode == 0, second.stderr
    assert world.lines("doubts") == [[tool_name]]
    happened = [line for line in world.lines("effects") if line == [tool_name]]
    assert len(happened) == point.endswith("end")
    sent = [line for (line,) in world.lines("requests")]
    assert len(sent) == len(set(sent))


def test_the_example_does_what_it_says(run_python):
    done = run_python("-W", "error", PROJECT / "examples" / "langchain_tools.py")

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("  killed") == 1
    assert "  the model says: Ann and Bob are reminded." in lines
    assert lines[-1] == "2 e-mails, 0 of all lines twice"


# --- agents and tool nodes ------------------------------------------------------------


class Scripted(BaseChatModel):
    calls: list[Any]

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **more):
        return self.bind(tools=[t.name for t in tools], **more)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        turn = sum(isinstance(m, AIMessage) for m in messages)
        calls = self.calls[turn] if turn < len(self.calls) else []
        message = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def asks(name, id_="tc-1", **args):
    return {"name": name, "args": args, "id": id_}


def ask(model, tools, **more):
    agent = agents.create_agent(model, tools, **more)
    return agent.invoke({"messages": [("user", "hi")]})["messages"]


@pytest.mark.framework("langchain", "call id")
def test_an_id_that_comes_again_in_a_later_turn_is_another_call(root):
    """Some models count their tool calls anew in each turn."""

    @checkpointed_tool
    @tool
    def roll(sides: int) -> str:
        """Roll."""
        RAN.append(current_call().tool_call_id)
        return f"{len(RAN)}"

    model = checkpointed_llm(Scripted(calls=[[asks("roll", sides=6)]] * 2))
    with session("s", root=root):
        first = ask(model, [roll])
    with again(root):
        second = ask(model, [roll])

    assert [m.content for m in first] == ["hi", "", "1", "", "2", "done"]
    assert [m.content for m in second] == [m.content for m in first]
    assert RAN == ["tc-1", "tc-1"]


def test_what_langgraph_fills_in_arrives_and_is_not_recorded(root):
    @checkpointed_tool
    @tool
    def note(
        text: str,
        runtime: ToolRuntime,
        state: Annotated[dict, InjectedState],
        messages: Annotated[list, InjectedState("messages")],
        store: Annotated[Any, InjectedStore()],
        call: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Note."""
        assert call == runtime.tool_call_id == "tc-1"
        assert state["messages"] == messages
        store.put(("notes",), "x", {"text": text})
        RAN.append(current_call().tool_call_id)
        return text

    model = checkpointed_llm(Scripted(calls=[[asks("note", text="x")]]))
    with session("s", root=root):
        ask(model, [note], store=InMemoryStore())
    with again(root):
        ask(model, [note], store=InMemoryStore())

    assert RAN == ["tc-1"]
    with inspect_session("s", root=root) as looked:
        (call,) = (e for e in looked.events() if e.type == "tool/call")
    assert call.data["args"] == {"text": "x"}


def test_a_command_that_a_tool_returns_is_the_same_on_replay(root):
    @checkpointed_tool
    @tool
    def hand_over(to: str, call: Annotated[str, InjectedToolCallId]) -> Command:
        """Hand over."""
        RAN.append(to)
        return Command(update={"messages": [ToolMessage(to, tool_call_id=call)]})

    model = checkpointed_llm(Scripted(calls=[[asks("hand_over", to="ann")]]))
    with session("s", root=root):
        first = ask(model, [hand_over])
    with again(root):
        second = ask(model, [hand_over])

    assert [m.content for m in first] == ["hi", "", "ann", "done"]
    assert [m.content for m in second] == [m.content for m in first]
    assert RAN == ["ann"]


def graph_of(*tools, **options):
    """A graph of one ToolNode, whose state are messages."""

    class State(TypedDict):
        messages: Annotated[list, operator.add]

    graph = StateGraph(State)
    graph.add_node("tools", ToolNode(list(tools), **options))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile()


def messages_of(graph, *calls):
    out = graph.invoke({"messages": [AIMessage("", tool_calls=list(calls))]})
    return out["messages"][1:]


@pytest.mark.framework("langchain", "errors")
@pytest.mark.parametrize("above", [True, False])
def test_errors_are_shown_to_the_model_and_replay(root, above):
    def fail(n: int) -> str:
        """Fail."""
        RAN.append(n)
        raise ValueError(f"no {n}")

    made = checkpointed_tool(tool(fail)) if above else tool(checkpointed_tool(fail))
    plain = messages_of(
        graph_of(tool(fail), handle_tool_errors=True), asks("fail", n=1)
    )
    graph = graph_of(made, handle_tool_errors=True)

    with session("s", root=root):
        first = messages_of(graph, asks("fail", n=1))
    with again(root):
        second = messages_of(graph, asks("fail", n=1))

    shown = [(m.content, m.status) for m in plain]
    assert [(m.content, m.status) for m in first] == shown
    assert [(m.content, m.status) for m in second] == shown
    assert RAN == [1, 1]


@pytest.mark.framework("langchain", "errors")
def test_a_failed_checkpoint_that_a_tool_node_swallowed_is_raised_again(
    root, monkeypatch
):
    @checkpointed_tool
    @tool
    def pay(n: int) -> str:
        """Pay."""
        RAN.append(n)
        return ""

    graph = graph_of(pay, handle_tool_errors=True)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            (message,) = messages_of(graph, asks("pay", n=1))
            assert message.status == "error"
            monkeypatch.undo()
            (message,) = messages_of(graph, asks("pay", n=2))
            assert message.status == "error"

    assert RAN == []


@pytest.mark.framework("langchain", "call id")
def test_calls_of_one_turn_keep_their_ids(root):
    @checkpointed_tool
    @tool
    def square(n: int) -> int:
        """Square."""
        RAN.append((n, current_call().tool_call_id))
        return n * n

    calls = [asks("square", f"id-{n}", n=n) for n in range(8)]
    with session("s", root=root):
        first = messages_of(graph_of(square), *calls)
    with again(root):
        second = messages_of(graph_of(square), *reversed(calls))

    assert [m.content for m in first] == [str(n * n) for n in range(8)]
    assert [m.content for m in reversed(second)] == [m.content for m in first]
    assert sorted(RAN) == [(n, f"id-{n}") for n in range(8)]
    assert len(recorded(root)) == 8


# --- pauses ---------------------------------------------------------------------------


@checkpointed_tool
def charge(amount):
    RAN.append(amount)
    return f"charged {amount}"


@checkpointed_tool(effect="composite")
@tool
def approve(amount: int) -> str:
    """Charge, then ask five people."""
    done = charge(amount)
    return f"{done}, {[interrupt(n) for n in range(5)]}"


def paused(kind):
    """A graph that charges and then pauses five times."""

    class State(TypedDict):
        text: str

    def node(state: State) -> Any:
        if kind == "tool":
            return {"text": approve.invoke({"amount": 5})}
        done = charge(5)
        return {"text": f"{done}, {[interrupt(n) for n in range(5)]}"}

    graph = StateGraph(State)
    graph.add_node("ask", step_boundary(node) if kind == "step" else node)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.framework("langchain", "pauses")
@pytest.mark.parametrize("kind", ["tool", "step"])
def test_what_is_before_a_pause_runs_once_however_often_it_is_resumed(root, kind):
    """Each resume runs the node from its start."""
    graph = paused(kind)
    config = {"configurable": {"thread_id": "1"}}

    def run():
        out = graph.invoke({"text": ""}, config)
        for n in range(5):
            assert out["__interrupt__"][0].value == n
            out = graph.invoke(Command(resume=n), config)
        return out["text"]

    with session("s", root=root):
        first = run()
    graph = paused(kind)
    with again(root):
        second = run()

    assert first == second == "charged 5, [0, 1, 2, 3, 4]"
    assert RAN == [5]


@pytest.mark.parametrize("kind", ["tool", "step"])
def test_a_pause_outlives_the_session(root, kind):
    """Another process resumes it; here only the graph's own state is kept."""
    graph = paused(kind)
    config = {"configurable": {"thread_id": "1"}}

    with session("s", root=root):
        graph.invoke({"text": ""}, config)
    for n in range(5):
        with again(root):
            out = graph.invoke(Command(resume=n), config)

    assert out["text"] == "charged 5, [0, 1, 2, 3, 4]"
    assert RAN == [5]


def test_a_graph_with_a_state_of_its_own_resumes_in_its_middle(root):
    """Stopped before its tools, and resumed under a session opened anew."""

    @checkpointed_tool
    @tool
    def pay(n: int) -> str:
        """Pay."""
        RAN.append(n)
        return f"paid {n}"

    calls = [[asks("pay", n=1)], [asks("pay", n=2), asks("pay", "tc-2", n=3)]]
    agent = agents.create_agent(
        checkpointed_llm(Scripted(calls=calls)),
        [pay],
        checkpointer=InMemorySaver(),
        interrupt_before=["tools"],
    )
    config = {"configurable": {"thread_id": "1"}}
    given = {"messages": [("user", "hi")]}
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FinishedSessionWarning)
            with session("s", root=root):
                out = agent.invoke(given, config)
        given = None

    shown = [m.content for m in out["messages"]]
    assert shown == ["hi", "", "paid 1", "", "paid 2", "paid 3", "done"]
    assert sorted(RAN) == [1, 2, 3]
    assert [name for name, _ in recorded(root)].count("pay") == 3
    with inspect_session("s", root=root) as looked:
        calls = [e for e in looked.events() if e.type == "tool/call"]
    assert all(e.head.meta["resp"] for e in calls)


def test_a_tool_that_paused_is_resumed_under_a_session_opened_anew(root):
    """It is the tool call of a response that only the graph's state still has."""
    agent = agents.create_agent(
        checkpointed_llm(Scripted(calls=[[asks("approve", amount=5)]])),
        [approve],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    with session("s", root=root):
        agent.invoke({"messages": [("user", "hi")]}, config)
    for n in range(5):
        with again(root):
            out = agent.invoke(Command(resume=n), config)

    shown = [m.content for m in out["messages"]]
    assert shown == ["hi", "", "charged 5, [0, 1, 2, 3, 4]", "done"]
    assert RAN == [5]


@pytest.mark.parametrize("opener", [session, conversation])
def test_an_answered_tool_call_that_a_graph_repeats_is_not_made_again(root, opener):
    """The graph's own state was not written; the tool call's outcome was."""

    @checkpointed_tool
    @tool
    def pay(n: int) -> str:
        """Pay."""
        RAN.append(n)
        return f"paid {n}"

    turn = AIMessage("", tool_calls=[asks("pay", n=1), asks("pay", "tc-2", n=1)])

    @checkpointed_llm
    def request(messages: list[Any]) -> Any:
        return turn

    with session("s", root=root):
        request([("user", "hi")])
        graph_of(pay).invoke({"messages": [turn]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        with opener("s", root=root):
            out = graph_of(pay).invoke({"messages": [turn]})

    assert [m.content for m in out["messages"]] == ["", "paid 1", "paid 1"]
    assert RAN == [1, 1]


def test_a_tool_call_that_has_a_record_is_not_made_by_another_function(root):
    """Resumed in the middle by edited code, it would pay again."""

    def pay(n: int) -> str:
        """Pay."""
        RAN.append(n)
        return ""

    turn = AIMessage("", tool_calls=[asks("pay", n=1)])

    @checkpointed_llm
    def request(messages: list[Any]) -> Any:
        return turn

    with session("s", root=root):
        request([("user", "hi")])
        graph_of(checkpointed_tool(tool(pay))).invoke({"messages": [turn]})
    edited = checkpointed_tool(tool(pay), name="pay_out")
    with pytest.raises(ReplayDivergedError):
        with again(root):
            graph_of(edited).invoke({"messages": [turn]})

    assert RAN == [1]


@pytest.mark.framework("langchain", "pauses")
def test_a_pause_is_no_outcome(root):
    @checkpointed_tool
    @tool
    def stop(n: int) -> str:
        """Stop."""
        raise GraphInterrupt

    with session("s", root=root), pytest.raises(GraphInterrupt):
        stop.invoke({"n": 1})

    with inspect_session("s", root=root) as looked:
        (outcome,) = (e for e in looked.events() if e.type == "tool/result")
    assert outcome.data["suspended"] is True


def test_an_async_graph_is_recorded_as_well(root):
    @checkpointed_tool
    @tool
    async def look(place: str) -> str:
        """Look."""
        await asyncio.sleep(0)
        RAN.append(current_call().tool_call_id)
        return place

    calls = [[asks("look", "a", place="x"), asks("look", "b", place="x")]]
    model = checkpointed_llm(Scripted(calls=calls))
    agent = agents.create_agent(model, [look])

    async def run():
        parts = agent.astream({"messages": [("user", "hi")]}, stream_mode="values")
        return [part["messages"][-1].content async for part in parts]

    with session("s", root=root):
        first = asyncio.run(run())
    with again(root):
        second = asyncio.run(run())

    assert second == first == ["hi", "", "x", "done"]
    assert sorted(RAN) == ["a", "b"]
    assert "langgraph" in sys.modules
