"""Any conversation, edited in any way, reads back exactly; whoever interleaves."""

from __future__ import annotations

import copy
import json

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from durable_agent import (
    CheckpointPolicy,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    values,
)
from durable_agent._memory import MemoryStore
from tests.strategies import texts

#: Long enough to be referred to, now and then.
long_texts = st.builds(lambda text, n: (text + "é$x") * n, texts, st.integers(1, 40))
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | long_texts
contents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts | st.sampled_from(["$edit", "$keep", "a"]), inner)
    ),
    max_leaves=8,
)
messages = (
    st.fixed_dictionaries({"role": st.sampled_from("ua"), "content": contents})
    | st.builds(lambda text: HumanMessage(content=text), long_texts)
    | st.builds(lambda text: AIMessage(content=text), long_texts)
    | contents
)
where = st.integers(0, 99)
steps = st.one_of(
    st.tuples(st.just("append"), messages),
    st.tuples(st.just("insert"), where, messages),
    st.tuples(st.just("replace"), where, messages),
    st.tuples(st.just("trim"), st.integers(1, 3)),
    st.tuples(st.just("repeat"), where),
    st.tuples(st.just("mark"), where),
    st.tuples(st.just("tool"), contents),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("ask"), st.sampled_from("pq"), st.booleans()),
)


@checkpointed_llm
def p(messages, config=None):
    return {"content": f"answer {len(messages)} " * 12, "more": [1, {"a": "b" * 70}]}


@checkpointed_llm
def q(**kwargs):
    yield from ("some ", "words " * 20, f"end {len(kwargs)}")


@checkpointed_tool
def tool(value):
    return value


def changed(talk, step):
    """Do one step to a conversation, in place."""
    match step:
        case ("append", message):
            talk.append(message)
        case ("insert", at, message):
            talk.insert(at % (len(talk) + 1), message)
        case ("replace", at, message) if talk:
            talk[at % len(talk)] = message
        case ("trim", count):
            del talk[:count]
        case ("repeat", at) if talk:
            talk.append(copy.deepcopy(talk[at % len(talk)]))
        case ("mark", at) if talk:
            for each in talk:
                if isinstance(each, dict):
                    each.pop("mark", None)
            if isinstance(talk[at % len(talk)], dict):
                talk[at % len(talk)]["mark"] = {"type": "ephemeral"}
        case ("tool", value):
            talk.append(tool(value))


def asked(talk, step, sent):
    _, which, rebuild = step
    given = copy.deepcopy(talk) if rebuild else talk
    if which == "p":
        raw = {"messages": values.encode(given), "config": values.encode(None)}
        sent.append(raw)
        talk.append(p(given))
    else:
        raw = {"kwargs": values.encode({"contents": given, "n": len(given)})}
        sent.append(raw)
        talk.append("".join(q(contents=given, n=len(given))))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def by_the_book(stored, seq):
    """A second reader, written from the description in ``events``."""
    data = stored[seq]
    if "edit" not in data:
        return data["args"]
    base = data["edit"]["base"]
    old = None if base is None else by_the_book(stored, base)

    def read(node, path):
        match node:
            case {"$edit": items, **rest} if not rest:
                listed = []
                for n, item in enumerate(items):
                    match item:
                        case {"$keep": [a, b], **rest} if not rest:
                            listed += at(old, path)[a:b]
                        case _:
                            listed.append(read(item, [*path, n]))
                return listed
            case {"$part": keys, **rest} if not rest:
                return at(old, keys)
            case {"$from": [where, *keys], **rest} if not rest:
                return at(stored[where], keys)
            case {"$text": [form, where, *keys], **rest} if not rest:
                return json.dumps(
                    at(stored[where], keys),
                    ensure_ascii="-utf8" not in form,
                    separators=(",", ":") if form.startswith("compact") else None,
                )
            case {"$join": {"chunks": ranges, "path": keys}, **rest} if not rest:
                return "".join(
                    at(stored[where]["chunks"][n], keys)
                    for where, a, b in ranges
                    for n in range(a, b + 1)
                )
            case dict():
                return {name: read(v, [*path, name]) for name, v in node.items()}
            case list():
                return [read(v, [*path, n]) for n, v in enumerate(node)]
        return node

    return read(data["args"], [])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), steps), min_size=4, max_size=30))
def test_every_request_reads_back_byte_for_byte(program):
    store = MemoryStore()
    talks = ([], [])
    sent = []
    program = [(n, ("ask", "p", False)) for n in (0, 1)] + program
    program += [(n, ("ask", which, True)) for n in (0, 1) for which in "pq"]
    while program:
        with conversation("s", store=store, policy=CheckpointPolicy.none()):
            while program:
                agent, step = program.pop(0)
                if step[0] == "reopen":
                    break
                if step[0] == "ask":
                    asked(talks[agent], step, sent)
                else:
                    changed(talks[agent], step)
    with inspect_session("s", store=store) as looked:
        shown = [e for e in looked.events() if e.type == "llm/request"]

        stored = {event.seq: event.data for event in looked._log.read()}

    for event in shown:
        assert by_the_book(stored, event.seq) == event.data["args"]
    members = [
        b",".join(orjson.dumps(name) + b":" + raw for name, raw in args.items())
        for args in sent
    ]
    assert [e.raw.partition(b'"args":')[2] for e in shown] == [
        b"{" + each + b"}}" for each in members
    ]
