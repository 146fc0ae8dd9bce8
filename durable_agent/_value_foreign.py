"""Things of other packages that recorded errors carry.

HTTP requests and responses of httpx and requests are no values (they hold streams and
clients), yet retry predicates read ``error.response.status_code`` and ``headers``. Of
an error that holds one, or of what an SDK hands over, a view is recorded: method and
URL; of a response also status, headers, and the body if it was read and is short.
Cookies, the query and the headers of the request are left out. It comes back as an
object of the same class that was never connected to anything.

``ValidationError`` of pydantic is compiled and cannot be made by state; it is made
again from its line errors by pydantic's own function for that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from durable_agent._value_code import DECODERS, Decoder
from durable_agent._value_names import loaded, refuse
from durable_agent._value_plain import dump, load
from durable_agent._value_state import dict_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from durable_agent._value_plain import Json

VALIDATION_ERROR: Final = ("pydantic_core._pydantic_core", "ValidationError")

#: Longer bodies are left out of the view.
_MAX_BODY_BYTES: Final = 65_536
#: Secrets, and what describes the bytes on the wire rather than the decoded body.
_NO_HEADERS: Final = frozenset(
    {"set-cookie", "content-encoding", "content-length", "transfer-encoding"}
)


#: Package, then the module that holds the classes.
_PACKAGES: Final = {
    "httpx": "httpx",
    "httpx2": "httpx2",
    "requests": "requests.models",
}


def _package_of(cls: Any, name: str) -> str | None:
    """Return the loaded package whose class of this name it is."""
    for package, module in _PACKAGES.items():
        if cls is not None and loaded(module, name) is cls:
            return package
    return None


def put_http(value: Any, put: Callable[[Any], Json]) -> Json:
    """Return ``$response`` or ``$request``, None of anything else."""
    package = _package_of(type(value), "Request")
    if package is not None:
        return {"$request": [package, put(_view_request(value))]}
    found = view_response(value, limit=_MAX_BODY_BYTES)
    return None if found is None else {"$response": [found[0], put(found[1])]}


def view_response(
    value: Any, *, body: bool = True, limit: int | None = None
) -> list[Any] | None:
    """Return package and view of an HTTP response, None of anything else.

    A body that was not read, or is longer than ``limit`` bytes, is left out.
    """
    package = _package_of(type(value), "Response")
    if package is None:
        return None
    state = dict_of(value) or {}
    httpx = package != "requests"
    headers = value.headers.multi_items() if httpx else value.headers.items()
    content = state.get("_content") if body else None
    whole = type(content) is bytes and (limit is None or len(content) <= limit)
    view = {
        "status": value.status_code,
        "headers": [[k, v] for k, v in headers if k.lower() not in _NO_HEADERS],
        "body": content if whole else None,
        "request": _view_request(state.get("_request" if httpx else "request")),
        "url": _bare(value) if not httpx else None,
        "reason": None if httpx else value.reason,
    }
    return [package, view]


def _view_request(request: Any) -> list[str] | None:
    if request is None:
        return None
    return [str(request.method), _bare(request)]


def _bare(holder: Any) -> str:
    """Return the URL without what may be secret in it."""
    return str(holder.url).partition("#")[0].partition("?")[0]


def _get_request(body: Json, decoder: Decoder) -> Any:
    package, view = body[0], decoder.get(body[1])
    return _request(package, view)


def _request(package: str, view: list[str] | None) -> Any:
    return None if view is None else _http_class(package, "Request")(*view)


def _http_class(package: str, name: str) -> Any:
    cls = loaded(_PACKAGES[package], name)
    if cls is None:
        refuse(f"{package}:{name}", "its module is not loaded")
    return cls


def _get_response(body: Json, decoder: Decoder) -> Any:
    return response_from([body[0], decoder.get(body[1])])


def response_from(found: list[Any]) -> Any:
    """Return a response as a view shows it, of the same class."""
    package, view = found
    cls = _http_class(package, "Response")
    if package == "requests":
        return _requests_response(cls, view)
    return cls(
        view["status"],
        headers=view["headers"],
        content=view["body"] or b"",
        request=_request(package, view["request"]),
    )


def _requests_response(cls: type, view: dict[str, Any]) -> Any:
    headers = loaded("requests.structures", "CaseInsensitiveDict")(view["headers"])
    response = cls()
    response.__dict__.update(
        status_code=view["status"],
        headers=headers,
        _content=view["body"] or b"",
        _content_consumed=True,
        url=view["url"],
        reason=view["reason"],
        request=_request("requests", view["request"]),
    )
    return response


DECODERS["$request"] = _get_request
DECODERS["$response"] = _get_response


def put_validation(error: Any, put: Callable[[Any], Json]) -> Json:
    """Return the line errors. Raises if they would not give the same text again."""
    title = error.title
    lines = [
        {k: line[k] for k in ("type", "loc", "msg", "input", "ctx") if k in line}
        for line in error.errors(include_url=False)
    ]
    tree = [put(title), [[(k, put(v)) for k, v in line.items()] for line in lines]]
    if str(get_validation(load(dump(tree)), Decoder().get)) != str(error):
        raise ValueError(title)
    return tree


def get_validation(tree: Json, get: Callable[[Json], Any]) -> BaseException:
    """Return a ``ValidationError`` with these line errors."""
    cls: Any = loaded(*VALIDATION_ERROR)
    if cls is None:
        refuse(":".join(VALIDATION_ERROR), "pydantic is not loaded")
    core: Any = sys.modules[VALIDATION_ERROR[0]]
    known = frozenset(each["type"] for each in core.list_all_errors())
    lines = []
    for pairs in tree[1]:
        line = {k: get(doc) for k, doc in pairs}
        message = line.pop("msg")
        if line["type"] not in known:
            context = line.pop("ctx", None)
            line["type"] = core.PydanticCustomError(line["type"], message, context)
        lines.append(line)
    error: BaseException = cls.from_exception_data(get(tree[0]), lines)
    return error
