"""An agent is killed right after its mail server took an e-mail, and runs again.

An agent works through ``overdue_invoices.csv``: a model (the real ``openai`` client)
decides, a read-only tool looks customers up, and a tool with a side effect sends
reminders over SMTP. The mail server and the model run on loopback, in this process; the
agent is a child process. When the server has accepted the fourth e-mail, the child is
killed with SIGKILL: the e-mail is out, and nothing of it is recorded but the intent.
Then the same agent code runs once more.

Run it: ``python examples/crash_and_resume.py``. It needs no network. With
``OPENAI_API_KEY`` set, the requests go to the real service (``OPENAI_MODEL`` picks the
model); the e-mails stay on loopback. Exits with 1 if an e-mail is missing or doubled.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import signal
import smtplib
import subprocess
import sys
import tempfile
from datetime import date
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from loopback_mail import MailServer, delivered
from loopback_model import ModelServer
from openai import OpenAI
from scripted_models import collector

from durable_agent import (
    Call,
    Completed,
    NotApplied,
    checkpointed_llm,
    checkpointed_tool,
    inspect_session,
    session,
    step_boundary,
)

INVOICES = Path(__file__).with_name("overdue_invoices.csv")
SESSION = "reminders"
#: The e-mail after whose acceptance the agent is killed.
KILL_AFTER = 4

SYSTEM = (
    "You collect overdue invoices. For each invoice look the customer up once, then "
    "send one polite reminder, one tool call at a time. Send none where the customer's "
    "note says so. When all are done, sum up in one sentence."
)


def _function(name: str, about: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    function = {"name": name, "description": about, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS: Any = [
    _function("lookup_customer", "Contact and note of a customer.", "customer_id"),
    _function("send_reminder", "Send one e-mail.", "invoice", "to", "subject", "body"),
]


# The agent: ordinary code, and four decorators ---------------------------------------


@functools.cache
def client() -> OpenAI:
    return OpenAI()


@checkpointed_llm
def ask(messages: list[Any]) -> Any:
    model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    return client().chat.completions.create(
        model=model, messages=messages, tools=TOOLS, parallel_tool_calls=False
    )


@checkpointed_tool(effect="read_only")
def lookup_customer(customer_id: str) -> dict[str, str]:
    for row in invoices():
        if row["customer_id"] == customer_id:
            return {
                name: row[name] for name in ("customer", "contact", "email", "note")
            }
    return {"note": "no such customer"}


def was_sent(call: Call) -> Completed | NotApplied:
    """Look into the mailbox: the call's key is in the e-mail's Message-ID."""
    ids = [message_id for message_id, _ in delivered(Path(os.environ["MAILDIR"]))]
    if _message_id(call.idempotency_key) in ids:
        return Completed(f"sent to {call.arguments['to']}")
    return NotApplied()


@checkpointed_tool(verify=was_sent)
def send_reminder(
    invoice: str, to: str, subject: str, body: str, *, idempotency_key: str = ""
) -> str:
    mail = EmailMessage()
    mail["Message-ID"] = _message_id(idempotency_key)
    mail["From"] = "Accounts <accounts@example.com>"
    mail["To"] = to
    mail["Subject"] = subject if invoice in subject else f"{subject} ({invoice})"
    mail.set_content(body)
    port = int(os.environ["SMTP_PORT"])
    with smtplib.SMTP("127.0.0.1", port, local_hostname="localhost") as smtp:
        smtp.send_message(mail)
    return f"sent to {to}"


def _message_id(key: str) -> str:
    return f"<{key}@accounts.example.com>"


@step_boundary
def turn(messages: list[Any]) -> Any:
    """One request to the model, and the tools that it asks for."""
    reply = ask(messages)
    message = reply.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    tools: Any = {"lookup_customer": lookup_customer, "send_reminder": send_reminder}
    for call in message.tool_calls or ():
        result = tools[call.function.name](**json.loads(call.function.arguments))
        text = result if isinstance(result, str) else json.dumps(result)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return reply


def run_agent(workdir: Path) -> None:
    """Work until the model asks for no more tools; report what this run cost."""
    with session(SESSION, root=workdir / "sessions") as s:
        today = s.record("today", date.today)
        work = [
            {
                **{n: row[n] for n in ("invoice", "customer_id", "amount", "currency")},
                "due_date": row["due_date"],
                "days_overdue": (today - date.fromisoformat(row["due_date"])).days,
            }
            for row in invoices()
        ]
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Overdue invoices:\n" + json.dumps(work)},
        ]
        tokens = {"paid": 0, "saved": 0}
        while True:
            sent = s.stats.get("ran_llm", 0)
            reply = turn(messages)
            kind = "paid" if s.stats.get("ran_llm", 0) > sent else "saved"
            tokens[kind] += reply.usage.total_tokens
            if not reply.choices[0].message.tool_calls:
                break
        report = {**s.stats, **tokens, "answer": reply.choices[0].message.content}
    (workdir / "report.json").write_text(json.dumps(report))


def invoices() -> list[dict[str, str]]:
    with INVOICES.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The world around it: two servers, the kill, the table --------------------------------


class World:
    """The model, the mail server, and the agent as a child process."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir
        self.maildir = workdir / "mailbox"
        self.model = ModelServer(collector)
        self.mail = MailServer(self.maildir, self._accepted)
        self._child: subprocess.Popen[bytes] | None = None

    def _accepted(self, count: int) -> None:
        if count == KILL_AFTER and self._child is not None:
            self._child.send_signal(signal.SIGKILL)

    def run(self) -> int:
        """Run the agent to its end, or to ours; return how it exited."""
        env = {
            **os.environ,
            "SMTP_PORT": str(self.mail.port),
            "MAILDIR": str(self.maildir),
        }
        if not os.environ.get("OPENAI_API_KEY"):
            env |= {"OPENAI_API_KEY": "loopback", "OPENAI_BASE_URL": self.model.url}
        command = [sys.executable, str(Path(__file__)), "--agent", str(self.workdir)]
        self._child = subprocess.Popen(command, env=env)
        return self._child.wait()

    def look(self) -> dict[str, int]:
        """Return what the log of the killed run says."""
        with inspect_session(SESSION, root=self.workdir / "sessions") as log:
            types = [event.type for event in log.events()]
            return {
                "ran_llm": types.count("llm/request"),
                "ran_tool": types.count("tool/call"),
                "in_doubt": len(log.in_doubt()),
            }


def show(first: dict[str, int], second: dict[str, Any], mails: tuple[int, int]) -> None:
    rows = [
        ("model requests sent", first["ran_llm"], second.get("ran_llm", 0)),
        ("model requests replayed", 0, second.get("replayed_llm", 0)),
        ("tool calls begun", first["ran_tool"], second.get("ran_tool", 0)),
        ("tool calls replayed", 0, second.get("replayed_tool", 0)),
        ("tool calls in doubt", first["in_doubt"], second.get("in_doubt", 0)),
        ("  settled by looking into the mailbox", 0, second.get("verified", 0)),
        ("tokens paid for", second["saved"], second["paid"]),
        ("tokens saved", 0, second["saved"]),
        ("e-mails in the mailbox", *mails),
    ]
    print(f"{'':40}{'run 1 (killed)':>15}{'run 2':>10}")
    for name, one, two in rows:
        print(f"{name:40}{one:>15,}{two:>10,}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="crash-and-resume-") as directory:
        world = World(Path(directory))
        with world.model, world.mail:
            service = "OpenAI" if os.environ.get("OPENAI_API_KEY") else "loopback"
            print(f"{len(invoices())} overdue invoices, model: {service}\n")
            exits = [world.run()]
            first, mails = world.look(), len(delivered(world.maildir))
            exits.append(world.run())
        if exits != [-signal.SIGKILL, 0]:
            print(f"FAILED: the runs ended with {exits}, not with SIGKILL and 0")
            return 1
        second = json.loads((world.workdir / "report.json").read_text())
        sent = delivered(world.maildir)
        show(first, second, (mails, len(sent)))
        print(f"\nThe model says: {second['answer']}")
        return verdict(world, first, second, [subject for _, subject in sent])


def verdict(
    world: World, first: dict[str, int], second: dict[str, Any], subjects: list[str]
) -> int:
    """Check the world: one e-mail for each invoice, nothing asked or paid twice."""
    wanted = [i["invoice"] for i in invoices() if "do not remind" not in i["note"]]
    counts = {name: sum(name in subject for subject in subjects) for name in wanted}
    problems = [f"{name}: {n} e-mails" for name, n in counts.items() if n != 1]
    if len(subjects) != len(wanted):
        problems.append(f"{len(subjects)} e-mails, not {len(wanted)}")
    if (first["in_doubt"], second.get("verified")) != (1, 1):
        problems.append("the e-mail in doubt was not settled by the verifier")
    if not os.environ.get("OPENAI_API_KEY"):
        problems += world.model.refused
        if world.model.requests != first["ran_llm"] + second["ran_llm"]:
            problems.append(f"{world.model.requests} requests reached the model")
        if world.model.tokens != second["paid"] + second["saved"]:
            problems.append(f"the model charged {world.model.tokens} tokens")
    for problem in problems:
        print(f"FAILED: {problem}")
    if not problems:
        print("Every reminder was sent exactly once.")
    return 1 if problems else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agent"]:
        run_agent(Path(sys.argv[2]))
    else:
        sys.exit(main())
