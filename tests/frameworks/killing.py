"""Agents of frameworks, killed in a child and run again; effects counted outside it.

An agent is a script that is run as ``SCRIPT ROOT WORLD WAY POINT`` and begins with
`begin`. Its tools call ``world.effect(label)`` and its scripted model calls
``world.send(label)``; what it prints is compared with a run that nobody killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import field, frozen

PROJECT = Path(__file__).resolve().parents[2]
AGENTS = PROJECT / "tests" / "agents"

# Agents import `world` as their neighbour; so do the tests.
if str(AGENTS) not in sys.path:
    sys.path.append(str(AGENTS))

from world import Here, World  # noqa: E402 - found beside the agents


def begin(arguments: list[str]) -> tuple[str, str]:
    """Set up the world of an agent that was started; return its root and its way."""
    root, directory, way, point = arguments
    Here.world = World(directory)
    Here.point = lambda label: label == point and os.kill(os.getpid(), signal.SIGKILL)
    return root, way


@frozen
class Agent:
    """An agent's script with a root and a world of its own below a directory.

    ``python`` is the fixture `run_python`.
    """

    script: str
    directory: Path
    python: Callable[..., Any]
    world: World = field(init=False)

    @world.default
    def _made(self) -> World:
        outside = self.directory / "world"
        outside.mkdir(exist_ok=True)
        return World(outside)

    def run(self, way: str = "", point: str = ""):
        """Run it in a child, killed at a point; return the finished child."""
        script = AGENTS / self.script
        where = (self.directory / "root", self.world.directory)
        return self.python("-W", "ignore", script, *where, way, point)

    def killed_at(self, point: str, way: str = ""):
        """Have it killed, see that it was, run it twice more; return those two."""
        first = self.run(way, point)
        assert first.returncode == -signal.SIGKILL, first.stderr
        again = [self.run(way), self.run(way)]
        for child in again:
            assert child.returncode == 0, child.stderr
        assert again[0].stdout == again[1].stdout
        return again

    def effects(self) -> list[str]:
        """What was done to the outside, sorted."""
        return sorted(label for (label,) in self.world.lines("effects"))

    def requests(self) -> list[str]:
        """The requests that reached the model, sorted."""
        return sorted(label for (label,) in self.world.lines("requests"))
