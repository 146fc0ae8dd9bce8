"""A crew that pays and mails, killed where it is told to be.

Run as ``crewai_agent.py ROOT WORLD WAY POINT``; see ``tests/frameworks/killing``.
"""

# ruff: noqa: E402 - what it sends about itself is turned off before

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED"):
    os.environ[name] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

# Last: where `killing` has put it.
from world import effect, send  # isort: skip

CALLS = [("pay", '{"amount": 5}'), ("mail", '{"text": "paid"}')]


class Scripted(BaseLLM):
    """Answers by which tools were called."""

    def supports_function_calling(self):
        return False

    def call(self, messages, *args, **kwargs):
        text = str(messages)
        seen = [
            word for word in ("paid 5", "sent paid", "OUTCOME_UNKNOWN") if word in text
        ]
        turn = sum(f"Action: {name}" in text for name, _ in CALLS)
        send(str(turn))
        if turn < len(CALLS):
            name, arguments = CALLS[turn]
            return f"Thought: So.\nAction: {name}\nAction Input: {arguments}"
        return f"Thought: I now know.\nFinal Answer: {seen}"

    async def acall(self, messages, *args, **kwargs):
        return self.call(messages)


@checkpointed_tool
@tool
def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@checkpointed_tool
@tool
def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


def main(arguments):
    root, way = begin(arguments)
    clerk = Agent(
        role="clerk",
        goal="pay",
        backstory="old",
        llm=checkpointed_llm(Scripted(model="scripted")),
        tools=[pay, mail],
        cache=False,
    )
    task = Task(
        description="pay and mail", expected_output="what was done", agent=clerk
    )
    crew = Crew(agents=[clerk], tasks=[task], cache=False)
    with session("s", root=root):
        out = asyncio.run(crew.akickoff()) if way == "async" else crew.kickoff()
    sys.stdout.write(f"\n{out}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
