"""A small agent: the model asks for an e-mail, the agent sends it and says so.

It is what `test_my_agent.py` kills, again and again. A fake model and a fake mailbox
stand in for the real ones.
"""

import json

from durable_agent import (
    Call,
    Completed,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    session,
)
from durable_agent.testing import FakeLLM, ToolCall, effect, happened

WANTED = ToolCall("send_email", {"to": "joan@example.com", "body": "Welcome!"})
ask = checkpointed_llm(FakeLLM([WANTED, "I have written to Joan."]), name="ask")


def was_sent(call: Call) -> Completed | NotApplied:
    to, body = call.arguments["to"], call.arguments["body"]
    if happened(f"mail {to}"):
        return Completed(f"sent {len(body)} characters to {to}")
    return NotApplied()


@checkpointed_tool(verify=was_sent)
def send_email(to: str, body: str) -> str:
    effect(f"mail {to}")  # the e-mail leaves
    return f"sent {len(body)} characters to {to}"


with session("welcome"):
    messages = [{"role": "user", "content": "Joan is new here."}]
    while True:
        message = ask(messages=messages)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            break
        for call in message["tool_calls"]:
            text = send_email(**json.loads(call["function"]["arguments"]))
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": text}
            )
print(message["content"])
