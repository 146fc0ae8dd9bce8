"""Exceptions as JSON: a flat list of errors that refer to one another by index.

The first is the error itself; the others are its causes, contexts and, of groups, its
members, wherever they hang. ``__new__`` of the builtin base makes each one again, then
its ``args``, the fields of its builtin base (``errno``, ``name``, ...) and its state
are set, without ``__init__``. Traceback objects are not recorded.

A *lenient* record (of an outcome) leaves out what cannot be stored: an attribute is
missing, an argument is its text, a type that cannot be found is its name and text. A
strict one (an exception that is a value) is complete, or refused.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from durable_agent._mark import unmarked
from durable_agent._value_code import DECODERS, KINDS, Decoder, Encoder
from durable_agent._value_foreign import (
    VALIDATION_ERROR,
    get_validation,
    put_http,
    put_validation,
)
from durable_agent._value_names import (
    ERRORS,
    class_of,
    demand_kind,
    kind_of,
    loaded,
    mro_of,
    name_of,
    refuse_to_store,
    solid_base,
    spec_of,
    unknown_kind,
)
from durable_agent._value_plain import dump
from durable_agent._value_state import set_state, state_of
from durable_agent.errors import RecordedToolError, ValueNotRebuildableError

if TYPE_CHECKING:
    from durable_agent._value_plain import Json

#: Errors of one record; a longer chain is cut (lenient) or refused.
_MAX_ERRORS: Final = 200
_BASE: Final = vars(BaseException)
_DESCRIPTORS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)
#: Recorded otherwise, or not at all.
_NOT_FIELDS: Final = frozenset({*_BASE, "__weakref__", "exceptions", "message"})


def put_error(error: BaseException, encoder: Encoder | None) -> Json:
    """Return ``$error``; lenient without an encoder. Lenient, it never raises."""
    found, links = _gather(error)
    if len(found) > _MAX_ERRORS:
        if encoder is not None:
            why = f"more than {_MAX_ERRORS} errors hang together"
            refuse_to_store(name_of(type(error)), why)
        found = found[:_MAX_ERRORS]
    entries = []
    for each, link in zip(found, links, strict=False):
        entry = _lenient(each) if encoder is None else _strict(each, encoder)
        for name, target in link.items():
            if type(target) is int and target >= len(found):
                continue
            entry[name] = target
        if any(i >= len(found) for i in link.get("members", ())):
            del entry["members"]
        entries.append(entry)
    return {"$error": entries}


def _gather(error: BaseException) -> tuple[list[BaseException], list[dict[str, Any]]]:
    """Return all errors that hang together, and each one's links as indexes."""
    found = [error]
    index = {id(error): 0}
    links: list[dict[str, Any]] = []

    def at(other: BaseException) -> int:
        if id(other) not in index:
            index[id(other)] = len(found)
            found.append(other)
        return index[id(other)]

    while len(links) < len(found) and len(links) <= _MAX_ERRORS:
        each = found[len(links)]
        link: dict[str, Any] = {}
        if isinstance(each, BaseExceptionGroup):
            members = vars(BaseExceptionGroup)["exceptions"].__get__(each)
            link["members"] = [at(member) for member in members]
        for name in ("__cause__", "__context__"):
            other = _BASE[name].__get__(each)
            if other is not None:
                link[name.strip("_")] = at(other)
        if _BASE["__suppress_context__"].__get__(each):
            link["suppress"] = True
        links.append(link)
    return found, links


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, or "" where that fails."""
    try:
        return "".join([str(error)])
    except Exception:  # noqa: BLE001 - user code
        return ""


def _fields_of(cls: type) -> dict[str, Any]:
    """Return the descriptors of the fields of the builtin bases, by name."""
    fields: dict[str, Any] = {}
    for klass in mro_of(cls):
        if klass in ERRORS:
            for name, descriptor in vars(klass).items():
                if type(descriptor) in _DESCRIPTORS and name not in _NOT_FIELDS:
                    fields.setdefault(name, descriptor)
    return fields


def _own_state(error: BaseException) -> dict[str, Any]:
    return unmarked(state_of(error))


def _field_values(error: BaseException) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, descriptor in _fields_of(type(error)).items():
        try:
            value = descriptor.__get__(error)
        except (AttributeError, TypeError):  # not set
            continue
        if value is not None:
            values[name] = value
    return values


def _strict(error: BaseException, encoder: Encoder) -> dict[str, Json]:
    cls = type(error)
    if kind_of(cls) not in {"error", "registered"}:
        unknown_kind(cls)
    entry: dict[str, Json] = {
        "type": spec_of(cls),
        "text": Encoder(encoder).run(text_of(error)),
    }
    if isinstance(error, BaseExceptionGroup):
        entry["message"] = Encoder(encoder).run(error.message)
    else:
        args = _BASE["args"].__get__(error)
        entry["args"] = [Encoder(encoder).run(each) for each in args]
    for part, values in (
        ("fields", _field_values(error)),
        ("state", _own_state(error)),
    ):
        if values:
            docs = {k: Encoder(encoder).run(v) for k, v in values.items()}
            entry[part] = list(docs.items())
    return entry


def _lenient(error: BaseException) -> dict[str, Json]:
    cls = type(error)
    entry: dict[str, Json] = {"type": name_of(cls), "text": _doc(text_of(error), "")}
    try:
        if cls is loaded(*VALIDATION_ERROR):
            entry["validation"] = put_validation(error, lambda v: _doc(v, None))
            return entry
        entry["type"] = spec_of(cls)
        if isinstance(error, BaseExceptionGroup):
            entry["message"] = _doc(error.message, "")
        else:
            entry["args"] = [_doc(a, a) for a in _BASE["args"].__get__(error)]
        parts = {"fields": _field_values(error), "state": _own_state(error)}
        for part, values in parts.items():
            docs = [(str(k), _doc(v, _LEFT_OUT)) for k, v in values.items()]
            entry[part] = [pair for pair in docs if pair[1] is not _LEFT_OUT]
        dump(entry)
    except Exception:  # noqa: BLE001 - the record of an error must not fail
        return {"type": name_of(cls), "text": _doc(text_of(error), "")}
    return entry


_LEFT_OUT: Final = object()


def _doc(value: Any, instead: Any) -> Json:
    """Return the JSON of a value, else ``_LEFT_OUT`` or the text of ``instead``."""
    try:
        tree = put_http(value, lambda v: Encoder().run(v))
        if tree is None:
            tree = Encoder().run(value)
        dump(tree)
    except Exception:  # noqa: BLE001 - user code
        if instead is _LEFT_OUT:
            return _LEFT_OUT
        return _text_doc(instead)
    return tree


def _text_doc(value: Any) -> Json:
    try:
        return Encoder().run("".join([str(value)]))
    except Exception:  # noqa: BLE001 - user code
        return ""


def get_error(entries: Json, *, lenient: bool) -> BaseException:
    """Rebuild the first error of ``$error`` with all that hangs on it.

    Lenient, an error that cannot be rebuilt is a `RecordedToolError`, and an attribute
    that cannot be rebuilt is left out.
    """
    return _Rebuilding(entries, lenient).error(0)


class _Rebuilding:
    def __init__(self, entries: list[dict[str, Json]], lenient: bool) -> None:
        self._entries = entries
        self._lenient = lenient
        self._made: dict[int, BaseException] = {}
        self._making: set[int] = set()

    def error(self, first: int) -> BaseException:
        todo = [first]
        linked: set[int] = set()
        while todo:
            index = todo.pop()
            if index in linked:
                continue
            linked.add(index)
            error = self._get(index)
            entry = self._entries[index]
            todo.extend(entry.get("members", ()))
            for name in ("cause", "context"):
                if name in entry:
                    _BASE[f"__{name}__"].__set__(error, self._get(entry[name]))
                    todo.append(entry[name])
            suppress = entry.get("suppress") is True
            _BASE["__suppress_context__"].__set__(error, suppress)
        return self._made[first]

    def _get(self, index: int) -> BaseException:
        if index not in self._made:
            entry = self._entries[index]
            try:
                self._made[index] = self._make(index, entry)
            except Exception as why:
                if not self._lenient:
                    raise
                self._made[index] = _recorded(entry, why)
        return self._made[index]

    def _make(self, index: int, entry: dict[str, Json]) -> BaseException:
        if index in self._making:
            raise ValueError("a group is a member of itself")
        if "validation" in entry:
            return get_validation(entry["validation"], Decoder().get)
        cls = class_of(entry["type"])
        demand_kind(cls, "error", "registered")
        error: BaseException
        if BaseExceptionGroup in mro_of(cls):
            self._making.add(index)
            members = [self._get(member) for member in entry["members"]]
            message = Decoder().get(entry["message"])
            error = BaseExceptionGroup.__new__(cls, message, members)
        else:
            base: Any = solid_base(cls)
            error = base.__new__(cls)
            args = (Decoder().get(doc) for doc in entry["args"])
            _BASE["args"].__set__(error, tuple(args))
        fields = _fields_of(cls)
        for name, value in self._values(entry, "fields"):
            if name in fields:
                fields[name].__set__(error, value)
        for name, value in self._values(entry, "state"):
            set_state(error, {name: value})
        return error

    def _values(self, entry: dict[str, Json], part: str) -> list[tuple[str, Any]]:
        values = []
        for name, doc in entry.get(part, ()):
            try:
                values.append((name, Decoder().get(doc)))
            except Exception:
                if not self._lenient:
                    raise
        return values


def _recorded(entry: dict[str, Json], why: Exception) -> RecordedToolError:
    spec = entry["type"]
    error = RecordedToolError(
        spec if type(spec) is str else str(spec), Decoder().get(entry["text"])
    )
    reason = why if isinstance(why, ValueNotRebuildableError) else type(why).__name__
    error.add_note(f"This error was recorded and is not rebuilt: {reason}")
    return error


KINDS["error"] = put_error
DECODERS["$error"] = lambda body, _: get_error(body, lenient=False)
