"""Records whose callers were cancelled: their place among the others."""

from __future__ import annotations

import pytest

from durable_agent.events import Head
from durable_agent.recovery import fold
from durable_agent.replay import END, Replay


def head(seq, type_, call=None, **meta):
    return Head(seq, 0, type_, call, call and f"key {call}", meta)


def intent(seq, call, effect="read_only"):
    return head(seq, "tool/call", call, name=call, attempt=1, effect=effect)


def value(seq, call, **meta):
    return head(seq, "tool/result", call, attempt=1, status="value", **meta)


def cancelled(seq, call):
    return head(
        seq,
        "tool/result",
        call,
        attempt=1,
        status="code",
        code="TOOL_OUTCOME_UNKNOWN",
        cause="cancel",
    )


START = [
    head(0, "session/start", uids=[[0, "u"]]),
    head(1, "run/start", epoch=1, resume="replay"),
]


def replay_of(*heads):
    history = fold([*START, *heads])
    replay = Replay(history)
    replay.start()
    return replay, {slot.call: slot for slot in history.slots}


def judge(replay, kind="tool", effect="side_effect"):
    return replay.off_path(
        kind, parent=None, effect=effect, keyed=False, resp=None, tcid=None
    )


def test_a_loser_of_a_race_is_not_missed_when_it_is_cancelled_before_it_asks():
    replay, _ = replay_of(
        intent(2, "won"), intent(3, "lost"), value(4, "won"), cancelled(5, "lost")
    )
    replay.take(None, "key won", None, None)

    assert judge(replay) is None
    assert judge(replay, effect="read_only") is None


def test_a_cancelled_effect_that_was_not_asked_for_is_still_in_the_way():
    """It may have happened: another effect in its place could be the same one."""
    replay, slots = replay_of(intent(2, "paid", "side_effect"), cancelled(3, "paid"))

    off = judge(replay)

    assert off is not None
    assert off.dangerous
    assert off.slot is slots["paid"]
    assert judge(replay, effect="read_only") is None


@pytest.mark.parametrize(("went_on", "ready"), [(False, False), (True, True)])
def test_a_value_that_nobody_had_is_waited_for_only_if_it_will_be_handed_out(
    went_on, ready
):
    """After a run that went on, its caller waits to be cancelled again instead."""
    tail = [intent(6, "after")] if went_on else []
    end = head(7, "run/end", ok=False, unhanded=[4])
    replay, slots = replay_of(
        intent(2, "late"),
        intent(3, "other"),
        value(4, "late"),
        value(5, "other"),
        *tail,
        end,
    )
    for slot in slots.values():
        slot.asked = True
    slots["other"].delivered = True

    assert replay.lane(None).ready(END) is ready
