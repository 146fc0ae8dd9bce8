"""Kill an agent at the boundaries of its log, and see that nothing happens twice.

``pytest examples/test_my_agent.py`` tries a few places, spread evenly;
``pytest --durable-crash examples/test_my_agent.py`` tries every one.
(In a checkout that is not installed: ``pytest -p pytest_durable_agent ...``.)
"""

from pytest_durable_agent import CrashPoints


def test_a_killed_agent_does_nothing_twice(crash_points: CrashPoints) -> None:
    report = crash_points("my_agent.py").check()

    assert report.unharmed.effects == {"mail joan@example.com": 1}
    assert report.in_doubt == ()  # the verifier settles every call
    print(report)
