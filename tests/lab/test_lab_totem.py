"""The experiments on Totem: their grids can be run, and their verdicts can go either way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_frames import made, verdict

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab.experiment import Experiment, experiment
from ordercast.lab.experiments import totem_density, totem_latency, totem_throughput, totem_visits
from ordercast.lab.experiments.totem_density import (
    BUCKET_US,
    LOSSES,
    MESSAGES,
    USUAL,
    Arrivals,
    Histogram,
    modelled,
)
from ordercast.lab.experiments.totem_throughput import ALL, MESSAGE_US, ONE, PACKED, SINGLE, costing
from ordercast.lab.grid import checked
from ordercast.lab.totem_hosts import EIGHT, FIVE

COSTLY = costing(MESSAGE_US[-1])
EXPERIMENTS = (
    totem_throughput.EXPERIMENT,
    totem_latency.EXPERIMENT,
    totem_density.EXPERIMENT,
    totem_visits.EXPERIMENT,
)


@pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.name)
def test_the_experiment_is_in_the_list(each: Experiment) -> None:
    assert experiment(each.name) is each


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.name)
def test_every_run_of_the_grid_can_be_run(each: Experiment, quick: bool) -> None:
    runs = each.grid(quick)
    assert len(checked(runs)) == len(runs), "no run is there twice"
    assert {run.protocol for run in runs} == {"totem"}


def test_the_quick_grids_are_small() -> None:
    for each in EXPERIMENTS:
        assert len(each.grid(True)) < len(each.grid(False)) / 2


def test_without_packing_is_a_setting_of_the_protocol() -> None:
    assert "packing" in LAB_PROTOCOLS["totem"].product.settings.__struct_fields__
    packing = {run.labels["how"]: run.settings["packing"] for run in totem_throughput.grid(False)}
    costly = dict.fromkeys(map(costing, MESSAGE_US), True)
    assert packing == {ALL: False, ONE: False, PACKED: True, SINGLE: False, **costly}


# --- throughput ----------------------------------------------------------------------------------


def throughput(per_s: Callable[[str, str, int], float]) -> list[dict[str, Any]]:
    """Results with these rates for hosts, manner and size."""
    points = [(FIVE, how, size) for how in (ALL, ONE) for size in (128, 1024)]
    points += [(EIGHT, how, size) for how in (PACKED, SINGLE, COSTLY) for size in (100, 1000)]
    return [
        {
            "hosts": hosts,
            "how": how,
            "size": size,
            "ordered_per_s": per_s(hosts, how, size),
            "utilization": 0.9,
            "sent/data": 0.1,
            "rotation_us": 10_000.0,
        }
        for hosts, how, size in points
    ]


@pytest.mark.parametrize(
    ("about", "good", "bad"),
    [
        ("more than 800", lambda h, how, size: 801, lambda h, how, size: 799),
        ("over 1000", lambda h, how, size: 1001, lambda h, how, size: 999),
        (
            "one node sending everything",
            lambda h, how, size: 1000 if how == ALL else 900,
            lambda h, how, size: 1000 if how == ALL else 800,
        ),
        (
            "packing small messages into larger",
            lambda h, how, size: 9000 if how == PACKED and size == 100 else 1000,
            lambda h, how, size: 1000,
        ),
        (
            "goes away as they fill",
            lambda h, how, size: 9000 if how == PACKED and size == 100 else 1000,
            lambda h, how, size: 9000 if how == PACKED else 1000,
        ),
        (
            "the cost of packing decides",
            lambda h, how, size: 9000 if size == 100 and how == COSTLY else 2000,
            lambda h, how, size: 20_000 if size == 100 else 2000,
        ),
        ("processors are saturated", lambda h, how, size: 40_000, lambda h, how, size: 10_000),
    ],
)
def test_verdicts_on_throughput_follow_what_was_measured(
    about: str, good: Callable[[str, str, int], float], bad: Callable[[str, str, int], float]
) -> None:
    assert verdict(totem_throughput.claims(made(throughput(good))), about) is True
    assert verdict(totem_throughput.claims(made(throughput(bad))), about) is False


# --- latency -------------------------------------------------------------------------------------


def latencies(
    agreed: dict[int, float], safe: dict[int, float], rotation: float = 16_000
) -> list[dict[str, Any]]:
    """Results of five nodes with these mean latencies, in microseconds, by rate."""
    rows: list[dict[str, Any]] = []
    for share, name, by_rate in ((0.0, "agreed", agreed), (1.0, "safe", safe)):
        rows += [
            {"hosts": FIVE, "safe": share, "rate": rate, f"latency_{name}_us": took, "rotation_us": rotation}
            for rate, took in by_rate.items()
        ]
    return rows


@pytest.mark.parametrize(
    ("about", "agreed", "safe", "holds"),
    [
        ("under 10 ms", {400: 9_000}, {400: 32_000}, True),
        ("under 10 ms", {400: 10_500}, {400: 32_000}, False),
        ("about 13 ms", {625: 12_000}, {625: 32_000}, True),
        ("about 13 ms", {625: 17_000}, {625: 32_000}, False),
        ("half the token rotation", {400: 9_000}, {400: 32_000}, True),
        ("half the token rotation", {400: 12_000}, {400: 32_000}, False),
        ("twice the token rotation", {400: 9_000}, {400: 30_000}, True),
        ("twice the token rotation", {400: 9_000}, {400: 16_000}, False),
        ("Our own model", {400: 7_800}, {400: 25_300}, True),
        ("Our own model", {400: 9_800}, {400: 25_300}, False),
        ("Our own model", {400: 7_800}, {400: 35_300}, False),
    ],
)
def test_verdicts_on_latency_follow_what_was_measured(
    about: str, agreed: dict[int, float], safe: dict[int, float], holds: bool
) -> None:
    assert verdict(totem_latency.claims(made(latencies(agreed, safe))), about) is holds


# --- visits --------------------------------------------------------------------------------------


def visited(hot: dict[str, float], alike: dict[str, float]) -> list[dict[str, Any]]:
    """Results with these latencies of one hot member of eight, and of eight alike, by rule."""
    loads = ((totem_visits.HOT, hot), (totem_visits.ALIKE, alike))
    return [
        {
            "load": load,
            "rate": 500,
            "visits": rule,
            "safe": safe,
            "latency_agreed_us": took,
            "latency_safe_us": 900.0,
            "rotation_us": 640.0,
        }
        for load, of in loads
        for rule, took in of.items()
        for safe in (0.0, 1.0)
    ]


@pytest.mark.parametrize(
    ("about", "hot", "alike", "holds"),
    [
        ("one hot of eight", (390, 290, 310), (390, 390, 390), True),
        ("one hot of eight", (390, 310, 290), (390, 390, 390), False),
        ("one hot of eight", (290, 300, 310), (390, 390, 390), False),
        ("changes nothing", (390, 290, 310), (390, 391, 450), True),
        ("changes nothing", (390, 290, 310), (390, 370, 390), False),
    ],
)
def test_verdicts_on_visits_follow_what_was_measured(
    about: str, hot: tuple[float, ...], alike: tuple[float, ...], holds: bool
) -> None:
    rules = totem_visits.RULES
    frames = made(visited(dict(zip(rules, hot, strict=True)), dict(zip(rules, alike, strict=True))))
    assert verdict(totem_visits.claims(frames), about) is holds
    assert [figure.name for figure in totem_visits.figures(frames)] == ["visits"]
    tables = totem_visits.tables(frames)
    assert [len(table.rows) for table in tables] == [3, 3]
    assert tables[0].rows[1] == (500, "square-root", str(hot[1]), "900", "640")


# --- densities -----------------------------------------------------------------------------------


def densities(curves: Iterable[tuple[Arrivals, float, np.ndarray[Any, Any]]]) -> pd.DataFrame:
    """Curves as `Frames.density` gives them."""
    rows = [
        (arrivals, loss, MESSAGES, bucket * BUCKET_US, (bucket + 1) * BUCKET_US, share / BUCKET_US)
        for arrivals, loss, shares in curves
        for bucket, share in enumerate(shares)
        if share
    ]
    return pd.DataFrame(rows, columns=["arrivals", "loss", "lost", "from_us", "to_us", "density"])


def density_claims(
    change: Callable[[Arrivals, float, np.ndarray[Any, Any]], np.ndarray[Any, Any]], quick: bool = False
) -> list[Any]:
    """The verdicts if the simulator had answered with what the model says, changed a little."""
    each: tuple[Arrivals, ...] = ("poisson", "deterministic")
    curves = [
        (arrivals, loss, change(arrivals, loss, modelled(arrivals, loss).buckets(BUCKET_US, 400)))
        for arrivals in each
        for loss in LOSSES
    ]
    runs = [
        {"arrivals": arrivals, "loss": loss, "lost": MESSAGES, "rotation_us": 2680.0}
        for arrivals, loss, _ in curves
    ]
    return totem_density.claims(made(runs, densities(curves), quick))


def stretched(shares: np.ndarray[Any, Any], by: int) -> np.ndarray[Any, Any]:
    """The same distribution with all times multiplied."""
    return np.repeat(shares, by) / by


def test_what_the_model_says_passes_all_verdicts() -> None:
    claims = density_claims(lambda arrivals, loss, shares: shares)
    assert [claim.says for claim in claims if claim.holds is not True] == []


@pytest.mark.parametrize(
    ("about", "change"),
    [
        ("Our own model fits", lambda arrivals, loss, shares: stretched(shares, 2)),
        (
            "deterministic arrivals have a lower probability",
            lambda arrivals, loss, shares: stretched(shares, 2) if arrivals == "deterministic" else shares,
        ),
        (
            "bunch together",
            lambda arrivals, loss, shares: stretched(shares, 2) if arrivals == "deterministic" else shares,
        ),
        (
            "lower rates",
            lambda arrivals, loss, shares: stretched(shares, 2) if arrivals == "deterministic" else shares,
        ),
        (
            "The more messages are lost",
            lambda arrivals, loss, shares: modelled(arrivals, 0.0).buckets(25, 400),
        ),
        (
            "usual on a modern LAN",
            lambda arrivals, loss, shares: stretched(shares, 2) if loss == USUAL else shares,
        ),
        (
            "costs about a rotation",
            lambda arrivals, loss, shares: stretched(shares, 3) if loss == LOSSES[-1] else shares,
        ),
    ],
)
def test_verdicts_on_densities_follow_what_was_simulated(
    about: str, change: Callable[[Arrivals, float, np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> None:
    assert verdict(density_claims(change), about) is False


def test_a_quick_look_does_not_condemn_the_model() -> None:
    claims = density_claims(lambda arrivals, loss, shares: stretched(shares, 2), quick=True)
    assert verdict(claims, "Our own model fits") is None


def test_a_histogram_knows_its_mean_and_quantiles() -> None:
    histogram = Histogram(np.array([0.5, 0.25, 0.25]))
    assert histogram.mean_us == pytest.approx(BUCKET_US * (0.25 + 0.375 + 0.625))
    assert histogram.quantile_us(0.5) == BUCKET_US
    assert histogram.quantile_us(0.51) == 2 * BUCKET_US
    assert histogram.above(BUCKET_US) == pytest.approx(0.25)


# --- figures and tables --------------------------------------------------------------------------


def test_figures_and_tables_are_made_of_the_results() -> None:
    runs = [{**row, "bytes_per_s": 1.0} for row in throughput(lambda h, how, size: 1000)]
    assert len(totem_throughput.figures(made(runs))) == 2
    assert [len(table.rows) for table in totem_throughput.tables(made(runs))] == [4, 6]
    only = made([row for row in runs if row["hosts"] == FIVE])
    assert [figure.name for figure in totem_throughput.figures(only)] == ["throughput-10"]
    assert [len(table.rows) for table in totem_throughput.tables(only)] == [4]
    assert all("packing" not in claim.says for claim in totem_throughput.claims(only))
    frames = made(latencies({400: 8_000.0, 625: 12_000.0}, {400: 30_000.0, 625: 40_000.0}))
    assert len(totem_latency.figures(frames)) == 1
    (five,) = totem_latency.tables(frames)
    assert five.rows[0] == (400, "8.00", "0.50", "30.00", "1.88")
    shares = modelled("poisson", 0.0).buckets(BUCKET_US, 400)
    runs = [{"arrivals": "poisson", "loss": 0.0, "lost": MESSAGES, "rotation_us": 2680.0}]
    frames = made(runs, densities([("poisson", 0.0, shares)]))
    assert len(totem_density.figures(frames)) == 2
    (table,) = totem_density.tables(frames)
    assert table.rows[0][0] == "Poisson, r = 0"
