"""A mail server on loopback that keeps what it accepts in a maildir on disk."""

from __future__ import annotations

import asyncio
import mailbox
import socket
from typing import TYPE_CHECKING, Self

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import Message
    from pathlib import Path


class _AnyPort(Controller):
    """Listens on a free port; the greeting it waits for comes from there."""

    def _trigger_server(self) -> None:
        if isinstance(self.server, asyncio.Server):
            self.port = self.server.sockets[0].getsockname()[1]
            with socket.create_connection(("127.0.0.1", self.port)) as greeted:
                greeted.recv(1024)


class MailServer(Mailbox):
    """SMTP in front of a maildir; ``accepted`` runs before the client is told."""

    def __init__(self, maildir: Path, accepted: Callable[[int], None]) -> None:
        super().__init__(maildir)
        self.count = 0
        self._accepted = accepted
        self._controller = _AnyPort(
            self,
            hostname="127.0.0.1",
            port=0,
            server_hostname="localhost",
            ready_timeout=60.0,
        )

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._controller.port)

    def handle_message(self, message: Message) -> None:
        """Deliver, count, and tell ``accepted`` how many there are now."""
        super().handle_message(message)
        self.count += 1
        self._accepted(self.count)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._controller.stop()


def delivered(maildir: Path) -> list[tuple[str, str]]:
    """Return message id and subject of each e-mail in the maildir."""
    if not maildir.exists():
        return []
    box = mailbox.Maildir(str(maildir), create=False)
    return sorted((m["Message-ID"], m["Subject"]) for m in box)
