"""The public surface is a decision, not an accident of imports."""

from __future__ import annotations

import types

import durable_agent
from durable_agent import testing

EXPORTED = [
    "ABORTED_BEFORE_DISPATCH",
    "REDACTED",
    "REDACTED_NAMES",
    "RESULT_NOT_STORABLE",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "AmbiguousSessionError",
    "ArgumentNotStorableError",
    "Call",
    "CheckpointError",
    "CheckpointPolicy",
    "Completed",
    "ContinuedSessionWarning",
    "DecorationError",
    "DurableError",
    "DurableWarning",
    "EqualCallsWarning",
    "Event",
    "FinishedSessionWarning",
    "Inspection",
    "LeaseLostError",
    "LogConflictError",
    "LogCorruptError",
    "LogPoisonedError",
    "LogUnsupportedError",
    "NoSessionError",
    "NoSessionWarning",
    "NotApplied",
    "OutcomeExistsError",
    "OutcomeNotRecordedError",
    "RecordedToolError",
    "ReplayDivergedError",
    "ReplayDivergedWarning",
    "ResultNotStorableError",
    "ResultNotStorableWarning",
    "Session",
    "SessionBusyError",
    "SessionClosedError",
    "SessionExistsError",
    "SessionForkedError",
    "SessionIdError",
    "SessionNotFoundError",
    "SessionUseError",
    "StoreError",
    "Tokens",
    "ToolAbortedError",
    "ToolNotStartedError",
    "ToolOutcomeUnknownError",
    "TranscriptError",
    "TranscriptWarning",
    "Unknown",
    "Usage",
    "ValueNotRebuildableError",
    "ValueNotStorableError",
    "__version__",
    "checkpointed_llm",
    "checkpointed_tool",
    "configure",
    "conversation",
    "current_call",
    "current_session",
    "delete_session",
    "inspect_session",
    "list_sessions",
    "open_conversation",
    "open_session",
    "register_control_flow",
    "register_type",
    "scope",
    "session",
    "step_boundary",
    "tool_call_id",
]

#: What `durable_agent.testing` offers.
TESTING = [
    "CrashCase",
    "CrashReport",
    "CrashRun",
    "FakeLLM",
    "FakeLLMError",
    "MemoryLog",
    "MemoryReader",
    "MemoryStore",
    "Operation",
    "PowerCut",
    "SimulatedDisk",
    "StoreContract",
    "ToolCall",
    "crash_points",
    "effect",
    "happened",
]

#: What IPython looks for in the module; nobody imports it.
HOOKS = {"load_ipython_extension", "unload_ipython_extension"}


def test_the_public_names_are_these_and_no_others():
    assert durable_agent.__all__ == EXPORTED


def test_the_names_for_tests_are_these_and_no_others():
    assert testing.__all__ == TESTING
    assert [name for name in TESTING if not hasattr(testing, name)] == []


def test_every_public_name_is_there():
    missing = [name for name in EXPORTED if not hasattr(durable_agent, name)]

    assert missing == []


def test_nothing_public_is_left_out_of_all():
    """``from durable_agent import *`` and completion show the same names."""
    seen = {
        name
        for name, value in vars(durable_agent).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert seen - set(EXPORTED) == HOOKS


def test_public_names_are_sorted_constants_types_functions():
    """One order, so that two branches that add a name do not fight over the end."""

    def place(name):
        return (not name.isupper(), not name[0].isupper(), name)

    assert sorted(EXPORTED, key=place) == EXPORTED


def test_every_error_and_warning_is_of_one_family():
    """``except DurableError`` catches all that is raised on purpose."""
    kinds = [getattr(durable_agent, name) for name in EXPORTED]
    raised = [k for k in kinds if isinstance(k, type) and issubclass(k, Exception)]
    family = (durable_agent.DurableError, durable_agent.DurableWarning)

    assert len(raised) > 30
    assert [k for k in raised if not issubclass(k, family)] == []
