"""Raw responses of SDKs: ``with_raw_response`` and ``with_streaming_response``.

What is recorded is what ``parse()`` gives, and the HTTP response beside it. The object
itself is the SDK's, live and on replay; it holds what was parsed where the SDK keeps
it. A response whose body is a stream can be taken by ``parse()`` only.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, NoReturn

from durable_agent._carriers import RAW, find_class, response_of
from durable_agent._stream_objects import AsyncStream, SyncStream
from durable_agent._value_foreign import view_response
from durable_agent._value_names import loaded, name_of
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MODULES: Final = frozenset(
    f"{package}.{module}"
    for package in ("openai", "anthropic")
    for module in ("_response", "_legacy_response")
)
#: Where the SDK keeps what it parsed, and what it is kept under.
_KEPT: Final = "_parsed_by_type"
_KEY: Final = "_cast_to"
#: Methods that would take the bytes of a stream past the recording.
_TAKES: Final = (
    *("read", "text", "json", "iter_bytes", "iter_text", "iter_lines", "iter_raw"),
    *("stream_to_file", "write_to_file"),
)


def is_raw(result: Any) -> bool:
    """Whether this is a raw response of an SDK."""
    kind = type(result)
    if not hasattr(kind, "http_request"):
        return False
    return any(cls.__module__ in _MODULES for cls in kind.__mro__)


def carrier_of(original: Any) -> dict[str, Any]:
    """Return what is recorded of a raw response beside what it parses to."""
    if not isinstance(getattr(original, _KEPT, None), dict) or not hasattr(
        original, _KEY
    ):
        package = type(original).__module__.partition(".")[0]
        version = loaded(f"{package}._version", "__version__")
        raise DecorationError(
            f"{type(original).__qualname__} of {package} {version} does not keep what "
            "it parsed where it is known to: it cannot be recorded.",
            advice="Decorate `create` itself, without with_raw_response.",
        )
    return {
        RAW: name_of(type(original)),
        "retries": getattr(original, "retries_taken", 0),
        "response": view_response(original.http_response),
    }


def hold(original: Any, stream: Any) -> None:
    """Let ``parse()`` give the recorded stream, and nothing else take its bytes."""
    getattr(original, _KEPT)[getattr(original, _KEY)] = stream
    for name in _TAKES:
        if inspect.isroutine(inspect.getattr_static(type(original), name, None)):
            setattr(original, name, _refusing(name))


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        msg = (
            f"{name}() would take the stream past the recording: take what .parse() "
            "gives"
        )
        raise TypeError(msg)

    return refuse


def held(original: Any) -> Any:
    """Return the recorded stream that a raw response holds, None of anything else."""
    if not is_raw(original):
        return None
    for value in getattr(original, _KEPT).values():
        if issubclass(type(value), (SyncStream, AsyncStream)):
            return value
    return None


class _Gone:
    """Stands for the client behind a replayed response, which there is not."""

    def __getattr__(self, name: str) -> NoReturn:
        msg = (
            "this response is replayed: .parse() gives what was recorded, and it "
            "cannot be parsed as anything else; its body is .http_response"
        )
        raise TypeError(msg)


def rebuilt(carrier: Mapping[str, Any], parsed: Any) -> Any:
    """Return the raw response again; what was parsed itself, if its class is gone."""
    cls = find_class(str(carrier.get(RAW, "")))
    if cls is None or cls.__module__ not in _MODULES:
        return parsed
    streamed = issubclass(type(parsed), (SyncStream, AsyncStream))
    raw: Any = object.__new__(cls)
    key = type(parsed)
    vars(raw).update(
        {
            _KEY: key,
            _KEPT: {key: parsed},
            "http_response": response_of(carrier),
            "retries_taken": carrier.get("retries", 0),
            "_client": _Gone(),
            "_options": _Gone(),
            "_stream": streamed,
            "_is_sse_stream": streamed,
            "_stream_cls": None,
        }
    )
    if streamed:
        hold(raw, parsed)
    return raw
