"""What a session shows of itself: every call and how it stands, and nothing hostile."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent import (
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    report,
    session,
    step_boundary,
)
from durable_agent._preview import preview, preview_arguments, printable
from durable_agent._rows import Where, status_of
from durable_agent._tables import duration
from durable_agent.recovery import Recorded, Slot
from tests.conftest import clean_environment

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=y>&amp;\x1b[31m\u202e\ud83c"


@checkpointed_tool
def tool(n):
    return {"n": n}


@checkpointed_tool(redact="pin")
def unlock(customer, pin):
    return True


@checkpointed_tool(effect="composite")
def both(n):
    return tool(n), tool(n + 1)


@checkpointed_tool
def fail(text):
    raise KeyError(text)


@checkpointed_tool
def slow(n):
    raise TimeoutError(n)


@checkpointed_llm
def ask(messages, model="m"):
    return {
        "choices": [
            {
                "message": {"role": "assistant", "content": f"answer {len(messages)}"},
                "finish_reason": "stop",
            }
        ],
        "model": model,
        "usage": {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234},
    }


def user(text):
    return {"role": "user", "content": text}


def by_name(shown):
    return {row.name: row for row in shown.rows}


class Page(HTMLParser):
    """What is in a page: its tags with attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def test_a_row_says_what_was_asked_what_came_and_how_long_it_took(root):
    with session("s", root=root) as s:
        tool(3)
        ask([user("hi")])
        shown = by_name(report.of(s))

    assert shown["tool"].status == "recorded"
    assert (shown["tool"].arguments, shown["tool"].result) == ("n=3", "{'n': 3}")
    assert shown["tool"].seconds >= 0
    assert shown["ask"].result == "'answer 1'"
    assert (shown["ask"].tokens.input, shown["ask"].tokens.output) == (1200, 34)
    with inspect_session("s", root=root) as log:
        seqs = {e.seq: e.call for e in log.events() if e.type.endswith("/call")}
    assert seqs[shown["tool"].seq] == shown["tool"].id


@pytest.mark.filterwarnings("ignore::durable_agent.FinishedSessionWarning")
def test_what_replayed_is_told_from_what_was_recorded_in_this_run(root):
    def run(*numbers):
        with session("s", root=root) as s:
            for number in numbers:
                tool(number)
            with pytest.raises(KeyError):
                fail("x")
            return report.of(s)

    first = run()
    second = run()
    with session("s", root=root) as s:
        before = report.of(s)
        with pytest.raises(KeyError):
            fail("x")
        tool(1)
        third = report.of(s)

    assert [(r.status, r.again) for r in first.rows] == [("failed", False)]
    assert [(r.status, r.again) for r in second.rows] == [("failed", True)]
    assert [(r.status, r.again) for r in before.rows] == [("failed", False)]
    assert [(r.name, r.status) for r in third.rows] == [
        ("fail", "failed"),
        ("tool", "recorded"),
    ]
    assert second.rows[0].result == "KeyError: 'x'"
    assert "failed, replayed" in report.text(s)


def test_a_conversation_has_replayed_nothing(root):
    with conversation("c", root=root):
        ask([user("one")])
    with conversation("c", root=root) as s:
        ask([*s.messages(), user("two")])
        shown = report.of(s)

    assert [row.status for row in shown.rows] == ["recorded", "recorded"]
    assert shown.counts == {"recorded": 2}


def test_a_call_that_runs_now_is_open(root):
    """And in doubt is what a dead program left."""
    running, go_on = threading.Event(), threading.Event()

    @checkpointed_tool(name="waits")
    def waits():
        running.set()
        go_on.wait()

    with session("s", root=root) as s:
        thread = threading.Thread(target=s.bind(waits))
        thread.start()
        running.wait()
        (row,) = report.of(s).rows
        with inspect_session("s", root=root) as log:
            (outside,) = report.of(log).rows
        go_on.set()
        thread.join()

    assert (row.status, outside.status) == ("open", "open")
    assert row.result == ""
    assert report.of(s).rows[0].status == "recorded"


def test_what_a_killed_program_left_is_in_doubt_for_its_next_run(root):
    code = (
        "import os, signal, durable_agent as da\n"
        "@da.checkpointed_tool(name='pay')\n"
        "def pay(n): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with da.session('s', root={str(root)!r}): pay(7)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env=clean_environment()
    )
    with session("s", root=root) as s:
        (row,) = report.of(s).rows

        assert done.returncode == -signal.SIGKILL
        assert (row.status, row.arguments, row.seconds) == ("in doubt", "n=7", None)
        s.resolve(row.id, NotApplied())
        assert report.of(s).rows[0].status == "not applied"


def test_a_call_that_was_made_again_in_this_run_did_not_replay(root):
    """Its program was killed in it; it reads only, so it ran again."""
    code = (
        "import os, signal, durable_agent as da\n"
        "@da.checkpointed_tool(name='look', effect='read_only')\n"
        "def look(n): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with da.session('s', root={str(root)!r}): look(7)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, env=clean_environment())

    @checkpointed_tool(name="look", effect="read_only")
    def look(n):
        return n

    with session("s", root=root) as s:
        assert look(7) == 7
        (row,) = report.of(s).rows

    assert (row.status, row.attempt) == ("recorded", 2)


def test_an_effect_that_may_have_happened_is_in_doubt_with_its_error(root):
    with session("s", root=root) as s:
        with pytest.raises(TimeoutError):
            slow(1)
        (row,) = report.of(s).rows

    assert (row.status, row.result) == ("in doubt", "TimeoutError: 1")


def test_steps_have_tables_of_their_own_and_nested_calls_stand_below(root):
    with session("s", root=root) as s:
        tool(0)
        with step_boundary("plan"):
            both(1)
        tool(9)
        with step_boundary("plan"):
            tool(3)
            s.record("now", lambda: 5)
        shown = report.of(s)
        page = Page(s._repr_html_())

    assert [(row.step, row.name, row.depth) for row in shown.rows] == [
        ("", "tool", 0),
        *(("plan", "both", 0), ("plan", "tool", 1), ("plan", "tool", 1)),
        ("", "tool", 0),
        *(("plan #2", "tool", 0), ("plan #2", "now", 0)),
    ]
    assert page.tags.count("table") == 4
    assert [t for t in page.texts if re.match("step|outside", t)] == [
        *("outside of steps", "step plan", "outside of steps", "step plan #2"),
    ]


def test_calls_of_steps_that_overlap_are_all_shown_once(root):
    @step_boundary("a")
    async def one():
        tool(1)
        await asyncio.sleep(0)
        tool(2)

    @step_boundary("b")
    async def two():
        tool(3)
        await asyncio.sleep(0)
        tool(4)

    async def main():
        async with session("s", root=root) as s:
            await asyncio.gather(one(), two())
            return s

    s = asyncio.run(main())
    shown = report.of(s)

    assert sorted(row.arguments for row in shown.rows) == ["n=1", "n=2", "n=3", "n=4"]
    assert {row.step for row in shown.rows} <= {"a", "b"}
    assert s._repr_html_().count("<tr") == 4 + s._repr_html_().count("<table")


def test_a_step_inside_a_call_is_not_that_of_calls_beside_it(root):
    async def main():
        inside = asyncio.Event()
        done = asyncio.Event()

        @checkpointed_tool(effect="composite")
        async def agent():
            with step_boundary("inner"):
                tool(1)
                inside.set()
                await done.wait()

        async def beside():
            await inside.wait()
            tool(2)
            done.set()

        async with session("s", root=root) as s:
            await asyncio.gather(agent(), beside())
            return report.of(s).rows

    rows = asyncio.run(main())

    assert [(row.name, row.arguments, row.step) for row in rows] == [
        ("agent", "", ""),
        ("tool", "n=1", "inner"),
        ("tool", "n=2", ""),
    ]


def test_redacted_arguments_stay_redacted(root):
    with session("s", root=root) as s:
        unlock("joan", pin="4711-secret")
        everything = report.text(s) + s._repr_html_()
    with inspect_session("s", root=root) as log:
        everything += report.text(log) + log._repr_html_()
        recorded = [
            e.data["args"]["pin"] for e in log.events() if e.type == "tool/call"
        ]

    assert "4711" not in everything
    assert recorded == [{"$redacted": True}]
    assert everything.count("pin=<redacted>") == 2
    assert everything.count("pin=&lt;redacted&gt;") == 2


def test_hostile_texts_make_no_element_and_no_control_character(root):
    """Arguments come from models, and results from the world."""

    @checkpointed_tool(name=HOSTILE.replace("\ud83c", ""))
    def named(text):
        return text

    hostile_id = "<img src=x>\u202e" + "x" * 20
    with session(hostile_id, root=root) as s:
        named(HOSTILE)
        with pytest.raises(KeyError):
            fail(HOSTILE)
        with step_boundary(HOSTILE.replace("\ud83c", "")):
            tool({HOSTILE: [HOSTILE]})
        ask([user(HOSTILE)])
        html, text = s._repr_html_(), report.text(s)

    page = Page(html)
    assert set(page.tags) <= ALLOWED
    assert {name for name, _ in page.attributes} <= {"style", "class", "scope"}
    html.encode("utf-8")
    assert all(part.isprintable() for part in page.texts)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "<script>alert" in "".join(page.texts)


ALLOWED = {
    *("div", "p", "strong", "em", "small", "br", "code"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}


def test_the_table_takes_the_colours_of_its_page_and_nothing_from_outside(root):
    """Readable in dark mode; a notebook that is published calls nobody."""
    with session("s", root=root) as s:
        tool(1)
        html = s._repr_html_()

    styles = "; ".join(v for n, v in Page(html).attributes if n == "style")
    properties = dict(re.findall(r"([a-z-]+): ([^;]+)", styles))
    assert properties["color"] == "inherit"
    assert properties["background"] == "transparent"
    assert "currentColor" in properties["border-bottom"]
    assert not re.search(r"#[0-9a-f]{3}|rgb|url\(|https?:|@import|<style", html)


def test_dollar_signs_are_no_mathematics(root):
    with session("s", root=root) as s:
        html = s._repr_html_()

    assert {"tex2jax_ignore", "mathjax_ignore"} <= set(
        dict(Page(html).attributes)["class"].split()
    )


def test_only_the_newest_calls_are_shown_and_the_others_counted(root):
    with session("s", root=root) as s:
        for n in range(230):
            tool(n)
        shown = report.of(s)
        html = s._repr_html_()
        few = report.of(s, rows=3)

    assert [row.arguments for row in shown.rows] == [f"n={n}" for n in range(30, 230)]
    assert html.count("<tr") == 200 + 1
    assert "30 earlier calls are left out" in html
    assert "230 calls: 230 recorded" in html
    assert [row.arguments for row in few.rows] == ["n=227", "n=228", "n=229"]
    assert few.left_out == 227


def test_previews_are_cut_whatever_the_size_of_the_value(root):
    with session("s", root=root) as s:
        tool("x" * 3_000_000)
        tool([[n] * 50 for n in range(5000)])
        shown = report.of(s)

    assert all(len(row.arguments) == 80 for row in shown.rows)
    assert all(len(row.result) == 80 for row in shown.rows)
    assert all(row.result.endswith("…") for row in shown.rows)
    assert len(s._repr_html_()) < 6000


def test_of_a_request_what_is_new_is_shown_also_where_it_is_stored_as_an_edit(root):
    messages = [user(f"question number {n} " + "x" * 200) for n in range(20)]
    with session("s", root=root) as s:
        ask(messages)
        ask([*messages, user("last")])
        rows = report.of(s).rows
        edited = [e for e in s._core.log.read() if b'"edit"' in e.raw]

    assert len(edited) == 1
    assert rows[0].arguments.startswith(
        "messages=[…19 more, {'role': 'user', 'content'"
    )
    new = "messages=[…20 more, {'role': 'user', 'content': 'last'}], model='m'"
    assert rows[1].arguments == new


def test_a_closed_session_and_one_from_outside_show_the_same(root):
    with session("s", root=root) as s:
        both(1)
    with inspect_session("s", root=root) as log:
        outside = report.of(log)

    assert report.of(s).rows == outside.rows
    assert (report.of(s).state, outside.state) == ("closed", "finished")
    assert repr(log) == "<Inspection 's' finished>"


def test_a_payload_that_cannot_be_read_is_said_to_be_unreadable(root):
    """A table is looked at when something is wrong."""
    with session("s", root=root):
        tool(1)
        ask([user("hi")])

    def broken(seq):
        raise OSError(5, "Input/output error")

    with inspect_session("s", root=root) as log:
        log._log.get = broken
        rows = report.of(log).rows

    assert [row.status for row in rows] == ["recorded", "recorded"]
    assert {row.arguments for row in rows} == {"<unreadable>"}
    assert {row.result for row in rows} == {"<unreadable>"}


def test_a_session_without_calls_says_so(root):
    with session("s", root=root) as s:
        assert "no calls" in report.text(s)
        assert "<table" not in s._repr_html_()


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"$decimal": "1.50"}, "1.50"),
        ({"$tuple": [1, {"$bytes": "b2s="}]}, "(1, <bytes>)"),
        ({"$dict": [[1, "a"], [{"$tuple": []}, None]]}, "{1: 'a', (): None}"),
        ({"$set": [True, 1.5]}, "{True, 1.5}"),
        ({"$str": "a\\udc80"}, "a\\udc80"),
        ({"$enum": ["m:Colour", "RED", 1]}, "Colour.RED"),
        ({"$obj": {"type": "m:A.B", "state": {"x": 1}}}, "B(x=1)"),
        ({"$obj": {"type": "m:N", "value": {"$tuple": [1, 2]}}}, "(1, 2)"),
        ({"$error": [{"type": "m:E", "text": "why\n"}]}, r"E: why\n"),
        ({"$deque": [None, [1]]}, "[1]"),
        ({"$via": ["m:T", {"a": 1}]}, "{'a': 1}"),
        ({"$default": ["builtins:int", {"a": 1}]}, "{'a': 1}"),
        ({"$deep": [[1], 2]}, "[1]"),
        ({"$int": "0x1f"}, "0x1f"),
        ({"$redacted": "8052"}, "<redacted>"),
        ({"$ndarray": {"shape": [2]}}, "<ndarray>"),
        ({"$from": [3, "value"]}, "…"),
        ({"$enum": 5}, "<enum>"),
        ({"$error": []}, "<error>"),
        ({"$obj": None}, "<obj>"),
        ({"$later": 1}, "<later>"),
    ],
)
def test_tagged_values_are_shown_much_as_python_shows_them(node, shown):
    assert preview(node, 80) == shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | st.sampled_from(["$obj", "$error", "$deep", "$edit", "$keep"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.integers(2, 90), st.booleans())
def test_whatever_a_record_holds_its_preview_is_one_short_line(node, limit, newest):
    for shown in (
        preview(node, limit),
        preview_arguments({"name": node}, limit, newest=newest),
    ):
        assert len(shown) <= limit
        assert shown.isprintable()


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(2, 90))
def test_a_text_becomes_printable_and_short(text, limit):
    shown = printable(text, limit)

    assert len(shown) <= limit
    assert shown.isprintable()
    assert text != shown or len(text) <= limit


def test_a_record_that_refers_to_itself_has_a_preview():
    node = {"$deep": []}
    node["$deep"].append(node)

    assert preview(node, 80) == "…"


def test_only_of_requests_are_older_items_left_out():
    args = {"items": [1, 2, 3], "one": [4]}

    assert preview_arguments(args, 80) == "items=[1, 2, 3], one=[4]"
    assert preview_arguments(args, 80, newest=True) == "items=[…2 more, 3], one=[4]"


def test_streams_show_how_they_began_and_models_what_they_said(root):
    @checkpointed_tool
    def count(n):
        yield from range(n)

    @checkpointed_llm
    def stream(messages):
        for word in ("so", " ", "far"):
            yield {
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": word}}],
            }

    with session("s", root=root) as s:
        assert list(count(3)) == [0, 1, 2]
        broken = stream([user("hi")])
        next(broken)
        next(broken)
        whole = report.of(s).rows[1]
        broken.close()
        rows = report.of(s).rows

    assert rows[0].result.startswith("[0")
    assert whole.status == "open"
    assert rows[1].result.startswith("'so")


def test_a_report_of_its_own_says_how_much_it_leaves_out(root):
    with session("s", root=root) as s:
        for n in range(3):
            tool(n)

    assert "2 earlier calls are left out" in report.text(s, rows=1)
    assert "1 earlier call is left out" in report.html(s, rows=2)
    assert report.html(s) == s._repr_html_()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (59.99, "60.0 s"),
        (3725.2, "62 min 5 s"),
    ],
)
def test_durations_are_for_people(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("status", "code", "shown"),
    [
        ("value", "", "recorded"),
        ("error", "", "failed"),
        ("suspended", "", "suspended"),
        ("not_applied", "", "not applied"),
        ("code", "TOOL_OUTCOME_UNKNOWN", "in doubt"),
        ("code", "TOOL_NOT_STARTED", "not started"),
        ("code", "ABORTED_BEFORE_DISPATCH", "aborted"),
        ("code", "RESULT_NOT_STORABLE", "not stored"),
    ],
)
def test_every_kind_of_outcome_has_its_word(status, code, shown):
    slot = Slot("c", "tool", "t", "k", None, 2, 2, 1, 1, 0)
    slot.outcome = Recorded(3, 1, 0, status, code)

    assert status_of(slot, Where(state="closed")) == shown
