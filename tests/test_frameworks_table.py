"""The README's table of frameworks is what their tests found."""

import pytest

from tests.frameworks.rows import CHECKS, ROWS, Row
from tests.frameworks.table import (
    Collector,
    cell,
    holds,
    in_readme,
    stored,
    table,
    versions,
)


def test_the_table_in_the_readme_says_what_the_last_results_say():
    """Written by ``python -m tests.frameworks``, by nobody's hand."""
    assert in_readme() == table(stored())


@pytest.mark.parametrize("key", ROWS)
def test_every_row_was_checked_and_nothing_of_it_failed(key):
    checks = stored()[key]["checks"]
    for check in CHECKS:
        counts = checks.get(check)
        assert holds(counts) or ROWS[key].instead.get(check), check
        assert not (counts or {}).get("failed"), check


ROW = Row("Some", ("pytest", "no-such-package"), "a | b", {"over": "see the guide"})


@pytest.mark.parametrize(
    ("counts", "check", "said"),
    [
        ({"passed": 2}, "under", "yes"),
        ({"passed": 2, "failed": 1}, "under", "fails"),
        ({"skipped": 1}, "under", "–"),
        (None, "under", "–"),
        (None, "over", "see the guide"),
        ({"passed": 1}, "over", "yes; see the guide"),
        ({"failed": 1}, "over", "fails"),
    ],
)
def test_a_cell_says_what_ran(counts, check, said):
    assert cell(ROW, counts, check) == said


def test_versions_are_of_what_is_installed():
    assert versions(ROW) == {"pytest": pytest.__version__}


def test_outcomes_are_counted_by_row_and_check(pytester_like):
    collector = pytester_like(
        """
        import pytest

        @pytest.mark.framework("langchain", "under")
        @pytest.mark.framework("langchain", "over")
        @pytest.mark.parametrize("n", [1, 2])
        def test_two(n):
            assert n == 1

        @pytest.mark.framework("langchain", "under")
        def test_skipped():
            pytest.skip("not here")

        def test_not_marked():
            assert False
        """
    )
    checks = collector.results()["langchain"]["checks"]
    assert checks == {
        "under": {"failed": 1, "passed": 1, "skipped": 1},
        "over": {"failed": 1, "passed": 1},
    }


@pytest.fixture
def pytester_like(tmp_path):
    """Run tests of a text in this process, seen by a collector."""
    import textwrap

    def run(text):
        file = tmp_path / "test_of_a_text.py"
        file.write_text(textwrap.dedent(text))
        collector = Collector()
        options = ["-p", "no:cacheprovider", "-p", "no:terminal", "-W", "ignore"]
        config = tmp_path / "pytest.ini"
        config.write_text("[pytest]\nmarkers =\n    framework(row, check): its\n")
        pytest.main([*options, "-c", str(config), str(file)], plugins=[collector])
        return collector

    return run
