"""The experiment on faults: its network, its model, its verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_frames import made, verdict

from ordercast.lab.experiment import experiment
from ordercast.lab.experiments.rings_faults import (
    BUCKET_US,
    CRASHED,
    EXPERIMENT,
    NODE,
    NONE,
    ONLY,
    SPARE,
    Curve,
    attached,
    claims,
    figures,
    modelled,
    tables,
)
from ordercast.lab.frames import Frames
from ordercast.lab.grid import checked
from ordercast.sim.topology import components

CALM = np.full(20, 0.05)
"""Uniform up to 5 ms: the mean is 2.5 ms."""


def results(outage_ms: dict[str, float], shape: float = 1.0) -> Frames:
    """Curves as the model has them, for interruptions of these lengths times `shape`, told without it."""
    rows: list[dict[str, Any]] = []
    densities = []
    for fault in CRASHED:
        outage_us = 1000 * outage_ms.get(fault, 0.0)
        rows.append({"fault": fault, "latency_agreed_max_us": outage_us + 2500.0})
        curve = modelled(Curve(CALM, 5000.0), shape * outage_us) if outage_us else CALM
        densities += [
            (fault, bucket * BUCKET_US, (bucket + 1) * BUCKET_US, share / BUCKET_US)
            for bucket, share in enumerate(curve)
        ]
    return made(rows, pd.DataFrame(densities, columns=["fault", "from_us", "to_us", "density"]))


USUAL = {NODE: 60.0, SPARE: 65.0, ONLY: 60.0}


def test_the_experiment_is_in_the_list_and_its_runs_can_be_run() -> None:
    assert experiment("rings-faults") is EXPERIMENT
    for quick in (True, False):
        runs = EXPERIMENT.grid(quick)
        assert len(checked(runs)) == len(runs)


def test_the_only_gateway_parts_the_network_and_the_others_do_not() -> None:
    networks = {int(node): on for node, on in attached().items()}
    parts = {
        fault: len(components(networks, [node for node in networks if node != crashed]))
        for fault, crashed in CRASHED.items()
    }
    assert parts == {NONE: 1, NODE: 1, SPARE: 1, ONLY: 2}


def test_an_interruption_makes_a_share_of_messages_late_by_up_to_its_length() -> None:
    shares = modelled(Curve(CALM, 5000.0), 40_000, window_us=400_000)
    assert shares.sum() == pytest.approx(1)
    beyond = shares[int(20_000 / BUCKET_US) :].sum()
    assert beyond == pytest.approx(0.1 * (40 - 20 + 2.5) / 40, rel=0.02)


@pytest.mark.parametrize(
    ("about", "outages", "shape", "holds"),
    [
        ("70 ms in all", USUAL, 1.0, True),
        ("70 ms in all", {**USUAL, ONLY: 90.0}, 1.0, False),
        ("another gateway beside it", USUAL, 1.0, True),
        ("another gateway beside it", {**USUAL, SPARE: 90.0}, 1.0, False),
        ("one uniform part", USUAL, 1.0, True),
        ("one uniform part", USUAL, 4.0, False),
    ],
)
def test_verdicts_follow_what_was_measured(
    about: str, outages: dict[str, float], shape: float, holds: bool
) -> None:
    assert verdict(claims(results(outages, shape)), about) is holds


def test_figures_and_tables_are_made_of_the_results() -> None:
    frames = results(USUAL)
    assert [figure.name for figure in figures(frames)] == ["tail", "density"]
    measured, hourly = tables(frames)
    assert [row[0] for row in measured.rows] == list(CRASHED)
    assert [row[0] for row in hourly.rows] == [NODE, SPARE, ONLY]
