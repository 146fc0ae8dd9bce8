"""What a session promises of calls in doubt, errors, values, and its own events."""

# ruff: noqa: PT031 - the warning comes from opening

import asyncio
import concurrent.futures
import itertools
import threading

import pytest

from durable_agent import (
    TOOL_OUTCOME_UNKNOWN,
    ArgumentNotStorableError,
    Completed,
    FinishedSessionWarning,
    NotApplied,
    OutcomeExistsError,
    ResultNotStorableError,
    ResultNotStorableWarning,
    ToolOutcomeUnknownError,
    Unknown,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    conversation,
    current_call,
    inspect_session,
    session,
)
from tests.disks import crash, cut

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def make(name="tool", **options):
    @checkpointed_tool(name=name, **options)
    def tool(n=1):
        RAN.append(n)
        return f"{name} {n}"

    return tool


def amake(name="tool", **options):
    @checkpointed_tool(name=name, **options)
    async def tool(n=1):
        RAN.append(n)
        return f"{name} {n}"

    return tool


tool = make()


@checkpointed_llm(name="ask")
def ask(messages):
    RAN.append("ask")
    return {"role": "assistant", "content": "yes"}


def in_doubt(root, fn=tool, *arguments):
    """Leave a session whose only call has an intent and no outcome."""
    with session("s", root=root) as s:
        fn(*arguments)
        crash(s)
    cut(root / "s", 3)
    RAN.clear()


def events(root, *types):
    with inspect_session("s", root=root) as looked:
        return [e for e in looked.events() if not types or e.type in types]


# in doubt ------------------------------------------------------------------------


def test_a_call_in_doubt_is_raised_and_not_run(root):
    in_doubt(root)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        with pytest.raises(ToolOutcomeUnknownError) as raised:
            tool()

    error = raised.value
    assert RAN == []
    assert call.name == "tool"
    assert error.call.id == call.id
    assert "side effects" in str(error)
    assert "may or may not" in str(error)
    assert "resolve" not in str(error)
    assert any("resolve" in note for note in error.__notes__)
    (outcome,) = events(root, "tool/result")
    assert outcome.meta["code"] == TOOL_OUTCOME_UNKNOWN


@pytest.mark.parametrize("level", ["tool", "session", "process"])
def test_on_unknown_returns_the_text_at_three_levels(root, level):
    fn = make(on_unknown="return") if level == "tool" else tool
    in_doubt(root, fn)
    if level == "process":
        configure(on_unknown="return")
    option = {"on_unknown": "return"} if level == "session" else {}
    with session("s", root=root, **option):
        text = fn()

    assert RAN == []
    assert text.startswith("TOOL_OUTCOME_UNKNOWN") or "unknown" in text.lower()


def test_the_tools_own_setting_is_the_closest(root):
    fn = make(on_unknown="raise")
    in_doubt(root, fn)
    configure(on_unknown="return")
    with (
        session("s", root=root, on_unknown="return"),
        pytest.raises(ToolOutcomeUnknownError),
    ):
        fn()


@pytest.mark.parametrize("level", ["tool", "session", "process"])
def test_a_handler_asks_a_person(root, level):
    asked = []

    def person(call):
        asked.append((call.name, dict(call.arguments), call.attempt))
        return Completed("they said it did")

    fn = make(on_unknown=person) if level == "tool" else tool
    in_doubt(root, fn, 7)
    if level == "process":
        configure(on_unknown=person)
    option = {"on_unknown": person} if level == "session" else {}
    with session("s", root=root, **option):
        assert fn(7) == "they said it did"
    with pytest.warns(FinishedSessionWarning), session("s", root=root):
        assert fn(7) == "they said it did"

    assert asked == [("tool", {"n": 7}, 1)]
    assert RAN == []


@pytest.mark.parametrize("kind", ["sync", "async", "async verifier of a sync tool"])
@pytest.mark.parametrize(
    ("said", "result"),
    [
        (Completed("found"), "found"),
        (NotApplied(), "tool 1"),
        (Unknown(), None),
        (None, None),
    ],
    ids=["completed", "not applied", "unknown", "nothing"],
)
def test_a_verifier_finds_out_what_happened(root, kind, said, result):
    seen = []

    def verify(call):
        seen.append(call)
        return said

    async def averify(call):
        seen.append(call)
        return said

    if kind == "async verifier of a sync tool":
        in_doubt(root, make(verify=averify))
        with (
            session("s", root=root),
            pytest.raises(TypeError, match="async"),
        ):
            make(verify=averify)()
        assert (seen, RAN) == ([], [])
        return
    if kind == "sync":
        fn = make(verify=verify)
        in_doubt(root, fn)

        def run():
            with session("s", root=root):
                return fn()
    else:
        in_doubt(root)
        fn = amake(verify=averify)

        def run():
            async def main():
                async with session("s", root=root):
                    return await fn()

            return asyncio.run(main())

    if result is None:
        with pytest.raises(ToolOutcomeUnknownError):
            run()
    else:
        assert run() == result
    assert RAN == ([1] if isinstance(said, NotApplied) else [])
    assert seen[0].idempotency_key
    assert seen[0].attempt == 1


def test_unknown_is_asked_of_the_verifier_again_until_a_run_went_on(root):
    answers = [Unknown(), Completed("found at last")]
    fn = make(verify=lambda call: answers.pop(0))
    in_doubt(root, fn)

    def run():
        with session("s", root=root):
            return fn()

    with pytest.raises(ToolOutcomeUnknownError):
        run()
    assert run() == "found at last"
    assert (RAN, answers) == ([], [])


def test_unknown_that_a_run_went_on_past_is_final(root):
    in_doubt(root)
    with session("s", root=root):
        with pytest.raises(ToolOutcomeUnknownError):
            tool()
        make("other")()

    fn = make(verify=lambda call: pytest.fail("asked again"))
    with pytest.warns(FinishedSessionWarning), session("s", root=root):
        with pytest.raises(ToolOutcomeUnknownError):
            fn()
        make("other")()
    assert RAN == [1]


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_what_may_be_repeated_is_run_again_with_the_same_key(root, effect):
    keys = []

    @checkpointed_tool(name="tool", effect=effect)
    def fn(n, idempotency_key=""):
        keys.append((idempotency_key, current_call().attempt))
        assert current_call().idempotency_key == idempotency_key
        return n

    in_doubt(root, fn, 1)
    with session("s", root=root):
        assert fn(1) == 1

    assert [attempt for _, attempt in keys] == [1, 2]
    assert keys[0][0] == keys[1][0] != ""
    first, second = events(root, "tool/call")
    assert (first.call, first.meta["attempt"]) == (second.call, 1)
    assert second.meta["attempt"] == 2


def test_a_composite_is_entered_again_and_its_children_replay(root):
    @checkpointed_tool(name="agent", effect="composite")
    def agent():
        return [ask([]), tool(1), tool(2)]

    with session("s", root=root) as s:
        agent()
        crash(s)
    cut(root / "s", 7)
    RAN.clear()

    with session("s", root=root):
        assert agent()[1:] == ["tool 1", "tool 2"]
    assert RAN == [2]


def test_a_model_request_in_doubt_is_sent_again(root):
    in_doubt(root, ask, [])
    with session("s", root=root):
        ask([])
    assert RAN == ["ask"]


def test_a_person_resolves_a_call(root):
    in_doubt(root)
    with session("s", root=root) as s:
        (call,) = s.in_doubt()
        s.resolve(call, Completed({"paid": 5}))
        assert s.in_doubt() == []
        with pytest.raises(OutcomeExistsError):
            s.resolve(call, NotApplied())
        with pytest.raises(LookupError):
            s.resolve("no such call", NotApplied())
    with session("s", root=root):
        assert tool() == {"paid": 5}
    assert RAN == []


def test_a_call_resolved_as_not_applied_runs(root):
    in_doubt(root)
    with session("s", root=root) as s:
        s.resolve(s.in_doubt()[0].id, NotApplied())
    with session("s", root=root):
        assert tool() == "tool 1"
    assert RAN == [1]


def test_resolving_is_durable_on_return(root):
    in_doubt(root)
    with session("s", root=root) as s:
        s.resolve(s.in_doubt()[0], Completed("x"))
        assert s._core.log.durable == s.seq


def test_a_resolution_wins_over_an_unknown_that_no_run_went_on_past(root):
    in_doubt(root)

    def run():
        with session("s", root=root):
            return tool()

    with pytest.raises(ToolOutcomeUnknownError):
        run()
    with session("s", root=root) as s:
        s.resolve(s.in_doubt()[0], Completed("found"))

    assert run() == "found"
    assert RAN == []


def test_an_exception_after_which_it_may_have_happened_is_in_doubt(root):
    @checkpointed_tool(name="tool", unknown_on=(LookupError,))
    def fn():
        RAN.append(1)
        raise KeyError("gone")

    def run():
        with session("s", root=root):
            fn()

    with pytest.raises(KeyError):
        run()
    with pytest.raises(ToolOutcomeUnknownError):
        run()
    assert RAN == [1]


# errors --------------------------------------------------------------------------


class CustomError(Exception):
    def __init__(self, *, code):
        super().__init__(code)
        self.code = code


def test_a_recorded_error_is_caught_by_the_same_except_clause(root):
    @checkpointed_tool(name="tool")
    def fn(n):
        RAN.append(n)
        raise CustomError(code=n)

    def run():
        with session("s", root=root):
            try:
                fn(7)
            except CustomError as error:
                return type(error), error.code, error.args

    first = run()
    with pytest.warns(FinishedSessionWarning):
        assert run() == first
    assert first == (CustomError, 7, (7,))
    assert RAN == [7]


def retry(fn, times):
    for left in reversed(range(times)):
        try:
            return fn()
        except ConnectionRefusedError:
            if not left:
                raise
    return None


def test_a_retry_around_the_decorator_replays_its_failures_and_goes_on(root):
    """Killed after the second attempt: the third runs, as it would have."""

    @checkpointed_tool(name="tool", unknown_on=())
    def flaky():
        RAN.append(current_call().attempt)
        if len(RAN) < 3:
            raise ConnectionRefusedError(111, "refused")
        return "at last"

    with session("s", root=root) as s:
        assert retry(flaky, 3) == "at last"
        crash(s)
    cut(root / "s", 6)
    keys = [e.data["idempotency_key"] for e in events(root, "tool/call")]
    assert len(set(keys)) == 1

    with session("s", root=root):
        assert retry(flaky, 3) == "at last"
    assert RAN == [1, 2, 3, 3]
    assert len(events(root, "tool/result")) == 3


def test_a_retry_inside_the_decorator_is_one_call(root):
    @checkpointed_tool(name="tool")
    def patient():
        def attempt():
            RAN.append(1)
            if len(RAN) < 3:
                raise ConnectionRefusedError
            return "at last"

        return retry(attempt, 3)

    with session("s", root=root):
        assert patient() == "at last"
    assert len(events(root, "tool/call", "tool/result")) == 2


def failing(**options):
    @checkpointed_tool(name="tool", **options)
    def fn():
        RAN.append(1)
        if len(RAN) == 1:
            raise ValueError("first")
        return "second"

    return fn


def run_failing(root, fn, **options):
    with session("s", root=root, **options):
        return fn()


def test_an_error_that_ended_the_run_stays_for_a_tool_with_effects(root):
    fn = failing()
    for expected_notes in (0, 1, 1):
        with pytest.raises(ValueError, match="first") as raised:
            run_failing(root, fn)
        notes = getattr(raised.value, "__notes__", [])
        assert sum("retry_failed" in note for note in notes) == expected_notes
    assert RAN == [1]


def test_retry_failed_makes_it_again(root):
    fn = failing()
    with pytest.raises(ValueError, match="first"):
        run_failing(root, fn)

    assert run_failing(root, fn, retry_failed=True) == "second"
    with pytest.warns(FinishedSessionWarning):
        assert run_failing(root, fn) == "second"
    assert RAN == [1, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"effect": "read_only"},
        {"effect": "idempotent"},
        {"verify": lambda call: NotApplied()},
    ],
    ids=["read_only", "idempotent", "verified"],
)
def test_an_error_that_ended_the_run_is_made_again_where_that_is_safe(root, options):
    fn = failing(**options)
    with pytest.raises(ValueError, match="first"):
        run_failing(root, fn)
    assert run_failing(root, fn) == "second"


def test_an_error_that_was_caught_replays(root):
    fn = failing(effect="read_only")

    def run():
        with session("s", root=root):
            try:
                fn()
            except ValueError as error:
                return str(error)

    assert run() == "first"
    with pytest.warns(FinishedSessionWarning):
        assert run() == "first"
    assert RAN == [1]


def test_an_error_behind_the_one_that_left_is_made_again_too(root):
    """Frameworks wrap what tools raise: the cause is what ended the run."""
    fn = failing(effect="read_only")

    def run():
        with session("s", root=root):
            try:
                return fn()
            except ValueError as error:
                raise RuntimeError("framework") from error

    with pytest.raises(RuntimeError):
        run()
    assert run() == "second"


def test_an_error_in_a_group_is_made_again_too(root):
    @checkpointed_tool(name="tool", effect="read_only")
    async def fn():
        RAN.append(1)
        if len(RAN) == 1:
            raise ValueError("first")
        return "second"

    async def main():
        async with session("s", root=root):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(fn())
            return task.result()

    with pytest.raises(ExceptionGroup):
        asyncio.run(main())
    assert asyncio.run(main()) == "second"


# values --------------------------------------------------------------------------


def selfish():
    value = []
    value.append(value)
    return value


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        deep,
        lambda: open("/dev/null"),
        concurrent.futures.Future,
        lambda: lambda: 1,
        selfish,
        threading.Lock,
        lambda: memoryview(b"x"),
    ],
    ids=["deep", "file", "future", "lambda", "itself", "lock", "view"],
)
def test_a_result_that_cannot_be_stored_reaches_its_caller_once(root, value):
    """Completed, and its value is nowhere: never run again, never invented."""
    made = value()

    @checkpointed_tool(name="tool")
    def fn():
        RAN.append(1)
        return made

    with session("s", root=root) as s:
        with pytest.warns(ResultNotStorableWarning):
            assert fn() is made
        crash(s)
    getattr(made, "close", int)()

    with session("s", root=root), pytest.raises(ResultNotStorableError) as raised:
        fn()
    assert RAN == [1]
    assert raised.value.call.name == "tool"
    (outcome,) = events(root, "tool/result")
    assert outcome.meta["code"] == "RESULT_NOT_STORABLE"


def test_a_deep_list_is_a_value_like_any_other(root):
    @checkpointed_tool(name="tool")
    def fn():
        RAN.append(1)
        value = []
        for _ in range(10_000):
            value = [value]
        return value

    for _ in range(2):
        with session("s", root=root) as s:
            value, depth = fn(), 0
            while value:
                (value,) = value
                depth += 1
            assert depth == 10_000
            crash(s)
    assert RAN == [1]


def test_a_big_integer_is_a_value_like_any_other(root):
    @checkpointed_tool(name="tool")
    def fn():
        RAN.append(1)
        return 10**5000

    for _ in range(2):
        with session("s", root=root) as s:
            assert fn() == 10**5000
            crash(s)
    assert RAN == [1]


def test_a_read_only_result_that_cannot_be_stored_is_fetched_again(root):
    @checkpointed_tool(name="tool", effect="read_only")
    def fn():
        RAN.append(1)
        return lambda: len(RAN)

    for _ in range(2):
        with session("s", root=root) as s:
            with pytest.warns(ResultNotStorableWarning):
                fn()
            crash(s)
    assert RAN == [1, 1]


def test_an_argument_that_cannot_be_stored_stops_before_the_body(root):
    @checkpointed_tool(name="tool")
    def fn(url, client):
        RAN.append(1)

    with session("s", root=root), pytest.raises(ArgumentNotStorableError) as raised:
        fn("u", object())

    assert RAN == []
    assert "client" in str(raised.value)
    assert "ignore=" in str(raised.value)


def test_each_caller_of_a_replay_gets_a_fresh_object(root):
    @checkpointed_tool(name="tool")
    def fn(n):
        return {"list": [n]}

    with session("s", root=root) as s:
        fn(1)["list"].append("mine")
        fn(2)
        crash(s)
    with session("s", root=root) as s:
        value = fn(1)
        value["list"].append("mine")
        assert value == {"list": [1, "mine"]}
        crash(s)
    with session("s", root=root):
        assert fn(1) == {"list": [1]}
        assert fn(2) == {"list": [2]}


def test_arguments_are_hashed_before_the_body_can_change_them(root):
    @checkpointed_tool(name="tool")
    def fn(items):
        RAN.append(len(items))
        items.append("changed")
        return len(items)

    for _ in range(2):
        with session("s", root=root) as s:
            assert fn(["a"]) == 2
            crash(s)
    assert RAN == [1]


def test_redacted_arguments_are_nowhere_in_the_log(root):
    @checkpointed_tool(name="tool", redact={"token"})
    def fn(token, n):
        RAN.append(token)
        return n

    with session("s", root=root) as s:
        assert (fn("secret-one", 1), fn("secret-two", 1)) == (1, 1)
        crash(s)
    text = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"secret" not in text

    with session("s", root=root):
        # They are no part of identity: what is asked for first is the first.
        assert (fn("secret-three", 1), fn("secret-four", 1)) == (1, 1)
    assert RAN == ["secret-one", "secret-two"]


def test_replay_false_runs_always_and_is_recorded(root):
    fn = make(replay=False)
    for _ in range(3):
        with session("s", root=root) as s:
            assert fn() == "tool 1"
            crash(s)
    assert RAN == [1, 1, 1]
    assert [e.meta["attempt"] for e in events(root, "tool/result")] == [1, 2, 3]


def test_a_durable_outcome_is_durable_when_the_caller_has_it(root):
    with session("s", root=root) as s:
        make(durable_outcome=True)()
        assert s._core.log.durable == s.seq


def test_methods_are_found_again_after_their_object_was_made_anew(root):
    """Neither self nor the client in it is part of identity."""

    class Agent:
        def __init__(self, key):
            self.key = key
            self.lock = threading.Lock()

        @checkpointed_tool
        def act(self, n):
            RAN.append(self.key)
            return n

        @checkpointed_tool(key=lambda bound: bound["self"].key)
        def own(self, n):
            RAN.append(self.key)
            return self.key

    with session("s", root=root) as s:
        assert Agent("k1").act(1) == 1
        crash(s)
    with session("s", root=root):
        assert Agent("k2").act(1) == 1
    assert RAN == ["k1"]


def test_two_objects_do_not_share_where_an_identity_is_declared(root):
    class Agent:
        def __init__(self, name):
            self.name = name

        @checkpointed_tool(key="name")
        def act(self, name):
            RAN.append(name)
            return name

    with session("s", root=root) as s:
        for name in "ab":
            Agent(name).act(name)
        crash(s)
    with session("s", root=root):
        assert [Agent(name).act(name) for name in "ba"] == ["b", "a"]
    assert RAN == ["a", "b"]


# the session's own ---------------------------------------------------------------


def test_a_recorded_value_is_remembered(root):
    ticks = itertools.count()

    def run():
        with session("s", root=root) as s:
            got = [s.record("n", lambda: next(ticks)) for _ in range(3)]
            got.append(s.record("sum", lambda a, b: (a + b, next(ticks)), 1, 2))
            crash(s)
            return got

    first = run()
    assert first == [0, 1, 2, (3, 3)]
    assert run() == first


def test_a_recorded_value_may_be_async(root):
    ticks = itertools.count()

    async def tick():
        await asyncio.sleep(0)
        return next(ticks)

    async def main():
        async with session("s", root=root) as s:
            return [
                await s.record("n", tick),
                await s.record("lambda", lambda: tick()),
            ]

    first = asyncio.run(main())
    with pytest.warns(FinishedSessionWarning):
        again = asyncio.run(main())

    assert first == again == [0, 1]


def test_what_a_recorded_function_raises_is_not_remembered(root):
    def fails():
        RAN.append(1)
        raise ValueError

    for _ in range(2):
        with session("s", root=root) as s:
            with pytest.raises(ValueError):
                s.record("n", fails)
            crash(s)
    assert RAN == [1, 1]


def test_application_events_are_appended_once_and_ignored_by_replay(root):
    def run(n):
        with session("s", root=root) as s:
            seqs = [s.append("app/note", {"run": n, "k": k}) for k in range(3)]
            tool()
            crash(s)
            return seqs

    first = run(1)
    assert None not in first
    assert run(2) == [None, None, None]
    notes = events(root, "app/note")
    assert [event.data for event in notes] == [{"run": 1, "k": k} for k in range(3)]


def test_observers_see_every_event_in_order_and_cannot_break_anything(root, caplog):
    seen = []

    def bad(event):
        raise ValueError(event)

    with session("s", root=root) as s:
        s.on_event(bad)
        undo = s.on_event(lambda event: seen.append(event.seq))
        tool(1)
        s.append("app/x")
        undo()
        undo()
        tool(2)
        last = s.seq

    assert seen == list(range(5))
    assert last == 6
    assert "observer" in caplog.text
    assert RAN == [1, 2]


def test_an_observer_may_use_the_session(root):
    with session("s", root=root) as s:
        s.on_event(
            lambda event: event.type == "tool/result" and s.append("app/seen", 1)
        )
        tool(1)

    assert len(events(root, "app/seen")) == 1


def test_metadata_is_kept_in_the_first_event(root):
    with session("s", root=root, metadata={"user": "ann"}):
        tool()
    with (
        pytest.warns(FinishedSessionWarning),
        session("s", root=root, metadata={"user": "bob"}),
    ):
        tool()

    (start,) = events(root, "session/start")
    assert start.data["metadata"] == {"user": "ann"}


def test_a_result_that_its_caller_had_survives_a_kill(root):
    """No placeholder: the real value is there."""
    with session("s", root=root) as s:
        assert tool(1) == "tool 1"
        crash(s)
    with conversation("s", root=root) as s:
        assert s.in_doubt() == []
    with session("s", root=root):
        assert tool(1) == "tool 1"
    assert RAN == [1]


def test_what_opening_found_is_told(root):
    in_doubt(root)
    with session("s", root=root) as s:
        assert s.recovery.resumed
        assert not s.recovery.finished
        assert s.recovery.in_doubt == ("tool",)
        assert s.replaying
        crash(s)
    with conversation("s", root=root) as s:
        assert s.recovery.closed == 1


def test_a_crash_in_the_first_write_leaves_a_session_that_can_start(root):
    with session("s", root=root) as s:
        tool(1)
        crash(s)
    (segment,) = root.rglob("*.jsonl")
    whole = segment.read_bytes()
    # The header is there whole or not at all: it gets its name when it is synced.
    header = whole.index(b"\n") + 1
    for size in range(header, whole.index(b'{"seq":2') + 1, 7):
        segment.write_bytes(whole[:size])
        RAN.clear()
        try:
            with session("s", root=root) as s:
                assert tool(1) == "tool 1"
                crash(s)
        finally:
            for path in (root / "s").glob("torn/*"):
                path.unlink()
        assert RAN == [1]
