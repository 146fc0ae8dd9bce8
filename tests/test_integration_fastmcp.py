"""Clients and servers of fastmcp."""

import asyncio
import contextlib
import logging

import pytest

pytest.importorskip("fastmcp")

from fastmcp import Client, Context, FastMCP
from fastmcp.client.transports import PythonStdioTransport
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.exceptions import ToolError
from fastmcp.tools import FunctionTool
from mcp.shared.exceptions import MCPError

from durable_agent import (
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests import mcp_servers
from tests.frameworks.killing import Agent
from tests.frameworks.rows import ROWS
from tests.mcp_servers import HINTS, RAN

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning"),
    # Of what it is built on.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

marked = pytest.mark.framework


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    for name in ("mcp", "fastmcp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    """The calls in the log, as they began."""
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


def shop(name="shop"):
    """A server of plain tools."""
    server = FastMCP(name)
    for fn in (mcp_servers.search, mcp_servers.pay, mcp_servers.fail):
        server.tool()(fn)
    return server


def hinted():
    """A server whose tools differ by what is said of them."""
    server = FastMCP("hints")
    for name, (annotations, _) in HINTS.items():
        server.tool(name=name, annotations=annotations)(lambda: "ok")
    return server


@contextlib.asynccontextmanager
async def as_client(server, **options):
    async with checkpointed_tool(Client(server), **options) as made:
        yield made.call_tool


@contextlib.asynccontextmanager
async def as_client_entered(server, **options):
    async with Client(server) as plain:
        yield checkpointed_tool(plain, **options).call_tool


@contextlib.asynccontextmanager
async def as_new_client(server, **options):
    async with checkpointed_tool(Client(server), **options).new() as made:
        yield made.call_tool


@contextlib.asynccontextmanager
async def as_protocol(server, **options):
    async with checkpointed_tool(Client(server), **options) as made:
        yield made.call_tool_mcp


@contextlib.asynccontextmanager
async def as_method(server, **options):
    async with Client(server) as plain:
        yield checkpointed_tool(plain.call_tool, **options)


@contextlib.asynccontextmanager
async def as_session(server, **options):
    async with checkpointed_tool(Client(server), **options) as made:
        yield made.session.call_tool


WAYS = [
    *(as_client, as_client_entered, as_new_client),
    *(as_protocol, as_method, as_session),
]


def calls(way, *asked, server=None, **options):
    """What tools answer, called in one event loop, each after the other."""

    async def run():
        async with way(server or shop(), **options) as call:
            try:
                return [await call(name, args) for name, args in asked], None
            except Exception as error:
                return None, error

    results, error = asyncio.run(run())
    if error is not None:
        raise error
    return results


TWO = (("search", {"query": "a"}), ("pay", {"amount": 5}))


@marked("fastmcp", "over")
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_is_recorded_once_and_replayed_without_running(root, way):
    with session("s", root=root):
        first = calls(way, *TWO)
    with again(root):
        second = calls(way, *TWO)

    assert second == first
    assert [type(each) for each in second] == [type(each) for each in first]
    assert second[0].structured_content == {"a": 3}
    assert RAN == ["search a", "pay 5"]
    events = recorded(root)
    assert all("parent" not in e.meta for e in events)
    assert [e.data["function"] for e in events] == ["search", "pay"]
    assert [e.meta["name"] for e in events] == ["mcp:shop/search", "mcp:shop/pay"]


@marked("fastmcp", "over")
def test_the_line_of_the_table_is_true(root):
    async def run():
        scope = {"client": Client(shop()), "checkpointed_tool": checkpointed_tool}
        exec(ROWS["fastmcp"].line, scope)  # noqa: S102 - the point
        made = scope["client"]
        assert isinstance(made, Client)
        assert type(made).__name__ == "Client"
        assert checkpointed_tool(made) is made
        async with made as entered:
            await entered.call_tool("pay", {"amount": 1})

    with session("s", root=root):
        asyncio.run(run())

    assert len(recorded(root)) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trusted", [True, False])
def test_annotations_tell_the_effect_only_of_a_trusted_server(root, way, trusted):
    options = {"trust_annotations": True} if trusted else {}
    with session("s", root=root):
        calls(way, *[(name, {}) for name in HINTS], server=hinted(), **options)

    told = {e.data["function"]: e.meta["effect"] for e in recorded(root)}
    said = {name: effect for name, (_, effect) in HINTS.items()}
    assert told == (said if trusted else dict.fromkeys(HINTS, "side_effect"))


def test_a_time_limit_and_metadata_are_no_part_of_the_call_a_version_is(root):
    server = FastMCP("versions")
    for version in ("1.0", "2.0"):

        def pay(amount: int, version: str = version) -> str:
            RAN.append(version)
            return version

        server.tool(version=version)(pay)

    async def run(**more):
        async with checkpointed_tool(Client(server)) as made:
            versions = [
                (await made.call_tool("pay", {"amount": 1}, version=v, **more)).data
                for v in ("1.0", "2.0")
            ]
        assert versions == ["1.0", "2.0"]

    with session("s", root=root):
        asyncio.run(run(timeout=50, meta={"trace": "1"}))
    with again(root):
        asyncio.run(run(meta={"trace": "2"}))

    assert RAN == ["1.0", "2.0"]
    names = [e.meta["name"] for e in recorded(root)]
    assert names == ["mcp:versions/pay@1.0", "mcp:versions/pay@2.0"]


@marked("fastmcp", "errors")
def test_a_tools_error_is_raised_on_replay_too(root):
    def run():
        with pytest.raises(ToolError) as raised:
            calls(as_client, ("fail", {"text": "no"}))
        return str(raised.value)

    with session("s", root=root):
        first = run()
    with again(root):
        assert run() == first

    assert RAN == ["fail"]


@marked("fastmcp", "errors")
def test_after_a_lost_connection_the_tool_may_have_run(root, tmp_path):
    server = tmp_path / "server.py"
    server.write_text(
        "import os\nfrom fastmcp import FastMCP\nserver = FastMCP('dies')\n"
        "@server.tool\ndef pay(amount: int) -> str:\n    os._exit(1)\n"
        "server.run('stdio', show_banner=False)\n"
    )
    transport = PythonStdioTransport(server, keep_alive=False)

    with pytest.raises(MCPError), session("s", root=root):
        calls(as_client, ("pay", {"amount": 1}), server=transport)

    with inspect_session("s", root=root) as looked:
        assert len(looked.in_doubt()) == 1


# --- servers --------------------------------------------------------------------------


async def with_context(query: str, ctx: Context, limit: int = 3) -> dict[str, int]:
    """Search the archive."""
    assert ctx.request_id
    return mcp_servers.search(query, limit)


def client():
    return object()


async def with_dependencies(
    query: str,
    limit: int = 3,
    ctx: Context = CurrentContext(),  # noqa: B008 - as fastmcp has it
    db: object = Depends(client),
) -> dict[str, int]:
    """Search the archive."""
    assert ctx.request_id
    assert type(db) is object
    return mcp_servers.search(query, limit)


TOOLS = [mcp_servers.search, mcp_servers.asearch, with_context, with_dependencies]


def innermost(fn, **options):
    server = FastMCP("under")
    server.tool(name="search")(checkpointed_tool(fn, **options))
    return server


def adapted(fn, **options):
    tool = FunctionTool.from_function(fn, name="search")
    made = checkpointed_tool(tool, **options)
    assert type(made) is type(tool)
    server = FastMCP("over")
    server.add_tool(made)
    return server


def asked_of(server, name="search", arguments=None):
    """What a client that is not decorated gets."""

    async def run():
        async with Client(server) as plain:
            return await plain.call_tool_mcp(name, arguments or {"query": "a"})

    return asyncio.run(run())


@marked("fastmcp", "under")
@pytest.mark.parametrize("make", [innermost, adapted])
@pytest.mark.parametrize("fn", TOOLS)
def test_a_server_shows_a_decorated_tool_as_the_undecorated_one(make, fn):
    plain = FastMCP("plain")
    plain.tool(name="search")(fn)

    def shown(server):
        (tool,) = asyncio.run(server.list_tools())
        return tool.to_mcp_tool(), asyncio.iscoroutinefunction(tool.fn)

    assert shown(make(fn)) == shown(plain)


@marked("fastmcp", "under")
@pytest.mark.parametrize("make", [innermost, adapted])
@pytest.mark.parametrize("fn", TOOLS)
def test_a_servers_tool_is_recorded_once_and_replayed(root, make, fn):
    with session("s", root=root):
        first = asked_of(make(fn, effect="read_only"))
    with again(root):
        second = asked_of(make(fn, effect="read_only"))

    assert first.structured_content == {"a": 3}, first
    assert second == first
    assert RAN == ["search a"]
    (event,) = recorded(root)
    assert event.data["args"] == {"query": "a", "limit": 3}
    assert "parent" not in event.meta


@marked("fastmcp", "errors")
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


# --- refusals -------------------------------------------------------------------------


def test_a_server_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match="innermost"):
        checkpointed_tool(shop())


@pytest.mark.parametrize("name", ["call_tool_mcp", "session"])
def test_a_version_that_calls_tools_otherwise_is_refused(monkeypatch, name):
    made = Client(shop())
    for cls in type(made).__mro__:
        if name in vars(cls):
            monkeypatch.delattr(cls, name)

    with pytest.raises(DecorationError, match=f"fastmcp 4.* has no {name}"):
        checkpointed_tool(made)


# --- killed ---------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("mcp_agent.py", tmp_path, run_python)


@marked("fastmcp", "killed")
@pytest.mark.parametrize("point", ["model 1: end", "body look: begin"])
def test_a_killed_agent_goes_on_where_it_was(agent, point):
    second, _ = agent.killed_at(point, "fastmcp")

    assert second.stdout == "nothing at a\npaid 5\nsent paid\nall done\n"
    assert agent.effects() == ["mail", "pay"]
    repeated = ["1"] if point == "model 1: end" else []
    assert agent.requests() == sorted(["0", "1", "2", "3", *repeated])


@marked("fastmcp", "killed")
@pytest.mark.parametrize("point", ["body pay: begin", "body mail: end"])
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(agent, point):
    name = point.split()[1].rstrip(":")
    second, _ = agent.killed_at(point, "fastmcp")

    assert "TOOL_OUTCOME_UNKNOWN" in second.stdout
    assert agent.effects().count(name) == point.endswith("end")
    assert agent.requests() == ["0", "1", "2", "3"]
