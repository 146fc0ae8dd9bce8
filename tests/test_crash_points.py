"""`crash_points` kills a script everywhere, and finds what is wrong with wrong agents.

Each wrong agent is one that somebody may write; what is claimed of it is what the
report has to say. The right ones show that nothing else is said.
"""

from __future__ import annotations

import os
import re
import signal
import textwrap
from random import Random

import pytest

from durable_agent import Completed, NotApplied, Unknown, _current
from durable_agent.testing import crash_points, effect, happened
from tests.conftest import PROJECT, clean_environment

#: Each test runs an agent dozens of times.
pytestmark = pytest.mark.slow


RIGHT = """
    import durable_agent as da
    from durable_agent.testing import FakeLLM, effect, happened

    ask = da.checkpointed_llm(FakeLLM(["one", "two"]), name="ask")

    def was_sent(call):
        return da.Completed("sent") if happened("mail") else da.NotApplied()

    @da.checkpointed_tool(verify=was_sent)
    def mail():
        effect("mail")
        return "sent"

    with da.session("s"):
        said = ask("hello")["choices"][0]["message"]["content"]
        print(said, mail())
"""


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """Write a script; return what searches it in an environment of tests."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", clean_environment()["PYTHONPATH"])
    counter = iter(range(100))

    def search(code, *args, **options):
        script = tmp_path / "agent.py"
        script.write_text(textwrap.dedent(code))
        options = {"random": 0, "seed": 1, "points": 6, **options}
        cases = tmp_path / f"cases-{next(counter)}"
        return crash_points(script, *args, **{"directory": cases, **options})

    return search


def changed(code, before, after):
    assert before in code
    return code.replace(before, after)


def said(report):
    """Everything that is wrong, without repeats."""
    return {text for case in report.wrong for text in case.problems}


def test_every_boundary_is_tried_and_a_right_agent_passes(agent):
    report = agent(RIGHT, points=None)

    assert report.check() is report
    assert [case.point for case in report.cases] == [
        *range(1, len(report.boundaries) + 1)
    ]
    assert [case.killed for case in report.cases] == [*report.boundaries]
    assert {case.exits for case in report.cases} == {(-signal.SIGKILL, 0)}
    assert {case.effects["mail"] for case in report.cases} == {1}
    assert {case.same_output for case in report.cases} == {True}
    assert (report.wrong, report.in_doubt) == ((), ())
    kinds = {" ".join(b.split()[1:3]) for b in report.boundaries}
    wanted = {"write of", "sync of", "create .gitignore", "effect 'mail'", "lock"}
    assert wanted <= kinds
    assert any(kind.startswith("request") for kind in kinds)
    assert {b.split()[0] for b in report.boundaries} == {"before", "within", "after"}
    assert any(case.in_doubt_when_killed for case in report.cases)


def test_a_call_in_doubt_ends_its_case_and_is_told_not_blamed(agent):
    report = agent(changed(RIGHT, "verify=was_sent", "name='m'"), points=14).check()

    assert report.in_doubt
    for case in report.in_doubt:
        assert [call.name for call in case.in_doubt] == ["m"]
        assert (case.ended, case.exits) == (False, (-9, 1))
        assert case.effects["mail"] <= 1
    assert re.search(r"^m +\d+ +\d+$", str(report), re.MULTILINE)
    assert "in doubt" in report.summary


def test_resolve_settles_as_a_person_who_looks_would(agent):
    asked = []

    def resolve(call):
        asked.append((call.name, call.session))
        return Completed("sent") if happened("mail") else NotApplied()

    code = changed(RIGHT, "verify=was_sent", "name='m'")
    report = agent(code, points=14, resolve=resolve).check()

    assert report.in_doubt == ()
    settled = [case for case in report.cases if case.resolved]
    assert asked == [("m", "s")] * len(settled)
    assert asked
    assert {case.exits for case in settled} == {(-9, 1, 0)}
    assert {case.effects["mail"] for case in report.cases} == {1}
    assert _current.PROCESS.cores == []
    assert _current.PROCESS.crowded is False


@pytest.mark.parametrize(
    ("lie", "claim"),
    [
        (NotApplied(), "effect 'mail' happened 2 times, 1 without a crash"),
        (Completed("sent"), "effect 'mail' is missing"),
    ],
)
def test_a_person_who_is_wrong_is_found_out(agent, lie, claim):
    code = changed(RIGHT, "verify=was_sent", "name='m'")

    report = agent(code, points=14, resolve=lambda call: lie)

    assert said(report) == {claim}


def test_a_person_who_does_not_know_leaves_the_call_in_doubt(agent):
    code = changed(RIGHT, "verify=was_sent", "name='m'")

    report = agent(code, points=14, resolve=lambda call: Unknown()).check()

    assert report.in_doubt
    assert max(len(case.runs) for case in report.cases) <= 3


def test_an_undecorated_mail_is_sent_twice_and_named(agent):
    report = agent(
        changed(RIGHT, "@da.checkpointed_tool(verify=was_sent)", ""), points=None
    )

    claim = "effect 'mail' happened 2 times, 1 without a crash"
    assert said(report) == {claim}
    with pytest.raises(AssertionError) as raised:
        report.check()
    lines = str(raised.value).splitlines()
    assert re.match(r"agent.py: \d+ of \d+ crashes go wrong", lines[0])
    assert any(re.match(rf" *\d+  after effect 'mail' +{claim}", x) for x in lines)


def test_an_undecorated_model_is_asked_again_and_named(agent):
    code = changed(
        RIGHT,
        'da.checkpointed_llm(FakeLLM(["one", "two"]), name="ask")',
        'FakeLLM(["one"])',
    )

    report = agent(code, points=14)

    assert {text.partition(":")[0] for text in said(report)} == {
        "an answered model request was sent once more"
    }
    assert "'hello'" in said(report).pop()


def test_a_recorded_request_that_is_not_replayed_is_named_from_the_log_alone(agent):
    """No fake model is needed to see it."""
    code = """
        import durable_agent as da

        @da.checkpointed_llm(replay=False)
        def ask(messages):
            return {"role": "assistant", "content": "hi"}

        with da.session("s") as s:
            ask([{"role": "user", "content": "hello"}])
            s.flush()
            print("done")
    """
    report = agent(code, points=14)

    assert said(report) == {
        "an answered model request was sent once more: agent:ask (recorded)"
    }


def test_an_output_that_differs_is_shown_at_its_first_line(agent):
    code = """
        import durable_agent as da, os
        from durable_agent.testing import effect

        @da.checkpointed_tool(effect="read_only")
        def look():
            return 1

        with da.session("s") as s:
            again = s.recovery.resumed
            look()
        print("same")
        print("resumed" if again else "new")
    """
    report = agent(code, points=14)

    assert said(report) == {
        "another output: line 2 is 'resumed', without a crash 'new'"
    }
    assert not any(case.same_output for case in report.wrong)


def test_an_agent_that_never_ends_again_is_bounded_and_named(agent):
    code = changed(
        RIGHT,
        'with da.session("s"):',
        'import os\n    if os.path.exists("x"): raise SystemExit("again?")\n'
        '    open("x", "w").close()\n    with da.session("s"):',
    )

    report = agent(code, points=2, runs=3)

    assert said(report) == {
        "run 2 failed: exit 1, again?",
        "run 3 failed: exit 1, again?",
        "it never ends: not in 3 runs",
    }
    assert {case.exits for case in report.cases} == {(-9, 1, 1)}
    with pytest.raises(AssertionError, match="stderr of case 1, run 3"):
        report.check()


def test_an_agent_that_hangs_is_stopped_with_all_that_it_started(agent, tmp_path):
    pids = tmp_path / "pids"
    code = changed(
        RIGHT,
        'with da.session("s"):',
        f"""
    import os, subprocess, sys, time
    if os.path.exists("x"):
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(pids)!r}, "a").write(f"{{os.getpid()}} {{other.pid}} ")
        time.sleep(600)
    open("x", "w").close()
    with da.session("s"):""",
    )

    report = agent(code, points=1, timeout=3.0)

    assert said(report) == {"run 2 hangs: no end within 3 s"}
    assert [case.exits for case in report.cases] == [(-9, None)]
    found = [int(pid) for pid in pids.read_text().split()]
    assert len(found) == 2
    assert [pid for pid in found if runs(pid)] == []


def runs(pid):
    """Whether a process does anything still; a dead one may wait for its parent."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_random_moments_come_from_the_seed_that_is_told(agent):
    reports = [agent(RIGHT, points=0, random=3, seed=7) for _ in range(2)]

    for report in reports:
        report.check()
        assert "seed 7" in report.summary
        # The moments are parts of the time that the unharmed run took.
        length = report.unharmed.runs[0].seconds
        parts = [case.point / length for case in report.cases]
        assert all(0 <= part <= 1 for part in parts)
        draw = Random(7)
        assert parts == pytest.approx([draw.random() for _ in range(3)])
    killed = [case.killed for r in reports for case in r.cases if case.killed]
    assert all(re.match(r"after \d\.\d+ s, ", text) for text in killed)


def test_cases_see_neither_each_other_nor_the_callers_directory(agent, tmp_path):
    code = changed(
        RIGHT,
        "print(said",
        'import os; open("here", "a").write("x"); print(len(open("here").read()), said',
    )

    report = agent(code, points=3, output=lambda here: sorted(os.listdir(here)))

    report.check()
    directories = [case.directory for case in report.cases]
    assert len(set(directories)) == 3
    assert report.unharmed.output == [".durable_agent", "here"]
    assert not (tmp_path / "here").exists()


def test_a_session_outside_of_the_case_is_refused_before_anything_is_made(
    agent, tmp_path
):
    root = tmp_path / "shared"
    code = changed(RIGHT, 'da.session("s")', f'da.session("s", root={str(root)!r})')

    report = agent(code)

    assert not root.exists()
    assert not report.ok
    with pytest.raises(AssertionError, match="cases would see each other"):
        report.check()


@pytest.mark.parametrize(
    ("code", "claim"),
    [
        ("print(1)", "opened no session"),
        (
            "import durable_agent as da\nwith da.session('s'): pass",
            "nothing to compare",
        ),
        ("1 / 0", "ZeroDivisionError"),
        ("import time; time.sleep(600)", "hangs"),
    ],
)
def test_a_run_of_which_crashes_would_say_nothing_does_not_pass(agent, code, claim):
    """A test that cannot fail is worse than none."""
    report = agent(code, timeout=3.0)

    assert report.cases == ()
    assert not report.ok
    with pytest.raises(AssertionError, match=claim):
        report.check()


def test_effects_may_be_read_from_the_outside_itself(agent):
    code = changed(
        changed(RIGHT, 'effect("mail")', 'open("box", "a").write("mail ")'),
        'happened("mail")',
        '__import__("os").path.exists("box")',
    )

    def box(here):
        found = here / "box"
        return found.read_text().split() if found.exists() else []

    right = agent(code, points=14, effects=box).check()
    wrong = agent(
        changed(code, "@da.checkpointed_tool(verify=was_sent)", ""),
        points=14,
        effects=box,
    )

    assert right.unharmed.effects == {"mail": 1}
    assert said(wrong) == {"effect 'mail' happened 2 times, 1 without a crash"}


def test_attempts_at_an_idempotent_call_are_one_effect(agent):
    """Its idempotency key is the same: the outside takes the second for the first."""
    code = changed(RIGHT, "verify=was_sent", "effect='idempotent'")

    report = agent(code, points=14).check()

    assert {case.effects["mail"] for case in report.cases} == {1}


def test_arguments_environment_and_preparation_reach_the_script(agent):
    code = changed(
        RIGHT,
        "print(said",
        "import os, sys\n"
        "    print(sys.argv[1:], os.environ['X'], open('in').read(), __name__, said",
    )

    report = agent(
        code,
        "a",
        2,
        points=1,
        env={"X": "y"},
        prepare=lambda here: (here / "in").write_text("z"),
    )

    report.check()
    assert report.unharmed.output == "['a', '2'] y z __main__ one sent\n"
    assert report.script == "agent.py a 2"


def test_a_module_is_run_as_python_m_does(agent, tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__main__.py").write_text(textwrap.dedent(RIGHT))
    monkeypatch.chdir(tmp_path)

    report = crash_points("-m", "mine", points=2, random=0, seed=1).check()

    assert len(report.cases) == 2
    assert not report.cases[0].directory.exists()


def test_an_async_agent_is_killed_and_goes_on(agent):
    code = """
        import asyncio
        import durable_agent as da
        from durable_agent.testing import FakeLLM, effect, happened

        model = FakeLLM(["one"])
        ask = da.checkpointed_llm(model.acreate, name="ask")

        def was_done(call):
            done = happened(call.arguments["n"])
            return da.Completed(1) if done else da.NotApplied()

        @da.checkpointed_tool(verify=was_done)
        async def act(n):
            effect(n)
            return 1

        async def main():
            async with da.session("s"):
                await ask("hello")
                print(await asyncio.gather(act("a"), act("b")))

        asyncio.run(main())
    """
    report = agent(code, points=12, random=2).check()

    assert report.in_doubt == ()
    assert report.unharmed.effects == {"a": 1, "b": 1}


def test_a_missing_script_is_said_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        crash_points(tmp_path / "none.py")


def test_outside_of_a_search_effect_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    effect("mail")

    assert happened("mail") == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_callback_raises_ends_the_search_with_no_child_left(agent):
    def resolve(call):
        raise RuntimeError("nobody is here")

    code = changed(RIGHT, "verify=was_sent", "name='m'")

    with pytest.raises(RuntimeError, match="nobody is here"):
        agent(code, points=14, resolve=resolve)


@pytest.mark.parametrize("decorator", ["@checkpointed_tool(verify=was_sent)\n", None])
def test_the_example_fails_without_its_decorators(agent, tmp_path, decorator):
    """And passes with them, killed as often."""
    code = (PROJECT / "examples" / "my_agent.py").read_text("utf-8")
    if decorator is None:
        agent(code, points=12).check()
        return
    report = agent(changed(code, decorator, ""), points=12)

    with pytest.raises(AssertionError, match="happened 2 times, 1 without"):
        report.check()
