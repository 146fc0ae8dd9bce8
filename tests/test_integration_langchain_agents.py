"""Agents of LangChain with what people put around their models and tools."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, ClassVar

import pytest

pytest.importorskip("langchain.agents.middleware")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from durable_agent import checkpointed_llm, checkpointed_tool, inspect_session, session
from tests.frameworks.rows import ROWS

pytestmark = [
    pytest.mark.filterwarnings("ignore::durable_agent.errors.FinishedSessionWarning"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
]

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


class Report(BaseModel):
    """What came of it."""

    text: str


def asked(name, args, call_id):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id}])


def named(given):
    if isinstance(given, type):
        return given.__name__
    return given["function"]["name"] if isinstance(given, dict) else given.name


class Scripted(BaseChatModel):
    """Asks for one payment, then ends: by a report where that is asked for."""

    model_name: str = "scripted"
    #: Requests that fail before one is answered.
    failing: list[int] = []

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **more):
        return self.bind(tools=[named(t) for t in tools], **more)

    def _generate(self, messages, stop=None, run_manager=None, **more):
        RAN.append(self.model_name)
        if self.failing:
            self.failing.pop()
            raise ConnectionError("the model is down")
        if "Report" in more.get("tools", ()) and len(more["tools"]) == 1:
            message = asked("Report", {"text": "alone"}, "tc-report")
        elif not any(isinstance(m, ToolMessage) for m in messages):
            message = asked("pay", {"amount": 5}, "tc-pay")
        elif "Report" in more.get("tools", ()):
            message = asked("Report", {"text": "paid"}, "tc-report")
        else:
            message = AIMessage("all done")
        return ChatResult(generations=[ChatGeneration(message=message)])


def model(**options):
    return checkpointed_llm(Scripted(**options))


def pay(amount: int) -> str:
    """Pay."""
    RAN.append("pay")
    return f"paid {amount}"


class Around(AgentMiddleware):
    def before_model(self, state, runtime):
        return None

    def wrap_model_call(self, request, handler):
        return handler(request)

    def wrap_tool_call(self, request, handler):
        return handler(request)


#: What is put around -> what runs, in the first run.
CASES: dict[str, tuple[Any, list[str]]] = {
    "hooks": (lambda: {"middleware": [Around()]}, ["scripted", "pay", "scripted"]),
    "limits": (
        lambda: {
            "middleware": [
                ModelCallLimitMiddleware(run_limit=9),
                ToolCallLimitMiddleware(run_limit=9),
            ]
        },
        ["scripted", "pay", "scripted"],
    ),
    "a tool's retries": (
        lambda: {"middleware": [ToolRetryMiddleware(max_retries=2)]},
        ["scripted", "pay", "scripted"],
    ),
    "a model's retries": (
        lambda: {
            "model": model(failing=[1, 1]),
            "middleware": [ModelRetryMiddleware(max_retries=3, initial_delay=0)],
        },
        ["scripted"] * 3 + ["pay", "scripted"],
    ),
    "another model": (
        lambda: {
            "model": model(model_name="first", failing=[1, 1]),
            "middleware": [ModelFallbackMiddleware(model(model_name="second"))],
        },
        ["first", "second", "pay", "first", "second"],
    ),
    "a summary": (
        lambda: {
            "middleware": [
                SummarizationMiddleware(
                    model(model_name="short"),
                    trigger=("messages", 3),
                    keep=("messages", 2),
                )
            ]
        },
        ["scripted", "pay", "short", "scripted"],
    ),
    "a plan, and nothing personal": (
        lambda: {"middleware": [TodoListMiddleware(), PIIMiddleware("email")]},
        ["scripted", "pay", "scripted"],
    ),
    "a report": (
        lambda: {"response_format": Report},
        ["scripted", "pay", "scripted"],
    ),
}


def recorded(root):
    """The calls in the log: of what kind, and in which other call."""
    with inspect_session("s", root=root) as looked:
        return [
            (e.type, e.meta.get("parent"))
            for e in looked.events()
            if e.type in {"llm/request", "tool/call"}
        ]


def ask(agent):
    out = agent.invoke({"messages": [("user", "pay")]})
    return [m.content for m in out["messages"]], out.get("structured_response")


@pytest.mark.framework("langchain", "model")
@pytest.mark.parametrize("case", CASES)
def test_what_is_around_models_and_tools_replays_without_running(root, case):
    more, ran = CASES[case]
    options = {"model": model(), "tools": [checkpointed_tool(tool(pay))]}

    with session("s", root=root):
        first = ask(create_agent(**options | more()))
    assert ran == RAN
    RAN.clear()
    with session("s", root=root):
        second = ask(create_agent(**options | more()))

    assert RAN == []
    assert second == first
    kinds = ["tool/call" if each == "pay" else "llm/request" for each in ran]
    assert recorded(root) == [(kind, None) for kind in kinds]


def test_a_structured_answer_is_recorded_inside_the_chain(root):
    for ran in (["scripted"], []):
        RAN.clear()
        with session("s", root=root):
            chain = model().with_structured_output(Report)
            assert chain.invoke("report") == Report(text="alone")
        assert ran == RAN


def test_a_person_approves_a_tool_call_that_then_runs_once(root):
    def run():
        agent = create_agent(
            model(),
            [checkpointed_tool(tool(pay))],
            middleware=[HumanInTheLoopMiddleware({"pay": True})],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "1"}}
        paused = agent.invoke({"messages": [("user", "pay")]}, config)
        assert paused["__interrupt__"]
        yes = Command(resume={"decisions": [{"type": "approve"}]})
        return agent.invoke(yes, config)["messages"][-1].content

    with session("s", root=root):
        assert run() == "all done"
    assert RAN == ["scripted", "pay", "scripted"]
    RAN.clear()
    with session("s", root=root):
        assert run() == "all done"
    assert RAN == []


@pytest.mark.framework("langchain", "over")
def test_the_line_of_the_readme_records_the_tools_of_an_agent(root):
    scope = {"tools": [tool(pay)], "checkpointed_tool": checkpointed_tool}
    exec(ROWS["langchain"].line, scope)  # noqa: S102 - the README's own line

    for _ in range(2):
        with session("s", root=root):
            ask(create_agent(model(), scope["tools"]))

    assert RAN.count("pay") == 1


class Counting(Scripted):
    """A model of a server that numbers its tool calls anew for each caller."""

    gate: ClassVar[Any] = None

    def _generate(self, messages, stop=None, run_manager=None, **more):
        RAN.append(self.model_name)
        name = self.model_name
        turns: dict[int, list[Any]] = {
            0: [("pay", {"amount": len(name)}), ("mail", {"text": name})],
            2: [("mail", {"text": f"{name} again"})],
        }
        done = sum(isinstance(m, ToolMessage) for m in messages)
        if done == 0:
            self.gate.wait()
        calls = [
            {"name": n, "args": args, "id": f"call_{done + i}"}
            for i, (n, args) in enumerate(turns.get(done, []))
        ]
        message = AIMessage("" if calls else name, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.framework("langchain", "call id")
def test_agents_at_once_whose_tool_calls_have_the_same_ids_replay(root):
    """All of them have their first answers before any of their tools runs."""
    names = ("a", "bb", "ccc")
    Counting.gate = Barrier(3, timeout=30)

    @checkpointed_tool
    @tool
    def mail(text: str) -> str:
        """Mail."""
        RAN.append(text)
        return f"sent {text}"

    def run():
        with (
            session("s", root=root) as s,
            ThreadPoolExecutor(3) as pool,
        ):
            agents = [
                create_agent(
                    checkpointed_llm(Counting(model_name=name)),
                    [checkpointed_tool(tool(pay)), mail],
                )
                for name in names
            ]
            asked_for = [pool.submit(s.bind(ask), agent) for agent in agents]
            return [done.result() for done in asked_for]

    first = run()
    assert len(RAN) == 18
    RAN.clear()
    for _ in range(3):
        assert run() == first
    assert RAN == []
