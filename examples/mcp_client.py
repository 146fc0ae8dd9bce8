"""An agent with the tools of an MCP server is killed while an e-mail goes out.

The server is a child process that speaks MCP over stdio: this file with an argument.
One decorator above the client records every tool call; the model is a script. The agent
is killed with SIGKILL right after the server sent the e-mail, before it could answer;
then the same agent runs once more. What its server says of ``look_up``, that it only
reads, is trusted; whether the e-mail went out is looked up in the outbox.

Run it: ``python examples/mcp_client.py``. It needs ``pip install mcp``, and no network.
Exits with 1 if the e-mail is missing or doubled, or a request sent again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from durable_agent import (
    Call,
    Completed,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    session,
)

HERE = str(Path(__file__).resolve())
#: What happened outside: one line each.
WORLD = "world.txt"

#: Killed once the server sent its e-mail.
KILLED = "killed"


def happened(line: str) -> None:
    with Path(WORLD).open("a", encoding="utf-8") as world:
        world.write(f"{line}\n")


# The server ---------------------------------------------------------------------------


def serve(mode: str) -> None:
    server = MCPServer("mailroom")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look_up(customer: str) -> str:
        """Look a customer up."""
        return f"{customer} owes 40 euros; {customer.lower()}@example.com"

    @server.tool()
    def send_mail(to: str, text: str) -> str:
        """Send an e-mail."""
        happened(f"e-mail to {to}: {text}")
        if mode == KILLED:
            os.kill(os.getppid(), signal.SIGKILL)
        return f"sent to {to}"

    server.run("stdio")


# The agent: ordinary code for MCP, and two decorators ---------------------------------


def asks(name: str, id_: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": id_, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


SCRIPT = [
    asks("look_up", "call-1", customer="Ann"),
    asks("send_mail", "call-2", to="ann@example.com", text="40 euros are due."),
    {"role": "assistant", "content": "Ann is reminded."},
]


@checkpointed_llm
async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer by how many tools have answered; any client of a provider would do."""
    turn = sum(message["role"] == "tool" for message in messages)
    happened(f"request {turn}")
    return SCRIPT[turn]


def was_sent(call: Call) -> Completed | NotApplied:
    """Look into the outbox, as only a person or a second tool could otherwise."""
    mail = call.arguments["arguments"]
    line = f"e-mail to {mail['to']}: {mail['text']}"
    if line not in Path(WORLD).read_text(encoding="utf-8").splitlines():
        return NotApplied()
    found = TextContent(type="text", text=f"sent to {mail['to']}")
    return Completed(CallToolResult(content=[found]))


async def agent(mode: str) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=[HERE, "server", mode], env=dict(os.environ)
    )
    client = checkpointed_tool(Client(server), trust_annotations=True, verify=was_sent)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Remind Ann."}]
    async with session("reminder", root="log"), client:
        while calls := (answer := await ask(messages)).get("tool_calls"):
            messages.append(answer)
            for call in calls:
                arguments = json.loads(call["function"]["arguments"])
                result = await client.call_tool(call["function"]["name"], arguments)
                text = "".join(getattr(part, "text", "") for part in result.content)
                print(f"  {call['function']['name']}: {text}", flush=True)
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": text}
                )
    print(f"  the model says: {answer['content']}")


# What happens to it -------------------------------------------------------------------


def run(directory: str, mode: str) -> int:
    command = [sys.executable, HERE, "agent", mode]
    return subprocess.run(command, cwd=directory, check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mcp-client-") as directory:
        print("run 1", flush=True)
        exits = [run(directory, KILLED)]
        print("  killed\nrun 2", flush=True)
        exits.append(run(directory, "spared"))
        lines = (Path(directory) / WORLD).read_text(encoding="utf-8").splitlines()
    print("outside", *lines, sep="\n  ")
    mails = sum(line.startswith("e-mail") for line in lines)
    twice = len(lines) - len(set(lines))
    good = exits == [-signal.SIGKILL, 0] and (mails, twice) == (1, 0)
    verdict = "as it should be" if good else "FAILED"
    print(f"{mails} e-mail, {twice} lines twice: {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["agent", mode]:
            asyncio.run(agent(mode))
        case ["server", mode]:
            serve(mode)
        case _:
            sys.exit(main())
