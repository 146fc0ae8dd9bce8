"""One request as an edit: what is written, and what a damaged one is."""

from __future__ import annotations

import copy
import zlib

import orjson
import pytest

from durable_agent import _edits_parts
from durable_agent._arguments import arguments_of
from durable_agent._edits import Made
from durable_agent._edits_index import Index
from durable_agent._edits_parts import parts_of
from durable_agent.errors import LogCorruptError
from durable_agent.events import Draft, Event
from durable_agent.store import OpenReport

LONG = "a text that is long enough to be worth a reference. " * 4


class Log:
    """Events in memory."""

    report = OpenReport("s-1", "memory", existed=True)

    def __init__(self):
        self.events = []
        self.index = Index()

    def get(self, seq):
        if not 0 <= seq < len(self.events):
            raise LookupError(seq)
        return self.events[seq]

    def add(self, type_, raw):
        seq = len(self.events)
        self.events.append(Event(seq, 0, type_, raw, "c", None, {"attempt": 1}))
        self.index.seen(seq, [Draft(type_, raw, "c", None, {"attempt": 1})])
        return seq

    def ask(self, args, name="f"):
        made = self.index.make(name, orjson.dumps(args))
        head = b'{"function":"f","idempotency_key":"k","tool_call_id":null,'
        seq = self.add("llm/request", head + made.raw)
        self.index.note(name, seq, made)
        return seq

    def answer(self, value):
        return self.add("llm/response", orjson.dumps({"value": value}))


def messages(count):
    return [
        {"role": "user", "content": [{"type": "text", "text": f"{n} {LONG}"}], "n": n}
        for n in range(count)
    ]


def written(log, args):
    """How the request is stored after another one, and its size."""
    seq = log.ask(args)
    assert orjson.dumps(arguments_of(log, seq)) == orjson.dumps(args)
    return log.get(seq).data["args"], len(log.get(seq).raw)


@pytest.fixture
def log():
    made = Log()
    made.ask({"messages": messages(30), "model": "m"})
    return made


def test_what_goes_on_keeps_the_rest(log):
    now = messages(31)

    assert written(log, {"messages": now, "model": "m"})[0] == {
        "messages": {"$edit": [{"$keep": [0, 30]}, now[30]]},
        "model": "m",
    }


@pytest.mark.parametrize("change", ["gain", "lose", "move", "role", "order"])
def test_a_small_change_of_an_item_costs_little(change):
    log = Log()
    before = messages(30)
    if change in {"lose", "move"}:
        before[7]["content"][0]["cache_control"] = {"type": "ephemeral"}
    log.ask({"messages": before})
    now = copy.deepcopy(before)
    if change in {"lose", "move"}:
        del now[7]["content"][0]["cache_control"]
    if change in {"gain", "move"}:
        now[9]["content"][0]["cache_control"] = {"type": "ephemeral"}
    if change == "role":
        now[9]["role"] = "developer"
    if change == "order":
        now[9] = dict(reversed(now[9].items()))

    assert written(log, {"messages": now})[1] < 450


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[5:],
        lambda m: m[:-3],
        lambda m: [*m[:3], {"role": "user", "content": "a summary"}, *m[20:]],
        lambda m: [*m[:9], {"role": "user", "content": "between"}, *m[9:]],
        lambda m: [*m[15:], *m[:15]],
        lambda m: [*m, m[0], m[0]],
        lambda m: [{"role": "user", "content": f"q {n}"} if n == 4 else x
                   for n, x in enumerate(m)],
    ],
    ids=["trim", "cut", "summary", "insert", "turn", "repeat", "edit"],
)  # fmt: skip
def test_what_stays_is_not_written_again(log, change):
    assert written(log, {"messages": change(messages(30)), "model": "m"})[1] < 300


def test_members_of_an_item_are_taken_from_where_they_were(log):
    """An item that is long by its members is not a reason to write it again."""
    item = {"role": "tool", "content": {f"k{n}": f"{n} {LONG}" for n in range(50)}}
    log.ask({"messages": [*messages(30), item]})
    item["content"]["k7"] = "changed"

    assert written(log, {"messages": [*messages(30), item]})[1] < 5000


def test_what_would_cost_too_much_to_read_is_whole(log):
    (snapshot,) = log.index._requests["f"]
    now = {"messages": messages(31), "model": "m"}
    size = len(orjson.dumps(now))
    snapshot.cost = 8 * size
    kept = log.index.make("f", orjson.dumps(now))
    snapshot.cost = 8 * size + 8192 - 100
    whole = log.index.make("f", orjson.dumps(now))

    assert (bool(kept.edit), bool(whole.edit)) == (True, False)


def test_a_request_that_is_too_costly_to_read_is_passed_over(log):
    """A long chain has the most in common, and another one enough."""
    log.ask({"messages": messages(29)[20:], "model": "another one's"})
    first, second = log.index._requests["f"]
    first.cost = 1 << 20
    seq = log.ask({"messages": messages(40)[15:], "model": "m"})

    assert log.get(seq).data["edit"]["base"] == second.seq


def test_what_is_deep_within_an_item_is_named_and_found():
    log = Log()

    def deep(mark):
        item = LONG
        for n in range(14):
            item = {"a": item, "b": [n]} if n % 2 else [item, mark]
        return {"messages": [*messages(3), {"role": "user", "content": item}]}

    log.ask(deep(1))
    args, _ = written(log, deep(2))

    assert LONG not in str(args)


def test_the_outcomes_that_are_remembered_are_the_last_ones(log):
    for n in range(100):
        log.answer({"text": f"{n} {LONG}"})
    sources = log.index._sources.found
    now = [*messages(30), *({"text": f"{n} {LONG}"} for n in (0, 99))]
    args, _ = written(log, {"messages": now, "model": "m"})

    assert args["messages"]["$edit"][1:] == [now[30], {"$from": [100, "value"]}]
    assert len({source.seq for source in sources.values()}) == 64


def test_an_outcome_is_not_read_for_a_small_part_of_it(log):
    """That would make the whole request too costly, and so be the end of the edit."""
    log.answer({"wanted": LONG, "logprobs": list(range(100_000))})
    now = [*messages(30), {"role": "assistant", "content": LONG}]
    args, _ = written(log, {"messages": now, "model": "m"})

    assert args["messages"] == {"$edit": [{"$keep": [0, 30]}, now[30]]}


def test_texts_of_a_stream_are_joined_where_they_follow_one_another(log):
    """A block ends, another begins: each has its text, and so has what is between."""
    first = [{"delta": {"text": LONG[n : n + 50]}} for n in range(0, 200, 50)]
    stop = [{"type": "stop"}, {"type": "start", "note": "n" * 80}]
    second = [{"delta": {"text": f"{n} {LONG}"}} for n in range(2)]
    for part in (first + stop[:1], stop[1:] + second[:1], second[1:]):
        log.add("llm/chunk", orjson.dumps({"chunks": part}))
    log.add("llm/response", orjson.dumps({"stream": {"end": "complete"}}))
    texts = [LONG[:200], f"0 {LONG}1 {LONG}", "n" * 80, LONG[:200] + f"0 {LONG}"]
    args, _ = written(log, {"messages": [*messages(30), *texts], "model": "m"})

    assert args["messages"]["$edit"][1:] == [
        {"$join": {"chunks": [[1, 0, 3]], "path": ["delta", "text"]}},
        {"$join": {"chunks": [[2, 1, 1], [3, 0, 0]], "path": ["delta", "text"]}},
        {"$from": [2, "chunks", 0, "note"]},
        texts[3],
    ]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: {"kwargs": {"input": m}},
        lambda m: {"request": {"$obj": {"type": "a:B", "state": {"messages": m}}}},
        lambda m: {"contents": {"$tuple": m}},
        lambda m: {"messages": [m]},
        lambda m: {"messages": [m, m[:3]]},
        lambda m: {"messages": {"$dict": [["$a", m]]}},
    ],
    ids=["kwargs", "object", "tuple", "batch", "batches", "dict"],
)
def test_lists_are_found_within_other_arguments(wrap):
    log = Log()
    for count in range(1, 40):
        args, size = written(log, wrap(messages(count)))

    assert "$edit" in orjson.dumps(args).decode()
    assert size < 600


def test_vectors_are_compared_as_a_whole():
    log = Log()
    vector = list(range(100_000))
    log.ask({"vector": vector, "messages": messages(3)})
    (snapshot,) = log.index._requests["f"]

    assert written(log, {"vector": vector, "messages": messages(4)})[1] < 500
    assert [len(items) for items in snapshot.lists.values()] == [3]


def test_a_small_request_is_whole():
    log = Log()
    log.ask({"messages": [{"role": "user", "content": LONG}]})
    args, _ = written(log, {"messages": [{"role": "user", "content": LONG}, {}]})

    assert args == {"messages": [{"role": "user", "content": LONG}, {}]}


@pytest.mark.parametrize("tag", ["$edit", "$keep", "$part", "$from", "$text", "$join"])
def test_a_request_that_holds_a_key_of_ours_is_whole(log, tag):
    """Values are encoded without such keys; another writer may not know."""
    odd = [*messages(30), {tag: [0, 1]}]
    log.ask({"messages": odd})
    args, _ = written(log, {"messages": [*odd, *messages(1)]})
    again, _ = written(log, {"messages": [*messages(30), f'"{tag}":']})

    assert args["messages"][30] == {tag: [0, 1]}
    assert "$edit" in again["messages"]


def test_text_that_orjson_writes_otherwise_is_whole(log):
    raw = orjson.dumps({"messages": messages(30), "model": "m"})
    made = log.index.make("f", raw.replace(b'"n":7', b'"n":7.0'))
    odd = log.index.make("f", raw.replace(b'"n":7', b'"n":7.00'))

    assert made.edit
    assert odd.raw == Made(raw.replace(b'"n":7', b'"n":7.00')).raw


def test_a_function_is_not_compared_with_another(log):
    seq = log.ask({"messages": messages(30)}, name="g")

    assert "edit" not in log.get(seq).data


def test_what_was_seen_before_is_not_looked_into_again(log, monkeypatch):
    """A request of 1,000 messages is walked through once, not at each turn."""
    walked = []

    def counted(value):
        walked.append(value)
        return parts_of(value)

    monkeypatch.setattr(_edits_parts, "parts_of", counted)
    now = messages(33)
    log.ask({"messages": now[:31]})
    log.ask({"messages": copy.deepcopy(now)})

    assert walked == now[30:]


def test_no_payload_is_remembered(log):
    log.ask({"messages": messages(31)})
    log.answer({"text": LONG})
    held, seen = [log.index], set()
    while held:
        thing = held.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        assert not isinstance(thing, (str, bytes)) or len(thing) < 64
        if isinstance(thing, dict):
            held += [*thing, *thing.values()]
        elif isinstance(thing, (list, tuple, set)) or type(thing).__name__ == "deque":
            held += thing
        elif hasattr(thing, "__attrs_attrs__"):
            held += [getattr(thing, a.name) for a in thing.__attrs_attrs__]


# Damage ----------------------------------------------------------------------


def edited(log):
    """A request that uses all there is; return its seq."""
    text = f"told {LONG}"
    spoken = "spoken " + LONG
    log.answer({"text": text})
    log.add("tool/result", orjson.dumps({"value": {"rows": [LONG, 1]}}))
    chunks = [{"d": spoken[:100]}, {"d": spoken[100:]}]
    log.add("llm/chunk", orjson.dumps({"chunks": chunks}))
    log.add("llm/response", orjson.dumps({"stream": {"end": "complete"}}))
    shown = orjson.dumps({"rows": [LONG, 1]}).decode()
    now = messages(30)
    now[3]["mark"] = True
    now += [{"content": part} for part in (text, shown, spoken)]
    seq = log.ask({"messages": now, "model": "m"})
    raw = log.get(seq).raw.decode()
    for tag in ("$edit", "$keep", "$part", "$from", "$text", "$join"):
        assert f'"{tag}":' in raw, tag
    return seq


def replaced(log, seq, old, new):
    event = log.get(seq)
    assert event.raw.count(old) == 1, event.raw
    raw = event.raw.replace(old, new)
    log.events[seq] = Event(seq, 0, event.type, raw, "c", None, {})


def test_an_undamaged_one_is_read(log):
    assert len(arguments_of(log, edited(log))["messages"]) == 33


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"base":0', b'"base":99'),
        (b'"base":0', b'"base":5'),
        (b'"base":0', b'"base":-1'),
        (b'"base":0', b'"base":"0"'),
        (b'"base":0', b'"base":null'),
        (b'"base":0', b'"base":1'),
        (b'"base":0', b'"no":0'),
        (b'"edit":{"base"', b'"edit":7,"was":{"base"'),
        (b'"crc":"', b'"crc":"0'),
        (b'"crc":', b'"was":'),
        (b'"$keep":[0,3]', b'"$keep":[0,31]'),
        (b'"$keep":[0,3]', b'"$keep":[-1,3]'),
        (b'"$keep":[0,3]', b'"$keep":[1,3]'),
        (b'"$keep":[0,3]', b'"$keep":[3]'),
        (b'"$keep":[0,3]', b'"$keep":["a","b"]'),
        (b'"$keep":[0,3]', b'"$keep":{}'),
        (b'{"$edit":', b'{"other":'),
        (b'"messages":{"$edit"', b'"massages":{"$edit"'),
        (b'"$part":["messages",3', b'"$part":["messages",99'),
        (b'"$part":["messages",3', b'"$part":["messages",-3'),
        (b'"$part":["messages",3', b'"$part":["messages",4'),
        (b'"$part":["messages",3', b'"$part":["messages","3"'),
        (b'"$from":[1,', b'"$from":[77,'),
        (b'"$from":[1,', b'"$from":[5,'),
        (b'"$from":[1,', b'"$from":[true,'),
        (b'"$from":[1,"value"', b'"$from":[1,"no"'),
        (b'"$text":["compact"', b'"$text":["no"'),
        (b'"$text":["compact"', b'"$text":["json"'),
        (b'"$text":["compact",2', b'"$text":["compact",null'),
        (b'"chunks":[[3,0,1]]', b'"chunks":[[3,0,2]]'),
        (b'"chunks":[[3,0,1]]', b'"chunks":[[3,0,0]]'),
        (b'"chunks":[[3,0,1]]', b'"chunks":[[3,-1,1]]'),
        (b'"chunks":[[3,0,1]]', b'"chunks":7'),
        (b'"path":["d"]', b'"path":["e"]'),
    ],
)
def test_a_damaged_edit_is_refused_by_session_and_seq(log, old, new):
    """A wrong value would go to the model."""
    seq = edited(log)
    replaced(log, seq, old, new)
    with pytest.raises(LogCorruptError, match="cannot be read") as caught:
        arguments_of(log, seq)

    assert (caught.value.session, caught.value.seq) == ("s-1", seq)


@pytest.mark.parametrize(
    "raw", [b"null", b"[]", b'{"args":7}', b"{}", b'{"edit":{"base":null},"args":{}}']
)
def test_a_base_that_is_no_request_is_refused(log, raw):
    seq = edited(log)
    log.events[0] = Event(0, 0, "llm/request", raw)
    with pytest.raises(LogCorruptError) as caught:
        arguments_of(log, seq)

    assert caught.value.seq == 0


def test_an_edit_that_names_itself_is_refused(log):
    seq = edited(log)
    replaced(log, seq, b'"base":0', b'"base":%d' % seq)
    with pytest.raises(LogCorruptError):
        arguments_of(log, seq)


def test_the_checksum_is_of_the_whole_arguments(log):
    seq = edited(log)
    raw = orjson.dumps(arguments_of(log, seq))

    assert log.get(seq).data["edit"]["crc"] == f"{zlib.crc32(raw):08x}"
