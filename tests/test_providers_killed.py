"""Loops of tools around the SDKs, killed in a child and run again."""

from __future__ import annotations

import pytest

from tests.frameworks.killing import Agent

WAYS = {
    "openai": "openai",
    "openai stream": "openai",
    "anthropic": "anthropic",
    "anthropic stream": "anthropic",
    "google-genai": "google-genai",
    "google-genai stream": "google-genai",
}
by_way = pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.framework(row, "killed"))
        for way, row in WAYS.items()
    ],
)
#: Killed there, nothing is in doubt but a model request.
SAFE = ["model 0: begin", "model 1: end"]
DOUBTS = ["body pay: begin", "body mail: end"]


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("provider_agent.py", tmp_path, run_python)


@by_way
@pytest.mark.parametrize("point", SAFE)
def test_a_loop_that_was_killed_goes_on(agent, way, point):
    """No request that was answered is sent twice, and no tool runs twice."""
    second, _ = agent.killed_at(point, way)
    place, at = point.removeprefix("model ").split(": ")
    unanswered = [place] if at == "end" else []

    assert second.stdout == "all done\n"
    assert agent.effects() == ["mail", "pay"]
    assert agent.requests() == sorted(["0", "1", "2", *unanswered])


@by_way
@pytest.mark.parametrize("point", DOUBTS)
def test_a_tool_that_was_cut_off_is_not_run_again(agent, way, point):
    """The program is told; Google's SDK tells the model instead, which goes on."""
    second, _ = agent.killed_at(point, way)
    tool = point.split()[1].rstrip(":")
    happened = [each for each in agent.effects() if each == tool]
    sent = agent.requests()

    assert len(happened) == point.endswith("end")
    if way != "google-genai stream":
        # Which runs tools before the stream that asks for them has ended.
        assert len(sent) == len(set(sent))
    if way.startswith("google"):
        assert second.stdout == "all done\n"
    else:
        assert second.stdout == f"in doubt: {tool}\n"
