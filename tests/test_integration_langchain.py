"""Tools of LangChain, decorated above and below `@tool`, are recorded as tool calls."""

import asyncio
import contextlib
import copy
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core.callbacks import CallbackManagerForToolRun, Callbacks
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    ToolException,
    tool,
)
from pydantic import BaseModel, Field, PrivateAttr

from durable_agent import (
    ArgumentNotStorableError,
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    ReplayDivergedError,
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    current_call,
    inspect_session,
    session,
)
from durable_agent.integrations import _langchain_ids, langchain
from durable_agent.jsonl import JsonlStore

#: What ran, and the recorded call that it ran in.
RAN = []

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning")


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


class Args(BaseModel):
    """Search the archive."""

    query: str
    limit: int = Field(3, description="how many")


class SearchTool(BaseTool):
    """A tool with a class of its own."""

    name: str = "search"
    description: str = "Search the archive."
    args_schema: Any = Args
    _client: object = PrivateAttr(default_factory=object)

    def _run(self, query: str, limit: int = 3) -> str:
        assert self._client is not None
        return search(query, limit)


class AsyncSearchTool(SearchTool):
    async def _arun(self, query: str, limit: int = 3) -> str:
        return await asearch(query, limit)


class NamedTool(SearchTool):
    def _run(self, query: str, limit: int = 3) -> str:
        seen(query)
        return self.name


def both():
    return StructuredTool.from_function(search, asearch)


def from_json_schema():
    return StructuredTool(
        name="search",
        description="Search the archive.",
        args_schema=Args.model_json_schema(),
        func=search,
    )


FORMS = {
    "above @tool": (lambda: tool(search), checkpointed_tool),
    "below @tool": (lambda f=search: tool(f), None),
    "coroutine": (lambda: tool("search")(asearch), checkpointed_tool),
    "coroutine below": (lambda f=asearch: tool("search")(f), None),
    "function and coroutine": (both, checkpointed_tool),
    "JSON schema": (from_json_schema, checkpointed_tool),
    "class": (SearchTool, checkpointed_tool),
    "async class": (AsyncSearchTool, checkpointed_tool),
}


def forms(name):
    """A tool undecorated, and the same decorated."""
    make, above = FORMS[name]
    if above is not None:
        return make(), above(make())
    return make(), make(checkpointed_tool(make.__defaults__[0]))


def invoke(made, given, **more):
    if getattr(made, "func", True) is None:
        return asyncio.run(made.ainvoke(given, **more))
    return made.invoke(given, **more)


def tool_call(args, id_="tc-1", name="search"):
    return {"type": "tool_call", "name": name, "args": args, "id": id_}


def recorded(root):
    """The calls in the log: type, function, provider's id, arguments, parent."""
    with inspect_session("s", root=root) as looked:
        return [
            (e.type, e.data["function"], e.data["tool_call_id"], e.data["args"])
            for e in looked.events()
            if e.type in {"llm/request", "tool/call"}
        ]


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


@pytest.mark.framework("langchain", "under")
@pytest.mark.framework("langchain", "over")
@pytest.mark.parametrize("form", FORMS)
def test_a_decorated_tool_looks_like_the_undecorated_one(form):
    """Schema, name and type are what models and frameworks see."""
    plain, decorated = forms(form)

    assert isinstance(decorated, type(plain))
    assert type(decorated).__name__ == type(plain).__name__
    assert (decorated.name, decorated.description) == (plain.name, plain.description)
    assert decorated.args == plain.args
    schema, same = decorated.tool_call_schema, plain.tool_call_schema
    if not isinstance(schema, dict):
        schema, same = schema.model_json_schema(), same.model_json_schema()
    assert schema == same


@pytest.mark.framework("langchain", "under")
@pytest.mark.framework("langchain", "over")
@pytest.mark.parametrize("form", FORMS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form):
    _, made = forms(form)

    def run():
        return (
            invoke(made, {"query": "a"}),
            invoke(made, tool_call({"query": "b", "limit": 1})),
        )

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert first[0] == "3 x a"
    assert (first[1].content, first[1].tool_call_id) == ("1 x b", "tc-1")
    assert second == first
    assert RAN == [("a", None), ("b", "tc-1")]
    assert [call[2:] for call in recorded(root)] == [
        (None, {"query": "a", "limit": 3}),
        ("tc-1", {"query": "b", "limit": 1}),
    ]


@pytest.mark.framework("langchain", "under")
@pytest.mark.framework("langchain", "over")
@pytest.mark.parametrize("form", FORMS)
def test_ainvoke_and_batch_are_recorded_too(root, form):
    _, made = forms(form)
    calls = [tool_call({"query": q}, f"id-{q}") for q in "abc"]

    async def run():
        one = await made.ainvoke(calls[0])
        return [one, *await made.abatch(calls[1:])]

    with session("s", root=root):
        first = asyncio.run(run())
    with again(root):
        second = asyncio.run(run())

    assert [m.content for m in first] == ["3 x a", "3 x b", "3 x c"]
    assert second == first
    assert sorted(RAN) == [("a", "id-a"), ("b", "id-b"), ("c", "id-c")]
    assert len(recorded(root)) == 3


@pytest.mark.framework("langchain", "call id")
def test_batch_in_threads_keeps_each_ones_id(root):
    made = checkpointed_tool(tool(search))

    with session("s", root=root):
        made.batch([tool_call({"query": str(n)}, f"id-{n}") for n in range(20)])

    assert sorted(RAN) == sorted((str(n), f"id-{n}") for n in range(20))
    assert _langchain_ids._runs == {}


def test_sync_and_async_are_the_same_call(root):
    """A script that becomes async must not search, or pay, again."""
    made = checkpointed_tool(both())

    with session("s", root=root):
        made.invoke({"query": "a"})
    with again(root):
        assert asyncio.run(made.ainvoke({"query": "a"})) == "3 x a"

    assert len(RAN) == 1


def test_above_and_below_are_the_same_call(root):
    with session("s", root=root):
        checkpointed_tool(tool(search)).invoke({"query": "a"})
    with again(root):
        tool(checkpointed_tool(search)).invoke({"query": "a"})

    assert len(RAN) == 1


def test_decorating_above_and_below_records_once(root):
    made = checkpointed_tool(tool(checkpointed_tool(search, effect="read_only")))

    with session("s", root=root):
        made.invoke({"query": "a"})

    assert len(recorded(root)) == 1


def test_a_tool_that_is_decorated_already_stays_itself():
    made = checkpointed_tool(tool(search))

    assert checkpointed_tool(made) is made


@pytest.mark.parametrize(
    "make",
    [
        lambda name: StructuredTool.from_function(_send_to(name), name=name),
        lambda name: NamedTool(name=name),
    ],
    ids=["function", "class"],
)
def test_tools_made_alike_are_told_apart_by_their_names(root, make):
    """Tools made in a loop share a function or class; their calls are not equal."""
    one, other = (checkpointed_tool(make(name)) for name in ("one", "other"))

    with session("s", root=root):
        assert one.invoke({"query": "x"}) == "one"
        assert other.invoke({"query": "x"}) == "other"
    with again(root, on_divergence="ignore"):
        assert other.invoke({"query": "x"}) == "other"
        assert one.invoke({"query": "x"}) == "one"

    assert [call[1] for call in recorded(root)] == ["one", "other"]
    assert len(RAN) == 2


def _send_to(name):
    def send(query: str) -> str:
        """Send."""
        seen(name)
        return name

    return send


def test_a_tool_of_one_function_is_copied(root):
    made = checkpointed_tool(Tool(name="search", description="d", func=search))

    with session("s", root=root):
        assert made.invoke("a") == "3 x a"
        message = made.invoke(tool_call({"query": "b"}))

    assert type(made) is Tool
    assert message.tool_call_id == "tc-1"
    assert RAN == [("a", None), ("b", "tc-1")]


# --- what LangChain fills in ----------------------------------------------------------


class Injecting(BaseTool):
    name: str = "search"
    description: str = "d"
    args_schema: Any = Args

    def _run(
        self,
        query: str,
        limit: int = 3,
        *,
        config: RunnableConfig,
        run_manager: CallbackManagerForToolRun | None = None,
    ) -> Any:
        assert run_manager is not None
        assert config["configurable"]["thread"]
        return search(query, limit)


@tool("search")
def injecting(
    query: str,
    config: RunnableConfig,
    call: Annotated[str, InjectedToolCallId],
    callbacks: Callbacks = None,
    limit: int = 3,
) -> Any:
    """Search."""
    assert call == "tc-1"
    assert config["configurable"]["thread"]
    assert callbacks is not None
    return search(query, limit)


@pytest.mark.framework("langchain", "under")
@pytest.mark.parametrize("plain", [Injecting(), injecting], ids=["class", "function"])
def test_what_langchain_fills_in_arrives_and_is_no_part_of_the_call(root, plain):
    """A config holds run ids and clients; another thread id is the same call."""
    made = checkpointed_tool(plain)

    with session("s", root=root):
        made.invoke(tool_call({"query": "a"}), {"configurable": {"thread": "1"}})
    with again(root):
        made.invoke(tool_call({"query": "a"}), {"configurable": {"thread": "2"}})

    assert RAN == [("a", "tc-1")]
    assert recorded(root)[0][3] == {"query": "a", "limit": 3}


class DecoratedInside(BaseTool):
    """Its author put the decorator on the methods."""

    name: str = "search"
    description: str = "d"
    args_schema: Any = Args

    @checkpointed_tool
    def _run(
        self,
        query: str,
        limit: int = 3,
        *,
        config: RunnableConfig,
        run_manager: CallbackManagerForToolRun | None = None,
    ) -> Any:
        assert run_manager is not None
        assert config["configurable"]["thread"]
        return search(query, limit)

    @checkpointed_tool
    async def _arun(self, query: str, limit: int = 3, *, config: RunnableConfig) -> Any:
        assert config["configurable"]["thread"]
        return await asearch(query, limit)


def test_methods_of_a_class_may_be_decorated_themselves(root):
    made = DecoratedInside()
    config = {"configurable": {"thread": "1"}}

    def run():
        call = tool_call({"query": "a"})
        return made.invoke(call, config), asyncio.run(made.ainvoke(call, config))

    with session("s", root=root):
        first = run()
    with again(root):
        assert run() == first

    assert RAN == [("a", "tc-1"), ("a", "tc-1")]
    assert [call[2:] for call in recorded(root)] == [
        ("tc-1", {"query": "a", "limit": 3})
    ] * 2


def test_the_bound_method_of_a_tool_may_be_decorated(root):
    invoked = checkpointed_tool(tool(search).invoke)

    with session("s", root=root):
        first = invoked({"query": "a"}, {"configurable": {"client": object()}})
    with again(root):
        second = invoked({"query": "a"}, {"configurable": {"client": object()}})

    assert first == second == "3 x a"
    assert len(RAN) == 1
    assert recorded(root)[0][3] == {"input": {"query": "a"}, "kwargs": {}}


def test_annotations_that_are_text_are_understood(root):
    def look(query: "str", config: "RunnableConfig", extra: "Missing" = None) -> "str":  # noqa: F821
        """Look."""
        return query

    decorated = checkpointed_tool(look)
    with session("s", root=root):
        assert decorated("a", {"configurable": {"client": object()}}) == "a"

    assert recorded(root)[0][3] == {"query": "a", "extra": None}


def test_an_argument_that_the_application_injects_is_recorded(root):
    """Whose account it is tells calls apart, although the model does not say it."""

    @checkpointed_tool
    @tool
    def pay(amount: int, user: Annotated[str, InjectedToolArg]) -> str:
        """Pay."""
        return user

    with session("s", root=root):
        pay.invoke({"amount": 1, "user": "ann"})

    assert recorded(root)[0][3] == {"amount": 1, "user": "ann"}


def test_an_argument_that_cannot_be_stored_is_still_refused(root):
    @checkpointed_tool
    @tool
    def pay(amount: int, client: Annotated[Any, InjectedToolArg]) -> str:
        """Pay."""
        seen("pay")
        return ""

    with session("s", root=root), pytest.raises(ArgumentNotStorableError):
        pay.invoke({"amount": 1, "client": object()})

    assert RAN == []


def test_options_are_those_of_functions(root):
    made = checkpointed_tool(
        tool(search), effect="read_only", ignore="limit", name="find"
    )

    with session("s", root=root):
        made.invoke({"query": "a", "limit": 1})
    with again(root):
        assert made.invoke({"query": "a", "limit": 2}) == "1 x a"

    assert recorded(root)[0][1:] == ("search", None, {"query": "a"})


def test_an_option_that_names_no_parameter_is_refused():
    with pytest.raises(DecorationError, match="limits"):
        checkpointed_tool(tool(search), ignore="limits")


# --- ids of tool calls ----------------------------------------------------------------


def test_only_the_tools_own_function_answers_its_tool_call(root):
    """What an undecorated tool calls inside is not what the model asked for."""

    @checkpointed_tool
    def audit(line: str) -> None:
        seen(line)

    @tool
    def outer(query: str) -> str:
        """Search."""
        audit("begin")
        return made(query)

    made = checkpointed_tool(search)
    with session("s", root=root):
        outer.invoke(tool_call({"query": "a"}, name="outer"))

    assert RAN == [("begin", None), ("a", "tc-1")]


def test_a_tool_message_as_an_argument_gives_no_id(root):
    from langchain_core.messages import ToolMessage

    @checkpointed_tool
    def show(message: Any) -> str:
        seen("show")
        return message.content

    with session("s", root=root):
        show(ToolMessage("x", tool_call_id="other"))

    assert RAN == [("show", None)]


# --- errors ---------------------------------------------------------------------------


def failing(query: str) -> str:
    """Fail."""
    seen(query)
    raise ToolException(f"no {query}")


@pytest.mark.framework("langchain", "errors")
@pytest.mark.parametrize("above", [True, False])
def test_errors_reach_the_handler_of_the_tool_and_replay(root, above):
    if above:
        made = checkpointed_tool(tool(failing))
    else:
        made = tool(checkpointed_tool(failing))
    made.handle_tool_error = True

    with session("s", root=root):
        first = made.invoke(tool_call({"query": "a"}, name="failing"))
    with again(root):
        second = made.invoke(tool_call({"query": "a"}, name="failing"))

    assert (first.content, first.status) == ("no a", "error")
    assert second == first
    assert len(RAN) == 1
    with inspect_session("s", root=root) as looked:
        results = [e.data for e in looked.events() if e.type == "tool/result"]
    assert ["error" in result for result in results] == [True]


def test_artifact_and_status_are_the_same_on_replay(root):
    @checkpointed_tool
    @tool(response_format="content_and_artifact")
    def chart(query: str) -> Any:
        """Draw."""
        seen(query)
        return "drawn", {"points": (1, 2)}

    with session("s", root=root):
        first = chart.invoke(tool_call({"query": "a"}, name="chart"))
    with again(root):
        second = chart.invoke(tool_call({"query": "a"}, name="chart"))

    assert first.artifact == {"points": (1, 2)}
    assert second == first
    assert len(RAN) == 1


@pytest.mark.framework("langchain", "errors")
def test_a_failed_checkpoint_that_was_swallowed_is_raised_again(root, monkeypatch):
    """A framework that makes a text of it must not make the session look well."""
    made = checkpointed_tool(tool(search))
    store = JsonlStore(root)

    with pytest.raises(CheckpointError):
        with session("s", store=store) as opened:
            _fail_appends(monkeypatch, opened)
            with pytest.raises(CheckpointError):
                made.invoke({"query": "a"})
            with pytest.raises(CheckpointError):
                made.invoke({"query": "b"})

    assert RAN == []


def _fail_appends(monkeypatch, opened):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(opened._core), "append", refuse)


# --- refusals -------------------------------------------------------------------------


def test_a_tool_is_no_model():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(tool(search))


def test_other_runnables_are_refused():
    """They would look recorded, and not be."""
    from langchain_core.runnables import RunnableLambda

    with pytest.raises(DecorationError, match="invoke"):
        checkpointed_tool(RunnableLambda(search))


def test_a_version_without_what_is_needed_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(langchain._NEEDED, "tool", ("_run", "_perform"))

    with pytest.raises(DecorationError, match=r"langchain-core \d.*_perform"):
        checkpointed_tool(tool(search))


def test_a_tool_without_functions_is_refused():
    empty = StructuredTool(name="x", description="d", args_schema=Args)

    with pytest.raises(DecorationError, match="'x' has no function"):
        checkpointed_tool(empty)


def test_copies_of_an_adapted_tool_are_recorded_as_well(root):
    made = checkpointed_tool(SearchTool())

    with session("s", root=root):
        for each in (copy.copy(made), copy.deepcopy(made), made.model_copy()):
            each.invoke({"query": "a"})

    assert len(recorded(root)) == 3
    assert made._client is not None


def test_another_argument_diverges_by_the_tools_name(root):
    made = checkpointed_tool(tool(search))
    with session("s", root=root):
        made.invoke({"query": "a"})

    with pytest.raises(ReplayDivergedError, match="query"):
        with (
            pytest.warns((FinishedSessionWarning, ReplayDivergedWarning)),
            session("s", root=root),
        ):
            made.invoke({"query": "b"})

    assert len(RAN) == 1
