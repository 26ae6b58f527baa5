"""Latencies of a run of any length, in bounded memory: counted in steps of one per cent."""

from __future__ import annotations

import math
from collections import Counter

from ordercast.core.percentiles import percentile

STEP = math.log(1.01)


class Latencies:
    """How often which latency was seen."""

    def __init__(self) -> None:
        self.count = 0
        self._steps: Counter[int] = Counter()

    def add(self, ns: int) -> None:
        """Count a latency of so many nanoseconds."""
        self.count += 1
        self._steps[int(math.log(ns) / STEP) if ns > 0 else 0] += 1

    def frozen(self) -> Latencies:
        """A copy, which does not change when more are added to this."""
        copy = Latencies()
        copy.count, copy._steps = self.count, self._steps.copy()
        return copy

    def percentile_us(self, percent: int) -> float:
        """Microseconds that `percent` of 100 latencies do not exceed, to a per cent; 0 if there are none."""
        step = percentile(self._steps, percent)
        return 0.0 if step is None else round(math.exp((step + 0.5) * STEP) / 1e3, 1)
