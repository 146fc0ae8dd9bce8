"""Servers: many users at once under a real uvicorn, each in their own conversation."""

import asyncio
import contextlib
import importlib.util
import json
import re
import socket
import subprocess
import sys
import threading
from typing import Annotated

import httpx2
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import uvicorn
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import JSONResponse, StreamingResponse

from durable_agent import (
    NoSessionError,
    Session,
    SessionBusyError,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    conversation,
    current_session,
    inspect_session,
    list_sessions,
)
from tests.conftest import PROJECT, clean_environment

USERS = [f"user-{n:02}" for n in range(50)]
EXAMPLE = PROJECT / "examples" / "chat_server.py"


@pytest.fixture(autouse=True)
def _for_a_server():
    configure(session_fallback=False)


@contextlib.contextmanager
def served(app):
    """Serve on a port of this machine; yields the URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        config = uvicorn.Config(app, log_level="error", ws="none", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


# --- what the routes call -------------------------------------------------------------


@checkpointed_llm
def ask(messages):
    return f"seen {messages[-1]['content']}"


@checkpointed_llm
async def aask(messages):
    await asyncio.sleep(0)
    return f"seen {messages[-1]['content']}"


@checkpointed_llm
async def aspeak(messages):
    yield "seen "
    await asyncio.sleep(0)
    yield messages[-1]["content"]


@checkpointed_llm
def speak(messages):
    yield "seen "
    yield messages[-1]["content"]


@checkpointed_tool
def remember(text):
    return f"noted {text}"


@checkpointed_tool
async def aremember(text):
    return f"noted {text}"


def said(user):
    return [{"role": "user", "content": f"marker {user}"}]


def app_of(root):
    """Each way to open a conversation, with each way to use it."""
    app = FastAPI()

    def opened(user: str):
        with conversation(user, root=root, lock_timeout=30) as s:
            yield s

    async def aopened(user: str):
        async with conversation(user, root=root, lock_timeout=30) as s:
            yield s

    @app.get("/def/{user}")
    def plain(user: str, s: Annotated[Session, Depends(aopened)]):
        return ask(said(user)), remember(user)

    @app.get("/async/{user}")
    async def asynchronous(user: str, s: Annotated[Session, Depends(aopened)]):
        return await aask(said(user)), await aremember(user)

    @app.get("/bound-def/{user}")
    def bound_plain(user: str, s: Annotated[Session, Depends(opened)]):
        # What a `def` dependency sets is not seen here.
        assert current_session() is None
        return s.bind(ask)(said(user)), s.bind(remember)(user)

    @app.get("/bound-async/{user}")
    async def bound_async(user: str, s: Annotated[Session, Depends(opened)]):
        assert current_session() is None

        async def answer():
            return await aask(said(user)), await aremember(user)

        return await s.bind(answer)()

    @app.get("/own/{user}")
    def own(user: str):
        with conversation(user, root=root, lock_timeout=30):
            return ask(said(user)), remember(user)

    @app.get("/background/{user}")
    async def background(
        user: str, later: BackgroundTasks, s: Annotated[Session, Depends(aopened)]
    ):
        later.add_task(remember, user)
        later.add_task(aremember, user)
        return await aask(said(user))

    @app.get("/bound-background/{user}")
    def bound_background(
        user: str, later: BackgroundTasks, s: Annotated[Session, Depends(opened)]
    ):
        later.add_task(s.bind(remember), user)
        later.add_task(s.bind(aremember), user)
        return s.bind(ask)(said(user))

    @app.get("/stream/{user}")
    async def stream(user: str, s: Annotated[Session, Depends(aopened)]):
        async def pieces():
            async for piece in aspeak(said(user)):
                yield piece
            yield await aremember(user)

        return StreamingResponse(pieces())

    @app.get("/plain-stream/{user}")
    def plain_stream(user: str, s: Annotated[Session, Depends(aopened)]):
        def pieces():
            yield from speak(said(user))
            yield remember(user)

        return StreamingResponse(pieces())

    @app.get("/bound-stream/{user}")
    async def bound_stream(user: str, s: Annotated[Session, Depends(opened)]):
        async def pieces():
            async for piece in aspeak(said(user)):
                yield piece
            yield await aremember(user)

        return StreamingResponse(s.bind(pieces)())

    @app.get("/bound-plain-stream/{user}")
    def bound_plain_stream(user: str, s: Annotated[Session, Depends(opened)]):
        def pieces():
            yield from speak(said(user))
            yield remember(user)

        return StreamingResponse(s.bind(pieces)())

    return app


ROUTES = {
    "def": 1,
    "async": 1,
    "bound-def": 1,
    "bound-async": 1,
    "own": 1,
    "background": 2,
    "bound-background": 2,
    "stream": 1,
    "plain-stream": 1,
    "bound-stream": 1,
    "bound-plain-stream": 1,
}


def logged(root, user):
    """The calls in a user's log by kind, and the markers in it."""
    with inspect_session(user, root=root) as seen:
        events = list(seen.events())
    calls = [e.type for e in events if e.type in {"llm/request", "tool/call"}]
    text = "".join(str(e.data) for e in events if e.type != "session/start")
    ends = [
        e.meta["status"] for e in events if e.type in {"llm/response", "tool/result"}
    ]
    return calls, ends, set(re.findall(r"user-\d\d", text))


@pytest.mark.parametrize("route", ROUTES)
def test_fifty_users_at_once_are_kept_apart(route, root):
    """Each log holds its user's marker only, whole; nothing ran unrecorded."""

    async def everybody(base):
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=base, limits=limits, timeout=60) as http:
            gets = (http.get(f"/{route}/{user}") for user in USERS)
            return await asyncio.gather(*gets)

    with served(app_of(root)) as base:
        responses = asyncio.run(everybody(base))
    tools = ["tool/call"] * ROUTES[route]
    found = {user: logged(root, user) for user in USERS}

    assert [r.status_code for r in responses] == [200] * len(USERS)
    assert [
        f"seen marker {u}" in r.text for u, r in zip(USERS, responses, strict=True)
    ] == ([True] * len(USERS))
    assert found == {
        user: (["llm/request", *tools], ["value"] * (1 + len(tools)), {user})
        for user in USERS
    }
    assert {info.id for info in list_sessions(root=root)} == set(USERS)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async"])
def test_what_is_outside_of_a_conversation_is_an_error(asynchronous, root):
    """With require_session, as a server has it: never unrecorded."""
    configure(session_fallback=False, require_session=True)
    app, ran = FastAPI(), []

    def opened(user: str):
        with conversation(user, root=root) as s:
            yield s

    def call(user):
        with pytest.raises(NoSessionError):
            remember(user)
        ran.append(user)

    @app.get("/def/{user}")
    def plain(user: str, s: Annotated[Session, Depends(opened)]):
        call(user)

    @app.get("/async/{user}")
    async def coroutine(user: str, s: Annotated[Session, Depends(opened)]):
        call(user)

    with served(app) as base:
        route = "async" if asynchronous else "def"
        response = httpx2.get(f"{base}/{route}/user-01")

    assert response.status_code == 200
    assert ran == ["user-01"]


def test_asking_for_the_session_where_there_is_none_warns_of_nothing(root):
    """Nothing was called there that could go unrecorded."""
    configure(session_fallback=False, require_session=True)
    found = []
    with conversation("somebody's", root=root):
        thread = threading.Thread(target=lambda: found.append(current_session()))
        thread.start()
        thread.join()

    assert found == [None]


class Held:
    """A model that has said one word, and says no more before it is told to."""

    def __init__(self):
        self.first = threading.Event()
        self.left = threading.Event()
        self.sent = 0

    def routes(self, root):
        app = FastAPI()

        @checkpointed_llm(name="speak")
        async def speak(messages):
            self.sent += 1
            try:
                yield "one "
                if len(messages) == 1:
                    self.first.set()
                    await asyncio.Event().wait()
                yield "two"
            finally:
                self.left.set()

        async def opened(user: str):
            async with conversation(user, root=root, lock_timeout=30) as s:
                yield s

        @app.get("/{user}/{text}")
        async def stream(user: str, text: str, s: Annotated[Session, Depends(opened)]):
            messages = [*s.messages(), {"role": "user", "content": f"{text} {user}"}]
            return StreamingResponse(speak(messages))

        return app


def test_a_client_that_leaves_a_stream_leaves_a_partial_answer(root):
    """It is no whole answer, the conversation is free, and goes on."""
    held = Held()
    with served(held.routes(root)) as base:
        with httpx2.stream("GET", f"{base}/user-01/hello", timeout=60) as response:
            assert next(response.iter_text()) == "one "
        assert held.left.wait(60)
        again = httpx2.get(f"{base}/user-01/again", timeout=60)
    with inspect_session("user-01", root=root) as seen:
        ends = [
            (e.meta["status"], e.meta.get("cause"))
            for e in seen.events()
            if e.type == "llm/response"
        ]
        messages = seen.messages()

    assert again.text == "one two"
    assert held.sent == 2
    assert ends[0] != ("value", None)
    assert ends[1] == ("value", None)
    assert [m["content"] for m in messages if m["role"] == "assistant"] == ["one two"]


def clicked(base, *, times):
    async def clicks():
        async with httpx2.AsyncClient(base_url=base, timeout=60) as http:
            return await asyncio.gather(*(http.post("/user-01") for _ in range(times)))

    return asyncio.run(clicks())


def pay_app(root, **options):
    app, effects = FastAPI(), []

    @checkpointed_tool(name="pay")
    def pay(user):
        effects.append(user)
        return "paid"

    @app.exception_handler(SessionBusyError)
    async def busy(_, error):
        return JSONResponse({"detail": str(error)}, status_code=409)

    async def opened(user: str):
        async with conversation(user, root=root, **options) as s:
            yield s

    @app.post("/{user}")
    def order(user: str, s: Annotated[Session, Depends(opened)]):
        paid = [e for e in s.events() if e.type == "shop/paid"]
        if not paid:
            pay(user)
            s.append("shop/paid", {"by": user})
        return {"already": bool(paid)}

    return app, effects


def test_clicks_that_wait_for_each_other_have_one_effect(root):
    app, effects = pay_app(root, lock_timeout=60)
    with served(app) as base:
        responses = clicked(base, times=8)

    assert effects == ["user-01"]
    assert sorted(r.json()["already"] for r in responses) == [False] + [True] * 7


def test_clicks_that_do_not_wait_are_told_who_is_busy(root):
    """At least one is served; whoever is not is told so, and nothing ran for it."""
    app, effects = pay_app(root)
    with served(app) as base:
        responses = clicked(base, times=8)
    refused = [r.json()["detail"] for r in responses if r.status_code == 409]

    assert {r.status_code for r in responses} <= {200, 409}
    assert len(refused) < 8
    assert all("user-01" in text for text in refused)
    assert effects == ["user-01"]


# --- the example ----------------------------------------------------------------------


def test_the_example_serves_each_user_and_each_message_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=clean_environment(),
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "'hello': the same answer",
        "'are you there?': the same answer",
        "ada's answer, streamed: You said 'slowly, please'; that was message 3.",
        "ada: 3 messages, 3 notifications",
        *(
            f"{user}: 2 messages, 2 notifications"
            for user in ("ben", "cleo", "dora", "emil")
        ),
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_example_answers_a_message_that_comes_again_as_before(
    tmp_path, monkeypatch
):
    """Also across its two routes, and in a server that was started anew."""
    monkeypatch.setenv("CHAT_OUTBOX", str(tmp_path / "outbox"))
    monkeypatch.setenv("DURABLE_AGENT_HOME", str(tmp_path / "home"))
    message = {"id": "m-1", "text": "hi"}
    answers = []
    for route in ("/chat/ada", "/chat/ada/stream"):
        spec = importlib.util.spec_from_file_location("chat_server", EXAMPLE)
        example = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "chat_server", example)
        spec.loader.exec_module(example)
        with served(example.app) as base:
            answers.append(httpx2.post(base + route, json=message, timeout=60).text)

    assert json.loads(answers[0])["text"] == answers[1]
    assert (tmp_path / "outbox").read_text().count("\n") == 1
