"""Conversations told once for all providers, and how to draw them.

A script is a tuple of turns: ``User`` says something, ``Model`` answers, asks for
tools, or both. Each ``Call`` knows the fate of its tool. A dialect (``render_*``) has
five functions on plain data: ``said(user)`` and ``results(calls, texts)`` are request
messages, ``response(model, n)`` and ``stream(model, n)`` are what the API sends for the
n-th answer, ``heard(response)`` is what a loop of tools keeps of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.providers.rules_base import Ids

Json = dict[str, Any]
#: How a server names its calls. ``repeated`` draws from two ids, ``restarted`` counts
#: from zero in each turn, ``constant`` knows one, ``missing`` none.
Scheme = Literal["unique", "restarted", "repeated", "constant", "missing"]
SCHEMES: tuple[Scheme, ...] = (
    "unique",
    "restarted",
    "repeated",
    "constant",
    "missing",
)
#: One white pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAA"
    "SUVORK5CYII="
)


@dataclass(frozen=True)
class Fate:
    """What a tool does: give a value, or raise; ``undecorated`` is not recorded."""

    kind: Literal["value", "error", "undecorated"] = "value"
    value: Any = "done"


@dataclass(frozen=True)
class Call:
    """A tool call as the model writes it; ``arguments`` need not be JSON."""

    name: str = "search"
    arguments: str = "{}"
    id: str | None = "call_0"
    fate: Fate = Fate()

    @property
    def parsed(self) -> Json:
        """The arguments as an object; empty where they are not one."""
        try:
            value = json.loads(self.arguments)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class User:
    text: str = "hello"
    images: int = 0


@dataclass(frozen=True)
class Model:
    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    refusal: str = ""


Turn = User | Model
Script = tuple[Turn, ...]


class Dialect(Protocol):
    """What a module ``render_*`` offers."""

    @staticmethod
    def said(user: User) -> list[Json]: ...
    @staticmethod
    def response(model: Model, n: int) -> Json: ...
    @staticmethod
    def stream(model: Model, n: int) -> list[Json]: ...
    @staticmethod
    def heard(response: Json) -> list[Json]: ...
    @staticmethod
    def results(calls: Sequence[Call], texts: Sequence[str]) -> list[Json]: ...


def shown(call: Call) -> str:
    """Return the text that a plain loop of tools shows for a call; valid UTF-8."""
    value = call.fate.value
    text = value if isinstance(value, str) else json.dumps(value)
    if call.fate.kind == "error":
        text = f"error: {text}"
    return text.encode("utf-8", "replace").decode("utf-8")


def history(
    dialect: Dialect, script: Script, show: Callable[[Call], str] = shown
) -> list[Json]:
    """Return the messages of the request that comes after a script."""
    messages: list[Json] = []
    for n, turn in enumerate(script):
        if isinstance(turn, User):
            messages += dialect.said(turn)
            continue
        messages += dialect.heard(dialect.response(turn, n))
        if turn.calls:
            messages += dialect.results(turn.calls, [show(c) for c in turn.calls])
    return messages


def cuts(text: str, pieces: int = 2) -> list[str]:
    """Return a text in pieces, as a stream sends it; at least one."""
    size = max(1, -(-len(text) // pieces))
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


@dataclass(frozen=True)
class Limits:
    """What a provider's models never do, so that no script has it."""

    schemes: tuple[Scheme, ...] = SCHEMES
    unparsable: bool = True


#: Anthropic and Gemini send arguments as objects, so there are none that do not parse.
LIMITS: dict[str, Limits] = {
    "openai_chat": Limits(),
    "openai_responses": Limits(schemes=SCHEMES[:4]),
    "anthropic": Limits(schemes=SCHEMES[:4], unparsable=False),
    "gemini": Limits(unparsable=False),
    "langchain": Limits(),
}


def ids_held(provider: str, script: Script) -> Ids:
    """Return how strictly the provider's rule of ids can be held for a script."""
    turns = [[c.id for c in t.calls] for t in script if isinstance(t, Model)]
    if provider in ("anthropic", "openai_responses"):
        turns = [[call_id for turn in turns for call_id in turn]]
    clean = all(None not in t and len(set(t)) == len(t) for t in turns)
    return "strict" if clean else "lenient"


_PLAIN = st.characters(exclude_categories=["Cs"])
words = (
    st.text(_PLAIN, min_size=1, max_size=12)
    | st.sampled_from(["hi", "naïve 你好 🙂", "a\u2028b", "a\x00b", '"quoted"\\', "{}"])
).filter(str.strip)
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2)
    ),
    max_leaves=4,
)
values = _json_values | st.sampled_from(
    ["", "plain", "é", "\ud83c", "a\udcb2b", "a\x00b", {}, [], None]
)
fates = st.builds(
    Fate, st.sampled_from(["value", "value", "error", "undecorated"]), values
)
_objects = st.dictionaries(st.sampled_from(["q", "to", "n"]), _json_values, max_size=2)
#: Whole, empty, cut off by a length limit, not an object, not JSON.
_spoilt = st.sampled_from(["", '{"q": "cut', '{"q": 1,}', "[1]", "null", "search(1)"])


@st.composite
def _calls(draw: st.DrawFn, limits: Limits, ids: _Ids) -> tuple[Call, ...]:
    arguments = _objects.map(json.dumps)
    if limits.unparsable:
        arguments = arguments | _spoilt
    names = st.sampled_from(["search", "send", "look_up"])
    return tuple(
        Call(draw(names), draw(arguments), ids.next(draw, place), draw(fates))
        for place in range(draw(st.integers(0, 4)))
    )


class _Ids:
    """The ids that a server of one scheme gives out."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._count = 0

    def next(self, draw: st.DrawFn, place: int) -> str | None:
        self._count += 1
        match self._scheme:
            case "unique":
                return f"call_{self._count}"
            case "restarted":
                return f"call_{place}"
            case "repeated":
                return draw(st.sampled_from(["call_a", "call_b"]))
            case "constant":
                return "call_0"
            case "missing":
                return None


@st.composite
def models(draw: st.DrawFn, limits: Limits, ids: _Ids, before: Turn) -> Model:
    """Draw an answer; it says or asks for something."""
    answered = isinstance(before, Model) and not before.calls
    calls = draw(_calls(limits, ids))
    if not calls and draw(st.booleans()) and draw(st.booleans()):
        return Model(refusal=draw(words))
    text = draw(words if not calls else st.just("") | words)
    # An answer right after an answer is the same turn to some: it does not think anew.
    thinking = "" if answered else draw(st.just("") | words)
    return Model(text, calls, thinking)


@st.composite
def scripts(
    draw: st.DrawFn, provider: str, schemes: tuple[Scheme, ...] = SCHEMES
) -> Script:
    """Draw a script that the provider's users and models can have played.

    ``schemes`` narrows how ids are given.
    """
    limits = LIMITS[provider]
    given = [scheme for scheme in limits.schemes if scheme in schemes]
    ids = _Ids(draw(st.sampled_from(given)))
    turns: list[Turn] = []
    for _ in range(draw(st.integers(1, 3))):
        turns.append(User(draw(words), draw(st.integers(0, 1))))
        for _ in range(draw(st.integers(1, 3))):
            turns.append(draw(models(limits, ids, turns[-1])))
    return tuple(turns)
