"""Sending again what had no effect: one timer that looks, when it runs out, whether anything has moved."""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.contract import CancelTimer, Effect, SetTimer
from ordercast.sequencers.loss import Loss
from ordercast.viewsync.contract import ORDER_TIMER

HASTY = 4
"""While packets are being lost, it is tried again after this fraction of the usual pause."""
DOUBLINGS = 3
"""The pause between attempts is doubled each time, until it is eight times the usual one."""


class Patience:
    """Waits for something, and says when it is time to try again; later each time nothing has moved.

    What is waited for is named by a *mark*. The timer is not set and cancelled with every packet: once it
    runs, it is left alone, and what counts is whether the mark is the same when it runs out.
    """

    def __init__(self, name: str, first_us: int, retry_us: int, loss: Loss) -> None:
        """The first attempt comes after ``first_us``, or sooner if packets are being lost."""
        self.name = ORDER_TIMER + name
        self._usual_us = first_us
        self._retry_us = retry_us
        self._loss = loss
        self._first_us = first_us
        self._mark: Hashable = None
        self._running = False
        self.attempts = 0
        """How often it was tried again for this mark."""

    def watch(self, mark: Hashable, effects: list[Effect]) -> None:
        """This is waited for now; None: nothing is."""
        if mark is None or (self._running and (not self.attempts or mark == self._mark)):
            return
        self._mark = mark
        self.attempts = 0
        self._running = True
        hasty = self._loss.recent
        self._first_us = min(self._usual_us, self._retry_us // HASTY) if hasty else self._usual_us
        effects.append(SetTimer(self.name, self._first_us))

    def due(self, mark: Hashable, effects: list[Effect]) -> bool:
        """The timer ran out, and this is waited for: whether it is what was waited for when it was set."""
        self._running = False
        if mark is None or mark != self._mark:
            self.watch(mark, effects)
            return False
        pause = min(self._first_us << self.attempts, self._retry_us << DOUBLINGS)
        self.attempts += 1
        self._running = True
        effects.append(SetTimer(self.name, pause))
        return True

    def forget(self, effects: list[Effect]) -> None:
        """A new view: nothing is waited for."""
        if self._running:
            effects.append(CancelTimer(self.name))
        self._mark = None
        self._running = False
        self.attempts = 0
