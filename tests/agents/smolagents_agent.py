"""Agents of smolagents that pay and mail, killed where they are told to be.

Run as ``smolagents_agent.py ROOT WORLD WAY POINT``; see ``tests/frameworks/killing``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from smolagents import CodeAgent, Model, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)
from smolagents.monitoring import LogLevel

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

# Last: where `killing` has put it.
from world import Here, effect, send  # isort: skip

CALLS = [
    [("pay", {"amount": 5}), ("look", {"place": "a"})],
    [("mail", {"text": "paid"})],
]
CODE = ["print(pay(5))\nprint(look('a'))", "print(mail('paid'))"]


def steps_in(messages):
    return sum(m.role == MessageRole.TOOL_RESPONSE for m in messages)


class Scripted(Model):
    """Answers by how many steps were observed."""

    def generate(self, messages, stop_sequences=None, tools_to_call_from=None, **_):
        done = steps_in(messages)
        send(str(done))
        if tools_to_call_from is None:
            text = CODE[done] if done < len(CODE) else "final_answer('done')"
            return ChatMessage(MessageRole.ASSISTANT, f"Now.\n<code>\n{text}\n</code>")
        calls = (
            CALLS[done] if done < len(CALLS) else [("final_answer", {"answer": "done"})]
        )
        if self.model_id == "text":
            name, arguments = calls[0]
            text = f'{{"name": "{name}", "arguments": {arguments!r}}}'
            return ChatMessage(MessageRole.ASSISTANT, text.replace("'", '"'))
        return ChatMessage(
            MessageRole.ASSISTANT,
            "",
            tool_calls=[
                ChatMessageToolCall(
                    ChatMessageToolCallFunction(a, n), f"tc-{n}", "function"
                )
                for n, a in calls
            ],
        )


class Streaming(Scripted):
    def generate_stream(self, messages, stop_sequences=None, **more):
        whole = self.generate(messages, stop_sequences, **more)
        for word in whole.content.split(" "):
            yield ChatMessageStreamDelta(content=f"{word} ")


@checkpointed_tool
@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: how much

    """
    effect("pay")
    return f"paid {amount}"


@checkpointed_tool(effect="read_only")
@tool
def look(place: str) -> str:
    """Look.

    Args:
        place: where

    """
    Here.point("body look: begin")
    return f"nothing at {place}"


@checkpointed_tool
@tool
def mail(text: str) -> str:
    """Mail.

    Args:
        text: what

    """
    effect("mail")
    return f"sent {text}"


def main(arguments):
    root, way = begin(arguments)
    quiet = {"verbosity_level": LogLevel.OFF}
    tools = [pay, look, mail]
    if way == "code":
        agent = CodeAgent(tools, checkpointed_llm(Scripted()), **quiet)
    elif way == "stream":
        model = checkpointed_llm(Streaming())
        agent = CodeAgent(tools, model, stream_outputs=True, **quiet)
    else:
        agent = ToolCallingAgent(
            tools, checkpointed_llm(Scripted(model_id=way)), **quiet
        )
    with session("s", root=root):
        out = agent.run("pay and mail")
    seen = [
        step.observations
        for step in agent.memory.steps
        if hasattr(step, "observations")
    ]
    sys.stdout.write(f"{seen}\n{out}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
