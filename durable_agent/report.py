"""What a session did, call by call: rows, text, and HTML without script.

For an open session and for one that is looked at from outside::

    with inspect_session("ticket-4711") as log:
        print(report.text(log))

Nothing is written. Only the newest calls are shown, and how many are not; previews
are cut. Redacted arguments stay redacted; what a call returned is shown as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable_agent._rows import ROWS, Report, Row, of_core
from durable_agent._tables import to_html, to_text
from durable_agent.session import Session

if TYPE_CHECKING:
    from durable_agent.sessions import Inspection

__all__ = ["Report", "Row", "html", "of", "text"]


def of(source: Session | Inspection, /, *, rows: int = ROWS) -> Report:
    """Return the newest ``rows`` calls as plain facts."""
    if isinstance(source, Session):
        return of_core(source._core, rows)  # noqa: SLF001 - the same package
    return source._report(rows)  # noqa: SLF001


def text(source: Session | Inspection, /, *, rows: int = ROWS) -> str:
    """Return them as lines of text."""
    return to_text(of(source, rows=rows))


def html(source: Session | Inspection, /, *, rows: int = ROWS) -> str:
    """Return them as HTML, to be put into a page: a table for each step."""
    return to_html(of(source, rows=rows))
