"""A progress line while a long log is opened, where somebody watches.

It is drawn by ``tqdm`` or ``rich`` if the program has loaded one of them already, and
only on a terminal, or by ``tqdm`` in a notebook; else nothing is shown. A display that
fails is left alone: opening never fails for it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_T = TypeVar("_T")

#: Events of a log that opens in about a second; a line for less would only flicker.
_LONG: Final = 100_000
#: Events between two updates: what is counted costs nothing beside what is read.
_EVERY: Final = 4096


class _Bar(Protocol):
    def update(self, n: int, /) -> object: ...
    def close(self) -> object: ...


class _Rich:
    """A progress of rich with the two methods of tqdm's."""

    def __init__(self, progress: Any, text: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=total)
        # Raises where the program shows a display of its own: there can be one.
        progress.start()

    def update(self, n: int) -> None:
        self._progress.advance(self._task, n)

    def close(self) -> None:
        self._progress.stop()


@contextlib.contextmanager
def watched(items: Iterable[_T], total: int, text: str) -> Iterator[Iterable[_T]]:
    """Give the items, and show how many of ``total`` were taken; see above."""
    bar = _bar(total, text) if total >= _LONG and _somebody_watches() else None
    if bar is None:
        yield items
        return
    try:
        yield _counted(items, bar)
    finally:
        with contextlib.suppress(Exception):
            bar.close()


def _counted(items: Iterable[_T], bar: _Bar) -> Iterator[_T]:
    for n, item in enumerate(items, 1):
        if not n % _EVERY:
            with contextlib.suppress(Exception):
                bar.update(_EVERY)
        yield item


def _somebody_watches() -> bool:
    if "ipykernel" in sys.modules:
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # none, or closed
        return False


def _bar(total: int, text: str) -> _Bar | None:
    with contextlib.suppress(Exception):
        if "tqdm" in sys.modules:
            tqdm = sys.modules["tqdm"].tqdm
            made: _Bar = tqdm(total=total, desc=text, unit=" events", leave=False)
            return made
        if "rich" in sys.modules:
            return _rich_bar(total, text)
    return None


def _rich_bar(total: int, text: str) -> _Bar | None:
    # Parts of what is loaded. In a notebook it would ask for widgets.
    consoles = importlib.import_module("rich.console")
    console = consoles.Console(stderr=True, force_jupyter=False)
    if not console.is_terminal:
        return None
    progress = importlib.import_module("rich.progress").Progress
    return _Rich(progress(console=console, transient=True), text, total)
