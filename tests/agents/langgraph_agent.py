"""A LangGraph agent that pays and mails, killed where it is told to be.

Run as ``langgraph_agent.py ROOT WORLD WAY POINT``: POINT names a place of `world.Here`,
at which the process is killed; "" for none.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from world import Here, World, effect

from durable_agent import (
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    session,
)


def asked(*calls):
    return AIMessage(
        "",
        tool_calls=[{"name": n, "args": a, "id": i} for n, a, i in calls],
    )


#: The answer to a request, by how many answers of tools it holds.
SCRIPT = {
    0: asked(("pay", {"amount": 5}, "tc-pay"), ("look", {"place": "a"}, "tc-look")),
    2: asked(("mail", {"text": "paid"}, "tc-mail")),
    3: AIMessage("all done"),
}


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **more):
        return self.bind(tools=[t.name for t in tools], **more)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        answers = sum(isinstance(m, ToolMessage) for m in messages)
        Here.point(f"model {answers}: begin")
        Here.world.note("requests", answers)
        Here.point(f"model {answers}: end")
        return ChatResult(generations=[ChatGeneration(message=SCRIPT[answers])])


@checkpointed_tool
@tool
def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@tool
@checkpointed_tool(effect="read_only")
def look(place: str) -> str:
    """Look."""
    Here.point("body look: begin")
    return f"nothing at {place}"


@checkpointed_tool
@tool
def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


def saver_of(world):
    """LangGraph's checkpointer in a file; killed once the tools' writes are in it."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    class Saver(SqliteSaver):
        def put(self, config, checkpoint, metadata, *rest):
            done = super().put(config, checkpoint, metadata, *rest)
            if metadata["step"] == 2:
                Here.point("tools written")
            return done

    path = Path(world) / "graph.sqlite"
    return Saver(sqlite3.connect(path, check_same_thread=False))


def main(root, world, way, point):
    Here.world = World(world)
    Here.point = lambda label: label == point and os.kill(os.getpid(), signal.SIGKILL)
    model = checkpointed_llm(Scripted())
    given = {"messages": [("user", "pay and mail")]}
    opener, saver, config = session, None, None
    if way.startswith("resume"):
        opener = conversation if way.endswith("conversation") else session
        saver, config = saver_of(world), {"configurable": {"thread_id": "1"}}
        if saver.get(config) is not None:
            given = None
    agent = create_agent(model, [pay, look, mail], checkpointer=saver)
    with opener("s", root=root):
        try:
            if saver is not None:
                out = agent.invoke(given, config, durability="sync")
            elif way == "ainvoke":
                out = asyncio.run(agent.ainvoke(given))
            else:
                out = agent.invoke(given)
        except ToolOutcomeUnknownError as unknown:
            Here.world.note("doubts", unknown.call.name.rpartition(":")[2])
            return
    sys.stdout.writelines(f"{message.content}\n" for message in out["messages"])


if __name__ == "__main__":
    main(*sys.argv[1:])
