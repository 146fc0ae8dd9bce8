"""Random agent programs, random schedules, random crashes, on the real engine.

The number of programs is ``DURABLE_AGENT_PROGRAMS`` (default 200); the command
``python -m tests.model.campaign FIRST COUNT`` runs more and prints what it found.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections import Counter

import pytest

from durable_agent import _flow, _lanes, _recorded, replay
from tests.model.campaign import campaign, program_of
from tests.model.chats import chat
from tests.model.programs import DEEP, generate

PROGRAMS = int(os.environ.get("DURABLE_AGENT_PROGRAMS", "200"))
CHUNKS = 8

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _crashed_processes_are_gone(monkeypatch):
    """What a crashed process leaves behind is collected here, and says nothing."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    yield
    gc.collect()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_an_unchanged_program_survives_any_crashes(chunk):
    """No effect twice, no wrong outcome, no divergence, always progress, paired."""
    found = {}
    for seed in range(chunk, PROGRAMS, CHUNKS):
        bad = campaign(program_of(seed)[1], seed)
        if bad:
            found[seed] = bad

    assert found == {}


def test_the_programs_are_of_every_kind():
    """A kind that is never drawn proves nothing."""
    drawn = Counter()

    def count(node):
        drawn[node[0]] += 1
        for child in node[1:]:
            if isinstance(child, tuple):
                count(child)
            elif isinstance(child, list):
                for grandchild in child:
                    if isinstance(grandchild, tuple):
                        count(grandchild)

    for seed in range(200):
        count(generate(random.Random(seed)))
        count(generate(random.Random(-seed - 1)))

    assert set(drawn) == {"tool", *DEEP}


@pytest.mark.parametrize("explicit", [True, False], ids=["ids", "matched"])
@pytest.mark.parametrize("resume", ["continue", "replay"])
def test_a_chat_that_crashes_goes_on_and_is_told_the_truth(resume, explicit):
    """Never told "not started" of what ran, nor "done" of what did not."""
    found, seen = {}, Counter()
    for seed in range(60):
        bad = chat(seed, resume=resume, explicit=explicit, seen=seen)
        if bad:
            found[seed] = bad

    assert found == {}
    assert {"ok", "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"} <= set(seen)


def _violations(seeds):
    return {
        text.partition(":")[0]
        for seed in seeds
        for text in campaign(program_of(seed)[1], seed)
    }


def test_the_search_finds_a_call_in_doubt_that_is_made_again(monkeypatch):
    """The search itself must be able to fail."""
    real = replay.settle

    def careless(*args, **options):
        action = real(*args, **options)
        return "rerun" if action == "ask" else action

    monkeypatch.setattr(_recorded, "decide", careless)

    assert "side effect ran twice" in _violations(range(60))


def test_the_search_finds_a_body_that_runs_before_its_barrier(monkeypatch):
    """An intent that a power cut takes leaves a second effect."""
    monkeypatch.setattr(_flow.Flow, "barrier", property(lambda _: False))

    assert "side effect ran twice" in _violations(range(60))


def test_the_search_finds_outcomes_handed_out_in_any_order(monkeypatch):
    """Without the order of the log, as_completed and races take another path."""
    monkeypatch.setattr(_lanes.Lane, "ready", lambda *_: True)

    assert _violations(range(60))
