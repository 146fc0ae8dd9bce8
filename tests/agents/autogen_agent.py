"""An agent of AutoGen that pays and mails, killed where it is told to be.

Run as ``autogen_agent.py ROOT WORLD WAY POINT``; see ``killing.py``.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_model import Scripted
from world import Here, effect, send

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

#: The answers, by how many turns came before.
SCRIPT = [
    [("pay", {"amount": 5}, "tc-pay"), ("look", {"place": "a"}, "tc-look")],
    [("mail", {"text": "paid"}, "tc-mail")],
    "all done",
]


def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@checkpointed_tool(effect="read_only")
async def look(place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


async def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


async def run(way):
    tools = [
        checkpointed_tool(FunctionTool(pay, "Pay.")),
        look,
        checkpointed_tool(FunctionTool(mail, "Mail.")),
    ]
    agent = AssistantAgent(
        "main",
        model_client=checkpointed_llm(Scripted(SCRIPT, send)),
        tools=tools,
        max_tool_iterations=9,
        model_client_stream=way == "stream",
    )
    result = await agent.run(task="pay and mail")
    for message in result.messages:
        sys.stdout.write(f"{message.content!r}\n")


def main(root, way):
    with session("s", root=root):
        asyncio.run(run(way))


if __name__ == "__main__":
    main(*begin(sys.argv[1:]))
