"""A server of MCP that the tests and their agents call."""

import asyncio

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

#: What tools ran.
RAN = []


def search(query: str, limit: int = 3) -> dict[str, int]:
    """Search the archive."""
    RAN.append(f"search {query}")
    return {query: limit}


async def asearch(query: str, limit: int = 3) -> dict[str, int]:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, limit)


async def with_context(query: str, ctx: Context, limit: int = 3) -> dict[str, int]:
    """Search the archive."""
    assert ctx.request_id
    return search(query, limit)


def pay(amount: int) -> str:
    """Pay."""
    RAN.append(f"pay {amount}")
    return f"paid {amount}"


def fail(text: str) -> str:
    """Fail."""
    RAN.append("fail")
    raise ValueError(text)


#: What a server says of its tools, and the effect that it tells.
HINTS = {
    "reads": (ToolAnnotations(read_only_hint=True), "read_only"),
    "repeats": (ToolAnnotations(idempotent_hint=True), "idempotent"),
    "adds": (ToolAnnotations(destructive_hint=False), "side_effect"),
    "destroys": (
        ToolAnnotations(destructive_hint=True, idempotent_hint=True),
        "idempotent",
    ),
    "contradicts": (
        ToolAnnotations(read_only_hint=True, destructive_hint=True),
        "side_effect",
    ),
    "says_no": (ToolAnnotations(read_only_hint=False), "side_effect"),
    "nothing": (None, "side_effect"),
}


def hinted() -> MCPServer:
    """A server whose tools differ by what is said of them."""
    server = MCPServer("hints")
    for name, (annotations, _) in HINTS.items():
        server.tool(name=name, annotations=annotations)(lambda: "ok")
    return server


def shop(name: str = "shop") -> MCPServer:
    """A server of plain tools."""
    server = MCPServer(name)
    for fn in (search, pay, fail):
        server.tool()(fn)
    return server
