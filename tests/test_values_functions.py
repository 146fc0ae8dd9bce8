"""Functions among the arguments of model requests are recorded by name, others not."""

from __future__ import annotations

import functools

import pytest

from durable_agent import (
    ReplayDivergedWarning,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
    values,
)
from durable_agent.errors import ArgumentNotStorableError, ValueNotStorableError

pytestmark = pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")

HERE = "tests.test_values_functions"


def look(place):
    """A tool."""


class Tools:
    def method(self):
        """A tool."""


FUNCTIONS = {
    "function": (look, f"{HERE}:look"),
    "decorated": (checkpointed_tool(look), f"{HERE}:look"),
    "named": (checkpointed_tool(name="see")(look), "see"),
    "method": (Tools().method, f"{HERE}:Tools.method"),
    "decorated method": (checkpointed_tool(Tools().method), f"{HERE}:Tools.method"),
    "builtin": (len, "builtins:len"),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_reads_as_its_name(kind):
    function, name = FUNCTIONS[kind]
    raw = values.encode({"tools": [function, (function,)]}, functions=True)

    assert values.decode(raw) == {"tools": [name, (name,)]}
    assert values.look(raw) == {"tools": [name, [name]]}
    assert values.canonical(raw)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_elsewhere_a_function_is_refused(kind):
    function, _ = FUNCTIONS[kind]
    with pytest.raises(ValueNotStorableError):
        values.encode([function])


@pytest.mark.parametrize("value", [functools.partial(look, 1), object(), iter(())])
def test_what_has_no_name_of_its_own_is_refused(value):
    with pytest.raises(ValueNotStorableError, match="cannot be stored"):
        values.encode([value], functions=True)


def test_a_model_request_is_told_apart_by_the_names_of_its_functions(root):
    sent = []

    @checkpointed_llm(name="ask")
    def ask(messages, tools, on_token=None):
        sent.append(tools)
        return "hm"

    def token(text):
        """A call-back."""

    for _ in range(2):
        with session("s", root=root):
            ask([], [look], on_token=token)
    asked = len(sent)
    with pytest.warns(ReplayDivergedWarning), session("s", root=root):
        ask([], [len], on_token=token)
    with inspect_session("s", root=root) as seen:
        (first, *_) = (e for e in seen.events() if e.type == "llm/request")

    assert (asked, len(sent)) == (1, 2)
    assert first.data["args"]["tools"] == [{"$function": f"{HERE}:look"}]


def test_a_tool_takes_no_function_by_name(root):
    """Two closures of one name do different things: it could be the wrong one's."""
    ran = []

    @checkpointed_tool(name="call")
    def call(function):
        ran.append(function)

    with session("s", root=root):
        with pytest.raises(ArgumentNotStorableError, match="ignore="):
            call(lambda: 1)

    assert ran == []
