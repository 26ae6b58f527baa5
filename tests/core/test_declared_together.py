"""The statistics of several machines as one."""

from __future__ import annotations

from ordercast.core.declared import Sort, Statistic, together, zeros

SUM = Statistic("sent", "Packets that were sent.")
MOST = Statistic("longest", "The longest queue.", Sort.LARGEST)


def test_counts_are_added_and_of_the_largest_one_is_taken() -> None:
    machines = [{"sent": 2.0, "longest": 5.0}, {"sent": 3.0, "longest": 4.0}]
    assert together((SUM, MOST), machines) == {"sent": 5.0, "longest": 5.0}
    assert together((SUM, MOST), []) == zeros((SUM, MOST))
