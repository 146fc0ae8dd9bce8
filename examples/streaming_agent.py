"""A streamed answer, killed in mid-stream and again after its end.

The decorator sits directly on the client's method; what comes back is the client's own
stream. Run 1 is killed after six chunks: a stream without an end is never served as an
answer, so run 2 asks again. Run 2 is killed after the end of the stream, before the
answer is filed. Run 3 gets the same chunks from the log, without a request.

Run it: ``python examples/streaming_agent.py``. Exits with 1 if a run got another answer
than it should, or if a request too many or too few was made.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from loopback_model import ModelServer
from openai import OpenAI
from scripted_models import explainer

from durable_agent import checkpointed_llm, checkpointed_tool, session

QUESTION = "Why sync before acting?"
#: When the runs are killed.
KILL_AT_CHUNK = 6
MID_STREAM, AFTER_STREAM, NEVER = "mid-stream", "after-stream", "never"


@checkpointed_tool(effect="idempotent")
def file_answer(path: str, text: str) -> int:
    return Path(path).write_text(text)


def run_agent(workdir: Path, kill: str) -> None:
    client = OpenAI()
    create: Any = checkpointed_llm(client.chat.completions.create)
    with session("answer", root=workdir / "sessions"):
        messages = [{"role": "user", "content": QUESTION}]
        chunks = []
        for chunk in create(model="loopback", messages=messages, stream=True):
            chunks.append(chunk.choices[0].delta.content)
            if kill == MID_STREAM and len(chunks) == KILL_AT_CHUNK:
                os.kill(os.getpid(), signal.SIGKILL)
        (workdir / f"{kill}.json").write_text(json.dumps(chunks))
        if kill == AFTER_STREAM:
            os.kill(os.getpid(), signal.SIGKILL)
        file_answer(str(workdir / "answer.txt"), "".join(c or "" for c in chunks))


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="streaming-agent-") as directory,
        ModelServer(explainer) as model,
    ):
        workdir = Path(directory)
        env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url}
        command = [sys.executable, str(Path(__file__)), "--agent", directory]
        exits, requests = [], []
        for kill in (MID_STREAM, AFTER_STREAM, NEVER):
            done = subprocess.run([*command, kill], env=env, check=False)
            exits.append(done.returncode)
            requests.append(model.requests)
        if exits != [-signal.SIGKILL, -signal.SIGKILL, 0]:
            print(f"FAILED: the runs ended with {exits}, not with SIGKILL twice and 0")
            return 1
        live = json.loads((workdir / f"{AFTER_STREAM}.json").read_text())
        replayed = json.loads((workdir / f"{NEVER}.json").read_text())
        answer = (workdir / "answer.txt").read_text()
    whole = len(live)
    print(
        f"run 1: {requests[0]} request, killed after {KILL_AT_CHUNK} of {whole} chunks"
    )
    print(f"run 2: {requests[1] - requests[0]} request, killed after the last chunk")
    print(
        f"run 3: {requests[2] - requests[1]} requests, {len(replayed)} chunks replayed"
    )
    if requests != [1, 2, 2] or replayed != live:
        print(f"FAILED: {requests} requests; the same chunks: {replayed == live}")
        return 1
    if answer != explainer([{"content": QUESTION}]).text:
        print("FAILED: the filed answer is not what the model said")
        return 1
    print("The answer came whole, and was paid for no more often than needed.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agent"]:
        run_agent(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
