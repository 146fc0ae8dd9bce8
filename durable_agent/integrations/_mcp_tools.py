"""What servers of MCP say of their tools, and how a tool's result is shown."""

from __future__ import annotations

import functools
import inspect
import typing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from durable_agent._current import TOOL_NAMES
from durable_agent._value_names import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from durable_agent.outcomes import Effect

#: The session or client whose tool is called here.
CALLER: Final[ContextVar[Any]] = ContextVar("durable_agent_mcp", default=None)
#: Pages of a list of tools that are read at most.
_PAGES: Final = 1000


class Tools:
    """What a server says of its tools, as far as they were listed."""

    def __init__(self, caller: Any) -> None:
        self._caller = caller
        self._listed: dict[str, Any] = {}

    def effect(self, bound: Mapping[str, Any]) -> Effect:
        """Return the effect that the tool's annotations tell; in doubt, the worst."""
        group = loaded("mcp.client.session_group", "ClientSessionGroup")
        if group is not None and isinstance(self._caller, group):
            self._note(self._caller.tools.values())
        return effect_of(self._listed.get(str(bound["name"])))

    def _note(self, found: Any) -> None:
        for tool in getattr(found, "tools", found):
            self._listed[tool.name] = tool.annotations
            TOOL_NAMES.add(tool.name)

    def noting(self, plain: Callable[..., Any]) -> Any:
        """Return ``list_tools`` that also notes what it gives."""

        @functools.wraps(plain)
        async def list_tools(self_: Any, /, *args: Any, **kwargs: Any) -> Any:
            found = await plain(self_, *args, **kwargs)
            self._note(found)
            return found

        return list_tools

    def before(self, calling: Any, trusted: bool) -> Any:
        """Return a method that sees to what has to be there before it calls a tool.

        The session of a client, and what a trusted server says of the tool.
        """

        @functools.wraps(calling)
        async def call_tool(self_: Any, /, *args: Any, **kwargs: Any) -> Any:
            if hasattr(type(self_), "session"):
                _ = self_.session
            name = kwargs["name"] if "name" in kwargs else args[0] if args else None
            listed = name in self._listed or not hasattr(self_, "list_tools")
            if trusted and not listed:
                await self._list_all(self_)
            token = CALLER.set(self_)
            try:
                return await calling.__get__(self_)(*args, **kwargs)
            finally:
                CALLER.reset(token)

        return call_tool

    async def _list_all(self, caller: Any) -> None:
        cursor: str | None = None
        for _ in range(_PAGES):
            found = await caller.list_tools(**_page(caller, cursor))
            cursor = getattr(found, "next_cursor", None)
            if cursor is None:
                return


def _page(caller: Any, cursor: str | None) -> dict[str, Any]:
    """Return the arguments of ``list_tools`` for the page at a cursor."""
    if cursor is None:
        return {}
    if "cursor" in inspect.signature(caller.list_tools).parameters:
        return {"cursor": cursor}
    return {"params": loaded("mcp_types", "PaginatedRequestParams")(cursor=cursor)}


def effect_of(annotations: Any) -> Effect:
    """Return the effect that annotations tell; without any, a side effect.

    That it destroys nothing does not say that it may be done twice; what only reads and
    destroys is not believed.
    """
    if annotations is None:
        return "side_effect"
    if annotations.read_only_hint:
        return "side_effect" if annotations.destructive_hint else "read_only"
    return "idempotent" if annotations.idempotent_hint else "side_effect"


def shown(result: Any) -> str:
    """Return what a model is shown of a tool's result: its text, if it is all text."""
    texts = [getattr(each, "text", None) for each in result.content]
    if texts and all(isinstance(text, str) for text in texts):
        return "\n".join(typing.cast("list[str]", texts))
    return str(result.model_dump_json(by_alias=True, exclude_none=True))


def told(text: str) -> Any:
    """Return the result of a tool that says what went wrong."""
    content = [loaded("mcp_types", "TextContent")(type="text", text=text)]
    return loaded("mcp_types", "CallToolResult")(content=content, is_error=True)
