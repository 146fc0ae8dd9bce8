"""Chat models of LangChain, decorated themselves, are recorded as model calls."""

import asyncio
import contextlib
import uuid
from typing import Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from durable_agent import (
    DecorationError,
    FinishedSessionWarning,
    ReplayDivergedError,
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
    values,
)

#: The requests that were really sent, by the method that sent them.
SENT = []
TEXTS = ["one ", "two ", "three"]


@pytest.fixture(autouse=True)
def _nothing_was_sent():
    SENT.clear()


def chunk(text):
    return ChatGenerationChunk(message=AIMessageChunk(text))


def result(text):
    return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


class Plain(BaseChatModel):
    """Defines what it must."""

    model_name: str = "m-1"
    _client: object = PrivateAttr(default_factory=object)

    @property
    def _llm_type(self):
        return "plain"

    def bind_tools(self, tools, **more):
        return self.bind(tools=tools, **more)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        assert self._client is not None
        SENT.append("_generate")
        return result("".join(TEXTS))


class Streaming(Plain):
    """Streams, and answers at once by streaming, as several providers' models do."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        chunks = self._stream(messages, stop, run_manager, **kwargs)
        return result("".join(c.text for c in chunks))

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        SENT.append("_stream")
        for text in TEXTS:
            yield chunk(text)


class Async(Streaming):
    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(0)
        SENT.append("_agenerate")
        return result("".join(TEXTS))

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        SENT.append("_astream")
        for text in TEXTS:
            await asyncio.sleep(0)
            yield chunk(text)


CLASSES = [Plain, Streaming, Async]


def invoked(model):
    return [model.invoke("hi").content]


def ainvoked(model):
    return [asyncio.run(model.ainvoke("hi")).content]


def streamed(model):
    return [c.content for c in model.stream("hi") if c.content]


def astreamed(model):
    async def run():
        return [c.content async for c in model.astream("hi") if c.content]

    return asyncio.run(run())


WAYS = [invoked, ainvoked, streamed, astreamed]


@contextlib.contextmanager
def again(root):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root):
        yield


def recorded(root):
    with inspect_session("s", root=root) as looked:
        return [
            (e.type, e.data["function"].partition("[")[2], e.data["args"])
            for e in looked.events()
            if e.type in {"llm/request", "tool/call"}
        ]


@pytest.mark.framework("langchain", "model")
@pytest.mark.parametrize("cls", CLASSES)
def test_an_adapted_model_looks_like_the_model(cls):
    """LangChain asks which methods a class defines; users ask which class it is."""
    plain = cls()
    made = checkpointed_llm(plain)

    assert isinstance(made, cls)
    assert type(made).__name__ == cls.__name__
    assert type(made).__module__ == cls.__module__
    assert made._client is plain._client
    assert made.model_dump() == plain.model_dump()
    for method in ("_stream", "_astream", "_agenerate"):
        defined = getattr(cls, method) is not getattr(BaseChatModel, method)
        still = getattr(type(made), method) is not getattr(BaseChatModel, method)
        assert still == defined
    assert type(plain) is cls


@pytest.mark.framework("langchain", "model")
@pytest.mark.framework("langchain", "stream")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", CLASSES)
def test_a_request_is_recorded_once_and_replayed_without_sending(root, cls, way):
    made = checkpointed_llm(cls())

    with session("s", root=root):
        first = way(made)
    sent = list(SENT)
    with again(root):
        second = way(made)

    assert "".join(first) == "one two three"
    assert second == first
    assert SENT == sent
    assert len(sent) == 1
    assert [kind for kind, _, _ in recorded(root)] == ["llm/request"]


@pytest.mark.parametrize("ways", [(invoked, ainvoked), (streamed, astreamed)])
@pytest.mark.parametrize("order", [1, -1])
def test_sync_and_async_are_the_same_request(root, ways, order):
    made = checkpointed_llm(Async())
    before, after = ways[::order]

    with session("s", root=root):
        first = before(made)
    with again(root):
        second = after(made)

    assert second == first
    assert len(SENT) == 1


@pytest.mark.framework("langchain", "stream")
def test_a_stream_that_was_broken_off_is_not_complete(root):
    """On replay the caller gets what it got; more of it is asked for again."""
    made = checkpointed_llm(Streaming())

    with session("s", root=root):
        stream = made.stream("hi")
        first = next(stream)
        stream.close()
    with again(root):
        stream = made.stream("hi")
        assert next(stream).content == first.content == "one "
        stream.close()
        assert SENT == ["_stream"]
    with again(root):
        assert streamed(made) == TEXTS

    assert SENT == ["_stream", "_stream"]


@pytest.mark.parametrize("inside", [True, False])
def test_tools_bound_to_a_model_are_part_of_the_request(root, inside):
    tools = [{"type": "function", "function": {"name": "search"}}]
    if inside:
        made = checkpointed_llm(Streaming()).bind_tools(tools)
    else:
        made = checkpointed_llm(Streaming().bind_tools(tools))

    with session("s", root=root):
        first = [made.invoke("hi").content, *streamed(made)]
    with again(root):
        second = [made.invoke("hi").content, *streamed(made)]

    assert second == first
    assert SENT == ["_stream", "_stream"]
    assert all(args["kwargs"] == {"tools": tools} for _, _, args in recorded(root))


def test_a_retry_around_a_model_is_recorded_inside(root):
    made = checkpointed_llm(Plain().with_retry())

    with session("s", root=root):
        made.invoke("hi")

    assert len(recorded(root)) == 1


def test_models_of_one_class_are_told_apart_by_their_names(root):
    one, other = (checkpointed_llm(Plain(model_name=n)) for n in ("m-1", "m-2"))

    with session("s", root=root):
        one.invoke("hi")
    with pytest.warns(ReplayDivergedWarning):
        with again(root):
            other.invoke("hi")

    assert [name for _, name, _ in recorded(root)] == ["m-1]", "m-2]"]
    assert len(SENT) == 2


def messages(ask, text="x"):
    """A conversation as LangChain makes it: ids are drawn anew."""
    return [
        HumanMessage(ask, id=str(uuid.uuid4())),
        AIMessage(
            "",
            id=f"lc_run--{uuid.uuid4()}",
            tool_calls=[{"name": "search", "args": {}, "id": "tc-1"}],
        ),
        ToolMessage(text, tool_call_id="tc-1", id=str(uuid.uuid4())),
    ]


@pytest.mark.framework("langchain", "model")
@pytest.mark.parametrize("above", [True, False])
def test_ids_that_are_drawn_anew_tell_no_requests_apart(root, above):
    if above:
        ask = checkpointed_llm(Plain()).invoke
    else:
        plain = Plain()

        @checkpointed_llm
        def ask(messages: list[Any]) -> Any:
            return plain.invoke(messages)

    with session("s", root=root):
        ask(messages("hi"))
    with again(root):
        ask(messages("hi"))

    assert len(SENT) == 1


def test_the_id_of_a_tool_call_tells_messages_apart():
    one, other = (ToolMessage("x", tool_call_id=i) for i in ("a", "b"))

    assert values.canonical(values.encode(one)) != values.canonical(
        values.encode(other)
    )


def test_what_removes_a_message_is_told_by_its_id():
    one, other = (values.encode(RemoveMessage(id=i)) for i in ("a", "b"))

    assert values.canonical(one) != values.canonical(other)


def test_a_divergence_shows_what_differs_and_not_an_id(root):
    ran = []

    @checkpointed_tool
    def post(conversation: list[Any]) -> None:
        ran.append(conversation)

    with session("s", root=root):
        post(messages("hi"))
    with pytest.raises(
        ReplayDivergedError, match=r"content: recorded .x., now .y.\. Nothing"
    ):
        with pytest.warns((FinishedSessionWarning, ReplayDivergedWarning)):
            with session("s", root=root):
                post(messages("hi", "y"))

    assert len(ran) == 1


def test_ids_that_a_provider_gave_come_back_on_replay(root):
    class Named(Plain):
        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            message = AIMessage("x", id="resp-1")
            return ChatResult(generations=[ChatGeneration(message=message)])

    made = checkpointed_llm(Named())
    with session("s", root=root):
        first = made.invoke("hi")
    with again(root):
        second = made.invoke("hi")

    assert (first.id, second.id) == ("resp-1", "resp-1")


def test_a_model_is_no_tool():
    with pytest.raises(DecorationError, match="checkpointed_llm"):
        checkpointed_tool(Plain())


def test_an_adapted_model_says_why_it_cannot_be_pickled():
    import pickle

    with pytest.raises(TypeError, match="Plain cannot be pickled"):
        pickle.dumps(checkpointed_llm(Plain()))
