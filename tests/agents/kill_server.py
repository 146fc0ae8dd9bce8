"""Runs agents in forked children and kills them, one place after the other.

    python kill_server.py DIRECTORY MODE FIRST STRIDE ROUNDS

Modes: ``sync``, ``async``, and ``small`` (sync, with tiny segments and payloads kept
aside). For each place n = FIRST, FIRST + STRIDE, … a child is killed at its n-th place,
ROUNDS - 1 more are killed further on, another runs to the end, a third replays. One
JSON line a case tells what was seen. It stops when no child reaches the n-th place.
"""

import asyncio
import gc
import itertools
import json
import logging
import os
import signal
import sys
import warnings
from pathlib import Path

import three_steps
import three_steps_async
from world import Here, World

from durable_agent import inspect_session, session
from durable_agent._conversations import newest
from durable_agent._fs import Disk
from durable_agent.errors import SessionNotFoundError
from durable_agent.jsonl import JsonlStore

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.providers import rules_openai_chat

#: Everything that changes a disk.
CHANGES = (
    "create",
    "mkdir",
    "rename",
    "rmdir",
    "truncate",
    "unlink",
    "write",
    "write_at",
)
#: So many children in a row must miss the n-th place before it is said not to exist:
#: tasks share syncs, now more, now fewer.
MISSES = 4


class Killer:
    """Counts places and kills this process at the n-th."""

    def __init__(self, at, world):
        self.at = at
        self.seen = 0
        self._world = world

    def __call__(self, label):
        self.seen += 1
        if self.seen == self.at:
            self._world.note("killed", label)
            os.kill(os.getpid(), signal.SIGKILL)


class KillingDisk(Disk):
    """A disk with a place before and after each change, and within each write.

    Nothing is really synced: a killed process does not test that.
    """

    def sync(self, fd, *, metadata=False):
        self._point("sync: before")
        self._point("sync: after")

    def sync_dir(self, path):
        self._point("sync_dir: before")
        self._point("sync_dir: after")

    def __init__(self, point):
        super().__init__()
        self._point = point

    def write(self, fd, data):
        self._point("write: before")
        half = len(data) // 2
        self._point_within(fd, data, half)
        taken = super().write(fd, data)
        self._point("write: after")
        return taken

    def _point_within(self, fd, data, half):
        if self._point.seen + 1 == self._point.at:
            super().write(fd, data[:half])
        self._point("write: within")


def _around(name):
    real = getattr(Disk, name)

    def method(self, *args, **kwargs):
        self._point(f"{name}: before")
        result = real(self, *args, **kwargs)
        self._point(f"{name}: after")
        return result

    return method


for _name in CHANGES:
    if _name != "write":
        setattr(KillingDisk, _name, _around(_name))


def run(mode, directory, at):
    """Run the agent once in this process, killed at its at-th place; 0: never."""
    warnings.simplefilter("ignore")
    world = Here.world = World(directory)
    Here.point = killer = Killer(at, world)
    sizes = {"roll_bytes": 3000, "blob_bytes": 400} if mode == "small" else {}
    store = JsonlStore(Path(directory) / "store", fs=KillingDisk(killer), **sizes)
    if mode == "async":
        answer = asyncio.run(_arun(store))
    else:
        with session("m", store=store) as s:
            answer = three_steps.main(s)
    world.note("answers", answer)
    world.note("places", killer.seen)


async def _arun(store):
    async with session("m", store=store) as s:
        return await three_steps_async.main(s)


def forked(mode, directory, at):
    """Run the agent in a child; return its exit: negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run(mode, directory, at)
            code = 0
        except BaseException as error:
            World(directory).note("errors", repr(error).replace("\n", " "))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def log_of(directory):
    """Return what the log says: one list an event; and the bytes of its files."""
    store = JsonlStore(Path(directory) / "store")
    try:
        looked = inspect_session("m", store=store)
    except SessionNotFoundError:
        return []
    found = []
    with looked:
        for event in looked.events():
            prompt = None
            if event.type == "llm/request":
                messages = event.data["args"].get("messages", [])
                prompt = messages[-1]["content"]
                prompt = {"tell": "stream"}.get(prompt, prompt)
                if event.meta["name"].endswith(":ask_backup"):
                    prompt = "backup"
            meta = event.meta
            found.append(
                [
                    event.seq,
                    event.type,
                    event.call,
                    meta.get("attempt"),
                    meta.get("name"),
                    prompt,
                    meta.get("status"),
                    meta.get("code"),
                ]
            )
    return found


def refusals_of(directory):
    """Return what a provider would say to each conversation that is shown, if no."""
    store = JsonlStore(Path(directory) / "store")
    try:
        looked = inspect_session("m", store=store)
    except SessionNotFoundError:
        return []
    with looked:
        shown = [looked.messages(of=s.first) for s in newest(looked._history)]
    # Ids start anew with each response.
    return [b for m in shown for b in rules_openai_chat.check(m, ids="lenient")]


def bytes_of(directory):
    return {
        str(path): path.stat().st_size
        for path in sorted((Path(directory) / "store").rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def case(mode, directory, kills):
    """Kill at each of these places, one run after the other, then run and replay."""
    world = World(directory)
    os.mkdir(directory)
    files = ("requests", "effects", "doubts", "answers", "errors")
    seen = {"exits": [], "logs": [], "sizes": [], "refusals": []}
    marks = []
    for at in (*kills, 0, 0):
        marks.append({file: len(world.lines(file)) for file in files})
        seen["exits"].append(forked(mode, directory, at))
        seen["logs"].append(log_of(directory))
        seen["sizes"].append(bytes_of(directory))
        seen["refusals"] += refusals_of(directory)
    marks.append({file: len(world.lines(file)) for file in files})
    seen["runs"] = [
        {file: world.lines(file)[a[file] : b[file]] for file in files}
        for a, b in itertools.pairwise(marks)
    ]
    seen["killed"] = [line[0] for line in world.lines("killed")]
    seen["places"] = [int(line[0]) for line in world.lines("places")]
    return seen


def main():
    logging.disable()
    gc.freeze()
    root, mode = sys.argv[1:3]
    first, stride, rounds = map(int, sys.argv[3:6])
    missed, n = 0, first
    while missed < MISSES:
        # Later rounds die early, in the middle of repairing and replaying.
        kills = [n, *(3 + 7 * k + n % 5 for k in range(1, rounds))]
        seen = case(mode, f"{root}/{n}-{missed}", kills)
        seen["n"] = n
        if seen["exits"][0] == 0:
            missed += 1
            seen["missed"] = True
        else:
            missed, n = 0, n + stride
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
