"""What the store does to the disk: modes, names, links, syncs, and what fails there."""

from __future__ import annotations

import errno
import logging
import os
import stat
import tracemalloc

import pytest

from durable_agent import _fs
from durable_agent._fs import Disk
from durable_agent._ids import decode_id, encode_id
from durable_agent.errors import (
    LogCorruptError,
    LogPoisonedError,
    SessionNotFoundError,
    StoreError,
)
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore

START = Draft("session/start", b'{"id":"s"}')
CALL = Draft("tool/call", b'{"n":1}', call="c")

_CHANGES = ("write", "write_at", "sync", "sync_dir", "truncate", "rename", "create")


class CountingDisk(Disk):
    """Names each call that changes or syncs something; may fail at one."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.fail = {}

    def _count(self, name):
        self.calls.append(name)
        error = self.fail.pop((name, self.calls.count(name)), None)
        if error is not None:
            raise error


for _name in _CHANGES:

    def _method(self, *args, _name=_name, **options):
        self._count(_name)
        return getattr(Disk, _name)(self, *args, **options)

    setattr(CountingDisk, _name, _method)


def _finished(root, *, roll_bytes=1 << 20):
    log = JsonlStore(root, roll_bytes=roll_bytes).open("s")
    log.append([START])
    log.flush(0)
    log.append([CALL, Draft("tool/result", b"1", call="c")])
    log.flush(2)
    log.append([Draft("run/end")])
    log.flush(3)
    log.close()
    return root / "s" / f"{0:020d}.jsonl"


def _modes(root):
    return {
        os.path.relpath(os.path.join(folder, name), root): stat.S_IMODE(
            os.lstat(os.path.join(folder, name)).st_mode
        )
        for folder, folders, files in os.walk(root)
        for name in [*folders, *files]
    }


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(tmp_path, umask):
    """Transcripts hold keys; there is no moment in which others could read them."""
    seen = set()

    class Disk_(Disk):
        def create(self, path):
            fd = super().create(path)
            seen.add(stat.S_IMODE(os.fstat(fd).st_mode))
            return fd

    before = os.umask(umask)
    try:
        store = JsonlStore(tmp_path / "root", fs=Disk_(), roll_bytes=200, blob_bytes=10)
        log = store.open("s")
        log.append([START])
        log.flush(0)
        log.append([Draft("tool/result", b'"%b"' % (b"x" * 50))])
        log.flush(1)
        log.close()
        last = max((tmp_path / "root" / "s").glob("*.jsonl"))
        with open(last, "ab") as file:
            file.write(b"torn")
        store.open("s").close()
    finally:
        os.umask(before)
    modes = _modes(tmp_path)

    assert {m for n, m in modes.items() if os.path.isdir(tmp_path / n)} == {0o700}
    assert {m for n, m in modes.items() if os.path.isfile(tmp_path / n)} == {0o600}
    assert any("torn/" in name for name in modes)
    assert seen == {0o600}


def _plant(target, path):
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.symlink(target, path)


@pytest.mark.parametrize(
    "where",
    ["s", "s/00000000000000000000.jsonl", "s/00000000000000000000.jsonl.tmp"],
)
def test_a_symlink_in_the_way_is_refused_and_its_target_unchanged(tmp_path, where):
    target = tmp_path / "target"
    if where == "s":
        target.mkdir()
    else:
        target.write_text("precious")
    _plant(target, tmp_path / "root" / where)
    with pytest.raises(StoreError):
        log = JsonlStore(tmp_path / "root").open("s")
        try:
            log.append([START])
            log.flush(0)
        finally:
            log.close()

    if where == "s":
        assert os.listdir(target) == []
    else:
        assert target.read_text() == "precious"


_PLACES = ["s", "s/lock", "s/00000000000000000000.jsonl", "s/torn", "s/blobs"]


def _busy_log(root):
    """A log that has every kind of file, with a tail that the next opening cuts."""
    path = _finished(root)
    path.write_bytes(path.read_bytes() + b"torn")
    JsonlStore(root).open("s").close()
    path.write_bytes(path.read_bytes() + b"torn again")
    (root / "s" / "blobs").mkdir(mode=0o700, exist_ok=True)
    return path


def _write(root):
    log = JsonlStore(root, blob_bytes=10).open("s")
    try:
        log.append([Draft("app/more", b'"%b"' % (b"x" * 50))])
        log.flush(log.next_seq - 1)
    finally:
        log.close()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="chown takes root")
@pytest.mark.parametrize("place", _PLACES)
def test_what_belongs_to_another_user_is_refused_and_left_as_it_was(tmp_path, place):
    """Whoever owns it reads what is written, and changes what is read."""
    path = _busy_log(tmp_path)
    before = path.read_bytes()
    os.chown(tmp_path / place, 4711, 4711)

    with pytest.raises(StoreError, match="another user"):
        _write(tmp_path)
    assert path.read_bytes()[: len(before) - 10] == before[:-10]
    os.chown(tmp_path / place, os.geteuid(), os.getegid())
    _write(tmp_path)


@pytest.mark.parametrize("place", ["lock", "00000000000000000000.jsonl"])
def test_a_file_with_a_second_name_is_refused_and_left_as_it_was(tmp_path, place):
    path = _busy_log(tmp_path)
    before = path.read_bytes()
    os.link(tmp_path / "s" / place, tmp_path / "theirs")

    with pytest.raises(StoreError, match="second hard link"):
        _write(tmp_path)
    assert path.read_bytes() == before
    events = JsonlStore(tmp_path).inspect("s").report.events
    os.unlink(tmp_path / "theirs")
    _write(tmp_path)
    assert JsonlStore(tmp_path).inspect("s").report.events == events + 1


def test_a_symlink_where_torn_bytes_are_kept_is_refused(tmp_path):
    path = _finished(tmp_path)
    path.write_bytes(path.read_bytes() + b"torn")
    (tmp_path / "target").mkdir()
    os.symlink(tmp_path / "target", tmp_path / "s" / "torn")
    before = path.read_bytes()

    with pytest.raises(StoreError):
        JsonlStore(tmp_path).open("s")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path / "target") == []


def test_nothing_is_ever_opened_with_truncation_or_following_links(
    monkeypatch, tmp_path
):
    flags = []
    real = os.open

    def spy(path, flag, *rest, **options):
        if os.fspath(path).endswith((".jsonl", ".tmp", "lock")):
            flags.append(flag)
        return real(path, flag, *rest, **options)

    monkeypatch.setattr(os, "open", spy)
    _finished(tmp_path, roll_bytes=100)
    JsonlStore(tmp_path).open("s").close()

    assert flags
    assert not any(flag & os.O_TRUNC for flag in flags)
    assert all(flag & os.O_NOFOLLOW for flag in flags)


def test_a_finished_log_that_only_replays_is_neither_written_nor_synced(tmp_path):
    _finished(tmp_path)
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    assert len(list(log.heads())) == len(list(log.read())) == 4
    log.close()

    assert disk.calls == []
    assert log.report.rewritten == 0


def test_a_seal_is_written_again_before_the_first_new_event(tmp_path):
    path = _finished(tmp_path)
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([Draft("run/start", meta={"epoch": 2})])
    log.write(4)

    assert disk.calls == ["write_at", "write"]
    assert log.durable == 2, "neither is proved before the next sync"
    assert log.append([CALL]) == 5
    log.flush(5)
    assert disk.calls == ["write_at", "write", "write", "sync"]
    assert log.durable == 5
    log.close()
    assert path.read_bytes().count(b'"type":"run/end"') == 1


def test_an_intent_costs_one_write_and_one_sync(tmp_path):
    _finished(tmp_path)
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([Draft("run/start")])
    log.flush(4)
    disk.calls.clear()
    log.append([CALL])
    log.flush(5)

    assert disk.calls == ["write", "sync"]
    log.append([Draft("tool/result", call="c")])
    log.write(6)
    assert disk.calls == ["write", "sync", "write"]
    log.close()


def test_what_precedes_a_seal_is_synced_before_the_seal_is_written(tmp_path):
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([START])
    log.flush(0)
    disk.calls.clear()
    log.append([CALL, Draft("run/end")])
    log.flush(2)

    assert disk.calls == ["write", "sync", "write", "sync"]
    assert b'"durable":1' in (tmp_path / "s" / f"{0:020d}.jsonl").read_bytes()
    log.close()


def test_a_full_disk_leaves_no_torn_line_and_later_calls_fail_closed(tmp_path):
    """ENOSPC took half of the bytes; space came back; nothing may be glued to it."""
    path = _finished(tmp_path)
    good = path.read_bytes()

    class Full(Disk):
        full = True

        def write(self, fd, data):
            if not self.full:
                return super().write(fd, data)
            if len(data) > 10:
                return super().write(fd, bytes(data[:10]))
            raise OSError(errno.ENOSPC, "No space left on device")

    disk = Full()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.append([CALL])
    with pytest.raises(StoreError):
        log.flush(4)
    disk.full = False
    with pytest.raises(LogPoisonedError):
        log.append([CALL])
    with pytest.raises(LogPoisonedError):
        log.flush(4)
    log.close()

    assert path.read_bytes() == good
    log = JsonlStore(tmp_path).open("s")
    assert (log.report.events, log.report.torn) == (4, ())
    log.append([CALL])
    log.flush(4)
    log.close()
    assert path.read_bytes()[len(good) :].startswith(b'{"seq":4,')


def test_a_short_write_goes_on_where_it_stopped(tmp_path):
    class Short(Disk):
        def write(self, fd, data):
            return super().write(fd, bytes(data[:7]))

    log = JsonlStore(tmp_path, fs=Short()).open("s")
    log.append([START, CALL])
    log.flush(1)
    log.close()

    assert JsonlStore(tmp_path).inspect("s").report.events == 2


@pytest.mark.parametrize("kind", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_read_error_is_no_absent_session(tmp_path, broken, kind):
    """A fresh run over an old one doubles everything it did."""
    _finished(tmp_path, roll_bytes=150)
    segments = sorted((tmp_path / "s").glob("*.jsonl"))
    assert len(segments) >= 3

    class Broken(CountingDisk):
        def open_read(self, path):
            if path == str(segments[broken]):
                raise OSError(kind, "injected", path)
            return super().open_read(path)

    disk = Broken()
    before = {p: p.read_bytes() for p in segments}
    for use in (
        JsonlStore(tmp_path, fs=disk).open,
        JsonlStore(tmp_path, fs=disk).inspect,
    ):
        with pytest.raises(StoreError) as caught:
            use("s")
        assert not isinstance(caught.value, LogCorruptError)
        assert caught.value.file == str(segments[broken])
        assert caught.value.__cause__.errno == kind

    assert disk.calls == []
    assert {p: p.read_bytes() for p in segments} == before


@pytest.mark.parametrize("kind", [errno.EIO, errno.EACCES])
def test_a_directory_that_cannot_be_listed_is_no_absent_session(tmp_path, kind):
    _finished(tmp_path)

    class Broken(CountingDisk):
        def listdir(self, path):
            raise OSError(kind, "injected", path)

    store = JsonlStore(tmp_path, fs=Broken())
    for use in (store.open, store.inspect, store.delete):
        with pytest.raises(StoreError):
            use("s")
    with pytest.raises(StoreError):
        list(store.list())
    assert JsonlStore(tmp_path).inspect("s").report.events == 4


@pytest.mark.parametrize("call", ["write", "sync", "rename", "sync_dir"])
def test_a_blob_that_cannot_be_made_durable_is_never_named(tmp_path, call):
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk, blob_bytes=4).open("s")
    log.append([Draft("session/start")])
    log.flush(0)
    disk.fail[call, disk.calls.count(call) + 1] = OSError(errno.EIO, "injected")
    log.append([Draft("tool/result", b'"a long payload"')])
    with pytest.raises(StoreError):
        log.flush(1)
    log.close()

    assert JsonlStore(tmp_path).inspect("s").report.events == 1
    assert not list((tmp_path / "s" / "blobs").glob("*.tmp"))


def test_a_blob_that_no_record_names_is_written_anew(tmp_path):
    """It may be a page that a failed sync dropped, or half of it."""
    log = JsonlStore(tmp_path, blob_bytes=4).open("s")
    payload = b'"a long payload"'
    log.append([Draft("session/start")])
    log.flush(0)
    log.append([Draft("tool/result", payload)])
    log.flush(1)
    log.close()
    (blob,) = (tmp_path / "s" / "blobs").iterdir()
    other = JsonlStore(tmp_path, blob_bytes=4).open("t")
    other.append([Draft("session/start")])
    other.flush(0)
    (tmp_path / "t" / "blobs").mkdir()
    (tmp_path / "t" / "blobs" / blob.name).write_bytes(bytes(len(payload)))
    other.append([Draft("tool/result", payload)])
    other.flush(1)

    assert other.get(1).raw == payload
    other.close()
    disk = CountingDisk()
    again = JsonlStore(tmp_path, fs=disk, blob_bytes=4).open("s")
    again.append([Draft("tool/result", payload)])
    again.flush(2)
    assert "create" not in disk.calls, "a named one is trusted"
    again.close()


def test_inspecting_never_writes_and_shows_what_opening_would_cut(tmp_path):
    path = _finished(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"seq":4,"torn')
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    disk = CountingDisk()
    reader = JsonlStore(tmp_path, fs=disk).inspect("s")

    assert [event.seq for event in reader.read()] == [0, 1, 2, 3]
    assert [(t.size, t.kept) for t in reader.report.torn] == [(14, "")]
    assert disk.calls == []
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_torn_tail_is_durably_kept_before_it_is_durably_cut(tmp_path):
    path = _finished(tmp_path)
    path.write_bytes(path.read_bytes() + b"torn")
    disk = CountingDisk()
    log = JsonlStore(tmp_path, fs=disk).open("s")
    log.close()

    kept = ["create", "write", "sync", "sync_dir", "sync_dir"]
    assert disk.calls == [*kept, "truncate", "sync"]


def test_leftovers_of_a_crash_are_removed(tmp_path):
    log = JsonlStore(tmp_path).open("s")
    log.append([START])
    log.flush(0)
    log.close()
    left = tmp_path / "s" / f"{1:020d}.jsonl.tmp"
    left.write_bytes(b"half a header")
    JsonlStore(tmp_path).open("s").close()

    assert not left.exists()


def test_a_moved_root_is_found_again_and_a_chdir_changes_nothing(tmp_path, monkeypatch):
    """No absolute path is part of a log; a relative root is resolved once."""
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    store = JsonlStore("root")
    log = store.open("s")
    log.append([START])
    monkeypatch.chdir(tmp_path)
    log.flush(0)
    log.close()
    assert store.inspect("s").report.events == 1
    os.rename(tmp_path / "a", tmp_path / "b")

    assert JsonlStore(tmp_path / "b" / "root").inspect("s").report.events == 1
    with pytest.raises(SessionNotFoundError, match="root"):
        store.inspect("s")


def test_a_listing_shows_what_cannot_be_read(tmp_path):
    _finished(tmp_path)
    bad = JsonlStore(tmp_path).open("bad")
    bad.append([START])
    bad.flush(0)
    bad.close()
    segment = tmp_path / "bad" / f"{0:020d}.jsonl"
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    (tmp_path / "a file").write_text("")
    (tmp_path / "a directory").mkdir()
    found = {info.id: info for info in JsonlStore(tmp_path).list()}

    assert set(found) == {"s", "bad"}
    assert found["s"].problem == ""
    assert "damaged" in found["bad"].problem


def test_opening_keeps_no_object_for_an_event(tmp_path):
    """Memory grows by a few bytes an event, not by its payload or its objects."""
    log = JsonlStore(tmp_path).open("s")
    log.append([START])
    log.flush(0)
    count = 20_000
    log.append([Draft("tool/result", b'"%b"' % (b"x" * 300))] * count)
    log.write(count)
    log.append([Draft("run/end")])
    log.flush(count + 1)
    log.close()
    JsonlStore(tmp_path).open("s").close()
    tracemalloc.start()
    log = JsonlStore(tmp_path).open("s")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 100 * count
    assert peak < 6 << 20
    log.close()


# -- platforms that this test run is not on ---------------------------------------


def _mac(monkeypatch, answer):
    """F_FULLFSYNC as macOS has it; ``answer`` is what the file system makes of it."""
    asked = []

    def fcntl(fd, command):
        asked.append(command)
        if answer is not None:
            raise OSError(answer, os.strerror(answer))
        return 0

    monkeypatch.setattr(_fs.fcntl, "fcntl", fcntl)
    disk = Disk()
    disk.fullfsync = 51
    return disk, asked


def _use(disk, root, **options):
    log = JsonlStore(root, fs=disk, **options).open("s")
    log.append([START])
    try:
        log.flush(0)
    finally:
        log.close()


def test_on_macos_a_sync_is_a_full_sync(monkeypatch, tmp_path):
    disk, asked = _mac(monkeypatch, None)
    _use(disk, tmp_path)

    assert set(asked) == {51}
    assert len(asked) >= 2


@pytest.mark.parametrize("answer", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_refused_full_sync_falls_back_to_fsync(monkeypatch, tmp_path, answer):
    disk, asked = _mac(monkeypatch, answer)
    plain = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (plain.append(fd), real(fd))[1])
    _use(disk, tmp_path)

    assert len(plain) >= len(asked) >= 2


def test_a_failed_full_sync_is_a_failure(monkeypatch, tmp_path):
    """A fall-back would report as durable what the device just refused."""
    disk, _ = _mac(monkeypatch, errno.EIO)

    with pytest.raises(StoreError):
        _use(disk, tmp_path)


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EINVAL])
def test_files_that_cannot_be_synced_are_refused_unless_opted_in(
    monkeypatch, tmp_path, caplog, answer
):
    def no_sync(fd):
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "fsync", no_sync)
    monkeypatch.setattr(Disk, "datasync", staticmethod(no_sync))
    with pytest.raises(StoreError):
        _use(Disk(), tmp_path / "a")
    assert JsonlStore(tmp_path / "b", allow_unsynced=True).durability == "none"
    with caplog.at_level(logging.WARNING, "durable_agent"):
        _use(Disk(), tmp_path / "b", allow_unsynced=True)

    assert [r for r in caplog.records if "cannot sync files" in r.message][1:] == []
    assert "nothing survives power loss" in caplog.text


def test_directories_that_cannot_be_synced_are_tolerated_and_told_once(
    monkeypatch, tmp_path, caplog
):
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "directories have no sync here")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with caplog.at_level(logging.WARNING, "durable_agent"):
        _use(Disk(), tmp_path)

    assert len(caplog.records) == 1
    assert "directories" in caplog.text


def test_a_failed_sync_of_a_directory_is_a_failure(monkeypatch, tmp_path):
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, "injected")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError):
        _use(Disk(), tmp_path)


class Denied(PermissionError):
    winerror = 5


class WindowsDisk(Disk):
    """Renames fail as long as somebody reads; directories have no sync."""

    syncs_dirs = False

    def __init__(self):
        super().__init__()
        self.pauses = []

    def pause(self, seconds):
        self.pauses.append(seconds)


@pytest.mark.parametrize("failures", [3, 10_000])
def test_a_rename_that_a_reader_blocks_is_tried_again_a_bounded_number_of_times(
    monkeypatch, tmp_path, failures
):
    left = iter(range(failures))
    real = os.replace

    def replace(source, target):
        if next(left, None) is not None:
            raise Denied(errno.EACCES, "in use")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    disk = WindowsDisk()
    if failures == 3:
        _use(disk, tmp_path)
        assert JsonlStore(tmp_path).inspect("s").report.events == 1
    else:
        with pytest.raises(StoreError):
            _use(disk, tmp_path)

    assert len(disk.pauses) == min(failures, 5)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_real_denial_is_not_tried_again(monkeypatch, tmp_path):
    def replace(source, target):
        raise PermissionError(errno.EACCES, "an access list says no")

    monkeypatch.setattr(os, "replace", replace)
    disk = WindowsDisk()
    with pytest.raises(StoreError):
        _use(disk, tmp_path)

    assert disk.pauses == []
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_session_whose_open_lock_blocks_its_renaming_can_be_deleted(tmp_path):
    _finished(tmp_path)

    class Blocking(WindowsDisk):
        held = None

        def lock(self, path):
            self.held = super().lock(path)
            return self.held

        def rename(self, source, target):
            try:
                os.fstat(self.held.fd)
            except OSError:
                return super().rename(source, target)
            raise PermissionError(errno.EACCES, "the lock file is open")

    store = JsonlStore(tmp_path, fs=Blocking())
    store.delete("s")

    assert os.listdir(tmp_path) == []


# -- names ------------------------------------------------------------------------


def test_encoded_ids_are_safe_names():
    ids = ["ticket-4711", "A", "..", "a/b", "\0", "CON", "con.txt", "com1", "a.b."]
    ids += ["\U0001f600" * 3000, "x" * 10_000, ".hidden", "%", "a b", "lock", "~"]
    names = [encode_id(session_id) for session_id in ids]

    assert names[0] == "ticket-4711"
    assert len(set(names)) == len(ids)
    for session_id, name in zip(ids, names, strict=True):
        assert name == name.lower()
        assert len(name) <= 150
        assert not name.startswith(".")
        assert not name.endswith((".", " "))
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.%")
        assert name.split(".")[0] not in {"con", "com1"}
        assert decode_id(name) == (session_id if len(session_id) < 1000 else None)
