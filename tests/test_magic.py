"""``%durable``, word by word, without a kernel: what it opens and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

import durable_agent
from durable_agent import (
    FinishedSessionWarning,
    NoSessionWarning,
    SessionClosedError,
    checkpointed_llm,
    checkpointed_tool,
    current_session,
    open_session,
    session,
)
from durable_agent.integrations.ipython import Durable
from tests.conftest import clean_environment

RAN = []


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


@checkpointed_llm
def ask(messages):
    RAN.append("ask")
    return f"answer {len(messages)}"


@pytest.fixture(autouse=True)
def _fresh():
    RAN.clear()


@pytest.fixture
def magic():
    made = Durable()
    yield made
    if made.session is not None:
        made.session.close()


def test_on_opens_a_session_in_the_root_that_is_named(magic, root, capsys):
    magic.run(f"on 'a name' --root {root}")
    tool(1)

    assert current_session().id == "a name"
    assert str(root) in capsys.readouterr().out
    assert root.is_dir()


def test_on_again_replays_from_the_top(magic, root):
    """The cell of the magic is run again with all the others."""
    magic.run(f"on s --root {root}")
    tool(1)
    with pytest.warns(FinishedSessionWarning):
        magic.run(f"on s --root {root}")
    tool(1)
    tool(2)

    assert RAN == [1, 2]


def test_on_another_name_closes_the_first(magic, root):
    """Two open at once would leave it open which one an `await` cell means."""
    magic.run(f"on first --root {root}")
    first = current_session()
    magic.run(f"on second --root {root}")
    tool(1)
    magic.run("off")

    assert first.closed
    with session("first", root=root, must_exist=None) as s:
        assert s.seq == -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        with session("second", root=root) as s:
            assert tool(1) == 1
    assert RAN == [1]


def test_a_conversation_goes_on(magic, root):
    magic.run(f"on c --conversation --root {root}")
    ask([{"role": "user", "content": "one"}])
    magic.run("off")
    magic.run(f"on c --conversation --root {root}")
    ask([*current_session().messages(), {"role": "user", "content": "two"}])

    assert RAN == ["ask", "ask"]
    assert len(current_session().messages()) == 4


def test_divergence_may_be_made_a_warning(magic, root):
    """An edited cell leaves a call that the next run of all cells does not ask for."""
    magic.run(f"on s --root {root}")
    tool(1)
    magic.run("off")
    with pytest.warns(FinishedSessionWarning):
        magic.run(f"on s --root {root} --on-divergence warn")
    with pytest.warns(durable_agent.ReplayDivergedWarning):
        tool(2)
    with pytest.warns(durable_agent.ReplayDivergedWarning, match="without asking"):
        magic.run("off")

    assert RAN == [1, 2]


def test_off_closes_a_session_that_the_code_opened(magic, root, capsys):
    s = open_session("s", root=root)
    tool(1)
    magic.run("off")

    assert s.closed
    with pytest.warns(NoSessionWarning):
        tool(1)
    assert RAN == [1, 1]


def test_off_without_a_session_says_so(magic, capsys):
    magic.run("off")
    magic.run("status")

    assert capsys.readouterr().out == "durable: off\ndurable: off\n"


@pytest.mark.parametrize(
    "line",
    [
        *("", "on", "of", "on a b", "on a --rot x", "off now", "on 'a"),
        *("on a --on-divergence never", "status -v"),
    ],
)
def test_what_is_not_understood_is_refused_and_opens_nothing(magic, line):
    with pytest.raises(ValueError, match=r"%durable|quot"):
        magic.run(line)

    assert current_session() is None


def test_a_failed_opening_leaves_what_follows_refused(magic, root, capsys):
    """Else the cells below would run unrecorded, as if nothing had been asked for."""
    magic.run(f"on first --root {root}")
    no_directory = root / "first" / "lock"
    with pytest.raises(durable_agent.StoreError):
        magic.run(f"on second --root {no_directory}")
    capsys.readouterr()
    magic.run("status")

    assert capsys.readouterr().out == "durable: off\n"
    with pytest.raises(SessionClosedError):
        tool(1)
    magic.run(f"on second --root {root}")
    assert tool(1) == 1


def test_the_hooks_are_there_without_ipython():
    """Neither importing us nor looking for the hooks loads it."""
    code = (
        "import sys, durable_agent, durable_agent.integrations.ipython\n"
        "assert callable(durable_agent.load_ipython_extension)\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'IPython'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )

    assert done.stdout == "[]\n"
