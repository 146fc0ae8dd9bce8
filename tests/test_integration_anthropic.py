"""Anthropic's SDK: the tools of its tool runner, under, over, and run by it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging

import anthropic
import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool
from anthropic.lib.tools._beta_functions import ToolError

from durable_agent import (
    CheckpointError,
    DecorationError,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    list_sessions,
    session,
)
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer

framework = functools.partial(pytest.mark.framework, "anthropic")
pytestmark = pytest.mark.filterwarnings(
    "ignore::durable_agent.errors.FinishedSessionWarning"
)

ASKS = Model(
    "hm",
    (
        Call("send", '{"to": "bob", "times": 2}', "call_a"),
        Call("send", '{"to": "eve"}', "call_b"),
    ),
)
SAYS = Model("done")
HI = [{"role": "user", "content": "mail them"}]
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    # It logs each error of a tool.
    logging.getLogger("anthropic").setLevel(logging.CRITICAL)


def send(to: str, times: int = 1) -> str:
    """Send a mail.

    Args:
        to: who gets it
    """
    RAN.append((to, times))
    return f"sent to {to}"


async def asend(to: str, times: int = 1) -> str:
    """Send a mail.

    Args:
        to: who gets it
    """
    RAN.append((to, times))
    return f"sent to {to}"


asend.__name__ = "send"


def run(root, server, *tools, streamed=False, asynchronous=False):
    """What the runner gives, and what it sends to the model in the end."""
    more = {"thread": False, "stream": streamed, "tools": list(tools)}
    request = {"model": "m", "max_tokens": 9, "messages": HI, **more}

    async def arun():
        http = server.async_client()
        client = anthropic.AsyncAnthropic(api_key="none", http_client=http)
        messages = client.beta.messages
        messages.create = checkpointed_llm(messages.create)
        async with session("s", root=root):
            runner = messages.tool_runner(**request)
            if streamed:
                return [[event.type async for event in each] async for each in runner]
            return [message async for message in runner]

    if asynchronous:
        return asyncio.run(arun())
    client = anthropic.Anthropic(api_key="none", http_client=server.client())
    messages = client.beta.messages
    messages.create = checkpointed_llm(messages.create)
    with session("s", root=root):
        runner = messages.tool_runner(**request)
        if streamed:
            return [[event.type for event in each] for each in runner]
        return list(runner)


def events(root, *kinds):
    with inspect_session("s", root=root) as seen:
        return [event for event in seen.events() if event.type in kinds]


SIDES = {
    "under": lambda make, fn: make(checkpointed_tool(fn)),
    "over": lambda make, fn: checkpointed_tool(make(fn)),
}
by_side = pytest.mark.parametrize(
    "side", [pytest.param(side, marks=framework(side)) for side in SIDES]
)
MAKERS = {"sync": (beta_tool, send), "async": (beta_async_tool, asend)}
by_maker = pytest.mark.parametrize("maker", MAKERS)


@by_side
@by_maker
def test_a_tool_keeps_its_type_its_schema_and_its_options(side, maker):
    make, function = MAKERS[maker]
    make = functools.partial(make, description="Mails.", strict=True)
    plain, made = make(function), SIDES[side](make, function)

    assert type(made) is type(plain)
    assert made.to_dict() == plain.to_dict()
    assert made.name == "send"
    assert inspect.iscoroutinefunction(made.func) is (maker == "async")


def test_the_original_stays_as_it_was(root):
    original = beta_tool(send)
    before = dict(vars(original))
    made = checkpointed_tool(original)
    with session("s", root=root):
        original.call({"to": "bob"})

    assert made is not original
    assert vars(original) == before
    assert list(list_sessions(root=root)) == []
    assert checkpointed_tool(made) is made


@by_side
@by_maker
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_the_runner_is_recorded_and_replayed(side, maker, streamed, root):
    """Requests and tools at depth 0, each tool under the call that asked for it."""
    make, function = MAKERS[maker]
    server = ModelServer([ASKS, SAYS])
    found = [
        run(
            root,
            server,
            SIDES[side](make, function),
            streamed=streamed,
            asynchronous=maker == "async",
        )
        for _ in range(2)
    ]
    calls = events(root, "tool/call")
    (asked, _) = events(root, "llm/request")

    assert found[0] == found[1]
    assert server.refused == []
    assert len(server.requests) == 2
    assert sorted(RAN) == [("bob", 2), ("eve", 1)]
    assert [c.meta.get("parent") for c in calls] == [None, None]
    assert [c.meta["resp"] for c in calls] == [asked.call] * 2
    assert sorted(c.data["tool_call_id"] for c in calls) == ["call_a", "call_b"]
    assert {c.data["function"] for c in calls} == {"send"}


def fails(to: str, times: int = 1) -> str:
    """Fail."""
    if to == "bob":
        raise ToolError([{"type": "text", "text": "no such person"}])
    raise ValueError("no post today")


@framework("errors")
@by_side
def test_the_errors_of_tools_are_shown_as_the_runner_shows_them(side, root):
    """The request that tells the model is, byte for byte, the undecorated one."""
    told = []
    for made in (
        beta_tool(fails, name="send"),
        SIDES[side](functools.partial(beta_tool, name="send"), fails),
    ):
        server = ModelServer([ASKS, SAYS])
        for _ in range(2):
            run(root, server, made)
        told.append(server.requests[1].messages)
        assert len(server.requests) == 2
        root = root / "other"

    assert told[0] == told[1]
    assert b"no such person" in told[0]
    assert b"no post today" in told[0]


@framework("errors")
def test_arguments_that_do_not_fit_are_refused_before_anything_is_recorded(root):
    with session("s", root=root):
        with pytest.raises(ValueError, match="Invalid arguments"):
            checkpointed_tool(beta_tool(send)).call({"times": "many"})

    assert list(list_sessions(root=root)) == []
    assert RAN == []


@framework("errors")
def test_a_failed_checkpoint_that_the_runner_swallowed_is_raised_again(
    root, monkeypatch
):
    server = ModelServer([ASKS, SAYS])
    tool = checkpointed_tool(beta_tool(send))

    def refuse(self, draft):
        if draft.type == "tool/call":
            raise OSError(28, "No space left on device")
        return append(self, draft)

    with session("other", root=root) as opened:
        core = type(opened._core)
    append = core.append
    monkeypatch.setattr(core, "append", refuse)
    with pytest.raises(CheckpointError):
        run(root, server, tool)

    assert RAN == []
    assert len(server.requests) == 1


class Memory(BetaBuiltinFunctionTool):
    def __init__(self):
        self.kept = []

    name = "memory"

    def to_dict(self):
        return {"type": "memory_20250818", "name": "memory"}

    def call(self, input):
        self.kept.append(input)
        RAN.append("memory")
        return f"kept {input['what']}"


class AsyncMemory(BetaAsyncBuiltinFunctionTool):
    name = "memory"

    def to_dict(self):
        return {"type": "memory_20250818", "name": "memory"}

    async def call(self, input):
        RAN.append("memory")
        return f"kept {input['what']}"


@framework("over")
@pytest.mark.parametrize("kind", [Memory, AsyncMemory], ids=["sync", "async"])
def test_a_builtin_tool_is_recorded(kind, root):
    """A tool by subclassing: the same class, its ``call`` recorded."""
    asks = Model("", (Call("memory", '{"what": "tea"}', "call_a"),))
    server = ModelServer([asks, SAYS])
    original = kind()
    for _ in range(2):
        made = checkpointed_tool(original)
        run(root, server, made, asynchronous=kind is AsyncMemory)
    (call,) = events(root, "tool/call")

    assert type(made) is kind
    assert "call" not in vars(original)
    assert RAN == ["memory"]
    assert len(server.requests) == 2
    assert call.data["tool_call_id"] == "call_a"
    assert call.data["function"] == "memory"


def test_a_version_without_what_is_needed_is_refused():
    tool = beta_tool(send)
    del tool._func_with_validate
    with pytest.raises(DecorationError, match=anthropic.__version__):
        checkpointed_tool(tool)


def test_a_tool_is_no_model():
    for tool in (beta_tool(send), Memory()):
        with pytest.raises(DecorationError, match="checkpointed_tool"):
            checkpointed_llm(tool)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_runner_is_no_request(asynchronous):
    cls = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
    runner = cls(api_key="none").beta.messages.tool_runner
    for obj in (runner, functools.partial(runner, model="m")):
        with pytest.raises(DecorationError, match=r"beta\.messages\.create = "):
            checkpointed_llm(obj)


def test_a_set_of_tools_is_refused():
    class Toolset:
        def tool_result(self, tool_use):
            """Nothing."""

        def __call__(self):
            """Nothing."""

    Toolset.__module__ = "anthropic.lib.tools._toolsets"
    with pytest.raises(DecorationError, match="many tools"):
        checkpointed_tool(Toolset())
