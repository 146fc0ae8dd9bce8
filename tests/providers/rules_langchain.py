"""What LangChain messages must be so that a chat model of OpenAI's form takes them.

Messages are turned into the wire form by ``convert_to_openai_messages`` and judged by
the rules of OpenAI's chat completions. LangChain keeps calls whose arguments could not
be parsed apart (``invalid_tool_calls``); its chat models send them as calls again, so
they count as calls here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.utils import (
    convert_to_messages,
    convert_to_openai_messages,
)

from tests.providers import rules_openai_chat
from tests.providers.rules_base import Judgement, Rule, table

if TYPE_CHECKING:
    from tests.providers.rules_base import Ids

_MESSAGES = "https://docs.langchain.com/oss/python/langchain/messages"

#: The rules of the wire form that LangChain's own types leave open. The others are
#: judged too; a message that converts cannot break most of them.
_WIRE = ("utf8", "call-ids", "answered", "tool-needs-call", "answered-once")

RULES = table(
    *(rules_openai_chat.RULES[rule] for rule in _WIRE),
    Rule(
        "convertible",
        "each message is a LangChain message, or something that becomes one",
        f"{_MESSAGES} (convert_to_messages: MESSAGE_COERCION_FAILURE)",
    ),
    Rule(
        "tool-call-id",
        "a ToolMessage has the id of the call that it answers",
        f"{_MESSAGES}#tool-message (tool_call_id: must match the AIMessage's call)",
    ),
)


def check(messages: Any, *, ids: Ids = "strict") -> list[str]:
    """Return the rules that these messages break; empty if they are accepted."""
    judgement = Judgement(RULES)
    try:
        known = convert_to_messages(messages)
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        judgement.broken("convertible", "messages", str(error))
        return judgement.breaches
    for index, message in enumerate(known):
        told = not isinstance(message, ToolMessage) or message.tool_call_id
        judgement.check(told or ids == "lenient", "tool-call-id", f"messages[{index}]")
    if judgement.breaches:
        return judgement.breaches
    wire = [converted for message in known for converted in _wire(message)]
    return rules_openai_chat.check(wire, ids=ids)


def _wire(message: BaseMessage) -> list[dict[str, Any]]:
    converted = convert_to_openai_messages([message])
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        converted[0].setdefault("tool_calls", []).extend(
            {
                "type": "function",
                "id": call["id"],
                "function": {"name": call["name"], "arguments": call["args"]},
            }
            for call in message.invalid_tool_calls
        )
    return converted
