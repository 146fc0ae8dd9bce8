"""Conversations of every provider, cut at every event: what is shown is accepted.

The judges in ``tests/providers`` know the providers' rules and nothing of the product.
"""

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable_agent import (
    TOOL_NOT_STARTED,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    tool_call_id,
)
from durable_agent.testing import MemoryStore
from tests.providers import (
    render_anthropic,
    render_gemini,
    render_langchain,
    render_openai_chat,
    render_openai_responses,
    rules_anthropic,
    rules_gemini,
    rules_langchain,
    rules_openai_chat,
    rules_openai_responses,
)
from tests.providers.conversations import (
    Model,
    User,
    ids_held,
    scripts,
    shown,
)

PROVIDERS = {
    "openai_chat": (render_openai_chat, rules_openai_chat.check),
    "openai_responses": (render_openai_responses, rules_openai_responses.check),
    "anthropic": (render_anthropic, rules_anthropic.check),
    "gemini": (render_gemini, rules_gemini.check),
    "langchain": (render_langchain, rules_langchain.check),
}
ARGUMENTS = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
    "langchain": "messages",
}


class Chat:
    """A loop of tools that plays a script, and notes which calls had effects."""

    def __init__(self, provider, script, store, *, explicit=False, streamed=False):
        self.render, self.check = PROVIDERS[provider]
        self.provider, self.script, self.store = provider, script, store
        self.explicit, self.streamed = explicit, streamed
        #: The seq of the log when each body began.
        self.began = []

    def ask(self, turn, n, messages):
        argument = ARGUMENTS[self.provider]
        if self.streamed:

            @checkpointed_llm(name="ask")
            def stream(**request):
                yield from self.render.stream(turn, n)

            list(stream(**{argument: messages}))
        else:

            @checkpointed_llm(name="ask")
            def ask(**request):
                return self.render.response(turn, n)

            ask(**{argument: messages})

    def run(self):
        messages = []
        with conversation("s", store=self.store) as s:
            for n, turn in enumerate(self.script):
                if isinstance(turn, User):
                    messages = [*messages, *self.render.said(turn)]
                    continue
                self.ask(turn, n, messages)
                for call in turn.calls:
                    self.use(s, call)
                messages = [
                    *messages,
                    *self.render.heard(self.render.response(turn, n)),
                ]
                if turn.calls:
                    texts = [shown(call) for call in turn.calls]
                    messages += self.render.results(turn.calls, texts)

    def use(self, s, call):
        def body(**arguments):
            self.began.append(s.seq)
            if call.fate.kind == "error":
                raise ValueError(*([call.fate.value] if call.fate.value else []))
            return call.fate.value

        if call.fate.kind == "undecorated":
            return
        tool = checkpointed_tool(body, name=call.name)
        known = self.explicit and call.id is not None
        said = tool_call_id(call.id) if known else contextlib.nullcontext()
        with contextlib.suppress(ValueError), said:
            tool(**call.parsed)


def prefixes(store):
    """Yield stores that hold each prefix of the log, as a crash leaves one."""
    lines = store._logs["s"]
    for length in range(1, len(lines) + 1):
        part = MemoryStore()
        part._logs["s"] = list(lines[:length])
        yield length, part


def cut_everywhere(provider, script, *, explicit=False, streamed=False):
    """Run a script, and judge what is shown of every prefix of its log."""
    store = MemoryStore()
    chat = Chat(provider, script, store, explicit=explicit, streamed=streamed)
    chat.run()
    held = ids_held(provider, script)
    for length, part in prefixes(store):
        with inspect_session("s", store=part) as looked:
            messages = looked.messages()
            heard = sum(e.type == "llm/response" for e in looked.events())
        assert chat.check(messages, ids=held) == [], f"after {length} events"
        text = json.dumps(messages, default=_plain)
        assert f"{TOOL_NOT_STARTED}: 'raw_" not in text
        turns = [t for t in script if isinstance(t, Model)][:heard]
        asked = sum(not c.name.startswith("raw_") for t in turns for c in t.calls)
        begun = sum(seq < length for seq in chat.began)
        assert text.count(TOOL_NOT_STARTED) <= asked - begun, f"after {length} events"


def _plain(value):
    return value.model_dump() if hasattr(value, "model_dump") else repr(value)


def apart(script):
    """Return a script whose unrecorded tools have names that no recorded one has."""
    return tuple(
        replace(
            turn,
            calls=tuple(
                replace(c, name=f"raw_{c.name}") if c.fate.kind == "undecorated" else c
                for c in turn.calls
            ),
        )
        if isinstance(turn, Model)
        else turn
        for turn in script
    )


_quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.filterwarnings("ignore::durable_agent.EqualCallsWarning")
@pytest.mark.parametrize("provider", PROVIDERS)
@_quick
@given(data=st.data(), explicit=st.booleans(), streamed=st.booleans())
def test_a_conversation_cut_at_any_event_is_accepted(
    provider, data, explicit, streamed
):
    if provider == "langchain":
        streamed = False
    script = apart(data.draw(scripts(provider)))
    cut_everywhere(provider, script, explicit=explicit, streamed=streamed)
