"""The examples are run as the README says, and their claims hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT, clean_environment

EXAMPLES = PROJECT / "examples"


def run(script, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=cwd,
        env=clean_environment(**environment),
    )


def test_a_killed_mailer_sends_every_reminder_exactly_once(tmp_path):
    """The main job: the real client over HTTP, real e-mails, a real kill."""
    done = run(EXAMPLES / "crash_and_resume.py", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(
        re.findall(r"^ *(\S.*?) {2,}([\d,]+ +[\d,]+)$", done.stdout, re.MULTILINE)
    )
    table = {
        name: [int(n.replace(",", "")) for n in two.split()]
        for name, two in rows.items()
    }
    assert table["e-mails in the mailbox"] == [4, 9]
    assert table["tool calls in doubt"][0] == 1
    assert table["settled by looking into the mailbox"] == [0, 1]
    assert table["model requests sent"] == [8, 11]
    assert table["model requests replayed"] == [0, 8]
    assert table["tokens saved"][1] == table["tokens paid for"][0] > 0
    assert list(tmp_path.iterdir()) == []
    assert _shown(done.stdout) == _shown(_readme())


def _readme():
    text = (PROJECT / "README.md").read_text("utf-8")
    return re.search(r"^```text\n(10 overdue.*?)^```$", text, re.DOTALL | re.MULTILINE)[
        1
    ]


def _shown(output):
    """What was printed, but the tokens: the days overdue are in the messages."""
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return [line[:40] if line.startswith("tokens") else line for line in lines]


def test_parallel_bookings_killed_in_the_middle_are_made_once_each(tmp_path):
    done = run(EXAMPLES / "async_agent.py", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 model request replayed" in done.stdout


def test_a_stream_is_asked_for_again_only_if_it_never_ended(tmp_path):
    done = run(EXAMPLES / "streaming_agent.py", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"run \d: (\d)", done.stdout) == ["1", "1", "0"]


def test_a_chat_goes_on_after_a_kill_between_two_of_four_tools(tmp_path):
    done = run(EXAMPLES / "chat_continue.py", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "told:  TOOL_OUTCOME_UNKNOWN\ntold:  TOOL_NOT_STARTED\n" in done.stdout
    readme = (PROJECT / "README.md").read_text("utf-8")
    block = r"^```text\n(process 1.*?)^```$"
    shown = re.search(block, readme, re.DOTALL | re.MULTILINE)[1]
    assert _without_tokens(done.stdout) == _without_tokens(shown)


def _without_tokens(text):
    return re.sub(r"^tokens: [\d,]+", "tokens: n", text, flags=re.MULTILINE)


_CREATE = "client.chat.completions.create"


@pytest.mark.parametrize(
    ("script", "before", "after"),
    [
        ("crash_and_resume.py", "@checkpointed_tool(verify=was_sent)\n", ""),
        ("crash_and_resume.py", "return Completed(f", "return NotApplied() or (f"),
        ("async_agent.py", "    @checkpointed_tool(verify=was_booked)\n", ""),
        ("streaming_agent.py", f"checkpointed_llm({_CREATE})", _CREATE),
        ("chat_continue.py", "*session.messages(), ", ""),
    ],
)
def test_an_example_fails_when_its_claim_does_not_hold(tmp_path, script, before, after):
    """Without the decorator, or with a verifier that lies, effects do double."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / script).read_text("utf-8")
    assert before in text
    (folder / script).write_text(text.replace(before, after), "utf-8")

    done = run(folder / script, tmp_path)

    assert done.returncode == 1
    assert "FAILED" in done.stdout


def _refusal(tmp_path, messages):
    code = (
        "import json, sys; from loopback_model import refusal; "
        "print(refusal(json.loads(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(messages)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
    )
    return done.stdout.strip()


def _call(*ids):
    return {"role": "assistant", "tool_calls": [{"id": i} for i in ids]}


def _result(id_):
    return {"role": "tool", "tool_call_id": id_, "content": ""}


USER = {"role": "user", "content": ""}


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([USER, _call("a", "b"), _result("b"), _result("a")], "None"),
        ([USER, _call("a"), _result("a"), _call("a"), _result("a")], "None"),
        ([USER, _call("a", "b"), _result("a")], "tool calls without a result: ['b']"),
        ([USER, _call("a"), USER], "messages[2]: tool calls without a result: ['a']"),
        (
            [USER, _call("a"), _result("a"), _result("a")],
            "messages[3]: a tool result without its tool call",
        ),
        ([USER, _result("a")], "messages[1]: a tool result without its tool call"),
        ([], "messages: is empty"),
    ],
)
def test_the_loopback_model_refuses_what_a_provider_refuses(tmp_path, messages, says):
    """Else the examples would not notice a history that is out of balance."""
    assert _refusal(tmp_path, messages) == says


def test_the_invoices_are_what_the_example_says():
    lines = Path(EXAMPLES / "overdue_invoices.csv").read_text("utf-8").splitlines()

    assert len(lines) == 1 + 10
    assert sum("do not remind" in line for line in lines) == 1
