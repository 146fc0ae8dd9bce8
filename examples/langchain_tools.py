"""A LangGraph agent is killed between two tools, and runs again.

The agent is ``create_agent`` of LangChain over a chat model that answers from a script.
The decorators stand above the model and above ``@tool``; nothing else of the agent
knows of them. The agent is a child process, killed with SIGKILL when it asks the model
what to do after the first e-mail; then the same ``invoke`` runs once more.

Run it: ``python examples/langchain_tools.py``. It needs ``pip install langchain``, and
no network. Exits with 1 if an e-mail is missing or doubled, or a request sent again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from durable_agent import checkpointed_llm, checkpointed_tool, session

#: What happened outside: one line each.
WORLD = "world.txt"


def happened(line: str) -> None:
    with Path(WORLD).open("a", encoding="utf-8") as world:
        world.write(f"{line}\n")


def asks(name: str, id_: str, **args: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": id_}])


SCRIPT = [
    asks("look_up", "call-1", customer="Ann"),
    asks("send_mail", "call-2", to="ann@example.com", text="Your invoice is due."),
    asks("send_mail", "call-3", to="bob@example.com", text="So is yours."),
    AIMessage("Ann and Bob are reminded."),
]


class ScriptedModel(BaseChatModel):
    """Answers by how many tools have answered; any other chat model would do."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        """Return the model with the names of its tools."""
        return self.bind(tools=[each.name for each in tools], **more)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(isinstance(message, ToolMessage) for message in messages)
        if str(turn) == os.environ.get("KILLED_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        happened(f"request {turn}")
        return ChatResult(generations=[ChatGeneration(message=SCRIPT[turn])])


# The agent: ordinary LangChain code, and three decorators -----------------------------


@checkpointed_tool(effect="read_only")
@tool
def look_up(customer: str) -> str:
    """Look a customer up."""
    return f"{customer} and Bob owe money."


@checkpointed_tool
@tool
def send_mail(to: str, text: str) -> str:
    """Send an e-mail."""
    happened(f"e-mail to {to}: {text}")
    return "sent"


def agent() -> None:
    model = checkpointed_llm(ScriptedModel())
    graph: Any = create_agent(model, [look_up, send_mail])
    with session("reminders", root="log"):
        out = graph.invoke({"messages": [("user", "Remind our customers.")]})
    print(f"  the model says: {out['messages'][-1].content}")


# What happens to it -------------------------------------------------------------------


def run(directory: str, killed_at: str = "") -> int:
    command = [sys.executable, str(Path(__file__).resolve()), "agent"]
    env = {**os.environ, "KILLED_AT": killed_at}
    return subprocess.run(command, cwd=directory, env=env, check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="langchain-tools-") as directory:
        world = Path(directory) / WORLD
        print("run 1", flush=True)
        exits = [run(directory, killed_at="2")]
        print("".join(f"  {line}\n" for line in world.read_text().splitlines()), end="")
        seen = len(world.read_text().splitlines())
        print("  killed\nrun 2", flush=True)
        exits.append(run(directory))
        lines = world.read_text().splitlines()
        print("".join(f"  {line}\n" for line in lines[seen:]), end="")
    mails = sum(line.startswith("e-mail") for line in lines)
    twice = len(lines) - len(set(lines))
    print(f"{mails} e-mails, {twice} of all lines twice")
    good = exits == [-signal.SIGKILL, 0] and (mails, twice) == (2, 0)
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["agent"]:
        agent()
    else:
        sys.exit(main())
