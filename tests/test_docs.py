"""What the README shows is run: its code, its commands, its output."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import warnings

import pytest

import durable_agent
from durable_agent import FinishedSessionWarning
from tests.conftest import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    """The blocks of one language with their lines in the README, in order."""
    return [
        (README[: match.start()].count("\n") + 2, match[2])
        for match in _BLOCK.finditer(README)
        if match[1] == language
    ]


class Mailer:
    """The reader's mailer: remembers what it sent."""

    def __init__(self):
        self.sent = {}

    def send(self, to, body, *, message_id):
        self.sent[message_id] = (to, body)
        return f"sent to {to}"

    def find(self, *, message_id):
        return (
            f"sent to {self.sent[message_id][0]}" if message_id in self.sent else None
        )


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """The names that the README takes from its reader, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(PROJECT / "examples")])
    loopback = runpy.run_path(str(PROJECT / "examples" / "loopback_model.py"))
    server = loopback["ModelServer"](lambda messages: loopback["Answer"]("Bonjour."))
    with server:
        monkeypatch.setenv("OPENAI_API_KEY", "loopback")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield {"__name__": "readme", "mailer": Mailer()}, server


def run(names, *, skip=()):
    for line, code in blocks("python"):
        if line not in skip:
            # Errors point at the line of the README.
            padded = "\n" * (line - 1) + code
            exec(compile(padded, str(PROJECT / "README.md"), "exec"), names)  # noqa: S102 - the point


def test_every_code_block_of_the_readme_runs(reader, capsys):
    names, server = reader

    with warnings.catch_warnings():
        # The person who settles calls opens a session that had ended.
        warnings.simplefilter("ignore", FinishedSessionWarning)
        run(names)

    assert len(blocks("python")) >= 9
    assert list(names["mailer"].sent.values()) == [("joan@example.com", "Bonjour.")]
    assert server.requests == 3
    assert "['a page about ports'], ['a page about tides']" in capsys.readouterr().out


def test_every_code_block_of_the_readme_replays(reader, capsys):
    """Run a second time, the scripts of the README cost nothing; a chat goes on."""
    names, server = reader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        run(names)
        before = dict(names["mailer"].sent)
        again = {"__name__": "readme", "mailer": names["mailer"]}
        run(again)

    assert names["mailer"].sent == before
    # The chat asks again with a longer history; the two scripts do not.
    assert server.requests == 3 + 1
    assert server.refused == []


def test_the_shell_commands_that_read_the_log_work(reader, capsys):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    names, _ = reader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        run(names)
    readers = [code for _, code in blocks("sh") if "jq" in code]

    shown = [
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for code in readers
    ]

    assert shown[0].splitlines()[0] == '[0,"session/start",null]'
    assert '"tool/call","readme:send_email"]' in shown[0]
    assert shown[1] == ""


def test_the_jq_command_finds_the_call_in_doubt(run_python, tmp_path, monkeypatch):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    code = (
        "import os, durable_agent as da\n"
        "@da.checkpointed_tool\n"
        "def pay(amount): os.kill(os.getpid(), 9)\n"
        "with da.session('ticket-4711'): pay(3)"
    )
    run_python("-c", code)
    (command,) = [code for _, code in blocks("sh") if "group_by" in code]
    monkeypatch.chdir(tmp_path)

    shown = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True
    )

    assert '"args":{"amount":3}' in shown.stdout
    assert len(shown.stdout.splitlines()) == 1

    # Once a conversation went on past it, it is in doubt still.
    run_python(
        "-c",
        "import durable_agent as da\n"
        "with da.conversation('ticket-4711') as s:\n"
        "    s.append('app/note')\n"
        "    assert len(s.in_doubt()) == 1",
    )
    again = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True
    )
    assert again.stdout == shown.stdout


def test_the_two_commands_are_what_the_continuous_integration_runs():
    script = PROJECT / ".ci" / "run"
    commands = [code.strip() for _, code in blocks("sh") if "pip install" in code]

    assert len(commands) == 2
    for command in commands:
        install, _, then = command.partition(" && ")
        assert install in script.read_text("utf-8")
        assert then in script.read_text("utf-8")
    assert script.stat().st_mode & stat.S_IXUSR


def test_options_named_in_the_readme_exist():
    """A renamed option would otherwise live on in the tables."""
    from durable_agent import _options

    known = set(_options._OPTIONS["llm"] | _options._OPTIONS["tool"])
    known |= set(durable_agent.session.__kwdefaults__)
    named = set(re.findall(r"`(\w+)=[^`]*`", README)) - {"durability"}

    assert named - known == set()


def test_names_imported_in_the_readme_are_public():
    imported = re.findall(r"^from durable_agent import (.+)$", README, re.MULTILINE)
    names = {name.strip() for line in imported for name in line.split(",")}

    assert len(names) >= 10
    assert names - set(durable_agent.__all__) == set()


def test_the_readme_speaks_of_no_machine_of_ours():
    paths = re.findall(r"(?<![\w.$])/(?:home|root|tmp|work|Users|opt)/\S*", README)

    assert paths == []
    assert os.path.expanduser("~") not in README
