"""Warnings that are turned into errors come after the facts are recorded."""

import warnings

import pytest

from durable_agent import (
    FinishedSessionWarning,
    ReplayDivergedError,
    ReplayDivergedWarning,
    ResultNotStorableError,
    ResultNotStorableWarning,
    checkpointed_tool,
    session,
)
from tests.disks import crash

RAN = []


@pytest.fixture(autouse=True)
def _errors():
    """As ``python -W error`` and most test suites have it."""
    RAN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@checkpointed_tool
def odd():
    RAN.append("odd")
    return lambda: 1


@checkpointed_tool
def tool(n):
    RAN.append(n)
    return n


def test_a_result_that_cannot_be_stored_is_recorded_before_the_warning(root):
    """Else it would be in doubt, and the session would never be closed."""
    with session("s", root=root):
        with pytest.raises(ResultNotStorableWarning):
            odd()
        tool(1)
    with pytest.raises(FinishedSessionWarning), session("s", root=root):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session("s", root=root) as s:
            assert s.in_doubt() == []
            with pytest.raises(ResultNotStorableError):
                odd()
    assert RAN == ["odd", 1]


def test_unused_records_are_listed_after_the_log_is_sealed_and_free(root):
    with session("s", root=root) as s:
        tool(1)
        tool(2)
        crash(s)

    def run():
        with session("s", root=root):
            tool(1)
            tool(2)
            tool(3)
        with session("s", root=root):
            tool(1)

    with pytest.raises(FinishedSessionWarning):
        run()

    def shorter():
        with session("s", root=root, on_divergence="warn"):
            tool(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        with pytest.raises(ReplayDivergedWarning, match="without asking"):
            shorter()
        # It was closed all the same: it can be opened again.
        with session("s", root=root):
            assert [tool(n) for n in (1, 2, 3)] == [1, 2, 3]


def test_a_latched_failure_is_raised_rather_than_a_warning(root):
    with session("s", root=root) as s:
        tool(1)
        crash(s)

    def run():
        with session("s", root=root), pytest.raises(ReplayDivergedError):
            tool(2)

    with pytest.raises(ReplayDivergedError):
        run()
