"""Latencies of a run of any length, in bounded memory: counted in steps of one per cent."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate

STEP = math.log(1.01)


class Latencies:
    """How often which latency was seen."""

    def __init__(self) -> None:
        self.count = 0
        self._steps: Counter[int] = Counter()

    def add(self, ns: int) -> None:
        """One more."""
        self.count += 1
        self._steps[int(math.log(ns) / STEP) if ns > 0 else 0] += 1

    def frozen(self) -> Latencies:
        """As they are now."""
        copy = Latencies()
        copy.count, copy._steps = self.count, self._steps.copy()
        return copy

    def quantile_us(self, share: float) -> float:
        """The latency that this share of them does not exceed, to a per cent; 0 if there are none."""
        ordered = sorted(self._steps.items())
        for (step, _), seen in zip(ordered, accumulate(many for _, many in ordered), strict=True):
            if seen >= share * self.count:
                return round(math.exp((step + 0.5) * STEP) / 1e3, 1)
        return 0.0
