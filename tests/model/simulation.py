"""A world that survives crashes, virtual time, and a store that dies at any point.

One run is one process: an event loop with virtual time, a session of the real product
over a `SimStore`, and a program. A crash stops the loop where it is; what was appended
and not yet durable survives up to a random event.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from itertools import count
from unittest import mock

from durable_agent import (
    Completed,
    DurableWarning,
    FinishedSessionWarning,
    NotApplied,
    ReplayDivergedError,
    ReplayDivergedWarning,
    ToolOutcomeUnknownError,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    current_call,
    inspect_session,
    register_control_flow,
    session,
)
from durable_agent._memory import MemoryLog, MemoryStore

SESSION = "s"


class Crash(BaseException):
    """The process is gone."""


class ToolError(Exception):
    pass


class Paused(Exception):
    """A framework's control flow."""


register_control_flow(Paused)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when nothing is left to do now."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


class SimLog(MemoryLog):
    """Appends and barriers take time, and any of them may be the last."""

    process = None

    def append(self, drafts):
        self.process.alive()
        return super().append(drafts)

    async def awrite(self, seq):
        await self.process.tick(0.05)
        self.write(seq)
        self.process.point()

    async def aflush(self, seq):
        await self.process.tick(0.2)
        self.write(seq)
        end = self._written - 1
        await self.process.tick(0.05)
        self._durable = max(self._durable, end)
        self.process.point()

    def write(self, seq):
        self.process.alive()
        super().write(seq)

    def flush(self, seq):
        self.process.alive()
        super().flush(seq)


class SimStore(MemoryStore):
    process = None

    def open(self, session_id, *, lock_timeout=0.0):
        log = super().open(session_id, lock_timeout=lock_timeout)
        log.__class__ = SimLog
        log.process = self.process
        self.log = log
        return log

    def crash(self, rng):
        """Keep what is durable, and of the rest up to a random event."""
        lines = self._logs.get(SESSION, [])
        durable = self.log._durable + 1
        written = len(lines)
        durable = min(durable, written)
        keep = rng.choice([durable, written, rng.randint(durable, written)])
        del lines[keep:]
        self._owners.clear()
        if not lines:
            self._logs.pop(SESSION, None)


class World:
    """What the outside sees: effects by logical call, requests, values."""

    def __init__(self):
        self.effects = Counter()
        #: Of side effects, by name and argument: how often; by which logical calls.
        self.by_identity = Counter()
        self.asked = defaultdict(set)
        self.sent = Counter()
        self.value = {}
        #: (call id, attempt) -> logical call whose body began.
        self.ghost_of = {}
        self.nonce = count()
        self.bodies = 0


class Process:
    """One run: where it may switch, where it may die, what went wrong."""

    def __init__(self, world, rng, crash_at):
        self.world = world
        self.rng = rng
        self.crash_at = crash_at
        self.ticks = 0
        self.dead = False
        self.loop = None
        self.session = None
        self.violations = []
        self.run = 1
        #: Seconds at most that a task idles before a call, unrecorded. A program
        #: whose deadlines are as short as that is not deterministic.
        self.noise = 1.0

    def alive(self):
        if self.dead:
            raise Crash

    def point(self):
        """A point where the process may die."""
        self.alive()
        self.ticks += 1
        if self.ticks == self.crash_at:
            self.dead = True
            self.loop.stop()
            raise Crash

    async def tick(self, most=1.0):
        """A point where the scheduler may switch and the process may die."""
        self.point()
        pause = self.rng.random() * most if self.rng.random() < 0.7 else 0
        await asyncio.sleep(pause)
        self.alive()

    # the agent's functions ---------------------------------------------------

    async def tool(
        self,
        name,
        x=None,
        *,
        ghost=None,
        effect="side_effect",
        fail=None,
        dur=1.0,
        val=None,
        noise=True,
        body=None,
        verify=None,
        unknown="raise",
    ):
        """Call a recorded tool; its value names the logical call it came from."""
        ghost = ghost or f"{name}({x!r})"
        if effect == "side_effect":
            self.world.asked[name, repr(x)].add(ghost)
        if noise:
            await self.tick(self.noise)
        options = {"name": name, "effect": effect, "ignore": ("ghost",)}
        if verify is not None:
            options["verify"] = verify

        @checkpointed_tool(on_unknown=unknown, **options)
        async def function(x, ghost):
            self.world.bodies += 1
            call = current_call()
            self.world.ghost_of[call.id, call.attempt] = ghost
            if body is not None:
                return await body()
            await self.tick(dur)
            self.world.effects[ghost, effect] += 1
            if effect == "side_effect":
                self.world.by_identity[name, repr(x)] += 1
            await self.tick(0.05)
            if fail:
                raise fail
            value = val if val is not None else f"{ghost}#{next(self.world.nonce)}"
            self.world.value[ghost] = value
            if dur > 2:
                await asyncio.sleep(dur * 0.1)
            return value

        value = await function(x, ghost)
        known = isinstance(value, str) and "#" in value and body is None
        if known and val is None and value.rpartition("#")[0] != ghost:
            self.violations.append(f"wrong outcome: {ghost} got {value}")
        return value

    async def ask(self, messages, calls=(), *, ghost=None, fail=None, name="ask"):
        """Make a recorded model request."""
        ghost = ghost or f"ask{len(messages)}"

        @checkpointed_llm(name=name, ignore=("ghost",))
        async def function(messages, ghost):
            self.world.bodies += 1
            await self.tick()
            self.world.sent[ghost] += 1
            if fail:
                raise fail
            text = f"r{next(self.world.nonce)}"
            message = {"role": "assistant", "content": text}
            if calls:
                message["tool_calls"] = [tool_call(*c) for c in calls]
            return message

        await self.tick(self.noise)
        return await function(list(messages), ghost)


def tool_call(id_, name, x):
    import orjson

    arguments = orjson.dumps({"x": x}).decode()
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def user(text):
    return {"role": "user", "content": text}


def result(id_, value):
    return {"role": "tool", "tool_call_id": id_, "content": str(value)}


async def _inline(fn, *args, unclaimed=None):
    return fn(*args)


@contextmanager
def _quiet(seen):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DurableWarning)
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield
    seen.extend(caught)


def run_once(
    program, store, world, seed, *, crash_at=None, resume="replay", run=1, **kw
):
    """Run the program once; return (status, value, process)."""
    rng = random.Random(seed)
    loop = VirtualLoop()
    process = Process(world, rng, crash_at)
    process.loop, process.run = loop, run
    store.process = process
    box = {}
    opening = conversation if resume == "continue" else session
    options = {"store": store, **kw}
    if resume == "replay":
        options.setdefault("replay_wait", 60.0)

    async def main():
        try:
            with opening(SESSION, **options) as process.session:
                box["r"] = "done", await program(process)
        except Crash:
            return
        except BaseException as error:
            box["r"] = "raised", error
        if not process.dead:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    seen = []
    with _quiet(seen), mock.patch("durable_agent._driving.offload", _inline):
        task = loop.create_task(main())
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        crashed = process.dead
        if crashed:
            store.crash(random.Random(seed * 7 + 1))
        process.dead = True
        loop.set_exception_handler(lambda *_: None)
        left = asyncio.all_tasks(loop)
        for other in left:
            other.cancel()
        with suppress(BaseException):
            loop.run_until_complete(_ends_of(left))
        loop.close()
        _forget(process)
    for warning in seen:
        if issubclass(warning.category, ReplayDivergedWarning):
            process.violations.append(f"false warning: {warning.message}")
    store._owners.clear()
    if crashed:
        return "crash", None, process
    return *box["r"], process


async def _ends_of(tasks):
    await asyncio.gather(*tasks, return_exceptions=True)


def _forget(process):
    """A dead process's session is not this test's session."""
    from durable_agent import _current

    _current.PROCESS.cores.clear()
    _current.PROCESS.crowded = False


def resolve(store, world, error):
    """Do as a person would: look outside, and settle the call."""
    call = error.call
    ghost = world.ghost_of.get((call.id, call.attempt), "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FinishedSessionWarning)
        store.process = Process(world, random.Random(0), None)
        with session(SESSION, store=store) as opened:
            if ghost in world.value:
                opened.resolve(call, Completed(world.value[ghost]))
            elif ghost and any(g == ghost for (g, _) in world.effects):
                opened.resolve(call, Completed(f"{ghost}#resolved"))
            else:
                opened.resolve(call, NotApplied())
    _forget(None)


def unpaired(messages):
    """Return what a provider would refuse: calls without one result, in order."""
    wanted = []
    for message in messages:
        if message.get("role") == "tool":
            if not wanted or message["tool_call_id"] != wanted.pop(0):
                return f"a result that answers nothing: {message}"
            continue
        if wanted:
            return f"calls without results: {wanted}"
        wanted = [c["id"] for c in message.get("tool_calls") or ()]
    return f"calls without results: {wanted}" if wanted else ""


__all__ = ["ReplayDivergedError", "ToolOutcomeUnknownError", "inspect_session"]
