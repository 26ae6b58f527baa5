"""Campaigns: every seed once, whatever is killed in between; where rounds look; what it adds up to."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuzz_results import result
from ordercast.catalogue import fuzzed_protocol
from ordercast.lab.campaign import work as campaign_work
from ordercast.lab.campaign.blocks import FILES, MOST, Block, Stage, Work, left, size_of, work_left
from ordercast.lab.campaign.conduct import SHARE, FuzzCampaign
from ordercast.lab.campaign.summary import Summary, Tally, look_next
from ordercast.lab.campaign.table import CampaignStore
from ordercast.lab.campaign.work import DIED, RAISED, do_block
from ordercast.lab.grid import GridError, LabError
from ordercast.lab.on_spark import ATTEMPTS
from ordercast.sim.campaign import Campaign, SeedResult, Totals, run_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGE = Stage("cm", (3, 5), 0, range(1, 100))

# --- ranges ---------------------------------------------------------------------------------------


def test_blocks_hold_each_seed_once_and_begin_at_multiples() -> None:
    work = work_left([STAGE], [("cm", 0, range(30, 50)), ("cm", 1, range(60, 70)), ("dtp", 0, range(99))], 20)
    blocks = list(work.each())
    assert [seed for block in blocks for seed in block.seeds] == [*range(1, 30), *range(50, 100)]
    assert [block.seeds.start for block in blocks] == [1, 20, 50, 60, 80]
    assert [work.block(at) for at in range(work.blocks)] == blocks
    assert work.seeds == 79


def test_what_is_left_of_a_range() -> None:
    assert left(range(10), []) == [range(10)]
    assert left(range(5, 10), [range(7), range(9, 20)]) == [range(7, 9)]
    assert left(range(5, 10), [range(8, 9), range(6)]) == [range(6, 8), range(9, 10)]
    assert left(range(5, 10), [range(20)]) == []


def test_a_task_carries_as_much_for_a_million_seeds_as_for_a_thousand() -> None:
    def weight(seeds: int) -> int:
        return len(pickle.dumps(work_left([Stage("cm", (3, 5), 0, range(seeds))], [], size_of(seeds))))

    assert weight(1_000_000) < weight(1_000) + 50


@pytest.mark.parametrize("seeds", [1, 1_000, 20_000, 100_000, 123_456])
def test_results_are_in_few_files(seeds: int) -> None:
    assert Work((Block(STAGE, range(seeds)),), size_of(seeds)).blocks <= 200
    assert size_of(10**6) == MOST > 10**5 / FILES


# --- results --------------------------------------------------------------------------------------


def seed_result(seed: int, property: str | None = None, **coverage: int) -> SeedResult:
    violations = {} if property is None else {property: 1}
    sentences = [f"{code}: 1 and 2 disagree: badly" for code in violations]
    told = result(seed, violations, sentences, converged=seed != 8, coverage={"token lost": 0, **coverage})
    return SeedResult(told, 0.1, 3, ("crash", "leave") if seed == 5 else ("crash",))


def broken(campaign: Campaign, find: object, seed: int, near: int | None = None) -> SeedResult:
    """A fuzzer that finds a violation in every seventh seed, and something rare in seed 13 and near it."""
    if seed == 3:
        raise RuntimeError("no")
    rare = {"crash in recovery": 1} if 13 in (seed, near) else {}
    return seed_result(seed, "total-order" if seed % 7 == 0 else None, **{"crash in gather": 2}, **rare)


def fuzz_here(campaign: FuzzCampaign) -> None:
    for block in campaign.pending().each():
        do_block(campaign.store, block)


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FuzzCampaign:
    """One whose seeds were fuzzed by `broken`."""
    monkeypatch.setattr(campaign_work, "run_seed", broken)
    made = FuzzCampaign(["dtp"], range(1, 30), (3, 5), tmp_path, rounds=1)
    fuzz_here(made)
    return made


def test_seeds_that_fail_come_back_as_commands_that_replay_them(campaign: FuzzCampaign) -> None:
    reported = campaign.report()
    assert reported.answer["runs"] == 29
    assert reported.answer["properties"] == {"fuzzer": 1, "total-order": 4}
    assert reported.answer["coverage"] == {"crash in gather": 56, "crash in recovery": 1, "token lost": 0}
    assert [each["seed"] for each in reported.answer["failures"]] == [3, 7, 8, 14, 21, 28]
    assert reported.answer["failures"][0]["property"] == RAISED
    assert reported.answer["failures"][1] == {
        "protocol": "dtp",
        "seed": 7,
        "property": "total-order",
        "sentence": "1 and 2 disagree: badly",
        "replay": "ordercast sim replay --protocol dtp --seed 7 --nodes 3:5",
    }
    assert [claim.holds for claim in reported.claims] == [False, False]
    told = reported.answer["by_protocol"]["dtp"]
    assert told["faults"]["leave"] == {"runs": 1, "failed": 0}
    assert told["states"]["gather"] == {"entered": 0, "crashed": 28, "failed": 5}
    page = reported.page.read().decode()
    assert "ordercast sim replay --protocol dtp --seed 28 --nodes 3:5" in page
    assert all(claim.says in page for claim in reported.claims)


def test_the_next_round_looks_near_what_was_rare(campaign: FuzzCampaign) -> None:
    look = look_next(Summary(campaign.store.rows()).protocols["dtp"], "dtp", range(100, 110))
    assert look is not None
    assert look.rare == {"crash in recovery": 1, "fault leave": 1}
    assert look.near == (13, 5)
    stage = Stage("dtp", (3, 5), 1, range(100, 110), look.near)
    assert [stage.near_of(seed) for seed in range(100, 104)] == [13, 5, 13, 5]
    do_block(campaign.store, Block(stage, stage.seeds))
    met = Summary(campaign.store.rows()).protocols["dtp"].met["crash in recovery"]
    assert (met.asked, met.runs) == (1, 6)
    assert look_next(Tally(), "dtp", range(9)) is None


def test_seeds_that_two_files_have_count_once(campaign: FuzzCampaign) -> None:
    stage = campaign.asked[0]
    do_block(campaign.store, Block(stage, range(15, 28)))
    assert Summary(campaign.store.rows()).total("runs") == 29


def test_a_seed_that_ends_its_process_every_time_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def deadly(campaign: Campaign, find: object, seed: int, near: int | None = None) -> SeedResult:
        if seed == 2:
            raise Killed
        return seed_result(seed)

    monkeypatch.setattr(campaign_work, "run_seed", deadly)
    store, block = CampaignStore(tmp_path), Block(STAGE, range(1, 5))
    for attempt in range(ATTEMPTS - 1):
        with pytest.raises(Killed):
            do_block(store, block, attempt)
    assert store.files() == []
    do_block(store, block, ATTEMPTS - 1)
    summary = Summary(store.rows())
    assert [(each["seed"], each["property"]) for each in summary.failures] == [(2, DIED)]
    assert summary.total("runs") == 4
    assert store.begun.names() == set()


def test_a_file_that_cannot_be_read_is_named(campaign: FuzzCampaign) -> None:
    file = campaign.store.files()[0].location
    file.put(file.read()[:500])
    with pytest.raises(LabError, match=r"dtp-0-1-20\.parquet cannot be read as results .* take it away"):
        campaign.report()


def test_what_cannot_be_fuzzed(campaign: FuzzCampaign) -> None:
    with pytest.raises(GridError, match="no protocol 'nonesuch'"):
        FuzzCampaign(["nonesuch"])
    campaign._write_manifest()
    with pytest.raises(LabError, match="groups of 3 to 5 nodes, not of the usual sizes"):
        FuzzCampaign(["dtp"], directory=campaign.store.directory).surprises()


# --- on Spark -------------------------------------------------------------------------------------


def test_every_seed_is_fuzzed_once_though_it_was_killed_and_rounds_follow(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    """In a store, with process groups and over several networks, too."""
    directory = store.format(f"lab/{tmp_path.name}")
    seeds = range(SHARE)
    first = FuzzCampaign(["cm+groups", "rings"], seeds, (2, 3), directory, rounds=1)
    do_block(first.store, Block(first.asked[0], range(15)))  # then it was killed
    fuzzed = first.run(spark)
    assert (fuzzed.asked, fuzzed.earlier) == (2 * len(seeds), 15)
    assert fuzzed.near == 2, "a twentieth of the seeds, near what was rare"

    totals = Totals()
    for name in ("cm+groups", "rings"):
        for seed in seeds:
            here = Campaign(protocol=name, nodes=(2, 3), seeds=seeds)
            totals.add(run_seed(here, fuzzed_protocol, seed))
    summary = Summary(rows for rows in first.store.rows() if rows[0]["round"] == 0)
    assert (summary.total("runs"), summary.total("events")) == (totals.runs, totals.events)
    assert summary.times == dict(sorted(totals.coverage.items()))
    assert first.run(spark).earlier == 2 * len(seeds)
    again = FuzzCampaign.reopen(directory)
    assert again is not None
    assert again.report().answer["runs"] == 2 * len(seeds) + 2
