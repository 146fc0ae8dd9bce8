"""Models of Pydantic AI, decorated; agents killed and run again."""

import asyncio
import contextlib
from typing import Any

import openai
import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, ToolOutput
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel as FakeModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

from durable_agent import (
    DecorationError,
    FinishedSessionWarning,
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    session,
)
from durable_agent.transcript import calls_in
from tests.frameworks.killing import Agent as Killed
from tests.providers.conversations import Call
from tests.providers.conversations import Model as Turn
from tests.providers.servers import ModelServer

ROW = "pydantic-ai"
#: The requests that were really sent.
SENT: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_was_sent():
    SENT.clear()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root, kind="llm/request"):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type == kind]


def answer(messages, _):
    SENT.append("whole")
    return ModelResponse(parts=[TextPart("it is done")])


async def stream(messages, _):
    SENT.append("streamed")
    for text in ("it ", "is ", "done"):
        await asyncio.sleep(0)
        yield text


class Passing(WrapperModel):
    """Passes on what it is given."""

    async def request(self, *args, **kwargs):
        return await super().request(*args, **kwargs)


def function_model():
    return FunctionModel(answer, stream_function=stream, model_name="scripted-1")


MODELS = [function_model, lambda: Passing(function_model())]


def whole(agent):
    return asyncio.run(agent.run("hi")).output


def at_once(agent):
    """In a loop of ours: it would leave its own open."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        try:
            return agent.run_sync("hi").output
        finally:
            asyncio.set_event_loop(None)


def streamed(agent):
    async def run():
        async with agent.run_stream("hi") as result:
            texts = [t async for t in result.stream_text(delta=True, debounce_by=None)]
            return [*texts, result.response]

    return asyncio.run(run())


def events(agent):
    async def run():
        found = []
        async with agent.iter("hi") as going:
            async for node in going:
                if Agent.is_model_request_node(node):
                    async with node.stream(going.ctx) as taken:
                        found += [(event, taken.response) async for event in taken]
        return [*found, going.result.output]

    return asyncio.run(run())


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize("make", MODELS)
def test_an_adapted_model_looks_like_the_model(make):
    plain = make()
    made = checkpointed_llm(plain)

    assert isinstance(made, type(plain))
    assert isinstance(made, Model)
    assert type(made).__name__ == type(plain).__name__
    assert vars(made) == vars(plain)
    assert (made.model_name, made.profile) == (plain.model_name, plain.profile)
    assert type(plain) in {FunctionModel, Passing}


@pytest.mark.framework(ROW, "model")
@pytest.mark.framework(ROW, "stream")
@pytest.mark.parametrize("way", [whole, at_once, streamed, events])
@pytest.mark.parametrize("make", MODELS)
def test_a_request_is_recorded_once_and_replayed_without_sending(root, make, way):
    def agent():
        return Agent(checkpointed_llm(make()), instructions="Be brief.")

    with session("s", root=root):
        first = way(agent())
    with again(root):
        second = way(agent())

    def told(found):
        """Each run's own times and ids set apart."""
        if isinstance(found, list | tuple):
            return list(map(told, found))
        return found.parts if isinstance(found, ModelResponse) else found

    assert told(second) == told(first)
    assert len(SENT) == 1
    (request,) = recorded(root)
    assert "parent" not in request.head.meta
    given = {"messages", "model_settings", "model_request_parameters"}
    assert request.data["args"].keys() == given


def refusing(messages, _):
    SENT.append("refused")
    raise ModelHTTPError(503, "refusing")


def falling_back(inside):
    adapt = checkpointed_llm if inside else lambda model: model
    both = FunctionModel(refusing, model_name="refusing"), function_model()
    return FallbackModel(*map(adapt, both))


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize(
    ("make", "sent"),
    [
        (lambda: checkpointed_llm(InstrumentedModel(function_model())), ["whole"]),
        (lambda: InstrumentedModel(checkpointed_llm(function_model())), ["whole"]),
        (lambda: falling_back(inside=True), ["refused", "whole"]),
        (
            lambda: checkpointed_llm(falling_back(inside=False)),
            ["refused", "whole"],
        ),
    ],
    ids=["instrumented", "in an instrumented", "in a fallback", "a fallback"],
)
def test_models_around_models_are_recorded(root, make, sent):
    """Agents look through some of them."""
    with session("s", root=root):
        first = whole(Agent(make()))
    with again(root):
        assert whole(Agent(make())) == first == "it is done"

    assert SENT == sent


@pytest.mark.framework(ROW, "stream")
def test_a_replayed_stream_tells_what_the_live_one_told(root):
    messages = [ModelRequest(parts=[UserPromptPart("hi")])]

    async def run():
        model = checkpointed_llm(function_model())
        params = ModelRequestParameters()
        async with model.request_stream(messages, None, params) as taken:
            assert isinstance(taken, StreamedResponse)
            assert aiter(taken) is aiter(taken)
            found = [taken.get()]
            async for event in taken:
                found += [event, taken.get().parts]
            told = (taken.model_name, taken.provider_name, taken.timestamp, taken.usage)
            await taken.cancel()
            return [*found, told, taken.get()]

    with session("s", root=root):
        first = asyncio.run(run())
    with again(root):
        second = asyncio.run(run())

    assert second == first
    assert second[-1].state == "complete"
    assert SENT == ["streamed"]


@pytest.mark.framework(ROW, "stream")
def test_a_stream_that_was_broken_off_is_not_complete(root):
    """On replay the caller gets what it got; more of it is asked for again."""
    messages = [ModelRequest(parts=[UserPromptPart("hi")])]

    async def take(count):
        model = checkpointed_llm(function_model())
        params = ModelRequestParameters()
        found = []
        async with model.request_stream(messages, None, params) as taken:
            async for event in taken:
                found.append(event)
                if len(found) == count:
                    break
            assert (taken.get().state == "complete") == (count > 9)
        return found

    with session("s", root=root):
        first = asyncio.run(take(2))
    with again(root):
        assert asyncio.run(take(2)) == first
        assert SENT == ["streamed"]
    with again(root):
        whole = asyncio.run(take(99))

    assert whole[:2] == first
    assert SENT == ["streamed", "streamed"]


@pytest.mark.framework(ROW, "model")
def test_what_the_model_is_sent_of_tools_and_settings_is_recorded(root):
    class Report(BaseModel):
        text: str

    def look(place: str) -> str:
        """Look."""
        return place

    agent = Agent(
        checkpointed_llm(FakeModel(call_tools=[])),
        tools=[look],
        output_type=ToolOutput(Report, name="report"),
        model_settings=ModelSettings(
            temperature=0.5, timeout=3, extra_headers={"Authorization": "secret-1"}
        ),
    )
    with session("s", root=root):
        first = whole(agent)
    with again(root):
        assert whole(agent) == first

    args = recorded(root)[0].data["args"]
    told = args["model_request_parameters"]
    assert [tool["name"] for tool in told["function_tools"]] == ["look"]
    assert [tool["name"] for tool in told["output_tools"]] == ["report"]
    assert args["model_settings"] == {"temperature": 0.5}


@pytest.mark.framework(ROW, "model")
def test_another_prompt_is_another_request(root):
    def agent(said):
        return Agent(checkpointed_llm(function_model()), instructions=said)

    with session("s", root=root):
        whole(agent("Be brief."))
    with pytest.warns(ReplayDivergedWarning), again(root, replay_wait=0):
        whole(agent("Be long."))

    assert SENT == ["whole", "whole"]


@pytest.mark.framework(ROW, "model")
def test_a_function_that_asks_a_model_may_be_decorated_instead(root):
    """When and in which run its messages were made is no part of a request."""

    @checkpointed_llm
    async def ask(messages: list[Any]) -> Any:
        return await model_request(function_model(), messages)

    def run():
        return asyncio.run(ask([ModelRequest(parts=[UserPromptPart("hi")])]))

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert second == first
    assert SENT == ["whole"]


def test_an_option_names_an_argument_of_the_interface():
    """Whatever the model's own methods call it."""
    model = Passing(function_model())

    assert checkpointed_llm(model, ignore="model_settings") is not model
    with pytest.raises(DecorationError, match="settings"):
        checkpointed_llm(model, ignore="settings")


def test_a_model_is_no_tool():
    with pytest.raises(DecorationError, match="checkpointed_llm"):
        checkpointed_tool(function_model())


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize(
    "name", ["CompletedStreamedResponse", "ModelRequestParameters"]
)
def test_a_version_without_what_is_needed_is_refused_by_name(monkeypatch, name):
    import pydantic_ai.models

    model = function_model()
    monkeypatch.delattr(pydantic_ai.models, name)

    with pytest.raises(DecorationError, match=rf"pydantic-ai-slim \d.*{name}|{name}"):
        checkpointed_llm(model)


# --- over a real client ---------------------------------------------------------------

ANSWERS = [
    Turn(calls=(Call("search", '{"query": "a"}', "tc-1"),)),
    Turn("it is done"),
]


def client_model(cls, server):
    client = openai.AsyncOpenAI(api_key="none", http_client=server.async_client())
    return checkpointed_llm(
        cls("gpt-test", provider=OpenAIProvider(openai_client=client))
    )


def searching(model, ran):
    @checkpointed_tool
    def search(query: str) -> str:
        """Search."""
        ran.append(query)
        return f"found {query}"

    return Agent(model, tools=[search])


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize("way", [whole, streamed])
@pytest.mark.parametrize("cls", [OpenAIChatModel, OpenAIResponsesModel])
def test_models_over_a_client(root, cls, way):
    ran: list[str] = []
    server = ModelServer(list(ANSWERS))

    def run():
        found = way(searching(client_model(cls, server), ran))
        return found if isinstance(found, str) else found[:-1]

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert "".join(second) == "".join(first) == "it is done"
    assert second == first
    assert server.refused == []
    assert len(server.requests) == 2
    assert ran == ["a"]


@pytest.mark.framework(ROW, "model")
def test_a_conversation_goes_on_from_its_messages(root):
    """They are what Pydantic AI takes as history; what is open is closed in it."""
    server = ModelServer([*ANSWERS, Turn("again")])
    ran: list[str] = []

    with pytest.raises(KeyError):
        with conversation("s", root=root):

            def cut(query: str) -> str:
                """Search."""
                raise KeyError(query)

            cut.__name__ = "search"
            model = client_model(OpenAIChatModel, server)
            whole(Agent(model, tools=[checkpointed_tool(cut)]))
    with conversation("s", root=root) as opened:
        history = opened.messages()
        agent = searching(client_model(OpenAIChatModel, server), ran)
        output = asyncio.run(agent.run("more", message_history=history)).output

    assert output == "it is done"
    assert server.refused == []
    kinds = [[p.part_kind for p in message.parts] for message in history]
    assert kinds == [["user-prompt"], ["tool-call"], ["tool-return"]]
    assert history[2].parts[0].tool_call_id == "tc-1"


# --- killed and run again -------------------------------------------------------------

WAYS = ["run", "run_sync", "run_stream", "iter"]
SHOWN = ["paid 5", "nothing at a", "sent paid", "all done"]

#: Where it is killed, and what may then have been sent twice: a request that was in
#: flight, nothing else.
KILLS = {
    "model 0: begin": [],
    "model 0: end": ["0"],
    "model 1: end": ["1"],
    "model 2: begin": [],
    "model 2: end": ["2"],
}
#: Killed there, a side effect may have happened.
DOUBTS = [f"body {n}: {e}" for n in ("pay", "mail") for e in ("begin", "end")]


@pytest.fixture
def killed(tmp_path, run_python):
    return Killed("pydantic_ai_agent.py", tmp_path, run_python)


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize(
    ("way", "point"),
    [
        *(("run", point) for point in KILLS),
        *((way, "model 1: end") for way in WAYS[1:]),
        ("run_stream", "model 2: end"),
    ],
)
def test_a_killed_agent_goes_on_where_it_was(killed, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = killed.killed_at(point, way)

    # Words come one after the other, without the blank between them.
    lines = second.stdout.replace("alldone", "all done").splitlines()
    assert lines[-4:] == SHOWN
    assert killed.effects() == ["mail", "pay"]
    assert killed.requests() == sorted(["0", "1", "2", *KILLS[point]])


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize(
    ("way", "point"),
    [*(("run", point) for point in DOUBTS), ("run_stream", "body mail: end")],
)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    killed, way, point
):
    killed.killed_at(point, way)

    name = point.split()[1].rstrip(":")
    assert killed.effects().count(name) == point.endswith("end")
    requests = killed.requests()
    assert len(requests) == len(set(requests))
    doubts = [word for (word,) in killed.world.lines("doubts")]
    assert doubts == [name] * 2


def test_tool_calls_of_a_response_are_seen():
    said = ModelResponse(parts=[ToolCallPart("f", '{"a": 1}', "tc-1")])
    (call,) = calls_in(said)

    assert (call.id, call.name, call.arguments) == ("tc-1", "f", {"a": 1})
