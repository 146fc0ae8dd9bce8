"""A long log says how far its opening is to whoever watches, and never fails for it."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest

from durable_agent import _progress, checkpointed_tool, session
from durable_agent._progress import watched

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.DurableWarning")


@checkpointed_tool(effect="read_only")
def tool(n):
    return n


@pytest.fixture
def long_log(root, monkeypatch):
    """A log that counts as long, and nobody who watches."""
    with session("s", root=root):
        for n in range(10):
            tool(n)
    monkeypatch.setattr(_progress, "_LONG", 20)
    monkeypatch.setattr(_progress, "_EVERY", 5)
    for name in [name for name in sys.modules if name.split(".")[0] in SHOWN_BY]:
        monkeypatch.delitem(sys.modules, name)
    return root


SHOWN_BY = ("tqdm", "rich", "ipykernel")


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(_progress, "_somebody_watches", lambda: True)


def loaded(monkeypatch, name):
    module = pytest.importorskip(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def opened(root):
    with session("s", root=root, on_divergence="ignore"):
        return tool(3)


@pytest.mark.parametrize("name", ["tqdm", "rich"])
def test_what_the_program_has_loaded_draws_the_line(
    long_log, terminal, monkeypatch, capsys, name
):
    loaded(monkeypatch, name)
    monkeypatch.setenv("FORCE_COLOR", "1")  # how rich is told that it is a terminal

    assert opened(long_log) == 3
    assert "opening s" in capsys.readouterr().err


def test_without_either_nothing_is_shown_and_nothing_is_loaded(
    long_log, terminal, capsys
):
    assert opened(long_log) == 3
    assert capsys.readouterr().err == ""
    assert {"tqdm", "rich"} & set(sys.modules) == set()


def test_where_nobody_watches_nothing_is_shown(long_log, monkeypatch, capsys):
    """Not in files that output goes to."""
    loaded(monkeypatch, "tqdm")

    assert opened(long_log) == 3
    assert capsys.readouterr().err == ""


def test_rich_shows_nothing_where_it_would_ask_for_widgets(
    long_log, terminal, monkeypatch, capsys
):
    """In a notebook, unlike tqdm; no empty line either."""
    loaded(monkeypatch, "rich")

    assert opened(long_log) == 3
    assert capsys.readouterr().err == ""


def test_a_short_log_shows_nothing(long_log, terminal, monkeypatch, capsys):
    loaded(monkeypatch, "tqdm")
    monkeypatch.setattr(_progress, "_LONG", 10_000)

    assert opened(long_log) == 3
    assert capsys.readouterr().err == ""


def test_all_items_come_through_and_are_counted(terminal, monkeypatch):
    counted = []
    bar = SimpleNamespace(update=counted.append, close=lambda: counted.append("closed"))
    monkeypatch.setattr(_progress, "_bar", lambda total, text: bar)

    with watched(iter(range(10_000)), 200_000, "opening") as items:
        assert list(items) == list(range(10_000))

    assert counted == [4096, 4096, "closed"]


def test_a_display_that_fails_does_not_fail_the_opening(
    long_log, terminal, monkeypatch
):
    def fail(*_, **__):
        raise RuntimeError("no display")

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=fail))
    assert opened(long_log) == 3
    bar = SimpleNamespace(update=fail, close=fail)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=lambda **_: bar))
    assert opened(long_log) == 3


def test_a_program_that_shows_a_display_of_its_own_keeps_it(
    long_log, terminal, monkeypatch
):
    """Of rich's there can be one at a time."""
    loaded(monkeypatch, "rich")
    progress = importlib.import_module("rich.progress").Progress()
    with progress:
        assert opened(long_log) == 3
        assert progress.live.is_started


@pytest.mark.parametrize(
    ("stderr", "watches"),
    [
        (SimpleNamespace(isatty=lambda: True), True),
        (SimpleNamespace(isatty=lambda: False), False),
        (None, False),
    ],
)
def test_a_terminal_is_watched(monkeypatch, stderr, watches):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)

    assert _progress._somebody_watches() is watches


def test_a_notebook_is_watched(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())

    assert _progress._somebody_watches()
