"""The three decorators. What they decorate keeps its type, for people and for checkers.

::

    @checkpointed_llm                       # a model request
    @checkpointed_tool(effect="read_only")  # a tool call
    @step_boundary                          # one model request plus its tools

Each works bare and with options, on functions, coroutine functions, generators, async
generators, methods in either order with ``staticmethod`` and ``classmethod``, partials,
callable objects, and bound methods of an SDK client. Without an open session they run
the undecorated function. A thing that cannot be decorated, or not so, is a
`DecorationError`, which is a `TypeError`.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from durable_agent import _calls
from durable_agent._decorate import decorate, decorator
from durable_agent._options import LlmOptions, ToolOptions, make_spec
from durable_agent._step_runs import Steps
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

#: Unbounded: a bound of Callable would refuse tool objects and drop attributes.
F = TypeVar("F")

_NOTHING: Final[Any] = object()


@overload
def checkpointed_llm(fn: F, /, **options: Unpack[LlmOptions]) -> F: ...
@overload
def checkpointed_llm(**options: Unpack[LlmOptions]) -> Callable[[F], F]: ...
def checkpointed_llm(fn: Any = _NOTHING, /, **options: Any) -> Any:
    """Record each call as a model request.

    The request is durable before the body runs; the response is handed to the store
    before the caller has it. A recorded request replays without running.

    Args:
        fn: What makes the request: a function, or ``client.messages.create``.
        **options: ``name``: its recorded name, or a callable on the bound arguments.
            ``key``: a parameter, or a callable on the bound arguments, that alone
            gives the call's identity. ``ignore``: parameters neither recorded nor part
            of identity. ``redact``: parameters recorded as redacted.
            ``replay=False``: always run, still recorded. ``durable_outcome=True``: the
            response survives power loss before the caller has it.
            ``transcript=False``: a side request, kept out of the conversation.

    """
    return _recorded("llm", fn, options)


@overload
def checkpointed_tool(fn: F, /, **options: Unpack[ToolOptions]) -> F: ...
@overload
def checkpointed_tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def checkpointed_tool(fn: Any = _NOTHING, /, **options: Any) -> Any:
    """Record each call as a tool call.

    A top-level call is durable before the body runs; the result is handed to the store
    before the caller has it. A call that was interrupted runs again by itself only if
    ``effect`` or ``verify`` says that this is safe.

    Args:
        fn: What runs the tool.
        **options: ``effect``: what running it again would do: ``"read_only"``,
            ``"idempotent"``, ``"side_effect"`` (the default), ``"composite"`` (does
            nothing itself, the tools that it calls do), or a callable on the bound
            arguments. ``verify``: finds out what really happened to a call in doubt.
            ``unknown_on``: exception types after which it may have happened.
            ``on_unknown``: ``"raise"``, ``"return"`` or a handler, for calls in doubt.
            ``arguments``: of a dispatcher, the parameter with the model's arguments.
            ``trust_annotations=True``: of an MCP session, take ``effect`` from what its
            server says of each tool (``readOnlyHint``, ``idempotentHint``); for servers
            that are trusted to tell the truth.
            ``name``, ``key``, ``ignore``, ``redact``, ``replay`` and
            ``durable_outcome`` are those of `checkpointed_llm`.

    """
    return _recorded("tool", fn, options)


class Step:
    """A named step, around a block (``with``, ``async with``) or a function.

    What came before is durable before the block begins. One object may be used again,
    and by several threads and tasks at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps = Steps()

    def __enter__(self) -> Self:
        step = _calls.step(self._name)
        step.__enter__()
        self._steps.opened(step)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._steps.last().__exit__(kind, error, traceback)

    async def __aenter__(self) -> Self:
        step = _calls.step(self._name)
        await step.__aenter__()
        self._steps.opened(step)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._steps.last().__aexit__(kind, error, traceback)

    def __call__(self, fn: F, /) -> F:
        """Decorate a function: its whole run is the step."""
        decorated: F = decorate(fn, self._name)
        return decorated

    def __repr__(self) -> str:
        return f"step_boundary({self._name!r})"


@overload
def step_boundary(name: str, /) -> Step: ...
@overload
def step_boundary(*, name: str | None = None) -> Callable[[F], F]: ...
@overload
def step_boundary(fn: F, /, *, name: str | None = None) -> F: ...
def step_boundary(fn: Any = _NOTHING, /, *, name: Any = None) -> Any:
    """Mark one step: a model request plus its tools.

    Whatever was recorded before is durable before the step's body runs. The body of a
    coroutine function or a generator is its whole run. ``step_boundary("plan")`` is a
    context manager, sync and async, and a decorator as well.
    """
    if name is not None and not (isinstance(name, str) and name):
        raise DecorationError(f"step_boundary(name=…) takes a name, not {name!r}.")
    if isinstance(fn, str):
        if not fn or name is not None:
            raise DecorationError("step_boundary() takes one name, not an empty one.")
        return Step(fn)
    if fn is _NOTHING:
        return Step(name) if name is not None else _step
    return _step(fn, name)


def _step(fn: Any, /, name: str | None = None) -> Any:
    return decorate(fn, name)


def _recorded(kind: Literal["llm", "tool"], fn: Any, options: dict[str, Any]) -> Any:
    spec = make_spec(kind, options)
    return decorator(spec) if fn is _NOTHING else decorate(fn, spec)
