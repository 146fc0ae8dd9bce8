"""Options name arguments, also those that a function takes as ``**kwargs``."""

import pytest

from durable_agent import (
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
)


@pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
@pytest.mark.parametrize("decorate", [checkpointed_llm, checkpointed_tool])
def test_what_is_redacted_among_keyword_arguments_is_nowhere_in_the_log(root, decorate):
    """Wrappers of SDKs take ``**kwargs``, and the key of the service is one of them."""
    ran = []

    @decorate(redact="api_key")
    def ask(prompt, **options):
        ran.append(options)
        return prompt

    for _ in range(2):
        with session("s", root=root):
            ask("hi", api_key="sk-secret", seed=1)

    logged = b"".join(file.read_bytes() for file in root.rglob("*.jsonl"))
    assert b"sk-secret" not in logged
    assert ran == [{"api_key": "sk-secret", "seed": 1}]


@pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
def test_what_is_ignored_among_keyword_arguments_is_not_compared(root):
    ran = []

    @checkpointed_tool(ignore="now")
    def send(to, **options):
        ran.append(options)

    for now in (1, 2):
        with session("s", root=root):
            send("joan", now=now, subject="hi")
    with inspect_session("s", root=root) as log:
        (call,) = [event for event in log.events() if event.type == "tool/call"]

    assert ran == [{"now": 1, "subject": "hi"}]
    assert call.data["args"] == {"to": "joan", "options": {"subject": "hi"}}


@pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
def test_a_keyword_argument_can_be_the_key_of_a_call(root):
    ran = []

    @checkpointed_tool(key="order")
    def ship(**options):
        ran.append(options["order"])

    for weight in (1, 2):
        with session("s", root=root):
            ship(order="A", weight=weight)
            with pytest.raises(TypeError, match="'order'"):
                ship(weight=1)

    assert ran == ["A"]


def test_a_tool_that_takes_keyword_arguments_answers_its_tool_call(root):
    call = {"name": "send", "arguments": '{"to": "joan"}'}
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": call}],
    }

    @checkpointed_llm
    def ask(messages):
        return turn

    @checkpointed_tool
    def send(**options):
        return f"sent to {options['to']}"

    with session("s", root=root) as s:
        ask([{"role": "user", "content": "hi"}])
        send(to="joan")
        messages = s.messages()

    assert messages[-1]["tool_call_id"] == "c1"
    assert messages[-1]["content"] == "sent to joan"


@pytest.mark.parametrize("said", [NotApplied, "sent", True])
@pytest.mark.parametrize("option", ["verify", "on_unknown"])
def test_who_settles_a_call_must_answer(root, option, said):
    """Forgotten parentheses must not be recorded for good as "nobody knows"."""
    ran, answers = [], [said, NotApplied()]

    @checkpointed_tool(**{option: lambda call: answers.pop(0)})
    def send(to):
        ran.append(to)
        if len(ran) == 1:
            raise KeyboardInterrupt
        return f"sent to {to}"

    with pytest.raises(KeyboardInterrupt), session("s", root=root):
        send("joan")
    with pytest.raises(TypeError, match="must return"), session("s", root=root):
        send("joan")
    with session("s", root=root):
        assert send("joan") == "sent to joan"

    assert ran == ["joan", "joan"]


def test_a_positional_only_idempotency_key_is_filled_in(root):
    """It cannot be given by name, and the call must not fail for that."""

    @checkpointed_tool(name="pay")
    def pay(n, idempotency_key="", /):
        return n, idempotency_key

    with session("s", root=root):
        paid, key = pay(3)

    assert paid == 3
    assert len(key) == 32
