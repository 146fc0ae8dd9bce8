"""An agent of the OpenAI Agents SDK that pays and mails, killed where it is told to be.

Run as ``openai_agents_agent.py ROOT WORLD WAY POINT``; see ``killing.py``.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from agents import Agent, Runner, function_tool, set_tracing_disabled
from openai_agents_model import Scripted, calls, says
from world import Here, effect, send

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

#: The answers, by how many turns came before.
SCRIPT = [
    calls(("pay", {"amount": 5}, "tc-pay"), ("look", {"place": "a"}, "tc-look")),
    calls(("mail", {"text": "paid"}, "tc-mail")),
    calls(("ask_ann", {"input": "is it there?"}, "tc-ann")),
    says("all done"),
]


@checkpointed_tool
@function_tool
def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@function_tool
@checkpointed_tool(effect="read_only")
async def look(place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


@checkpointed_tool
@function_tool
async def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


@checkpointed_tool
@function_tool
def note(line: str) -> str:
    """Note."""
    effect("note")
    return "noted"


ANN = [calls(("note", {"line": "asked"}, "tc-note")), says("it is")]


def agent():
    ann = Agent(
        name="ann",
        tools=[note],
        model=checkpointed_llm(Scripted(ANN, lambda turn: send(f"ann {turn}"))),
    )
    asks = checkpointed_tool(ann.as_tool("ask_ann", "Ask Ann."))
    return Agent(
        name="main",
        instructions="Be brief.",
        tools=[pay, look, mail, asks],
        model=checkpointed_llm(Scripted(SCRIPT, send)),
    )


async def streamed():
    result = Runner.run_streamed(agent(), "pay and mail")
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            sys.stdout.write(f"{event.data.type}\n")
    return result


def main(root, way):
    set_tracing_disabled(True)
    with session("s", root=root):
        if way == "run_sync":
            result = Runner.run_sync(agent(), "pay and mail")
        elif way == "run_streamed":
            result = asyncio.run(streamed())
        else:
            result = asyncio.run(Runner.run(agent(), "pay and mail"))
    for item in result.to_input_list():
        shown = item.get("output") or item.get("name") or item["content"]
        sys.stdout.write(f"{shown}\n")


if __name__ == "__main__":
    main(*begin(sys.argv[1:]))
