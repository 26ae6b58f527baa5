"""The experiment on TRMP: its groups form, and its verdicts follow what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from made_frames import made, verdict

from ordercast.lab.experiment import experiment
from ordercast.lab.experiments.trmp import (
    ALL,
    ALONE,
    BELOW,
    EXPERIMENT,
    FAILURE,
    LEVELS,
    MEMBER,
    ONE,
    PRIMARY,
    REFORMATION,
    STABLE,
    claims,
    conduct,
    figures,
    grid,
    shape_of,
    tables,
)
from ordercast.lab.frames import Frames
from ordercast.lab.grid import checked
from ordercast.levels.config import LevelsConfig


def results(
    levels_us: float = 10_000.0, below_us: float = 5_000.0, below_install: float = 0.0, rbp_us: float = 900.0
) -> Frames:
    """Figures of groups of 100, where one ring takes 60 ms to stabilise and 200 ms to get over a failure."""
    rows: list[dict[str, Any]] = [
        {"kind": STABLE, "shape": shape, "known_us": took, "everywhere_us": took / 2}
        for shape, took in ((ONE, 60_000.0), (LEVELS, levels_us))
    ]
    rows += [
        {"kind": FAILURE, "victim": victim, "silence_us": took, "installing": installing}
        for victim, took, installing in (
            (MEMBER, 200_000.0, 99.0),
            (PRIMARY, 200_000.0, 99.0),
            (BELOW, below_us, below_install),
        )
    ]
    rows += [
        {"kind": REFORMATION, "protocol": protocol, "noticed": noticed, "installed_us": took}
        for noticed in (ALL, ALONE)
        for protocol, took in (("trmp", 500.0), ("rbp", rbp_us))
    ]
    return made([{"protocol": "trmp", "nodes": 100, **row} for row in rows])


def test_the_experiment_is_in_the_list_and_its_runs_can_be_run() -> None:
    assert experiment("trmp") is EXPERIMENT
    for quick in (True, False):
        runs = EXPERIMENT.grid(quick)
        assert len(checked(runs)) == len(runs)
    assert max(run.nodes for run in grid(False)) == 400


def test_every_node_has_a_place_on_two_levels() -> None:
    settings = shape_of(LEVELS, 50)
    config = LevelsConfig(
        primaries=tuple(settings["primaries"]), rings=tuple(map(tuple, settings["rings"])), max_members=512
    )
    on_rings = [node for ring in config.rings for node in ring if node not in config.primaries]
    assert sorted([*config.primaries, *on_rings]) == list(range(1, 51))


@pytest.mark.parametrize(
    ("about", "measured", "holds"),
    [
        ("long stabilisation time", {}, True),
        ("long stabilisation time", {"levels_us": 40_000.0}, False),
        ("world-wide Reformation", {}, True),
        ("world-wide Reformation", {"below_install": 99.0}, False),
        ("reduces the probability", {}, True),
        ("reduces the probability", {"below_us": 100_000.0}, False),
        (ALL, {}, True),
        (ALL, {"rbp_us": 400.0}, False),
        (ALONE, {"rbp_us": 400.0}, False),
    ],
)
def test_verdicts_follow_what_was_measured(about: str, measured: dict[str, float], holds: bool) -> None:
    assert verdict(claims(results(**measured)), about) is holds


def test_figures_and_tables_are_made_of_the_results() -> None:
    assert [figure.name for figure in figures(results())] == ["stabilisation"]
    failures, changes = tables(results())
    assert len(failures.rows) == 3
    assert [row[1] for row in changes.rows] == [ALONE, ALL]


@pytest.mark.parametrize("kind", [STABLE, REFORMATION])
def test_a_small_run_of_each_kind_measures_what_it_is_about(kind: str) -> None:
    run = next(run for run in grid(True) if run.labels["kind"] == kind)
    outcome = conduct(run)
    assert not outcome.notes
    assert {STABLE: "known_us", REFORMATION: "installed_us"}[kind] in outcome.figures
