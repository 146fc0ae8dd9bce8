"""What is done with a hostile log, and what must not come of it."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import sys
import traceback
import tracemalloc
import warnings

from durable_agent import (
    _current,
    checkpointed_llm,
    checkpointed_tool,
    conversation,
    inspect_session,
    list_sessions,
    report,
    session,
    step_boundary,
)
from durable_agent._mark import marks
from durable_agent.errors import DurableError, DurableWarning
from durable_agent.jsonl import JsonlStore
from durable_agent.testing import SimulatedDisk
from durable_agent.transcript import DIALECTS
from tests.fuzz.hostile import mutated

ROOT = "/base/root"
#: What a reader of a log has no business with.
FORBIDDEN = {
    "import", "open", "exec", "compile", "os.system", "os.exec", "os.posix_spawn",
    "os.fork", "subprocess.Popen", "socket.connect", "socket.bind", "pickle.find_class",
    "shutil.rmtree", "os.remove", "os.rename", "os.mkdir", "ctypes.dlopen",
}  # fmt: skip
_SECONDS = 10
#: Beside the file: what the smallest log costs, measured with it.
_LEAST_BYTES = 1 << 20


@checkpointed_tool
def send(to, text):
    return f"sent {to}"


@checkpointed_tool(effect="read_only")
def look(place):
    return {"at": place, "n": [1, 2.5, (3, None)], "raw": b"bytes"}


@checkpointed_tool
def fails(n):
    raise ValueError("no", n)


@checkpointed_llm
def ask(messages):
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "look", "arguments": '{"place":"here"}'}
    if len(messages) == 1:
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": "done"}


@checkpointed_llm(transcript=False)
def stream(prompt):
    for part in "abc":
        yield {"choices": [{"delta": {"content": part}}]}


def program():
    """What the logs were written by, and what replays them."""
    messages = [{"role": "user", "content": "look"}]
    said = ask(messages)
    messages += [said, {"role": "tool", "tool_call_id": "c1", "content": look("here")}]
    messages.append(ask(messages))
    with step_boundary("plan"):
        list(stream("hi"))
        send("ann", "x" * 200)
    with contextlib.suppress(ValueError):
        fails(1)


class Reading:
    """Reads hostile logs one after the other."""

    def __init__(self):
        self.violations = []
        self.most_memory = 0.0
        self._armed = False
        self._seen = []
        self._made = self._write()
        "\\".encode("unicode_escape")  # loads the codec, which a text may ask for
        self._read(self._made, 0)
        self.violations.clear()
        sys.addaudithook(self._audit)

    def one(self, number):
        """Read the log of a number; return what was counted."""
        rng = random.Random(number)
        disk = self._made.copy()
        changed = self._change(disk, rng)
        measured = number % 50 == 0
        if measured:
            tracemalloc.start()
        signal.signal(signal.SIGALRM, self._late)
        signal.alarm(_SECONDS)
        try:
            outcomes = self._read(disk, number)
        finally:
            signal.alarm(0)
            if measured:
                self._weigh(disk, number)
        return {"lines": changed, **outcomes}

    def _weigh(self, disk, number):
        size = sum(map(len, disk.files().values()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        times = max(0, peak - _LEAST_BYTES) / size
        self.most_memory = max(self.most_memory, times)
        if times > 4:
            self.violations.append(f"{number}: {times:.1f} times the file in memory")

    def _late(self, *_):
        raise TimeoutError("it takes too long")

    def _audit(self, event, args):
        if self._armed and event in FORBIDDEN:
            self._seen.append((event, args[:2]))

    def _write(self):
        disk = SimulatedDisk()
        disk.mkdir("/base")
        store = JsonlStore(ROOT, fs=disk, roll_bytes=6000, blob_bytes=3000)
        with session("s", store=store, metadata={"who": "me"}) as s:
            program()
            s.record("now", lambda: 7)
            s.append("app/note", {"n": 1})
        return disk.copy()

    def _change(self, disk, rng):
        segments = {p: d for p, d in disk.files().items() if p.endswith(".jsonl")}
        contents, changed = mutated(rng, segments.values())
        for path, data in zip(segments, contents, strict=True):
            fd = disk.open_rewrite(path)
            disk.truncate(fd, 0)
            disk.write_at(fd, data, 0)
            disk.close(fd)
        return changed

    def _read(self, disk, number):
        outcomes = {}
        for name, use in USES.items():
            store = JsonlStore(ROOT, fs=disk.copy(), roll_bytes=6000, blob_bytes=3000)
            try:
                self._use(use, store)
            except DurableError:
                outcomes[f"{name} refused"] = 1
            except BaseException as error:
                if marks(error):
                    # The log says that a call of the program raised it.
                    outcomes[f"{name} replayed an error"] = 1
                else:
                    self._violated(number, name, error)
            else:
                outcomes[f"{name} done"] = 1
            if self._seen:
                self.violations.append(f"{number} {name}: {self._seen[:3]}")
                self._seen.clear()
            _current.PROCESS.cores.clear()
        return outcomes

    def _violated(self, number, name, error):
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        what = f"{type(error).__name__}: {str(error)[:200]}"
        self.violations.append(f"{number} {name}: {what} at {place}")

    def _use(self, use, store):
        logging.disable(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DurableWarning)
            self._armed = True
            try:
                use(store)
            finally:
                self._armed = False
                logging.disable(logging.NOTSET)


def _look(store):
    with inspect_session("s", store=store) as seen:
        for event in seen.events():
            str(event)
        seen.in_doubt()


def _show(store):
    with inspect_session("s", store=store) as seen:
        text, html = report.text(seen), seen._repr_html_()
    for bad in ("\x1b", "\x00", "\u202e"):
        if bad in text + html:
            raise AssertionError(f"{bad!r} is shown")
    if "<script" in html:
        raise AssertionError("a script is shown")


def _messages(dialect):
    def use(store):
        with inspect_session("s", store=store) as seen:
            seen.messages(dialect)

    return use


def _list(store):
    for info in list_sessions(store=store):
        str(info)


def _replay(store):
    with session("s", store=store, on_unknown="return", replay_wait=0.01):
        program()


def _continue(store):
    with conversation("s", store=store) as s:
        s.messages()
        send("bob", "more")


USES = {
    "look": _look,
    "show": _show,
    "list": _list,
    "replay": _replay,
    "continue": _continue,
    **{f"messages {d.NAME}": _messages(d.NAME) for d in DIALECTS},
}
