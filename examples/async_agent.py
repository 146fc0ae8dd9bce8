"""Three bookings at once with ``asyncio.gather``, killed in the middle.

The model asks for three reservations in one turn. Each is a line in a ledger on disk,
the outside world of this example. The process kills itself (SIGKILL) right after the
second line: two bookings are made and one was about to be, and the log holds three
intents. The second run finds out which is which by looking into the ledger.

Run it: ``python examples/async_agent.py``. Exits with 1 if a booking is missing or
doubled.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from loopback_model import ModelServer
from openai import AsyncOpenAI
from scripted_models import travel_agent

from durable_agent import (
    Call,
    Completed,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    session,
)

#: The booking after which the first run is killed.
KILL_AFTER = 2

RESERVE = {
    "name": "reserve",
    "description": "Reserve one item of a journey.",
    "parameters": {
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
    },
}
TOOLS: Any = [{"type": "function", "function": RESERVE}]


@checkpointed_llm(ignore="client")
async def ask(client: AsyncOpenAI, messages: list[Any]) -> Any:
    return await client.chat.completions.create(
        model="loopback", messages=messages, tools=TOOLS
    )


class Ledger:
    """The bookings, one line each: key and item."""

    def __init__(self, path: Path, kill_after: int) -> None:
        self.path = path
        self.kill_after = kill_after

    def lines(self) -> dict[str, str]:
        """Return the items by key."""
        if not self.path.exists():
            return {}
        return dict(line.split(" ", 1) for line in self.path.read_text().splitlines())

    def add(self, key: str, item: str) -> None:
        """Book; what follows the last line of the first run is death."""
        with self.path.open("a") as file:
            file.write(f"{key} {item}\n")
        if len(self.lines()) == self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


async def run_agent(workdir: Path, kill_after: int) -> None:
    ledger = Ledger(workdir / "ledger", kill_after)

    async def was_booked(call: Call) -> Completed | NotApplied:
        if call.idempotency_key in ledger.lines():
            return Completed(f"{call.arguments['item']} reserved")
        return NotApplied()

    @checkpointed_tool(verify=was_booked)
    async def reserve(item: str, *, idempotency_key: str = "") -> str:
        ledger.add(idempotency_key, item)
        return f"{item} reserved"

    async with (
        AsyncOpenAI() as client,
        session("journey", root=workdir / "sessions") as s,
    ):
        messages: list[Any] = [{"role": "user", "content": "Lyon, Monday to Friday."}]
        while True:
            reply = (await ask(client, messages)).choices[0].message
            messages.append(reply.model_dump(exclude_none=True))
            if not reply.tool_calls:
                break
            calls = [json.loads(call.function.arguments) for call in reply.tool_calls]
            texts = await asyncio.gather(*(reserve(**call) for call in calls))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": text}
                for call, text in zip(reply.tool_calls, texts, strict=True)
            ]
        report = {**s.stats, "answer": reply.content}
    (workdir / "report.json").write_text(json.dumps(report))


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="async-agent-") as directory,
        ModelServer(travel_agent) as model,
    ):
        env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url}
        command = [sys.executable, str(Path(__file__)), "--agent", directory]
        exits = [
            subprocess.run([*command, str(kill)], env=env, check=False).returncode
            for kill in (KILL_AFTER, 0)
        ]
        booked = sorted(Ledger(Path(directory, "ledger"), 0).lines().values())
        if exits != [-signal.SIGKILL, 0]:
            print(f"FAILED: the runs ended with {exits}, not with SIGKILL and 0")
            return 1
        report = json.loads(Path(directory, "report.json").read_text())
    print(f"run 1: killed after booking {KILL_AFTER} of 3")
    print(
        f"run 2: {report.get('replayed_llm', 0)} model request replayed, "
        f"{report.get('ran_llm', 0)} sent; {report.get('replayed_tool', 0)} bookings "
        f"replayed, {report.get('verified', 0)} verified, "
        f"{report.get('ran_tool', 0)} made"
    )
    print(f"ledger: {', '.join(booked)}\nThe model says: {report['answer']}")
    wanted = ["hotel in Lyon", "return train", "train to Lyon"]
    if booked != wanted or model.requests != 2 or model.refused:
        print(f"FAILED: bookings {booked}, {model.requests} requests, {model.refused}")
        return 1
    print("Every booking was made exactly once.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agent"]:
        asyncio.run(run_agent(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        sys.exit(main())
