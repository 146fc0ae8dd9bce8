"""A loop of tools around a provider's SDK, killed where it is told to be.

Run as ``provider_agent.py ROOT WORLD WAY POINT``. The SDK is real, its transport is a
`ModelServer` in this process; WAY names the SDK and how it is asked.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from world import Here, effect  # noqa: E402 - found beside this file

from durable_agent import (  # noqa: E402 - the same
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    session,
)
from tests.frameworks.killing import begin  # noqa: E402 - the same
from tests.providers.conversations import Call, Model  # noqa: E402 - the same
from tests.providers.servers import ModelServer  # noqa: E402 - the same

SCRIPT = [
    Model("", (Call("pay", '{"amount": 5}', "call_pay"),)),
    Model("", (Call("mail", '{"text": "paid"}', "call_mail"),)),
    Model("all done"),
]
#: What the answer of a tool looks like in a request.
RESULTS = ('"role":"tool"', '"type":"tool_result"', '"functionResponse"')


class Server(ModelServer):
    """Answers by what has been done so far, as a model does."""

    def answer(self, path, body):
        sent = json.dumps(json.loads(body), separators=(",", ":"))
        self.given = max(sent.count(mark) for mark in RESULTS)
        label = f"model {self.given}"
        Here.point(f"{label}: begin")
        Here.world.note("requests", self.given)
        found = super().answer(path, body)
        assert not self.refused, self.refused
        Here.point(f"{label}: end")
        return found


@checkpointed_tool
def pay(amount: int) -> str:
    """Pay."""
    effect("pay")
    return f"paid {amount}"


@checkpointed_tool
def mail(text: str) -> str:
    """Mail."""
    effect("mail")
    return f"sent {text}"


TOOLS = {"pay": pay, "mail": mail}


def openai_loop(server, streamed):
    import openai

    client = openai.OpenAI(api_key="none", http_client=server.client())
    way = client.chat.completions
    ask = checkpointed_llm(way.stream if streamed else way.create)
    messages = [{"role": "user", "content": "pay and mail"}]
    while True:
        asked = ask(model="m", messages=messages)
        if streamed:
            with asked as stream:
                asked = stream.get_final_completion()
        said = asked.choices[0].message
        messages.append(said.to_dict())
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": result}
            )


def litellm_loop(server, streamed):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    import openai

    litellm.suppress_debug_info = True
    client = openai.OpenAI(api_key="none", http_client=server.client(), max_retries=0)
    ask = checkpointed_llm(litellm.completion, ignore=("client",))
    messages = [{"role": "user", "content": "pay and mail"}]
    while True:
        asked = ask(model="openai/m", messages=messages, stream=streamed, client=client)
        if streamed:
            asked = litellm.stream_chunk_builder([*asked])
        said = asked.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": result}
            )


def anthropic_loop(server, streamed):
    import anthropic

    client = anthropic.Anthropic(api_key="none", http_client=server.client())
    way = client.messages
    ask = checkpointed_llm(way.stream if streamed else way.create)
    messages = [{"role": "user", "content": "pay and mail"}]
    while True:
        said = ask(model="m", max_tokens=99, messages=messages)
        if streamed:
            with said as stream:
                said = stream.get_final_message()
        messages.append({"role": "assistant", "content": said.content})
        uses = [block for block in said.content if block.type == "tool_use"]
        if not uses:
            return said.content[0].text
        results = [
            {
                "type": "tool_result",
                "tool_use_id": use.id,
                "content": TOOLS[use.name](**use.input),
            }
            for use in uses
        ]
        messages.append({"role": "user", "content": results})


def anthropic_runner(server, streamed):
    import logging

    import anthropic

    logging.disable()  # it logs each error of a tool
    client = anthropic.Anthropic(api_key="none", http_client=server.client())
    messages = client.beta.messages
    messages.create = checkpointed_llm(messages.create)
    runner = messages.tool_runner(
        model="m",
        max_tokens=99,
        messages=[{"role": "user", "content": "pay and mail"}],
        tools=[checkpointed_tool(anthropic.beta_tool(t)) for t in (pay, mail)],
        thread=False,
        stream=streamed,
    )
    return runner.until_done().content[0].text


def google_client(server):
    from google import genai

    server.ids = "lenient"
    for n, turn in enumerate(SCRIPT[:2]):
        # The SDK gives no ids back.
        (call,) = turn.calls
        server.answers[n] = Model("", (Call(call.name, call.arguments, None),))
    options = genai.types.HttpOptions(httpx_client=server.client())
    return genai.Client(api_key="none", http_options=options)


def google_automatic(server, streamed):
    """One call of the SDK, which makes the requests and runs the tools inside."""
    models = google_client(server).models
    request = {
        "model": "gemini-test",
        "contents": "pay and mail",
        "config": {"tools": [pay, mail]},
    }
    if not streamed:
        return checkpointed_llm(models.generate_content)(**request).text
    chunks = checkpointed_llm(models.generate_content_stream)(**request)
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    return "".join(part.text or "" for part in parts)


def google_chat(server, streamed):
    client = google_client(server)
    models = client.models
    if streamed:
        models.generate_content_stream = checkpointed_llm(
            models.generate_content_stream
        )
    else:
        models.generate_content = checkpointed_llm(models.generate_content)
    chat = client.chats.create(model="gemini-test", config={"tools": [pay, mail]})
    if not streamed:
        return chat.send_message("pay and mail").text
    parts = [
        part
        for chunk in chat.send_message_stream("pay and mail")
        for part in chunk.candidates[0].content.parts
    ]
    return "".join(part.text or "" for part in parts)


LOOPS = {
    "openai": openai_loop,
    "litellm": litellm_loop,
    "anthropic": anthropic_loop,
    "anthropic-runner": anthropic_runner,
    "google-genai": google_chat,
    "google-automatic": google_automatic,
}


def main(arguments):
    root, way = begin(arguments)
    sdk, _, how = way.partition(" ")
    with session("s", root=root):
        try:
            text = LOOPS[sdk](Server(list(SCRIPT)), how == "stream")
        except ToolOutcomeUnknownError as unknown:
            text = f"in doubt: {unknown.call.name.rpartition(':')[2]}"
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
