"""A ReAct module of DSPy that pays and mails, killed where it is told to be.

Run as ``dspy_agent.py ROOT WORLD WAY POINT``; see ``tests/frameworks/killing``.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dspy
from dspy.utils.dummies import DummyLM

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

# Last: where `killing` has put it.
from world import effect, send  # isort: skip


def wants(label, name, **arguments):
    return {
        "label": label,
        "next_thought": f"I must {name}.",
        "next_tool_name": name,
        "next_tool_args": arguments,
    }


#: The answer to a request, by what its last message has in it; the first that fits.
SCRIPT = {
    "field `[[ ## reasoning": {"label": "3", "reasoning": "All is.", "answer": "done"},
    "observation_1": wants("2", "finish"),
    "observation_0": wants("1", "mail", text="paid"),
    "pay and mail": wants("0", "pay", amount=5),
}


class Scripted(DummyLM):
    def _format_answer_fields(self, values):
        values = dict(values)
        send(values.pop("label"))
        return super()._format_answer_fields(values)


def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


async def amail(text: str) -> str:
    """Mail."""
    return mail(text)


def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


def main(arguments):
    root, way = begin(arguments)
    dspy.configure(lm=checkpointed_llm(Scripted(SCRIPT)))
    functions = [pay, mail]
    if way == "async":
        functions = [pay, dspy.Tool(amail, name="mail")]
    tools = [
        checkpointed_tool(f if isinstance(f, dspy.Tool) else dspy.Tool(f))
        for f in functions
    ]
    agent = dspy.ReAct("question -> answer", tools=tools)
    with session("s", root=root):
        if way == "async":
            out = asyncio.run(agent.acall(question="pay and mail"))
        else:
            out = agent(question="pay and mail")
    seen = [v for k, v in out.trajectory.items() if k.startswith("observation")]
    sys.stdout.write(f"{seen}\n{out.answer}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
