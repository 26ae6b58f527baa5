"""How far a node follows numbers that others tell: as far as an allowance goes, which refills with time.

The next number of a ring or a view has to be above those of all its members, so members have to believe each
other's. Whoever claims numbers near the end of the number space moves a group a little way, again and again,
and would have to go on for months to use the space up.
"""

from __future__ import annotations


class Allowance:
    """What one life of a node may still follow others by; full at its start."""

    def __init__(self, most: int, refill_per_us: int) -> None:
        self._most = self._left = most
        self._refill_per_us = refill_per_us
        self._refilled_us = 0

    def left(self, now_us: int) -> int:
        """How far a number may be ahead now to be followed."""
        refill = (now_us - self._refilled_us) * self._refill_per_us
        self._left = min(self._most, self._left + refill)
        self._refilled_us = now_us
        return self._left

    def spend(self, now_us: int, step: int) -> int:
        """Follow by `step`, or by as much of it as is left; by how much."""
        taken = min(step, self.left(now_us))
        self._left -= taken
        return taken
