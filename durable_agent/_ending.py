"""What came of a body, recorded before its caller has it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import frozen

from durable_agent import events as ev
from durable_agent import values
from durable_agent._carriers import encoded
from durable_agent._claims import answered
from durable_agent._current import SETTINGS
from durable_agent._frameworks import control_flow, in_doubt, told
from durable_agent._mark import mark
from durable_agent._requests import Barrier, Eager, HandOut
from durable_agent.errors import (
    DurableError,
    OutcomeNotRecordedError,
    RecordedToolError,
    ResultNotStorableWarning,
    TranscriptWarning,
)
from durable_agent.recovery import CANCEL_CAUSE, ERROR_CAUSE, PAUSE_CAUSE

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from durable_agent._flow import Flow
    from durable_agent._requests import Request

#: Why a stream's outcome is not all of it: its consumer left it.
PARTIAL_CAUSE: Final = "partial"
#: Exceptions by which frameworks pause a call; see ``register_control_flow``.
_CONTROL_FLOW: Final[list[type[BaseException]]] = []


def register_control_flow(cls: type[BaseException]) -> None:
    """Say that an exception of this type pauses a call and is no outcome of it.

    It passes unchanged. The call is *suspended*: asked for again, it runs again from
    its start, and what it did below is answered from the log. A pause that the code
    came back from in the same run, by asking again, is raised again on replay, without
    running.
    """
    if not issubclass(cls, BaseException):
        msg = f"register_control_flow takes an exception type, not {cls!r}"
        raise TypeError(msg)
    if cls not in _CONTROL_FLOW:
        _CONTROL_FLOW.append(cls)


def is_control_flow(error: BaseException) -> bool:
    """Whether an exception is a framework's pause."""
    return isinstance(error, (*_CONTROL_FLOW, *control_flow()))


def keeps_place(error: BaseException | None) -> bool:
    """Whether what was paused goes on in its middle, from a state of its own."""
    return bool(getattr(type(error), "__durable_keeps_place__", False))


@frozen
class Packed:
    """An outcome ready to be appended."""

    raw: bytes
    meta: dict[str, Any]
    value: Any = None
    error: BaseException | None = None
    #: What the caller is warned of once the outcome is recorded.
    warning: str = ""


def pack_value(
    flow: Flow,
    value: Any,
    returned_as: str = "",
    carrier: Mapping[str, Any] | None = None,
) -> Packed:
    """Encode a value; one that cannot be stored becomes RESULT_NOT_STORABLE.

    ``carrier`` is what it was handed over in.
    """
    extra = _duration(flow)
    warning = ""
    try:
        raw = b'{"value":' + values.encode(value)
        meta: dict[str, Any] = {"status": "value"}
    except Exception as error:  # noqa: BLE001 - the state of users' objects is read
        warning = f"what {flow.name} returned cannot be stored: {error}"
        why = orjson.dumps(str(error).encode("utf-8", "replace").decode())
        raw = b'{"code":"RESULT_NOT_STORABLE","why":' + why
        meta = {"status": "code", "code": ev.RESULT_NOT_STORABLE}
    else:
        raw += encoded(carrier or {}) + rendered(flow, value)
    if returned_as:
        meta["as"] = returned_as
    return Packed(raw + extra, meta, value=value, warning=warning)


def rendered(flow: Flow, value: Any) -> bytes:
    """Return the member that says how ``render=`` shows a value; empty without it.

    A value is not lost because it cannot be shown: then there is a warning.
    """
    render = flow.spec.render
    if render is None:
        return b""
    try:
        text = render(value)
        if isinstance(text, str):
            return b',"text":' + values.encode(str(text))
        problem = f"it returned {type(text).__name__}, no text"
    except Exception as error:  # noqa: BLE001 - user code
        problem = repr(error)
    flow.core.warn(
        TranscriptWarning,
        f"render= of {flow.name} failed ({problem}); the model is shown the value as "
        "JSON",
    )
    return b""


def pack_error(
    flow: Flow, error: BaseException, returned_as: str = ""
) -> Packed | None:
    """Encode what a body raised; None: our own errors are never outcomes."""
    if isinstance(error, DurableError) and not isinstance(error, RecordedToolError):
        return None
    extra = _duration(flow)
    if is_control_flow(error):
        raw, meta = b'{"suspended":true', {"status": "suspended"}
        tells = isinstance(error, told())
        if tells or isinstance(error, tuple(_CONTROL_FLOW)):
            raw += b',"error":' + _error(flow, error)
            meta["cause"] = ERROR_CAUSE if tells else PAUSE_CAUSE
        return Packed(raw + extra, meta, error=error)
    if isinstance(error, asyncio.CancelledError):
        code = ev.TOOL_OUTCOME_UNKNOWN
        meta = {"status": "code", "code": code, "cause": CANCEL_CAUSE}
        raw = b'{"code":"TOOL_OUTCOME_UNKNOWN","cause":"cancel"' + extra
        return Packed(raw, meta, error=error)
    raw = b'"error":' + _error(flow, error) + extra
    if _unknown_after(flow, error):
        meta = {"status": "code", "code": ev.TOOL_OUTCOME_UNKNOWN, "cause": ERROR_CAUSE}
        raw = b'{"code":"TOOL_OUTCOME_UNKNOWN",' + raw
    else:
        meta = {"status": "error"}
        raw = b"{" + raw
    if returned_as:
        meta["as"] = returned_as
    return Packed(raw, meta, error=error)


def _error(flow: Flow, error: BaseException) -> bytes:
    """Encode an error without the secrets in it."""
    names = SETTINGS.redact_names
    return flow.core.redaction.error(values.encode_error(error), names)


def _unknown_after(flow: Flow, error: BaseException) -> bool:
    if not isinstance(error, Exception):
        return True
    if flow.spec.kind == "llm" or flow.effect == "read_only":
        return False
    if isinstance(error, flow.spec.unknown_on):
        return True
    return "unknown_on" not in flow.spec.given and in_doubt(error)


def _duration(flow: Flow) -> bytes:
    return b',"ms":%.3f}' % ((time.monotonic() - flow.started) * 1000)


def record(flow: Flow, packed: Packed | None) -> Generator[Request, Any, None]:
    """Append the outcome; return when its caller may have it.

    Raises:
        OutcomeNotRecordedError: it could not be appended; it carries the outcome.
    """
    core, slot = flow.core, flow.slot
    flow.enclosing.done = True
    core.in_flight -= 1
    if packed is None or slot is None:
        core.turns.moved()
        return
    kind = ev.LLM_RESPONSE if flow.spec.kind == "llm" else ev.TOOL_RESULT
    if packed.error is not None:
        mark(packed.error, slot)
    try:
        seq = core.append_outcome(slot, kind, packed.raw, packed.meta)
    except (DurableError, OSError) as error:
        raise _not_recorded(flow, packed, error) from error
    if packed.meta["status"] == "suspended" and not keeps_place(packed.error):
        # Made again, its children replay.
        core.replay.rewind(flow.enclosing.children)
    answered(core, slot)
    durable = flow.spec.durable_outcome
    if durable is None:
        durable = core.options.policy.durable_outcomes
    core.stats["ran_" + slot.kind] += 1
    try:
        yield Barrier(seq, finish=True) if durable else Eager(seq, finish=True)
        yield HandOut(seq)
    except (DurableError, OSError) as error:
        raise _not_recorded(flow, packed, error) from error
    except BaseException:
        if packed.meta.get("cause") != PARTIAL_CAUSE:
            # Whoever left a stream waits for nothing of it.
            core.not_handed(slot, seq)
        raise
    if packed.warning:
        core.warn(ResultNotStorableWarning, packed.warning)


def _not_recorded(
    flow: Flow, packed: Packed, error: BaseException
) -> OutcomeNotRecordedError:
    failed = OutcomeNotRecordedError(
        f"{flow.name} did run, and its outcome could not be recorded: {error}",
        session=flow.core.id,
        advice="Do not run it again blindly; a later run finds it in doubt.",
        file=getattr(error, "file", None),
        offset=getattr(error, "offset", None),
        seq=getattr(error, "seq", None),
        value=packed.value,
        error=packed.error,
    )
    flow.core.fail(failed)
    return failed
