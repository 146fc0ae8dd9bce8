"""A batch of 10,000 items, a session each, in a pool of threads; killed and run again.

``python batch.py`` demonstrates it in a temporary directory: the batch is killed twice
in the middle, with SIGKILL, and each mail is sent once all the same. ``--in DIRECTORY``
runs it there, to be killed by yourself; ``--items`` says how many there are.

An item is a session of its own, so a worker needs no ``bind``: what it opens, it sees.
Items that were finished replay, which sends nothing and writes nothing. What was being
sent when the process died is looked up in the outbox.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from durable_agent import (
    Completed,
    FinishedSessionWarning,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    configure,
    session,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORKERS = 8

# Many sessions are open at once, and that one was finished before is no news here.
configure(session_fallback=False, require_session=True)
warnings.simplefilter("ignore", FinishedSessionWarning)


# --- the model and the mail; yours would call a provider and a mail server ------------


class Outside:
    """The world: a file that gets a line for each mail, and what kills the process."""

    outbox = Path()
    sends = itertools.count(1)
    fatal = 0


@checkpointed_llm
def write(customer: str) -> str:
    return f"Dear {customer}, thank you for being with us."


def was_sent(call: Any) -> Completed | NotApplied:
    sent = call.idempotency_key in Outside.outbox.read_text()
    return Completed("sent") if sent else NotApplied()


@checkpointed_tool(verify=was_sent)
def mail(customer: str, text: str, *, idempotency_key: str = "") -> str:
    number = next(Outside.sends)
    line = f"{customer}\t{idempotency_key}\t{text}\n".encode()
    out = os.open(Outside.outbox, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if number == Outside.fatal and number % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(out, line)
        if number == Outside.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os.close(out)
    return "sent"


# --- the batch ------------------------------------------------------------------------


def item(number: int, root: Path) -> None:
    customer = f"customer-{number:05}"
    with session(customer, root=root):
        mail(customer, write(customer))


def run(directory: Path, items: int) -> None:
    Outside.outbox = directory / "outbox.txt"
    Outside.outbox.touch()
    began = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(item, n, directory / "log") for n in range(items)]
        for job in progress(as_completed(jobs), items):
            job.result()
    seconds = time.perf_counter() - began
    print(f"{items} items, {items / seconds:,.0f} a second", flush=True)


def progress(done: Iterable[Any], total: int) -> Iterable[Any]:
    """Show how far it is, as nicely as what is installed allows."""
    try:
        from rich.console import Console  # noqa: PLC0415 - it may not be there
        from rich.progress import track  # noqa: PLC0415
    except ImportError:
        pass
    else:
        console = Console(stderr=True)
        return track(done, "Mailing", total=total, console=console)
    try:
        from tqdm import tqdm  # noqa: PLC0415
    except ImportError:
        return plain(done, total)
    bar: Iterable[Any] = tqdm(done, "Mailing", total=total)
    return bar


def plain(done: Iterable[Any], total: int) -> Iterator[Any]:
    for number, each in enumerate(done, 1):
        yield each
        if number % max(total // 10, 1) == 0:
            print(f"{number} of {total}", file=sys.stderr)


def demonstrate(items: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--in", directory, "--items", str(items)]
        # The numbers are of mails in one run; an odd one is fatal before it is sent.
        for fatal in (items // 3 | 1, items // 3 & ~1, 0):
            before = len(lines(directory))
            child = subprocess.run([*command, "--fatal", str(fatal)], check=False)
            what = "killed" if child.returncode == -signal.SIGKILL else "finished"
            sent = len(lines(directory)) - before
            print(f"{what}: {sent} mails sent", flush=True)
        counts = Counter(line.split("\t")[0] for line in lines(directory))
    twice = sum(count > 1 for count in counts.values())
    print(f"{len(counts)} customers have their mail, {twice} have it twice")


def lines(directory: str) -> list[str]:
    outbox = Path(directory) / "outbox.txt"
    return outbox.read_text().splitlines() if outbox.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--in", dest="directory", type=Path)
    parser.add_argument("--fatal", type=int, default=0, help="the mail that kills it")
    given = parser.parse_args()
    Outside.fatal = given.fatal
    if given.directory is None:
        demonstrate(given.items)
    else:
        run(given.directory, given.items)


if __name__ == "__main__":
    main()
