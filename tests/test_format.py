"""The format can be read from its specification alone, and damage is judged by it."""

from __future__ import annotations

import json
import os
import re
import zlib

import pytest

from durable_agent._fs import Disk
from durable_agent.errors import (
    LogConflictError,
    LogCorruptError,
    LogUnsupportedError,
    SessionNotFoundError,
)
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore


class FastDisk(Disk):
    """Without syncs, for tests that open a log hundreds of times."""

    def sync(self, fd, *, metadata=False):
        pass

    def sync_dir(self, path):
        pass


def read_by_the_specification(directory):
    """Another reader, from the docstring of `durable_agent.jsonl` and nothing else."""
    events, prev, logs = [], "00000000", {}
    names = sorted(
        n for n in os.listdir(directory) if re.fullmatch(r"\d{20}\.jsonl", n)
    )
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            header, *lines = file.read().split(b"\n")
        head = json.loads(header)
        assert head["format"] == 1
        assert head["first"] == int(name[:20]) == len(events)
        assert head["prev"] == prev
        assert head["log"] == logs.setdefault(directory, head["log"])
        assert head["crc"] == f"{zlib.crc32(header[:-18]):08x}"
        assert lines.pop() == b"", "the last byte is a newline"
        for line in lines:
            event = json.loads(line)
            assert line[-18:] == b',"crc":"%08x"}' % zlib.crc32(line[:-18])
            assert event["seq"] == len(events)
            assert event["prev"] == prev
            assert event["log"] == head["log"]
            assert event["durable"] < event["seq"]
            prev = event["crc"]
            raw = line[line.index(b',"data":') + 8 : -18]
            if "blob" in event:
                with open(
                    os.path.join(directory, "blobs", event["blob"]), "rb"
                ) as file:
                    raw = file.read()
            events.append((event["type"], event.get("call"), raw))
    return events


def _fill(tmp_path, count=6, *, seal=False, **options):
    """A log whose event n has the watermark n-1: each was flushed before the next."""
    log = JsonlStore(tmp_path, **options).open("s")
    log.append([Draft("session/start", b'{"id":"s"}')])
    log.flush(0)
    for number in range(1, count):
        log.append([Draft("tool/call", b'{"n":%d}' % number, call=f"c{number}")])
        log.flush(number)
    if seal:
        log.append([Draft("run/end", meta={"ok": True})])
        log.flush(count)
    log.close()
    return tmp_path / "s" / f"{0:020d}.jsonl"


def _batch(tmp_path, count=6):
    """A log of one batch: no line attests another."""
    log = JsonlStore(tmp_path, fs=FastDisk()).open("s")
    drafts = [Draft("tool/call", b'{"n":%d}' % n) for n in range(1, count)]
    log.append([Draft("session/start"), *drafts])
    log.write(count - 1)
    log.close()
    return tmp_path / "s" / f"{0:020d}.jsonl"


def _open_and_append(tmp_path):
    """Open, append one event, and read the whole log strictly."""
    log = JsonlStore(tmp_path, fs=FastDisk()).open("s")
    report = log.report
    log.append([Draft("session/start" if log.next_seq == 0 else "app/new", b'"new"')])
    log.flush(log.next_seq - 1)
    log.close()
    assert read_by_the_specification(tmp_path / "s")[-1][2] == b'"new"'
    return report


def _reframe(line, **changes):
    """A line with other members and a good checksum."""
    members = json.loads(line) | changes
    members.pop("crc")
    body = json.dumps(members, separators=(",", ":")).encode()[:-1]
    return body + b',"crc":"%08x"}' % zlib.crc32(body)


def _tree(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if name != "lock":
                with open(path, "rb") as file:
                    found[path] = file.read()
    return found


@pytest.mark.parametrize(
    "options", [{}, {"roll_bytes": 300}, {"roll_bytes": 300, "blob_bytes": 5}]
)
def test_another_reader_reads_what_the_store_wrote(tmp_path, options):
    """A log outlives the program that wrote it."""
    _fill(tmp_path, 9, seal=True, **options)
    mine = [(e.type, e.call, e.raw) for e in JsonlStore(tmp_path).inspect("s").read()]

    assert read_by_the_specification(tmp_path / "s") == mine
    assert len(mine) == 10


def test_a_line_looks_as_specified(tmp_path):
    path = _fill(tmp_path, 2)
    lines = path.read_bytes().splitlines()
    shape = (
        rb'\{"seq":1,"prev":"[0-9a-f]{8}","durable":0,"time":\d{19},"type":"tool/call",'
        rb'"log":"[0-9a-f]{8}","call":"c1","data":\{"n":1\},"crc":"[0-9a-f]{8}"\}'
    )

    assert re.fullmatch(shape, lines[2])
    assert list(json.loads(lines[0])) == [
        "format", "session", "first", "prev", "time", "log", "crc",
    ]  # fmt: skip


def test_a_tail_torn_at_every_byte_is_kept_and_the_next_line_stands_alone(tmp_path):
    """A torn line must not be glued to the next one, nor read as an event."""
    whole = _batch(tmp_path / "whole", 4).read_bytes()
    start = whole.index(b'{"seq":2')
    for cut in range(start, len(whole)):
        root = tmp_path / str(cut)
        path = _batch(root, 4)
        data = path.read_bytes()
        lines = data[:cut].count(b"\n") - 1
        path.write_bytes(data[:cut])
        seen = [e.seq for e in JsonlStore(root).inspect("s").read()]
        report = _open_and_append(root)

        assert seen == list(range(lines))
        assert report.events == lines
        kept = b"".join(p.read_bytes() for p in sorted((root / "s").glob("torn/*")))
        assert data[:cut].endswith(kept)
        assert sum(torn.size for torn in report.torn) == len(kept)


def test_a_torn_line_bigger_than_any_window_costs_only_itself(tmp_path):
    path = _batch(tmp_path, 4)
    good = path.read_bytes()
    torn = b'{"seq":4,"prev":"' + b"x" * (5 << 20)
    path.write_bytes(good + torn)
    report = _open_and_append(tmp_path)

    assert report.events == 4
    assert path.read_bytes().startswith(good)
    (kept,) = report.torn
    assert (kept.offset, kept.size) == (len(good), len(torn))
    with open(kept.kept, "rb") as file:
        assert file.read() == torn


def test_a_log_that_is_one_torn_line_starts_anew_and_keeps_it(tmp_path):
    path = _batch(tmp_path, 1)
    header = path.read_bytes().split(b"\n")[0] + b"\n"
    path.write_bytes(header + b"\0" * 1000)
    with pytest.raises(SessionNotFoundError):
        JsonlStore(tmp_path).inspect("s")
    report = _open_and_append(tmp_path)

    assert (report.existed, report.torn[0].size) == (False, 1000)


def test_a_flipped_bit_in_any_byte_is_refused_or_changes_nothing_that_was_promised(
    tmp_path,
):
    """Flushed events: the newest line cannot be told from a tear."""
    path = _fill(tmp_path, 4, seal=True)
    good = path.read_bytes()
    lines = read_by_the_specification(tmp_path / "s")
    seal_at = good.index(b'{"seq":4')
    refused = 0
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        path.write_bytes(bad)
        try:
            events = list(JsonlStore(tmp_path).inspect("s").read())
        except (LogCorruptError, LogUnsupportedError):
            refused += 1
            continue
        assert place >= seal_at, "what precedes a seal is promised"
        assert [(e.type, e.call, e.raw) for e in events] == lines[:4]

    assert refused == seal_at


def test_corrupt_data_is_refused_and_nothing_is_changed(tmp_path):
    path = _fill(tmp_path, 6)
    data = bytearray(path.read_bytes())
    data[data.index(b'{"n":2}') + 5] ^= 1
    path.write_bytes(data)
    before = _tree(tmp_path)
    with pytest.raises(LogCorruptError) as caught:
        JsonlStore(tmp_path).open("s")

    assert (caught.value.seq, caught.value.file) == (2, str(path))
    assert caught.value.offset == bytes(data).index(b'{"seq":2')
    assert _tree(tmp_path) == before


def test_a_lost_newline_between_promised_lines_is_found(tmp_path):
    """The head of the next line is looked for inside the damaged one."""
    path = _fill(tmp_path, 4)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'}\n{"seq":2', b'}\0{"seq":2'))

    with pytest.raises(LogCorruptError):
        JsonlStore(tmp_path).open("s")


def test_good_lines_after_a_lost_sector_of_one_batch_are_cut_with_it(tmp_path):
    """Only the watermark decides: a power cut may keep what it should have lost."""
    path = _batch(tmp_path, 6)
    data = path.read_bytes()
    start, stop = data.index(b'{"seq":3'), data.index(b'{"seq":4')
    path.write_bytes(data[:start] + bytes(stop - start) + data[stop:])
    report = _open_and_append(tmp_path)

    assert report.events == 3
    (torn,) = report.torn
    assert (torn.offset, torn.size) == (start, len(data) - start)


def test_a_cut_copy_before_the_full_copy_and_exact_copies_are_skipped(tmp_path):
    path = _batch(tmp_path, 5)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    path.write_bytes(
        b"".join(lines[:3])
        + lines[3][:40] + b"\n"
        + lines[3] + lines[3]
        + lines[4][:25]
        + b"".join(lines[4:])
        + lines[2]
    )  # fmt: skip
    expected = [b"null"] + [b'{"n":%d}' % n for n in range(1, 5)]
    assert [e.raw for e in JsonlStore(tmp_path).inspect("s").read()] == expected
    log = JsonlStore(tmp_path).open("s")
    log.append([Draft("app/new", b'"new"')])
    log.flush(5)
    log.close()
    again = JsonlStore(tmp_path).open("s")

    assert again.report.torn == ()
    assert [e.raw for e in again.read()] == [*expected, b'"new"']
    again.close()


@pytest.mark.parametrize("change", [{"data": 7}, {"prev": "01234567"}])
def test_two_records_for_one_place_are_a_conflict(tmp_path, change):
    path = _batch(tmp_path, 4)
    lines = path.read_bytes().splitlines()
    if "prev" in change:
        lines[-1] = _reframe(lines[-1], **change)
    else:
        lines.append(_reframe(lines[-1], **change))
    path.write_bytes(b"\n".join(lines) + b"\n")
    before = _tree(tmp_path)

    with pytest.raises(LogConflictError):
        JsonlStore(tmp_path).open("s")
    assert _tree(tmp_path) == before


def _lines_of_another_log(tmp_path):
    """Good lines of a longer log of the same id, each attesting the one before."""
    return _fill(tmp_path / "other", 9).read_bytes().splitlines()[1:]


def test_lines_of_another_log_attest_nothing(tmp_path):
    """A power cut may give back a disk block that was another file's."""
    path = _batch(tmp_path, 4)
    lines = path.read_bytes().splitlines()
    others = _lines_of_another_log(tmp_path)
    path.write_bytes(b"\n".join([*lines[:3], lines[3][:30], *others[5:]]) + b"\n")

    report = _open_and_append(tmp_path)
    assert len(report.torn) == 1
    assert report.events == 2


def test_a_line_of_another_log_is_no_event_of_this_one(tmp_path):
    path = _batch(tmp_path, 4)
    header = path.read_bytes().splitlines()[0]
    others = _lines_of_another_log(tmp_path)
    path.write_bytes(b"\n".join([header, b"x" * 40 + others[0], others[1]]) + b"\n")

    assert _open_and_append(tmp_path).events == 0


def test_an_old_line_behind_damage_is_part_of_the_damage(tmp_path):
    """A tail that was cut off and written anew; the power cut shows some of both."""
    path = _batch(tmp_path, 4)
    lines = path.read_bytes().splitlines()
    old = _reframe(lines[-1], data=7)
    path.write_bytes(b"\n".join([*lines, b"x" * 9 + old]) + b"\n")
    assert JsonlStore(tmp_path).inspect("s").report.events == 4
    path.write_bytes(b"\n".join([*lines, b"x" * 9, old]) + b"\n")

    report = _open_and_append(tmp_path)
    assert report.events == 4
    assert len(report.torn) == 1


def test_a_log_without_marks_is_read_and_extended(tmp_path):
    """``log`` came later than the format; what is there stays as it is."""
    path = _batch(tmp_path, 4)
    header, *lines = path.read_bytes().splitlines()
    members = json.loads(header)
    del members["log"], members["crc"]
    made, prev = [_reframe(json.dumps({**members, "crc": ""}).encode())], "00000000"
    for line in lines:
        event = json.loads(line)
        del event["log"]
        made.append(_reframe(json.dumps(event).encode(), prev=prev))
        prev = made[-1][-10:-2].decode()
    path.write_bytes(b"\n".join(made) + b"\n")
    log = JsonlStore(tmp_path).open("s")
    log.append([Draft("app/new", b'"new"')])
    log.flush(4)
    log.close()

    seen = JsonlStore(tmp_path).inspect("s").read()
    assert [e.raw for e in seen][-2:] == [b'{"n":3}', b'"new"']
    assert b'"log"' not in path.read_bytes()


def test_damage_in_a_sealed_segment_is_never_a_tear(tmp_path):
    _fill(tmp_path, 9, roll_bytes=300)
    first, *_, last = sorted((tmp_path / "s").glob("*.jsonl"))
    for damage in (lambda d: d[:-1], lambda d: d[:-30], lambda d: d + b"\0"):
        data = first.read_bytes()
        first.write_bytes(damage(data))
        with pytest.raises(LogCorruptError):
            JsonlStore(tmp_path).open("s")
        first.write_bytes(data)
    last.write_bytes(last.read_bytes()[:-1])
    JsonlStore(tmp_path).open("s").close()


@pytest.mark.parametrize("which", [0, 1, "all"])
def test_a_missing_segment_is_damage_not_a_new_session(tmp_path, which):
    """Only a proven absence starts fresh."""
    _fill(tmp_path, 9, roll_bytes=300, blob_bytes=2)
    segments = sorted((tmp_path / "s").glob("*.jsonl"))
    assert len(segments) >= 3
    for path in segments if which == "all" else [segments[which]]:
        path.unlink()
    before = _tree(tmp_path)
    for use in (JsonlStore(tmp_path).open, JsonlStore(tmp_path).inspect):
        with pytest.raises(LogCorruptError):
            use("s")

    assert _tree(tmp_path) == before


def test_a_missing_or_altered_blob_is_corrupt_when_it_is_read(tmp_path):
    _fill(tmp_path, 3, blob_bytes=2)
    one, two, _ = sorted((tmp_path / "s" / "blobs").iterdir())
    one.unlink()
    two.write_bytes(b"x" + two.read_bytes()[1:])
    log = JsonlStore(tmp_path).open("s")
    bad = 0
    for seq in range(3):
        try:
            log.get(seq)
        except LogCorruptError:
            bad += 1

    assert bad == 2
    log.close()


def test_a_log_under_another_name_is_refused(tmp_path):
    """The id in the log must match the directory: a copied or swapped one does not."""
    _fill(tmp_path, 3)
    os.rename(tmp_path / "s", tmp_path / "other")

    with pytest.raises(LogCorruptError, match="'s'"):
        JsonlStore(tmp_path).open("other")


@pytest.mark.parametrize(
    "header",
    [b"", b"[1]", b"not json", b'{"format":1}', b"other session", b"other place"],
)
def test_a_damaged_header_is_never_a_tear(tmp_path, header):
    """It was synced before the file got its name."""
    path = _batch(tmp_path, 2)
    first, rest = path.read_bytes().split(b"\n", 1)
    if header.startswith(b"other"):
        other = {"session": "t"} if header.endswith(b"session") else {"first": 1}
        header = _reframe(first, **other)
    path.write_bytes(header + b"\n" + rest)
    before = _tree(tmp_path)
    with pytest.raises(LogCorruptError):
        JsonlStore(tmp_path).open("s")

    assert _tree(tmp_path) == before


@pytest.mark.parametrize("good_crc", [True, False])
def test_a_newer_format_is_unsupported_and_its_bytes_stay(tmp_path, good_crc):
    path = _fill(tmp_path, 3)
    header, rest = path.read_bytes().split(b"\n", 1)
    newer = _reframe(header, format=2)
    if not good_crc:
        newer = b'{"format":2,"layout":"other"}'
    path.write_bytes(newer + b"\n" + rest[:-20])
    before = _tree(tmp_path)
    for use in (JsonlStore(tmp_path).open, JsonlStore(tmp_path).inspect):
        with pytest.raises(LogUnsupportedError):
            use("s")

    assert _tree(tmp_path) == before
    (info,) = JsonlStore(tmp_path).list()
    assert "newer" in info.problem


def test_an_unknown_event_type_refuses_writing_and_shows_in_inspect(tmp_path):
    path = _batch(tmp_path, 3)
    lines = path.read_bytes().splitlines()
    lines[-1] = _reframe(lines[-1], type="tool/later")
    path.write_bytes(b"\n".join([*lines, b'{"torn']))
    before = _tree(tmp_path)
    with pytest.raises(LogUnsupportedError) as caught:
        JsonlStore(tmp_path).open("s")

    assert caught.value.seq == 2
    assert _tree(tmp_path) == before, "not even the torn tail was cut"
    types = [e.type for e in JsonlStore(tmp_path).inspect("s").read()]
    assert types[-1] == "tool/later"


def test_unknown_members_of_a_head_are_ignored_and_kept(tmp_path):
    path = _batch(tmp_path, 3)
    lines = path.read_bytes().splitlines()
    members = json.loads(lines[-1])
    data = members.pop("data")
    lines[-1] = _reframe(json.dumps(members | {"later": [1], "data": data}))
    path.write_bytes(b"\n".join(lines) + b"\n")
    kept = path.read_bytes()
    _open_and_append(tmp_path)

    assert path.read_bytes().startswith(kept)
    assert JsonlStore(tmp_path).inspect("s").get(2).raw == b'{"n":2}'


def test_a_good_checksum_on_a_form_we_cannot_read_is_unsupported(tmp_path):
    path = _batch(tmp_path, 3)
    strange = _reframe(b'{"kind":"other","crc":""}')
    path.write_bytes(path.read_bytes() + strange + b"\n")

    with pytest.raises(LogUnsupportedError):
        JsonlStore(tmp_path).open("s")


def test_an_old_block_with_a_header_in_the_tail_is_torn(tmp_path):
    """A power cut may leave in new blocks what was there before: good lines, too."""
    path = _fill(tmp_path, 3)
    data = path.read_bytes()
    stale = data[: data.index(b'{"seq":1')]
    path.write_bytes(data + stale + stale[:40])
    report = _open_and_append(tmp_path)

    assert report.events == 3
    assert report.torn[0].size == len(stale) + 40


def test_separators_of_unicode_do_not_end_a_line(tmp_path):
    """Byte 0x0A only: ``str.splitlines`` would cut the record in two."""
    raw = '"a\u2028b\u2029c\u0085d\x0b\x0c\x1c"'.encode()
    log = JsonlStore(tmp_path).open("s")
    log.append([Draft("session/start"), Draft("tool/result", raw)])
    log.flush(1)
    log.close()
    log = JsonlStore(tmp_path).open("s")

    assert log.get(1).raw == raw
    log.close()


def test_a_line_that_changes_after_opening_is_not_handed_out(tmp_path):
    path = _fill(tmp_path, 4)
    log = JsonlStore(tmp_path).open("s")
    data = bytearray(path.read_bytes())
    data[data.index(b'{"n":2}') + 5] ^= 1
    path.write_bytes(data)

    assert log.get(1).raw == b'{"n":1}'
    with pytest.raises(LogCorruptError):
        log.get(2)
    with pytest.raises(LogCorruptError):
        list(log.read())
    log.close()
