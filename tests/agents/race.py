"""Pairs of processes that open the same crashed session at the same moment.

    python race.py DIRECTORY PAIRS

One JSON line a pair: how each ended, and what happened outside.
"""

import json
import logging
import os
import signal
import sys
import warnings
from pathlib import Path

from world import Here, World, effect

from durable_agent import SessionBusyError, checkpointed_tool, session


@checkpointed_tool
def charge():
    effect("charge")
    return 1


@checkpointed_tool
def notify():
    effect("notify")
    return 3


def agent(root, *, die):
    with session("s", root=root):
        first = charge()
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return first + notify()


def contend(root, gate):
    os.read(gate, 1)
    try:
        answer = agent(root, die=False)
    except SessionBusyError as error:
        Here.world.note("ended", "busy")
        Here.world.note("refusals", error)
    else:
        Here.world.note("ended", "answer")
        Here.world.note("answers", answer)


def child(fn, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            fn(*arguments)
        except BaseException as error:
            Here.world.note("ended", repr(error))
        finally:
            os._exit(0)
    return pid


def pair(directory):
    os.mkdir(directory)
    world = Here.world = World(directory)
    root = Path(directory) / "root"
    os.waitpid(child(lambda: agent(root, die=True)), 0)
    gate, start = os.pipe()
    pids = [child(contend, root, gate) for _ in range(2)]
    os.write(start, b"go")
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(gate)
    os.close(start)
    return {
        file: sorted(line[0] for line in world.lines(file))
        for file in ("effects", "ended", "answers", "refusals")
    }


def main():
    logging.disable()
    warnings.simplefilter("ignore")
    for n in range(int(sys.argv[2])):
        sys.stdout.write(json.dumps(pair(f"{sys.argv[1]}/{n}")) + "\n")


if __name__ == "__main__":
    main()
