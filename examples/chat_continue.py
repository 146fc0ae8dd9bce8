"""A chat that is killed between two of four tools, and goes on.

A customer asks for four refunds; the model calls a tool for each. The process is killed
(SIGKILL) right after the second refund was paid: the first has its result, the second
was begun, the third and fourth never were. The service refuses a history in which a
tool call has no result, as providers do. The second process opens the conversation and
goes on from ``messages()``: the model reads what is known of each call, looks the
doubtful refund up, and makes the two that were never started. Nothing is replayed, and
nothing is paid twice.

Run it: ``python examples/chat_continue.py``. Exits with 1 if the service refused a
history, or if a refund is missing or doubled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from loopback_model import ModelServer
from openai import OpenAI
from scripted_models import ORDERS, refunder

from durable_agent import checkpointed_llm, checkpointed_tool, conversation

#: The refund after which the first process is killed.
KILL_AFTER = 2

TURNS = ["Please refund my orders " + ", ".join(ORDERS) + ".", "Did that work?"]


def _tool(name: str, description: str) -> Any:
    order = {"order": {"type": "string"}}
    parameters = {"type": "object", "properties": order, "required": ["order"]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [_tool("refund", "Pay an order back."), _tool("find_refund", "Was it paid?")]


class Ledger:
    """The outside world: refunds that were paid, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def paid(self) -> list[str]:
        """Return the orders that were refunded."""
        return self.path.read_text().split() if self.path.exists() else []

    def pay(self, order: str) -> None:
        """Refund an order."""
        with self.path.open("a") as file:
            file.write(f"{order}\n")


def chat(workdir: Path, turn: int, kill_after: int) -> None:
    """Say one thing to the model, and run what tools it calls."""
    ledger = Ledger(workdir / "ledger.txt")
    ask: Any = checkpointed_llm(OpenAI().chat.completions.create)

    @checkpointed_tool
    def refund(order: str) -> str:
        ledger.pay(order)
        if len(ledger.paid()) == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"refunded {order}"

    @checkpointed_tool(effect="read_only")
    def find_refund(order: str) -> str:
        return f"{order} was paid back: {order in ledger.paid()}"

    tools = {"refund": refund, "find_refund": find_refund}
    with conversation("chat-42", root=workdir / "sessions") as session:
        messages = [*session.messages(), {"role": "user", "content": TURNS[turn]}]
        show(messages[1:])
        while True:
            reply = ask(model="loopback", messages=messages, tools=TOOLS)
            message = reply.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                print(f"model: {message.content}")
                break
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = tools[call.function.name](**arguments)
                shown = f"{call.function.name}({arguments['order']}): {result}"
                print("tool: ", shown, flush=True)
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": result}
                )
        print(f"tokens: {session.usage.total.input:,} in the requests so far")


def show(messages: list[Any]) -> None:
    """Print what the model is told of the time before."""
    for message in messages:
        if message["role"] == "tool":
            print(f"told:  {message['content'].split(':')[0]}")


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="chat-continue-") as directory,
        ModelServer(refunder) as model,
    ):
        env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url}
        command = [sys.executable, str(Path(__file__)), "--chat", directory]
        exits = []
        for turn, kill_after in enumerate((KILL_AFTER, 0)):
            print(f"process {turn + 1}, user: {TURNS[turn]}", flush=True)
            arguments = [*command, str(turn), str(kill_after)]
            exits.append(subprocess.run(arguments, env=env, check=False).returncode)
        paid = Counter(Ledger(Path(directory) / "ledger.txt").paid())
        requests, refused = model.requests, model.refused
    if exits != [-signal.SIGKILL, 0] or refused:
        print(f"FAILED: the processes ended with {exits}; refused: {refused}")
        return 1
    if paid != Counter(ORDERS):
        print(f"FAILED: {dict(paid)} was paid, not each of {ORDERS} once")
        return 1
    print(f"{requests} model requests, none of them twice; every refund was paid once.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--chat"]:
        chat(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
