"""Whether the order of a view stands still although everybody lives."""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.identity import NodeId
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Orderer

STALLED = 16
"""Times of a retry without which the order counts as stalled: longer than the longest pause between two."""
AWAITED = 2
"""And times of the silence after which a member that is waited for is suspected: only who lives can stall."""
PASSED_BY = 3
"""The same of a single message that others pass by, in times of that: it may only be unlucky."""


class Stalls:
    """Watches how an orderer gets on."""

    def __init__(self, config: GroupConfig) -> None:
        self._limit_us = max(AWAITED * config.aggressive_us, STALLED * config.retry_us)
        self._progress: Hashable = None
        self._progress_us = 0
        """How far the order was, and since when, while somebody has been waited for."""
        self._owed: list[tuple[int | None, int]] = []
        """What the orderer waits for, one by one, and since when each has not got on."""

    def forget(self) -> None:
        """Another view, or token list, begins: single messages are waited for anew."""
        self._owed = []

    def noticed(self, now_us: int, waited_for: NodeId | None, orderer: Orderer) -> bool:
        """Whether the order has not got on for long, although who is waited for lives.

        Somebody was told something that is not so, as of a place that nobody knows: no member can do anything
        about it in this view. The next one begins with what they all hold.
        """
        progress = None if waited_for is None else orderer.progress
        if progress is None or progress != self._progress:
            self._progress, self._progress_us = progress, now_us
        if progress is not None and now_us - self._progress_us > self._limit_us:
            return True
        # A single message may be stuck while others pass it by, until the window is full.
        owed = () if waited_for is None else orderer.owed
        before = self._owed if len(self._owed) == len(owed) else [(None, now_us)] * len(owed)
        self._owed = [
            (mark, since_us if mark == known else now_us)
            for mark, (known, since_us) in zip(owed, before, strict=True)
        ]
        return any(mark is not None and now_us - us > PASSED_BY * self._limit_us for mark, us in self._owed)
