"""Tools and models of CrewAI, and its crews."""

# ruff: noqa: E402, PLR0917 - what it sends is turned off before; as it calls a model

import asyncio
import contextlib
import os

import pytest

for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED"):
    os.environ[name] = "true"

pytest.importorskip("crewai")

from crewai import Agent, BaseLLM
from crewai.tools import BaseTool, tool
from crewai.tools.structured_tool import CrewStructuredTool
from pydantic import BaseModel

from durable_agent import (
    AmbiguousSessionError,
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.frameworks import killing
from tests.frameworks.rows import ROWS

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning"),
    # Of what it is built on.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

marked = pytest.mark.framework

RAN = []
#: What the model was shown.
SHOWN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    SHOWN.clear()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


def search(query: str, limit: int = 3) -> str:
    """Search the archive."""
    RAN.append(query)
    return f"{limit} x {query}"


async def asearch(query: str, limit: int = 3) -> str:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, limit)


class SearchTool(BaseTool):
    name: str = "search"
    description: str = "Search the archive."

    def _run(self, query: str, limit: int = 3) -> str:
        return search(query, limit)


class AsyncSearchTool(SearchTool):
    async def _arun(self, query: str, limit: int = 3) -> str:
        return await asearch(query, limit)


def structured(fn):
    return CrewStructuredTool.from_function(fn, name="search")


FORMS = {
    "above": lambda d: d(tool("search")(search)),
    "below": lambda d: tool("search")(d(search)),
    "async above": lambda d: d(tool("search")(asearch)),
    "async below": lambda d: tool("search")(d(asearch)),
    "class": lambda d: d(SearchTool()),
    "async class": lambda d: d(AsyncSearchTool()),
    "structured": lambda d: d(structured(search)),
    "async structured": lambda d: d(structured(asearch)),
    "structured below": lambda d: structured(d(search)),
}
CHECK = [
    pytest.param(form, marks=marked("crewai", "under" if "below" in form else "over"))
    for form in FORMS
]


def ways(made, form):
    """Each way in which a tool is run."""
    if isinstance(made, CrewStructuredTool):
        yield lambda q: made.invoke({"query": q})
        yield lambda q: asyncio.run(made.ainvoke({"query": q}))
        return
    yield lambda q: made.run(query=q)
    yield lambda q: made.to_structured_tool().invoke({"query": q})
    if form not in {"async above", "async below"}:
        # Of a coroutine function it gives back the coroutine, decorated or not.
        yield lambda q: asyncio.run(made.to_structured_tool().ainvoke({"query": q}))
    if "async" in form:
        yield lambda q: asyncio.run(made.arun(query=q))


@pytest.mark.parametrize("form", CHECK)
def test_a_decorated_tool_looks_like_the_undecorated_one(form):
    plain, made = FORMS[form](lambda fn: fn), FORMS[form](checkpointed_tool)

    assert isinstance(made, type(plain))
    assert type(made).__name__ == type(plain).__name__
    assert (made.name, made.description) == (plain.name, plain.description)
    schema = made.args_schema.model_json_schema()
    assert schema == plain.args_schema.model_json_schema()


@pytest.mark.parametrize("form", CHECK)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form):
    made = FORMS[form](checkpointed_tool)
    queries = "abcd"

    def run():
        return [way(q) for way, q in zip(ways(made, form), queries, strict=False)]

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert second == first
    assert RAN == list(queries[: len(first)])
    events = recorded(root)
    assert [e.data["args"]["query"] for e in events] == RAN
    assert all("parent" not in e.meta for e in events)


@marked("crewai", "over")
def test_the_original_stays_as_it_was(root):
    plain = tool("search")(search)
    scope = {"tools": [plain, SearchTool()], "checkpointed_tool": checkpointed_tool}
    exec(ROWS["crewai"].line, scope)  # noqa: S102 - the point

    with session("s", root=root):
        plain.run(query="a")
        for each in scope["tools"]:
            each.run(query="b")

    assert len(recorded(root)) == 2
    assert all(checkpointed_tool(each) is each for each in scope["tools"])


def test_the_class_of_a_tool_is_still_found_by_its_name():
    """Crews that were saved are loaded by it."""
    from crewai.tools import base_tool

    checkpointed_tool(SearchTool())

    key = f"{SearchTool.__module__}.{SearchTool.__qualname__}"
    assert base_tool._TOOL_TYPE_REGISTRY[key] is SearchTool


@marked("crewai", "over")
def test_ainvoke_of_a_plain_function_records_under_the_one_open_session(root):
    """It runs in a thread that has no context."""
    made = checkpointed_tool(structured(search))

    with session("s", root=root):
        asyncio.run(made.ainvoke({"query": "a"}))

    (event,) = recorded(root)
    assert event.meta["detached"] is True


def test_with_two_sessions_ainvoke_is_refused_or_has_the_right_one(root):
    plain, coroutine = (checkpointed_tool(structured(f)) for f in (search, asearch))

    with session("other", root=root), session("s", root=root):
        with pytest.raises(AmbiguousSessionError):
            asyncio.run(plain.ainvoke({"query": "a"}))
        asyncio.run(coroutine.ainvoke({"query": "b"}))

    assert RAN == ["b"]
    assert len(recorded(root)) == 1


def test_tools_of_one_class_are_told_apart(root):
    with session("s", root=root):
        for name in ("one", "other"):
            checkpointed_tool(SearchTool(name=name)).run(query="a")
            checkpointed_tool(tool(name)(search)).run(query="a")

    assert len({e.meta["name"] for e in recorded(root)}) == 4


# --- models ---------------------------------------------------------------------------


class Scripted(BaseLLM):
    def supports_function_calling(self):
        return False

    def call(
        self,
        messages,
        tools=None,
        callbacks=None,
        available_functions=None,
        from_task=None,
        from_agent=None,
        response_model=None,
    ):
        RAN.append("request")
        SHOWN.append(str(messages))
        told = any(text in str(messages) for text in ("3 x a", "no a"))
        if "search" in str(messages) and not told:
            return 'Thought: So.\nAction: search\nAction Input: {"query": "a"}'
        return "Thought: I know.\nFinal Answer: blue"

    async def acall(self, messages, *args, **kwargs):
        return self.call(messages)


class Answer(BaseModel):
    colour: str


@marked("crewai", "model")
@pytest.mark.parametrize("way", ["call", "acall", "more"])
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way):
    plain = Scripted(model="m-1", temperature=0.5)
    made = checkpointed_llm(plain)

    def run():
        if way == "more":
            more = {"callbacks": [object()], "from_agent": object()}
            return made.call("hi", response_model=Answer, **more)
        result = getattr(made, way)([{"role": "user", "content": "hi"}])
        return asyncio.run(result) if asyncio.iscoroutine(result) else result

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert isinstance(made, Scripted)
    assert type(made).__name__ == "Scripted"
    assert made.to_config_dict() == plain.to_config_dict()
    assert checkpointed_llm(made) is made
    assert second == first
    assert RAN == ["request"]
    (event,) = recorded(root)
    assert event.type == "llm/request"
    assert event.meta["name"].endswith(":Scripted[m-1]")


# --- agents ---------------------------------------------------------------------------


def kick_off(made):
    agent = Agent(
        role="clerk",
        goal="search",
        backstory="old",
        tools=[made],
        llm=checkpointed_llm(Scripted(model="m-1")),
        cache=False,
    )
    return str(agent.kickoff("search for a"))


def fail(query: str) -> str:
    """Search the archive."""
    RAN.append(query)
    raise ValueError(f"no {query}")


@marked("crewai", "errors")
@pytest.mark.parametrize("form", ["above", "below"])
def test_errors_are_shown_as_the_agent_shows_them(root, form):
    def made(decorate):
        if form == "above":
            return decorate(tool("search")(fail))
        return tool("search")(decorate(fail))

    with session("plain", root=root):
        kick_off(made(lambda fn: fn))
    plain = SHOWN[-1]
    ran = RAN.count("a")
    with session("s", root=root):
        first = kick_off(made(checkpointed_tool))
    with again(root):
        assert kick_off(made(checkpointed_tool)) == first

    assert "no a" in plain
    assert SHOWN[-1] == plain
    assert RAN.count("a") == 2 * ran


@marked("crewai", "errors")
@pytest.mark.parametrize("form", ["above", "below"])
def test_a_failed_checkpoint_that_an_agent_swallowed_is_raised_again(
    root, monkeypatch, form
):
    made = FORMS[form](checkpointed_tool)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            with contextlib.suppress(Exception):
                kick_off(made)
            monkeypatch.undo()

    assert "a" not in RAN


# --- refusals -------------------------------------------------------------------------


def test_a_version_without_what_is_needed_is_refused(monkeypatch):
    made = structured(search)
    own = SearchTool()
    model = Scripted(model="m-1")
    monkeypatch.delitem(CrewStructuredTool.model_fields, "func")
    monkeypatch.delattr(BaseTool, "run")
    monkeypatch.delattr(BaseLLM, "acall")

    with pytest.raises(TypeError, match=r"crewai 1.* has no func"):
        checkpointed_tool(made)
    with pytest.raises(TypeError, match=r"crewai 1.* has no run"):
        checkpointed_tool(own)
    with pytest.raises(TypeError, match=r"crewai 1.* has no acall"):
        checkpointed_llm(model)


def test_an_agent_is_refused_with_what_to_do():
    agent = Agent(
        role="clerk", goal="x", backstory="y", llm=Scripted(model="m-1"), tools=[]
    )

    with pytest.raises(DecorationError, match="Decorate the tools and the model"):
        checkpointed_tool(agent)


# --- killed ---------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path, run_python):
    return killing.Agent("crewai_agent.py", tmp_path, run_python)


@marked("crewai", "killed")
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("point", ["model 1: begin", "model 1: end"])
def test_a_killed_crew_goes_on_where_it_was(agent, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = agent.killed_at(point, way)

    assert second.stdout.endswith("['paid 5', 'sent paid']\n")
    assert agent.effects() == ["mail", "pay"]
    assert agent.requests() == sorted(["0", "1", "2", *["1"] * point.endswith("end")])


@marked("crewai", "killed")
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("point", ["body pay: begin", "body mail: end"])
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, way, point
):
    name = point.split()[1].rstrip(":")
    second, _ = agent.killed_at(point, way)

    assert "OUTCOME_UNKNOWN" in second.stdout
    assert agent.effects().count(name) == point.endswith("end")
    assert len(agent.requests()) == len(set(agent.requests()))
