"""Folding a log and deciding about its calls, where neither is ordinary.

A salvaged log has gaps, and a long one has more outcomes than are remembered; both are
read without a disk.
"""

import pytest

from durable_agent import events as ev
from durable_agent.events import Head
from durable_agent.recovery import fold, may_settle
from durable_agent.replay import END, OffPath, Replay, last_request, settle

UNKNOWN = {"status": "code", "code": ev.TOOL_OUTCOME_UNKNOWN}


class Log:
    """Heads with a seq each, as a store would give them."""

    def __init__(self):
        self.heads = [Head(0, 0, ev.SESSION_START, None, None, {"uids": [[0, "u"]]})]
        self.add(ev.RUN_START, epoch=1)

    def add(self, type_, call=None, key=None, **meta):
        seq = len(self.heads)
        meta = {name.rstrip("_"): value for name, value in meta.items()}
        self.heads.append(Head(seq, seq, type_, call, key, meta))
        return seq

    def call(self, call, key="k", attempt=1, type_=ev.TOOL_CALL, **meta):
        return self.add(type_, call, key, name="tool", attempt=attempt, **meta)

    def result(self, call, attempt=1, type_=ev.TOOL_RESULT, **meta):
        meta = meta or {"status": "value"}
        return self.add(type_, call, None, attempt=attempt, **meta)

    def without(self, *seqs):
        """Fold what is left when these events were lost."""
        return fold(head for head in self.heads if head.seq not in seqs)

    def fold(self):
        return fold(self.heads)


@pytest.fixture
def log():
    return Log()


def replay_of(history, **options):
    replay = Replay(history, **options)
    replay.start()
    return replay


# folding -------------------------------------------------------------------------


def test_what_belongs_to_a_lost_intent_is_ignored(log):
    """A salvaged log is readable: neither chunks nor outcomes stand for a call."""
    lost = log.call("a")
    log.add(ev.TOOL_CHUNK, "a", attempt=1, n=1)
    log.result("a")
    log.call("b")
    history = log.without(lost)

    assert [slot.call for slot in history.slots] == ["b"]
    assert [slot.call for slot in history.in_doubt()] == ["b"]


@pytest.mark.parametrize("again", ["rerun", "retry"])
def test_an_attempt_whose_predecessor_is_lost_stands_for_itself(log, again):
    lost = log.call("a")
    second = log.call("a", attempt=2, again=again)
    log.result("a", attempt=2)
    history = log.without(lost)

    (slot,) = history.slots
    assert (slot.first, slot.attempt) == (second, 2)
    assert slot.outcome.status == "value"


def test_an_outcome_of_a_replaced_attempt_does_not_settle_the_new_one(log):
    """What the first attempt said is not known of the second."""
    log.call("a")
    log.call("a", attempt=2, again="rerun")
    log.result("a", attempt=1)

    (slot,) = log.fold().slots
    assert slot.attempt == 2
    assert slot.outcome is None


def test_a_second_outcome_of_an_attempt_changes_nothing(log):
    log.call("a")
    first = log.result("a")
    log.result("a", status="error")

    (slot,) = log.fold().slots
    assert (slot.outcome.seq, slot.outcome.status) == (first, "value")


def test_without_a_run_start_no_run_went_on(log):
    """Of a lost run nobody knows that it went on, so its unknown may be asked again."""
    log.call("a")
    log.result("a", **UNKNOWN)
    log.call("b", "other")
    log.add(ev.RUN_END, ok=True)
    history = log.without(1)

    assert not history.went_on(history.slots[0])
    assert history.finished
    assert may_settle(history, history.slots[0])
    assert log.fold().went_on(log.fold().slots[0])


def test_a_call_without_an_outcome_ended_no_run(log):
    log.call("a")
    log.add(ev.RUN_END, ok=False, fatal=[["a", 1]])
    history = log.fold()

    assert not history.ended_run(history.slots[0])


def test_only_events_of_an_application_are_counted_as_such(log):
    log.add(ev.RECOVERY, cut=12)
    log.add("app/note")

    assert log.fold().appended == 1


def test_turns_of_outcomes_that_are_lost_are_ignored(log):
    log.call("a")
    log.call("b", "other")
    one, two = log.result("a"), log.result("b")
    told = log.add("app/note", waves=[[two, one]], unhanded=[99])
    (a, b) = log.fold().slots

    assert (b.outcome.turn, b.outcome.place) == ((told, 0), 0)
    assert (a.outcome.turn, a.outcome.place) == ((told, 0), 1)
    (b,) = log.without(2).slots
    assert (b.outcome.turn, b.outcome.place) == ((told, 0), 0)


def test_what_is_told_of_an_outcome_is_not_told_of_its_successor(log):
    """A person resolved the call before anybody could say who had the first one."""
    log.call("a")
    log.call("b", "other")
    first, second = log.result("a", **UNKNOWN), log.result("b")
    resolved = log.result("a", type_=ev.TOOL_RESOLVE)
    log.add("app/note", waves=[[second, first]], unhanded=[first, second])
    (a, b) = log.fold().slots

    assert (a.outcome.seq, a.outcome.turn[0], a.outcome.handed) == (
        resolved,
        resolved,
        True,
    )
    assert not b.outcome.handed


def test_the_newest_outcomes_have_their_turns_in_a_log_of_any_length(log):
    """Outcomes of two events in a row went out together, wherever in a log they are."""
    many = 20_000
    told = {}
    log.call("alone", "alone")
    log.result("alone")
    for n in range(0, many, 2):
        for call in (f"c{n}", f"c{n + 1}"):
            log.call(call, call)
        first, second = log.result(f"c{n}"), log.result(f"c{n + 1}")
        if n % 4 == 0:
            # The others went out one by one, and nothing needs to tell of them.
            told[second, first] = log.add("app/note", waves=[[second, first]])
    slots = {slot.outcome.seq: slot for slot in log.fold().slots}

    assert len(slots) == many + 1
    for (second, first), at in told.items():
        assert slots[first].outcome.turn == slots[second].outcome.turn == (at, 0)
        assert (slots[second].outcome.place, slots[first].outcome.place) == (0, 1)


# deciding ------------------------------------------------------------------------


def test_the_order_of_hand_outs_is_what_replay_follows(log):
    log.call("a")
    log.call("b", "other")
    one, two = log.result("a"), log.result("b")
    log.add("app/note", waves=[[two], [one]])
    history = log.fold()
    replay = replay_of(history)
    a, b = replay.take(None, "k", None, None), replay.take(None, "other", None, None)
    lane = replay.lane(None)

    a.waiting = b.waiting = True
    assert not lane.ready(a.outcome.turn)
    assert lane.ready(b.outcome.turn)
    b.delivered = True
    assert lane.ready(a.outcome.turn)


def test_a_record_is_taken_though_only_one_side_knows_the_tool_call(log):
    """A framework that came to pass ids, or no longer does, finds its records."""
    log.call("told", resp="r", tcid="t")
    log.call("untold")
    replay = replay_of(log.fold())

    assert replay.take(None, "k", "r", "t").call == "told"
    assert replay.take(None, "k", "r", "t").call == "untold"
    assert replay.take(None, "k", "r", "t") is None


def test_the_record_of_the_very_tool_call_comes_first(log):
    """The answer to one tool call is never given to another one."""
    log.call("one", resp="r", tcid="1")
    log.call("two", resp="r", tcid="2")
    replay = replay_of(log.fold())

    assert replay.take(None, "k", "r", "2").call == "two"
    assert replay.take(None, "k", "r", "3") is None
    assert replay.take(None, "k", None, None).call == "one"


def test_a_recorded_call_that_is_still_settled_is_not_retried_by_an_equal_one(log):
    """It is another occurrence: it shares neither call id nor idempotency key."""
    log.call("a")
    replay = replay_of(log.fold())
    replay.take(None, "k", None, None)

    assert replay.retry_of(None, "k", None, None) is None
    assert replay.occurrence(None, "k") == 2


def test_a_call_after_an_error_is_another_attempt_once(log):
    log.call("a")
    log.result("a", status="error")
    history = log.fold()
    replay = replay_of(history)
    replay.take(None, "k", None, None)

    assert replay.retry_of(None, "k", None, None).call == "a"
    history.slots[0].retried = True
    assert replay.retry_of(None, "k", None, None) is None


def off_path(replay, kind="tool", effect="side_effect", **options):
    given = {"parent": None, "keyed": False, "resp": None, "tcid": None, **options}
    return replay.off_path(kind, effect=effect, **given)


def test_an_answer_to_a_replayed_response_is_on_the_path(log):
    """Its intent was not recorded before the crash; other calls of it were."""
    log.call("a", "one", resp="r", tcid="1")
    replay = replay_of(log.fold())

    assert off_path(replay, resp="r", tcid="2") is None


def test_another_answer_to_an_answered_tool_call_is_off_the_path(log):
    log.call("a", "one", resp="r", tcid="1")
    replay = replay_of(log.fold())

    assert off_path(replay, resp="r", tcid="1") == OffPath(
        replay.history.slots[0], dangerous=True
    )


def test_an_answer_to_a_live_response_is_judged_like_any_call(log):
    log.call("a", "one", effect="read_only")
    replay = replay_of(log.fold())
    replay.live_responses.add("r")

    assert off_path(replay, resp="r", tcid="1") == OffPath(
        replay.history.slots[0], dangerous=False
    )


@pytest.mark.parametrize(
    "status",
    [{"status": "value"}, {"status": "error"}, UNKNOWN, {"status": "suspended"}],
)
def test_whether_a_model_request_may_go_on_depends_on_effects_that_are_done(
    log, status
):
    log.call("a")
    assert not off_path(replay_of(log.fold()), "llm").dangerous
    log.result("a", **status)
    assert off_path(replay_of(log.fold()), "llm").dangerous


def test_a_call_that_never_ran_is_missed_by_nobody(log):
    log.call("a")
    log.result("a", status="code", code=ev.ABORTED_BEFORE_DISPATCH)

    assert off_path(replay_of(log.fold())) is None


def test_what_is_known_to_have_been_made_is_decided_by_how_its_run_ended(log):
    """The same error replays where it was caught, and where it ended the run is not
    made again by itself."""
    log.call("a")
    log.result("a", status="error")

    def decide(history, **options):
        given = {"effect": "side_effect", "verify": False, "retry_failed": False}
        return settle(history, history.slots[0], **{**given, **options})

    assert decide(log.fold()) == "deliver"
    log.add(ev.RUN_END, ok=False, fatal=[["a", 1]])
    ended = log.fold()
    assert decide(ended) == "deliver"
    assert decide(ended, verify=True) == "verify"
    assert decide(ended, retry_failed=True) == "rerun"
    assert decide(ended, effect="read_only") == "rerun"


def test_the_last_request_is_the_one_that_was_sent_last(log):
    """A request that was sent again stands after those it was recorded before."""
    log.call("a", "one", type_=ev.LLM_REQUEST)
    log.call("b", "two", type_=ev.LLM_REQUEST)
    assert last_request(log.fold()).call == "b"
    log.call("a", "one", attempt=2, type_=ev.LLM_REQUEST, again="rerun")

    assert last_request(log.fold()).call == "a"
    assert last_request(log.fold(), "another function") is None


def test_requests_beside_the_conversation_are_never_the_last(log):
    log.call("a", "one", type_=ev.LLM_REQUEST)
    log.call("b", "two", type_=ev.LLM_REQUEST, side=True)
    log.call("c", "three", type_=ev.LLM_REQUEST, parent="x")

    assert last_request(log.fold()).call == "a"


def test_a_continued_run_has_nothing_to_wait_for(log):
    log.call("a")
    log.result("a")
    replay = replay_of(log.fold(), continued=True)

    assert replay.take(None, "k", None, None) is None
    assert replay.lane(None).ready(END)
    assert replay.retry_of(None, "k", None, None) is None
