"""The contract of stores: what holds for every one, as tests; see ``testing``."""

# A contract is asserts with literal expectations, in methods named as sentences.
# ruff: noqa: S101, PLR2004
from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from durable_agent.errors import (
    LogUnsupportedError,
    SessionBusyError,
    SessionClosedError,
    SessionIdError,
    SessionNotFoundError,
)
from durable_agent.events import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_agent.store import SessionLog, Store

_START = Draft("session/start", b'{"id":"s"}')
#: Payloads that have been lost or changed by stores before.
_PAYLOADS = (
    b"null",
    b'{ "spaces" : 1 }',
    b"[1,\n2]",
    '"a\u2028b\u2029c\u0085d"'.encode(),
    b'"\\u0000 \\\\u0000"',
    b'{"seq":1,"data":null,"crc":"00000000"}',
    b'"\\ud83c"',
    b"123456789012345678901234567890",
    '"caf\u00e9 \U0001f600"'.encode(),
    b'"%b"' % (b"x" * (3 << 20)),
)


@contextmanager
def _raises(*kinds: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"none of {kinds} was raised")


def _call(number: int) -> Draft:
    return Draft(
        "tool/call", b"%d" % number, call=f"c{number}", key="k", meta={"attempt": 1}
    )


class StoreContract:
    """What holds for every store. Subclass it and give it ``make_store``."""

    def make_store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError

    def _log_of(self, store: Store, count: int, name: str = "s") -> SessionLog:
        log = store.open(name)
        log.append([_START, *map(_call, range(1, count))])
        log.flush(count - 1)
        return log

    def test_a_new_session_is_empty_and_not_listed(self) -> None:
        store = self.make_store()
        log = store.open("s")

        assert (log.report.existed, log.report.events, log.next_seq) == (False, 0, 0)
        assert log.report.session == "s"
        assert log.durable == -1
        assert (list(log.heads()), list(log.read())) == ([], [])
        log.close()
        assert list(store.list()) == []
        with _raises(SessionNotFoundError):
            store.inspect("s")

    def test_appended_events_get_contiguous_seqs_and_come_back(self) -> None:
        log = self.make_store().open("s")

        assert log.append([_START, _call(1)]) == 1
        assert log.append([_call(2)]) == 2
        assert log.next_seq == 3
        log.flush(2)
        assert log.durable == 2
        event = log.get(1)
        assert (event.seq, event.type, event.raw) == (1, "tool/call", b"1")
        assert (event.call, event.key, dict(event.meta)) == ("c1", "k", {"attempt": 1})
        assert event.time > 0
        assert [e.seq for e in log.read(1)] == [1, 2]
        log.close()

    def test_payload_bytes_come_back_exactly(self) -> None:
        store = self.make_store()
        log = store.open("s")
        log.append([_START, *(Draft("tool/result", raw) for raw in _PAYLOADS)])
        log.flush(log.next_seq - 1)
        here = [event.raw for event in log.read(1)]
        log.close()
        log = store.open("s")
        there = [event.raw for event in log.read(1)]
        log.close()

        assert here == list(_PAYLOADS)
        assert there == list(_PAYLOADS)

    def test_what_was_flushed_is_there_after_opening_again(self) -> None:
        store = self.make_store()
        self._log_of(store, 3).close()
        log = store.open("s")

        assert (log.report.existed, log.report.events, log.next_seq) == (True, 3, 3)
        heads = list(log.heads())
        assert [head.seq for head in heads] == [0, 1, 2]
        assert heads[1].call == "c1"
        assert dict(heads[1].meta) == {"attempt": 1}
        assert log.append([_call(3)]) == 3
        log.flush(3)
        assert [event.seq for event in log.read()] == [0, 1, 2, 3]
        assert len(list(log.heads())) == 3, "heads are those found at opening"
        log.close()

    def test_the_owner_reads_what_is_only_appended(self) -> None:
        log = self.make_store().open("s")
        log.append([_START, _call(1)])

        assert log.get(1).raw == b"1"
        assert [event.seq for event in log.read()] == [0, 1]
        peeked = log.peek(1)
        assert peeked is None or peeked == log.get(1)
        log.close()

    def test_others_see_a_prefix_with_every_durable_event(self) -> None:
        store = self.make_store()
        log = self._log_of(store, 3)
        log.append([_call(3)])
        reader = store.inspect("s")
        seqs = [event.seq for event in reader.read()]

        assert seqs[:3] == [0, 1, 2]
        assert seqs == list(range(len(seqs)))
        assert len(list(reader.heads())) == reader.report.events == len(seqs)
        reader.close()
        log.close()

    def test_the_first_event_must_be_session_start(self) -> None:
        log = self.make_store().open("s")

        with _raises(ValueError):
            log.append([_call(0)])
        assert log.append([_START]) == 0
        log.close()

    def test_a_draft_that_cannot_be_encoded_leaves_the_log_as_it_was(self) -> None:
        log = self._log_of(self.make_store(), 1)

        for bad in (
            Draft("tool/call", b""),
            Draft("tool/call", meta={"data": 1}),
            Draft("tool/call", call="\ud800"),
            Draft("tool/call", meta={"x": object()}),
        ):
            with _raises(TypeError, ValueError):
                log.append([_call(1), bad])
        assert log.append([_call(1)]) == 1
        log.flush(1)
        assert [event.seq for event in log.read()] == [0, 1]
        log.close()

    def test_a_missing_event_is_a_lookup_error(self) -> None:
        log = self._log_of(self.make_store(), 1)

        for seq in (-1, 1, 10**12):
            with _raises(LookupError):
                log.get(seq)
            assert log.peek(seq) is None
        log.close()

    def test_waiting_for_what_was_never_appended_is_an_error(self) -> None:
        log = self._log_of(self.make_store(), 1)

        with _raises(ValueError):
            log.flush(1)
        with _raises(ValueError):
            log.write(1)
        log.close()

    def test_a_session_has_one_owner(self) -> None:
        store = self.make_store()
        log = self._log_of(store, 1)

        with _raises(SessionBusyError):
            store.open("s")
        with _raises(SessionBusyError):
            store.delete("s")
        store.open("other").close()
        log.close()
        store.open("s").close()

    def test_a_closed_handle_takes_nothing_and_closes_again(self) -> None:
        log = self._log_of(self.make_store(), 1)
        log.close()
        log.close()

        with _raises(SessionClosedError):
            log.append([_call(1)])

    def test_a_deleted_session_is_gone(self) -> None:
        store = self.make_store()
        self._log_of(store, 2, "a").close()
        self._log_of(store, 2, "b").close()
        store.delete("a")

        assert [info.id for info in store.list()] == ["b"]
        with _raises(SessionNotFoundError):
            store.delete("a")
        with _raises(SessionNotFoundError):
            store.inspect("a")
        again = store.open("a")
        assert again.report.existed is False
        again.close()

    def test_listing_tells_id_size_and_owner(self) -> None:
        store = self.make_store()
        log = self._log_of(store, 2, "open")
        self._log_of(store, 2, "shut").close()
        found = {info.id: info for info in store.list()}

        assert set(found) == {"open", "shut"}
        assert found["open"].busy in {True, None}
        assert found["shut"].busy in {False, None}
        assert all(i.size > 0 and not i.problem for i in found.values())
        log.close()

    def test_unknown_types_refuse_to_resume_unless_ignorable(self) -> None:
        store = self.make_store()
        for name, draft, refused in (
            ("ours", Draft("tool/later"), True),
            ("marked", Draft("tool/later", meta={"ignorable": True}), False),
            ("theirs", Draft("app/note"), False),
        ):
            log = store.open(name)
            log.append([_START, draft])
            log.flush(1)
            log.close()
            if refused:
                with _raises(LogUnsupportedError):
                    store.open(name)
            else:
                store.open(name).close()
            assert len(list(store.inspect(name).read())) == 2

    def test_ids_that_look_alike_are_different_sessions(self) -> None:
        store = self.make_store()
        names = [
            "a",
            "A",
            "..",
            ".",
            "a/b",
            "a%2fb",
            "con",
            "CON",
            "nul.txt",
            " a",
            "a ",
        ]
        names += ["a.", "\0", "\u00e9", "e\u0301", "\U0001f600", "x" * 10_000]
        names += ["x" * 9_999 + "y", "-", "%-", "\n", "lock", "~"]
        for name in names:
            log = store.open(name)
            log.append([Draft("session/start", b'"%d"' % names.index(name))])
            log.flush(0)
            log.close()

        assert sorted(info.id for info in store.list()) == sorted(names)
        for number, name in enumerate(names):
            assert store.inspect(name).get(0).raw == b'"%d"' % number

    def test_ids_that_cannot_name_a_session_are_refused(self) -> None:
        store = self.make_store()
        for name in ("", "\ud800"):
            for use in (store.open, store.inspect, store.delete):
                with _raises(SessionIdError):
                    use(name)

    def test_barriers_work_from_an_event_loop(self) -> None:
        log = self.make_store().open("s")

        async def main() -> None:
            log.append([_START])
            await log.awrite(0)
            log.append([_call(1)])
            await log.aflush(1)

        asyncio.run(main())

        assert log.durable == 1
        assert [event.seq for event in log.read()] == [0, 1]
        log.close()

    def test_threads_append_without_losing_or_mixing_anything(self) -> None:
        log = self._log_of(self.make_store(), 1)

        def work(number: int) -> None:
            for turn in range(20):
                last = log.append([_call(number), Draft("tool/result", b"%d" % turn)])
                log.flush(last)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = list(log.read())

        assert [event.seq for event in events] == list(range(161))
        assert [event.type for event in events[1:]] == ["tool/call", "tool/result"] * 80
        assert log.durable == 160
        log.close()
