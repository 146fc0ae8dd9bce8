"""Three decorators that make existing agent code survive a crash.

`checkpointed_llm`, `checkpointed_tool` and `step_boundary` record what an agent does in
an append-only log, intent first. ``with session(id):`` around the same code replays
what finished; ``with conversation(id):`` goes on from a transcript that the provider
accepts; a call that began and never ended is reported, never silently run again.
"""

from durable_agent._current import current_call, scope, tool_call_id
from durable_agent._ending import register_control_flow
from durable_agent._redaction import REDACTED, REDACTED_NAMES
from durable_agent._usage import Usage
from durable_agent._version import __version__
from durable_agent.decorators import checkpointed_llm, checkpointed_tool, step_boundary
from durable_agent.errors import (
    AmbiguousSessionError,
    ArgumentNotStorableError,
    CheckpointError,
    ContinuedSessionWarning,
    DecorationError,
    DurableError,
    DurableWarning,
    EqualCallsWarning,
    FinishedSessionWarning,
    LeaseLostError,
    LogConflictError,
    LogCorruptError,
    LogPoisonedError,
    LogUnsupportedError,
    NoSessionError,
    NoSessionWarning,
    OutcomeExistsError,
    OutcomeNotRecordedError,
    RecordedToolError,
    ReplayDivergedError,
    ReplayDivergedWarning,
    ResultNotStorableError,
    ResultNotStorableWarning,
    SessionBusyError,
    SessionClosedError,
    SessionExistsError,
    SessionForkedError,
    SessionIdError,
    SessionNotFoundError,
    SessionUseError,
    StoreError,
    ToolAbortedError,
    ToolNotStartedError,
    ToolOutcomeUnknownError,
    TranscriptError,
    TranscriptWarning,
    ValueNotRebuildableError,
    ValueNotStorableError,
)
from durable_agent.events import (
    ABORTED_BEFORE_DISPATCH,
    RESULT_NOT_STORABLE,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Event,
)
from durable_agent.outcomes import Call, Completed, NotApplied, Unknown
from durable_agent.policy import CheckpointPolicy
from durable_agent.session import Session
from durable_agent.sessions import (
    Inspection,
    configure,
    conversation,
    current_session,
    delete_session,
    inspect_session,
    list_sessions,
    open_conversation,
    open_session,
    session,
)
from durable_agent.transcript import Tokens
from durable_agent.values import register_type

__all__ = [
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


def load_ipython_extension(shell: object) -> None:
    """Give an IPython shell ``%durable``: what ``%load_ext durable_agent`` calls."""
    from durable_agent.integrations import ipython  # noqa: PLC0415 - only in notebooks

    ipython.load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Take ``%durable`` away, and close its session: ``%unload_ext durable_agent``."""
    from durable_agent.integrations import ipython  # noqa: PLC0415 - only in notebooks

    ipython.unload(shell)
