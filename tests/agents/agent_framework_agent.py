"""An agent of Microsoft Agent Framework, killed where it is told to be.

Run as ``agent_framework_agent.py ROOT WORLD WAY POINT``; see ``killing.py``.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from agent_framework import Agent, tool
from agent_framework_client import Scripted
from world import Here, effect, send

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

#: The answers, by how many turns came before.
SCRIPT = [
    [("pay", {"amount": 5}, "tc-pay"), ("look", {"place": "a"}, "tc-look")],
    [("mail", {"text": "paid"}, "tc-mail")],
    "all done",
]


@checkpointed_tool
@tool
def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@tool
@checkpointed_tool(effect="read_only")
async def look(place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


@checkpointed_tool
@tool
async def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


async def run(way):
    client = checkpointed_llm(Scripted(turns=SCRIPT, send=send))
    agent = Agent(client=client, tools=[pay, look, mail], instructions="Be brief.")
    if way == "stream":
        stream = agent.run("pay and mail", stream=True)
        async for update in stream:
            sys.stdout.write(f"{update.text}\n")
        response = await stream.get_final_response()
    else:
        response = await agent.run("pay and mail")
    for message in response.messages:
        for content in message.contents:
            shown = content.text if content.type == "text" else content.result
            sys.stdout.write(f"{content.type} {shown}\n")


def main(root, way):
    with session("s", root=root):
        asyncio.run(run(way))


if __name__ == "__main__":
    main(*begin(sys.argv[1:]))
