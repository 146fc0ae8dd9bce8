"""An agent whose tools are those of an MCP server, a child process of its own.

Run as ``mcp_agent.py ROOT WORLD WAY POINT``; see ``tests/frameworks/killing.py``. A
point in a tool is in the server: it kills its client, and itself.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from durable_agent import (
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    session,
)
from tests.frameworks.killing import begin

# Last: where `killing` has put it.
from world import Here, World, effect, send  # isort: skip


def asked(*calls):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"tc-{name}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in calls
        ],
    }


#: The answer to a request, by how many answers of tools it holds.
SCRIPT = {
    0: asked(("look", {"place": "a"})),
    1: asked(("pay", {"amount": 5})),
    2: asked(("mail", {"text": "paid"})),
    3: {"role": "assistant", "content": "all done"},
}


def serve(world, point):
    Here.world = World(world)

    def kill(label):
        if label == point:
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    Here.point = kill
    server = MCPServer("bank")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look(place: str) -> str:
        """Look."""
        Here.point("body look: begin")
        return f"nothing at {place}"

    @server.tool()
    def pay(amount: int) -> str:
        """Pay."""
        effect("pay")
        return f"paid {amount}"

    @server.tool()
    async def mail(text: str) -> str:
        """Mail."""
        effect("mail")
        return f"sent {text}"

    server.run("stdio")


@checkpointed_llm
async def ask(messages):
    answers = sum(m["role"] == "tool" for m in messages)
    send(str(answers))
    return SCRIPT[answers]


@contextlib.asynccontextmanager
async def tools(way, parameters):
    if way == "fastmcp":
        import fastmcp
        from fastmcp.client.transports import StdioTransport

        transport = StdioTransport(parameters.command, parameters.args)
        client = checkpointed_tool(fastmcp.Client(transport), trust_annotations=True)
        async with client:
            yield client
        return
    if way == "client":
        client = checkpointed_tool(Client(parameters), trust_annotations=True)
        async with client:
            yield client
        return
    async with stdio_client(parameters) as streams, ClientSession(*streams) as plain:
        await plain.initialize()
        yield checkpointed_tool(plain, trust_annotations=True)


async def main(arguments):
    root, way = begin(arguments)
    command = [__file__, "serve", arguments[1], arguments[3]]
    parameters = StdioServerParameters(command=sys.executable, args=command)
    async with session("s", root=root), tools(way, parameters) as client:
        messages = [{"role": "user", "content": "pay and mail"}]
        while True:
            answer = await ask(messages)
            messages.append(answer)
            if not answer.get("tool_calls"):
                break
            for call in answer["tool_calls"]:
                function = call["function"]
                arguments = json.loads(function["arguments"])
                try:
                    result = await client.call_tool(function["name"], arguments)
                    text = result.content[0].text
                except ToolOutcomeUnknownError as unknown:
                    text = str(unknown)
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": text}
                )
    for message in messages[1:]:
        if message["content"]:
            sys.stdout.write(message["content"] + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        asyncio.run(main(sys.argv[1:]))
