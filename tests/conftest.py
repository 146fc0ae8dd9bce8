"""What all tests share: a root, a process as if just started, clean children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import durable_agent
from durable_agent import _current

PROJECT = Path(__file__).resolve().parents[1]
#: Where the package under test is: the checkout, or an installed wheel.
PACKAGE_HOME = Path(durable_agent.__file__).resolve().parents[1]

# Last: shared helpers are found in the checkout, the package where it is installed.
if str(PROJECT) not in sys.path:
    sys.path.append(str(PROJECT))

_CONTEXT = {
    _current.FRAME: None,
    _current.RESPONSE: None,
    _current.STEP: None,
    _current.SCOPE: "",
    _current.TOOL_CALL_ID: None,
}
#: Variables that would lead a test, or a child of it, into the user's world.
_PERSONAL = ("DURABLE_AGENT_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL")


@pytest.fixture(scope="session", autouse=True)
def _interruptible():
    """A shell starts what it runs in the background with Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def root(tmp_path):
    """A directory for sessions that does not exist yet."""
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _as_if_just_started():
    """Undo what a test changed for the whole process, and its open sessions."""
    kept = {name: os.environ.pop(name) for name in _PERSONAL if name in os.environ}
    _start()
    yield
    _start()
    os.environ.update(kept)


def _start() -> None:
    process, settings = _current.PROCESS, _current.SETTINGS
    with process.lock:
        process.cores.clear()
        process.crowded = False
        process.warned.clear()
    for name, value in vars_of(_current.Settings()).items():
        setattr(settings, name, value)
    for variable, default in _CONTEXT.items():
        variable.set(default)


def vars_of(settings):
    return {
        name: getattr(settings, name) for name in settings.__slots__ if name[0] != "_"
    }


def clean_environment(**more):
    """The environment of a child: nothing personal, and the package under test."""
    kept = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR", "COVERAGE_PROCESS_START")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return {**environment, "PYTHONPATH": str(PACKAGE_HOME), **more}


@pytest.fixture
def run_python(tmp_path):
    """Run Python with arguments in a clean environment, outside the checkout."""

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            cwd=tmp_path,
            env=clean_environment(HOME=str(tmp_path), **environment),
        )

    return run
