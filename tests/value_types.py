"""Types at the top of a module, as tests of recorded values need them."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import pydantic
from langchain_core.messages import AIMessage

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, "a")
    ODD = float("inf")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Act(enum.Enum):
    """Members whose values cannot be stored."""

    UPPER = enum.nonmember(1)
    FIRST = (len, "x")


Pair = namedtuple("Pair", "left right")


class Point(NamedTuple):
    x: Any
    y: Any = 0


class Text(str):
    __slots__ = ()


class Tagged(str):  # noqa: SLOT000 - that is the point
    """A str with attributes of its own."""


class Whole(int):
    pass


class Real(float):
    pass


class Raw(bytes):
    pass


class Listed(list):
    def extend(self, items):
        raise AssertionError("overridden methods are not called")


class Mapped(dict):
    def __setitem__(self, key, value):
        raise AssertionError("overridden methods are not called")

    update = __setitem__


class Bag(set):
    pass


class Frozen(frozenset):
    pass


class Row(tuple):  # noqa: SLOT001 - it has a __dict__
    pass


class Ordered(OrderedDict):
    pass


class Default(defaultdict):
    pass


class Queue(deque):
    pass


@dataclass
class Plain:
    a: Any
    b: Any = None
    made: Any = field(init=False, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    a: Any
    hidden: Any = field(default=None, repr=False)


@dataclass
class Late:
    """Its only field is set after construction."""

    value: Any = field(init=False)

    @classmethod
    def of(cls, value):
        late = cls()
        late.value = value
        return late


@attrs.frozen
class Card:
    a: Any
    _private: Any = None


@attrs.define(slots=False)
class Loose:
    a: Any


@attrs.frozen(cache_hash=True)
class Hashed:
    a: str


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    a: Any = None
    b: Any = 0
    _note: Any = pydantic.PrivateAttr(default=None)

    @pydantic.field_validator("a")
    @classmethod
    def _once(cls, value):
        """Not idempotent: running it again shows."""
        return f"<{value}>" if isinstance(value, Text) else value


class Checked(pydantic.BaseModel):
    count: int


class Boxed(pydantic.BaseModel, Generic[T]):
    item: T


class Reply(AIMessage):
    """A message class of an application."""

    score: float = 0.0


class ApiError(Exception):
    """A constructor that cannot be called with ``args``."""

    def __init__(self, message, *, status):
        super().__init__(message)
        self.status = status
        self.retry = status >= 500


class SlottedError(ValueError):
    __slots__ = ("code",)

    def __init__(self, code):
        super().__init__()
        self.code = code


class GroupError(ExceptionGroup):
    def derive(self, excs):
        return GroupError(self.message, excs)


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


#: What the hostile classes did.
DEEDS: list[str] = []


@dataclass
class Harmful:
    """By state it is harmless; nothing that it overrides may run."""

    a: Any = None

    def __new__(cls, *args, **kwargs):
        DEEDS.append("new")
        return super().__new__(cls)

    def __post_init__(self):
        DEEDS.append("init")

    def __setstate__(self, state):
        DEEDS.append("setstate")

    def __reduce__(self):
        DEEDS.append("reduce")
        return (DEEDS.append, ("reduced",))

    def __setattr__(self, name, value):
        DEEDS.append("setattr")
        super().__setattr__(name, value)

    @property
    def watched(self):
        return None

    @watched.setter
    def watched(self, value):
        DEEDS.append("property")


@dataclass
class Dying:
    a: Any = None

    def __del__(self, deeds=DEEDS):
        deeds.append(f"del {self.a}")


class Unmarked:
    """Of no kind that may be rebuilt."""

    def __init__(self, a=None):
        self.a = a

    def __eq__(self, other):
        return type(other) is type(self) and self.a == other.a

    __hash__ = None
