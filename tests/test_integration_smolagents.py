"""Tools and models of smolagents, and its agents."""

import contextlib
import copy

import pytest

pytest.importorskip("smolagents")

from smolagents import CodeAgent, Model, Tool, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)
from smolagents.monitoring import LogLevel
from smolagents.utils import AgentToolExecutionError

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
from tests.frameworks.killing import Agent
from tests.frameworks.rows import ROWS

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning"),
    # It warns of every decorator in the source of a tool.
    pytest.mark.filterwarnings("ignore:.*has decorators other than @tool"),
]

marked = pytest.mark.framework

RAN = []
QUIET = {"verbosity_level": LogLevel.OFF}


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root, name="s"):
    with inspect_session(name, root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


def search(query: str, limit: int = 3) -> str:
    """Search the archive.

    Args:
        query: what
        limit: how many

    """
    RAN.append(query)
    return f"{limit} x {query}"


@tool
def plain_tool(query: str, limit: int = 3) -> str:
    """Search the archive.

    Args:
        query: what
        limit: how many

    """
    RAN.append(query)
    return f"{limit} x {query}"


def below():
    """As a person writes it: what it is made from is read from its source."""

    @tool
    @checkpointed_tool
    def below_tool(query: str, limit: int = 3) -> str:
        """Search the archive.

        Args:
            query: what
            limit: how many

        """
        RAN.append(query)
        return f"{limit} x {query}"

    return below_tool


class SearchTool(Tool):
    name = "search"
    description = "Search the archive."
    inputs = {
        "query": {"type": "string", "description": "what"},
        "limit": {"type": "integer", "description": "how many", "nullable": True},
    }
    output_type = "string"

    def forward(self, query: str, limit: int | None = 3) -> str:
        RAN.append(query)
        return f"{limit} x {query}"

    def setup(self):
        RAN.append("setup")
        super().setup()


FORMS = {
    "above": (plain_tool, lambda: checkpointed_tool(plain_tool)),
    "below": (plain_tool, below),
    "class": (SearchTool(), lambda: checkpointed_tool(SearchTool())),
}
CHECK = [
    pytest.param(f, marks=marked("smolagents", "under" if f == "below" else "over"))
    for f in FORMS
]


@pytest.mark.parametrize("form", CHECK)
def test_a_decorated_tool_looks_like_the_undecorated_one(form):
    plain, make = FORMS[form]
    made = make()

    assert type(made).__name__ == type(plain).__name__
    assert isinstance(made, Tool)
    if form != "below":
        assert type(made) is type(plain)
        assert made.name == plain.name
    assert made.description == plain.description
    assert made.inputs == plain.inputs
    assert made.output_type == plain.output_type


class Pure(Tool):
    name = "pure"
    description = "Say it."
    inputs = {"text": {"type": "string", "description": "what"}}
    output_type = "string"

    def forward(self, text: str) -> str:
        return f"<{text}>"


@tool
def pure(text: str) -> str:
    """Say it.

    Args:
        text: what

    """
    return f"<{text}>"


@marked("smolagents", "over")
@pytest.mark.parametrize("plain", [Pure(), pure], ids=["class", "function"])
def test_the_source_of_a_decorated_tool_is_its_own(plain):
    """An executor elsewhere is sent it."""
    made = checkpointed_tool(plain)

    assert made.to_dict() == plain.to_dict()
    assert Tool.from_dict(made.to_dict())("a") == "<a>"


@pytest.mark.parametrize("form", CHECK)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form):
    made = FORMS[form][1]()

    def run():
        return made("a"), made(query="b", limit=1), made({"query": "c"})

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert second == first == ("3 x a", "1 x b", "3 x c")
    assert [each for each in RAN if each != "setup"] == ["a", "b", "c"]
    assert RAN.count("setup") == (form == "class")
    events = recorded(root)
    assert [e.data["args"] for e in events] == [
        {"query": "a", "limit": 3},
        {"query": "b", "limit": 1},
        {"query": "c", "limit": 3},
    ]
    assert all("parent" not in e.meta for e in events)


@marked("smolagents", "over")
def test_the_original_stays_as_it_was(root):
    scope = {"tools": [plain_tool], "checkpointed_tool": checkpointed_tool}
    exec(ROWS["smolagents"].line, scope)  # noqa: S102 - the point
    (made,) = scope["tools"]

    with session("s", root=root):
        plain_tool("a")
        made("b")
        copy.copy(made)("c")

    assert len(recorded(root)) == 2
    assert checkpointed_tool(made) is made


def test_tools_of_one_class_are_told_apart(root):
    one, other = SearchTool(), SearchTool()
    other.name = "other"

    with session("s", root=root):
        for each in (one, other):
            checkpointed_tool(each)("a")

    assert [e.data["function"] for e in recorded(root)] == ["search", "other"]
    assert len({e.meta["name"] for e in recorded(root)}) == 2


# --- models ---------------------------------------------------------------------------


def calls_of(turn):
    return [
        ChatMessageToolCall(ChatMessageToolCallFunction(a, n), f"tc-{i}", "function")
        for i, (n, a) in enumerate(turn)
    ]


class Scripted(Model):
    """Answers by how many steps were observed."""

    def __init__(self, *turns, **more):
        super().__init__(**more)
        self.turns = turns

    def generate(self, messages, stop_sequences=None, **kwargs):
        RAN.append("request")
        done = sum(m.role == MessageRole.TOOL_RESPONSE for m in messages)
        turn = self.turns[done]
        if isinstance(turn, str):
            return ChatMessage(MessageRole.ASSISTANT, turn)
        return ChatMessage(MessageRole.ASSISTANT, "", tool_calls=calls_of(turn))


class Streaming(Scripted):
    def generate_stream(self, messages, stop_sequences=None, **kwargs):
        RAN.append("stream")
        for text in self.turns:
            yield ChatMessageStreamDelta(content=text)


ASK = [ChatMessage(MessageRole.USER, "hi")]


@marked("smolagents", "model")
@pytest.mark.parametrize("way", ["generate", "__call__"])
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way):
    plain = Streaming("yes", model_id="m-1")
    made = checkpointed_llm(plain)

    def run():
        ask = made.generate if way == "generate" else made
        return ask(ASK, tools_to_call_from=[plain_tool])

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert type(made) is Streaming
    assert made.to_dict() == plain.to_dict()
    assert checkpointed_llm(made) is made
    assert second == first
    assert second.content == "yes"
    assert RAN == ["request"]
    (event,) = recorded(root)
    assert event.type == "llm/request"
    assert event.meta["name"].endswith(":Streaming[m-1]")


@marked("smolagents", "stream")
def test_a_stream_replays_and_one_that_was_broken_off_is_not_complete(root):
    made = checkpointed_llm(Streaming("one", "two"))

    def broken():
        stream = made.generate_stream(ASK)
        first = next(stream)
        stream.close()
        return first

    with session("s", root=root):
        first = broken()
    with again(root):
        assert broken() == first
        assert RAN == ["stream"]
    with again(root):
        whole = list(made.generate_stream(ASK))
    with again(root):
        assert list(made.generate_stream(ASK)) == whole

    assert [chunk.content for chunk in whole] == ["one", "two"]
    assert RAN == ["stream"] * 2


def test_a_model_without_streams_still_has_none():
    assert not hasattr(checkpointed_llm(Scripted("x")), "generate_stream")


# --- agents ---------------------------------------------------------------------------


def fail(text: str) -> str:
    """Fail.

    Args:
        text: what

    """
    RAN.append(text)
    raise ValueError(f"no {text}")


def observed(agent):
    return [
        str(getattr(step, "error", None) or getattr(step, "observations", None))
        for step in agent.memory.steps[1:]
    ]


@marked("smolagents", "errors")
@pytest.mark.parametrize("kind", ["calls", "code"])
def test_errors_are_shown_as_the_agent_shows_them(root, kind):
    def run(decorate):
        if kind == "calls":
            turns = [[("fail", {"text": "a"})], [("final_answer", {"answer": "x"})]]
            make = ToolCallingAgent
        else:
            turns = ["<code>\nfail('a')\n</code>", "<code>\nfinal_answer('x')\n</code>"]
            make = CodeAgent
        agent = make(
            [decorate(tool(fail))], checkpointed_llm(Scripted(*turns)), **QUIET
        )
        with contextlib.suppress(AgentToolExecutionError):
            agent.run("hi")
        return observed(agent)

    with session("plain", root=root):
        plain = run(lambda made: made)
    with session("s", root=root):
        first = run(checkpointed_tool)
    with again(root):
        second = run(checkpointed_tool)

    assert "no a" in " ".join(plain)
    assert second == first == plain
    assert RAN.count("a") == 2


@marked("smolagents", "errors")
@pytest.mark.parametrize("kind", ["calls", "code"])
def test_a_failed_checkpoint_that_an_agent_swallowed_is_raised_again(
    root, monkeypatch, kind
):
    if kind == "calls":
        turns = [[("plain_tool", {"query": "a"})], [("final_answer", {"answer": "x"})]]
        make = ToolCallingAgent
    else:
        turns = [
            "<code>\nplain_tool('a')\n</code>",
            "<code>\nfinal_answer('x')\n</code>",
        ]
        make = CodeAgent

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            agent = make([checkpointed_tool(plain_tool)], Scripted(*turns), **QUIET)
            monkeypatch.setattr(type(opened._core), "append", refuse)
            with contextlib.suppress(Exception):
                agent.run("hi")
            monkeypatch.undo()

    assert "a" not in RAN


@marked("smolagents", "over")
def test_code_of_an_agent_records_under_the_one_open_session(root):
    """It runs in a thread that has no context."""
    turns = [
        "<code>\nprint(plain_tool('a'))\n</code>",
        "<code>\nfinal_answer('x')\n</code>",
    ]

    def run():
        made = checkpointed_tool(plain_tool)
        agent = CodeAgent([made], checkpointed_llm(Scripted(*turns)), **QUIET)
        return agent.run("hi"), observed(agent)

    with session("s", root=root):
        first = run()
    with again(root):
        assert run() == first

    assert RAN == ["request", "a", "request"]
    calls = [e for e in recorded(root) if e.type == "tool/call"]
    assert [e.meta.get("detached") for e in calls] == [True]


@pytest.mark.parametrize("in_thread", [True, False])
def test_with_two_sessions_it_is_an_error_or_the_right_one(root, in_thread):
    """Never another one's; without the thread in between, its own."""
    turns = ["<code>\nplain_tool('a')\n</code>", "<code>\nfinal_answer('x')\n</code>"]
    options = {} if in_thread else {"executor_kwargs": {"timeout_seconds": None}}
    agent = CodeAgent(
        [checkpointed_tool(plain_tool)], Scripted(*turns), **QUIET, **options
    )

    with session("other", root=root), session("s", root=root):
        agent.run("hi")

    said = " ".join(observed(agent))
    assert (
        AmbiguousSessionError.__name__ in said or "several open" in said
    ) is in_thread
    if in_thread:
        assert "a" not in RAN
    else:
        assert len(recorded(root)) == 1


# --- refusals -------------------------------------------------------------------------


def test_a_tool_that_calls_otherwise_is_refused():
    class Own(SearchTool):
        def __call__(self, *args, **kwargs):
            return "anything"

    with pytest.raises(TypeError, match="__call__ of its own"):
        checkpointed_tool(Own())


def test_a_version_without_what_is_needed_is_refused(monkeypatch):
    monkeypatch.delattr(Model, "parse_tool_calls")
    made = SearchTool()
    monkeypatch.delattr(SearchTool, "forward")
    monkeypatch.delattr(Tool, "forward")

    with pytest.raises(TypeError, match=r"smolagents 1.* has no parse_tool_calls"):
        checkpointed_llm(Scripted("x"))
    with pytest.raises(TypeError, match=r"smolagents 1.* has no forward"):
        checkpointed_tool(made)


def test_an_agent_is_refused_with_what_to_do():
    with pytest.raises(DecorationError, match="Decorate the tools and the model"):
        checkpointed_tool(ToolCallingAgent([], Scripted("x"), **QUIET))


# --- killed ---------------------------------------------------------------------------

WAYS = ["calls", "text", "code", "stream"]


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("smolagents_agent.py", tmp_path, run_python)


@marked("smolagents", "killed")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["model 1: begin", "model 1: end"])
def test_a_killed_agent_goes_on_where_it_was(agent, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = agent.killed_at(point, way)

    assert second.stdout.endswith("done\n")
    assert agent.effects() == ["mail", "pay"]
    assert agent.requests() == sorted(["0", "1", "2", *["1"] * point.endswith("end")])


@marked("smolagents", "killed")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "point", ["body pay: begin", "body pay: end", "body mail: end"]
)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, way, point
):
    name = point.split()[1].rstrip(":")
    agent.killed_at(point, way)

    assert agent.effects().count(name) == point.endswith("end")
    assert len(agent.requests()) == len(set(agent.requests()))
