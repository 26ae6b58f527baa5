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

Took = Callable[[str, str, int], float]
RATES = (500, 2000)


def results(took_us: Took, carried: Callable[[str, int], float] = lambda topology, rate: 1.0) -> Frames:
    return made(
        {
            "topology": topology,
            "safe": float(guarantee == "safe"),
            "rate": float(rate),
            "rotation_us": 3000.0,
            "ordered_per_s": rate * carried(topology, rate),
            f"latency_{guarantee}_us": took_us(topology, guarantee, rate),
        }
        for topology in TOPOLOGIES
        for guarantee in ("agreed", "safe")
        for rate in RATES
    )


def between(topology: str, guarantee: str, rate: int) -> float:
    """The middle of the model's bounds."""
    model = model_of(topology, rate)
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


def test_lower_latencies_on_several_rings_are_a_claim_that_may_fail() -> None:
    slower = claims(results(lambda topology, guarantee, rate: 10e3 if topology == ONE else 12e3))
    faster = claims(results(lambda topology, guarantee, rate: 10e3 if topology == ONE else 8e3))
    for guarantee in ("agreed", "safe"):
        assert verdict(slower, f"latency to {guarantee}") is False
        assert verdict(faster, f"latency to {guarantee}") is True


def test_more_traffic_is_a_claim_that_may_fail_or_be_out_of_reach() -> None:
    def most(one: int, others: int) -> bool | None:
        def carried(topology: str, rate: int) -> float:
            return 1.0 if rate <= (one if topology == ONE else others) else 0.5

        return verdict(claims(results(between, carried)), "sustain more")

    assert most(500, 2000) is True
    assert most(500, 500) is False
    assert most(2000, 2000) is None, "nobody knows what is beyond the grid"


def test_means_that_the_model_does_not_give_are_told() -> None:
    assert verdict(claims(results(between)), "middle between the bounds") is True
    far = claims(results(lambda *point: 1.2 * between(*point)))
    assert verdict(far, "middle between the bounds") is False


def test_there_is_a_table_for_each_topology_and_a_figure() -> None:
    frames = results(between)
    assert [table.title for table in tables(frames)] == list(TOPOLOGIES)
    assert all(len(table.rows) == len(RATES) for table in tables(frames))
    (figure,) = figures(frames)
    assert figure.drawing.axes


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
