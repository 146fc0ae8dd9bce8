"""Ids, roots and logs that cannot be used: clear errors, and nothing is changed."""

import os
from pathlib import Path

import pytest

from durable_agent import (
    LogUnsupportedError,
    SessionExistsError,
    SessionIdError,
    SessionNotFoundError,
    StoreError,
    checkpointed_tool,
    configure,
    conversation,
    delete_session,
    inspect_session,
    list_sessions,
    session,
)
from durable_agent.jsonl import JsonlStore


@checkpointed_tool
def tool(n):
    return n


def snapshot(directory):
    """Return everything below a directory: kind, size and content."""
    return {
        str(path.relative_to(directory)): (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
        for path in sorted(Path(directory).rglob("*"))
    }


@pytest.mark.parametrize("bad", ["", "a\ud800b", None, 5, b"bytes"])
def test_an_id_that_cannot_name_a_session_is_refused(root, bad):
    for fn in (
        lambda: session(bad, root=root).__enter__(),
        lambda: conversation(bad, root=root).__enter__(),
        lambda: inspect_session(bad, root=root),
        lambda: delete_session(bad, root=root),
    ):
        with pytest.raises(SessionIdError) as raised:
            fn()
        assert isinstance(raised.value, ValueError)

    assert not list(root.rglob("*.jsonl"))


ODD_IDS = {
    "long": "x" * 10_000,
    "dots": "..",
    "dot": ".",
    "slash": "a/b",
    "up": "../../etc/passwd",
    "absolute": "/etc/passwd",
    "backslash": "a\\b",
    "emoji": "🙂 tickets",
    "combining": "e\u0301",
    "composed": "\u00e9",
    "newline": "a\nb",
    "nul": "a\0b",
    "upper": "Ticket",
    "lower": "ticket",
    "reserved": "CON",
    "reserved file": "nul.jsonl",
    "lock": "lock",
    "tmp": "a.tmp",
    "hidden": ".hidden",
    "dash": "-rf",
    "space": " a ",
    "trailing dot": "a.",
    "percent": "a%2Fb",
    "star": "a*?",
}


def test_every_other_text_names_a_session_of_its_own(root):
    """Also ids that differ by case only, on file systems that do not keep case."""
    for text in ODD_IDS.values():
        with session(text, root=root):
            tool(text.encode("utf-8", "replace").decode())
    names = [path.name for path in root.iterdir() if path.is_dir()]

    assert len({name.casefold() for name in names}) == len(ODD_IDS)
    assert {path.parent for path in root.rglob("*.jsonl") if path.is_file()} == {
        root / name for name in names
    }
    assert all(len(os.fsencode(name)) <= 255 for name in names)
    assert {info.id for info in list_sessions(root=root)} == set(ODD_IDS.values())
    for text in ODD_IDS.values():
        with inspect_session(text, root=root) as looked:
            (call,) = [e for e in looked.events() if e.type == "tool/call"]
            expected = text.encode("utf-8", "replace").decode()
            assert call.data["args"]["n"] == expected


def test_an_id_with_slashes_stays_within_the_root(tmp_path):
    outside = snapshot(tmp_path)
    with session("../escaped", root=tmp_path / "root"):
        tool(1)

    assert {name.split("/")[0] for name in snapshot(tmp_path)} - set(outside) == {
        "root"
    }


def test_a_root_that_is_a_file_is_an_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")

    with pytest.raises(StoreError) as raised:
        session("s", root=file).__enter__()

    assert str(file) in str(raised.value)
    assert snapshot(tmp_path) == {"file": b"precious"}


def test_a_root_below_a_file_is_an_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")

    with pytest.raises(OSError, match="file"):
        session("s", root=file / "below").__enter__()

    assert snapshot(tmp_path) == {"file": b"precious"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_root_is_an_error(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)

    with pytest.raises(OSError, match="Permission denied"):
        session("s", root=home).__enter__()

    home.chmod(0o700)
    assert snapshot(tmp_path) == {"home": None}


def test_a_root_that_cannot_be_written_is_an_error(tmp_path):
    """As a read-only file system answers, also to the superuser."""
    from durable_agent._fs import Disk

    class ReadOnly(Disk):
        def mkdir(self, path):
            raise OSError(30, os.strerror(30), path)

    with pytest.raises(StoreError, match="Read-only file system"):
        session("s", store=JsonlStore(tmp_path / "r", fs=ReadOnly())).__enter__()

    assert snapshot(tmp_path) == {}


def test_a_session_directory_that_is_a_symlink_is_refused(tmp_path):
    """Somebody else may have put it there."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    with session("s", root=root):
        tool(1)
    (root / "s").rename(elsewhere)
    (root / "s").symlink_to(elsewhere)
    before = snapshot(tmp_path)

    with pytest.raises(StoreError, match="symbolic link"):
        session("s", root=root).__enter__()

    assert snapshot(tmp_path) == before


def test_a_root_that_is_a_symlink_to_a_directory_works(tmp_path):
    """People link their data directories; the session is the same one."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    with session("s", root=link):
        tool(1)

    with inspect_session("s", root=real) as looked:
        assert looked.finished


def test_a_log_of_a_newer_version_is_unsupported_and_untouched(root):
    with session("s", root=root):
        tool(1)
    (segment,) = root.rglob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    newer = lines[0].replace(b'"format":1', b'"format":2')
    segment.write_bytes(newer + b"".join(lines[1:]))
    before = snapshot(root)

    for fn in (
        lambda: session("s", root=root).__enter__(),
        lambda: conversation("s", root=root).__enter__(),
        lambda: inspect_session("s", root=root),
    ):
        with pytest.raises(LogUnsupportedError) as raised:
            fn()
        assert "newer" in str(raised.value)
        assert "corrupt" not in str(raised.value)

    assert snapshot(root) == before
    (info,) = list_sessions(root=root)
    assert info.problem


def test_other_files_in_the_root_are_left_alone(root):
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    (root / "folder").mkdir()
    (root / "folder" / "data.bin").write_bytes(b"\0\1")
    (root / "link").symlink_to("nowhere")
    before = snapshot(root)
    with session("s", root=root):
        tool(1)

    after = snapshot(root)
    assert {name: after[name] for name in before} == before
    assert [info.id for info in list_sessions(root=root) if not info.problem] == ["s"]


def test_other_files_in_a_session_directory_are_left_alone(root):
    with session("s", root=root):
        tool(1)
    (root / "s" / "README").write_text("mine")
    (root / "s" / "sub").mkdir()
    before = snapshot(root)

    with pytest.warns(match="ended normally"), session("s", root=root):
        tool(1)

    assert snapshot(root) == before


def test_must_exist_does_not_create(root):
    with pytest.raises(SessionNotFoundError) as raised:
        session("s", root=root, must_exist=True).__enter__()

    assert isinstance(raised.value, LookupError)
    assert "'s'" in str(raised.value)
    assert not root.exists() or list(root.rglob("*.jsonl")) == []
    assert list_sessions(root=root) == []


def test_must_not_exist_does_not_resume(root):
    with session("s", root=root, must_exist=False):
        tool(1)
    before = snapshot(root / "s")

    with pytest.raises(SessionExistsError) as raised:
        session("s", root=root, must_exist=False).__enter__()

    assert isinstance(raised.value, FileExistsError)
    assert (
        snapshot(root / "s")["00000000000000000000.jsonl"]
        == (before["00000000000000000000.jsonl"])
    )
    # It is free all the same.
    with pytest.warns(match="ended normally"), session("s", root=root, must_exist=True):
        tool(1)


@pytest.mark.parametrize(
    "fn", [inspect_session, delete_session], ids=["inspect", "delete"]
)
def test_what_is_not_there_is_said_and_not_made(root, fn):
    with pytest.raises(SessionNotFoundError):
        fn("nothing", root=root)
    assert not root.exists()


def test_a_renamed_directory_is_not_the_session_that_its_log_says(root):
    """The id within the log must match; a copied log is no second session."""
    with session("s", root=root):
        tool(1)
    (root / "s").rename(root / "t")
    before = snapshot(root)

    with pytest.raises(StoreError, match="'s'"):
        session("t", root=root).__enter__()

    assert {k: v for k, v in snapshot(root).items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }


@pytest.mark.parametrize(
    "type_",
    ["", "plain", "llm/mine", "run/x", "/x", "x/", "tool/call", "session/start"],
)
def test_event_types_that_are_ours_cannot_be_appended(root, type_):
    with session("s", root=root) as s:
        before = s.seq
        with pytest.raises(ValueError, match="space/name"):
            s.append(type_)
        assert s.seq == before


def test_data_that_is_no_json_cannot_be_appended(root):
    with session("s", root=root) as s:
        with pytest.raises(TypeError):
            s.append("app/x", object())
        assert s.append("app/x", {"a": [1, None]}) is not None


def test_metadata_that_is_no_json_is_refused_before_anything_runs(root):
    with pytest.raises(TypeError):
        session("s", root=root, metadata={"a": object()})
    assert not root.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"on_divergence": "loud"},
        {"on_unknown": "guess"},
        {"lock_timeout": "soon"},
        {"replay_wait": None},
        {"must_exist": "yes"},
        {"policy": "fast"},
        {"store": "/tmp/x"},
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused_at_once(root, options):
    """Not at the first call that meets it."""
    with pytest.raises((TypeError, ValueError)):
        session("s", root=root, **options)
    assert not root.exists()


def test_a_process_wide_default_that_makes_no_sense_is_refused():
    with pytest.raises(TypeError, match="guess"):
        configure(on_unknown="guess")
