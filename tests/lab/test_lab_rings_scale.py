"""The experiment on many rings: its networks, its laws of growth, its verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from made_frames import made, verdict

from ordercast.lab.experiment import experiment
from ordercast.lab.experiments.rings_scale import (
    EXPERIMENT,
    FAN_OUT,
    PER_RING,
    RINGS,
    SINGLE,
    TREE,
    attached,
    claims,
    figures,
    fits,
    tables,
)
from ordercast.lab.frames import Frames
from ordercast.lab.grid import checked
from ordercast.sim.topology import components, gateways, members

COUNTED = ("stats/forwarded", "stats/withheld", "stats/vectors")


def results(of_size: Callable[[int], float], cost: Callable[[int], float] = math.log2) -> Frames:
    return made(
        {
            "shape": shape,
            "nodes": rings * PER_RING,
            "rings": rings,
            "latency_agreed_us": 1000 * of_size(rings * PER_RING),
            "known_us": 1000 * of_size(rings * PER_RING),
            "rotation_us": 4000.0,
            "measured": 100.0,
            "sent/data": cost(rings * PER_RING),
            **{
                f"stats/{name}": 100 * cost(rings * PER_RING) for name in ("forwarded", "withheld", "vectors")
            },
        }
        for shape in (TREE, SINGLE)
        for rings in (RINGS if shape == TREE else (1, 2))
    )


def test_the_experiment_is_in_the_list_and_its_runs_can_be_run() -> None:
    assert experiment("rings-scale") is EXPERIMENT
    for quick in (True, False):
        runs = EXPERIMENT.grid(quick)
        assert len(checked(runs)) == len(runs)
    assert max(run.nodes for run in EXPERIMENT.grid(False)) >= 1000
    assert max(int(run.labels["rings"]) for run in EXPERIMENT.grid(False)) > 40


@pytest.mark.parametrize("rings", RINGS)
def test_rings_are_a_tree(rings: int) -> None:
    networks = {int(node): on for node, on in attached(rings).items()}
    assert len(gateways(networks)) == rings - 1, "a gateway joins two rings, and there is no cycle"
    assert len(components(networks, networks)) == 1
    sizes = [len(members(networks, number)) for number in range(1, rings + 1)]
    assert max(sizes) <= PER_RING + 1
    joins = [len([n for n in gateways(networks) if networks[n][0] == ring]) for ring in range(1, rings + 1)]
    assert max(joins) <= FAN_OUT


def test_laws_of_growth_are_told_apart() -> None:
    sizes = [24, 60, 120, 252, 504, 1020]
    by_log = fits(sizes, [3 + 2 * math.log2(n) for n in sizes])
    by_size = fits(sizes, [3 + 0.1 * n for n in sizes])
    assert by_log["logarithmic"].r2 == pytest.approx(1)
    assert by_log["linear"].r2 < 0.9
    assert by_size["linear"].r2 == pytest.approx(1)
    assert by_size["logarithmic"].r2 < 0.9
    assert fits(sizes, [2 * n**0.5 for n in sizes])["power"].told.endswith("n^0.50")


@pytest.mark.parametrize(
    "about", ["latency to agreed", "latency to safe", "contents are forwarded", "packets beside"]
)
def test_growth_is_a_claim_that_may_fail(about: str) -> None:
    slow, fast = claims(results(math.log2)), claims(results(float, float))
    assert verdict(slow, about) is True
    assert verdict(fast, about) is False


def test_less_than_one_ring_is_a_claim_that_may_fail() -> None:
    assert verdict(claims(results(math.log2)), "scale poorly") is True
    assert verdict(claims(results(lambda nodes: nodes / 2)), "scale poorly") is False


def test_figures_and_tables_are_made_of_the_results() -> None:
    frames = results(math.log2)
    assert [figure.name for figure in figures(frames)] == ["latency", "cost"]
    (table,) = tables(frames)
    assert [row[0] for row in table.rows] == [rings * PER_RING for rings in RINGS]
