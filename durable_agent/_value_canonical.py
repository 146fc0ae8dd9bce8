"""Canonical bytes: equal values, equal bytes, whatever order they were written in.

Works on the tagged JSON and rebuilds nothing, so it needs no type to be loaded.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from durable_agent._value_plain import Json

#: 16 bytes: 32 hex characters.
_DIGEST_BYTES: Final = 16
#: pydantic does not compare which fields were set.
_NOT_COMPARED: Final = frozenset({"__pydantic_fields_set__"})
#: LangChain draws the ids of messages anew at each run. What removes a message names it
#: by its id, and is none of these.
_MESSAGES: Final = re.compile(
    r"langchain_core\.messages\.\w+:(Human|AI|System|Tool|Function|Chat)"
    r"Message(Chunk)?"
)
_DRAWN_ANEW: Final = _NOT_COMPARED | {"id"}
#: Pydantic AI notes when and in which run a message was made, and for telemetry.
_OF_RUNS: Final = frozenset(
    {
        *("timestamp", "run_id", "conversation_id", "history_digest"),
        *("otel_metadata", "workspace_ref", "failed_attempts"),
    }
)


def digest(canonical: bytes) -> str:
    """Return the 32 hex characters that stand for canonical bytes."""
    return blake2b(canonical, digest_size=_DIGEST_BYTES).hexdigest()


def canonical_bytes(tree: Json) -> bytes:
    """Return the canonical bytes of tagged JSON."""
    return _dump(canonical_tree(tree))


def canonical_tree(tree: Json) -> Json:
    """Return tagged JSON with everything unordered in a fixed order.

    Members of JSON objects are sorted when they are written.
    """
    return _walk(tree, {})


def compared(tree: Json) -> Json:
    """Return tagged JSON without what does not tell objects apart, in its own order."""
    if type(tree) is list:
        return [compared(item) for item in tree]
    if type(tree) is not dict:
        return tree
    done = {name: compared(value) for name, value in tree.items()}
    body = done.get("$obj")
    if len(done) == 1 and type(body) is dict and type(body.get("state")) is dict:
        for name in _left_out(body.get("type")):
            body["state"].pop(name, None)
    return done


def _dump(tree: Json) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)


def _walk(node: Json, below: dict[int, str]) -> Json:
    if type(node) is list:
        return [_walk(v, below) for v in node]
    if type(node) is not dict:
        return node
    if len(node) == 1:
        tag, body = next(iter(node.items()))
        if tag == "$ref":
            return {tag: below[body]}
        if tag == "$deep":
            return {tag: _deep(body)}
        done = {tag: _walk(body, below)}
        return _sorted(tag, done) if tag in _UNORDERED else done
    return {k: _walk(v, below) for k, v in node.items()}


def _deep(nodes: list[Json]) -> Json:
    """Return the first node, each reference replaced by what it stands for."""
    below: dict[int, str] = {}
    for index in range(len(nodes) - 1, 0, -1):
        below[index] = digest(_dump(_walk(nodes[index], below)))
    return _walk(nodes[0], below)


def _sorted(tag: str, done: dict[str, Any]) -> Json:
    body = done[tag]
    if tag == "$dict":
        return {tag: sorted(body, key=lambda pair: _dump(pair[0]))}
    if tag == "$obj":
        state = body.get("state")
        left_out = _left_out(body.get("type"))
        if type(state) is dict and not left_out.isdisjoint(state):
            rest = {k: v for k, v in state.items() if k not in left_out}
            return {tag: {**body, "state": rest}}
        return done
    if tag == "$error":
        return {tag: [_without_text(entry) for entry in body]}
    if tag == "$ndarray":
        return {tag: {k: v for k, v in body.items() if k != "order"}}
    return {tag: sorted(body, key=_dump)}


def _left_out(type_name: Any) -> frozenset[str]:
    """Return the attributes of a class that do not tell its objects apart."""
    if type(type_name) is str and _MESSAGES.fullmatch(type_name):
        return _DRAWN_ANEW
    if type(type_name) is str and type_name.startswith("pydantic_ai.messages:"):
        return _OF_RUNS
    return _NOT_COMPARED


def _without_text(entry: Any) -> Json:
    """Drop the text of an error that has its parts: it may show addresses."""
    if type(entry) is dict and ("args" in entry or "message" in entry):
        return {name: part for name, part in entry.items() if name != "text"}
    return entry


_UNORDERED: Final = frozenset(
    {"$dict", "$set", "$frozenset", "$obj", "$ndarray", "$error"}
)
