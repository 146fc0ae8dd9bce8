"""Code, prompts and clocks change between runs: never another call's outcome."""

# ruff: noqa: PT031 - the warning comes from closing

import importlib.util
import subprocess
import sys
import textwrap
import warnings

import pytest

from durable_agent import (
    ContinuedSessionWarning,
    FinishedSessionWarning,
    ReplayDivergedError,
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)
from tests.conftest import clean_environment
from tests.disks import crash, cut

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def make(name, effect="side_effect", **options):
    """Make a tool whose recorded name is ``name``."""

    @checkpointed_tool(name=name, effect=effect, **options)
    def tool(n=0):
        RAN.append((name, n))
        return f"{name} {n}"

    return tool


a, b, c, x = (make(name) for name in "abcx")
look = make("look", "read_only")


@checkpointed_llm(name="ask")
def ask(messages):
    RAN.append(("ask", messages[-1]["content"]))
    return {"role": "assistant", "content": f"re: {messages[-1]['content']}"}


def user(text):
    return {"role": "user", "content": text}


def crashed(tmp_path, *calls):
    """Make these calls in a session that is then left as by a killed process."""
    with session("s", root=tmp_path) as s:
        for fn, *arguments in calls:
            fn(*arguments)
        crash(s)
    RAN.clear()


def names(tmp_path):
    with inspect_session("s", root=tmp_path) as looked:
        return [e.meta["name"] for e in looked.events() if e.type == "tool/call"]


def test_a_renamed_tool_does_not_send_again(tmp_path):
    """To the log a renamed function is another one: it stops before it runs."""
    crashed(tmp_path, (a, 1), (b, 2))

    def run():
        with session("s", root=tmp_path):
            a(1)
            x(2)

    with pytest.raises(ReplayDivergedError) as raised:
        run()

    error = raised.value
    assert RAN == []
    assert (error.path, error.recorded, error.asked) == ("function", '"b"', '"x"')
    for way_out in ("session.record", "key=", "ignore=", "conversation", "forked"):
        assert way_out in str(error)
    assert names(tmp_path) == ["a", "b"]


def test_a_divergence_latches_the_session(tmp_path):
    """A framework that swallowed it meets it again at every call and at the end."""
    crashed(tmp_path, (a, 1))

    def run():
        with session("s", root=tmp_path):
            for fn in (x, a, ask):
                with pytest.raises(ReplayDivergedError, match="was not asked for"):
                    fn([user("p")] if fn is ask else 9)

    with pytest.raises(ReplayDivergedError):
        run()
    assert RAN == []


def test_changed_arguments_diverge_and_the_first_difference_is_shown(tmp_path):
    @checkpointed_tool(name="send")
    def send(to, body):
        RAN.append(to)

    with session("s", root=tmp_path) as s:
        send({"name": "ann", "mail": ["a@x", "a@y"]}, "hello")
        crash(s)
    RAN.clear()

    def run():
        with session("s", root=tmp_path):
            send({"name": "ann", "mail": ["a@x", "a@z"]}, "hello")

    with pytest.raises(ReplayDivergedError) as raised:
        run()

    assert RAN == []
    assert raised.value.path.startswith("to")
    assert "mail" in raised.value.path
    assert (raised.value.recorded, raised.value.asked) == ('"a@y"', '"a@z"')
    assert '"a@y"' in str(raised.value)
    assert '"a@z"' in str(raised.value)


def test_a_redacted_argument_is_not_shown(tmp_path):
    @checkpointed_tool(name="send", redact={"token"})
    def send(to, token):
        RAN.append(to)

    with session("s", root=tmp_path) as s:
        send("ann", "secret-1")
        crash(s)
    RAN.clear()

    def run():
        with session("s", root=tmp_path):
            send("ann", "secret-2")

    run()
    assert RAN == [], "a key that was changed changes no call"
    with (
        pytest.raises(ReplayDivergedError) as raised,
        session("s", root=tmp_path),
    ):
        send("bob", "secret-2")

    assert RAN == []
    assert "secret" not in str(raised.value)
    assert raised.value.path.startswith("to")


def test_a_removed_call_stops_the_next_new_effect(tmp_path):
    crashed(tmp_path, (a, 1), (b, 1), (c, 1))

    def run():
        with session("s", root=tmp_path):
            assert a(1) == "a 1"
            assert c(1) == "c 1"
            x(1)

    with pytest.raises(ReplayDivergedError, match="b"):
        run()
    assert RAN == []


def test_a_removed_call_is_listed_when_the_session_closes(tmp_path):
    crashed(tmp_path, (a, 1), (b, 1), (c, 1))

    with (
        pytest.warns(ReplayDivergedWarning, match=r"without asking.*: b \(seq"),
        session("s", root=tmp_path),
    ):
        assert (a(1), c(1)) == ("a 1", "c 1")
    assert RAN == []
    assert names(tmp_path) == ["a", "b", "c"]


def test_an_inserted_call_with_effects_stops(tmp_path):
    """It cannot be told from a renamed one."""
    crashed(tmp_path, (a, 1), (b, 1))

    def run():
        with session("s", root=tmp_path):
            x(1)

    with pytest.raises(ReplayDivergedError):
        run()
    assert RAN == []


def test_an_inserted_read_only_call_runs_with_a_warning(tmp_path):
    crashed(tmp_path, (a, 1), (b, 1))

    with session("s", root=tmp_path):
        with pytest.warns(ReplayDivergedWarning, match="look is not in the log"):
            assert look(1) == "look 1"
        assert (a(1), b(1)) == ("a 1", "b 1")
    assert RAN == [("look", 1)]


def test_reordered_calls_each_find_their_own_record(tmp_path):
    crashed(tmp_path, (a, 1), (b, 2), (a, 3))

    with session("s", root=tmp_path):
        assert (a(3), b(2), a(1)) == ("a 3", "b 2", "a 1")
    assert RAN == []


def test_another_occurrence_is_another_call(tmp_path):
    crashed(tmp_path, (a, 1), (a, 1))

    with session("s", root=tmp_path):
        assert [a(1), a(1)] == ["a 1"] * 2
        assert RAN == []
        a(1)
    assert RAN == [("a", 1)]


def test_a_clock_in_the_prompt_stops_before_the_effects_after_it(tmp_path):
    crashed(tmp_path, (ask, [user("it is 10:00")]), (a, 1))

    def run():
        with session("s", root=tmp_path):
            ask([user("it is 10:01")])

    with pytest.raises(ReplayDivergedError) as raised:
        run()

    assert RAN == []
    assert "session.record" in str(raised.value)


def test_a_recorded_clock_is_the_way_out(tmp_path):
    def run(now):
        with session("s", root=tmp_path) as s:
            clock = s.record("clock", lambda: now)
            answer = ask([user(f"it is {clock}")])
            a(1)
            if now == "10:00":
                crash(s)
        return answer["content"]

    assert run("10:00") == run("10:01") == "re: it is 10:00"
    assert RAN == [("ask", "it is 10:00"), ("a", 1)]


def test_a_changed_prompt_without_effects_after_it_warns(tmp_path):
    crashed(tmp_path, (ask, [user("one")]), (look, 1))

    with (
        pytest.warns(ReplayDivergedWarning),
        session("s", root=tmp_path),
    ):
        assert ask([user("two")])["content"] == "re: two"
    assert RAN == [("ask", "two")]


def test_a_shorter_run_is_no_divergence_while_nothing_new_is_asked(tmp_path):
    crashed(tmp_path, (a, 1))

    with session("s", root=tmp_path):
        assert a(1) == "a 1"
        assert b(1) == "b 1"
    assert RAN == [("b", 1)]


def test_a_longer_conversation_continues(tmp_path):
    """A chat that asks for its history works under ``session`` too."""
    crashed(tmp_path, (ask, [user("one")]), (a, 1))

    with session("s", root=tmp_path) as s, warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = ask([*s.messages(), user("two")])
        a(1)

    assert answer["content"] == "re: two"
    assert RAN == [("ask", "two"), ("a", 1)]


def test_calls_that_replayed_before_a_continuing_request_get_a_warning(tmp_path):
    crashed(tmp_path, (a, 1), (ask, [user("one")]))

    with session("s", root=tmp_path) as s:
        assert a(1) == "a 1"
        with pytest.warns(ContinuedSessionWarning, match=r"a replayed.*conversation"):
            ask([*s.messages(), user("two")])
    assert RAN == [("ask", "two")]


def test_a_parameter_with_a_default_may_be_added(tmp_path):
    @checkpointed_tool(name="send")
    def before(to):
        RAN.append(to)
        return "sent"

    with session("s", root=tmp_path) as s:
        before("ann")
        crash(s)
    RAN.clear()

    @checkpointed_tool(name="send")
    def after(to, urgent=False, *more, **rest):
        RAN.append(to)
        return "sent again"

    with session("s", root=tmp_path):
        assert after("ann") == "sent"
    assert RAN == []


def test_an_added_parameter_with_another_value_diverges(tmp_path):
    @checkpointed_tool(name="send")
    def before(to):
        RAN.append(to)

    with session("s", root=tmp_path) as s:
        before("ann")
        crash(s)
    RAN.clear()

    @checkpointed_tool(name="send")
    def after(to, urgent=False):
        RAN.append(to)

    def run():
        with session("s", root=tmp_path):
            after("ann", urgent=True)

    with pytest.raises(ReplayDivergedError):
        run()
    assert RAN == []


def test_positional_keyword_and_default_forms_are_one_call(tmp_path):
    @checkpointed_tool(name="f")
    def f(p, /, q=5, *args, k=1, **rest):
        RAN.append(1)
        return len(RAN)

    forms = [
        lambda: f(1),
        lambda: f(1, 5),
        lambda: f(1, q=5),
        lambda: f(1, k=1, q=5),
    ]
    for form in forms:
        RAN.clear()
        with session("s", root=tmp_path) as s:
            assert form() == 1
            crash(s)
    assert RAN == []
    with session("t", root=tmp_path):
        # Positional-only, *args and **rest are kept distinct.
        kept = {f(1), f(1, 5, 6), f(1, p=1), f(1, args=6), f(1, 5, (6,))}
    assert len(kept) == 5


@pytest.mark.parametrize("setting", ["warn", "ignore"])
def test_divergence_may_be_allowed(tmp_path, setting):
    crashed(tmp_path, (a, 1))
    with (
        warnings.catch_warnings(record=True) as seen,
        session("s", root=tmp_path, on_divergence=setting),
    ):
        warnings.simplefilter("always")
        assert x(1) == "x 1"

    assert RAN == [("x", 1)]
    kinds = {w.category for w in seen}
    assert kinds == ({ReplayDivergedWarning} if setting == "warn" else set())


def test_with_key_another_key_is_another_call(tmp_path):
    pay = make("pay", key="n")
    crashed(tmp_path, (pay, 1), (a, 1))

    with (
        pytest.warns(ReplayDivergedWarning, match="without asking"),
        session("s", root=tmp_path),
    ):
        assert pay(2) == "pay 2"
        assert a(1) == "a 1"
    assert RAN == [("pay", 2)]


def test_with_key_other_arguments_are_the_same_call(tmp_path):
    @checkpointed_tool(name="pay", key="order")
    def pay(order, note):
        RAN.append(note)
        return note

    with session("s", root=tmp_path) as s:
        pay(7, "at 10:00")
        crash(s)
    with session("s", root=tmp_path):
        assert pay(7, "at 10:01") == "at 10:00"
    assert RAN == ["at 10:00"]


def test_key_may_be_a_callable_on_the_bound_arguments(tmp_path):
    @checkpointed_tool(name="pay", key=lambda bound: bound["order"]["id"])
    def pay(order):
        RAN.append(order)
        return order["note"]

    with session("s", root=tmp_path) as s:
        pay({"id": 1, "note": "first"})
        crash(s)
    with session("s", root=tmp_path):
        assert pay({"id": 1, "note": "second"}) == "first"
        assert pay({"id": 2, "note": "other"}) == "other"


def test_ignored_parameters_are_neither_recorded_nor_compared(tmp_path):
    @checkpointed_tool(name="get", ignore={"client", "now"})
    def get(url, client, now):
        RAN.append(url)
        return url

    with session("s", root=tmp_path) as s:
        get("u", object(), 1)
        (call,) = [e for e in s.events() if e.type == "tool/call"]
        crash(s)
    with session("s", root=tmp_path):
        assert get("u", object(), 2) == "u"

    assert RAN == ["u"]
    assert set(call.data["args"]) == {"url"}


def test_in_doubt_and_renamed_it_does_not_run(tmp_path):
    """An intent without outcome is an unused record with effects as well."""
    crashed(tmp_path, (a, 1))
    cut(tmp_path / "s", 3)

    def run():
        with session("s", root=tmp_path):
            x(1)

    with pytest.raises(ReplayDivergedError):
        run()
    assert RAN == []


MODULE = """
from durable_agent import checkpointed_tool
RAN = []
@checkpointed_tool
def send(n):
    RAN.append(n)
    return n
"""


def load(tmp_path, name):
    path = tmp_path / f"{name}.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_moved_module_does_not_send_again(tmp_path):
    old, new = load(tmp_path, "moved_old"), load(tmp_path, "moved_new")
    with session("s", root=tmp_path) as s:
        old.send(1)
        crash(s)

    def run():
        with session("s", root=tmp_path):
            new.send(1)

    with pytest.raises(ReplayDivergedError) as raised:
        run()

    assert new.RAN == []
    assert raised.value.recorded == '"moved_old:send"'
    assert raised.value.asked == '"moved_new:send"'


def test_a_script_and_its_module_are_one(tmp_path):
    """``python agent.py``, ``python -m agent`` and ``import agent`` are one path."""
    (tmp_path / "agent.py").write_text(
        textwrap.dedent("""
        import sys
        from durable_agent import checkpointed_tool, session

        @checkpointed_tool
        def send(n):
            print("ran", n)
            return n

        def main():
            with session("s", root=sys.argv[-1]):
                send(1)

        if __name__ == "__main__":
            main()
        """)
    )
    root = str(tmp_path / "root")
    ways = (
        ["agent.py"],
        ["-m", "agent"],
        ["-c", "import agent; agent.main()"],
    )
    said = [
        subprocess.run(
            [sys.executable, "-W", "ignore", *way, root],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for way in ways
    ]

    assert said == ["ran 1\n", "", ""]


def test_nested_calls_never_diverge(tmp_path):
    """The outer call is what was checked; what it does below may change."""
    below = [a]

    @checkpointed_tool(name="outer", effect="idempotent")
    def outer():
        return [fn(1) for fn in below]

    with session("s", root=tmp_path) as s:
        outer()
        crash(s)
    cut(tmp_path / "s", 5)
    RAN.clear()
    below[:] = [b, a]

    with session("s", root=tmp_path):
        assert outer() == ["b 1", "a 1"]
    assert RAN == [("b", 1)]


def test_a_finished_session_says_that_it_only_replays(tmp_path):
    with session("s", root=tmp_path):
        a(1)
    with (
        pytest.warns(FinishedSessionWarning, match="'s' has ended normally"),
        session("s", root=tmp_path) as s,
    ):
        a(1)
    assert s.recovery.finished
    assert RAN == [("a", 1)]


@pytest.mark.parametrize(
    "run",
    [
        lambda: [a(1), c(1), b(1)],
        lambda: [a(1), b(1)],
        lambda: [c(1), a(1)],
        lambda: [a(2)],
        lambda: [x(1), a(1)],
        lambda: [b(2), b(1)],
    ],
    ids=["reordered", "shorter", "skipped", "argument", "inserted", "both"],
)
def test_no_change_of_code_gets_another_calls_outcome_or_doubles_one(tmp_path, run):
    crashed(tmp_path, (a, 1), (b, 1), (c, 1))

    def main():
        with session("s", root=tmp_path):
            return run()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert set(main()) <= {"a 1", "b 1", "c 1"}
        except ReplayDivergedError:
            pass
    assert RAN == []
