"""The relay between namespaces: what it does to frames, by itself and between real nodes."""

from __future__ import annotations

import time

import pytest

from ordercast.measure import netns
from ordercast.measure.bench import Plan, measure
from ordercast.measure.relay import ImpairedPath, Impairments


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"loss": 2}, "loss is 2: write a share from 0 to 1"),
        ({"burst": 0.5}, "burst is 0.5: at least 1 frame"),
        ({"delay_ms": -1}, "delay_ms is -1: choose 0 to 60,000 ms"),
        ({"path_mtu": 100}, "path_mtu is 100: every network carries 576"),
    ],
)
def test_impairments_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Impairments(**settings)  # type: ignore[arg-type]


def test_impairments_need_namespaces() -> None:
    with pytest.raises(ValueError, match="add --netns"):
        Plan(impairments=Impairments(loss=0.1))


@pytest.mark.parametrize("burst", [1.0, 5.0])
def test_so_many_frames_are_lost_and_so_many_in_a_row(burst: float) -> None:
    path = ImpairedPath(Impairments(loss=0.2, burst=burst), "seed")
    fates = "".join("x" if path.lost() else "." for _ in range(50_000))
    assert fates.count("x") / len(fates) == pytest.approx(0.2, abs=0.03)
    runs = [run for run in fates.split(".") if run]
    assert sum(map(len, runs)) / len(runs) == pytest.approx(max(1.25, burst), rel=0.2)


def test_frames_are_delayed_duplicated_and_overtaken() -> None:
    path = ImpairedPath(Impairments(delay_ms=10, jitter_ms=5, duplicate=0.1, reorder=0.1), "seed")
    delays = [path.delays_ms() for _ in range(5_000)]
    assert sum(len(each) == 2 for each in delays) / 5_000 == pytest.approx(0.1, abs=0.03)
    assert sum(each[0] > 15 for each in delays) / 5_000 == pytest.approx(0.1, abs=0.03)
    assert min(each[0] for each in delays) >= 10


NETWORKS = {
    "20% lost": Impairments(loss=0.2),
    "10% lost in bursts, repeated, reordered": Impairments(loss=0.1, burst=4, duplicate=0.05, reorder=0.05),
    "75 ms one way": Impairments(delay_ms=75),
    "a path of 1,300 bytes": Impairments(path_mtu=1_300),
}


@pytest.mark.skipif(netns.missing() is not None, reason=netns.missing() or "")
@pytest.mark.parametrize("impairments", NETWORKS.values(), ids=NETWORKS)
def test_a_group_orders_over_impaired_networks(impairments: Impairments) -> None:
    """All deliver everything in one order, and nobody is excluded because data is lost, slow or large."""
    begun = time.monotonic()
    result = measure(Plan(nodes=3, size=3_000, rate=100.0, seconds=1.0, netns=True, impairments=impairments))
    print(f"{time.monotonic() - begun:.1f} s, {result.delivered_per_s:.0f}/s, {result.configurations}")
    assert result.agreement.equal
    assert result.lost == 0 or result.split  # a machine with much else to do may lose sight of a node
    assert result.agreement.messages > 100
