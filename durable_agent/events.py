"""Events: the vocabulary, the format's version, and the frozen facts.

An event has a *head* (``seq``, ``time``, ``type``, ``call``, ``key``, ``meta``) that
is short and never holds a payload, and ``raw``, its payload as JSON bytes. A log is
opened from heads alone.

Types of this package (an unknown one without a ``/`` of an application's own
namespace makes a log unsupported):

=================  ====================================================================
``session/start``  seq 0; id, uid, created, metadata, parent of a fork or child
``run/start``      meta: ``epoch``, ``resume``, ``intents`` (whether they are durable
                   before bodies run); pid, host, versions
``run/end``        meta: ``ok``, ``fatal`` (pairs of call and attempt), ``visit`` (no
                   code asked for anything); the seal
``step/start``     meta: ``name``, ``n``, ``parent``
``step/end``       the same, and ``ok``
``llm/request``    an intent; see below
``llm/chunk``      meta: ``attempt``, ``n``: a packed batch of a stream's chunks
``llm/response``   an outcome; see below
``tool/call``      an intent
``tool/chunk``     as ``llm/chunk``, of a tool that is a generator
``tool/result``    an outcome
``tool/resolve``   an outcome given by a person
``value``          ``Session.record``: intent and outcome in one
``recovery``       what opening cut and closed
=================  ====================================================================

``call`` is the call id and ``key`` the hash of the call's identity. ``meta`` is a
flat object of short facts. Of an intent: ``name``, ``attempt``, ``again`` ("rerun":
takes the place of an earlier attempt; "retry": the code asked once more), ``parent``,
``resp`` and ``tcid`` (the tool call it answers), ``effect``, ``keyed``, ``detached``,
``nested``, ``side`` (kept out of transcripts), ``extends`` (the first seq of the
model request whose conversation this one goes on with). Of an outcome: ``attempt``,
``status`` ("value", "error", "code", "suspended", "not_applied"), ``code``, ``cause``,
``as`` (what a function handed back, outermost first, joined by "-": "awaitable"; a
context manager, "manager" or "amanager"; an SDK's response, "raw"; and a stream,
"generator", "agenerator", "stream", "astream" or, for both loops, "either"). Of any
event: ``waves`` (where it was not one by one in the order of seq: the outcomes handed
out since the last event, in groups that were handed out together) and ``unhanded``
(outcomes whose callers were cancelled before they had them).

The payload of an intent has ``function`` (its short name), ``idempotency_key``,
``tool_call_id`` (the provider's, or null) and ``args``: parameter to encoded value, see
``values``. Beside an outcome's ``value`` or ``stream`` may stand ``carrier``: names of
the classes that it was handed over in, and a view of the HTTP response.

Edited requests
===============

A request repeats the conversation before it, so only what is new is written, and the
rest is named. The payload of such a request has one member more, before ``args``::

    {"function":"ask","idempotency_key":"…","tool_call_id":null,
     "edit":{"base":12,"crc":"9a8b7c6d"},
     "args":{"model":"m","messages":{"$edit":[{"$keep":[0,41]},
       {"role":"assistant","content":{"$from":[14,"value","content"]}},
       {"role":"user","content":"What I asked next"}]}}}

``base`` is the seq of an earlier request, null for none; it may be an edit too. ``crc``
is the CRC-32 (zlib, 8 lower-case hex digits) of the whole arguments as JSON: UTF-8, no
blanks, members in order. Within ``args``, and only if there is ``edit``, these objects
with one member stand for something else:

``{"$edit": [...]}``
    a list. Of its items, ``{"$keep": [a, b]}`` stands for the items a to b - 1 of the
    list at this same place in the base's whole arguments; the others are new.
``{"$part": [key, ...]}``
    what is found in the base's whole arguments by these keys and indexes.
``{"$from": [seq, key, ...]}``
    what is found in the payload of an earlier event, an outcome or a stream's chunks.
``{"$text": [form, seq, key, ...]}``
    the JSON text of that, as Python's ``json.dumps`` writes it: ``form`` is "json" or
    "compact" (separators without blanks), with "-utf8" if other than ASCII characters
    are not escaped.
``{"$join": {"chunks": [[seq, a, b], ...], "path": [key, ...]}}``
    strings joined: in each event's ``chunks``, of those from a to b, both included,
    the one found at the path.

Nothing else is special: values are encoded so that keys of users never begin with
``$`` (see ``values``), and a request that holds one of these keys all the same is
stored whole. Objects keep the order of their members: the whole arguments come back
byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from attrs import field, frozen

from durable_agent._shapes import check_payload
from durable_agent.errors import LogCorruptError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The major version of the log format; a reader refuses a higher one.
FORMAT: Final = 1

SESSION_START: Final = "session/start"
RUN_START: Final = "run/start"
RUN_END: Final = "run/end"
STEP_START: Final = "step/start"
STEP_END: Final = "step/end"
LLM_REQUEST: Final = "llm/request"
LLM_CHUNK: Final = "llm/chunk"
LLM_RESPONSE: Final = "llm/response"
TOOL_CALL: Final = "tool/call"
TOOL_CHUNK: Final = "tool/chunk"
TOOL_RESULT: Final = "tool/result"
TOOL_RESOLVE: Final = "tool/resolve"
VALUE: Final = "value"
RECOVERY: Final = "recovery"

OURS: Final = frozenset(
    {
        SESSION_START,
        RUN_START,
        RUN_END,
        STEP_START,
        STEP_END,
        LLM_REQUEST,
        LLM_CHUNK,
        LLM_RESPONSE,
        TOOL_CALL,
        TOOL_CHUNK,
        TOOL_RESULT,
        TOOL_RESOLVE,
        VALUE,
        RECOVERY,
    }
)
#: First parts of type names that belong to this package; an application's events
#: use a namespace of their own, and readers may ignore those.
RESERVED_SPACES: Final = frozenset(
    {"session", "run", "step", "llm", "tool", "value", "recovery"}
)

#: An intent is durable, no outcome is recorded.
TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
#: The model asked for it, no intent was recorded.
TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
#: Cancelled while its checkpoint was pending; the body did not run.
ABORTED_BEFORE_DISPATCH: Final = "ABORTED_BEFORE_DISPATCH"
#: It completed; its value could not be stored.
RESULT_NOT_STORABLE: Final = "RESULT_NOT_STORABLE"

_NO_META: Final[dict[str, Any]] = {}


class Head(NamedTuple):
    """An event without its payload. Unknown head members are ignored."""

    seq: int
    time: int
    type: str
    call: str | None
    key: str | None
    meta: Mapping[str, Any]


@frozen
class Event:
    """One immutable fact of a log. ``time`` is in ns since the epoch, information only.

    ``raw`` is the payload exactly as it was appended (JSON, UTF-8).
    """

    seq: int
    time: int
    type: str
    raw: bytes = b"null"
    call: str | None = None
    key: str | None = None
    meta: Mapping[str, Any] = field(factory=dict)

    @property
    def data(self) -> Any:
        """The payload as plain JSON; values in it are still type-tagged.

        Raises `LogCorruptError` for one that no writer of ours made.
        """
        try:
            data = orjson.loads(self.raw)
        except orjson.JSONDecodeError as error:
            raise LogCorruptError(
                f"The payload of an event is no JSON: {error}.", seq=self.seq
            ) from error
        check_payload(self.seq, self.type, data)
        return data

    @property
    def head(self) -> Head:
        """The event without its payload."""
        return Head(self.seq, self.time, self.type, self.call, self.key, self.meta)


class Draft(NamedTuple):
    """An event before the store gave it ``seq`` and ``time``. ``raw`` is JSON."""

    type: str
    raw: bytes = b"null"
    call: str | None = None
    key: str | None = None
    meta: Mapping[str, Any] = _NO_META


def is_known(type_: str) -> bool:
    """Whether a reader may resume past an event of this type.

    Ours are known one by one; an application's own namespace may be ignored.
    """
    if type_ in OURS:
        return True
    space, slash, name = type_.partition("/")
    return bool(slash and name) and space not in RESERVED_SPACES
