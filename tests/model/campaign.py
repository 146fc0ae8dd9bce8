"""Crash a program again and again, and count what must never happen."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from durable_agent import (
    ReplayDivergedError,
    SessionNotFoundError,
    ToolOutcomeUnknownError,
    inspect_session,
)
from durable_agent._conversations import newest
from tests.model.programs import evaluate, generate
from tests.model.simulation import (
    SESSION,
    SimStore,
    World,
    resolve,
    run_once,
    unpaired,
    user,
)


def program_of(seed):
    tree = ("seq", [generate(random.Random(seed)), generate(random.Random(-seed - 1))])

    timed = any(word in repr(tree) for word in ("timeout", "deadline"))

    async def program(p):
        p.noise = 0.01 if timed else 1.0
        value = p.value = await evaluate(p, tree, "g")
        reply = await p.ask([user(f"end {value}")], ghost="end", name="end")
        await p.tool("bye", reply["content"], ghost="bye")
        return str(value)

    return tree, program


def campaign(program, seed, *, crashes=6, runs=24, trace=None):
    """Run with up to ``crashes`` crashes, to the end and once more.

    Returns the violations, each a sentence.
    """
    store, world, rng = SimStore(), World(), random.Random(seed)
    bad, done, left, same, last = [], 0, rng.randint(0, crashes), 0, None
    process = None
    for run in range(runs):
        crash_at = None
        if left:
            left -= 1
            crash_at = rng.randint(1, rng.choice([14, 60]))
        before = world.bodies
        status, value, process = run_once(
            program, store, world, seed * 101 + run, crash_at=crash_at, run=run + 1
        )
        if trace:
            trace(run, crash_at, status, value, process, store)
        bad += process.violations
        bad += _transcript(store)
        if status == "crash":
            continue
        if status == "raised":
            if isinstance(value, ToolOutcomeUnknownError):
                resolve(store, world, value)
                continue
            if isinstance(value, ReplayDivergedError):
                bad.append(f"false divergence: {value}")
                break
            same = same + 1 if str(value) == str(last) and world.bodies == before else 0
            last = value
            if same >= 2:
                bad.append(f"no progress: {value!r}")
                break
            continue
        done += 1
        if done > 1:
            if world.bodies != before:
                bad.append("a run after a finished run executed a body")
            break
    else:
        bad.append("never completed")
    bad += _twice(world)
    return bad


def _twice(world):
    """More effects of an identity than the program has logical calls of it."""
    return [
        f"side effect ran twice: {identity}"
        for identity, count in world.by_identity.items()
        if count > len(world.asked[identity])
    ]


def _transcript(store):
    try:
        with inspect_session(SESSION, store=store) as seen:
            for last in newest(seen._history):
                problem = unpaired(seen.messages(of=last.first))
                if problem:
                    return [f"transcript: {problem}"]
    except SessionNotFoundError:
        pass
    return []


def main(first, count):
    """Run ``count`` programs; print violations by kind with their first seeds."""
    began, kinds, seeds = time.time(), Counter(), {}
    for seed in range(first, first + count):
        tree, program = program_of(seed)
        try:
            found = campaign(program, seed)
        except Exception as error:
            found = [f"harness: {error!r}"]
        for text in found:
            kind = text.partition(":")[0]
            kinds[kind] += 1
            seeds.setdefault(kind, []).append((seed, text))
    print(count, "programs", round(time.time() - began), "s", dict(kinds))
    for kind, cases in seeds.items():
        for seed, text in cases[:6]:
            print("  ", kind, seed, text[:300])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
