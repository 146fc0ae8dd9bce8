"""Models of the OpenAI Agents SDK, decorated; agents killed and run again."""

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("agents.tool_context")

import agents
import httpx2
import openai
from agents import (
    Agent,
    Model,
    ModelProvider,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from pydantic import BaseModel

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
from tests.agents.openai_agents_model import Scripted, says
from tests.frameworks.killing import Agent as Killed
from tests.providers.conversations import Call
from tests.providers.conversations import Model as Turn
from tests.providers.servers import ModelServer

ROW = "openai-agents"
#: The turns that were really asked for.
SENT: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_was_sent():
    SENT.clear()
    agents.set_tracing_disabled(True)


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root, kind="llm/request"):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type == kind]


class Passing(Model):
    """Passes on what it is given, as wrappers around models do."""

    def __init__(self, inner):
        self.inner = inner
        self.model = "passing-1"

    async def get_response(self, *args, **kwargs):
        return await self.inner.get_response(*args, **kwargs)

    def stream_response(self, *args, **kwargs):
        return self.inner.stream_response(*args, **kwargs)


def scripted(*turns):
    return Scripted([*turns, says("it is done")], SENT.append)


MODELS = [scripted, lambda *turns: Passing(scripted(*turns))]


def whole(agent, **more):
    return asyncio.run(Runner.run(agent, "hi", **more)).final_output


def streamed(agent, **more):
    async def run():
        result = Runner.run_streamed(agent, "hi", **more)
        found = [e.data async for e in result.stream_events() if hasattr(e, "data")]
        assert result.final_output == "it is done"
        return found

    return asyncio.run(run())


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize("make", MODELS)
def test_an_adapted_model_looks_like_the_model(make):
    plain = make()
    made = checkpointed_llm(plain)

    assert isinstance(made, type(plain))
    assert type(made).__name__ == type(plain).__name__
    assert vars(made) == vars(plain)
    assert type(plain).__mro__[1] is Model
    assert asyncio.iscoroutinefunction(made.get_response)


@pytest.mark.framework(ROW, "model")
@pytest.mark.framework(ROW, "stream")
@pytest.mark.parametrize("way", [whole, streamed])
@pytest.mark.parametrize("make", MODELS)
def test_a_request_is_recorded_once_and_replayed_without_sending(root, make, way):
    def agent():
        return Agent(name="a", model=checkpointed_llm(make()), instructions="Be brief.")

    with session("s", root=root):
        first = way(agent())
    with again(root):
        second = way(agent())

    assert second == first
    assert SENT == [0]
    (request,) = recorded(root)
    assert request.data["args"]["system_instructions"] == "Be brief."
    assert "parent" not in request.head.meta
    assert {"tracing", "args", "kwargs"}.isdisjoint(request.data["args"])


@pytest.mark.framework(ROW, "model")
def test_what_the_model_is_sent_of_tools_and_settings_is_recorded(root):
    class Report(BaseModel):
        text: str

    @function_tool
    def look(place: str) -> str:
        """Look."""
        return place

    agent = Agent(
        name="a",
        tools=[look],
        handoffs=[Agent(name="other")],
        output_type=Report,
        model=checkpointed_llm(Scripted([says('{"text": "x"}')])),
        model_settings=ModelSettings(
            temperature=0.5,
            extra_headers={"Authorization": "secret-1"},
            extra_args={"prompt_cache_key": "drawn-anew", "service_tier": "flex"},
        ),
    )
    with session("s", root=root):
        assert whole(agent) == Report(text="x")

    args = recorded(root)[0].data["args"]
    assert [tool["name"] for tool in args["tools"]] == ["look"]
    assert args["handoffs"][0]["tool_name"] == "transfer_to_other"
    assert args["output_schema"]["title"] == "Report"
    assert args["model_settings"] == {
        "temperature": 0.5,
        "extra_args": {"service_tier": "flex"},
    }


@pytest.mark.framework(ROW, "model")
def test_another_prompt_is_another_request(root):
    def agent(said):
        return Agent(name="a", model=checkpointed_llm(scripted()), instructions=said)

    with session("s", root=root):
        whole(agent("Be brief."))
    with pytest.warns(ReplayDivergedWarning), again(root):
        whole(agent("Be long."))

    assert SENT == [0, 0]


@pytest.mark.framework(ROW, "stream")
def test_a_stream_that_was_broken_off_is_not_complete(root):
    """On replay the caller gets what it got; more of it is asked for again."""

    async def take(count):
        model = checkpointed_llm(scripted())
        stream = model.stream_response(
            None,
            "hi",
            ModelSettings(),
            [],
            None,
            [],
            agents.ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        found = []
        async with contextlib.aclosing(stream):
            async for event in stream:
                found.append(event)
                if len(found) == count:
                    break
        return found

    with session("s", root=root):
        first = asyncio.run(take(1))
    with again(root):
        assert asyncio.run(take(1)) == first
        assert SENT == [0]
    with again(root):
        both = asyncio.run(take(99))

    assert both[:1] == first
    assert both[-1].type == "response.completed"
    assert SENT == [0, 0]


class Busy(Scripted):
    """Refuses the first time."""

    async def get_response(self, *args, **kwargs):
        SENT.append("busy")
        if len(SENT) == 1:
            raise openai.APIConnectionError(request=httpx2.Request("POST", "http://x"))
        return await super().get_response(*args, **kwargs)


@pytest.mark.framework(ROW, "model")
def test_a_request_that_the_runner_makes_again_is_another_attempt(root):
    def agent():
        policy = agents.retry_policies.network_error()
        backoff = {"initial_delay": 0}
        retry = agents.ModelRetrySettings(max_retries=2, policy=policy, backoff=backoff)
        settings = ModelSettings(retry=retry)
        model = checkpointed_llm(Busy([says("it is done")]))
        return Agent(name="a", model=model, model_settings=settings)

    with session("s", root=root):
        first = whole(agent())
    with again(root):
        assert whole(agent()) == first == "it is done"

    assert SENT == ["busy", "busy"]
    one, other = recorded(root)
    assert one.head.call == other.head.call


class Provider(ModelProvider):
    def __init__(self):
        self.models = {}

    def get_model(self, model_name):
        return self.models.setdefault(model_name, scripted())


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize("way", [whole, streamed])
def test_the_models_of_a_provider_are_recorded(root, way):
    """Agents name their models; what a name stands for is the provider's."""

    def run():
        provider = checkpointed_llm(Provider())
        assert isinstance(provider, Provider)
        assert provider.get_model("m") is provider.get_model("m")
        config = RunConfig(model_provider=provider)
        return way(Agent(name="a", model="m"), run_config=config)

    with session("s", root=root):
        first = run()
    with again(root):
        assert run() == first

    assert SENT == [0]


def test_an_option_names_an_argument_of_the_interface():
    """Whatever the model's own methods call it."""
    model = Passing(scripted())

    assert checkpointed_llm(model, ignore="model_settings") is not model
    with pytest.raises(DecorationError, match="settings"):
        checkpointed_llm(model, ignore="settings")


def test_a_model_is_no_tool():
    with pytest.raises(DecorationError, match="checkpointed_llm"):
        checkpointed_tool(scripted())


def test_a_model_that_cannot_be_recorded_is_refused():
    class Slotted(Model):
        __slots__ = ()
        get_response = Passing.get_response
        stream_response = Passing.stream_response

        def __copy__(self):
            return 5

    with pytest.raises(DecorationError, match="Slotted"):
        checkpointed_llm(Slotted())


@pytest.mark.framework(ROW, "model")
def test_a_model_interface_without_what_is_needed_is_refused(monkeypatch):
    model = scripted()
    monkeypatch.delattr(Scripted, "stream_response")
    monkeypatch.delattr(Model, "stream_response")

    with pytest.raises(DecorationError, match=r"openai-agents \d"):
        checkpointed_llm(model)


# --- over a real client ---------------------------------------------------------------

ANSWERS = [
    Turn(calls=(Call("search", '{"query": "a"}', "tc-1"),)),
    Turn("it is done"),
]


@pytest.mark.framework(ROW, "model")
@pytest.mark.parametrize("way", [whole, streamed])
@pytest.mark.parametrize("cls", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_the_models_of_the_sdk_over_a_client(root, cls, way):
    ran = []
    server = ModelServer(list(ANSWERS))

    @checkpointed_tool
    @function_tool
    def search(query: str) -> str:
        """Search."""
        ran.append(query)
        return f"found {query}"

    def run():
        client = openai.AsyncOpenAI(api_key="none", http_client=server.async_client())
        model = checkpointed_llm(cls("gpt-test", client))
        assert isinstance(model, cls)
        return way(Agent(name="a", model=model, tools=[search]))

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert second == first
    assert server.refused == []
    assert len(server.requests) == 2
    assert ran == ["a"]
    (call,) = recorded(root, "tool/call")
    assert call.head.meta["resp"] == recorded(root)[0].head.call


@pytest.mark.framework(ROW, "model")
def test_a_conversation_goes_on_from_its_messages(root):
    """What was recorded is what the SDK takes as input."""
    server = ModelServer([*ANSWERS, Turn("again")])

    @checkpointed_tool
    @function_tool
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    def agent():
        client = openai.AsyncOpenAI(api_key="none", http_client=server.async_client())
        model = checkpointed_llm(OpenAIResponsesModel("gpt-test", client))
        return Agent(name="a", model=model, tools=[search])

    with conversation("s", root=root):
        whole(agent())
    with conversation("s", root=root) as opened:
        given = [*opened.messages(), {"role": "user", "content": "more"}]
        result = asyncio.run(Runner.run(agent(), given))

    assert result.final_output == "again"
    assert server.refused == []
    kinds = [each.get("type", each.get("role")) for each in given]
    assert kinds == [
        *("user", "function_call", "function_call_output", "message", "user"),
    ]


# --- killed and run again -------------------------------------------------------------

WAYS = ["run", "run_sync", "run_streamed"]
SHOWN = ["paid 5", "nothing at a", "sent paid", "it is"]

#: Where it is killed, and what may then have been sent twice: a request that was in
#: flight, nothing else.
KILLS = {
    "model 0: begin": [],
    "model 0: end": ["0"],
    "model 1: end": ["1"],
    "model 2: end": ["2"],
    "model ann 0: end": ["ann 0"],
    "model ann 1: end": ["ann 1"],
    "model 3: begin": [],
    "model 3: end": ["3"],
}
#: Killed there, a side effect may have happened.
DOUBTS = [f"body {n}: {e}" for n in ("pay", "mail", "note") for e in ("begin", "end")]


@pytest.fixture
def killed(tmp_path, run_python):
    return Killed("openai_agents_agent.py", tmp_path, run_python)


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize(
    ("way", "point"),
    [
        *(("run", point) for point in KILLS),
        *((way, "model 2: end") for way in WAYS[1:]),
    ],
)
def test_a_killed_agent_goes_on_where_it_was(killed, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = killed.killed_at(point, way)

    lines = second.stdout.splitlines()
    assert [line for line in lines if line in SHOWN] == SHOWN
    assert "all done" in lines[-1]
    assert killed.effects() == ["mail", "note", "pay"]
    expected = ["0", "1", "2", "3", "ann 0", "ann 1", *KILLS[point]]
    assert killed.requests() == sorted(expected)


@pytest.mark.framework(ROW, "killed")
@pytest.mark.parametrize(
    ("way", "point"),
    [*(("run", point) for point in DOUBTS), ("run_streamed", "body mail: end")],
)
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    killed, way, point
):
    second, _ = killed.killed_at(point, way)

    name = point.split()[1].rstrip(":")
    assert killed.effects().count(name) == point.endswith("end")
    assert len(killed.effects()) == 2 + point.endswith("end")
    requests = killed.requests()
    assert len(requests) == len(set(requests))
    assert ("may or may not" in second.stdout) == (name != "note")
    assert "all done" in second.stdout
