"""The wheel that people install is whole, typed, and runs outside the checkout."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.conftest import PROJECT, clean_environment

#: A module reads in one sitting.
LINES = 350
#: A function fits on one screen.
SCREEN = 60

AGENT = """
import sys
import durable_agent as da

ran = []

@da.checkpointed_tool
def book(item):
    ran.append(item)
    return item.upper()

with da.session("wheel", root=sys.argv[1]):
    print(book("room"), ran, da.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel as an installer does, from the files of the checkout."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"]
    command += ["--no-build-isolation", "--no-index", "--wheel-dir", target, PROJECT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_every_module_and_says_that_it_is_typed(wheel):
    package = PROJECT / "durable_agent"
    wanted = {p.relative_to(PROJECT).as_posix() for p in package.rglob("*.py")}

    with zipfile.ZipFile(wheel) as archive:
        held = {n for n in archive.namelist() if n.startswith("durable_agent/")}
    assert held == wanted | {"durable_agent/py.typed"}


def test_the_wheel_names_its_version_licence_and_python(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        facts = HeaderParser().parsestr(archive.read(name).decode())
        licences = [n for n in archive.namelist() if n.endswith("licenses/LICENSE")]

    version = re.search(r'__version__.*"(.+)"', _text("durable_agent/_version.py"))
    assert facts["Version"] == version[1]
    assert facts["Requires-Python"] == ">=3.11"
    assert facts["License-Expression"] == "MIT"
    assert len(licences) == 1


def test_an_agent_runs_and_replays_from_the_wheel_outside_the_checkout(wheel, tmp_path):
    """Nothing may be needed that only the checkout has."""
    home = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    program = ["-c", AGENT, str(tmp_path / "root")]
    environment = clean_environment(PYTHONPATH=str(home))

    def run(*options):
        done = subprocess.run(
            [sys.executable, "-W", "error", *options, *program],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split(" ", 2)

    first, again = run(), run("-W", "ignore:session:UserWarning")

    assert first[:2] == ["ROOM", "['room']"]
    assert again[:2] == ["ROOM", "[]"]
    assert Path(first[2].strip()).is_relative_to(home)


def test_importing_the_package_imports_no_framework_and_no_server(run_python):
    """Who decorates one function does not pay for what is never used."""
    heavy = "openai langchain_core pydantic numpy psycopg anyio unittest"
    code = (
        "import sys, durable_agent\n"
        f"print([m for m in {heavy.split()} if m in sys.modules])"
    )

    done = run_python("-c", code)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def _text(path):
    return (PROJECT / path).read_text(encoding="utf-8")


def _modules():
    return sorted((PROJECT / "durable_agent").rglob("*.py"))


def test_a_module_reads_in_one_sitting():
    lengths = {p.name: len(p.read_text("utf-8").splitlines()) for p in _modules()}

    assert {n: length for n, length in lengths.items() if length >= LINES} == {}


def test_a_function_fits_on_one_screen():
    """Without its docstring, which documents options at length."""
    long = {}
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno - body[0].lineno + 1) if body else 0
                if lines > SCREEN:
                    long[f"{path.name}:{node.name}"] = lines

    assert long == {}


def test_the_changelog_and_the_package_name_the_same_version():
    (version,) = re.findall(
        r'__version__[^"]*"([^"]+)"', _text("durable_agent/_version.py")
    )
    released = re.findall(r"^## \[([^\]]+)\]", _text("CHANGELOG.md"), re.MULTILINE)

    assert f'version = "{version}"' in _text("pyproject.toml")
    assert version in released
