"""Whatever an agent does, and wherever the power fails: what was promised is there.

A Hypothesis state machine drives sessions over a simulated disk: calls top-level,
nested and concurrent, streams, steps, closing, forking, kills and power cuts at any
operation of the disk, also while a former cut is being recovered from. Each opening is
compared with what was appended and promised before (`tests/watched.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from durable_agent import (
    _current,
    open_conversation,
    step_boundary,
)
from durable_agent.errors import (
    DurableError,
    DurableWarning,
    LogConflictError,
    LogCorruptError,
    LogUnsupportedError,
)
from durable_agent.jsonl import JsonlStore
from durable_agent.testing import PowerCut, SimulatedDisk
from tests.watched import BASE, ROOT, Outside, WatchedStore, at
from tests.workloads import Agent

SESSIONS = st.sampled_from(["a", "b"])
#: After how many operations of the disk the power fails; None: it does not.
FAILING = st.one_of(st.none(), st.integers(1, 60))
SEEDS = st.integers(0, 2**32)


def promised(segments, path, at_byte):
    """The highest seq that lines behind a byte prove durable; all if in a header."""
    behind = segments[path][at_byte:].partition(b"\n")[2].splitlines()
    if b"\n" not in segments[path][:at_byte] or max(segments) > path:
        return 2**63
    seq = int(segments[path][:at_byte].count(b"\n")) - 1 + int(path[-26:-6])
    proved = [json.loads(line)["durable"] for line in behind]
    return seq if any(known >= seq for known in proved) else -1


class PowerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.outside = Outside()
        self.agent = Agent(self.outside)
        self.disk = SimulatedDisk()
        self.disk.mkdir(BASE)
        self.disk.sync_dir("/")
        self.open = {}
        self.count = 0
        self.store = WatchedStore(self.disk, self.outside)

    def teardown(self):
        self._forget()

    # -- power -------------------------------------------------------------------

    def _forget(self):
        """The process is gone: its sessions are nobody's."""
        self.disk.stopped = True
        for session in self.open.values():
            core = session._core
            core.open, core.closing, core.sealed = False, True, True
            _current.ended(core)
        self.open = {}

    def _lose_power(self, seed):
        choices = random.Random(seed)
        self._forget()
        if choices.random() < 0.2:
            self.disk = self.disk.kill()
        else:
            self.disk = self.disk.power_cut(choices, ordered=choices.random() < 0.3)
        self.store = WatchedStore(self.disk, self.outside)

    @contextlib.contextmanager
    def _powered(self, failing, seed):
        """Have the power fail after so many operations, if there are as many."""
        if failing is not None:
            self.disk.plan = at(failing, PowerCut())
        disk = self.disk
        try:
            yield
        except PowerCut:
            pass
        except DurableError:
            # A thread that the cut left waiting is told that the log cannot be used.
            if not disk.stopped:
                raise
        if disk.stopped:
            self._lose_power(seed)
        else:
            disk.plan = None

    def _session(self, name):
        if name not in self.open:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DurableWarning)
                self.open[name] = open_conversation(name, store=self.store)
        return self.open[name]

    def _next(self):
        self.count += 1
        return f"{self.count} {'y' * (self.count % 7 * 90)}"

    def _do(self, name, work, failing, seed):
        """Run work in a session, opened if it is not, with the power failing."""
        with self._powered(failing, seed):
            self._session(name).bind(work)()

    # -- rules -------------------------------------------------------------------

    @initialize(failing=FAILING, seed=SEEDS)
    def first(self, failing, seed):
        self._do("a", lambda: None, failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def call(self, name, failing, seed):
        text = self._next()
        self._do(name, lambda: self.agent.act(text, name), failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def call_that_fails(self, name, failing, seed):
        def work():
            with contextlib.suppress(ValueError):
                self.agent.fail(self._next(), name)

        self._do(name, work, failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def call_with_durable_outcome(self, name, failing, seed):
        self._do(name, lambda: self.agent.sure(self._next(), name), failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def nested(self, name, failing, seed):
        self._do(name, lambda: self.agent.outer(self._next(), name), failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def threads(self, name, failing, seed):
        def work():
            bound = self._session(name).bind(self.agent.act)
            with ThreadPoolExecutor(3) as pool:
                calls = [pool.submit(bound, self._next(), name) for _ in range(3)]
            errors = [c.exception() for c in calls if c.exception() is not None]
            if errors:
                raise next((e for e in errors if isinstance(e, PowerCut)), errors[0])

        self._do(name, work, failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def tasks(self, name, failing, seed):
        async def main():
            calls = [self.agent.later(self._next(), name) for _ in range(3)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            errors = [e for e in results if isinstance(e, BaseException)]
            if errors:
                raise next((e for e in errors if isinstance(e, PowerCut)), errors[0])

        self._do(name, lambda: asyncio.run(main()), failing, seed)

    @rule(name=SESSIONS, taken=st.integers(0, 5), failing=FAILING, seed=SEEDS)
    def stream(self, name, taken, failing, seed):
        def work():
            with contextlib.closing(self.agent.stream(self._next(), name)) as chunks:
                for _, _ in zip(range(taken), chunks, strict=False):
                    pass

        self._do(name, work, failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def step(self, name, failing, seed):
        def work():
            with step_boundary("round"):
                self.agent.act(self._next(), name)

        self._do(name, work, failing, seed)

    @rule(name=SESSIONS, failing=FAILING, seed=SEEDS)
    def close(self, name, failing, seed):
        with self._powered(failing, seed):
            session = self.open.get(name)
            if session is not None:
                session.close()
                del self.open[name]

    @rule(name=SESSIONS, back=st.integers(0, 5), failing=FAILING, seed=SEEDS)
    def fork(self, name, back, failing, seed):
        new = f"fork {self._next()[:4]}"

        def work():
            session = self._session(name)
            if session.seq >= 0:
                session.fork(new, at=max(0, session.seq - back))

        self._do(name, work, failing, seed)
        if new in self.outside.sessions:
            with self._powered(None, seed):
                self.store.open(new).close()

    @rule(seed=SEEDS)
    def crash(self, seed):
        self._lose_power(seed)

    @rule(name=SESSIONS, failing=st.integers(1, 40), seed=SEEDS)
    def crash_while_recovering(self, name, failing, seed):
        self._lose_power(seed)
        with self._powered(failing, seed + 1):
            self._session(name)

    @rule(name=SESSIONS)
    def reopening_finds_the_same(self, name):
        """Recovery is idempotent: a second opening finds nothing to do."""
        session = self.open.pop(name, None)
        if session is not None:
            session.close()
        log = self.store.open(name)
        first = [(e.seq, e.raw) for e in log.read()]
        log.close()
        log = self.store.open(name)
        again = [(e.seq, e.raw) for e in log.read()]
        report = log.report
        log.close()

        assert again == first
        assert not report.torn

    @rule(name=SESSIONS, place=st.integers(0, 2**32), bit=st.integers(0, 7))
    def a_flipped_bit_is_refused_or_torn(self, name, place, bit):
        """Never skipped: what is read is what was written, or nothing is."""
        disk = self.disk.copy()
        if not any(path.startswith(f"{ROOT}/{name}/") for path in disk.files()):
            return
        log = JsonlStore(ROOT, fs=disk).open(name)
        before = list(log.read())
        log.close()
        segments = {
            path: data
            for path, data in disk.files().items()
            if path.startswith(f"{ROOT}/{name}/") and path.endswith(".jsonl")
        }
        if not segments:
            return
        path, data = sorted(segments.items())[place % len(segments)]
        at_byte = place // 7 % len(data)
        fd = disk.open_rewrite(path)
        disk.write_at(fd, bytes([data[at_byte] ^ 1 << bit]), at_byte)
        disk.close(fd)
        try:
            log = JsonlStore(ROOT, fs=disk).open(name)
        except (LogCorruptError, LogConflictError, LogUnsupportedError):
            return
        after = list(log.read())
        log.close()

        assert [e.raw for e in after] == [e.raw for e in before[: len(after)]]
        assert len(after) > promised(segments, path, at_byte)

    @invariant()
    def nothing_ran_without_its_intent(self):
        assert self.outside.wrong == []

    @invariant()
    def nothing_ran_twice(self):
        attempts = [(call, attempt) for _, call, attempt in self.outside.effects]
        assert len(attempts) == len(set(attempts))


def test_promises_hold_wherever_the_power_fails():
    seeds = int(os.environ.get("DURABLE_AGENT_SEEDS", "25"))
    run_state_machine_as_test(
        PowerMachine,
        settings=settings(
            max_examples=seeds,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_promises_hold_in_a_long_search():
    seeds = int(os.environ.get("DURABLE_AGENT_SEEDS", "25"))
    run_state_machine_as_test(
        PowerMachine,
        settings=settings(
            max_examples=seeds * 20,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
