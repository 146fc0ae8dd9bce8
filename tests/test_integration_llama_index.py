"""Tools and models of LlamaIndex, and its agents."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    CompletionResponse,
    LLMMetadata,
    ToolCallBlock,
)
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.calling import call_tool
from llama_index.core.tools.types import AsyncBaseTool, BaseTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from durable_agent import (
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
    pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning"),
    # Of its workflows.
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
]

marked = pytest.mark.framework

#: What ran, and what was sent.
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.fixture(autouse=True)
def _loop():
    """What LlamaIndex runs coroutine functions in; it would leave its own unclosed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    """The calls in the log, as they began."""
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


# --- tools ----------------------------------------------------------------------------


def search(query: str, limit: int = 3) -> str:
    """Search the archive."""
    RAN.append(query)
    return f"{limit} x {query}"


async def asearch(query: str, limit: int = 3) -> str:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, limit)


async def in_context(ctx: Context, query: str, limit: int = 3) -> str:
    """Search the archive."""
    assert isinstance(ctx, Context)
    return search(query, limit)


def both(fn=search, other=asearch):
    return FunctionTool.from_defaults(fn, async_fn=other, name="search")


FORMS = {
    "sync above": lambda d: d(FunctionTool.from_defaults(search)),
    "sync below": lambda d: FunctionTool.from_defaults(d(search)),
    "async above": lambda d: d(FunctionTool.from_defaults(async_fn=asearch)),
    "async below": lambda d: FunctionTool.from_defaults(async_fn=d(asearch)),
    "async as fn": lambda d: d(FunctionTool.from_defaults(asearch)),
    "both above": lambda d: d(both()),
    "with a callback": lambda d: d(
        FunctionTool.from_defaults(search, callback=lambda raw: f"<{raw}>")
    ),
}
CHECK = [
    pytest.param(form, marks=marked("llama-index", "under" if below else "over"))
    for form in FORMS
    for below in ["below" in form]
]


def called(tool, **given):
    return tool.call(**given)


def acalled(tool, **given):
    return asyncio.run(tool.acall(**given))


async def _in_loop(tool, given):
    return tool.call(**given)


def called_in_loop(tool, **given):
    return asyncio.run(_in_loop(tool, given))


WAYS = [called, acalled, called_in_loop]


@pytest.mark.parametrize("form", CHECK)
def test_a_decorated_tool_looks_like_the_undecorated_one(form):
    plain = FORMS[form](lambda tool: tool)
    made = FORMS[form](checkpointed_tool)

    assert type(made) is type(plain)
    assert made.metadata.name == plain.metadata.name
    assert made.metadata.description == plain.metadata.description
    assert made.metadata.get_parameters_dict() == plain.metadata.get_parameters_dict()
    kind = asyncio.iscoroutinefunction
    assert kind(made.real_fn) == kind(plain.real_fn)
    assert kind(made.async_fn)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", CHECK)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, way):
    made = FORMS[form](checkpointed_tool)

    with session("s", root=root):
        first = way(made, query="a")
    with again(root):
        second = way(made, query="a")

    assert first.content in {"3 x a", "<3 x a>"}
    assert second == first
    assert RAN == ["a"]
    (event,) = recorded(root)
    assert event.type == "tool/call"
    assert event.data["args"] == {"query": "a", "limit": 3}
    assert "parent" not in event.meta


@pytest.mark.parametrize("form", ["sync above", "both above", "async above"])
def test_sync_and_async_are_the_same_call(root, form):
    made = FORMS[form](checkpointed_tool)

    with session("s", root=root):
        called(made, query="a")
    with again(root):
        acalled(made, query="a")

    assert RAN == ["a"]


@marked("llama-index", "over")
def test_the_original_stays_as_it_was_and_the_copy_is_complete(root):
    plain = FunctionTool.from_defaults(
        search, return_direct=True, partial_params={"limit": 7}
    )
    scope = {"tools": [plain], "checkpointed_tool": checkpointed_tool}
    exec(ROWS["llama-index"].line, scope)  # noqa: S102 - the point
    (made,) = scope["tools"]

    with session("s", root=root):
        assert called(plain, query="a").content == "7 x a"
        assert called(made, query="b").content == "7 x b"

    assert made.metadata is plain.metadata
    assert [e.data["args"] for e in recorded(root)] == [{"query": "b", "limit": 7}]
    assert checkpointed_tool(made) is made


def test_decorating_above_and_below_records_once(root):
    made = checkpointed_tool(
        FunctionTool.from_defaults(checkpointed_tool(search, effect="read_only"))
    )

    with session("s", root=root):
        acalled(made, query="a")
        called(made, query="b")

    events = recorded(root)
    assert [e.meta["effect"] for e in events] == ["read_only"] * 2


def test_a_function_that_calls_the_other_one_records_once(root):
    below = checkpointed_tool(search)

    async def calling(query: str, limit: int = 3) -> str:
        """Search the archive."""
        return below(query, limit)

    made = checkpointed_tool(both(below, calling))
    with session("s", root=root):
        acalled(made, query="a")
    with again(root):
        called(made, query="a")

    assert len(recorded(root)) == 1


def test_tools_made_alike_are_told_apart(root):
    def make(name):
        return checkpointed_tool(FunctionTool.from_defaults(search, name=name))

    with session("s", root=root):
        called(make("one"), query="a")
        acalled(make("other"), query="a")

    assert [e.data["function"] for e in recorded(root)] == ["one", "other"]
    assert len({e.meta["name"] for e in recorded(root)}) == 2


class OldTool(BaseTool):
    """A tool that has but ``__call__``."""

    @property
    def metadata(self):
        return ToolMetadata(name="old", description="Search.")

    def __call__(self, input: Any) -> ToolOutput:
        return ToolOutput("old", search(input), raw_input={"input": input})


class OwnTool(AsyncBaseTool):
    @property
    def metadata(self):
        return ToolMetadata(name="own", description="Search.")

    def call(self, input: Any) -> ToolOutput:
        return ToolOutput("own", search(input), raw_input={"input": input})

    async def acall(self, input: Any) -> ToolOutput:
        return self.call(input)


@marked("llama-index", "over")
@pytest.mark.parametrize("cls", [OldTool, OwnTool])
def test_a_tool_of_an_own_class_is_recorded_too(root, cls):
    plain = cls()
    made = checkpointed_tool(plain)

    def run():
        outputs = [made("a")]
        if cls is OwnTool:
            outputs += [made.call("b"), asyncio.run(made.acall("c"))]
        return outputs

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert isinstance(made, cls)
    assert type(made).__name__ == cls.__name__
    assert type(plain) is cls
    assert second == first
    assert RAN == ["a", "b", "c"][: len(first)]
    assert len(recorded(root)) == len(first)
    assert checkpointed_tool(made) is made


@marked("llama-index", "errors")
@pytest.mark.parametrize("form", ["above", "below"])
def test_errors_are_shown_as_the_framework_shows_them(root, form):
    def fail(query: str) -> str:
        """Fail."""
        RAN.append(query)
        raise ValueError(f"no {query}")

    plain = call_tool(FunctionTool.from_defaults(fail), {"query": "a"})
    if form == "above":
        made = checkpointed_tool(FunctionTool.from_defaults(fail))
    else:
        made = FunctionTool.from_defaults(checkpointed_tool(fail))
    with session("s", root=root):
        first = call_tool(made, {"query": "a"})
    with again(root):
        second = call_tool(made, {"query": "a"})

    shown = plain.model_dump()
    assert first.model_dump() == second.model_dump() == shown
    assert [type(each.exception) for each in (first, second)] == [ValueError] * 2
    assert RAN == ["a", "a"]


# --- models ---------------------------------------------------------------------------

TEXTS = ["one ", "two ", "three"]


class Completing(CustomLLM):
    """Chats by completing; LlamaIndex turns the one into the other."""

    name: str = "m-1"

    @property
    def metadata(self):
        return LLMMetadata(model_name=self.name)

    def complete(self, prompt, formatted=False, **kwargs):
        RAN.append("complete")
        return CompletionResponse(text="".join(TEXTS))

    def stream_complete(self, prompt, formatted=False, **kwargs):
        RAN.append("stream_complete")
        for n in range(len(TEXTS)):
            text = "".join(TEXTS[: n + 1])
            yield CompletionResponse(text=text, delta=TEXTS[n])


async def chunks_of(messages, **_):
    RAN.append("stream")
    for n in range(len(TEXTS)):
        yield ChatMessage(role="assistant", content="".join(TEXTS[: n + 1]))


def sync_chunks_of(messages, **_):
    RAN.append("stream")
    for n in range(len(TEXTS)):
        yield ChatMessage(role="assistant", content="".join(TEXTS[: n + 1]))


def message_of(messages, **_):
    RAN.append("chat")
    return ChatMessage(role="assistant", content="".join(TEXTS))


def calling(generator):
    return MockFunctionCallingLLM(response_generator=generator)


ASK = [ChatMessage(role="user", content="hi")]


async def _taken(stream):
    return [chunk async for chunk in await stream]


REQUESTS = {
    "chat": lambda m: m.chat(ASK),
    "achat": lambda m: asyncio.run(m.achat(ASK)),
    "complete": lambda m: m.complete("hi"),
    "acomplete": lambda m: asyncio.run(m.acomplete("hi")),
    "chat_with_tools": lambda m: m.chat_with_tools([both()], "hi"),
    "achat_with_tools": lambda m: asyncio.run(m.achat_with_tools([both()], "hi")),
    "predict_and_call": lambda m: m.chat_with_tools([both()], "hi"),
}
STREAMS = {
    "stream_chat": lambda m: list(m.stream_chat(ASK)),
    "astream_chat": lambda m: asyncio.run(_taken(m.astream_chat(ASK))),
    "stream_complete": lambda m: list(m.stream_complete("hi")),
    "astream_complete": lambda m: asyncio.run(_taken(m.astream_complete("hi"))),
    "stream_chat_with_tools": lambda m: list(m.stream_chat_with_tools([both()], "hi")),
    "astream_chat_with_tools": lambda m: asyncio.run(
        _taken(m.astream_chat_with_tools([both()], "hi"))
    ),
}


def model_for(way):
    """A model that has the method, and counts."""
    if "tools" not in way and "call" not in way:
        return Completing()
    if "astream" in way:
        return calling(chunks_of)
    return calling(sync_chunks_of if "stream" in way else message_of)


@pytest.mark.parametrize(
    "way",
    [
        *(pytest.param(w, marks=marked("llama-index", "model")) for w in REQUESTS),
        *(pytest.param(w, marks=marked("llama-index", "stream")) for w in STREAMS),
    ],
)
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way):
    plain = model_for(way)
    made = checkpointed_llm(plain)
    run = (REQUESTS | STREAMS)[way]

    with session("s", root=root):
        first = run(made)
    with again(root):
        second = run(made)

    assert isinstance(made, type(plain))
    assert type(made).__name__ == type(plain).__name__
    assert second == first
    if way in STREAMS:
        assert [chunk.delta for chunk in second] == [chunk.delta for chunk in first]
        assert len(second) == len(TEXTS)
    assert len(RAN) == 1
    (event,) = recorded(root)
    assert event.type == "llm/request"
    assert "parent" not in event.meta


@marked("llama-index", "model")
def test_sync_and_async_requests_are_the_same(root):
    made = checkpointed_llm(calling(message_of))

    with session("s", root=root):
        made.chat(ASK)
    with again(root):
        asyncio.run(made.achat(ASK))

    assert RAN == ["chat"]


@marked("llama-index", "model")
def test_an_adapted_model_keeps_what_it_was_given():
    plain = Completing(name="m-2", system_prompt="Be kind.")
    made = checkpointed_llm(plain)

    assert made.metadata == plain.metadata
    assert made.system_prompt == plain.system_prompt
    assert made.callback_manager is plain.callback_manager
    assert made.class_name() == plain.class_name()
    assert type(plain) is Completing
    assert checkpointed_llm(made) is made


@marked("llama-index", "stream")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_that_was_broken_off_is_not_complete(root, is_async):
    """On replay the caller gets what it got; more of it is asked for again."""
    made = checkpointed_llm(calling(chunks_of if is_async else sync_chunks_of))

    async def abroken():
        stream = await made.astream_chat(ASK)
        first = await anext(stream)
        await stream.aclose()
        return first

    def broken():
        if is_async:
            return asyncio.run(abroken())
        stream = made.stream_chat(ASK)
        first = next(stream)
        stream.close()
        return first

    with session("s", root=root):
        first = broken()
    with again(root):
        assert broken() == first
        assert RAN == ["stream"]
    with again(root):
        whole = STREAMS["astream_chat" if is_async else "stream_chat"](made)

    assert [chunk.delta for chunk in whole][-1] == "".join(TEXTS)
    assert RAN == ["stream"] * 2


def test_models_of_one_class_are_told_apart_by_their_names(root):
    with session("s", root=root):
        for name in ("m-1", "m-2"):
            checkpointed_llm(Completing(name=name)).complete("hi")

    names = [e.meta["name"].partition("[")[2] for e in recorded(root)]
    assert names == ["m-1].complete", "m-2].complete"]


# --- agents ---------------------------------------------------------------------------


def asks(*calls):
    blocks = [
        ToolCallBlock(tool_call_id=f"tc-{n}", tool_name=name, tool_kwargs=arguments)
        for n, (name, arguments) in enumerate(calls)
    ]
    return ChatMessage(role="assistant", blocks=blocks)


def scripted(*turns):
    """A model that answers by how many assistants' messages there are."""

    def generate(messages, **_):
        RAN.append("request")
        done = [m.content for m in messages if m.role == "tool"]
        turn = sum(m.role == "assistant" for m in messages)
        if turn < len(turns):
            return asks(*turns[turn])
        return ChatMessage(role="assistant", content="; ".join(done))

    return checkpointed_llm(calling(generate))


def run(llm, tools):
    async def main():
        agent = FunctionAgent(tools=tools, llm=llm, streaming=False)
        return str(await agent.run(user_msg="hi"))

    return asyncio.run(main())


@marked("llama-index", "over")
@pytest.mark.parametrize("first", ["plain", "coroutine"])
def test_tools_of_one_turn_replay_in_the_order_that_they_ended_in(root, first):
    """A plain function runs in a thread, a coroutine function in the loop."""
    ended = threading.Event()

    def wait(name):
        if first != name:
            ended.wait()

    def plain(n: int) -> str:
        """Do something."""
        wait("plain")
        ended.set()
        return "plain"

    async def coroutine(n: int) -> str:
        """Do something."""
        await asyncio.to_thread(wait, "coroutine")
        ended.set()
        return "coroutine"

    turn = [("plain", {"n": 1}), ("coroutine", {"n": 1})]
    tools = [
        checkpointed_tool(FunctionTool.from_defaults(fn)) for fn in (plain, coroutine)
    ]
    with session("s", root=root):
        live = run(scripted(turn), tools)
    for _ in range(5):
        with again(root):
            assert run(scripted(turn), tools) == live

    assert sorted(live.split("; ")) == ["coroutine", "plain"]
    assert RAN == ["request"] * 2


@marked("llama-index", "under")
@pytest.mark.parametrize("form", ["above", "below"])
def test_the_context_that_an_agent_fills_in_is_not_recorded(root, form):
    if form == "above":
        tool = checkpointed_tool(FunctionTool.from_defaults(async_fn=in_context))
    else:
        tool = FunctionTool.from_defaults(async_fn=checkpointed_tool(in_context))
    plain = FunctionTool.from_defaults(async_fn=in_context)
    turn = [("in_context", {"query": "a"})]

    with session("s", root=root):
        first = run(scripted(turn), [tool])
    with again(root):
        assert run(scripted(turn), [tool]) == first == "3 x a"

    assert tool.metadata.get_parameters_dict() == plain.metadata.get_parameters_dict()
    assert tool.ctx_param_name == "ctx"
    assert RAN == ["request", "a", "request"]
    args = [e.data["args"] for e in recorded(root) if e.type == "tool/call"]
    assert args == [{"query": "a", "limit": 3}]


@marked("llama-index", "errors")
@pytest.mark.parametrize("form", ["above", "below"])
def test_a_failed_checkpoint_that_an_agent_swallowed_is_raised_again(
    root, monkeypatch, form
):
    def pay(n: int) -> str:
        """Pay."""
        RAN.append("pay")
        return ""

    if form == "above":
        tool = checkpointed_tool(FunctionTool.from_defaults(pay))
    else:
        tool = FunctionTool.from_defaults(checkpointed_tool(pay))

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            assert call_tool(tool, {"n": 1}).is_error
            monkeypatch.undo()
            assert call_tool(tool, {"n": 1}).is_error

    assert RAN == []


@marked("llama-index", "pauses")
def test_a_tool_that_waits_for_a_person_is_suspended(root):
    """The workflow runs its step again when the event has come."""

    async def approve(ctx: Context, amount: int) -> str:
        """Ask, then pay."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="pay?")
        )
        RAN.append("pay")
        return f"{answer.response} {amount}"

    tool = checkpointed_tool(FunctionTool.from_defaults(async_fn=approve))
    llm = scripted([("approve", {"amount": 5})])

    async def main():
        handler = FunctionAgent(tools=[tool], llm=llm, streaming=False).run(
            user_msg="hi"
        )
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="paid"))
        return str(await handler)

    with session("s", root=root):
        assert asyncio.run(main()) == "paid 5"

    assert RAN == ["request", "pay", "request"]
    with inspect_session("s", root=root) as looked:
        statuses = [e.meta["status"] for e in looked.events() if "status" in e.meta]
    assert statuses.count("suspended") == 1


# --- refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_real_fn", "_fn", "_async_fn"])
def test_a_tool_without_its_functions_is_refused(name):
    tool = FunctionTool.from_defaults(search)
    delattr(tool, name)

    with pytest.raises(TypeError, match=f"llama-index-core 0.* has no {name}"):
        checkpointed_tool(tool)


@pytest.mark.parametrize("name", ["sync_to_async", "async_to_sync"])
def test_a_version_without_its_bridges_is_refused(monkeypatch, name):
    from llama_index.core.tools import function_tool

    tool = FunctionTool.from_defaults(search)
    monkeypatch.delattr(function_tool, name)

    with pytest.raises(TypeError, match=f"llama-index-core 0.* has no {name}"):
        checkpointed_tool(tool)


def test_a_tool_that_holds_other_functions_is_refused():
    tool = FunctionTool.from_defaults(search)
    tool._real_fn = asearch

    with pytest.raises(DecorationError, match="functions"):
        checkpointed_tool(tool)


@pytest.mark.parametrize(
    ("decorate", "make"),
    [(checkpointed_tool, Completing), (checkpointed_llm, both)],
)
def test_the_other_decorator_is_refused(decorate, make):
    with pytest.raises(DecorationError, match="Use checkpointed_"):
        decorate(make())


# --- killed ---------------------------------------------------------------------------

EXPECTED = {
    "run": {"paid 5; nothing at a; sent paid", "nothing at a; paid 5; sent paid"},
    "whole": {"paid 5; nothing at a; sent paid", "nothing at a; paid 5; sent paid"},
    "react": {"paid 5; sent paid"},
}
#: Requests in the run that nobody killed.
REQUESTS_SENT = {"run": ["0", "2", "3"], "whole": ["0", "2", "3"]}
KILLS = ["model 0: begin", "model 0: end", "model 2: begin", "model 2: end"]


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("llama_index_agent.py", tmp_path, run_python)


@marked("llama-index", "killed")
@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("point", KILLS)
def test_a_killed_agent_goes_on_where_it_was(agent, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = agent.killed_at(point, way)

    assert second.stdout.strip() in EXPECTED[way]
    assert agent.effects() == ["mail", "pay"]
    repeated = [point.split()[1].rstrip(":")] if point.endswith("end") else []
    sent = REQUESTS_SENT.get(way, ["0", "1", "2"])
    assert agent.requests() == sorted([*sent, *repeated])


@marked("llama-index", "killed")
@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize(
    "point", ["body pay: begin", "body pay: end", "body mail: begin", "body mail: end"]
)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, way, point
):
    name = point.split()[1].rstrip(":")
    second, _ = agent.killed_at(point, way)

    assert "TOOL_OUTCOME_UNKNOWN" in second.stdout
    assert agent.effects().count(name) == point.endswith("end")
    assert len(agent.requests()) == len(set(agent.requests())) == 3
