"""Tools of the OpenAI Agents SDK, decorated above and below `@function_tool`."""

import asyncio
import contextlib
import copy
import dataclasses
import inspect
import json
import shutil
from typing import Any

import pytest

pytest.importorskip("agents.tool_context")

import agents
from agents import (
    Agent,
    CustomTool,
    FunctionTool,
    RunContextWrapper,
    Runner,
    ToolGuardrailFunctionOutput,
    WebSearchTool,
    default_tool_error_function,
    function_tool,
    handoff,
    tool_input_guardrail,
    tool_namespace,
)
from agents.mcp import MCPServer, MCPServerStdio
from agents.tool_context import ToolContext
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from durable_agent import (
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    current_call,
    inspect_session,
    session,
)
from durable_agent._lanes import Lane
from tests.agents.openai_agents_model import Scripted, calls, says
from tests.frameworks.rows import ROWS

#: What ran, and the tool call that it ran for.
RAN: list[Any] = []
ROW = "openai-agents"


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    agents.set_tracing_disabled(True)


def seen(label):
    call = current_call()
    RAN.append((label, call and call.tool_call_id))


def search(query: str, limit: int = 3) -> str:
    """Search the archive.

    Args:
        query: what for
        limit: how many
    """
    seen(query)
    return f"{limit} x {query}"


async def asearch(query: str, limit: int = 3) -> str:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, limit)


def with_context(context: ToolContext[Any], query: str, limit: int = 3) -> str:
    """Search the archive."""
    assert context.tool_name == "search"
    return search(query, limit)


async def with_wrapper(
    context: RunContextWrapper[Any], query: str, limit: int = 3
) -> str:
    """Search the archive."""
    assert context.context is None
    return search(query, limit)


async def by_hand(context, text):
    assert context.tool_name == "search"
    return search(**json.loads(text))


def handmade():
    schema = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query", "limit"],
        "additionalProperties": False,
    }
    return FunctionTool(
        name="search",
        description="d",
        params_json_schema=schema,
        on_invoke_tool=by_hand,
    )


# Innermost, a call is told by the function's own name.
asearch.__name__ = "search"

FUNCTIONS = {
    "sync": search,
    "async": asearch,
    "context": with_context,
    "wrapper": with_wrapper,
}


def made(function):
    return function_tool(name_override="search")(function)


def under(name):
    return made(checkpointed_tool(FUNCTIONS[name]))


def over(name):
    return checkpointed_tool(made(FUNCTIONS[name]))


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


def run(tool, *turns, model=None, **more):
    """The outputs that the model was shown, by the id of their calls."""
    scripted = Scripted([calls(*turn) for turn in turns] + [says("done")])
    agent = Agent(
        name="a", tools=[tool], model=(model or (lambda m: m))(scripted), **more
    )
    result = asyncio.run(Runner.run(agent, "hi"))
    assert result.final_output == "done"
    return scripted.seen[-1] if scripted.seen else outputs_of(result)


def outputs_of(result):
    return {
        item["call_id"]: item["output"]
        for item in result.to_input_list()
        if item.get("type") == "function_call_output"
    }


def durable(tool, *turns, **more):
    return run(tool, *turns, model=checkpointed_llm, **more)


@pytest.fixture
def never_waits(monkeypatch):
    """A replay that waits for anything fails."""

    def give_up(*_):
        raise AssertionError

    monkeypatch.setattr(Lane, "write_off", give_up)


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root, kind="tool/call"):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type == kind]


def asks(id_="tc-1", name="search", **args):
    return [(name, args, id_)]


# --- what it looks like ---------------------------------------------------------------


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_decorated_tool_looks_like_the_undecorated_one(form, name):
    plain, decorated = made(FUNCTIONS[name]), form(name)

    assert type(decorated) is FunctionTool
    for field in dataclasses.fields(FunctionTool):
        if field.name != "on_invoke_tool":
            assert getattr(decorated, field.name) == getattr(plain, field.name)
    assert inspect.unwrap(decorated) is inspect.unwrap(plain)
    marker = "__agents_sync_function_tool__"
    assert hasattr(decorated.on_invoke_tool, marker) == (name in {"sync", "context"})


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, name):
    tool = form(name)

    with session("s", root=root):
        first = durable(tool, asks(query="a", limit=1), asks("tc-2", query="b"))
    with again(root):
        second = durable(tool, asks(query="a", limit=1), asks("tc-2", query="b"))

    assert first == {"tc-1": "1 x a", "tc-2": "3 x b"}
    assert second == first
    assert RAN == [("a", "tc-1"), ("b", "tc-2")]
    found = recorded(root)
    assert [e.data["tool_call_id"] for e in found] == ["tc-1", "tc-2"]
    assert [e.data["args"]["query"] for e in found] == ["a", "b"]
    assert [e.data["args"].keys() - {"query", "limit"} for e in found] == [set(), set()]
    assert not any("parent" in e.head.meta for e in found)
    assert [e.head.meta["effect"] for e in found] == ["side_effect"] * 2


@pytest.mark.framework(ROW, "over")
def test_the_line_of_the_table_is_true(root):
    scope = {"checkpointed_tool": checkpointed_tool, "tools": [made(search)]}
    exec(ROWS[ROW].line, scope)  # noqa: S102 - it is the README's

    with session("s", root=root):
        durable(scope["tools"][0], asks(query="a"))

    assert len(recorded(root)) == 1


def test_the_original_stays_as_it_was(root):
    plain = made(search)
    before = plain.on_invoke_tool
    checkpointed_tool(plain)

    with session("s", root=root):
        durable(plain, asks(query="a"))

    assert plain.on_invoke_tool is before
    assert recorded(root) == []


def test_a_tool_made_by_hand_is_recorded(root):
    tool = checkpointed_tool(handmade())

    with session("s", root=root):
        first = durable(tool, asks(query="a", limit=1))
    with again(root):
        assert durable(tool, asks(query="a", limit=1)) == first

    assert RAN == [("a", "tc-1")]


def test_a_tool_of_free_text_is_recorded(root):
    async def invoke(context, text):
        seen(text)
        return text.upper()

    plain = CustomTool(name="sql", description="d", on_invoke_tool=invoke)
    tool = checkpointed_tool(plain)
    context = ToolContext(
        context=None, tool_name="sql", tool_call_id="tc-1", tool_arguments="select"
    )

    with session("s", root=root):
        assert asyncio.run(tool.on_invoke_tool(context, "select")) == "SELECT"
    with again(root):
        assert asyncio.run(tool.on_invoke_tool(context, "select")) == "SELECT"

    assert type(tool) is CustomTool
    assert tool.tool_config == plain.tool_config
    assert RAN == [("select", "tc-1")]
    assert recorded(root)[0].data["args"] == {"input": "select"}


def test_above_and_below_are_the_same_call(root):
    with session("s", root=root):
        first = durable(over("sync"), asks(query="a", limit=1))
    with again(root):
        assert durable(under("sync"), asks(query="a", limit=1)) == first

    assert len(RAN) == 1


def test_decorating_above_and_below_records_once(root):
    tool = checkpointed_tool(made(checkpointed_tool(search, effect="read_only")))

    with session("s", root=root):
        durable(tool, asks(query="a"))

    (call,) = recorded(root)
    assert call.head.meta["effect"] == "read_only"


def test_a_tool_that_is_decorated_already_stays_itself():
    tool = checkpointed_tool(made(search))

    assert checkpointed_tool(tool) is tool
    assert checkpointed_tool(tool, effect="read_only") is not tool
    with pytest.raises(DecorationError, match="effect"):
        checkpointed_tool(
            checkpointed_tool(tool, effect="idempotent"), effect="read_only"
        )


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        lambda tool: dataclasses.replace(tool, description="other"),
        lambda tool: tool_namespace(name="n", description="d", tools=[tool])[0],
    ],
    ids=["copy", "replace", "namespace"],
)
def test_copies_of_an_adapted_tool_are_recorded_as_well(root, copied):
    tool = copied(checkpointed_tool(made(search)))

    with session("s", root=root):
        asyncio.run(invoked(tool, query="a"))

    assert len(recorded(root)) == 1


async def invoked(tool, **args):
    """What the SDK's own function for it gives."""
    text = json.dumps(args)
    context = ToolContext(
        context=None, tool_name=tool.name, tool_call_id="tc-1", tool_arguments=text
    )
    return await agents.tool.invoke_function_tool(
        function_tool=tool, context=context, arguments=text
    )


def test_tools_made_alike_are_told_apart_by_their_names(root):
    def to(name):
        def send(text: str) -> str:
            seen(name)
            return name

        return checkpointed_tool(function_tool(name_override=name)(send))

    one, other = to("one"), to("other")
    with session("s", root=root):
        asyncio.run(invoked(one, text="x"))
        asyncio.run(invoked(other, text="x"))
    with again(root, on_divergence="ignore"):
        assert asyncio.run(invoked(other, text="x")) == "other"
        assert asyncio.run(invoked(one, text="x")) == "one"

    assert len(RAN) == 2


def test_what_a_person_configured_still_holds(root):
    """Guardrails, enabling and approval are the framework's; they come first."""
    guarded = []

    @tool_input_guardrail
    def guard(data):
        guarded.append(data.context.tool_call_id)
        return ToolGuardrailFunctionOutput.reject_content("not so")

    tool = checkpointed_tool(
        function_tool(
            name_override="search",
            tool_input_guardrails=[guard],
            is_enabled=lambda *_: True,
        )(search)
    )
    with session("s", root=root):
        shown = durable(tool, asks(query="a"))

    assert shown == {"tc-1": "not so"}
    assert guarded == ["tc-1"]
    assert recorded(root) == []


def test_an_option_that_names_no_argument_is_refused():
    with pytest.raises(DecorationError, match=r"limits.*search"):
        checkpointed_tool(made(search), ignore="limits")


def test_options_are_those_of_functions(root):
    tool = checkpointed_tool(
        made(search), effect="read_only", ignore="limit", key="query", name="find"
    )

    with session("s", root=root):
        durable(tool, asks(query="a", limit=1))
    with again(root):
        assert durable(tool, asks(query="a", limit=2))["tc-1"] == "1 x a"

    (call,) = recorded(root)
    assert call.head.meta["name"] == "find"
    assert call.data["args"] == {"query": "a"}


# --- ids of tool calls ----------------------------------------------------------------


@pytest.mark.framework(ROW, "call id")
@pytest.mark.parametrize(
    ("make", "name"), [(over, "context"), (over, "sync"), (under, "context")]
)
def test_calls_of_one_turn_keep_their_ids(root, make, name):
    turn = [("search", {"query": "x", "limit": 1}, f"id-{n}") for n in range(8)]
    tool = make(name)

    with session("s", root=root):
        first = durable(tool, turn)
    with again(root):
        second = durable(tool, turn)

    assert second == first
    assert sorted(RAN) == sorted(("x", f"id-{n}") for n in range(8))
    assert {e.data["tool_call_id"] for e in recorded(root)} == set(first)


@pytest.mark.framework(ROW, "call id")
def test_only_the_tools_own_function_answers_its_tool_call(root):
    @checkpointed_tool
    def audit(context: ToolContext[Any], line: str) -> None:
        seen(line)

    def outer(context: ToolContext[Any], query: str) -> str:
        """Search."""
        audit(context, "begin")
        return inner(context, query)

    @checkpointed_tool
    def inner(context: ToolContext[Any], query: str) -> str:
        return search(query)

    with session("s", root=root):
        durable(made(outer), asks(query="a"))

    assert RAN == [("begin", None), ("a", "tc-1")]


def test_the_function_of_an_undecorated_model_finds_its_id_too(root):
    """Only the tool is recorded; the SDK says which call it is."""
    with session("s", root=root):
        run(over("sync"), asks(query="a"))

    assert [e.data["tool_call_id"] for e in recorded(root)] == ["tc-1"]


# --- errors ---------------------------------------------------------------------------


def failing(query: str) -> str:
    """Fail."""
    seen(query)
    raise ValueError(f"no {query}")


def show(context, error):
    return f"shown: {error}"


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("handler", [default_tool_error_function, show])
@pytest.mark.parametrize("above", [True, False])
def test_errors_are_shown_as_the_framework_does_and_replay(root, above, handler):
    how = function_tool(name_override="search", failure_error_function=handler)
    tool = checkpointed_tool(how(failing)) if above else how(checkpointed_tool(failing))

    plain = run(how(failing), asks(query="a"))
    with session("s", root=root):
        first = durable(tool, asks(query="a"))
    with again(root):
        second = durable(tool, asks(query="a"))

    assert first == second == plain
    assert len(RAN) == 2
    (result,) = recorded(root, "tool/result")
    assert "no a" in json.dumps(result.data["error"])


@pytest.mark.framework(ROW, "errors")
def test_an_error_that_nobody_handles_ends_the_run(root):
    how = function_tool(name_override="search", failure_error_function=None)
    tool = checkpointed_tool(how(failing), effect="read_only")

    with pytest.raises(agents.UserError, match="no a"):
        with session("s", root=root):
            durable(tool, asks(query="a"))

    assert len(RAN) == 1


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("make", [over, under])
def test_a_failed_checkpoint_that_was_swallowed_is_raised_again(
    root, monkeypatch, make
):
    tool = make("sync")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            # Turned into a text by the framework.
            assert "error" in run(tool, asks(query="a"))["tc-1"]
            monkeypatch.undo()
            assert "error" in run(tool, asks(query="b"))["tc-1"]
            with pytest.raises(CheckpointError):
                search_again = checkpointed_tool(search)
                search_again("c")

    assert RAN == []


@pytest.mark.framework(ROW, "errors")
def test_arguments_that_are_no_json_are_the_frameworks_to_refuse(root):
    turn = [("search", "{not json", "tc-1")]
    plain = run(made(search), turn)

    with session("s", root=root):
        assert durable(over("sync"), turn) == plain
    with again(root):
        assert durable(over("sync"), turn) == plain

    assert RAN == []


def cut_off(root, tmp_path, **more):
    """A tool during whose first run the log was as if the process had been killed."""

    def cut(query: str) -> str:
        """Search."""
        seen(query)
        shutil.copytree(root, tmp_path / "killed")
        return "found"

    tool = checkpointed_tool(function_tool(name_override="search", **more)(cut))
    with session("s", root=root):
        durable(tool, asks(query="a"))
    return tool


@pytest.mark.framework(ROW, "errors")
def test_what_is_in_doubt_is_told_to_the_model_in_our_words(root, tmp_path):
    """The SDK's own words are to try again."""
    tool = cut_off(root, tmp_path)

    with session("s", root=tmp_path / "killed"):
        shown = durable(tool, asks(query="a"))

    assert "may or may not" in shown["tc-1"]
    assert len(RAN) == 1


@pytest.mark.framework(ROW, "errors")
def test_what_is_in_doubt_ends_the_run_where_errors_do(root, tmp_path):
    tool = cut_off(root, tmp_path, failure_error_function=None)

    with pytest.raises(agents.UserError) as raised:
        with session("s", root=tmp_path / "killed"):
            durable(tool, asks(query="a"))

    assert isinstance(raised.value.__cause__, ToolOutcomeUnknownError)
    assert len(RAN) == 1


@pytest.mark.framework(ROW, "errors")
def test_a_handler_of_errors_sees_what_is_in_doubt(root, tmp_path):
    tool = cut_off(root, tmp_path, failure_error_function=show)

    with session("s", root=tmp_path / "killed"):
        shown = durable(tool, asks(query="a"))

    assert shown["tc-1"].startswith("shown: ")


def test_a_tool_that_timed_out_is_in_doubt_and_shown_as_the_framework_does(root):
    async def slow(query: str) -> str:
        """Search."""
        seen(query)
        await asyncio.Event().wait()
        return ""

    how = function_tool(name_override="search", timeout=0.05)
    tool = checkpointed_tool(how(slow))
    with session("s", root=root):
        first = durable(tool, asks(query="a"))
    with again(root):
        second = durable(tool, asks(query="a"))

    assert first == second
    assert "timed out" in first["tc-1"]
    assert len(RAN) == 1


# --- pauses ---------------------------------------------------------------------------


@pytest.mark.framework(ROW, "pauses")
def test_an_approval_comes_before_the_tool_is_called(root):
    tool = checkpointed_tool(
        function_tool(name_override="search", needs_approval=True)(search)
    )

    async def asked():
        scripted = Scripted([calls(*asks(query="a")), says("done")])
        agent = Agent(name="a", tools=[tool], model=checkpointed_llm(scripted))
        result = await Runner.run(agent, "hi")
        assert len(result.interruptions) == 1
        state = result.to_state()
        state.approve(result.interruptions[0])
        return (await Runner.run(agent, state)).final_output

    with session("s", root=root):
        assert asyncio.run(asked()) == "done"
    with again(root):
        assert asyncio.run(asked()) == "done"

    assert RAN == [("a", "tc-1")]
    assert len(recorded(root)) == 1


def nested(tool, **more):
    """An agent that asks another one, which has the tool."""
    inner = Agent(
        name="inner",
        tools=[tool],
        model=checkpointed_llm(Scripted([calls(*asks(query="a")), says("found")])),
    )
    asking = checkpointed_tool(inner.as_tool("ask", "Ask."), **more)
    turns = [calls(("ask", {"input": "a?"}, "tc-ask")), says("done")]
    return Agent(name="outer", tools=[asking], model=checkpointed_llm(Scripted(turns)))


@pytest.mark.framework(ROW, "pauses")
@pytest.mark.usefixtures("never_waits")
def test_an_agent_as_a_tool_that_waits_for_an_approval_is_suspended(root):
    tool = checkpointed_tool(
        function_tool(name_override="search", needs_approval=True)(search)
    )

    async def asked():
        agent = nested(tool)
        result = await Runner.run(agent, "hi")
        assert len(result.interruptions) == 1
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state)
        return result.final_output, outputs_of(result)

    with session("s", root=root):
        first = asyncio.run(asked())
    statuses = [e.head.meta["status"] for e in recorded(root, "tool/result")]
    for _ in range(2):
        # Nothing is waited for, however often it is paused again.
        with again(root, replay_wait=0):
            assert asyncio.run(asked()) == first

    assert first == ("done", {"tc-ask": "found"})
    assert RAN == [("a", "tc-1")]
    assert statuses == ["suspended", "value", "value"]


def test_an_agent_as_a_tool_holds_what_it_did(root):
    with session("s", root=root):
        asyncio.run(Runner.run(nested(over("sync")), "hi"))
    with again(root):
        asyncio.run(Runner.run(nested(over("sync")), "hi"))

    outer, inner = recorded(root)
    assert outer.head.meta["effect"] == "composite"
    assert inner.head.meta["parent"] == outer.head.call
    assert inner.data["tool_call_id"] == "tc-1"
    assert len(RAN) == 1


def test_a_stated_effect_of_an_agent_as_a_tool_holds(root):
    with session("s", root=root):
        asyncio.run(Runner.run(nested(over("sync"), effect="read_only"), "hi"))

    assert recorded(root)[0].head.meta["effect"] == "read_only"


def test_agents_that_hand_over_are_recorded_each(root):
    async def asked():
        other = Agent(
            name="other",
            tools=[over("sync")],
            model=checkpointed_llm(
                Scripted([says("?"), calls(*asks(query="a")), says("done")])
            ),
        )
        turns = [calls((handoff(other).tool_name, {}, "tc-over"))]
        first = Agent(
            name="first", handoffs=[other], model=checkpointed_llm(Scripted(turns))
        )
        return (await Runner.run(first, "hi")).final_output

    with session("s", root=root):
        first = asyncio.run(asked())
    with again(root):
        assert asyncio.run(asked()) == first

    assert first == "done"
    assert RAN == [("a", "tc-1")]


def waiting(nest):
    tool = checkpointed_tool(
        function_tool(name_override="search", needs_approval=True)(search)
    )
    if nest:
        return nested(tool)
    scripted = Scripted([calls(*asks(query="a")), says("done")])
    return Agent(name="a", tools=[tool], model=checkpointed_llm(scripted))


@pytest.mark.framework(ROW, "pauses")
@pytest.mark.parametrize("nest", [False, True])
def test_an_approval_that_is_given_in_another_process_goes_on(root, nest):
    """The SDK's own state is kept as a text; each time, the session is a new one."""

    async def first():
        result = await Runner.run(waiting(nest), "hi")
        return result.to_state().to_string()

    async def second(text):
        agent = waiting(nest)
        state = await agents.RunState.from_string(agent, text)
        state.approve(state.get_interruptions()[0])
        return (await Runner.run(agent, state)).final_output

    with session("s", root=root):
        text = asyncio.run(first())
    for _ in range(2):
        with again(root):
            assert asyncio.run(second(text)) == "done"

    assert RAN == [("a", "tc-1")]


# --- MCP servers ----------------------------------------------------------------------


class Server(MCPServer):
    """Its tools are listed, and called by name."""

    name = "archive"

    async def connect(self):
        pass

    cleanup = connect

    async def list_tools(self, run_context=None, agent=None):
        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        return [MCPTool(name="search", inputSchema=schema)]

    async def call_tool(self, tool_name, arguments, meta=None):
        seen(arguments["query"])
        content = [TextContent(type="text", text=f"{tool_name} {arguments['query']}")]
        return CallToolResult(content=content)

    async def list_prompts(self):
        raise NotImplementedError

    async def get_prompt(self, name, arguments=None):
        raise NotImplementedError


def test_the_method_of_an_mcp_server_is_recorded_as_the_refusal_advises(root):
    def ask():
        server = Server()
        with pytest.raises(DecorationError) as refused:
            checkpointed_tool(server)
        advised = str(refused.value).split("`")[1]
        exec(advised, {"server": server, "checkpointed_tool": checkpointed_tool})  # noqa: S102 - what a person would copy
        scripted = Scripted([calls(*asks(query="a")), says("done")])
        agent = Agent(name="a", mcp_servers=[server], model=checkpointed_llm(scripted))
        return outputs_of(asyncio.run(Runner.run(agent, "hi")))

    with session("s", root=root):
        first = ask()
    with again(root):
        second = ask()

    assert second == first
    assert "search a" in str(first["tc-1"])
    assert len(RAN) == 1
    assert recorded(root)[0].data["function"] == "search"


# --- refusals -------------------------------------------------------------------------


def other_agent():
    return Agent(name="x")


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (other_agent, "its tools and its model"),
        (lambda: handoff(other_agent()), "other agent's tools"),
        (WebSearchTool, "at the provider"),
        (lambda: MCPServerStdio(params={"command": "x"}), "server.call_tool"),
        (lambda: agents.LocalShellTool(executor=print), "executor"),
    ],
)
@pytest.mark.parametrize("decorator", [checkpointed_tool, checkpointed_llm])
def test_what_has_no_calls_of_its_own_is_refused(make, advice, decorator):
    with pytest.raises(DecorationError) as refused:
        decorator(make())

    assert isinstance(refused.value, TypeError)
    assert advice in str(refused.value)


def test_a_tool_is_no_model():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(made(search))


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize(
    "name",
    [
        "_FailureHandlingFunctionToolInvoker",
        "resolve_function_tool_failure_error_function",
        "default_tool_error_function",
    ],
)
def test_a_version_without_what_is_needed_is_refused_by_name(monkeypatch, name):
    tool = made(search)
    monkeypatch.delattr(agents.tool, name)

    with pytest.raises(DecorationError, match=r"openai-agents \d"):
        checkpointed_tool(tool)


@pytest.mark.framework(ROW, "over")
def test_an_invoker_without_what_is_needed_is_refused_by_name():
    tool = made(search)
    del tool.on_invoke_tool._invoke_tool_impl

    with pytest.raises(DecorationError, match=r"_invoke_tool_impl"):
        checkpointed_tool(tool)


def test_an_agent_tool_without_what_is_needed_is_refused_by_name(monkeypatch):
    tool = other_agent().as_tool("ask", "Ask.")
    monkeypatch.delattr(agents.agent_tool_state, "peek_agent_tool_run_result")

    with pytest.raises(DecorationError, match=r"openai-agents \d"):
        checkpointed_tool(tool)
