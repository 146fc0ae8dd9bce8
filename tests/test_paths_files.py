"""Files that became shorter, vanished or cannot be read: told apart, never guessed."""

import errno
import os
import threading

import pytest

from durable_agent import (
    LogCorruptError,
    SessionBusyError,
    SessionForkedError,
    SessionNotFoundError,
    StoreError,
    _current,
    _lease,
    checkpointed_tool,
    session,
)
from durable_agent._fs import Disk
from durable_agent._segment import (
    HEADER,
    body,
    frame,
    header,
    pieces,
    read_header,
    seal,
    segment_name,
    take,
)
from durable_agent._segment import parse as parse_line
from durable_agent.events import Draft
from durable_agent.jsonl import JsonlStore

NO_PREV = b"0" * 8


class TrickyDisk(Disk):
    """Does what ``does[operation]`` says before, or instead of, an operation."""

    def __init__(self):
        super().__init__()
        self.does = {}


def _tricky(name):
    real = getattr(Disk, name)

    def method(self, *args, **options):
        does = self.does.get(name)
        if does is None:
            return real(self, *args, **options)
        return does(lambda: real(self, *args, **options), *args)

    return method


for _name in (
    "create",
    "fstat",
    "listdir",
    "lock",
    "lstat",
    "mkdir",
    "open_read",
    "open_rewrite",
    "pause",
    "read",
    "rename",
    "sync",
    "unlink",
    "write",
    "write_at",
):
    setattr(TrickyDisk, _name, _tricky(_name))


@pytest.fixture
def disk():
    return TrickyDisk()


@pytest.fixture
def store(disk, tmp_path):
    return JsonlStore(tmp_path, fs=disk)


def fill(store, count=3, *, durable=True):
    log = store.open("s")
    log.append([Draft("session/start"), *(Draft(f"app/{n}") for n in range(1, count))])
    (log.flush if durable else log.write)(count - 1)
    log.close()


def types_in(store):
    log = store.inspect("s")
    try:
        return [event.type for event in log.read()]
    finally:
        log.close()


def fails(number):
    def does(real, *args):
        raise OSError(number, os.strerror(number))

    return does


# lines and headers ---------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b'{"seq":0,"prev":"00000000","durable":-1',
        b'{"seq":0,"prev":"00000000","durable":-1,"time":1,"type":"app/a"',
        b'{"seq":0,"prev":"00000000","durable":-1,"time":1,"type":"app/a","more":1',
        b'{"seq":0,"prev":"00000000","durable":"x","time":1,"type":"app/a","data":1',
    ],
)
def test_a_good_checksum_alone_makes_no_event(content):
    """Head and payload have to be there as well."""
    line = seal(content)[0][:-1]

    assert take(line, 0, NO_PREV, None) is None
    assert parse_line(line) is None


def test_a_line_is_taken_only_where_it_belongs():
    log = b"c01d5eaf"
    line = frame(3, NO_PREV, 2, 1, body(Draft("app/a", b"7"), None, log))[0][:-1]

    assert take(line, 3, NO_PREV, log) == (2, b"app/a", None)
    assert take(line, 4, NO_PREV, log) is None
    assert take(line, 3, b"1" * 8, log) is None
    assert take(line, 3, NO_PREV, b"1" * 8) is None
    assert take(line, 3, NO_PREV, None) is None
    assert take(line.replace(b'":7', b'":8'), 3, NO_PREV, log) is None


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        (Draft("app/a", b""), "empty"),
        (Draft("app/a", meta={"data": 1}), "'data'"),
    ],
)
def test_what_would_end_a_head_early_is_refused(draft, why):
    with pytest.raises(ValueError, match=why):
        body(draft, None)


def test_a_refused_event_leaves_the_log_as_it_was(store):
    fill(store)
    log = store.open("s")
    with pytest.raises(ValueError, match="empty"):
        log.append([Draft("app/good"), Draft("app/bad", b"")])
    log.append([Draft("app/next")])
    log.flush(log.next_seq - 1)
    log.close()

    assert types_in(store) == ["session/start", "app/1", "app/2", "app/next"]


def test_the_first_event_of_a_log_says_whose_it_is(store):
    log = store.open("s")
    with pytest.raises(ValueError, match="session/start"):
        log.append([Draft("app/a")])
    assert log.next_seq == 0
    log.close()


@pytest.mark.parametrize(
    "content",
    [
        b'{"format":1,"session":"s","first":0,"prev":"00000000"',
        b'{"format":1,"session":"s","first":"x","prev":"00000000","time":1',
        b'{"format":1,"session":"s","first":[],"prev":"00000000","time":1',
    ],
)
def test_a_header_with_a_good_checksum_has_all_its_members(content):
    assert read_header(seal(content)[0][:-1]) is None


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"format":1}', b"7"])
def test_what_is_no_header_is_a_damaged_one(line):
    assert read_header(line) is None


def test_a_header_is_read_as_it_was_written():
    for log in (b"c01d5eaf", None):
        line = header("s", 7, b"1" * 8, 3, log)

        assert line.startswith(HEADER)
        assert read_header(line[:-1]) == (1, "s", 7, b"1" * 8, 3, log)


def test_a_file_that_ends_before_its_size_is_read_to_where_it_ends(tmp_path):
    """It was cut by its owner meanwhile; a reader does not wait for more."""
    (tmp_path / "f").write_bytes(b"one\ntwo\nthr")
    disk = Disk()
    fd = disk.open_read(str(tmp_path / "f"))
    try:
        found = list(pieces(disk, fd, 0, 1000))
    finally:
        disk.close(fd)

    assert found == [(0, b"one", True), (4, b"two", True), (8, b"thr", False)]


# opening -------------------------------------------------------------------------


def tear(tmp_path):
    with open(tmp_path / "s" / segment_name(0), "ab") as file:
        file.write(b'{"seq":3,"torn')


@pytest.mark.parametrize("operation", ["sync", "write", "read"])
def test_a_torn_tail_that_cannot_be_kept_is_not_cut(store, disk, tmp_path, operation):
    """The copy is durable first; where it cannot be, nothing has changed."""
    fill(store)
    tear(tmp_path)
    before = (tmp_path / "s" / segment_name(0)).read_bytes()

    def does(real, *args):
        if (tmp_path / "s" / "torn").exists():
            return fails(errno.ENOSPC)(real)
        return real()

    disk.does[operation] = does
    with pytest.raises(StoreError, match="cannot be recovered"):
        store.open("s")
    disk.does.clear()

    assert (tmp_path / "s" / segment_name(0)).read_bytes() == before
    assert os.listdir(tmp_path / "s" / "torn") == []
    log = store.open("s")
    (torn,) = log.report.torn
    log.close()
    assert os.listdir(tmp_path / "s" / "torn") == [os.path.basename(torn.kept)]


def test_a_log_that_becomes_shorter_while_it_is_opened_is_an_error(store, disk):
    """Somebody else cuts it: writing its tail again would glue two logs together."""
    fill(store, durable=False)

    def shorter(real, path):
        disk.does["read"] = lambda real, fd, size, offset: b""
        return real()

    disk.does["open_rewrite"] = shorter
    with pytest.raises(StoreError, match="became shorter"):
        store.open("s")
    disk.does.clear()

    log = store.open("s")
    assert log.report.rewritten > 0
    log.close()
    assert types_in(store) == ["session/start", "app/1", "app/2"]


def test_empty_directories_of_a_session_that_never_began_are_no_damage(store, tmp_path):
    """A crash may have come between making them and the first segment."""
    for name in ("blobs", "torn"):
        (tmp_path / "s" / name).mkdir(parents=True)
    fill(store)
    assert len(types_in(store)) == 3

    (tmp_path / "t" / "blobs").mkdir(parents=True)
    (tmp_path / "t" / "blobs" / "ab").write_bytes(b"1")
    with pytest.raises(LogCorruptError, match="segments are gone"):
        store.open("t")


def test_a_flush_of_a_finished_log_makes_its_seal_durable(store, disk):
    """Nothing was appended by this owner, and the seal may be in the cache only."""
    fill(store)
    log = store.open("s")
    log.append([Draft("run/end", meta={"ok": True})])
    log.flush(3)
    log.close()
    log = store.open("s")
    assert log.durable == 2
    synced = []
    disk.does["sync"] = lambda real, fd: synced.append(fd) or real()
    log.flush(3)

    assert log.durable == 3
    assert len(synced) == 1
    log.close()


def test_a_new_segment_that_is_longer_than_allowed_is_not_followed_by_another(tmp_path):
    """A header alone may be longer than the roll size; an empty segment never rolls."""
    store = JsonlStore(tmp_path, roll_bytes=1)
    fill(store, 4)
    log = store.open("s")
    for n in range(3):
        log.append([Draft(f"app/more-{n}")])
        log.flush(log.next_seq - 1)
    log.close()

    assert len(types_in(store)) == 7
    firsts = [int(n[:20]) for n in os.listdir(tmp_path / "s") if n.endswith(".jsonl")]
    assert sorted(firsts) == [0, 4, 5, 6, 7]


def test_an_event_that_is_not_there_is_a_lookup_error(store):
    fill(store)
    log, reader = store.open("s"), store.inspect("s")

    for handle in (log, reader):
        for seq in (-1, 3):
            with pytest.raises(LookupError):
                handle.get(seq)
            with pytest.raises(LookupError):
                handle._index.locate(seq)
    log.append([Draft("app/pending", b"7")])
    assert log.peek(3).data == 7
    assert log.peek(2) is None
    with pytest.raises(LookupError):
        reader.get(3)
    log.close()
    log.close()


def test_a_payload_that_cannot_be_read_is_an_error_of_the_store(tmp_path, disk):
    store = JsonlStore(tmp_path, fs=disk, blob_bytes=10)
    log = store.open("s")
    log.append([Draft("session/start"), Draft("app/big", b'"%b"' % (b"x" * 99))])
    log.flush(1)
    log.close()
    reader = store.inspect("s")

    def does(real, path):
        return fails(errno.EACCES)(real) if "blobs" in path else real()

    disk.does["open_read"] = does
    with pytest.raises(StoreError, match="payload cannot be read") as raised:
        reader.get(1)
    disk.does.clear()

    assert raised.value.seq == 1
    assert reader.get(1).data == "x" * 99


def test_a_segment_in_the_way_is_another_owners(store, tmp_path):
    log = store.open("s")
    log.append([Draft("session/start")])
    (tmp_path / "s" / segment_name(0)).write_bytes(b"foreign")

    with pytest.raises(StoreError, match="did not write"):
        log.flush(0)
    log.close()
    assert (tmp_path / "s" / segment_name(0)).read_bytes() == b"foreign"


@pytest.mark.parametrize("operation", ["write", "write_at"])
def test_a_file_that_takes_no_bytes_is_an_error(store, disk, operation):
    """Trying for ever would hang the program at its first full disk."""
    fill(store, durable=False)
    disk.does[operation] = lambda real, *args: 0
    with pytest.raises(StoreError, match="took no bytes"):
        log = store.open("s")
        try:
            log.append([Draft("app/next")])
            log.flush(log.next_seq - 1)
        finally:
            log.close()


# the lease -----------------------------------------------------------------------


def test_a_directory_that_is_deleted_while_it_is_locked_is_made_again(store, disk):
    """Another process deletes the session just before it is opened."""

    def does(real, path):
        del disk.does["lock"]
        os.rmdir(os.path.dirname(path))
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    disk.does["lock"] = does
    fill(store)

    assert len(types_in(store)) == 3


def test_a_lock_file_that_is_always_replaced_is_given_up(store, disk):
    """A bounded number of attempts, whoever it is that replaces it."""
    tries = []

    def does(real, path):
        tries.append(path)
        lock = real()
        os.replace(path, path + ".old")
        return lock

    disk.does["lock"] = does
    disk.does["pause"] = lambda real, seconds: None
    with pytest.raises(SessionBusyError):
        store.open("s")
    assert len(tries) == 5


def test_a_forked_child_neither_writes_nor_unlocks(store, monkeypatch):
    """Simulated: the process has another pid all of a sudden."""
    fill(store)
    log = store.open("s")
    pid = os.getpid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(SessionForkedError):
            log._lease.check_process()
        with pytest.raises(SessionForkedError):
            log.append([Draft("app/child")])
        log.close()

    with pytest.raises(SessionBusyError):
        store.open("s")
    log.append([Draft("app/parent")])
    log.flush(log.next_seq - 1)
    log.close()
    assert types_in(store)[-1] == "app/parent"


def test_a_forked_child_forgets_what_its_parent_has_open(root, monkeypatch):
    """It may open sessions of its own, whatever a lock was doing at the fork."""
    ran = []

    @checkpointed_tool
    def tool():
        ran.append(1)

    monkeypatch.setattr(_lease, "_open", {**_lease._open, "elsewhere": 1})
    monkeypatch.setattr(_lease, "_guard", threading.Lock())
    process = _current.PROCESS
    monkeypatch.setattr(process, "generation", process.generation)
    monkeypatch.setattr(process, "lock", threading.Lock())
    monkeypatch.setattr(process, "cores", [object()])
    process.lock.acquire()
    _lease._guard.acquire()

    _lease._forget()
    _current._after_fork()

    assert _lease._open == {}
    assert process.cores == []
    with session("s", root=root):
        tool()
    assert ran == [1]


def test_closing_a_parents_session_in_a_child_writes_nothing(root, monkeypatch):
    @checkpointed_tool
    def tool():
        return 1

    process = _current.PROCESS
    s = session("s", root=root)
    with s as opened:
        tool()
        before = opened.seq
        monkeypatch.setattr(process, "generation", process.generation + 1)
        with pytest.raises(SessionForkedError):
            tool()
        opened.close()

    assert JsonlStore(root).inspect("s").report.events == before + 1


# listing and deleting ------------------------------------------------------------


def test_a_root_that_cannot_be_listed_is_no_empty_one(store, disk):
    fill(store)
    disk.does["listdir"] = fails(errno.EACCES)
    with pytest.raises(StoreError, match="cannot be listed"):
        list(store.list())


def test_a_listing_shows_what_is_there_and_why_it_cannot_be_read(store, tmp_path):
    fill(store)
    (tmp_path / "notes.txt").write_text("no session")
    (tmp_path / "never-began").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / segment_name(0)).write_bytes(b"x" * 10)
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / segment_name(0)).write_bytes(b'{"format":99}\n')
    (tmp_path / "%FF").mkdir()
    (tmp_path / "%FF" / segment_name(0)).write_bytes(header("odd", 0, NO_PREV, 5, None))
    found = {info.id: info for info in store.list()}

    assert set(found) == {"s", "damaged", "newer", "odd"}
    assert found["s"].problem == ""
    assert "damaged" in found["damaged"].problem
    assert "newer" in found["newer"].problem
    assert found["odd"].created == 5


def test_a_session_that_cannot_be_looked_into_is_listed_with_the_reason(store, disk):
    fill(store)
    real_listdir = Disk.listdir

    def does(real, path):
        if path.endswith("s"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_listdir(disk, path)

    disk.does["listdir"] = does
    (info,) = store.list()

    assert (info.id, info.busy) == ("s", None)
    assert "Permission denied" in info.problem


@pytest.mark.parametrize(
    ("note", "busy"),
    [("", False), ("garbage", None), ("1@another-host", None), ("0@{host}", True)],
    ids=["closed", "unreadable", "another host", "this host"],
)
def test_whether_a_session_is_open_is_said_only_where_it_can_be_told(
    store, disk, tmp_path, note, busy
):
    fill(store)
    host = disk.whoami().split("@")[1]
    (tmp_path / "s" / "lock").write_text(
        note.replace("0@{host}", f"{os.getpid()}@{host}")
    )
    (info,) = store.list()

    assert info.busy is busy


def test_the_life_of_a_process_is_judged_by_what_the_system_says(monkeypatch):
    disk = Disk()
    answers = {1: PermissionError, 2: ProcessLookupError, 3: OverflowError, 4: None}

    def kill(pid, signal):
        assert signal == 0
        if answers[pid] is not None:
            raise answers[pid]

    monkeypatch.setattr(os, "kill", kill)

    assert [disk.is_alive(pid) for pid in answers] == [True, False, True, True]


def test_a_note_that_cannot_be_read_says_nothing(tmp_path):
    """Who owns a session is for people: not knowing it stops nobody."""
    disk = Disk()
    assert disk.read_note(str(tmp_path / "absent")) == ""
    assert disk.read_note(str(tmp_path)) == ""


def test_what_vanishes_while_it_is_listed_is_left_out(store, disk, tmp_path):
    """Another process deletes it; the others are listed all the same."""
    fill(store)

    def does(real, path):
        if path.endswith(".jsonl"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return real()

    disk.does["lstat"] = does
    (info,) = store.list()
    disk.does.clear()

    assert (info.id, info.size, info.problem) == ("s", 0, "")
    assert list(JsonlStore(tmp_path / "absent").list()) == []


def test_damage_that_stays_is_no_owner_who_is_just_writing(store, tmp_path):
    """A reader beside an owner looks again, and then believes what it saw."""
    fill(store)
    (tmp_path / "s" / segment_name(0)).write_bytes(b"x" * 100 + b"\n")
    with pytest.raises(LogCorruptError):
        store.inspect("s")
    assert str(tmp_path) in repr(store)


def test_a_session_that_is_not_there_cannot_be_deleted(store, tmp_path):
    with pytest.raises(SessionNotFoundError):
        store.delete("s")
    (tmp_path / "s").mkdir()
    with pytest.raises(SessionNotFoundError):
        store.delete("s")


def test_a_session_that_is_open_is_not_deleted(store):
    fill(store)
    log = store.open("s")
    with pytest.raises(SessionBusyError):
        store.delete("s")
    log.close()
    assert len(types_in(store)) == 3


def test_a_failed_deletion_leaves_all_of_the_session(store, disk):
    fill(store)
    disk.does["rename"] = fails(errno.EROFS)
    with pytest.raises(StoreError, match="cannot be deleted"):
        store.delete("s")
    disk.does.clear()

    assert len(types_in(store)) == 3
    store.delete("s")
    assert list(store.list()) == []


def test_what_an_interrupted_deletion_left_is_removed_by_the_next(
    store, disk, tmp_path
):
    """Its name stays taken meanwhile, and two of a name do not meet."""
    fill(store)
    disk.does["unlink"] = fails(errno.EIO)
    with pytest.raises(StoreError, match="is deleted, but files of it are left"):
        store.delete("s")
    disk.does.clear()
    assert list(store.list()) == []
    fill(store)
    assert len(types_in(store)) == 3

    removed = []

    def does(real, path):
        removed.append(path)
        real()
        return real()  # another process was there first

    disk.does["unlink"] = does
    store.delete("s")
    assert removed
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_made_private_gets_no_content(tmp_path, monkeypatch):
    """Its descriptor is closed too; the name is one that the next opening clears."""
    closed = []
    close = os.close

    def refused(fd, mode):
        closed.append(fd)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def closes(fd):
        closed.append(fd)
        close(fd)

    umask = os.umask(0o377)
    monkeypatch.setattr(os, "fchmod", refused)
    monkeypatch.setattr(os, "close", closes)
    try:
        with pytest.raises(PermissionError):
            Disk().create(str(tmp_path / "f"))
    finally:
        os.umask(umask)

    assert closed == [closed[0]] * 2
    assert (tmp_path / "f").stat().st_size == 0


def test_a_temporary_file_that_cannot_be_removed_hides_no_error(store, disk, tmp_path):
    """What is told is why it was to be removed; the next opening clears it."""
    disk.does["rename"] = fails(errno.ENOSPC)
    disk.does["unlink"] = fails(errno.EIO)
    log = store.open("s")
    log.append([Draft("session/start")])
    with pytest.raises(StoreError, match="No space left"):
        log.flush(0)
    log.close()
    disk.does.clear()
    left = [n for n in os.listdir(tmp_path / "s") if n.endswith(".tmp")]
    assert len(left) == 1

    fill(store)
    assert not [n for n in os.listdir(tmp_path / "s") if n.endswith(".tmp")]
