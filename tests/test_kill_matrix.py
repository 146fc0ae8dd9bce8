"""An agent killed at every place, and run again: nothing is lost, nothing doubled.

The agent of ``agents/three_steps.py`` is killed with SIGKILL right before, within and
right after every change that its store makes to the disk, and at the begin and the end
of every body. A killed process does not test a sync (the page cache survives it); what
power loss takes is the matter of the store's own tests.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import clean_environment

AGENTS = Path(__file__).parent / "agents"

#: Labels of the effects, and of the call that is reported if it is not their own.
EFFECTS = {
    "charge": "charge",
    "notify": "notify",
    "ship": "ship",
    "pack": "ship",
    "post": "post",
    "order": "order",
    "audit": None,
    "refuse": "refuse",
    "too_slow": "too_slow",
}
#: Effects of calls below calls.
NESTED = {"order", "pack", "post"}
#: How often each request gets an answer that is recorded.
ANSWERS = {
    "plan": 2,
    "primary": 1,
    "backup": 1,
    "research": 1,
    "sum up": 1,
    "stream": 1,
}


def killed(tmp_path, mode, first=1, stride=1, rounds=1):
    """Return what was seen in each case; see ``agents/kill_server.py``."""
    root = tmp_path / f"{mode}-{first}-{rounds}"
    root.mkdir()
    script = str(AGENTS / "kill_server.py")
    numbers = [str(n) for n in (first, stride, rounds)]
    done = subprocess.run(
        [sys.executable, script, str(root), mode, *numbers],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def labels(run, file):
    return [line[0] for line in run[file]]


def settled(log):
    """Return the names of the tools that have a real outcome in a log."""
    names = {(e[2], e[3]): e[4] for e in log if e[1] == "tool/call"}
    return {
        names[e[2], e[3]].rpartition(":")[2]
        for e in log
        if e[1] in {"tool/result", "tool/resolve"} and e[6] in {"value", "error"}
    }


def answered(log):
    """Return how often each request has a recorded answer."""
    prompts = {(e[2], e[3]): e[5] for e in log if e[1] == "llm/request"}
    return Counter(
        prompts[e[2], e[3]]
        for e in log
        if e[1] == "llm/response" and e[6] in {"value", "error"}
    )


def aborted(log, label):
    names = {(e[2], e[3]): e[4] for e in log if e[1] == "tool/call"}
    codes = {
        names[e[2], e[3]].rpartition(":")[2]: e[7] for e in log if e[1] == "tool/result"
    }
    return codes.get(label) == "ABORTED_BEFORE_DISPATCH"


def problems(seen, answer):
    """Return what is wrong with a case, in words."""
    found = []
    *_, last, third = seen["runs"]
    for run in seen["runs"]:
        found += [f"an error: {error}" for error in labels(run, "errors")]
        found += [f"the answer is {a}" for a in labels(run, "answers") if a != answer]
    if seen["exits"][-2:] != [0, 0] or not last["answers"] or not third["answers"]:
        found.append(f"it did not come to its end: {seen['exits']}")
    found += [f"a provider refuses: {text}" for text in seen["refusals"]]
    found += _logs(seen)
    found += _requests(seen)
    found += _effects(seen)
    if third["requests"] or third["effects"]:
        found.append(f"the third run did something: {third}")
    if seen["sizes"][-1] != seen["sizes"][-2]:
        found.append("the third run wrote")
    # What was in doubt below a call that has ended is not asked for again.
    doubts = [label for label in labels(last, "doubts") if label not in NESTED]
    if sorted(labels(third, "doubts")) != sorted(doubts):
        found.append("the third run took another way")
    return found


def _logs(seen):
    found = []
    before = []
    for log in seen["logs"]:
        if [event[0] for event in log] != list(range(len(log))):
            found.append("seq is not contiguous")
        if log[: len(before)] != before:
            found.append("what was in the log is not there any more")
        before = log
    return found


def _requests(seen):
    found = []
    before = []
    for run, log in zip(seen["runs"], seen["logs"], strict=True):
        have = answered(before)
        for prompt, count in Counter(labels(run, "requests")).items():
            if count > ANSWERS[prompt] - have[prompt]:
                found.append(f"{prompt!r} was sent {count} times, {have} recorded")
        before = log
    return found


def _effects(seen):
    found = []
    count = Counter(e for run in seen["runs"] for e in labels(run, "effects"))
    doubts = {d for run in seen["runs"] for d in labels(run, "doubts")}
    for label, reported in EFFECTS.items():
        if count[label] > 1:
            found.append(f"{label} happened {count[label]} times")
        if count[label] == 0 and reported not in doubts:
            if not aborted(seen["logs"][-1], label):
                found.append(f"{label} did not happen and is not in doubt")
    before = []
    for run, log in zip(seen["runs"], seen["logs"], strict=True):
        known = set(labels(run, "doubts")) & settled(before)
        found += [f"{label} is in doubt though it is recorded" for label in known]
        before = log
    return found


def judge(cases):
    """Return the number of places, and what is wrong at which."""
    # The last case ran without being killed: what it says is what all must say.
    answer = cases[-1]["runs"][0]["answers"][0][0]
    wrong = {
        f"{seen['n']} {seen['killed']}": found
        for seen in cases
        if (found := problems(seen, answer))
    }
    places = sum(seen["exits"][0] == -9 for seen in cases)
    odd = [seen["exits"] for seen in cases if seen["exits"][0] not in {-9, 0}]
    assert odd == []
    return places, wrong


@pytest.mark.parametrize(
    ("mode", "least"), [("sync", 240), ("async", 215)], ids=["sync", "async"]
)
def test_an_agent_killed_anywhere_loses_and_doubles_nothing(tmp_path, mode, least):
    """``least`` keeps the search from shrinking unseen; tasks share some syncs."""
    cases = killed(tmp_path, mode)

    places, wrong = judge(cases)

    assert wrong == {}
    assert places >= least


def test_segments_and_payloads_kept_aside_are_safe_from_a_kill_too(tmp_path):
    """Rotation and blobs have creates, renames and directory syncs of their own."""
    cases = killed(tmp_path, "small", first=2, stride=7)

    places, wrong = judge(cases)

    assert wrong == {}
    assert places >= 45


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async", "small"])
def test_repair_and_replay_may_be_killed_again_and_again(tmp_path, mode):
    cases = killed(tmp_path, mode, first=1, stride=3, rounds=4)

    places, wrong = judge(cases)

    assert wrong == {}
    assert places >= 70


@pytest.mark.slow
def test_every_place_with_small_segments(tmp_path):
    cases = killed(tmp_path, "small")

    places, wrong = judge(cases)

    assert wrong == {}
    assert places >= 320
