"""A report as HTML and as text: pure.

The HTML is one ``div`` without script, style sheet, link, image or fixed colour: it
takes the colours of the page, light or dark. Every text from a log is escaped, and
marked so that a notebook's mathematics leaves it alone.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from durable_agent._preview import printable
from durable_agent._rows import FAILED, IN_DOUBT, OPEN, RECORDED, REPLAYED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from durable_agent._rows import Report, Row

_HEADS: Final = ("call", "status", "arguments", "result", "time", "tokens", "id")
#: Characters of a session's id and place.
_NAME_CHARS: Final = 200
#: In this order in the summary; others follow.
_ORDER: Final = (REPLAYED, RECORDED, FAILED, OPEN, IN_DOUBT)
_LOUD: Final = frozenset({FAILED, OPEN, IN_DOUBT})

_LEFT: Final = "text-align: left; vertical-align: top"
_TABLE: Final = (
    "border-collapse: collapse; color: inherit; background: transparent; "
    "margin: 0 0 0.8em 0"
)
_LINE: Final = "border-bottom: 1px solid currentColor; background: transparent"
_ROW: Final = "background: transparent"
#: Ours; and those by which MathJax knows what is no mathematics.
_CLASSES: Final = "durable-agent tex2jax_ignore mathjax_ignore"
_TOP_MARGIN: Final = "margin: 0.2em 0"


def to_html(report: Report) -> str:
    """Return the report as HTML, to be put into a page."""
    parts = [
        f'<div class="{_CLASSES}" style="color: inherit; {_ROW}">',
        f'<p style="{_TOP_MARGIN}"><strong>{_e(_title(report))}</strong><br>',
        f"{_e(_summary(report))}<br>",
        f'<small style="opacity: 0.7">{_e(_place(report))}</small></p>',
    ]
    if report.left_out:
        parts.append(f'<p style="{_TOP_MARGIN}"><em>{_e(_left_out(report))}</em></p>')
    for step, rows in by_step(report.rows):
        parts.append(_table(step, rows))
    parts.append("</div>")
    return "".join(parts)


def to_text(report: Report) -> str:
    """Return the report as lines of text, for terminals and logs."""
    lines = [_title(report), _summary(report), _place(report)]
    if report.left_out:
        lines.append(_left_out(report))
    for step, rows in by_step(report.rows):
        lines += ["", step or "(no step)"]
        cells = [_cells(row) for row in rows]
        widths = [
            max(len(cell) for cell in column) for column in zip(*cells, strict=True)
        ]
        lines += [
            (
                "  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
    return "\n".join(lines)


def line(report: Report) -> str:
    """Return which session it is, how it stands and where it is, on one line."""
    return f"{_title(report)}; {_summary(report)}; {_place(report)}"


def by_step(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the steps in the order of their first calls, each with its calls.

    What was called outside of steps is kept apart, before and after each.
    """
    groups: list[tuple[str, list[Row]]] = []
    named: dict[str, list[Row]] = {}
    for row in rows:
        if row.step and row.step in named:
            named[row.step].append(row)
        elif groups and groups[-1][0] == row.step:
            groups[-1][1].append(row)
        else:
            groups.append((row.step, [row]))
            named[row.step] = groups[-1][1]
    yield from groups


def _table(step: str, rows: Sequence[Row]) -> str:
    caption = f"step {step}" if step else "outside of steps"
    heads = "".join(f'<th scope="col" style="{_LEFT}">{head}</th>' for head in _HEADS)
    return (
        f'<table style="{_TABLE}"><caption style="{_LEFT}; color: inherit">'
        f"{_e(caption)}</caption>"
        f'<thead><tr style="{_LINE}">{heads}</tr></thead>'
        f"<tbody>{''.join(_line(row) for row in rows)}</tbody></table>"
    )


def _line(row: Row) -> str:
    call, status, arguments, result, time, tokens, id_ = map(_e, _cells(row))
    loud = f"<strong>{status}</strong>" if row.status in _LOUD else status
    indent = f"; padding-left: {min(row.depth, 8) * 1.2 + 0.4:.1f}em"
    cells = [
        f'<td style="{_LEFT}{indent}">{call.strip()}</td>',
        f'<td style="{_LEFT}; white-space: nowrap">{loud}</td>',
        *(f'<td style="{_LEFT}"><code>{c}</code></td>' for c in (arguments, result)),
        f'<td style="{_LEFT}; white-space: nowrap">{time}</td>',
        f'<td style="{_LEFT}; white-space: nowrap">{tokens}</td>',
        f'<td style="{_LEFT}; opacity: 0.7"><code>{id_}</code></td>',
    ]
    return f'<tr style="{_ROW}">{"".join(cells)}</tr>'


def _cells(row: Row) -> tuple[str, ...]:
    attempt = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    tokens = ""
    if row.tokens is not None:
        tokens = f"{row.tokens.input:,} + {row.tokens.output:,}"
    return (
        "  " * min(row.depth, 8) + row.name + attempt,
        f"{row.status}, replayed" if row.again else row.status,
        row.arguments,
        row.result,
        duration(row.seconds),
        tokens,
        row.id,
    )


def duration(seconds: float | None) -> str:
    """Return a duration for people."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def _title(report: Report) -> str:
    return f"session {printable(report.session, _NAME_CHARS)}: {report.state}"


def _summary(report: Report) -> str:
    total = sum(report.counts.values())
    known = [(status, report.counts.get(status, 0)) for status in _ORDER]
    known += sorted((s, n) for s, n in report.counts.items() if s not in _ORDER)
    parts = [f"{n:,} {status}" for status, n in known if n]
    calls = "1 call" if total == 1 else f"{total:,} calls"
    return f"{calls}: {', '.join(parts)}" if parts else "no calls"


def _place(report: Report) -> str:
    return printable(report.location, _NAME_CHARS)


def _left_out(report: Report) -> str:
    earlier = "call is" if report.left_out == 1 else "calls are"
    return f"{report.left_out:,} earlier {earlier} left out"


def _e(text: str) -> str:
    return escape(text, quote=True)
