"""The fuzzer as an experiment: the sum over seeds, however they are packed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ordercast.catalogue import lab_protocol
from ordercast.lab.experiment import Sizes, experiment
from ordercast.lab.experiments import fuzz
from ordercast.lab.experiments.fuzz import BLOCK, blocks, campaign, conduct
from ordercast.lab.grid import GridError
from ordercast.lab.laboratory import Laboratory, sized
from ordercast.lab.runner import do_task
from ordercast.lab.store import Task
from ordercast.sim.campaign import Campaign, SeedResult, Totals, run_seed
from ordercast.sim.fuzz import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_blocks_hold_each_seed_once_and_begin_at_multiples_whatever_is_asked_for() -> None:
    runs = blocks("totem", range(BLOCK - 3, 3 * BLOCK + 1), (3, 5))
    seeds = [seed for run in runs for seed in fuzz.campaign_of(run).seeds]
    assert seeds == list(range(BLOCK - 3, 3 * BLOCK + 1))
    assert [run.seed for run in runs] == [BLOCK - 3, BLOCK, 2 * BLOCK, 3 * BLOCK]


def test_a_block_adds_up_to_what_the_fuzzer_finds() -> None:
    (run,) = blocks("totem", range(3), (2, 3))
    totals = Totals()
    for seed in range(3):
        totals.add(run_seed(Campaign(protocol="totem", nodes=(2, 3), seeds=range(3)), lab_protocol, seed))
    figures = conduct(run).figures
    assert (figures["runs"], figures["events"], figures["rows"]) == (3, totals.events, totals.rows)
    assert {name.removeprefix("coverage/") for name in figures if name.startswith("coverage/")} == set(
        totals.coverage
    )


def broken(campaign: Campaign, find: object, seed: int) -> SeedResult:
    """A fuzzer that finds a violation in every seventh seed."""
    violations = {"total-order": 1} if seed % 7 == 0 else {}
    return SeedResult(
        Result(
            seed=seed,
            violations=violations,
            sentences=["total-order: 1 and 2 disagree: badly"] if violations else [],
            converged=seed != 8,
            events=10,
            receptions=5,
            rows=3,
            coverage={"crash": 2, "token lost": 0},
        ),
        0.1,
    )


def test_seeds_that_fail_come_back_as_commands_that_replay_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "run_seed", broken)
    sizes = Sizes(protocols=("dtp",), seeds=range(1, 30), nodes=(3, 5))
    lab = Laboratory(experiment("fuzz"), tmp_path, sizes=sizes)
    for run in lab.runs:
        do_task(lab.store, Task((run,), 1.0))
    reported = lab.report(spark)
    assert reported.answer["runs"] == 29
    assert reported.answer["properties"] == {"total-order": 4}
    assert reported.answer["coverage"] == {"crash": 58, "token lost": 0}
    assert [each["seed"] for each in reported.answer["failures"]] == [7, 8, 14, 21, 28]
    assert reported.answer["failures"][0] == {
        "seed": 7,
        "property": "total-order",
        "sentence": "1 and 2 disagree: badly",
        "replay": "ordercast sim replay --protocol dtp --seed 7 --nodes 3:5",
    }
    assert [claim.holds for claim in reported.claims] == [False, False]
    page = reported.page.read_text()
    assert "ordercast sim replay --protocol dtp --seed 28 --nodes 3:5" in page
    assert all(claim.says in page for claim in reported.claims)


def test_fuzz_takes_one_protocol_that_exists() -> None:
    with pytest.raises(GridError, match="one protocol at a time"):
        sized(experiment("fuzz"), False, Sizes(protocols=("cm", "dtp")))
    with pytest.raises(GridError, match="no protocol 'nonesuch'"):
        sized(experiment("fuzz"), False, Sizes(protocols=("nonesuch",)))
    assert campaign("cm").strict
