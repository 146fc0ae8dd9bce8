"""Tools and language models of DSPy, and its modules."""

# ruff: noqa: E402 - skipped where it is not installed

import asyncio
import contextlib
import copy

import pytest

dspy = pytest.importorskip("dspy")

from dspy.utils.dummies import DummyLM
from pydantic import BaseModel

from durable_agent import (
    CheckpointError,
    DecorationError,
    FinishedSessionWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.frameworks.killing import Agent
from tests.frameworks.rows import ROWS

pytestmark = [
    pytest.mark.more_frameworks,
    pytest.mark.filterwarnings("ignore::durable_agent.errors.NoSessionWarning"),
    # Of interfaces that its own modules still use.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

marked = pytest.mark.framework

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@contextlib.contextmanager
def again(root, **options):
    """The session a second time: it only replays."""
    with pytest.warns(FinishedSessionWarning), session("s", root=root, **options):
        yield


def recorded(root):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if e.type in {"llm/request", "tool/call"}]


class Where(BaseModel):
    city: str


def search(query: str, where: Where | None = None, limit: int = 3) -> str:
    """Search the archive."""
    RAN.append(query)
    return f"{limit} x {query}"


async def asearch(query: str, where: Where | None = None, limit: int = 3) -> str:
    """Search the archive."""
    await asyncio.sleep(0)
    return search(query, where, limit)


def above(fn):
    return checkpointed_tool(dspy.Tool(fn))


def below(fn):
    return dspy.Tool(checkpointed_tool(fn))


FORMS = [
    pytest.param(above, marks=marked("dspy", "over")),
    pytest.param(below, marks=marked("dspy", "under")),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fn", [search, asearch])
def test_a_tool_is_recorded_once_and_replayed_without_running(root, form, fn):
    plain, made = dspy.Tool(fn), form(fn)

    def run():
        given = {"query": "a", "where": {"city": "Lyon"}}
        outputs = [asyncio.run(made.acall(**given))]
        if fn is search:
            outputs.append(made(query="b"))
        return outputs

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert type(made) is dspy.Tool
    assert (made.name, made.desc, made.args) == (plain.name, plain.desc, plain.args)
    assert asyncio.iscoroutinefunction(made.func) == (fn is asearch)
    assert second == first
    assert RAN == ["a", "b"][: len(first)]
    events = recorded(root)
    assert len(events) == len(first)
    assert all("parent" not in e.meta for e in events)


@marked("dspy", "over")
def test_the_original_stays_as_it_was(root):
    scope = {
        "functions": [search],
        "checkpointed_tool": checkpointed_tool,
        "dspy": dspy,
    }
    exec(ROWS["dspy"].line, scope)  # noqa: S102 - the point
    (made,) = scope["tools"]
    plain = dspy.Tool(search)
    other = checkpointed_tool(plain)

    with session("s", root=root):
        plain(query="a")
        made(query="b")
        other(query="c")

    assert len(recorded(root)) == 2
    assert checkpointed_tool(made) is made


def test_tools_made_alike_are_told_apart(root):
    with session("s", root=root):
        for name in ("one", "other"):
            checkpointed_tool(dspy.Tool(search, name=name))(query="a")

    assert [e.data["function"] for e in recorded(root)] == ["one", "other"]
    assert len({e.meta["name"] for e in recorded(root)}) == 2


# --- models ---------------------------------------------------------------------------


class Scripted(DummyLM):
    def _format_answer_fields(self, values):
        RAN.append("request")
        return super()._format_answer_fields(values)


def model(answers=None):
    return Scripted(answers or {"": {"answer": "blue"}})


ASK = {"messages": [{"role": "user", "content": "What colour?"}]}


@marked("dspy", "model")
@pytest.mark.parametrize(
    "way", ["__call__", "acall", "forward", "aforward", "prompt", "structured"]
)
def test_a_request_is_recorded_once_and_replayed_without_sending(root, way):
    plain = model()
    made = checkpointed_llm(plain)

    def run():
        if way == "prompt":
            return made("What colour?")
        if way == "structured":
            return made(**ASK, response_format=Where)
        result = getattr(made, way)(**ASK)
        return asyncio.run(result) if asyncio.iscoroutine(result) else result

    with session("s", root=root):
        first = run()
    with again(root):
        second = run()

    assert isinstance(made, Scripted)
    assert type(made).__name__ == "Scripted"
    assert made.dump_state() == plain.dump_state()
    assert checkpointed_llm(made) is made
    assert "blue" in str(second)
    assert str(second) == str(first)
    assert RAN == ["request"]
    (event,) = recorded(root)
    assert event.type == "llm/request"
    assert "parent" not in event.meta


@marked("dspy", "model")
def test_copies_of_a_model_record_too(root):
    """Modules copy their models, and optimizers whole modules."""
    made = checkpointed_llm(model())
    with session("s", root=root):
        for lm in (made.copy(temperature=0.5), copy.deepcopy(made), copy.copy(made)):
            lm(**ASK)

    assert [e.type for e in recorded(root)] == ["llm/request"] * 3


@marked("dspy", "model")
def test_a_model_that_holds_locks_is_copied_as_it_is_undecorated():
    plain = dspy.LM("openai/none", api_key="none")
    made = checkpointed_llm(plain)

    copied = copy.deepcopy(made)

    assert type(copied) is type(made)
    assert copied.dump_state() == copy.deepcopy(plain).dump_state()


# --- modules --------------------------------------------------------------------------


def fail(text: str) -> str:
    """Fail."""
    RAN.append("fail")
    raise ValueError(f"no {text}")


def wants(name, **arguments):
    fields = {"next_thought": "So.", "next_tool_name": name}
    return {**fields, "next_tool_args": arguments}


FAILING = {
    "field `[[ ## reasoning": {"reasoning": "So.", "answer": "x"},
    "observation_0": wants("finish"),
    "": wants("fail", text="a"),
}


def react(tool, lm):
    with dspy.context(lm=lm):
        return dspy.ReAct("question -> answer", tools=[tool])(question="hi")


@marked("dspy", "errors")
def test_errors_are_shown_alike_on_replay(root):
    """A traceback is part of the next request: that is the same request again."""
    with session("s", root=root):
        first = react(above(fail), checkpointed_llm(model(FAILING)))
    with again(root):
        second = react(above(fail), checkpointed_llm(model(FAILING)))

    shown = first.trajectory["observation_0"]
    assert shown.startswith("Execution error in fail")
    assert shown.endswith("ValueError: no a")
    assert second.trajectory == first.trajectory
    assert RAN.count("fail") == 1
    assert RAN.count("request") == 3


@marked("dspy", "errors")
@pytest.mark.parametrize("form", [above, below])
def test_a_failed_checkpoint_that_a_module_swallowed_is_raised_again(
    root, monkeypatch, form
):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError):
        with session("s", root=root) as opened:
            monkeypatch.setattr(type(opened._core), "append", refuse)
            react(form(fail), model(FAILING))
            monkeypatch.undo()

    assert "fail" not in RAN


def in_parallel(lm, tool):
    predict = dspy.Predict("question -> answer")

    class Both(dspy.Module):
        def forward(self, question):
            tool(query=question)
            return predict(question=question)

    both = Both()
    pairs = [(both, dspy.Example(question=q).with_inputs("question")) for q in "abc"]
    with dspy.context(lm=lm):
        parallel = dspy.Parallel(num_threads=3, disable_progress_bar=True)
        return [out and out.answer for out in parallel(pairs)]


@marked("dspy", "over")
def test_threads_of_parallel_record_under_the_one_open_session(root):
    """They have no context of the session."""
    with session("s", root=root):
        first = in_parallel(checkpointed_llm(model()), above(search))
    with again(root):
        second = in_parallel(checkpointed_llm(model()), above(search))

    assert second == first == ["blue"] * 3
    assert RAN.count("request") == 3
    assert {*RAN} == {"request", "a", "b", "c"}
    assert all(e.meta["detached"] for e in recorded(root))


def test_with_two_sessions_threads_without_a_context_are_refused(root):
    with session("other", root=root), session("s", root=root):
        assert in_parallel(checkpointed_llm(model()), above(search)) == [None] * 3

    assert RAN == []


def test_bound_functions_have_the_session(root):
    """A way out of what is refused."""
    lm, tool = checkpointed_llm(model()), above(search)
    with session("other", root=root), session("s", root=root) as opened:
        predict = dspy.Predict("question -> answer")

        class Both(dspy.Module):
            def forward(self, question):
                opened.bind(tool)(query=question)
                return dspy.Prediction(answer=opened.bind(lm)(question)[0])

        both = Both()
        example = dspy.Example(question="a").with_inputs("question")
        parallel = dspy.Parallel(num_threads=2, disable_progress_bar=True)
        parallel([(both, example)])

    assert predict is not None
    assert [e.type for e in recorded(root)] == ["tool/call", "llm/request"]


# --- refusals -------------------------------------------------------------------------


def test_a_version_without_what_is_needed_is_refused(monkeypatch):
    tool, lm = dspy.Tool(search), model()
    monkeypatch.delitem(dspy.Tool.model_fields, "func")
    monkeypatch.delattr(dspy.BaseLM, "acall")

    with pytest.raises(TypeError, match=r"dspy 3.* has no func"):
        checkpointed_tool(tool)
    with pytest.raises(TypeError, match=r"dspy 3.* has no acall"):
        checkpointed_llm(lm)


def test_what_calls_otherwise_is_refused():
    class Own(dspy.Tool):
        def __call__(self, **kwargs):
            return "anything"

    with pytest.raises(TypeError, match="__call__ of its own"):
        checkpointed_tool(Own(search))


def test_a_module_is_refused_with_what_to_do():
    with pytest.raises(DecorationError, match="Decorate the tools"):
        checkpointed_llm(dspy.Predict("question -> answer"))


# --- killed ---------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("dspy_agent.py", tmp_path, run_python)


@marked("dspy", "killed")
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("point", ["model 1: begin", "model 1: end"])
def test_a_killed_agent_goes_on_where_it_was(agent, way, point):
    """No request that was answered is sent again, no tool runs twice."""
    second, _ = agent.killed_at(point, way)

    assert second.stdout == "['paid 5', 'sent paid', 'Completed.']\ndone\n"
    assert agent.effects() == ["mail", "pay"]
    assert agent.requests() == sorted(
        ["0", "1", "2", "3", *["1"] * point.endswith("end")]
    )


@marked("dspy", "killed")
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("point", ["body pay: begin", "body mail: end"])
def test_a_side_effect_that_was_cut_off_is_in_doubt_and_not_made_again(
    agent, way, point
):
    name = point.split()[1].rstrip(":")
    second, _ = agent.killed_at(point, way)

    assert "TOOL_OUTCOME_UNKNOWN" in second.stdout
    assert agent.effects().count(name) == point.endswith("end")
    assert len(agent.requests()) == len(set(agent.requests())) == 4
