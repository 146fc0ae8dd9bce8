"""The rows of the README's table of frameworks: what a person writes, what is checked.

What a cell says comes from the results of the tests that are marked with
``pytest.mark.framework(row, check)``; see ``tests/frameworks/__main__.py``.
"""

from __future__ import annotations

from attrs import field, frozen

#: A column, and what every test of it holds a framework to.
CHECKS = {
    "under": "our decorator innermost: the schema of the undecorated function",
    "over": "our decorator on the framework's own tool: the same type comes back",
    "model": "the framework's model object, its requests durable",
    "stream": "replayed with the same chunks; one cut half-way is not complete",
    "call id": "the provider's id of a tool call, found by itself",
    "errors": "shown as the framework does; a swallowed CheckpointError comes again",
    "pauses": "exceptions that steer the framework are no outcomes",
    "killed": "the framework's runner, killed in a tool and run again: nothing twice",
}


@frozen
class Row:
    """One framework: its distributions, and the one line of code a person adds.

    ``line`` is executed by the framework's tests. ``instead`` says, for a check that is
    not to be had, what there is (it has no such thing, or an error that says how).
    """

    title: str
    distributions: tuple[str, ...]
    line: str
    instead: dict[str, str] = field(factory=dict)


ROWS = {
    "langchain": Row(
        "LangChain, LangGraph",
        ("langchain-core", "langgraph"),
        "tools = [checkpointed_tool(t) for t in tools]",
    ),
    "llama-index": Row(
        "LlamaIndex",
        ("llama-index-core",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "not told"},
    ),
    "smolagents": Row(
        "smolagents",
        ("smolagents",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "not told", "pauses": "has none"},
    ),
    "dspy": Row(
        "DSPy",
        ("dspy",),
        "tools = [checkpointed_tool(dspy.Tool(f)) for f in functions]",
        {"call id": "not told", "pauses": "has none", "stream": "replays whole"},
    ),
    "crewai": Row(
        "CrewAI",
        ("crewai",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "not told", "pauses": "has none", "stream": "the answer only"},
    ),
    "mcp": Row(
        "MCP",
        ("mcp",),
        "session = checkpointed_tool(session)",
        {"model": "has none", "stream": "has none", "call id": "by name, arguments"},
    ),
    "fastmcp": Row(
        "fastmcp",
        ("fastmcp",),
        "client = checkpointed_tool(client)",
        {
            "model": "has none",
            "stream": "has none",
            "call id": "by name, arguments",
            "pauses": "has none",
        },
    ),
    "openai-agents": Row(
        "OpenAI Agents SDK",
        ("openai-agents",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "innermost: with a ToolContext, else by name and arguments"},
    ),
    "openai": Row(
        "OpenAI SDK",
        ("openai",),
        "ask = checkpointed_llm(client.chat.completions.create)",
        {
            "under": "tools are your functions",
            "over": "tools are your functions",
            "call id": "by name, arguments",
            "pauses": "has none",
        },
    ),
    "anthropic": Row(
        "Anthropic SDK",
        ("anthropic",),
        "ask = checkpointed_llm(client.messages.create)",
        {
            "call id": "by name, arguments",
            "pauses": "has none",
        },
    ),
    "litellm": Row(
        "litellm",
        ("litellm",),
        "ask = checkpointed_llm(litellm.completion)",
        {
            "under": "tools are your functions",
            "over": "tools are your functions",
            "call id": "by name, arguments",
            "pauses": "has none",
        },
    ),
    "google-genai": Row(
        "google-genai",
        ("google-genai",),
        "models.generate_content = checkpointed_llm(models.generate_content)",
        {
            "over": "tools are your functions",
            "call id": "by name, arguments",
            "pauses": "has none",
        },
    ),
    "pydantic-ai": Row(
        "Pydantic AI",
        ("pydantic-ai-slim",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "innermost: with a RunContext parameter"},
    ),
    "autogen": Row(
        "AutoGen",
        ("autogen-core", "autogen-agentchat"),
        "tools = [checkpointed_tool(t) for t in tools]",
        {
            "under": "sync functions know their session only as the process's one",
            "call id": "innermost: not told",
            "pauses": "has none",
        },
    ),
    "agent-framework": Row(
        "Microsoft Agent Framework",
        ("agent-framework-core",),
        "tools = [checkpointed_tool(t) for t in tools]",
        {"call id": "innermost: with a context, and middleware"},
    ),
}
