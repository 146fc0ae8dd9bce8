"""Tools and models of Pydantic AI, decorated below and above its own wrappers."""

import asyncio
import contextlib
import copy
import dataclasses
import shutil
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
)
from pydantic_ai._function_schema import FunctionSchema
from pydantic_ai.exceptions import ModelHTTPError, ToolFailed
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

from durable_agent import (
    ArgumentNotStorableError,
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
from tests.frameworks.rows import ROWS

ROW = "pydantic-ai"
#: What ran, and the tool call that it ran for.
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def seen(label):
    call = current_call()
    RAN.append((label, call and call.tool_call_id))


def scripted(*turns):
    """A model that answers with these turns: calls of tools, or at last a text."""

    def answer(messages, _):
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        said = turns[turn] if turn < len(turns) else "done"
        if isinstance(said, str):
            return ModelResponse(parts=[TextPart(said)])
        return ModelResponse(parts=[ToolCallPart(*call) for call in said])

    return FunctionModel(answer, model_name="scripted-1")


def asks(id_="tc-1", name="search", **args):
    return [(name, args, id_)]


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


def with_context(ctx: RunContext[Any], query: str, limit: int = 3) -> str:
    """Search the archive."""
    assert ctx.deps == "deps"
    return search(query, limit)


# Innermost, a call is told by the function's own name.
asearch.__name__ = with_context.__name__ = "search"
FUNCTIONS = {"sync": search, "async": asearch, "context": with_context}


def plain(name):
    return Agent(tools=[Tool(FUNCTIONS[name])])


def in_tool(name):
    return Agent(tools=[Tool(checkpointed_tool(FUNCTIONS[name]))])


def in_agent(name):
    agent = Agent()
    register = agent.tool if name == "context" else agent.tool_plain
    register(checkpointed_tool(FUNCTIONS[name]))
    return agent


def in_toolset(name):
    toolset = FunctionToolset([checkpointed_tool(FUNCTIONS[name])])
    return Agent(toolsets=[toolset])


def over(name):
    return Agent(tools=[checkpointed_tool(Tool(FUNCTIONS[name]))])


def under(function):
    return pytest.param(function, marks=pytest.mark.framework(ROW, "under"))


FORMS = [
    *map(under, (in_tool, in_agent, in_toolset)),
    pytest.param(over, marks=pytest.mark.framework(ROW, "over")),
]


def run(agent, *turns, model=checkpointed_llm, **more):
    """What the agent's run comes to: the messages, and the output."""
    more = {"deps": "deps", **more}
    return asyncio.run(agent.run("hi", model=model(scripted(*turns)), **more))


def results(ran):
    """What the model was shown, by the id of the call."""
    return {
        part.tool_call_id: part.content
        for message in ran.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    }


def definitions(agent):
    """What the model is told of the tools."""
    told = []

    def answer(_, info):
        told.append(info.function_tools)
        return ModelResponse(parts=[TextPart("done")])

    asyncio.run(agent.run("hi", model=FunctionModel(answer), deps="deps"))
    return [dataclasses.replace(tool, toolset_id=None) for tool in told[0]]


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


# --- what it looks like ---------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_model_is_told_the_same_of_a_decorated_tool(form, name):
    assert definitions(form(name)) == definitions(plain(name))


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_adapted_tool_looks_like_the_tool(name):
    def checked(ctx, **_):
        return None

    tool = Tool(
        FUNCTIONS[name],
        args_validator=checked,
        max_retries=7,
        metadata={"a": 1},
        requires_approval=True,
    )
    made = checkpointed_tool(tool)

    assert type(made) is Tool
    kept = vars(tool).keys() - {"function", "function_schema"}
    assert {n: vars(made)[n] for n in kept} == {n: vars(tool)[n] for n in kept}
    before, after = tool.function_schema, made.function_schema
    assert isinstance(after, type(before))
    for field in dataclasses.fields(before):
        if field.name != "function":
            assert getattr(after, field.name) == getattr(before, field.name)
    assert tool.function is FUNCTIONS[name]
    assert before.function is FUNCTIONS[name]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, name):
    turns = [asks(query="a", limit=1), asks("tc-2", query="b")]

    with session("s", root=root):
        first = run(form(name), *turns)
    with again(root):
        second = run(form(name), *turns)

    assert results(first) == {"tc-1": "1 x a", "tc-2": "3 x b"}
    assert results(second) == results(first)
    assert second.output == first.output == "done"
    # Innermost, it is the context that says which tool call it is.
    known = form is over or name == "context"
    ids = ["tc-1", "tc-2"] if known else [None, None]
    assert RAN == [("a", ids[0]), ("b", ids[1])]
    found = recorded(root)
    assert [e.data["args"] for e in found] == [
        {"query": "a", "limit": 1},
        {"query": "b", "limit": 3},
    ]
    assert [e.data["tool_call_id"] for e in found] == ids
    assert not any("parent" in e.head.meta for e in found)
    assert all(("resp" in e.head.meta) == known for e in found)


@pytest.mark.framework(ROW, "over")
def test_the_line_of_the_table_is_true(root):
    scope = {"checkpointed_tool": checkpointed_tool, "tools": [Tool(search)]}
    exec(ROWS[ROW].line, scope)  # noqa: S102 - it is the README's

    with session("s", root=root):
        run(Agent(tools=scope["tools"]), asks(query="a"))

    assert len(recorded(root)) == 1


def test_above_and_below_are_the_same_call(root):
    with session("s", root=root):
        run(over("sync"), asks(query="a"))
    with again(root):
        run(in_tool("sync"), asks(query="a"))

    assert len(RAN) == 1


def test_decorating_above_and_below_records_once(root):
    inner = checkpointed_tool(search, effect="read_only")

    with session("s", root=root):
        run(Agent(tools=[checkpointed_tool(Tool(inner))]), asks(query="a"))

    (call,) = recorded(root)
    assert call.head.meta["effect"] == "read_only"


def test_a_tool_that_is_decorated_already_stays_itself():
    made = checkpointed_tool(Tool(search))

    assert checkpointed_tool(made) is made
    assert checkpointed_tool(made, effect="read_only") is not made


def test_copies_of_an_adapted_tool_are_recorded_as_well(root):
    made = copy.copy(checkpointed_tool(Tool(search)))

    with session("s", root=root):
        run(Agent(tools=[made]), asks(query="a"))

    assert len(recorded(root)) == 1


def test_tools_made_alike_are_told_apart_by_their_names(root):
    def to(name):
        def send(text: str) -> str:
            seen(name)
            return name

        return checkpointed_tool(Tool(send, name=name))

    turn = [("one", {"text": "x"}, "1"), ("other", {"text": "x"}, "2")]
    with session("s", root=root):
        first = run(Agent(tools=[to("one"), to("other")]), turn)
    with again(root):
        second = run(Agent(tools=[to("one"), to("other")]), turn)

    assert results(first) == results(second) == {"1": "one", "2": "other"}
    assert len(RAN) == 2


def test_a_tool_from_a_schema_is_recorded(root):
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = Tool.from_schema(search, "search", "Search.", schema)

    with session("s", root=root):
        run(Agent(tools=[checkpointed_tool(tool)]), asks(query="a"))
    with again(root):
        run(Agent(tools=[checkpointed_tool(tool)]), asks(query="a"))

    assert RAN == [("a", "tc-1")]


def test_options_are_those_of_functions(root):
    how = checkpointed_tool(effect="read_only", ignore="limit", name="find")

    with session("s", root=root):
        run(Agent(tools=[how(Tool(search))]), asks(query="a", limit=1))

    (call,) = recorded(root)
    assert call.head.meta["name"] == "find"
    assert call.data["args"] == {"query": "a"}
    with pytest.raises(DecorationError, match="limits"):
        checkpointed_tool(Tool(search), ignore="limits")


class Order(BaseModel):
    item: str
    count: int = 1


def test_what_was_validated_is_what_is_recorded(root):
    def order(what: Order) -> Order:
        """Order."""
        seen(what.item)
        return what

    def agent():
        return Agent(tools=[checkpointed_tool(Tool(order))])

    turn = asks(name="order", item="ink")
    with session("s", root=root):
        first = run(agent(), turn)
    with again(root):
        second = run(agent(), turn)

    assert results(first) == results(second) == {"tc-1": Order(item="ink")}
    assert RAN == [("ink", "tc-1")]


# --- ids of tool calls ----------------------------------------------------------------


@pytest.mark.framework(ROW, "call id")
@pytest.mark.parametrize(
    ("form", "name"), [(over, "sync"), (over, "async"), (in_agent, "context")]
)
def test_calls_of_one_turn_keep_their_ids(root, form, name):
    turn = [("search", {"query": "x"}, f"id-{n}") for n in range(8)]

    with session("s", root=root):
        first = run(form(name), turn)
    with again(root):
        second = run(form(name), turn)

    assert results(second) == results(first)
    assert sorted(RAN) == sorted(("x", f"id-{n}") for n in range(8))


@pytest.mark.framework(ROW, "call id")
def test_only_the_tools_own_function_answers_its_tool_call(root):
    @checkpointed_tool
    def audit(ctx: RunContext[Any], line: str) -> None:
        seen(line)

    inner = checkpointed_tool(with_context)

    def outer(ctx: RunContext[Any], query: str) -> str:
        """Search."""
        audit(ctx, "begin")
        return inner(ctx, query)

    with session("s", root=root):
        run(Agent(tools=[Tool(outer, name="search")]), asks(query="a"))

    assert RAN == [("begin", None), ("a", "tc-1")]


# --- errors ---------------------------------------------------------------------------


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("error", [ToolFailed("no a"), ModelRetry("not a")])
@pytest.mark.usefixtures("never_waits")
def test_what_a_tool_tells_its_model_is_told_again_on_replay(root, above, error):
    def failing(query: str) -> str:
        """Fail."""
        seen(query)
        if query == "a":
            raise error
        return query

    def agent(wrap=True):
        made = Tool(failing, name="search")
        if wrap and above:
            made = checkpointed_tool(made)
        elif wrap:
            made = Tool(checkpointed_tool(failing), name="search")
        return Agent(tools=[made])

    turns = [asks(query="a"), asks("tc-2", query="b")]
    shown = results(run(agent(wrap=False), *turns, model=lambda m: m))
    with session("s", root=root):
        first = run(agent(), *turns)
    for _ in range(2):
        with again(root, replay_wait=0):
            second = run(agent(), *turns)
            assert results(second) == results(first) == shown

    assert [label for label, _ in RAN] == ["a", "b"] * 2


@pytest.mark.framework(ROW, "errors")
def test_other_errors_end_the_run_and_do_so_again(root):
    def failing(query: str) -> str:
        """Fail."""
        seen(query)
        raise ValueError(f"no {query}")

    agent = Agent(tools=[checkpointed_tool(Tool(failing, name="search"))])
    for _ in range(2):
        with pytest.raises(ValueError, match="no a"), session("s", root=root):
            run(agent, asks(query="a"))

    assert len(RAN) == 1


@pytest.mark.framework(ROW, "errors")
@pytest.mark.parametrize("form", [in_agent, over])
def test_a_failed_checkpoint_ends_the_run_and_comes_again(root, monkeypatch, form):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            for _ in range(2):
                with pytest.raises(CheckpointError):
                    run(form("sync"), asks(query="a"), model=lambda m: m)
                monkeypatch.undo()

    assert RAN == []


@pytest.mark.framework(ROW, "errors")
def test_what_is_in_doubt_ends_the_run(root, tmp_path):
    """The log is as if the process had been killed while the tool ran."""

    def cut(query: str) -> str:
        """Search."""
        seen(query)
        shutil.copytree(root, tmp_path / "killed")
        return "found"

    agent = Agent(tools=[checkpointed_tool(Tool(cut, name="search"))])
    with session("s", root=root):
        run(agent, asks(query="a"))
    with pytest.raises(ToolOutcomeUnknownError, match="may or may not"):
        with session("s", root=tmp_path / "killed"):
            run(agent, asks(query="a"))

    assert len(RAN) == 1


@pytest.mark.framework(ROW, "errors")
def test_an_argument_that_cannot_be_stored_is_refused():
    def pay(client: Any) -> str:
        """Pay."""
        seen("pay")
        return ""

    tool = checkpointed_tool(Tool(pay))

    async def call():
        await tool.function_schema.call({"client": object()}, None)

    with pytest.raises(ArgumentNotStorableError), session("s", root=None) as opened:
        assert opened is not None
        asyncio.run(call())


# --- pauses ---------------------------------------------------------------------------


def pausing(error):
    def pay(ctx: RunContext[Any], amount: int) -> str:
        """Pay."""
        if not ctx.tool_call_approved:
            RAN.append("asked")
            raise error
        seen(amount)
        return f"paid {amount}"

    return pay


def approved(agent, *turns):
    """Run until it waits for an approval, approve, and go on."""
    kinds = [str, DeferredToolRequests]
    first = run(agent, *turns, output_type=kinds)
    waiting = first.output
    asked = DeferredToolResults(
        approvals={call.tool_call_id: True for call in waiting.approvals},
        calls={call.tool_call_id: "done elsewhere" for call in waiting.calls},
    )
    model = checkpointed_llm(scripted(*turns))
    return asyncio.run(
        agent.run(
            model=model,
            message_history=first.all_messages(),
            deferred_tool_results=asked,
            output_type=kinds,
        )
    )


@pytest.mark.framework(ROW, "pauses")
@pytest.mark.parametrize("above", [True, False])
@pytest.mark.usefixtures("never_waits")
def test_a_call_that_waits_for_an_approval_is_suspended(root, above):
    pay = pausing(ApprovalRequired())

    def agent():
        tool = checkpointed_tool(Tool(pay)) if above else Tool(checkpointed_tool(pay))
        return Agent(tools=[tool])

    turn = asks(name="pay", amount=5)
    with session("s", root=root):
        first = approved(agent(), turn)
    (suspended, done) = recorded(root, "tool/result")
    with again(root, replay_wait=0):
        second = approved(agent(), turn)

    assert first.output == second.output == "done"
    assert results(first)["tc-1"] == results(second)["tc-1"] == "paid 5"
    assert suspended.head.meta["status"] == "suspended"
    assert done.data["value"] == "paid 5"
    # Each pause runs it from its start; the payment is made once.
    assert RAN == ["asked", (5, "tc-1"), "asked"]


@pytest.mark.framework(ROW, "pauses")
def test_an_approval_that_is_given_in_another_process_goes_on(root):
    """The messages are kept as a text; each time, the session is a new one."""
    turn = asks(name="pay", amount=5)

    def agent():
        tool = checkpointed_tool(Tool(pausing(ApprovalRequired())))
        return Agent(tools=[tool], output_type=[str, DeferredToolRequests])

    def second(text):
        history = ModelMessagesTypeAdapter.validate_json(text)
        answers = DeferredToolResults(approvals={"tc-1": True})
        more = {"message_history": history, "deferred_tool_results": answers}
        model = checkpointed_llm(scripted(turn))
        return asyncio.run(agent().run(model=model, **more)).output

    with session("s", root=root):
        text = run(agent(), turn).all_messages_json()
    for _ in range(2):
        with again(root):
            assert second(text) == "done"

    assert RAN == ["asked", (5, "tc-1")]


@pytest.mark.framework(ROW, "pauses")
def test_a_call_that_is_answered_elsewhere_is_no_outcome(root):
    def agent():
        return Agent(tools=[checkpointed_tool(Tool(pausing(CallDeferred())))])

    turn = asks(name="pay", amount=5)
    with session("s", root=root):
        first = approved(agent(), turn)

    assert results(first)["tc-1"] == "done elsewhere"
    (result,) = recorded(root, "tool/result")
    assert result.data["suspended"] is True
    assert "error" not in result.data


@pytest.mark.framework(ROW, "pauses")
def test_a_tool_that_has_to_be_approved_is_called_after_that(root):
    def agent():
        return Agent(tools=[checkpointed_tool(Tool(search, requires_approval=True))])

    with session("s", root=root):
        first = approved(agent(), asks(query="a"))
    with again(root):
        second = approved(agent(), asks(query="a"))

    assert results(first) == results(second) == {"tc-1": "3 x a"}
    assert RAN == [("a", "tc-1")]


@pytest.mark.framework(ROW, "pauses")
def test_what_is_told_to_the_model_is_no_outcome(root):
    def retried(query: str) -> str:
        """Search."""
        raise ModelRetry("not so")

    agent = Agent(tools=[checkpointed_tool(Tool(retried, name="search"))])
    with session("s", root=root):
        run(agent, asks(query="a"))

    (result,) = recorded(root, "tool/result")
    assert result.head.meta["status"] == "suspended"


# --- refusals -------------------------------------------------------------------------


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize(
    ("make", "advice"),
    [(Agent, "its tools and its model"), (FunctionToolset, "what it is made of")],
)
@pytest.mark.parametrize("decorator", [checkpointed_tool, checkpointed_llm])
def test_what_has_no_calls_of_its_own_is_refused(make, advice, decorator):
    with pytest.raises(TypeError) as refused:
        decorator(make())

    assert isinstance(refused.value, DecorationError)
    assert advice in str(refused.value)


def test_a_tool_is_no_model():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(Tool(search))


@pytest.mark.framework(ROW, "over")
@pytest.mark.parametrize("name", ["function", "call", "takes_ctx", "is_async"])
def test_a_version_without_what_is_needed_is_refused_by_name(name):
    tool = Tool(search)
    names = {"function", "call", "takes_ctx", "is_async"} - {name}
    tool.function_schema = type("Schema", (), dict.fromkeys(names))()

    with pytest.raises(DecorationError, match=rf"pydantic-ai-slim \d.*{name}|{name}"):
        checkpointed_tool(tool)


@pytest.mark.framework(ROW, "over")
def test_a_schema_that_calls_in_its_own_way_is_refused():
    """It may call another function than the one that would be recorded."""

    class Other(FunctionSchema):
        async def call(self, args_dict, ctx):
            return "not by function"

    tool = Tool(search)
    tool.function_schema.__class__ = Other

    with pytest.raises(DecorationError, match="no known call"):
        checkpointed_tool(tool)


def test_a_history_that_was_made_elsewhere_goes_on(root):
    """Messages of another run: their times and runs are not those of this one."""
    before = asyncio.run(Agent(scripted()).run("hi")).all_messages()

    def history():
        return [
            dataclasses.replace(message, timestamp=None, run_id="other")
            if isinstance(message, ModelRequest)
            else message
            for message in before
        ]

    def ask():
        model = checkpointed_llm(scripted("done", "again"))
        return asyncio.run(Agent(model).run("more", message_history=history())).output

    with session("s", root=root):
        first = ask()
    with again(root):
        assert ask() == first == "again"

    assert len(recorded(root, "llm/request")) == 1


@pytest.mark.framework("pydantic-ai", "model")
def test_what_a_fallback_notes_on_a_response_is_not_compared(root):
    """It writes down when and for how long the first model failed."""
    asked = []

    def broken(messages, info):
        asked.append("broken")
        raise ModelHTTPError(503, "broken")

    def whole(messages, info):
        asked.append("whole")
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("search", {"query": "x"}, "tc")])
        return ModelResponse(parts=[TextPart("done")])

    def run():
        models = [checkpointed_llm(FunctionModel(f)) for f in (broken, whole)]
        agent = Agent(FallbackModel(*models), tools=[Tool(checkpointed_tool(search))])
        return asyncio.run(agent.run("hi")).output

    with session("s", root=root):
        assert run() == "done"
    assert asked == ["broken", "whole"] * 2
    asked.clear()
    with again(root):
        assert run() == "done"
    assert asked == []
