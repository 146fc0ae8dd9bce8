"""What the heads and payloads of this package's events look like.

A line with a good checksum may still have been made by somebody else. What is read of
it is checked once, here, so that whoever uses an event need not: a head when a log is
opened, a payload when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent.errors import LogCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent.events import Head

_NONE: Final = type(None)
#: Of each member of ``meta``: the types it may have.
_META: Final[Mapping[str, tuple[type, ...]]] = {
    "again": (str,),
    "as": (str,),
    "attempt": (int,),
    "cause": (str,),
    "code": (str, _NONE),
    "detached": (bool,),
    "effect": (str, _NONE),
    "epoch": (int,),
    "extends": (int,),
    "fatal": (list,),
    "intents": (bool,),
    "keyed": (bool,),
    "n": (int,),
    "name": (str,),
    "nested": (bool,),
    "ok": (bool,),
    "parent": (str, _NONE),
    "resp": (str, _NONE),
    "resume": (str,),
    "side": (bool,),
    "status": (str,),
    "tcid": (str, _NONE),
    "uids": (list,),
    "unhanded": (list,),
    "visit": (bool,),
    "waves": (list,),
}
#: Of each type of event: what its ``meta`` cannot do without.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "session/start": ("uids",),
    "run/start": ("epoch",),
    "run/end": ("ok",),
    "step/start": ("name", "n"),
    "step/end": ("name", "n"),
    "llm/request": ("name", "attempt"),
    "tool/call": ("name", "attempt"),
    "llm/chunk": ("attempt",),
    "tool/chunk": ("attempt",),
    "llm/response": ("status",),
    "tool/result": ("status",),
    "tool/resolve": ("status", "attempt"),
    "value": ("name",),
    "recovery": (),
}
#: Events that are about one call.
_OF_CALLS: Final = frozenset({"llm/request", "tool/call", "llm/chunk", "tool/chunk"})


def check_head(head: Head) -> None:
    """Raise `LogCorruptError` for a head that no writer of ours made."""
    needed = _NEEDED.get(head.type)
    if needed is None:
        return
    meta = head.meta
    for name in needed:
        if name not in meta:
            _refuse(head.seq, head.type, f"its meta has no {name!r}")
    for name, value in meta.items():
        if type(value) not in _META.get(name, (type(value),)):
            _refuse(head.seq, head.type, f"its {name!r} is a {type(value).__name__}")
        if type(value) is list and not _LISTS[name](value):
            _refuse(head.seq, head.type, f"its {name!r} has other items")
    if head.call is None:
        if head.type in _OF_CALLS:
            _refuse(head.seq, head.type, "it names no call")
        if head.type.endswith(("/result", "/response")) and not {"resp", "tcid"} <= {
            *meta
        }:
            _refuse(head.seq, head.type, "it names no call")
    elif head.type.endswith(("/result", "/response")) and "attempt" not in meta:
        _refuse(head.seq, head.type, "its meta has no 'attempt'")


def _seqs(value: list[Any]) -> bool:
    return all(type(seq) is int for seq in value)


def _pairs(first: type, second: type) -> Callable[[list[Any]], bool]:
    def are_pairs(value: list[Any]) -> bool:
        return all(
            type(pair) is list and [type(part) for part in pair] == [first, second]
            for pair in value
        )

    return are_pairs


def _waves(value: list[Any]) -> bool:
    return all(type(group) is list and _seqs(group) for group in value)


_LISTS: Final[Mapping[str, Callable[[list[Any]], bool]]] = {
    "fatal": _pairs(str, int),
    "uids": _pairs(int, str),
    "unhanded": _seqs,
    "waves": _waves,
}


def check_payload(seq: int, type_: str, data: Any) -> None:
    """Raise `LogCorruptError` for a payload that no writer of ours made."""
    check = _PAYLOADS.get(type_)
    problem = None if check is None else check(data)
    if problem is not None:
        _refuse(seq, type_, problem)


def _intent(data: Any) -> str | None:
    if type(data) is not dict or type(data.get("args")) is not dict:
        return "it has no arguments"
    for name, kinds in _INTENT.items():
        if type(data.get(name)) not in kinds:
            return f"its {name!r} is a {type(data.get(name)).__name__}"
    return None  # what is edited is checked against its base, where it is read


_INTENT: Final[Mapping[str, tuple[type, ...]]] = {
    "function": (str,),
    "idempotency_key": (str,),
    "tool_call_id": (str, _NONE),
}


def _chunks(data: Any) -> str | None:
    if type(data) is not dict or type(data.get("chunks")) is not list:
        return "it has no chunks"
    return None


def _outcome(data: Any) -> str | None:
    if type(data) is not dict:
        return "it is no object"
    stream = data.get("stream")
    if "stream" in data and (
        type(stream) is not dict or type(stream.get("end")) is not str
    ):
        return "its stream has no end"
    if stream is not None and stream["end"] == "error" and "error" not in data:
        return "its stream ended by no error"
    for name in ("code", "cause"):
        if name in data and type(data[name]) is not str:
            return f"its {name!r} is no text"
    return None


def _object(data: Any) -> str | None:
    return None if type(data) is dict else "it is no object"


def _value(data: Any) -> str | None:
    return None if type(data) is dict and "value" in data else "it has no value"


_PAYLOADS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "llm/request": _intent,
    "tool/call": _intent,
    "llm/chunk": _chunks,
    "tool/chunk": _chunks,
    "llm/response": _outcome,
    "tool/result": _outcome,
    "tool/resolve": _outcome,
    "session/start": _object,
    "value": _value,
}


def _refuse(seq: int, type_: str, why: str) -> None:
    raise LogCorruptError(
        f"An event of type {type_} is none that this package wrote: {why}.",
        seq=seq,
        advice="Nothing was changed; restore the file from a copy, or salvage it.",
    )
