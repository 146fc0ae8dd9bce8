"""The batch of the examples: killed wherever it is, it mails each customer once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import pytest

from tests.conftest import PROJECT, clean_environment

BATCH = PROJECT / "examples" / "batch.py"
ITEMS = 300


def batch(cwd, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", str(BATCH), "--items", str(ITEMS), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=clean_environment(**environment),
    )


def mailed(directory):
    lines = (directory / "outbox.txt").read_text().splitlines()
    return sorted(line.split("\t")[0] for line in lines)


CUSTOMERS = [f"customer-{n:05}" for n in range(ITEMS)]


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_that_is_killed_again_and_again_mails_each_customer_once(
    seed, tmp_path
):
    """At a random mail, before or after it is sent; others are on their way."""
    draw = random.Random(seed)
    kills = 0
    while True:
        fatal = draw.randrange(1, ITEMS)
        child = batch(tmp_path, "--in", str(tmp_path), "--fatal", str(fatal))
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, child.stderr
        kills += 1
        assert len(set(mailed(tmp_path))) == len(mailed(tmp_path))
        assert len(mailed(tmp_path)) < ITEMS
    again = batch(tmp_path, "--in", str(tmp_path))

    assert kills > 0
    assert again.returncode == 0, again.stderr
    assert mailed(tmp_path) == CUSTOMERS


def test_the_demonstration_says_what_happened(tmp_path):
    done = batch(tmp_path)
    *runs, ran, finished, summary = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in runs] == ["killed", "killed"]
    assert ran.startswith("300 items, ")
    assert finished.startswith("finished: ")
    sent = [int(line.split()[1]) for line in [*runs, finished]]
    assert sum(sent) == ITEMS
    assert all(sent)
    assert summary == "300 customers have their mail, 0 have it twice"
    assert list(tmp_path.iterdir()) == []


BARS = {"rich": ["Mailing", "100%"], "tqdm": ["300/300"], "": ["150 of 300"]}


@pytest.mark.parametrize("bar", BARS)
def test_how_far_it_is_is_shown_with_what_is_installed(bar, tmp_path):
    if bar:
        pytest.importorskip(bar)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name in {"rich", "tqdm"} - {bar}:
        (hidden / f"{name}.py").write_text("raise ImportError")
    path = f"{hidden}:{clean_environment()['PYTHONPATH']}"
    done = batch(tmp_path, "--in", str(tmp_path), PYTHONPATH=path)

    assert done.returncode == 0, done.stderr
    assert [text in done.stderr for text in BARS[bar]] == [True] * len(BARS[bar])
    assert mailed(tmp_path) == CUSTOMERS
