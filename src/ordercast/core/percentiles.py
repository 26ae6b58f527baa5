"""Percentiles of values that were counted."""

from __future__ import annotations

from collections.abc import Mapping


def percentile(counts: Mapping[int, int], percent: int) -> int | None:
    """The least value that at least `percent` of 100 of the values do not exceed (nearest rank).

    `counts` has how often each value was seen. None if none was.
    """
    total = sum(counts.values())
    reached = 0
    for value in sorted(counts):
        reached += counts[value]
        if 100 * reached >= percent * total:
            return value
    return None
