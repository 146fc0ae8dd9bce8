"""``%durable``: a session that stays open from cell to cell of a notebook.

It does not restore variables: cells run again from the top, and what is recorded
replays. It does not close the session when the kernel ends, so a notebook that runs to
its end and is run again replays without a warning. It does not see which cell a call
comes from; a call is known by what it asks, wherever it stands. One session at a time
is open by it.

    %load_ext durable_agent
    %durable on NAME [--conversation] [--root DIR] [--on-divergence raise|warn|ignore]
    %durable off
    %durable status

Other sessions of the notebook's code are its own affair: `status` and `off` are about
the one that ``%durable on`` opened, or else the one a call made here would go to.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from durable_agent import _current
from durable_agent._rows import of_core
from durable_agent._tables import line
from durable_agent.errors import DurableError
from durable_agent.sessions import current_session, open_conversation, open_session

if TYPE_CHECKING:
    from durable_agent.session import Session

#: The name of the magic.
MAGIC: Final = "durable"


class _Parser(argparse.ArgumentParser):
    """Tells a cell what is wrong, where it would end a program."""

    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"{message}\n{self.format_usage().strip()}")


class Durable:
    """The magic of one shell, and the session that it opened."""

    def __init__(self) -> None:
        self.session: Session | None = None

    def run(self, words: str) -> None:
        """Open a session for the cells that follow, close it, or say which it is.

        on NAME [--conversation] [--root DIR] [--on-divergence raise|warn|ignore]
            Open the session NAME, or the conversation; from here on, decorated
            functions record in it. Of the open one, the cursor goes to the top.
        off
            Close it; decorated functions run unrecorded, with a warning.
        status
            Say which session is open and what it holds.
        """
        asked = _parsed(words)
        match asked.what:
            case "on":
                self._on(asked)
            case "off":
                self.off()
            case _:
                print(_status(self._open()))  # noqa: T201 - what a magic is for

    def _on(self, asked: argparse.Namespace) -> None:
        if self.session is not None and self.session.id != asked.name:
            # Two at once would leave it open which one an `await` cell means. If
            # opening fails, the cells that follow are refused: theirs is closed.
            self._close()
        if asked.conversation:
            self.session = open_conversation(asked.name, root=asked.root)
        else:
            self.session = open_session(
                asked.name, root=asked.root, on_divergence=asked.on_divergence
            )
        how = "resumed" if self.session.recovery.resumed else "new"
        print(f"{_status(self.session)} ({how})")  # noqa: T201

    def off(self) -> None:
        """Close what is open; decorated functions run unrecorded then."""
        session = self._open()
        if session is None:
            print(_status(None))  # noqa: T201
            return
        self.session = self.session or session
        # As after a ``with``: the cells that follow are in no session.
        _current.FRAME.set(None)
        self._close()
        print(f"durable: off; session {session.id!r} is closed")  # noqa: T201

    def _open(self) -> Session | None:
        if self.session is not None and not self.session.closed:
            return self.session
        try:
            return current_session()
        except DurableError:
            # Closed, or several: none that a call here would be recorded in.
            return None

    def _close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


def _status(session: Session | None) -> str:
    if session is None:
        return "durable: off"
    return f"durable: {line(of_core(session._core, 0))}"  # noqa: SLF001 - our own


def _parsed(words: str) -> argparse.Namespace:
    parser = _Parser(prog=f"%{MAGIC}", add_help=False)
    kinds = parser.add_subparsers(dest="what", required=True, metavar="on|off|status")
    on = kinds.add_parser("on", add_help=False)
    on.add_argument("name", metavar="NAME")
    on.add_argument("--conversation", action="store_true")
    on.add_argument("--root", metavar="DIR")
    on.add_argument(
        "--on-divergence", choices=("raise", "warn", "ignore"), default="raise"
    )
    kinds.add_parser("off", add_help=False)
    kinds.add_parser("status", add_help=False)
    try:
        split = shlex.split(words)
    except ValueError as error:
        raise _usage_error(str(error)) from None
    return parser.parse_args(split)


def _usage_error(message: str) -> Exception:
    """Return the error that the shell shows in a line; it ends the cell."""
    module = sys.modules.get("IPython.core.error")
    kind = getattr(module, "UsageError", ValueError)
    error: Exception = kind(message)
    return error


#: The magics by the id of their shell, so that unloading finds what loading made.
_LOADED: Final[dict[int, Durable]] = {}


def load(shell: Any) -> None:
    """Give the shell its ``%durable``."""
    magic = _LOADED.setdefault(id(shell), Durable())
    shell.register_magic_function(magic.run, "line", MAGIC)


def unload(shell: Any) -> None:
    """Close the session that ``%durable on`` opened, and take the magic away."""
    magic = _LOADED.pop(id(shell), None)
    shell.magics_manager.magics["line"].pop(MAGIC, None)
    if magic is not None and magic.session is not None:
        magic.off()
