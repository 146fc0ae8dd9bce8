"""Session ids as directory names.

The encoding is injective, safe on file systems that fold case or Unicode, one path
component of at most 255 bytes, and readable for the ids people choose:

* ``a-z``, ``0-9``, ``-``, ``_`` and ``.`` within the id stand for themselves; every
  other byte of its UTF-8 form is ``%`` and two lower-case hex digits. So are dots at
  either end, and the first letter of a name that Windows reserves (``con``,
  ``nul.txt``).
* A result over 150 bytes is cut to 80 and followed by ``%-`` and the SHA-256 of the
  id in hex. A plain result never holds ``%-``, so the two kinds cannot meet.

The header of every segment holds the id itself, and it must match.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_to_bytes

from durable_agent.errors import SessionIdError

#: Leaves room for the prefix and suffix of a directory that is being deleted.
_LONGEST: Final = 150
_KEPT: Final = 80
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_ENCODED: Final = [chr(b) if b in _PLAIN else f"%{b:02x}" for b in range(256)]
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")
_DOTS: Final = re.compile(r"^\.+|\.+$")


def encode_id(session_id: str) -> str:
    """Return the directory name of a session. Raises `SessionIdError`."""
    if not isinstance(session_id, str):
        raise SessionIdError(
            f"A session id is a string, not {type(session_id).__name__}."
        )
    if not session_id:
        raise SessionIdError("A session id cannot be empty.", session=session_id)
    try:
        raw = session_id.encode()
    except UnicodeEncodeError:
        raise SessionIdError(
            "A session id cannot hold lone surrogates.",
            session=ascii(session_id),
            advice="They are no characters; decode the bytes it came from first.",
        ) from None
    name = "".join([_ENCODED[byte] for byte in raw])
    name = _DOTS.sub(lambda dots: "%2e" * len(dots[0]), name)
    if _RESERVED.match(name):
        name = f"%{ord(name[0]):02x}{name[1:]}"
    if len(name) > _LONGEST:
        name = f"{name[:_KEPT]}%-{sha256(raw).hexdigest()}"
    return name


def decode_id(name: str) -> str | None:
    """Return the id of a directory name; None if it is cut, or not one of ours."""
    if "%-" in name:
        return None
    try:
        session_id = unquote_to_bytes(name).decode()
        return session_id if encode_id(session_id) == name else None
    except (UnicodeDecodeError, SessionIdError):
        return None
