"""The experiment on several rings: its grid, its verdicts, and the model beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_frames import made, verdict

from ordercast.lab.experiment import experiment
from ordercast.lab.experiments.rings_latency import (
    EXPERIMENT,
    HALVES,
    LINE,
    LOCAL,
    LOCALITIES,
    NODES,
    ONE,
    STAR,
    TOPOLOGIES,
    attached,
    claims,
    figures,
    model_of,
    tables,
)
from ordercast.lab.frames import Frames
from ordercast.lab.grid import checked
from ordercast.lab.totem_hosts import EIGHT, network_of
from ordercast.lab.totem_model import LoadTooHigh, agreed_mean_us, ethernet_ring, safe_mean_us
from ordercast.sim.topology import components, gateways, members

Took = Callable[[str, str, str, int], float]
"""From locality, topology, guarantee and rate."""
RATES = (500, 2000)


def results(took_us: Took, carried: Callable[[str, int], float] = lambda topology, rate: 1.0) -> Frames:
    return made(
        {
            "locality": locality,
            "topology": topology,
            "safe": float(guarantee == "safe"),
            "rate": float(rate),
            "rotation_us": 3000.0,
            "ordered_per_s": rate * carried(topology, rate),
            "measured": float(rate),
            "window_us": 1e6,
            "stats/withheld": 1.0,
            "stats/forwarded": 1.0,
            f"latency_{guarantee}_us": took_us(locality, topology, guarantee, rate),
        }
        for locality in LOCALITIES
        for topology in TOPOLOGIES
        for guarantee in ("agreed", "safe")
        for rate in RATES
    )


def between(locality: str, topology: str, guarantee: str, rate: int) -> float:
    """The middle of the model's bounds."""
    model = model_of(topology, rate, locality)
    bounds = model.agreed_us() if guarantee == "agreed" else model.safe_us()
    return bounds.middle_us


# --- the grid --------------------------------------------------------------------------------------


def test_the_experiment_is_in_the_list_and_its_runs_can_be_run() -> None:
    assert experiment("rings-latency") is EXPERIMENT
    for quick in (True, False):
        runs = EXPERIMENT.grid(quick)
        assert len(checked(runs)) == len(runs)


@pytest.mark.parametrize(("topology", "sizes"), [(ONE, [40]), (HALVES, [20, 21]), (LINE, [10, 11, 11, 11])])
def test_forty_nodes_are_on_rings_that_gateways_join(topology: str, sizes: list[int]) -> None:
    networks = {int(node): on for node, on in attached(topology).items()}
    assert len(networks) == NODES
    assert [len(members(networks, number)) for number in range(1, len(sizes) + 1)] == sizes
    assert len(gateways(networks)) == len(sizes) - 1
    assert len(components(networks, networks)) == 1


# --- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "several", "holds"),
    [
        ("substantially lower mean latency to {}", 0.95, False),
        ("substantially lower mean latency to {}", 0.8, True),
        ("Even with p1 = p2 = 1, several rings have a lower mean latency to {}", 1.2, False),
        ("Even with p1 = p2 = 1, several rings have a lower mean latency to {}", 0.95, True),
    ],
)
def test_lower_latencies_on_several_rings_are_claims_that_may_fail(
    about: str, several: float, holds: bool
) -> None:
    found = claims(results(lambda locality, topology, *_: 10e3 * (1 if topology == ONE else several)))
    for guarantee in ("agreed", "safe"):
        assert verdict(found, about.format(guarantee)) is holds


@pytest.mark.parametrize(("safe", "holds"), [(0.5, True), (0.95, False)])
def test_that_safe_messages_gain_most_is_a_claim_that_may_fail(safe: float, holds: bool) -> None:
    def took(locality: str, topology: str, guarantee: str, rate: int) -> float:
        return 10e3 * (1.0 if topology == ONE else safe if guarantee == "safe" else 0.9)

    assert verdict(claims(results(took)), "in particular") is holds


@pytest.mark.parametrize("about", ["substantially more traffic", "more traffic than one ring, also"])
def test_more_traffic_is_a_claim_that_may_fail_or_be_out_of_reach(about: str) -> None:
    def most(one: int, others: int) -> bool | None:
        def carried(topology: str, rate: int) -> float:
            return 1.0 if rate <= (one if topology == ONE else others) else 0.5

        return verdict(claims(results(between, carried)), about)

    assert most(500, 2000) is True
    assert most(500, 500) is False
    assert most(2000, 2000) is None, "nobody knows what is beyond the grid"


def test_means_that_the_model_does_not_give_are_told() -> None:
    assert verdict(claims(results(between)), "middle between the bounds") is True
    far = claims(results(lambda *point: 1.2 * between(*point)))
    assert verdict(far, "middle between the bounds") is False


def test_there_are_tables_for_each_topology_and_a_figure_for_each_locality() -> None:
    frames = results(between)
    titles = [table.title for table in tables(frames)]
    assert titles[:-1] == [f"{topology}, {locality}" for locality in LOCALITIES for topology in TOPOLOGIES]
    assert all(len(table.rows) == len(RATES) for table in tables(frames)[:-1])
    assert "places" in titles[-1]
    assert [figure.name for figure in figures(frames)] == ["latency-local", "latency-everywhere"]


# --- the model -------------------------------------------------------------------------------------


def test_on_one_ring_it_says_what_the_model_of_a_ring_says() -> None:
    ring = ethernet_ring(network_of(EIGHT), nodes=NODES, rate=1000, size=1000)
    model = model_of(ONE, 1000)
    low, high = model.agreed_us()
    assert low == high == pytest.approx(agreed_mean_us(ring), rel=0.02)
    assert model.safe_us() == pytest.approx((safe_mean_us(ring),) * 2, rel=0.02)


@pytest.mark.parametrize("rate", [500, 4000])
def test_rings_in_a_line_are_farther_from_each_other_than_in_a_star(rate: int) -> None:
    line, star = model_of(LINE, rate), model_of(STAR, rate)
    for far, near in ((line.agreed_us(), star.agreed_us()), (line.safe_us(), star.safe_us())):
        assert near.low_us < far.low_us < far.high_us
        assert near.high_us < far.high_us


def test_every_ring_carries_every_message() -> None:
    with pytest.raises(LoadTooHigh):
        model_of(STAR, 12_000)


def test_rings_with_local_messages_carry_less_and_least_without_places() -> None:
    loads = [
        max(ring.load for ring in model.rings.values())
        for model in (
            model_of(STAR, 4000),
            model_of(STAR, 4000, LOCAL),
            model_of(STAR, 4000, LOCAL, places=False),
        )
    ]
    assert loads[0] > 1.3 * loads[1] > 1.3 * 1.3 * loads[2]


def test_on_one_ring_it_does_not_matter_where_messages_are_needed() -> None:
    assert model_of(ONE, 1000, LOCAL).agreed_us() == pytest.approx(model_of(ONE, 1000).agreed_us())
