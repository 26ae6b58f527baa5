"""Sending again what had no effect: one timer that looks, when it runs out, whether anything has moved."""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.contract import CancelTimer, Effect, SetTimer
from ordercast.sequencers.loss import Loss
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import ORDER_TIMER

DOUBLINGS = 3
"""The pause between attempts is doubled each time, until it is eight times the usual one."""


class RetryTimer:
    """Waits for something, and says when it is time to try again; later each time nothing has moved.

    What is waited for is named by a *mark*. The timer is not set and cancelled with every packet: once it
    runs, it is left alone, and what counts is whether the mark is the same when it runs out.
    """

    def __init__(self, name: str, config: GroupConfig, loss: Loss, sooner: int = 1) -> None:
        """The first attempt comes after `retry_us`, or ``sooner`` times as soon; and after `lossy_retry_us`
        at the latest while packets are being lost."""
        self.name = ORDER_TIMER + name
        self._first_us = config.retry_us // sooner
        self._retry_us = config.retry_us
        self._lossy_retry_us = min(config.lossy_retry_us, config.retry_us)
        self._loss = loss
        self._mark: Hashable = None
        self._running = False
        self.attempts = 0
        """How often it was tried again for this mark."""

    def watch(self, mark: Hashable, effects: list[Effect]) -> None:
        """Wait for what `mark` names; None: for nothing."""
        if mark is None or (self._running and (not self.attempts or mark == self._mark)):
            return
        self._mark = mark
        self.attempts = 0
        self._running = True
        effects.append(SetTimer(self.name, min(self._first_us, self._pause_us)))

    def due(self, mark: Hashable, effects: list[Effect]) -> bool:
        """The timer ran out while `mark` is waited for: whether that was so when it was set, too."""
        self._running = False
        if mark is None or mark != self._mark:
            self.watch(mark, effects)
            return False
        pause = min(self._pause_us << self.attempts, self._retry_us << DOUBLINGS)
        self.attempts += 1
        self._running = True
        effects.append(SetTimer(self.name, pause))
        return True

    @property
    def _pause_us(self) -> int:
        return self._lossy_retry_us if self._loss.recent else self._retry_us

    def forget(self, effects: list[Effect]) -> None:
        """Cancel the timer, and wait for nothing: a new view begins."""
        if self._running:
            effects.append(CancelTimer(self.name))
        self._mark = None
        self._running = False
        self.attempts = 0
