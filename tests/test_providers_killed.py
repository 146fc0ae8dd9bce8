"""Loops of tools around the SDKs, killed in a child and run again."""

from __future__ import annotations

import pytest

from tests.frameworks.killing import Agent

WAYS = {
    "openai": "openai",
    "openai stream": "openai",
    "anthropic": "anthropic",
    "anthropic stream": "anthropic",
    "anthropic-runner": "anthropic",
    "google-genai": "google-genai",
    "google-genai stream": "google-genai",
}
#: Killed there, nothing is in doubt but a model request.
SAFE = ["model 0: begin", "model 1: end"]
DOUBTS = ["body pay: begin", "body mail: end"]


def each(points):
    """Each way to ask at each point; streams, which are like it, at the last."""
    return pytest.mark.parametrize(
        ("way", "point"),
        [
            pytest.param(way, point, marks=pytest.mark.framework(row, "killed"))
            for way, row in WAYS.items()
            for point in (points[-1:] if way.endswith("stream") else points)
        ],
    )


@pytest.fixture
def agent(tmp_path, run_python):
    return Agent("provider_agent.py", tmp_path, run_python)


@each(SAFE)
def test_a_loop_that_was_killed_goes_on(agent, way, point):
    """No request that was answered is sent twice, and no tool runs twice."""
    second, _ = agent.killed_at(point, way)
    place, at = point.removeprefix("model ").split(": ")
    unanswered = [place] if at == "end" else []

    assert second.stdout == "all done\n"
    assert agent.effects() == ["mail", "pay"]
    assert agent.requests() == sorted(["0", "1", "2", *unanswered])


@each(DOUBTS)
def test_a_tool_that_was_cut_off_is_not_run_again(agent, way, point):
    """The program is told; SDKs that run tools tell the model instead, and go on."""
    second, _ = agent.killed_at(point, way)
    tool = point.split()[1].rstrip(":")
    happened = [each for each in agent.effects() if each == tool]
    sent = agent.requests()

    assert len(happened) == point.endswith("end")
    if way != "google-genai stream":
        # Which runs tools before the stream that asks for them has ended.
        assert len(sent) == len(set(sent))
    if way.startswith(("google", "anthropic-runner")):
        assert second.stdout == "all done\n"
    else:
        assert second.stdout == f"in doubt: {tool}\n"


@pytest.mark.framework("google-genai", "killed")
@pytest.mark.parametrize("way", ["google-automatic", "google-automatic stream"])
@pytest.mark.parametrize(
    "point", ["model 1: end", "body mail: begin", "body mail: end"]
)
def test_an_automatic_function_call_is_made_once(agent, way, point):
    """The request around it is made again; its tools replay, or are in doubt."""
    second, _ = agent.killed_at(point, way)
    happened = 0 if point == "body mail: begin" else 1

    assert second.stdout == "all done\n"
    assert agent.effects() == ["mail"] * happened + ["pay"]
