"""The plugin: its fixture, its option, its summary, and that it costs nobody else."""

from __future__ import annotations

import re

import pytest

from tests.conftest import PROJECT
from tests.test_crash_points import RIGHT, changed

TEST = """
def test_agent(crash_points):
    crash_points("agent.py", **{options}).check()
"""


@pytest.fixture
def run_tests(tmp_path, run_python):
    """Run pytest with the plugin on a test of an agent beside it."""

    def run(*options, code=RIGHT, test=TEST, **given):
        (tmp_path / "agent.py").write_text(code.replace("\n    ", "\n"))
        (tmp_path / "test_agent.py").write_text(test.replace("{options}", repr(given)))
        plugin = ("-m", "pytest", "-W", "error", "-p", "pytest_durable_agent")
        plain = ("-p", "no:cacheprovider", "--rootdir", tmp_path, "test_agent.py")
        path = f"{PROJECT}"
        return run_python(*plugin, *plain, *options, PYTHONPATH=path)

    return run


def figures(done):
    found = re.search(r"(\d+) of (\d+) boundaries, (\d+) random", done.stdout)
    assert found, done.stdout + done.stderr
    return [int(number) for number in found.groups()]


def test_a_handful_of_points_by_default_and_every_one_on_request(run_tests):
    few = run_tests()
    every = run_tests("--durable-crash", random=1)

    assert (few.returncode, every.returncode) == (0, 0)
    assert figures(few)[::2] == [8, 2]
    tried, boundaries, moments = figures(every)
    assert tried == boundaries > 30
    assert moments == 1
    assert "durable_agent crash points" in few.stdout


def test_a_wrong_agent_fails_its_test_with_the_table(run_tests):
    code = changed(RIGHT, "@da.checkpointed_tool(verify=was_sent)", "")
    done = run_tests(code=code)

    assert done.returncode == 1
    assert "effect 'mail' happened 2 times, 1 without a crash" in done.stdout


def test_a_run_without_the_fixture_shows_nothing_and_imports_nothing(run_tests):
    test = (
        "import sys\n"
        "def test_it():\n"
        "    assert 'pytest_durable_agent' in sys.modules\n"
        "    assert 'durable_agent' not in sys.modules\n"
    )
    done = run_tests(test=test)

    assert done.returncode == 0, done.stdout
    assert "crash points" not in done.stdout


def test_the_entry_point_is_named_as_the_module():
    """Then ``-p`` with that name does not load it a second time."""
    text = (PROJECT / "pyproject.toml").read_text("utf-8")

    assert 'pytest_durable_agent = "pytest_durable_agent"' in text
    assert text.count('"pytest_durable_agent.py"') == 2


def test_the_example_passes_with_the_plugin(tmp_path, run_python):
    example = PROJECT / "examples" / "test_my_agent.py"
    options = ("-p", "pytest_durable_agent", "-p", "no:cacheprovider")
    done = run_python(
        *("-m", "pytest", "-c", PROJECT / "pyproject.toml", *options, example),
        PYTHONPATH=f"{PROJECT}",
    )

    assert done.returncode == 0, done.stdout
    assert "test_my_agent.py::" in done.stdout
