"""Break a promise in a copy of the product, and see which tests notice.

``python -m tests.mutations [WORD…]`` tries every fault whose name has one of the
words, prints a table of who catches what, and ends with 1 if one was not caught.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import durable_agent
from tests.mutations.faults import FAULTS

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = Path(durable_agent.__file__).resolve().parent
#: Who is asked, quickest first; one that notices ends its own run.
SUITES = [
    "test_format.py",
    "test_fail_closed.py",
    "test_barrier.py",
    "test_counts.py",
    "test_locks.py",
    "test_processes.py",
    "test_jsonl_files.py",
    "test_lookup.py",
    "test_power_machine.py",
    "test_system_calls.py",
    "test_jsonl_power_loss.py",
]
#: Longer than any of them takes; one that hangs has noticed too.
_SECONDS = 300
#: What pytest ends with where it did not run any test.
_NO_TESTS = {4, 5}


def broken(fault, directory):
    """A copy of the product with the fault."""
    shutil.copytree(PACKAGE, directory / "durable_agent")
    path = directory / "durable_agent" / fault.module
    text = path.read_text()
    if text.count(fault.old) != 1:
        message = f"{fault.name}: its place is not in {fault.module}"
        raise LookupError(message)
    path.write_text(text.replace(fault.old, fault.new))


def notices(suite, directory):
    """Whether a file of tests fails, or hangs, over the product in a directory."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{PROJECT}"}
    try:
        done = subprocess.run(
            [*command, f"tests/{suite}"],
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode in _NO_TESTS:
        raise RuntimeError((done.stdout + done.stderr).decode()[-2000:])
    return done.returncode != 0


def catchers(fault):
    """The files of tests that notice a fault."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        broken(fault, directory)
        return [suite for suite in SUITES if notices(suite, directory)]


def fails_alone(suite):
    """Whether a file of tests fails over a copy of the product without any fault."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(PACKAGE, Path(name) / "durable_agent")
        return notices(suite, Path(name))


def main(words):
    chosen = [f for f in FAULTS if not words or any(w in f.name for w in words)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        alone = zip(SUITES, pool.map(fails_alone, SUITES), strict=True)
        untouched = [suite for suite, bad in alone if bad]
        if untouched:
            print(f"without any fault, these fail: {', '.join(untouched)}")
            return 2
        found = list(pool.map(catchers, chosen))
    print("| fault | caught by |\n|---|---|")
    for fault, suites in zip(chosen, found, strict=True):
        print(f"| {fault.name} | {', '.join(s[5:-3] for s in suites) or 'NOBODY'} |")
    missed = sum(not suites for suites in found)
    print(f"\n{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
