"""Helpers of SDK streams (``get_final_message()``, ``text_stream``) and the recording.

A helper takes chunks from the SDK's own object, past the recording around it. So the
stream is taken first, by way of its recording, and the helper finds it at its end. What
would take chunks in a way that is not known here is refused: the record would miss
them.

A replayed stream has no object of the SDK behind it. What helpers give is made from the
recorded chunks: most SDKs put their final object into the last event, and the rest is
added up by the SDK's own classes. Nothing is imported and nothing is sent.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, NoReturn

from durable_agent._value_names import is_class, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: The texts of the answer, one by one.
TEXTS: Final = "text_stream"
_UNTIL_DONE: Final = "until_done"
_FINAL: Final = "get_final_"
#: Methods of streams that take nothing from them.
_HARMLESS: Final = frozenset({"close", "aclose"})
_SDKS: Final = frozenset({"openai", "anthropic"})
_EVENTS: Final = "anthropic.lib.streaming"
_STATE: Final = ("openai.lib.streaming.chat", "ChatCompletionStreamState")
#: What Anthropic's API sends; its SDK adds events of its own.
_RAW: Final = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


def takes_all(name: str) -> bool:
    """Whether this is the name of a helper that takes a stream to its end."""
    return name == _UNTIL_DONE or name.startswith(_FINAL)


def text_of(chunk: Any) -> str | None:
    """Return the piece of text that Anthropic's ``text_stream`` gives for a chunk."""
    if getattr(chunk, "type", None) != "content_block_delta":
        if _package(chunk) == "anthropic":
            return None
        _refuse(TEXTS, "its chunks are not Anthropic's")
    text = chunk.delta.text if chunk.delta.type == "text_delta" else None
    return text if isinstance(text, str) else None


def attribute(original: Any, name: str) -> Any:
    """Return an attribute of the object behind a stream.

    Raises `AttributeError` if there is no object, or if the attribute may take chunks
    from an SDK's stream, which nobody would record.
    """
    if original is None:
        _refuse(name, "it is replayed, and this was not recorded")
    value = getattr(original, name)
    if name.startswith(("_", "on_")) or name in _HARMLESS:
        return value
    if _may_take(value, original):
        _refuse(name, "it would take chunks past the recording; iterate it instead")
    return value


def told(cls: type | None, name: str, stream: Any) -> Any:
    """Return what a property of the SDK's class makes of a replayed stream.

    Such as a request id, which it reads from the response.
    """
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, property) and found.fget is not None:
        return found.fget(stream)
    return attribute(None, name)


def _may_take(value: Any, original: Any) -> bool:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return any(_is_of_sdk(cls) for cls in type(original).__mro__)
    # What an application adds is its own, and uses what is looked after here.
    is_method = inspect.ismethod(value) and value.__self__ is original
    return is_method and _is_of_sdk(value.__func__)


def _is_of_sdk(definition: Any) -> bool:
    return str(definition.__module__).partition(".")[0] in _SDKS


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _refuse(name: str, why: str) -> NoReturn:
    raise AttributeError(f"this stream has no {name!r}: {why}", name=name)


def helper(
    name: str, stream: Any, chunks: Sequence[Any], asked: Mapping[str, Any]
) -> Callable[[], Any]:
    """Return what gives the result of a helper, once all chunks were handed out.

    ``asked`` are the arguments of the request. Raises `AttributeError` for a helper
    that is not known.
    """
    match name:
        case "until_done":
            return lambda: _whole(stream, chunks)
        case "get_final_message":
            return lambda: _message(chunks)
        case "get_final_text":
            return lambda: _text(chunks)
        case "get_final_completion":
            return lambda: _completion(chunks, asked)
        case "get_final_response":
            return lambda: _response(chunks)
        case _:
            _refuse(name, "it is replayed, and this was not recorded")


def snapshot(name: str, chunks: Sequence[Any]) -> Any:
    """Return what the SDK had added up when it gave the last of these chunks."""
    if name == "current_message_snapshot":
        return _message(chunks)
    if name == "current_completion_snapshot":
        for chunk in reversed(chunks):
            if getattr(chunk, "type", None) == "chunk":
                return chunk.snapshot
    _refuse(name, "it is replayed, and this was not recorded")


def _whole(stream: Any, chunks: Sequence[Any]) -> Any:
    """Of OpenAI the stream itself, of Anthropic nothing: as ``until_done()`` does."""
    return None if chunks and _package(chunks[0]) == "anthropic" else stream


def _last(chunks: Sequence[Any], kind: str) -> Any:
    found = (c for c in reversed(chunks) if getattr(c, "type", None) == kind)
    return next(found, None)


def _message(chunks: Sequence[Any]) -> Any:
    message = getattr(_last(chunks, "message_stop"), "message", None)
    if message is not None:
        return message
    # The API stopped without an end, or there is more to come.
    raw = [c for c in chunks if getattr(c, "type", None) in _RAW]
    given = loaded("anthropic", "NOT_GIVEN")
    return _message_stream(chunks)(_Raw(raw), given).get_final_message()


def _message_stream(chunks: Sequence[Any]) -> Any:
    start = _last(chunks, "message_start")
    beta = ".beta." in type(start).__module__
    cls = loaded(_EVENTS, "BetaMessageStream" if beta else "MessageStream")
    if start is None or cls is None:
        _not_there("no message was recorded", "anthropic")
    return cls


class _Raw:
    """What was received, for the SDK to add up."""

    response: Any = None

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        return iter(self._events)


class _Whole:
    """What the SDK's ``get_final_text`` asks for, so that its errors are its own."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def get_final_message(self) -> Any:
        return self._message


def _text(chunks: Sequence[Any]) -> Any:
    return _message_stream(chunks).get_final_text(_Whole(_message(chunks)))


def _completion(chunks: Sequence[Any], asked: Mapping[str, Any]) -> Any:
    cls = loaded(*_STATE)
    events = [c for c in chunks if getattr(c, "type", None) == "chunk"]
    if cls is None or not events:
        _not_there("no completion was recorded", "openai")
    more: dict[str, Any] = {}
    wanted, tools = _format(chunks, asked), _asked(asked, "tools")
    if wanted is not None:
        more["response_format"] = wanted
    if isinstance(tools, (list, tuple)):
        more["input_tools"] = tools
    state = cls(**more)
    for event in events:
        state.handle_chunk(event.chunk)
    completion = state.get_final_completion()
    _put_arguments(completion, chunks)
    return completion


def _asked(asked: Mapping[str, Any], name: str) -> Any:
    """Return an argument, also one among keywords that were collected."""
    if name in asked:
        return asked[name]
    inner = (v[name] for v in asked.values() if isinstance(v, dict) and name in v)
    return next(inner, None)


def _format(chunks: Sequence[Any], asked: Mapping[str, Any]) -> type | None:
    """Return the class that the answer is parsed as: as asked for, or as it was."""
    wanted = _asked(asked, "response_format")
    if is_class(wanted):
        return wanted  # type: ignore[no-any-return]  # a class, see above
    parsed = getattr(_last(chunks, "content.done"), "parsed", None)
    return None if parsed is None else type(parsed)


def _put_arguments(completion: Any, chunks: Sequence[Any]) -> None:
    """Put in what was parsed by tools that the arguments do not show."""
    if len(completion.choices) != 1:
        return
    calls = completion.choices[0].message.tool_calls or []
    for chunk in chunks:
        if getattr(chunk, "type", None) != "tool_calls.function.arguments.done":
            continue
        function = getattr(calls[chunk.index], "function", None)
        if function is not None and function.parsed_arguments is None:
            function.parsed_arguments = chunk.parsed_arguments


def _response(chunks: Sequence[Any]) -> Any:
    completed = _last(chunks, "response.completed")
    if completed is None:
        # The SDK's words: a program may show them to a model.
        raise RuntimeError("Didn't receive a `response.completed` event.")
    return completed.response


def _not_there(what: str, package: str) -> NoReturn:
    version = loaded(f"{package}._version", "__version__")
    raise TypeError(
        f"{what}, or this version of {package} ({version}) cannot add it up"
    )
