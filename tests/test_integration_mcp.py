"""Sessions, clients and servers of MCP, of its official SDK."""

import asyncio
import contextlib
import logging

import pytest

pytest.importorskip("mcp.server.mcpserver")

import anyio
import mcp_types
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.session_group import ClientSessionGroup
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp.shared.memory import create_client_server_memory_streams

from durable_agent import (
    CheckpointError,
    DecorationError,
    EqualCallsWarning,
    FinishedSessionWarning,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    current_call,
    inspect_session,
    session,
)
from durable_agent.integrations._mcp_tools import shown
from tests import mcp_servers
from tests.conftest import PROJECT
from tests.frameworks.killing import Agent
from tests.frameworks.rows import ROWS
from tests.mcp_servers import HINTS, RAN, hinted, shop

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning")

marked = pytest.mark.framework


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    """The calls in the log, as they began."""
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


@contextlib.asynccontextmanager
async def low_level(server):
    """A session over a pair of streams, not initialised."""
    lowlevel = server._lowlevel_server
    async with contextlib.AsyncExitStack() as stack:
        streams = create_client_server_memory_streams()
        client, other = await stack.enter_async_context(streams)
        group = await stack.enter_async_context(anyio.create_task_group())
        options = lowlevel.create_initialization_options()
        group.start_soon(lambda: lowlevel.run(*other, options))
        yield ClientSession(*client)
        group.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def as_session(server, **options):
    async with low_level(server) as plain:
        made = checkpointed_tool(plain, **options)
        async with made as entered:
            assert entered is made
            await made.initialize()
            yield made


@contextlib.asynccontextmanager
async def as_client(server, **options):
    async with checkpointed_tool(Client(server), **options) as made:
        yield made


@contextlib.asynccontextmanager
async def as_client_entered(server, **options):
    async with Client(server) as plain:
        yield checkpointed_tool(plain, **options)


@contextlib.asynccontextmanager
async def as_session_of_client(server, **options):
    async with checkpointed_tool(Client(server), **options) as made:
        yield made.session


class _Bound:
    """What has but the method: what a program may hand around."""

    def __init__(self, call_tool):
        self.call_tool = call_tool


@contextlib.asynccontextmanager
async def as_method(server, **options):
    async with Client(server) as plain:
        yield _Bound(checkpointed_tool(plain.call_tool, **options))


@contextlib.asynccontextmanager
async def as_method_of_session(server, **options):
    async with Client(server) as plain:
        yield _Bound(checkpointed_tool(plain.session.call_tool, **options))


@contextlib.asynccontextmanager
async def as_group(server, **options):
    async with Client(server) as plain, ClientSessionGroup() as group:
        await group.connect_with_session(plain.server_info, plain.session)
        yield checkpointed_tool(group, **options)


WAYS = [
    *(as_session, as_client, as_client_entered, as_session_of_client),
    *(as_method, as_method_of_session, as_group),
]


def calls(way, *asked, server=None, **options):
    """What tools answer, called in one event loop, each after the other.

    What they raise is raised outside of the client, whose tasks would make a group of
    it.
    """

    async def run():
        async with way(server or shop(), **options) as made:
            try:
                return [await made.call_tool(name, args) for name, args in asked], None
            except Exception as error:
                return None, error

    results, error = asyncio.run(run())
    if error is not None:
        raise error
    return results


TWO = (("search", {"query": "a"}), ("pay", {"amount": 5}))


@marked("mcp", "over")
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, way):
    with session("s", root=root):
        first = calls(way, *TWO)
    with again(root):
        second = calls(way, *TWO)

    assert second == first
    assert [type(each) for each in second] == [mcp_types.CallToolResult] * 2
    assert [r.model_fields_set for r in second] == [r.model_fields_set for r in first]
    assert second[0].structured_content == {"a": 3}
    assert RAN == ["search a", "pay 5"]
    events = recorded(root)
    assert [e.type for e in events] == ["tool/call"] * 2
    assert all("parent" not in e.meta for e in events)
    assert [e.data["function"] for e in events] == ["search", "pay"]


@marked("mcp", "over")
def test_an_adapted_session_is_the_session(root):
    """Same type, same state; the original records nothing."""

    async def run():
        async with low_level(shop()) as plain, plain:
            made = checkpointed_tool(plain)
            assert isinstance(made, ClientSession)
            assert type(made).__name__ == "ClientSession"
            await made.initialize()
            assert plain.server_info == made.server_info
            assert type(plain) is ClientSession
            assert checkpointed_tool(made) is made
            await plain.call_tool("pay", {"amount": 1})
            await made.call_tool("pay", {"amount": 2})

    with session("s", root=root):
        asyncio.run(run())

    assert RAN == ["pay 1", "pay 2"]
    (event,) = recorded(root)
    assert event.data["args"]["arguments"] == {"amount": 2}


@marked("mcp", "over")
def test_the_line_of_the_table_is_true(root):
    async def run():
        async with low_level(shop()) as plain, plain:
            await plain.initialize()
            scope = {"session": plain, "checkpointed_tool": checkpointed_tool}
            exec(ROWS["mcp"].line, scope)  # noqa: S102 - the point
            await scope["session"].call_tool("pay", {"amount": 1})

    with session("s", root=root):
        asyncio.run(run())

    assert len(recorded(root)) == 1


def test_calls_of_one_turn_each_get_their_own_outcome(root):
    asked = [("search", {"query": q}) for q in "abab"]

    async def run():
        async with as_client(shop()) as made:
            return await asyncio.gather(*[made.call_tool(*each) for each in asked])

    with pytest.warns(EqualCallsWarning), session("s", root=root):
        first = asyncio.run(run())
    with again(root):
        second = asyncio.run(run())

    assert [r.structured_content for r in first] == [{q: 3} for q in "abab"]
    assert second == first
    assert len(RAN) == len(recorded(root)) == len(asked)


def test_tools_of_servers_are_told_apart(root):
    """Two servers may have a tool of the same name."""

    async def run():
        async with as_client(shop("one")) as one, as_client(shop("other")) as other:
            await one.call_tool("pay", {"amount": 1})
            await other.call_tool("pay", {"amount": 1})

    with session("s", root=root):
        asyncio.run(run())

    names = [e.meta["name"] for e in recorded(root)]
    assert names == ["mcp:one/pay", "mcp:other/pay"]


@pytest.mark.parametrize("name", ["mail", lambda given: "shop_" + given["name"]])
def test_a_name_of_the_users_is_used(root, name):
    """Programs may show tools to the model under names of their own."""
    with session("s", root=root):
        calls(as_client, ("pay", {"amount": 1}), name=name)

    (event,) = recorded(root)
    shown = ("mail", "pay") if name == "mail" else ("shop_pay", "shop_pay")
    assert (event.meta["name"], event.data["function"]) == shown


def test_a_time_limit_is_no_part_of_the_call(root):
    async def run(**more):
        async with as_client(shop()) as made:
            await made.call_tool("pay", {"amount": 1}, **more)

    with session("s", root=root):
        asyncio.run(run(read_timeout_seconds=50, meta={"trace": "1"}))
    with again(root):
        asyncio.run(run(meta={"trace": "2"}))

    assert RAN == ["pay 1"]


def test_the_tool_call_of_the_model_is_found_by_name_and_arguments(root):
    call = {"id": "tc-1", "type": "function"}
    call["function"] = {"name": "pay", "arguments": '{"amount": 5}'}

    @checkpointed_llm
    def ask(messages):
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    with session("s", root=root) as opened:
        ask([{"role": "user", "content": "pay"}])
        calls(as_client, *TWO)
        shown = opened.messages()

    assert [e.data.get("tool_call_id") for e in recorded(root)] == [None, None, "tc-1"]
    assert shown[-1]["content"] == "paid 5"


# --- what a server says of its tools --------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trusted", [True, False])
def test_annotations_tell_the_effect_only_of_a_trusted_server(root, way, trusted):
    asked = [(name, {}) for name in HINTS]

    options = {"trust_annotations": True} if trusted else {}
    with session("s", root=root):
        calls(way, *asked, server=hinted(), **options)

    told = {e.data["function"]: e.meta["effect"] for e in recorded(root)}
    said = {name: effect for name, (_, effect) in HINTS.items()}
    assert told == (said if trusted else dict.fromkeys(HINTS, "side_effect"))


def test_annotations_of_a_later_page_are_found(root):
    listed = []

    class Paged(Client):
        async def list_tools(self, *, cursor=None, **more):
            found = await super().list_tools(**more)
            listed.append(cursor)
            n = int(cursor or 0)
            found.next_cursor = str(n + 1) if n + 1 < len(found.tools) else None
            found.tools = found.tools[n : n + 1]
            return found

    async def run():
        async with checkpointed_tool(Paged(hinted()), trust_annotations=True) as made:
            await made.call_tool("repeats", {})
            await made.call_tool("reads", {})

    with session("s", root=root):
        asyncio.run(run())

    assert [e.meta["effect"] for e in recorded(root)] == ["idempotent", "read_only"]
    # The client itself looks for the schema of the result once.
    assert listed[: len(HINTS)] == [None, *map(str, range(1, len(HINTS)))]


def test_a_stated_effect_and_trust_contradict_each_other():
    with pytest.raises(DecorationError, match="trust_annotations"):
        checkpointed_tool(Client(shop()), effect="read_only", trust_annotations=True)


# --- errors ---------------------------------------------------------------------------


@marked("mcp", "errors")
@pytest.mark.parametrize("way", WAYS)
def test_a_result_that_is_an_error_is_a_result(root, way):
    with session("s", root=root):
        (first,) = calls(way, ("fail", {"text": "no"}))
    with again(root):
        (second,) = calls(way, ("fail", {"text": "no"}))

    assert first.is_error
    assert second == first
    assert RAN == ["fail"]


def refusing(code):
    """A server that answers with an error of the protocol."""
    server = MCPServer("refusing")

    @server.tool()
    def pay(amount: int) -> str:
        RAN.append("pay")
        raise MCPError(code, "refused", {"why": amount})

    return server


@marked("mcp", "errors")
def test_an_error_of_the_protocol_replays(root):
    def run():
        with pytest.raises(MCPError, match="refused") as raised:
            calls(as_client, ("pay", {"amount": 1}), server=refusing(-32050))
        return raised.value.error

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert second == first
    assert RAN == ["pay"]


@marked("mcp", "errors")
@pytest.mark.parametrize(
    ("code", "options", "doubtful"),
    [
        (mcp_types.CONNECTION_CLOSED, {}, True),
        (mcp_types.REQUEST_TIMEOUT, {}, True),
        (mcp_types.REQUEST_TIMEOUT, {"unknown_on": TimeoutError}, False),
        (mcp_types.INVALID_PARAMS, {}, False),
    ],
)
def test_after_a_lost_connection_the_tool_may_have_run(root, code, options, doubtful):
    with pytest.raises(MCPError), session("s", root=root):
        calls(as_client, ("pay", {"amount": 1}), server=refusing(code), **options)

    with inspect_session("s", root=root) as looked:
        assert len(looked.in_doubt()) == doubtful


@marked("mcp", "errors")
def test_what_is_in_doubt_is_told_as_a_result_if_it_is_to_be_returned(root):
    """A program reads ``content`` of whatever a tool gives."""
    server = refusing(mcp_types.CONNECTION_CLOSED)
    asked = ("pay", {"amount": 1})
    with pytest.raises(MCPError), session("s", root=root):
        calls(as_client, asked, server=server)
    with pytest.raises(ToolOutcomeUnknownError) as raised, session("s", root=root):
        calls(as_client, asked, server=server)
    with session("s", root=root):
        (result,) = calls(as_client, asked, server=server, on_unknown="return")

    assert result.is_error
    assert [each.text for each in result.content] == [str(raised.value)]
    assert RAN == ["pay"]


@marked("mcp", "errors")
def test_a_failed_checkpoint_is_raised_again(root, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            with pytest.raises(CheckpointError):
                calls(as_client, ("pay", {"amount": 1}))
            monkeypatch.undo()
            with pytest.raises(CheckpointError):
                calls(as_client, ("pay", {"amount": 1}))

    assert RAN == []


# --- servers --------------------------------------------------------------------------

TOOLS = [mcp_servers.search, mcp_servers.asearch, mcp_servers.with_context]


def innermost(fn, **options):
    server = MCPServer("under")
    server.tool(name="search")(checkpointed_tool(fn, **options))
    return server


def adapted(fn, **options):
    tool = Tool.from_function(fn, name="search")
    made = checkpointed_tool(tool, **options)
    assert type(made) is type(tool)
    assert tool.fn is fn
    return MCPServer("over", tools=[made])


def as_object(server):
    return server._tool_manager.get_tool("search")


def asked_of(server, name="search", arguments=None):
    """What a client that is not decorated gets."""

    async def run():
        async with Client(server) as client:
            try:
                return await client.call_tool(name, arguments or {"query": "a"}), None
            except MCPError as error:
                return None, error

    result, error = asyncio.run(run())
    if error is not None:
        raise error
    return result


@marked("mcp", "under")
@pytest.mark.parametrize("make", [innermost, adapted])
@pytest.mark.parametrize("fn", TOOLS)
def test_a_server_shows_a_decorated_tool_as_the_undecorated_one(make, fn):
    plain = MCPServer("plain")
    plain.tool(name="search")(fn)

    def shown(server):
        tool = as_object(server)
        listed = asyncio.run(server.list_tools())
        return listed, tool.is_async, tool.context_kwarg, tool.output_schema

    assert shown(make(fn)) == shown(plain)


@marked("mcp", "under")
@pytest.mark.parametrize("make", [innermost, adapted])
@pytest.mark.parametrize("fn", TOOLS)
def test_a_servers_tool_is_recorded_once_and_replayed(root, make, fn):
    with session("s", root=root):
        first = asked_of(make(fn, effect="read_only"))
    with again(root):
        second = asked_of(make(fn, effect="read_only"))

    assert first.structured_content == {"a": 3}
    assert second == first
    assert RAN == ["search a"]
    (event,) = recorded(root)
    assert event.data["args"] == {"query": "a", "limit": 3}
    assert event.meta["effect"] == "read_only"
    assert "parent" not in event.meta


@marked("mcp", "under")
def test_client_and_server_in_one_process_nest(root):
    with session("s", root=root):
        calls(as_client, TWO[0], server=innermost(mcp_servers.search))

    outer, inner = recorded(root)
    assert inner.meta["parent"] == outer.call


@marked("mcp", "errors")
def test_a_servers_tool_fails_as_it_does_undecorated(root):
    def failing(decorate):
        server = MCPServer("fails")
        server.tool()(decorate(mcp_servers.fail))
        return asked_of(server, "fail", {"text": "no"})

    plain = failing(lambda fn: fn)
    with session("s", root=root):
        first = failing(checkpointed_tool)
    with again(root):
        second = failing(checkpointed_tool)

    assert plain.is_error
    assert first.content == second.content == plain.content
    assert RAN == ["fail", "fail"]


@marked("mcp", "errors")
def test_a_failed_checkpoint_that_a_server_swallowed_is_raised_again(root, monkeypatch):
    server = innermost(mcp_servers.search)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            assert asked_of(server).is_error
            monkeypatch.undo()
            assert asked_of(server).is_error

    assert RAN == []


@marked("mcp", "pauses")
def test_a_tool_that_sends_its_user_to_a_page_is_suspended(root):
    """The client calls it again once its user was there."""
    server = MCPServer("asks")
    been = []

    @server.tool()
    @checkpointed_tool
    def pay(amount: int) -> str:
        if not been:
            url = "https://example.com"
            params = mcp_types.ElicitRequestURLParams(
                message="sign in", url=url, elicitation_id="1"
            )
            raise UrlElicitationRequiredError([params])
        RAN.append(current_call().attempt)
        return f"paid {amount}"

    def run():
        try:
            return asked_of(server, "pay", {"amount": 1}).content[0].text
        except MCPError as error:
            return error.code

    with session("s", root=root):
        asks = run()
    been.append(True)
    with again(root):
        paid = run()
    with again(root):
        assert run() == paid

    assert (asks, paid) == (mcp_types.URL_ELICITATION_REQUIRED, "paid 1")
    assert RAN == [2]


# --- refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "make"),
    [
        (ClientSession, lambda: object.__new__(ClientSession)),
        (Client, lambda: Client(shop())),
    ],
)
def test_a_version_that_calls_tools_otherwise_is_refused(monkeypatch, cls, make):
    made = make()
    monkeypatch.delattr(cls, "call_tool")

    with pytest.raises(TypeError, match=r"mcp 2\..* has no call_tool"):
        checkpointed_tool(made)


def test_a_version_without_its_types_is_refused(monkeypatch):
    monkeypatch.delattr(mcp_types, "CallToolResult")

    with pytest.raises(TypeError, match=r"mcp 2\..*CallToolResult"):
        checkpointed_tool(Client(shop()))


def test_a_servers_tool_without_its_function_is_refused(monkeypatch):
    tool = Tool.from_function(mcp_servers.search)
    monkeypatch.delitem(Tool.model_fields, "fn")

    with pytest.raises(TypeError, match="has no fn"):
        checkpointed_tool(tool)


@pytest.mark.parametrize("make", [shop, lambda: shop()._lowlevel_server])
def test_a_server_is_refused_with_what_to_do(make):
    with pytest.raises(TypeError, match="innermost"):
        checkpointed_tool(make())


def test_a_client_is_no_model():
    with pytest.raises(DecorationError, match="checkpointed_tool"):
        checkpointed_llm(Client(shop()))


def test_an_option_that_names_no_parameter_is_refused():
    with pytest.raises(DecorationError, match="amount"):
        checkpointed_tool(Client(shop()), redact="amount")


def test_what_is_listed_is_known_to_be_recorded(root):
    """Of a tool that is known, it can be said that it was never started."""

    server = MCPServer("one")
    server.tool(name="known_once_listed")(mcp_servers.search)
    function = {"name": "known_once_listed", "arguments": '{"query": "b"}'}
    call = {"id": "tc-1", "type": "function", "function": function}

    @checkpointed_llm
    def ask(messages):
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    async def run():
        async with as_client(server) as made:
            await made.list_tools()

    with session("s", root=root):
        ask([{"role": "user", "content": "hi"}])
        asyncio.run(run())
    with conversation("s", root=root) as chat:
        assert chat.messages()[-1]["content"].startswith("TOOL_NOT_STARTED")


def test_text_is_shown_as_text_and_all_else_as_json():
    text = mcp_types.TextContent(type="text", text="a")
    image = mcp_types.ImageContent(type="image", data="YQ==", mime_type="image/png")
    result = mcp_types.CallToolResult

    assert shown(result(content=[text, text])) == "a\na"
    assert '"mimeType":"image/png"' in shown(result(content=[text, image]))
    assert '"structuredContent":{"a":1}' in shown(
        result(content=[], structured_content={"a": 1})
    )


# --- killed ---------------------------------------------------------------------------

#: Killed there, it goes on.
KILLS = [
    *("model 0: begin", "model 0: end", "model 1: begin", "model 1: end"),
    *("body look: begin", "model 2: begin", "model 2: end", "model 3: end"),
]
#: Killed there, a side effect may have happened.
DOUBTS = ["body pay: begin", "body pay: end", "body mail: begin", "body mail: end"]
WAYS_OF_THE_AGENT = ["client", "session"]


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("mcp_agent.py", tmp_path, run_python)


@marked("mcp", "killed")
@pytest.mark.parametrize("way", WAYS_OF_THE_AGENT)
@pytest.mark.parametrize("point", KILLS)
def test_a_killed_agent_goes_on_where_it_was(agent, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = agent.killed_at(point, way)

    assert second.stdout == "nothing at a\npaid 5\nsent paid\nall done\n"
    assert agent.effects() == ["mail", "pay"]
    sent = agent.requests()
    in_flight = [point.split()[1].rstrip(":")] if point.endswith("end") else []
    in_flight = in_flight if point.startswith("model") else []
    assert sent == sorted(["0", "1", "2", "3", *in_flight])


@marked("mcp", "killed")
@pytest.mark.parametrize("way", WAYS_OF_THE_AGENT)
@pytest.mark.parametrize("point", DOUBTS)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, way, point
):
    name = point.split()[1].rstrip(":")
    second, _ = agent.killed_at(point, way)

    assert "TOOL_OUTCOME_UNKNOWN" in second.stdout
    assert agent.effects().count(name) == point.endswith("end")
    assert agent.requests() == ["0", "1", "2", "3"]


# --- the example ----------------------------------------------------------------------

EXAMPLE = PROJECT / "examples" / "mcp_client.py"
SHOWN = """\
run 1
  look_up: Ann owes 40 euros; ann@example.com
  killed
run 2
  look_up: Ann owes 40 euros; ann@example.com
  send_mail: sent to ann@example.com
  the model says: Ann is reminded.
outside
  request 0
  request 1
  e-mail to ann@example.com: 40 euros are due.
  request 2
1 e-mail, 0 lines twice: as it should be
"""


def test_the_example_does_what_it_says(run_python):
    done = run_python("-W", "error", EXAMPLE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == SHOWN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        return NotApplied()\n", "        pass\n    return NotApplied()\n"),
        ("@checkpointed_llm\n", ""),
    ],
)
def test_the_example_fails_when_its_claim_does_not_hold(
    tmp_path, run_python, before, after
):
    """With a verifier that lies, or a model that is not recorded."""
    text = EXAMPLE.read_text("utf-8")
    assert before in text
    broken = tmp_path / "mcp_client.py"
    broken.write_text(text.replace(before, after), "utf-8")

    done = run_python("-W", "ignore", broken)

    assert done.returncode == 1
    assert "FAILED" in done.stdout
