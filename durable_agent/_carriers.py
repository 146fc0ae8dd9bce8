"""What an SDK hands a response over in: a stream's object, a raw HTTP response.

Beside a recorded value or stream stands its *carrier*: the classes of those objects,
and the HTTP response that it came with, as `_value_foreign` views it: status, headers,
URL. A replayed stream answers for its class (``isinstance``) and has that response; it
was never connected to anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from durable_agent import values
from durable_agent._value_foreign import response_from, view_response
from durable_agent._value_names import is_class, loaded, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How a carrier names the classes.
STREAM: Final = "stream"
RAW: Final = "raw"


def carrier_of_stream(stream: Any) -> dict[str, Any]:
    """Return what is recorded of a stream's object; empty if nothing is."""
    if find_class(name_of(type(stream))) is not type(stream):
        return {}
    carrier: dict[str, Any] = {STREAM: name_of(type(stream))}
    view = view_response(getattr(stream, "response", None), body=False)
    return carrier if view is None else {**carrier, "response": view}


def encoded(carrier: Mapping[str, Any]) -> bytes:
    """Return the member of an outcome's payload; empty without a carrier."""
    return b',"carrier":' + values.encode(carrier) if carrier else b""


def find_class(name: str) -> type | None:
    """Return the class of streams or responses of this name, if it is loaded."""
    module, _, qualname = name.partition(":")
    found = loaded(module, qualname)
    if is_class(found) and any(hasattr(found, each) for each in _TELLING):
        cls: type = found
        return cls
    return None


#: One of these has every class that a carrier may name.
_TELLING: Final = ("__next__", "__anext__", "http_request")


def stream_class(carrier: Mapping[str, Any]) -> type | None:
    """Return the class that a stream answers for."""
    return find_class(str(carrier.get(STREAM, "")))


def response_of(carrier: Mapping[str, Any]) -> Any:
    """Return the HTTP response, None if none was recorded."""
    view = carrier.get("response")
    return None if view is None else response_from(view)
