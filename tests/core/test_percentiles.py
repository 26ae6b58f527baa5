from __future__ import annotations

from ordercast.core.percentiles import percentile


def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed() -> None:
    counts = {0: 90, 9: 1, 1: 9}
    assert [percentile(counts, percent) for percent in (50, 90, 91, 99, 100)] == [0, 0, 1, 1, 9]


def test_ranks_are_whole_numbers_however_many_values_there_are() -> None:
    """Nearest rank: of the values 1 to n, the 99th percentile is 99 n / 100, rounded up."""
    for count in (1, 2, 99, 100, 101, 700, 1_300):
        assert percentile(dict.fromkeys(range(1, count + 1), 1), 99) == -(-count * 99 // 100)


def test_of_nothing_there_is_none() -> None:
    assert percentile({}, 50) is None
