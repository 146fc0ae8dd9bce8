"""From the results of tests to the README's table of frameworks."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.rows import CHECKS, ROWS, Row

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
README = PROJECT / "README.md"
BEGIN = "<!-- frameworks: written by python -m tests.frameworks -->\n"
END = "<!-- /frameworks -->\n"


class Collector:
    """A plugin of pytest: the outcomes of the marked tests, by row and check."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], list[str]] = {}
        self._marks: dict[str, list[tuple[str, ...]]] = {}

    def pytest_collection_modifyitems(self, items):
        marked = [each for each in items if each.get_closest_marker("framework")]
        items[:] = marked
        for item in marked:
            found = [mark.args for mark in item.iter_markers("framework")]
            self._marks[item.nodeid] = found

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            for row, check in self._marks[report.nodeid]:
                self.outcomes.setdefault((row, check), []).append(report.outcome)

    def results(self) -> dict[str, dict[str, Any]]:
        """Return, for each row whose tests ran, versions and counts of tests."""
        found: dict[str, dict[str, Any]] = {}
        for key, row in ROWS.items():
            counts = {
                check: {o: outcomes.count(o) for o in sorted(set(outcomes))}
                for check in CHECKS
                if (outcomes := self.outcomes.get((key, check)))
            }
            if any("passed" in c or "failed" in c for c in counts.values()):
                found[key] = {"versions": versions(row), "checks": counts}
        return found


def versions(row: Row) -> dict[str, str]:
    """Return the versions of a row's distributions that are installed."""
    found = {}
    for name in row.distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def holds(counts: dict[str, int] | None) -> bool:
    """Whether a check ran and nothing of it failed."""
    return bool(counts and counts.get("passed") and not counts.get("failed"))


def cell(row: Row, counts: dict[str, int] | None, check: str) -> str:
    """Return what the table says of one check."""
    said = row.instead.get(check)
    if counts and counts.get("failed"):
        return "fails"
    if not holds(counts):
        return said or "–"
    return f"yes; {said}" if said else "yes"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the table, in Markdown, and what its columns mean."""
    head = ["framework", *CHECKS, "one line"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key, row in ROWS.items():
        found = results.get(key)
        if found is None:
            continue
        named = ", ".join(f"{n} {v}" for n, v in found["versions"].items())
        cells = [cell(row, found["checks"].get(check), check) for check in CHECKS]
        line = row.line.replace("|", "\\|")
        cells = [f"{row.title} ({named})", *cells, f"`{line}`"]
        lines.append(f"| {' | '.join(cells)} |")
    meanings = [f"- **{check}**: {meaning}." for check, meaning in CHECKS.items()]
    return "\n".join([*lines, "", *meanings]) + "\n"


def stored() -> dict[str, dict[str, Any]]:
    """Return the results of the last run of each row."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def in_readme() -> str:
    """Return the table that the README has now."""
    _, _, rest = README.read_text().partition(BEGIN)
    return rest.partition(END)[0]


def _differences(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """Say what a run found that the stored results do not say."""
    return [
        f"{key}, {check}: {now or 'nothing'}; the table says {was or 'nothing'}"
        for key, found in new.items()
        for check in CHECKS
        for now in [found["checks"].get(check)]
        for was in [old.get(key, {}).get("checks", {}).get(check)]
        if holds(now) != holds(was)
    ]


def main(arguments: list[str]) -> int:
    """Run the marked tests, and write or compare what they say."""
    collector = Collector()
    check = "--check" in arguments
    rest = [each for each in arguments if each != "--check"]
    marked = ["-m", "framework and not slow", "-p", "no:cacheprovider", "-q"]
    code = pytest.main([*marked, *rest], plugins=[collector])
    new, old = collector.results(), stored()
    if check:
        differences = _differences(new, old)
        for line in differences:
            print(line)  # noqa: T201 - what it is run for
        return int(code) or bool(differences)
    merged = {key: new.get(key, old.get(key)) for key in ROWS if key in {*new, *old}}
    RESULTS.write_text(json.dumps(merged, indent=1) + "\n")
    text = README.read_text()
    if BEGIN in text:
        before, _, rest_of = text.partition(BEGIN)
        after = rest_of.partition(END)[2]
        README.write_text(before + BEGIN + table(merged) + END + after)
    return int(code)
