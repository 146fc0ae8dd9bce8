"""What leaves is JSON in UTF-8: lone surrogates become U+FFFD; NUL is kept."""

from __future__ import annotations

import json
from operator import is_
from typing import Any


def clean(text: str) -> str:
    """Return a text that is valid UTF-8: lone surrogates become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def scrubbed(tree: Any) -> Any:
    """Return JSON without lone surrogates; the same object where there are none."""
    if isinstance(tree, str):
        # Another object for an equal text would look like a change.
        return tree if (text := clean(tree)) == tree else text
    if isinstance(tree, dict):
        pairs = [(scrubbed(n), scrubbed(v), n, v) for n, v in tree.items()]
        if all(n is old and v is was for n, v, old, was in pairs):
            return tree
        return {n: v for n, v, _, _ in pairs}
    if isinstance(tree, list | tuple):
        fresh = list(map(scrubbed, tree))
        return tree if all(map(is_, fresh, tree)) else fresh
    return tree


def sendable(tree: Any) -> Any | None:
    """Return JSON that a request can hold, lone surrogates replaced; None: it cannot.

    What JSON does not have (NaN, bytes, objects) no provider takes.
    """
    try:
        json.dumps(tree, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return scrubbed(tree)
