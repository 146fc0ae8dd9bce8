"""``python -m tests.fuzz [LINES [SEED]]``: read that many hostile lines, and say so.

Each log is looked at, listed, shown as text and HTML, asked for its messages in every
dialect, opened, replayed and continued. Allowed is what the product's own errors say.
Not allowed: any other exception, an import, a file, a process, a socket, code that is
compiled, more than ten seconds, more memory than four times the file.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

from tests.fuzz.reading import Reading


def main(lines=10_000, seed=0):
    reading, found, begun = Reading(), Counter(), time.monotonic()
    number = seed
    while found["lines"] < lines:
        found.update(reading.one(number))
        number += 1
    seconds = round(time.monotonic() - begun)
    figures = {**found, "logs": number - seed, "seconds": seconds}
    figures["memory"] = round(reading.most_memory, 2)
    print(json.dumps(figures))
    kinds = {}
    for violation in reading.violations:
        kinds.setdefault(violation.rpartition(" at ")[2], []).append(violation)
    for found in sorted(kinds.values(), key=len, reverse=True):
        print(f"{len(found)} x {found[0]}")
    return 1 if reading.violations else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
