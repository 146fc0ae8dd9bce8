"""The walk over a value that is not plain, and the walk back.

Both recurse at most ``NODE_DEPTH`` containers deep. What lies deeper is put into a
node of its own and referred to (``$deep``, ``$ref``), so no depth of nesting exhausts
the interpreter's stack, nor the levels that the JSON encoder writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orjson import Fragment

from durable_agent._value_names import (
    codec_of,
    is_class,
    kind_of,
    name_of,
    refuse,
    refuse_to_store,
    unknown_kind,
)
from durable_agent._value_plain import INT_MAX, INT_MIN, dump_plain
from durable_agent.errors import ValueNotStorableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._value_plain import Json

#: Containers within one node. A container takes at most five levels of JSON.
NODE_DEPTH: Final = 24
#: Containers within one another; deeper values are refused.
MAX_DEPTH: Final = 20_000
#: How deep large parts are looked for that are plain, and written at once.
_TRY_PLAIN: Final = 2
#: Errors as attributes of errors, and the like.
_MAX_SUB: Final = 3

#: By exact type; a *leaf* holds no other value.
LEAVES: Final[dict[type, Callable[[Any], Json]]] = {}
ENCODERS: Final[dict[type, Callable[[Any, Encoder], Json]]] = {}
#: By kind, for types that are not listed.
KINDS: Final[dict[str, Callable[[Any, Encoder], Json]]] = {}
#: For types of modules that may not be loaded: tried last, None is "not mine".
LOOKUPS: Final[list[Callable[[type], Callable[[Any, Encoder], Json] | None]]] = []
DECODERS: Final[dict[str, Callable[[Any, Decoder], Any]]] = {}


class _Above(NamedTuple):
    """The containers that a value lies in, beyond the node it is encoded in.

    They are kept alive: the id of a dead object may be another's.
    """

    open: dict[int, Any]
    above: _Above | None


class _Job(NamedTuple):
    value: Any
    above: _Above | None
    depth: int
    path: str


class Encoder:
    """Turns one value into JSON. Raises `ValueNotStorableError` with the path."""

    def __init__(
        self,
        parent: Encoder | None = None,
        *,
        names: Callable[[Any], str | None] | None = None,
    ) -> None:
        #: What gives the name of a value that only its name is stored of.
        self._names = names
        self._jobs: list[_Job] = []
        self._open: dict[int, Any] = {}
        self._above = parent.seal() if parent else None
        self._start = parent.depth if parent else 0
        self.sub: int = parent.sub + 1 if parent else 0
        if self.sub > _MAX_SUB:
            refuse_to_store("Exception", "errors are nested in errors too deep")

    @property
    def depth(self) -> int:
        """How many containers the current value lies in."""
        return self._start + len(self._open)

    def seal(self) -> _Above:
        """Return the containers that are open now, for a node or encoder below."""
        return _Above(dict(self._open), self._above)

    def run(self, value: Any) -> Json:
        """Return the JSON of a value, flattened if it is deep.

        It is for writing; parts of it may be written already.
        """
        self._jobs.append(_Job(value, self._above, self._start, ""))
        nodes: list[Json] = []
        while len(nodes) < len(self._jobs):
            job = self._jobs[len(nodes)]
            self._above, self._start, self._open = job.above, job.depth, {}
            try:
                nodes.append(self.put(job.value, job.path))
            except RecursionError:
                why = "the caller left too little of the interpreter's stack"
                refuse_to_store(name_of(type(job.value)), why)
        return nodes[0] if len(nodes) == 1 else {"$deep": nodes}

    def put(self, value: Any, step: str = "") -> Json:
        """Return the JSON of a value within this one; ``step`` is its place."""
        try:
            return self._put(value, step)
        except ValueNotStorableError as error:
            error.path = step + error.path
            raise

    def put_state(self, state: dict[str, Any]) -> Json:
        """Return the JSON of an object's attributes."""
        return self.put_dict(state, ".{}".format)

    def put_dict(self, value: dict[Any, Any], step: Callable[[Any], str]) -> Json:
        """Return the JSON of a dict: an object if its keys allow it, else pairs."""
        if all(type(k) is str and k[:1] != "$" and _is_text(k) for k in value):
            return {k: self.put(v, step(k)) for k, v in value.items()}
        return {
            "$dict": [
                [self.put(k, ".key"), self.put(v, step(k) if type(k) is str else "[…]")]
                for k, v in value.items()
            ]
        }

    def _put(self, value: Any, step: str) -> Json:
        cls = type(value)
        if value is None or cls is bool:
            return value
        if cls is str:
            return value if _is_text(value) else LEAVES[str](value)
        if cls is int and INT_MIN <= value <= INT_MAX:
            return value
        if (cls is dict or cls is list) and 0 < self.depth <= _TRY_PLAIN:
            raw = dump_plain(value)
            if raw is not None:
                return Fragment(raw)
        if codec_of(cls) is not None:
            return self._nested(value, _put_registered, step)
        leaf = LEAVES.get(cls)
        if leaf is not None:
            return leaf(value)
        name = None if self._names is None else self._names(value)
        if name is not None:
            return {"$function": name}
        return self._nested(value, ENCODERS.get(cls) or _encoder_of(value), step)

    def _nested(
        self, value: Any, encode: Callable[[Any, Encoder], Json], step: str
    ) -> Json:
        if len(self._open) >= NODE_DEPTH:
            if self.depth >= MAX_DEPTH:
                why = f"it is nested more than {MAX_DEPTH} levels deep"
                refuse_to_store(name_of(type(value)), why)
            self._refuse_cycle(value)
            self._jobs.append(_Job(value, self.seal(), self.depth, "…" + step))
            return {"$ref": len(self._jobs) - 1}
        key = id(value)
        # A cycle longer than a node is found where the next node begins.
        if key in self._open:
            refuse_to_store(name_of(type(value)), "it contains itself")
        if self.sub:
            self._refuse_cycle(value)
        self._open[key] = value
        tree = encode(value, self)
        del self._open[key]
        return tree

    def _refuse_cycle(self, value: Any) -> None:
        above: _Above | None = _Above(self._open, self._above)
        while above is not None:
            if id(value) in above.open:
                refuse_to_store(name_of(type(value)), "it contains itself")
            above = above.above


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoder_of(value: Any) -> Callable[[Any, Encoder], Json]:
    cls = type(value)
    if is_class(value):
        return KINDS["class"]
    for look_up in LOOKUPS:
        found = look_up(cls)
        if found is not None:
            return found
    kind = kind_of(cls)
    if kind is None:
        unknown_kind(cls)
    return KINDS[kind]


def _put_registered(value: Any, encoder: Encoder) -> Json:
    codec = codec_of(type(value))
    if codec is None or codec.encode is None:
        return KINDS["registered"](value, encoder)
    return KINDS["codec"](value, encoder)


class Decoder:
    """Turns JSON into a fresh value. Raises anything at all on JSON it does not like.

    `durable_agent.values.decode` turns what is raised into one error.
    """

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}

    def get(self, node: Json) -> Any:
        """Return the value of a node."""
        cls = type(node)
        if cls is dict:
            if len(node) == 1:
                tag = next(iter(node))
                if tag[:1] == "$":
                    return self._tagged(tag, node[tag])
            return {k: self.get(v) for k, v in node.items()}
        if cls is list:
            return [self.get(v) for v in node]
        return node

    def _tagged(self, tag: str, body: Json) -> Any:
        if tag == "$ref":
            # Nodes refer to later ones, each to its own: no cycle, no sharing.
            return self._values.pop(body)
        if tag == "$deep":
            return self._deep(body)
        decode = DECODERS.get(tag)
        if decode is None:
            refuse(tag, "this version does not know the tag")
        return decode(body, self)

    def _deep(self, nodes: list[Json]) -> Any:
        outer, self._values = self._values, {}
        for index in range(len(nodes) - 1, -1, -1):
            self._values[index] = self.get(nodes[index])
        value = self._values.pop(0)
        if self._values:
            refuse("$deep", "it holds a node that nothing refers to")
        self._values = outer
        return value
