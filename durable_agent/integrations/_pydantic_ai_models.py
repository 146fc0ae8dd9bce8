"""Requests of Pydantic AI's models as they are recorded, and their streams.

Of a stream are recorded: the response when it was opened, which has no parts yet, then
each event, then the response as it was at the end. A replayed stream is an object of
`StreamedResponse` that was never connected to anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from durable_agent._decorate import decorate
from durable_agent._value_names import loaded
from durable_agent.integrations._adapting import subclass_of
from durable_agent.integrations._json_tools import by_names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from durable_agent._spec import Spec

_MODELS: Final = "pydantic_ai.models"
_MESSAGES: Final = "pydantic_ai.messages"

#: The arguments of ``request`` and ``request_stream``, in order.
NAMES: Final = (
    *("messages", "model_settings", "model_request_parameters", "run_context"),
)
#: Settings of a request that do not say what is asked for, or that are secret.
_NO_SETTINGS: Final = frozenset({"extra_headers", "timeout", "request_timeout"})
#: What a model sees of a tool.
_OF_TOOL: Final = ("name", "description", "parameters_json_schema", "strict")
_OF_OUTPUT: Final = (
    *("output_mode", "prompted_output_template", "allow_text_output"),
    *("allow_image_output", "thinking"),
)


def asked(bound: dict[str, Any]) -> dict[str, Any]:
    """Return a request's arguments by the names of the interface: what is sent."""
    given = by_names(bound, NAMES)
    told = {name: given.get(name) for name in NAMES[:2]}
    if isinstance(told["model_settings"], dict):
        settings = told["model_settings"].items()
        told["model_settings"] = {k: v for k, v in settings if k not in _NO_SETTINGS}
    parameters = given.get("model_request_parameters")
    if parameters is not None:
        told["model_request_parameters"] = _parameters(parameters)
    return told


def _parameters(parameters: Any) -> dict[str, Any]:
    found = {name: getattr(parameters, name, None) for name in _OF_OUTPUT}
    for name in ("function_tools", "output_tools"):
        tools = getattr(parameters, name, None) or ()
        found[name] = [{n: getattr(t, n, None) for n in _OF_TOOL} for t in tools]
    native = getattr(parameters, "native_tools", None) or ()
    found["native_tools"] = [getattr(tool, "kind", str(tool)) for tool in native]
    shape = getattr(parameters, "output_object", None)
    if shape is not None:
        names = ("name", "description", "json_schema")
        found["output_object"] = {n: getattr(shape, n, None) for n in names}
    return {name: value for name, value in found.items() if value not in (None, [])}


def streaming(cls: type, spec: Spec) -> tuple[Callable[..., Any], Any]:
    """Return ``request_stream`` for a subclass that records, and what it records by."""

    async def request_events(
        self: Any, opened: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        manager = cls.request_stream(self, *args, **kwargs)  # type: ignore[attr-defined]  # it is demanded
        async with manager as stream:
            opened.append(stream)
            # Its class is about to be another one.
            events = type(stream).__aiter__
            yield stream.get()
            async for event in events(stream):
                yield event
            yield stream.get()

    request_events.__qualname__ = f"{cls.__qualname__}.request_stream"
    request_events.__module__ = cls.__module__
    recorded = decorate(request_events, evolve(spec, unpack=_asked_for_events))

    @contextlib.asynccontextmanager
    async def request_stream(
        self: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        opened: list[Any] = []
        source = recorded(self, opened, args, kwargs)
        async with contextlib.aclosing(source):
            first = await anext(source)
            if opened:
                stream, state = opened[0], {}
            else:
                named = by_names({"args": args, "kwargs": kwargs}, NAMES)
                make = loaded(_MODELS, "CompletedStreamedResponse")
                stream = make(first, model_request_parameters=named[NAMES[2]])
                state = {"get": _get}
            again = {"__aiter__": _aiter, "_durable_source": source, **state}
            stream.__class__ = subclass_of(type(stream), again)
            yield stream

    return request_stream, recorded


def _asked_for_events(bound: dict[str, Any]) -> dict[str, Any]:
    return asked({name: bound[name] for name in ("args", "kwargs")})


def _aiter(self: Any) -> AsyncIterator[Any]:
    """Return the events; the very same iterator each time, as of any stream."""
    state = vars(self)
    if "_durable_events" not in state:
        state["_durable_events"] = _events(self, self._durable_source)
    events: AsyncIterator[Any] = state["_durable_events"]
    return events


async def _events(stream: Any, source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    parts: dict[int, Any] = vars(stream).setdefault("_durable_parts", {})
    response = loaded(_MESSAGES, "ModelResponse")
    async for item in source:
        if isinstance(item, response):
            vars(stream)["_durable_response"] = item
            if type(stream).get is _get:
                # What it tells of itself, such as its usage, it reads from there.
                stream.response = item
            continue
        kind = getattr(item, "event_kind", None)
        if kind == "part_start":
            parts[item.index] = item.part
        elif kind == "part_delta":
            parts[item.index] = item.delta.apply(parts[item.index])
        yield item


def _get(self: Any) -> Any:
    """Return the response of a replayed stream, as far as it was taken."""
    state = vars(self)
    if "_durable_response" in state:
        return state["_durable_response"]
    parts = [part for _, part in sorted(state.get("_durable_parts", {}).items())]
    return dataclasses.replace(self.response, parts=parts)
