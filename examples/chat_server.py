"""A chat server: FastAPI, one conversation per user, and no message sent twice.

``python chat_server.py`` demonstrates it against itself: the model is scripted, and
there is no network beyond this machine. ``uvicorn chat_server:app`` serves.

Each request opens its user's conversation in a dependency. Use ``async def`` for that:
FastAPI runs the body of a plain ``def`` dependency in a thread of its own, and what it
sets in the context is gone when the route begins (pass the session on, and call through
``session.bind(function)``, where you cannot). Two requests of one user at once wait for
each other. A browser that sends the same message twice gets the same answer.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.request import Request, urlopen

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from durable_agent import (
    Session,
    SessionBusyError,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    conversation,
    inspect_session,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# A server has many sessions open at once: a call outside of them is an error, and is
# never taken for somebody else's.
configure(session_fallback=False, require_session=True)

Messages = list[dict[str, Any]]


class Message(BaseModel):
    """What a browser sends; the id is drawn when the person presses the key."""

    id: str
    text: str


# --- the model and the tool: yours would call a provider, and somebody's phone --------


@checkpointed_llm
def ask(messages: Messages) -> str:
    said = [m["content"] for m in messages if m["role"] == "user"]
    return f"You said {said[-1]!r}; that was message {len(said)}."


@checkpointed_llm
async def ask_in_pieces(messages: Messages) -> AsyncIterator[str]:
    for word in ask.__wrapped__(messages).split(" "):
        yield word + " "


@checkpointed_tool
def notify(user: str, text: str) -> str:
    with Path(os.environ["CHAT_OUTBOX"]).open("a", encoding="utf-8") as outbox:
        outbox.write(f"{user}\t{text}\n")
    return "sent"


# --- the server -----------------------------------------------------------------------

app = FastAPI()


async def chat_of(user: str) -> AsyncIterator[Session]:
    async with conversation(f"chat-{user}", lock_timeout=30) as chat:
        yield chat


Chat = Annotated[Session, Depends(chat_of)]


@app.exception_handler(SessionBusyError)
async def busy(_: Any, error: SessionBusyError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=409)


def answered(chat: Session, message: Message) -> str | None:
    """Return the answer to a message that came before, such as by a double click."""
    for event in chat.events():
        if event.type == "chat/answered" and event.data["id"] == message.id:
            return str(event.data["text"])
    return None


def extended(chat: Session, message: Message) -> Messages:
    return [*chat.messages(), {"role": "user", "content": message.text}]


@app.post("/chat/{user}")
def answer(user: str, message: Message, chat: Chat) -> dict[str, str]:
    text = answered(chat, message)
    if text is None:
        text = ask(extended(chat, message))
        notify(user, text)
        chat.append("chat/answered", {"id": message.id, "text": text})
    return {"text": text}


@app.post("/chat/{user}/stream")
async def stream(user: str, message: Message, chat: Chat) -> StreamingResponse:
    async def pieces() -> AsyncIterator[str]:
        before = answered(chat, message)
        if before is not None:
            yield before
            return
        said = []
        async for piece in ask_in_pieces(extended(chat, message)):
            said.append(piece)
            yield piece
        notify(user, "".join(said))
        chat.append("chat/answered", {"id": message.id, "text": "".join(said)})

    return StreamingResponse(pieces(), media_type="text/plain")


# --- the demonstration ----------------------------------------------------------------


def post(url: str, message_id: str, text: str) -> str:
    body = json.dumps({"id": message_id, "text": text}).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, body, headers)) as response:  # noqa: S310 - loopback
        raw: bytes = response.read()
    return raw.decode()


def demonstrate(base: str, outbox: Path) -> None:
    users = ["ada", "ben", "cleo", "dora", "emil"]
    with ThreadPoolExecutor(2 * len(users)) as pool:
        for number, text in enumerate(["hello", "are you there?"]):
            # Everybody at once, and everybody clicks twice.
            jobs = [
                pool.submit(post, f"{base}/chat/{user}", f"{user}-{number}", text)
                for user in [*users, *users]
            ]
            answers = [json.loads(job.result())["text"] for job in jobs]
            first, second = answers[: len(users)], answers[len(users) :]
            print(f"{text!r}: {'the same' if first == second else 'another'} answer")
    streamed = post(f"{base}/chat/ada/stream", "ada-2", "slowly, please")
    print(f"ada's answer, streamed: {streamed.strip()}")
    sent = Counter(line.split("\t")[0] for line in outbox.read_text().splitlines())
    for user in users:
        with inspect_session(f"chat-{user}") as chat:
            said = [m["content"] for m in chat.messages() if m["role"] == "user"]
        print(f"{user}: {len(said)} messages, {sent[user]} notifications")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket() as listening:
        outbox = Path(directory) / "outbox.txt"
        os.environ["CHAT_OUTBOX"] = str(outbox)
        os.environ["DURABLE_AGENT_HOME"] = directory
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            demonstrate(f"http://127.0.0.1:{listening.getsockname()[1]}", outbox)
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    main()
