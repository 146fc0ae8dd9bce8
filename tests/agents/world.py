"""What an agent does to the outside: lines in files beside the store.

Each line is one ``write`` to a file opened for appending, so that a killed process
leaves whole lines, and what they say really happened.
"""

import json
import os
from pathlib import Path


class World:
    """The outside of one case."""

    def __init__(self, directory):
        self.directory = Path(directory)

    def note(self, file, *words):
        fd = os.open(
            self.directory / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        try:
            os.write(fd, ("\t".join(map(str, words)) + "\n").encode())
        finally:
            os.close(fd)

    def lines(self, file):
        try:
            text = (self.directory / file).read_text()
        except FileNotFoundError:
            return []
        return [line.split("\t") for line in text.splitlines()]


class Here:
    """Where the agent in this process is: its world, and what may kill it."""

    world = None
    #: Called with a label at each place where the process may be killed.
    point = staticmethod(lambda label: None)


def effect(label):
    """Do something that must not be done twice."""
    Here.point(f"body {label}: begin")
    Here.world.note("effects", label)
    Here.point(f"body {label}: end")


def send(prompt):
    """Send a model request; return how often this one has been sent by now."""
    Here.point(f"model {prompt}: begin")
    Here.world.note("requests", prompt)
    Here.point(f"model {prompt}: end")
    return sum(line == [prompt] for line in Here.world.lines("requests"))


def doubt(label):
    """Note that a call was reported as in doubt."""
    Here.world.note("doubts", label)


class RateLimitedError(Exception):
    """What a busy provider answers."""


def reply(prompt, count):
    """Answer a request as the provider does: the same answer for the same prompt."""
    if prompt == "plan" and count == 1:
        raise RateLimitedError(429, prompt)
    if prompt == "primary":
        raise RateLimitedError(503, prompt)
    calls = {
        "plan": [("charge", {"cents": 5}), ("notify", {"who": "ann"})],
        "backup": [("ship", {"box": 7}), ("publish", {"page": "p"})],
        "research": [("order", {"item": "ink"})],
    }.get(prompt, [])
    message = {"role": "assistant", "content": f"re: {prompt}"}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call-{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for n, (name, arguments) in enumerate(calls)
        ]
    return message


def history(*messages):
    """Return a conversation: strings are prompts of the user."""
    return [
        {"role": "user", "content": m} if isinstance(m, str) else m for m in messages
    ]
