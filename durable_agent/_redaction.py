"""Secrets: what they are called, where they hide, and what is recorded instead.

A redacted value is recorded as ``{"$redacted":true}``, which reads back as `REDACTED`
and never as a value. Not even a hash is kept: of a short secret it would be the
secret, to whoever tries them all.

* In the arguments of a tool, members with the name of a secret are redacted at any
  depth, and what looks like a secret. Of a model request, only in parameters that
  are about the connection: messages are what the model is sent again.
* A secret that was redacted in this run is left out of later errors and requests.
* Texts of errors lose what looks like a secret, too. They may reach the next request,
  in the first run whole and in a replay without it: identities are therefore made as
  if such texts had been redacted.
* What a call returns is replayed, so it is recorded as it is.

Texts are searched as the bytes of their JSON: requests are large.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What secrets are called, in lower case and without anything between the words.
REDACTED_NAMES: Final = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "apitoken",
        "authorization",
        "authtoken",
        "bearertoken",
        "clientsecret",
        "idtoken",
        "passphrase",
        "passwd",
        "password",
        "privatekey",
        "proxyauthorization",
        "refreshtoken",
        "secret",
        "secretkey",
        "sessiontoken",
        "token",
        "xapikey",
    }
)
MARK: Final = b'{"$redacted":true}'
_TEXT: Final = b"<redacted>"
#: Values that are no secrets: they say that there is none.
_HARMLESS: Final = frozenset({b"null", b"true", b"false", b'""', b"{}", b"[]", MARK})
#: Shorter texts are no secret that can be looked for in other texts.
_LEAST_CHARS: Final = 8
#: Secrets of one session that are looked for in its errors; the newest.
_MOST: Final = 256
#: Parameters of a model request that are about the connection, not the conversation.
_CONNECTION: Final = re.compile(
    r"header|query|extra_body|auth|config|options|kwargs|params|client", re.IGNORECASE
)
#: What looks like a secret: its kind's signs, one of which is in the bytes; what it
#: looks like; what stays of it.
_PATTERNS: Final[tuple[tuple[tuple[bytes, ...], re.Pattern[bytes], bytes], ...]] = (
    ((b"://",), re.compile(rb"://[^/\s\"\\'<>@]{1,256}@"), b"://<redacted>@"),
    (
        (b"key=", b"token=", b"secret=", b"sword=", b"wd=", b"sig=", b"ture="),
        re.compile(
            rb"(?i)([?&;](?:x-api-key|api[-_]?key|access[-_]?key|(?:client[-_]?)?secret|"
            rb"(?:(?:access|auth|api|id|refresh|session|x-amz-security)[-_]?)?token|"
            rb"password|passwd|pwd|sig|(?:x-(?:amz|goog)-)?signature)=)[^&\s\"\\'<>#;]+"
        ),
        rb"\1<redacted>",
    ),
    (
        (b"earer ", b"asic ", b"EARER "),
        re.compile(rb"(?i)\b(bearer|basic) (?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}"),
        rb"\1 <redacted>",
    ),
    (
        (b"sk-", b"sk_", b"pk_", b"rk_", b"gh", b"glpat-", b"hf_", b"xox", b"AKIA",
         b"ASIA", b"AIza", b"ya29."),
        re.compile(
            rb"\b(?:[spr]k[-_]|gh[pousr]_|github_pat_|glpat-|hf_|xox[abprs]-|AKIA|ASIA|"
            rb"AIza|ya29\.)[\w-]{16,}"
        ),
        b"<redacted>",
    ),
)  # fmt: skip
_NOT_LETTERS: Final = re.compile(r"[^a-z0-9]")


class Redacted:
    """What stands where a value was redacted. There is one: `REDACTED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<redacted>"

    def __reduce__(self) -> str:
        return "REDACTED"


REDACTED: Final = Redacted()


@functools.lru_cache(4096)
def plain_name(name: str) -> str:
    """Return a name in lower case without what stands between its words."""
    return _NOT_LETTERS.sub("", name.lower())


def names_of(names: Iterable[str]) -> frozenset[str]:
    """Return names as they are compared. Raises `TypeError` for a single string."""
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        msg = f"redact_names={names!r} is no collection of names"
        raise TypeError(msg)
    return frozenset(map(plain_name, names))


class Redaction:
    """What one session redacts, and the secrets that it has seen; in memory only."""

    def __init__(self) -> None:
        #: Each as it stands in JSON; the newest last.
        self._seen: dict[bytes, None] = {}

    def arguments(
        self,
        kind: str,
        encoded: Mapping[str, bytes],
        explicit: frozenset[str],
        names: frozenset[str],
    ) -> dict[str, bytes]:
        """Return encoded arguments with what is secret in them redacted.

        ``explicit`` parameters are, whatever they are called and hold.
        """
        found: dict[str, bytes] = {}
        for parameter, raw in encoded.items():
            named = plain_name(parameter) in names and raw not in _HARMLESS
            if named or parameter in explicit:
                self._note(orjson.loads(raw))
                found[parameter] = MARK
            elif kind == "tool" or _CONNECTION.search(parameter):
                found[parameter] = without_secrets(self._members(raw, names))
            else:
                found[parameter] = raw
        return {parameter: self._known(raw) for parameter, raw in found.items()}

    def error(self, raw: bytes, names: frozenset[str]) -> bytes:
        """Return an encoded error without the secrets in its texts and fields."""
        return without_secrets(self._known(self._members(raw, names)))

    def _known(self, raw: bytes) -> bytes:
        for secret in list(self._seen):
            if secret in raw:
                raw = raw.replace(secret, _TEXT)
        return raw

    def _members(self, raw: bytes, names: frozenset[str]) -> bytes:
        """Redact members of objects, and pairs, that have the name of a secret."""
        if raw[:1] not in {b"{", b"["} or not _looks_at(names).search(raw):
            return raw
        top = [orjson.loads(raw)]
        todo: list[Any] = [top]
        while todo:
            node = todo.pop()
            if isinstance(node, list):
                if len(node) == 2 and isinstance(node[0], str):  # noqa: PLR2004 - a pair
                    node[1] = self._kept(node[0], node[1], names)
                todo += node
            elif isinstance(node, dict):
                for name, value in node.items():
                    node[name] = self._kept(name, value, names)
                todo += node.values()
        return orjson.dumps(top[0])

    def _kept(self, name: str, value: Any, names: frozenset[str]) -> Any:
        """Return what is recorded of a member."""
        if plain_name(name) not in names or orjson.dumps(value) in _HARMLESS:
            return value
        self._note(value)
        return {"$redacted": True}

    def _note(self, value: Any) -> None:
        """Remember the texts of a secret, to look for them elsewhere."""
        todo = [value]
        while todo:
            part = todo.pop()
            if isinstance(part, str) and len(part) >= _LEAST_CHARS:
                text = orjson.dumps(part)[1:-1]
                self._seen.pop(text, None)
                self._seen[text] = None
                if len(self._seen) > _MOST:
                    del self._seen[next(iter(self._seen))]
            elif isinstance(part, list):
                todo += part
            elif isinstance(part, dict):
                todo += part.values()


def without_secrets(raw: bytes) -> bytes:
    """Return JSON with what looks like a secret in its texts redacted; idempotent."""
    for signs, pattern, instead in _PATTERNS:
        if any(sign in raw for sign in signs):
            raw = pattern.sub(instead, raw)
    return raw


@functools.lru_cache(16)
def _looks_at(names: frozenset[str]) -> re.Pattern[bytes]:
    """Return what finds any of these names in bytes, whatever is between words."""
    if not names:
        return re.compile(rb"(?!)")
    between = '[^a-zA-Z0-9"]?'
    found = "|".join(between.join(name) for name in sorted(names))
    return re.compile(f'"[^"]?(?:{found})[^"]?"'.encode(), re.IGNORECASE)
