"""User code that must type-check, by mypy and pyright in strict mode. Never run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, assert_type, overload

from durable_agent.decorators import (
    Step,
    checkpointed_llm,
    checkpointed_tool,
    step_boundary,
)
from durable_agent.outcomes import Call, Completed, NotApplied, Unknown

T = TypeVar("T")


@checkpointed_tool
def function(to: str, /, body: str = "", *, urgent: bool = False) -> int:
    return len(to + body) + urgent


@checkpointed_llm(transcript=False, durable_outcome=True, name="ask")
async def coroutine(messages: list[dict[str, str]]) -> str:
    return str(messages)


@checkpointed_tool(effect="read_only", ignore=("clock",), redact="token")
def generator(clock: float, token: str) -> Iterator[str]:
    yield f"{clock}{token}"


@checkpointed_llm
async def async_generator(prompt: str) -> AsyncIterator[bytes]:
    yield prompt.encode()


@step_boundary
def bare_step(messages: list[str]) -> None:
    messages.clear()


@step_boundary(name="plan")
async def named_step(count: int) -> int:
    return count


@step_boundary("act")
def step_by_name(count: int) -> int:
    return count


@checkpointed_tool
def generic(value: T, make: Callable[[T], T]) -> T:
    return make(value)


@overload
def overloaded(value: int) -> int: ...
@overload
def overloaded(value: str) -> str: ...
@checkpointed_tool
def overloaded(value: int | str) -> int | str:
    return value


class Agent:
    @checkpointed_tool
    def method(self, to: str) -> Agent:
        return self

    @checkpointed_tool(effect="idempotent")
    async def async_method(self, to: str) -> int:
        return len(to)

    @classmethod
    @checkpointed_tool
    def class_inside(cls, name: str) -> Agent:
        return cls()

    @checkpointed_tool
    @classmethod
    def class_outside(cls, name: str) -> Agent:
        return cls()

    @staticmethod
    @checkpointed_tool
    def static_inside(name: str) -> str:
        return name

    @checkpointed_tool
    @staticmethod
    def static_outside(name: str) -> str:
        return name


class Search(Generic[T]):
    limit: int = 3

    def __call__(self, query: T) -> list[T]:
        return [query] * self.limit


class Completions(Protocol):
    def create(self, *, model: str) -> Awaitable[str]: ...


def key_of(call: Mapping[str, Any]) -> str:
    return str(call["to"])


def effect_of(call: Mapping[str, Any]) -> str:
    return "read_only" if call["name"] == "search" else "side_effect"


async def ask_a_person(call: Call) -> Completed | Unknown:
    return Completed(call.id) if call.idempotency_key else Unknown()


@checkpointed_tool(
    name=lambda call: str(call["name"]),
    effect=effect_of,
    key=key_of,
    arguments="arguments",
    verify=lambda call: Completed(call.arguments) if call.attempt else NotApplied(),
    unknown_on=(TimeoutError, OSError),
    on_unknown=ask_a_person,
    replay=True,
    durable_outcome=None,
)
def dispatch(name: str, arguments: dict[str, object], to: str) -> object:
    return (name, arguments, to)


async def uses(completions: Completions) -> None:
    assert_type(function("a", "b", urgent=True), int)
    assert_type(await coroutine([]), str)
    assert_type(generator(0.0, "t"), Iterator[str])
    assert_type(async_generator("p"), AsyncIterator[bytes])
    assert_type(bare_step([]), None)
    assert_type(await named_step(1), int)
    assert_type(step_by_name(1), int)
    assert_type(generic(1, lambda n: n + 1), int)
    assert_type(overloaded(1), int)
    assert_type(overloaded("a"), str)
    assert_type(Agent().method("x"), Agent)
    assert_type(Agent.method(Agent(), "x"), Agent)
    assert_type(await Agent().async_method("x"), int)
    assert_type(Agent.class_inside("x"), Agent)
    assert_type(Agent().class_outside("x"), Agent)
    assert_type(Agent.static_inside("x"), str)
    assert_type(Agent().static_outside("x"), str)

    search = checkpointed_tool(Search[str]())
    assert_type(search, Search[str])
    assert_type(search("q"), list[str])
    assert_type(search.limit, int)

    create = checkpointed_llm(completions.create, name="create")
    assert_type(await create(model="m"), str)
    fixed = checkpointed_tool(functools.partial(function, "a"))
    assert_type(fixed(body="b"), int)

    plan = step_boundary("plan")
    assert_type(plan, Step)
    with plan as entered:
        assert_type(entered, Step)
    async with step_boundary("plan"):
        pass
