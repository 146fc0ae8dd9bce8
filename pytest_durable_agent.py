"""The pytest plugin of durable_agent: the fixture `crash_points`, ``--durable-crash``.

It imports nothing of the package before the fixture is used: whoever has the package
installed pays nothing for it, and coverage of it begins in time. That is also why it
is a module of its own beside the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from durable_agent.testing import CrashReport

#: Cases without ``--durable-crash``, and random moments with and without it.
_POINTS: Final = 8
_MOMENTS: Final = 2
_MANY_MOMENTS: Final = 25
#: Under this name the line of a report travels with the report of its test.
_PROPERTY: Final = "durable_crash"


class CrashPoints(Protocol):
    """What the fixture is: `durable_agent.testing.crash_points`, bound to a test."""

    def __call__(
        self, script: str | os.PathLike[str], *args: object, **options: Any
    ) -> CrashReport:
        """Kill a script, run it again, report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("durable_agent").addoption(
        "--durable-crash",
        action="store_true",
        default=False,
        help="kill the agents of crash_points at every boundary, not at a handful",
    )


@pytest.fixture
def crash_points(request: pytest.FixtureRequest, tmp_path: Path) -> CrashPoints:
    """Kill an agent's script at the boundaries of its log and run it again.

    It is ``durable_agent.testing.crash_points`` with the cases in ``tmp_path``. A
    script with a relative path is looked for beside the test first. Without
    ``--durable-crash`` it tries a few points, spread evenly; ``points=`` and
    ``random=`` in the call say otherwise. What is wrong is raised by ``.check()``.
    """
    every = request.config.getoption("--durable-crash")
    usual = {"points": None if every else _POINTS}
    usual["random"] = _MANY_MOMENTS if every else _MOMENTS
    searches = 0

    def search(
        script: str | os.PathLike[str], *args: object, **options: Any
    ) -> CrashReport:
        from durable_agent import testing  # noqa: PLC0415 - only who uses it pays

        nonlocal searches
        searches += 1
        beside = request.path.parent / script
        if str(script) != "-m" and beside.exists():
            script = beside
        here = tmp_path / f"crash-points-{searches}"
        options = {**usual, "directory": here, **options}
        report = testing.crash_points(script, *args, **options)
        line = f"{request.node.nodeid}: {report.script}: {report.summary}"
        request.node.user_properties.append((_PROPERTY, line))
        return report

    return search


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show a line for each search, from the workers of xdist too."""
    reports = [r for found in terminalreporter.stats.values() for r in found]
    lines = [
        line
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, line in getattr(report, "user_properties", ())
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("durable_agent crash points")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)
