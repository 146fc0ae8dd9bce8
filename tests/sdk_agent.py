"""A chat with any of the SDKs that can be stopped anywhere, and what it has sent."""

from __future__ import annotations

import contextlib
import json

import pytest

from durable_agent import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    OutcomeNotRecordedError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
)
from tests.disks import crash
from tests.providers.conversations import Call, Model
from tests.providers.servers import ModelServer


class Stopped(BaseException):
    """Stops the program where it is raised, as a signal does."""


def asks(turn=0, text="let me see"):
    """Two parallel calls, as a model of the turn asks for them."""
    calls = (
        Call("search", json.dumps({"q": f"é {turn}"}), f"call_{turn}a"),
        Call("send", json.dumps({"to": f"bob {turn}"}), f"call_{turn}b"),
    )
    return Model(text, calls, thinking="hm")


SAYS = Model("fine")


class Agent:
    """A loop of tools as people write it, with the SDK's own objects as messages.

    ``run_until`` stops it in the middle of a ``request`` or at the second ``chunk`` of
    a stream, after the ``response``, in the tools ``search`` and ``send``, or
    ``between`` the two. ``killed``: nothing is closed and no one hears of the stop, as
    if the process were gone.
    """

    def __init__(self, sdk, answers, root, *, stream, killed=False):
        self.server = ModelServer(list(answers))
        self.sdk, self.stream, self.root = sdk(self.server), stream, root
        self.killed, self.stop, self.ran = killed, None, []
        self.streams = []
        create = self.sdk.create_stream if stream else self.sdk.create
        self.create = checkpointed_llm(name="ask")(create)
        self.tools = {"search": self._tool("search"), "send": self._tool("send")}

    def _tool(self, name):
        def tool(q="", to=""):
            self.ran.append((name, q or to))
            self._here(name)
            return {"told": to} if to else f"found {q}"

        return checkpointed_tool(name=name)(tool)

    def _here(self, place):
        if self.stop == place:
            raise Stopped

    def ask(self, messages):
        response = self.create(**self.sdk.request(messages, stream=self.stream))
        if not self.stream:
            return response
        if self.killed:
            self.streams.append(response)
            return self.sdk.whole(self._chunks(response))
        with contextlib.closing(response):
            return self.sdk.whole(self._chunks(response))

    def _chunks(self, stream):
        for number, chunk in enumerate(stream):
            yield chunk
            if number == 1:
                self._here("chunk")

    def run(self, text):
        """One turn of the chat: the history, what the user says, and the loop."""
        with conversation("chat", root=self.root) as s:
            try:
                self._loop(s.messages() + self.sdk.said(text))
            except Stopped:
                if self.killed:
                    crash(s)
                    self._forget_streams()
                raise

    def _forget_streams(self):
        """Close them now: a killed process never does, and it must not be recorded."""
        while self.streams:
            with contextlib.suppress(OutcomeNotRecordedError):
                self.streams.pop().close()

    def _loop(self, messages):
        while True:
            response = self.ask(messages)
            self._here("response")
            messages = messages + self.sdk.heard(response)
            calls = self.sdk.calls(response)
            if not calls:
                return
            texts = []
            for n, (_, name, arguments) in enumerate(calls):
                value = self.tools[name](**arguments)
                texts.append(value if isinstance(value, str) else json.dumps(value))
                if n == 0:
                    self._here("between")
            messages = messages + self.sdk.results(calls, texts)

    def run_until(self, place, text):
        self.stop = place
        self.server.interrupt = Stopped() if place == "request" else None
        with pytest.raises(Stopped):
            self.run(text)
        self.stop = self.server.interrupt = None

    @property
    def sent(self):
        """The messages of all requests so far, as bytes."""
        return [request.messages for request in self.server.requests]


def texts_of(value):
    """Return every string in some JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


def told(messages):
    """Return what a request says of the tools: codes and values, in order."""
    found = []
    signs = (TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED, "found", '{"told"')
    for text in texts_of(json.loads(messages)):
        found += [sign.strip('{"') for sign in signs if text.startswith(sign)]
    return found


#: What a continued chat says of the two tools of the turn that was stopped.
SAID = {
    "request": [],
    "chunk": [],
    "response": [TOOL_NOT_STARTED, TOOL_NOT_STARTED],
    "search": [TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED],
    "between": ["found", TOOL_NOT_STARTED],
    "send": ["found", TOOL_OUTCOME_UNKNOWN],
}
WHOLE = ["found", "told"]
