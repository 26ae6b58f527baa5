"""A time axis that gives room to what happens.

A run of a minute has its ring reformed in forty milliseconds: on an even axis that is less than a
pixel. Here every change widens the axis a little, on top of an even share for the time that passes. The
axis stays monotone and continuous, and its labels say what time it is where.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise
from math import exp

ROOM = 46.0
"""Pixels that a change gets, at most, on top of its share."""
SOON_US = 15_000
"""Changes that follow each other faster than about this share that room."""


class Scale:
    """Maps time to pixels between ``left`` and ``right``."""

    def __init__(self, times_us: Iterable[int], left: float, narrowest: float, widest: float) -> None:
        self._times = sorted(set(times_us)) or [0]
        if len(self._times) == 1:
            self._times.append(self._times[0] + 1)
        span = self._times[-1] - self._times[0]
        gaps = [after - before for before, after in pairwise(self._times)]
        room = [ROOM * (1 - exp(-gap / SOON_US)) for gap in gaps]
        even = max(narrowest - sum(room), narrowest / 2)
        widths = [extra + even * gap / span for extra, gap in zip(room, gaps, strict=True)]
        shrink = min(1.0, widest / sum(widths))
        self._places = [left, *accumulate((shrink * width for width in widths), initial=left)][1:]

    @property
    def right(self) -> float:
        """Where the axis ends."""
        return self._places[-1]

    def __call__(self, time_us: float) -> float:
        """The place of a time; times outside the axis are at its ends."""
        index = bisect_right(self._times, time_us) - 1
        if index < 0:
            return self._places[0]
        if index >= len(self._times) - 1:
            return self._places[-1]
        before, after = self._times[index : index + 2]
        share = (time_us - before) / (after - before)
        return self._places[index] + share * (self._places[index + 1] - self._places[index])

    def ticks(self, apart: float, zero_us: int = 0) -> list[tuple[float, int]]:
        """Places and times of labels: round times first, finer ones where the axis is wide.

        Times are counted from ``zero_us``; two labels are at least ``apart`` pixels from each other.
        """
        first, last = self._times[0] - zero_us, self._times[-1] - zero_us
        step = 1
        while step * 10 < last - first:
            step *= 10
        placed: list[tuple[float, int]] = []
        for factor in (10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
            size = int(step * factor)
            if size < 1:
                break
            for time in range(-(-first // size) * size, last + 1, size):
                place = self(time + zero_us)
                index = bisect_right(placed, (place, time))
                around = placed[max(0, index - 1) : index + 1]
                # Times with many digits only where there is much room for them.
                need = apart if factor >= 0.1 else 1.6 * apart
                if all(abs(place - other) >= need for other, _ in around):
                    placed.insert(index, (place, time))
        return placed
