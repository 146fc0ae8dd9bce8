"""What makes two calls the same: name, arguments, key, scope; by content.

All of it is computed before the body can change its arguments.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final, overload

import orjson
from attrs import frozen

from durable_agent import values
from durable_agent._redaction import without_secrets
from durable_agent.errors import ArgumentNotStorableError, ValueNotStorableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Bytes of a call id: unique within one session.
_CALL_BYTES: Final = 10
#: Bytes of an identity, and of an idempotency key: unique everywhere.
_KEY_BYTES: Final = 16
#: Longer provider ids are hashed, so that heads stay short.
_ID_CHARS: Final = 120
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@frozen
class Identity:
    """The identity of a call and its arguments as they are recorded."""

    key: str
    #: Parameter -> encoded value, in the order of the signature.
    arguments: Mapping[str, bytes]
    keyed: bool = False

    @property
    def raw(self) -> bytes:
        """The arguments as one JSON object."""
        members = (orjson.dumps(n) + b":" + raw for n, raw in self.arguments.items())
        return b"{" + b",".join(members) + b"}"


def new_uid() -> str:
    """Return a fresh random id for one session's life."""
    return secrets.token_hex(8)


@overload
def short_id(provider_id: str) -> str: ...
@overload
def short_id(provider_id: None) -> None: ...
def short_id(provider_id: str | None) -> str | None:
    """Return a provider's id in a form that fits a head.

    Long ids, and those with lone surrogates, become a hash.
    """
    if provider_id is None:
        return None
    if len(provider_id) <= _ID_CHARS and not _SURROGATES.search(provider_id):
        return provider_id
    hashed = hashlib.blake2b(
        provider_id.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES
    )
    return "h:" + hashed.hexdigest()


def encode_arguments(
    bound: Mapping[str, Any], *, ignore: Iterable[str], functions: bool = False
) -> dict[str, bytes]:
    """Encode the bound arguments that are recorded; see `values.encode`.

    Raises:
        ArgumentNotStorableError: naming the parameter, before anything ran.
    """
    ignored = frozenset(ignore)
    encoded: dict[str, bytes] = {}
    for name, value in bound.items():
        if name in ignored:
            continue
        try:
            encoded[name] = values.encode(value, functions=functions)
        except ValueNotStorableError as error:
            raise ArgumentNotStorableError(
                f"argument {name!r} cannot be recorded: {error}",
                advice=f"Leave it out with ignore=({name!r},), or register its type.",
                path=name + error.path,
                type_name=error.type_name,
            ) from error
    return encoded


def key_value(key: Any, bound: Mapping[str, Any], name: str) -> Any:
    """Return the value of ``key=``: of the parameter it names, or what it returns."""
    if not isinstance(key, str):
        return key(bound)
    if key not in bound:
        msg = f"{name} is told apart by its argument {key!r} (key=), which is missing"
        raise TypeError(msg)
    return bound[key]


def identify(
    kind: str,
    name: str,
    arguments: Mapping[str, bytes],
    *,
    scope: str = "",
    key: Any = None,
    keyed: bool = False,
) -> Identity:
    """Return the identity of a call of this function with these arguments.

    With ``keyed`` the key takes the place of the arguments.
    """
    hashed = hashlib.blake2b(digest_size=_KEY_BYTES)
    for part in (kind, name, scope):
        _feed(hashed, part.encode("utf-8", "surrogatepass"))
    if keyed:
        _feed(hashed, b"key")
        _feed(hashed, values.canonical(_encode_key(name, key)))
    else:
        for parameter in sorted(arguments):
            _feed(hashed, parameter.encode("utf-8", "surrogatepass"))
            # As if its texts were an error's that was recorded, and came back.
            _feed(hashed, values.canonical(without_secrets(arguments[parameter])))
    return Identity(hashed.hexdigest(), arguments, keyed)


def _encode_key(name: str, key: Any) -> bytes:
    try:
        return values.encode(key)
    except ValueNotStorableError as error:
        raise ArgumentNotStorableError(
            f"what key= of {name} gave cannot be recorded: {error}",
            advice="Return a string or number that names the call.",
            path="key" + error.path,
            type_name=error.type_name,
        ) from error


def _feed(hashed: Any, part: bytes) -> None:
    hashed.update(len(part).to_bytes(8, "little"))
    hashed.update(part)


def call_id(
    parent: str | None, key: str, resp: str | None, tcid: str | None, n: int
) -> str:
    """Return the id of the n-th call of an identity at its place in the session.

    It depends on nothing else, so a call whose intent a power cut took gets the same
    id, and with it the same idempotency key, when it is made again.
    """
    hashed = hashlib.blake2b(digest_size=_CALL_BYTES)
    for part in (parent or "", key, resp or "", tcid or "", str(n)):
        _feed(hashed, part.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def idempotency_key(uid: str, call: str) -> str:
    """Return the stable value to pass outside for a call."""
    hashed = hashlib.blake2b(digest_size=_KEY_BYTES)
    _feed(hashed, uid.encode())
    _feed(hashed, call.encode())
    return hashed.hexdigest()


def same_arguments(
    recorded: Mapping[str, Any], now: Mapping[str, bytes], at_default: frozenset[str]
) -> bool:
    """Whether a call is the recorded one but for parameters that came with a default.

    ``recorded`` is the parsed JSON of the recorded arguments. A parameter absent from
    it must be at its default now; a recorded one must still be there and equal.
    """
    for name, value in recorded.items():
        if name not in now:
            return False
        old = values.canonical(orjson.dumps(value))
        if old != values.canonical(now[name]):
            return False
    return all(name in recorded or name in at_default for name in now)


def first_difference(
    recorded: Any, now: Any, path: str = ""
) -> tuple[str, Any, Any] | None:
    """Return the first place where two JSON values differ: path and both values."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in [*recorded, *(n for n in now if n not in recorded)]:
            where = f"{path}.{name}" if path else str(name)
            if name not in recorded or name not in now:
                absent = "(absent)"
                return where, recorded.get(name, absent), now.get(name, absent)
            found = first_difference(recorded[name], now[name], where)
            if found is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(recorded, now, strict=False)):
            found = first_difference(old, new, f"{path}[{index}]")
            if found is not None:
                return found
        if len(recorded) != len(now):
            return f"{path}.length", len(recorded), len(now)
        return None
    if type(recorded) is not type(now) or recorded != now:
        return path, recorded, now
    return None
