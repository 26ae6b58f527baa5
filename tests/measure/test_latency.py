from __future__ import annotations

import pytest

from ordercast.measure.latency import Latencies


def test_quantiles_are_right_to_a_per_cent() -> None:
    latencies = Latencies()
    for us in range(1, 10_001):
        latencies.add(us * 1000)
    assert latencies.percentile_us(50) == pytest.approx(5_000, rel=0.01)
    assert latencies.percentile_us(99) == pytest.approx(9_900, rel=0.01)
    assert latencies.count == 10_000


def test_none_and_nothing() -> None:
    latencies = Latencies()
    assert latencies.percentile_us(50) == 0.0
    latencies.add(0)
    assert latencies.percentile_us(99) < 0.1


def test_what_comes_later_does_not_change_what_was_frozen() -> None:
    latencies = Latencies()
    latencies.add(1_000)
    before = latencies.frozen()
    latencies.add(9_000_000)
    assert (before.count, latencies.count) == (1, 2)
    assert before.percentile_us(99) == pytest.approx(1.0, rel=0.01)
