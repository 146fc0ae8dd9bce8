"""The decorated function keeps its static type, for both type checkers."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
FILES = sorted(str(path) for path in (HERE / "typing").glob("*.py"))


def _check(arguments, tmp_path):
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_mypy_finds_the_types_unchanged(tmp_path):
    """Unused ignores are errors too: what must be refused is refused."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")

    code, output = _check(
        [
            sys.executable,
            *("-m", "mypy", "--strict", "--config-file=pyproject.toml"),
            *("--follow-imports=silent", f"--cache-dir={tmp_path}", *FILES),
        ],
        tmp_path,
    )

    assert (code, output.strip()) == (
        0,
        f"Success: no issues found in {len(FILES)} source files",
    )


def test_pyright_finds_the_types_unchanged(tmp_path):
    if importlib.util.find_spec("pyright") is None or shutil.which("node") is None:
        pytest.skip("pyright needs its package and node")

    code, output = _check(
        [sys.executable, "-m", "pyright", "--project", "pyproject.toml"], tmp_path
    )

    assert code == 0, output
    assert "0 errors, 0 warnings" in output
