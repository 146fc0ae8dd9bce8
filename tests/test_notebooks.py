"""Notebooks: real kernels, killed and started again, run from the top by nbclient."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from durable_agent import inspect_session
from tests.conftest import PROJECT, clean_environment

NEEDED = ("ipykernel", "nbclient", "nbformat")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")

RUNNER = PROJECT / "tests" / "notebook_runner.py"

AGENT = """
import asyncio, os, pathlib, signal
from durable_agent import *

outbox = pathlib.Path("outbox")
outbox.mkdir(exist_ok=True)

def note(name, text):
    with (outbox / name).open("a") as file:
        file.write(text + "\\n")

def was_sent(call):
    sent = (outbox / "mail").exists()
    return Completed("sent") if sent else NotApplied()

@checkpointed_tool(verify=was_sent)
def send_email(to):
    note("mail", to)
    return "sent"

@checkpointed_tool
def look_up(name):
    note("look-ups", name)
    return f"{name}@example.com"

@checkpointed_tool
async def search(query):
    await asyncio.sleep(0)
    note("searches", query)
    return [query]
"""


@pytest.fixture
def notebook(tmp_path):
    """Run cells as a notebook in a directory that outlives it."""
    nbformat = pytest.importorskip("nbformat")

    def run(*cells):
        v4 = nbformat.v4
        book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
        path = tmp_path / "notebook.ipynb"
        nbformat.write(book, path)
        return execute(path)

    return run


def execute(path):
    nbformat = pytest.importorskip("nbformat")
    home = path.parent
    done = subprocess.run(
        [sys.executable, str(RUNNER), path.name],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=home,
        env=clean_environment(HOME=str(home), JUPYTER_PLATFORM_DIRS="1"),
    )
    cells = nbformat.read(path, as_version=4).cells
    code_cells = [cell for cell in cells if cell.cell_type == "code"]
    return SimpleNamespace(
        code=done.returncode,
        error=done.stderr,
        texts=[text_of(cell) for cell in code_cells],
        code_cells=code_cells,
    )


def text_of(cell):
    """What a cell printed and what its last line showed, as text."""
    parts = [o.get("text") or o.get("data", {}).get("text/plain") for o in cell.outputs]
    return "".join(part or "" for part in parts).strip()


def lines(path):
    return path.read_text("utf-8").splitlines() if path.exists() else []


def test_a_kernel_killed_in_cell_4_and_run_again_sends_one_email(notebook, tmp_path):
    """The main job, in a notebook: the same file, run again from the top."""
    cells = [
        "%load_ext durable_agent\n%durable on mailer",
        AGENT,
        "to = look_up('joan')",
        (
            "reply = send_email(to)\n"
            "if not (outbox / 'died').exists():\n"
            "    note('died', 'once')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)"
        ),
        "print(reply, await search('ports'))",
    ]

    first, second = notebook(*cells), notebook(*cells)

    assert (first.code, second.code) == (3, 0), second.error
    assert lines(tmp_path / "outbox" / "mail") == ["joan@example.com"]
    assert lines(tmp_path / "outbox" / "look-ups") == ["joan"]
    assert second.texts[-1] == "sent ['ports']"


def test_a_kernel_killed_inside_the_tool_is_settled_by_its_verifier(notebook, tmp_path):
    """The e-mail is out, its outcome is not recorded: the outbox is asked."""
    cells = [
        "%load_ext durable_agent\n%durable on mailer",
        AGENT + "\nsend_now = note\n",
        (
            "def note(name, text):\n"
            "    send_now(name, text)\n"
            "    if name == 'mail':\n"
            "        os.kill(os.getpid(), signal.SIGKILL)"
        ),
        "reply = send_email('joan')",
        "print(reply)",
    ]

    first, second = notebook(*cells), notebook(*cells)

    assert (first.code, second.code) == (3, 0), second.error
    assert lines(tmp_path / "outbox" / "mail") == ["joan"]
    assert second.texts[-1] == "sent"


@pytest.mark.parametrize(
    "opening", ["%load_ext durable_agent\n%durable on n", "s = open_session('n')"]
)
def test_sync_and_await_cells_are_recorded_in_one_session(notebook, tmp_path, opening):
    """An `await` cell runs in a context of its own; so does each of its tasks."""
    cells = [
        AGENT,
        opening,
        "look_up('a')",
        "await search('b')",
        "await asyncio.gather(search('c'), search('d'))",
        "await asyncio.to_thread(look_up, 'e')",
        "async def both():\n    return look_up('f'), await search('g')\nawait both()",
        "look_up('h')",
    ]

    first, second = notebook(*cells), notebook(*cells)

    assert (first.code, second.code) == (0, 0), first.error + second.error
    assert first.texts[2:] == second.texts[2:]
    assert lines(tmp_path / "outbox" / "look-ups") == ["a", "e", "f", "h"]
    assert sorted(lines(tmp_path / "outbox" / "searches")) == ["b", "c", "d", "g"]


def test_a_session_opened_in_an_await_cell_is_active_in_the_next(notebook, tmp_path):
    """What such a cell sets in its context is gone in the next one."""
    cells = [
        AGENT,
        "s = open_session('n'); await search('a')",
        "look_up('b')",
        "await search('c')",
        "print(s.seq)\ns.close()",
    ]

    first = notebook(*cells)
    second = notebook(*cells)

    assert (first.code, second.code) == (0, 0), first.error + second.error
    assert lines(tmp_path / "outbox" / "searches") == ["a", "c"]
    assert lines(tmp_path / "outbox" / "look-ups") == ["b"]


def test_a_cell_run_again_or_edited_in_a_live_kernel_executes_again(notebook, tmp_path):
    """The cursor stands at the end: what a person runs now is new work."""
    again = "print(look_up('a'))"
    cells = [
        "%load_ext durable_agent\n%durable on n",
        AGENT,
        again,
        again,
        again.replace("'a'", "'b'"),
        (
            "def look_up(name):\n    return 'new ' + name\n"
            "look_up = checkpointed_tool(look_up)"
        ),
        again,
    ]

    done = notebook(*cells)

    assert done.code == 0, done.error
    assert done.texts[2:] == [
        *("a@example.com", "a@example.com", "b@example.com"),
        "",
        "new a",
    ]
    assert lines(tmp_path / "outbox" / "look-ups") == ["a", "a", "b"]


def test_a_module_reloaded_by_autoreload_runs_its_new_code_recorded_once(
    notebook, tmp_path
):
    """`%autoreload 2` puts new code into the functions that were there."""
    module = (
        "from durable_agent import checkpointed_tool\\n"
        "@checkpointed_tool\\n"
        "def tool(n):\\n"
        "    return n + {added}\\n"
    )
    write = (
        f"import os, pathlib\ntext = '{module}'\n"
        "def write(added, time):\n"
        "    path = pathlib.Path('mytools.py')\n"
        "    path.write_text(text.replace('{added}', str(added)))\n"
        "    os.utime(path, (time, time))\n"
    )
    cells = [
        "%load_ext autoreload\n%autoreload 2\n%load_ext durable_agent",
        "import sys\nsys.path.insert(0, '')\nsys.dont_write_bytecode = True",
        write + "write(1, 1_600_000_000)",
        "%durable on n\nimport mytools\nfrom mytools import tool",
        "print(tool(1), mytools.tool(2))",
        "write(100, 1_700_000_000)",
        "print(tool(3), mytools.tool(4))",
    ]

    done = notebook(*cells)

    assert done.code == 0, done.error
    assert (done.texts[4], done.texts[6]) == ("2 3", "103 104")
    with inspect_session("n", root=tmp_path / ".durable_agent") as log:
        calls = [event for event in log.events() if event.type == "tool/call"]
    assert [event.data["args"] for event in calls] == [{"n": n} for n in (1, 2, 3, 4)]
    assert {event.meta["name"] for event in calls} == {"mytools:tool"}


def test_nest_asyncio_lets_sync_code_run_coroutines_that_are_recorded(
    notebook, tmp_path
):
    pytest.importorskip("nest_asyncio")
    cells = [
        "import nest_asyncio\nnest_asyncio.apply()",
        "%load_ext durable_agent\n%durable on n",
        AGENT,
        "print(asyncio.run(search('a')))",
        "loop = asyncio.get_event_loop()\nprint(loop.run_until_complete(search('b')))",
        (
            "async def cell():\n    return look_up('c'), asyncio.run(search('d'))\n"
            "print(await cell())"
        ),
        "%durable off",
    ]

    first, second = notebook(*cells), notebook(*cells)

    assert (first.code, second.code) == (0, 0), first.error + second.error
    shown = ["['a']", "['b']", "('c@example.com', ['d'])"]
    assert first.texts[3:6] == second.texts[3:6] == shown
    assert lines(tmp_path / "outbox" / "searches") == ["a", "b", "d"]


def test_the_status_line_says_what_is_open_and_what_it_holds(notebook, tmp_path):
    cells = [
        "%load_ext durable_agent\n%durable status",
        "%durable on n",
        AGENT,
        "look_up('a')",
        "%durable status",
        "%durable off",
        "%durable status",
    ]

    first, second = notebook(*cells), notebook(*cells)

    assert (first.code, second.code) == (0, 0), first.error + second.error
    place = tmp_path / ".durable_agent" / "n"
    on = f"durable: session n: open; no calls; {place} (new)"
    assert [first.texts[0], first.texts[1]] == ["durable: off", on]
    one = f"durable: session n: open; 1 call: 1 recorded; {place}"
    assert first.texts[4:] == [
        one,
        "durable: off; session 'n' is closed",
        "durable: off",
    ]
    assert second.texts[1].startswith(f"{one} (resumed)")
    assert second.texts[4] == one.replace("recorded", "replayed")


def test_after_off_cells_run_unrecorded_and_say_so(notebook, tmp_path):
    """As after a `with`: nobody has to start the kernel again to try something."""
    cells = [
        "%load_ext durable_agent\n%durable on n",
        AGENT,
        "look_up('a')",
        "%durable off",
        (
            "import warnings\n"
            "with warnings.catch_warnings(record=True) as told:\n"
            "    look_up('a')\n"
            "print(told[0].category.__name__)"
        ),
        "print(await search('b'))",
    ]

    done = notebook(*cells)

    assert done.code == 0, done.error
    assert done.texts[4] == "NoSessionWarning"
    assert lines(tmp_path / "outbox" / "look-ups") == ["a", "a"]
    assert recorded(tmp_path / ".durable_agent", "n") == ["look_up"]


def test_a_typing_error_stops_a_notebook_that_runs_by_itself(notebook, tmp_path):
    """What follows would run unrecorded."""
    done = notebook("%load_ext durable_agent\n%durable on", AGENT, "look_up('a')")

    assert done.code == 1
    assert "NAME" in done.error
    assert not (tmp_path / "outbox").exists()


def test_a_session_shows_itself_as_a_table_in_a_notebook(notebook):
    done = notebook(
        "%load_ext durable_agent\n%durable on n",
        AGENT,
        "look_up('<b>a</b>')",
        "current_session()",
        "inspect_session('n')",
    )

    assert done.code == 0, done.error
    for cell in done.code_cells[-2:]:
        (shown,) = cell.outputs
        assert "look_up" in shown.data["text/html"]
        assert "&lt;b&gt;a" in shown.data["text/html"]
        assert "<b>a" not in shown.data["text/html"]
        assert re.match(r"<(Session|Inspection) 'n' ", shown.data["text/plain"])


def test_unloading_closes_the_session_and_reloading_works(notebook, tmp_path):
    done = notebook(
        "%load_ext durable_agent\n%durable on n",
        AGENT + "\ns = current_session()",
        "look_up('a')",
        "%unload_ext durable_agent",
        "print(s.closed, 'durable' in get_ipython().magics_manager.magics['line'])",
        "%load_ext durable_agent\n%durable on m\nlook_up('a')",
        "%reload_ext durable_agent",
        "%durable status",
    )

    assert done.code == 0, done.error
    assert (done.texts[4], done.texts[7]) == ("True False", "durable: off")
    assert lines(tmp_path / "outbox" / "look-ups") == ["a", "a"]


def recorded(root, name):
    with inspect_session(name, root=root) as log:
        return [
            event.data["function"]
            for event in log.events()
            if event.type.endswith(("/call", "/request"))
        ]


def sent(folder):
    return [json.loads(line) for line in lines(folder / "outbox.jsonl")]


def test_the_example_dies_in_cell_4_and_sends_one_email_when_run_again(tmp_path):
    path = Path(shutil.copy(PROJECT / "examples" / "notebook.ipynb", tmp_path))

    first, mails = execute(path), len(sent(tmp_path))
    second = execute(path)
    third = execute(path)

    assert (first.code, second.code, third.code) == (3, 0, 0), second.error
    assert (mails, len(sent(tmp_path))) == (1, 1)
    counts = [cell.execution_count for cell in first.code_cells]
    assert counts == [1, 2, 3, 4, None, None]
    assert "e-mails in the outbox: 1" in second.texts[3]
    assert "4 calls: 3 replayed, 1 recorded" in second.texts[5]
    assert "4 calls: 4 replayed" in third.texts[5]
    table = second.code_cells[4].outputs[0].data["text/html"]
    assert re.findall(r"<caption[^>]*>(.*?)</caption>", table) == [
        "step write",
        "step send",
    ]


@pytest.mark.parametrize(
    ("before", "after", "emails"),
    [
        ("@checkpointed_tool(verify=was_sent)\n", "", 2),
        ("%durable on weather-mail", "", 2),
        ('return Completed("sent")', "return NotApplied()", 2),
        ("(verify=was_sent)", "", 1),
    ],
)
def test_the_example_needs_what_it_shows(tmp_path, before, after, emails):
    """Without the decorator, the session or an honest outbox, the e-mail goes twice.

    Without a verifier it does not: the second run stops and says why.
    """
    path = Path(shutil.copy(PROJECT / "examples" / "notebook.ipynb", tmp_path))
    text = path.read_text("utf-8")
    before, after = json.dumps(before)[1:-1], json.dumps(after)[1:-1]
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")

    first, second = execute(path), execute(path)

    assert first.code == 3
    assert second.code == (0 if emails == 2 else 1)
    assert len(sent(tmp_path)) == emails
    assert emails == 2 or "TOOL_OUTCOME_UNKNOWN" in second.error


def test_the_example_holds_no_output_of_a_machine():
    text = (PROJECT / "examples" / "notebook.ipynb").read_text("utf-8")
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]

    assert len(cells) == 6
    assert {len(cell["outputs"]) for cell in cells} == {0}


def test_the_cells_of_the_readme_run_and_replay(notebook, tmp_path):
    text = (PROJECT / "README.md").read_text("utf-8")
    cells = re.findall(r"^```ipython\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    mailer = "class mailer:\n    def send(to, body, **_): print('sent to', to)"

    first, second = notebook(mailer, *cells), notebook(mailer, *cells)

    assert len(cells) == 3
    assert (first.code, second.code) == (0, 0), first.error + second.error
    assert first.texts[2] == "sent to joan@example.com"
    assert second.texts[2] == ""
    assert second.texts[3].startswith("durable: session welcome: open; 1 call: 1 rep")
