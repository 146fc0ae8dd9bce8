"""The recorded calls under one parent, in the order in which they may replay."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from attrs import define, field

from durable_agent import events as ev
from durable_agent.recovery import CANCEL_CAUSE, CODE, ERROR, VALUE_STATUS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from durable_agent.recovery import History, Slot

#: After everything that is recorded.
END: Final = (1 << 62, 0)


@define(eq=False)
class Lane:
    """The recorded calls under one parent: what may happen next among them."""

    asks: list[Slot] = field(factory=list)
    outs: list[Slot] = field(factory=list)
    _ask: int = 0
    _out: int = 0

    def fill(self, history: History, slots: Iterable[Slot]) -> None:
        """Start over with these slots, in the order of their first intents."""
        self.asks = [s for s in slots if s.kind != "value" and not s.detached]
        handed = [s for s in self.asks if _is_handed(history, s)]
        self.outs = sorted(handed, key=_turn)
        self._ask = self._out = 0

    def ready(self, turn: tuple[int, int]) -> bool:
        """Whether every call before ``turn`` was asked for and every outcome handed.

        And those of the same turn are all there, to be handed out together again.
        """
        asks, outs = self.asks, self.outs
        while self._ask < len(asks) and (asks[self._ask].asked or asks[self._ask].off):
            self._ask += 1
        if self._ask < len(asks) and asks[self._ask].first < turn[0]:
            return False
        while self._out < len(outs) and (
            outs[self._out].delivered or outs[self._out].off
        ):
            self._out += 1
        if self._out < len(outs) and _turn(outs[self._out]) < turn:
            return False
        together = itertools.takewhile(lambda s: _turn(s) == turn, outs[self._out :])
        return all(s.waiting or s.delivered or s.off for s in together)

    def restart(self) -> None:
        """Look at every call again."""
        self._ask = self._out = 0

    def write_off(self, turn: tuple[int, int]) -> None:
        """Stop waiting for what is missing before ``turn``, for this run."""
        for slot in self.asks:
            if slot.first < turn[0] and not slot.asked:
                slot.off = True
        for slot in self.outs:
            if _turn(slot) < turn and not slot.delivered:
                slot.off = True

    def unused(self) -> Iterator[Slot]:
        """Yield the recorded calls that nobody asked for in this run."""
        return (s for s in self.asks if s.recorded and not s.asked)


def _is_handed(history: History, slot: Slot) -> bool:
    """Whether the caller had the outcome, "unknown" too, and will have it again."""
    outcome = slot.outcome
    if outcome is None or (not outcome.handed and history.went_on(slot)):
        return False
    if outcome.status == CODE:
        unknown = outcome.code == ev.TOOL_OUTCOME_UNKNOWN
        return unknown and outcome.cause != CANCEL_CAUSE and history.went_on(slot)
    return outcome.status in {VALUE_STATUS, ERROR}


def _turn(slot: Slot) -> tuple[int, int]:
    return slot.outcome.turn if slot.outcome is not None else END
