"""An agent of Pydantic AI that pays and mails, killed where it is told to be.

Run as ``pydantic_ai_agent.py ROOT WORLD WAY POINT``; see ``killing.py``.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from world import Here, effect, send

from durable_agent import (
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    session,
)
from tests.frameworks.killing import begin

#: The answers, by how many turns came before.
SCRIPT = [
    [("pay", {"amount": 5}, "tc-pay"), ("look", {"place": "a"}, "tc-look")],
    [("mail", {"text": "paid"}, "tc-mail")],
    "all done",
]


def answer(messages):
    turn = sum(isinstance(m, ModelResponse) for m in messages)
    send(turn)
    return SCRIPT[turn]


def whole(messages, _):
    said = answer(messages)
    if isinstance(said, str):
        return ModelResponse(parts=[TextPart(said)])
    return ModelResponse(parts=[ToolCallPart(*call) for call in said])


async def streamed(messages, _):
    said = answer(messages)
    if isinstance(said, str):
        for word in said.split(" "):
            yield word
        return
    for number, (name, args, id_) in enumerate(said):
        text = json.dumps(args)
        yield {number: DeltaToolCall(name, json_args=text, tool_call_id=id_)}


def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@checkpointed_tool(effect="read_only")
async def look(ctx: RunContext[None], place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


async def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


def agent():
    model = checkpointed_llm(FunctionModel(whole, stream_function=streamed))
    tools = [checkpointed_tool(Tool(pay)), checkpointed_tool(Tool(mail))]
    made = Agent(model, tools=tools)
    made.tool(look)
    return made


async def run_stream():
    async with agent().run_stream("pay and mail") as result:
        async for text in result.stream_text():
            sys.stdout.write(f"{text}\n")
        return result.all_messages()


async def iterated():
    async with agent().iter("pay and mail") as run:
        async for node in run:
            sys.stdout.write(f"{type(node).__name__}\n")
        return run.result.all_messages()


async def ran():
    return (await agent().run("pay and mail")).all_messages()


WAYS = {"run": ran, "run_stream": run_stream, "iter": iterated}


def main(root, way):
    with session("s", root=root):
        try:
            if way == "run_sync":
                messages = agent().run_sync("pay and mail").all_messages()
            else:
                messages = asyncio.run(WAYS[way]())
        except ToolOutcomeUnknownError as unknown:
            Here.world.note("doubts", unknown.call.name.rpartition(":")[2])
            return
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart | TextPart):
                sys.stdout.write(f"{part.content}\n")


if __name__ == "__main__":
    main(*begin(sys.argv[1:]))
