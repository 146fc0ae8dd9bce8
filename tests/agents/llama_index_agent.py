"""Agents of LlamaIndex that pay and mail, killed where they are told to be.

Run as ``llama_index_agent.py ROOT WORLD WAY POINT``; see ``tests/frameworks/killing``.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool

from durable_agent import checkpointed_llm, checkpointed_tool, session
from tests.frameworks.killing import begin

# Last: where `killing` has put it.
from world import Here, effect, send  # isort: skip

#: What is asked for, by how many answers of tools there are.
CALLS = {
    0: [("pay", {"amount": 5}), ("look", {"place": "a"})],
    2: [("mail", {"text": "paid"})],
}


def script(messages, **_):
    """Answer as a model that calls functions."""
    answers = [m.content for m in messages if m.role == MessageRole.TOOL]
    send(str(len(answers)))
    calls = CALLS.get(len(answers))
    if calls is None:
        return ChatMessage(role="assistant", content="; ".join(answers))
    blocks = [
        ToolCallBlock(tool_call_id=f"tc-{name}", tool_name=name, tool_kwargs=arguments)
        for name, arguments in calls
    ]
    return ChatMessage(role="assistant", blocks=blocks)


async def _chunks(message):
    yield message


def streamed(messages, **more):
    """Answer one chunk after the other."""
    return _chunks(script(messages, **more))


async def reasoned(messages):
    """Answer as a model that reasons in text, word by word."""
    seen = [m.content for m in messages if (m.content or "").startswith("Observation:")]
    send(str(len(seen)))
    calls = ["pay\nAction Input: {'amount': 5}", "mail\nAction Input: {'text': 'paid'}"]
    if len(seen) < len(calls):
        text = f"Thought: I must.\nAction: {calls[len(seen)]}"
    else:
        done = "; ".join(each.removeprefix("Observation: ") for each in seen)
        text = f"Thought: I can answer.\nAnswer: {done}"
    so_far = ""
    for word in text.split(" "):
        so_far = f"{so_far} {word}".strip(" ")
        yield ChatMessage(role="assistant", content=so_far)


def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


def look(place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


async def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


def agent_of(way):
    tools = [checkpointed_tool(FunctionTool.from_defaults(fn)) for fn in (pay, mail)]
    if way == "react":
        llm = MockFunctionCallingLLM(response_generator=reasoned)
        return ReActAgent(tools=tools, llm=checkpointed_llm(llm))
    plain = FunctionTool.from_defaults(look)
    tools.append(checkpointed_tool(plain, effect="read_only"))
    answers = script if way == "whole" else streamed
    llm = MockFunctionCallingLLM(response_generator=answers)
    return FunctionAgent(
        tools=tools, llm=checkpointed_llm(llm), streaming=way != "whole"
    )


async def main(arguments):
    root, way = begin(arguments)
    async with session("s", root=root):
        response = await agent_of(way).run(user_msg="pay and mail")
    sys.stdout.write(f"{response}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
