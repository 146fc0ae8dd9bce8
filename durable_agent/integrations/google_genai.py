"""google-genai: Gemini's SDK.

What this does not do: it adapts nothing. The methods of ``client.models`` are decorated
as functions, and so are tools; an automatic function call is within the request that
makes it, and the id of a tool call is not to be had. Cut off, such a request is made
again from its start, and its tools replay. It refuses the methods of chats: a chat
keeps its history in itself, where a replay would not put it. A chat whose client's
``models.generate_content`` is decorated records each of its requests, and its tools
between them: nothing that was answered is asked twice.
"""

from __future__ import annotations

import functools
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from durable_agent._frameworks import Integration
from durable_agent._value_names import loaded
from durable_agent.errors import DecorationError

if TYPE_CHECKING:
    from durable_agent._spec import Spec

_CHATS: Final = ("Chat", "AsyncChat")


def adapt(obj: Any, _: Spec) -> None:
    """Refuse the methods of chats. Raises `DecorationError`."""
    while isinstance(obj, functools.partial):
        obj = obj.func
    receiver = obj.__self__ if isinstance(obj, MethodType) else obj
    classes = [loaded("google.genai.chats", name) for name in _CHATS]
    if not any(cls is not None and isinstance(receiver, cls) for cls in classes):
        return
    models = "client.models"
    if type(receiver).__name__.startswith("Async"):
        models = "client.aio.models"
    raise DecorationError(
        f"{type(receiver).__qualname__} objects keep their history in themselves: a "
        "replay would answer without it, and what is asked next would lack it.",
        advice=f"Write `{models}.generate_content = "
        f"checkpointed_llm({models}.generate_content)` before the chat is used (or "
        "generate_content_stream): each request of the chat is recorded then.",
    )


INTEGRATION: Final = Integration(adapt=adapt)
