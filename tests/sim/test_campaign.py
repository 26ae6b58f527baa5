from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from careless import PROTOCOL, find

from fuzz_results import result
from ordercast.sim.campaign import Campaign, SeedResult, Totals, explore, failure_of, trace_name
from ordercast.sim.fuzz import Cuts, plan, run
from ordercast.sim.process_pool import WorkerDied, each
from ordercast.trace.reader import read_runs

CAMPAIGN = Campaign(protocol="careless", nodes=(2, 4), seeds=range(12))


def totals_of(runs: Iterator[SeedResult]) -> Totals:
    totals = Totals()
    for done in runs:
        totals.add(done)
    return totals


def counted(totals: Totals) -> dict[str, object]:
    """All that does not depend on how fast it went."""
    names = (name for name in Totals.__struct_fields__ if name != "cpu_s")
    return {name: getattr(totals, name) for name in names}


def test_totals_are_the_same_however_many_processes_share_the_work() -> None:
    alone, shared = totals_of(explore(CAMPAIGN, find, 1)), totals_of(explore(CAMPAIGN, find, 3))
    assert counted(alone) == counted(shared)
    assert alone.runs == len(CAMPAIGN.seeds)
    assert alone.cpu_s > 0
    assert shared.cpu_s > 0


def test_one_process_answers_in_the_order_of_the_seeds() -> None:
    assert [done.result.seed for done in explore(CAMPAIGN, find)] == list(CAMPAIGN.seeds)


def test_failures_are_named_and_counted() -> None:
    totals = totals_of(explore(CAMPAIGN, find))
    raised = {seed for seed, failure in totals.failures.items() if failure.property == "exception"}
    apart = {seed for seed, failure in totals.failures.items() if failure.property == "live-membership"}
    assert raised
    assert totals.violations == totals.properties["exception"] == len(raised)
    assert totals.not_converged == len(apart)
    assert totals.failures[min(raised)].sentence == "RuntimeError: node 2 cannot start twice"


def test_what_happened_in_all_runs_is_added_up() -> None:
    expected: Counter[str] = Counter()
    for seed in CAMPAIGN.seeds:
        expected.update(run(PROTOCOL, plan(PROTOCOL, seed, CAMPAIGN.nodes))[0].coverage)
    totals = totals_of(explore(CAMPAIGN, find))
    assert totals.coverage == expected
    assert totals.coverage["crash"] > 0


def test_a_run_that_stayed_apart_has_a_sentence_too() -> None:
    failure = failure_of(result(converged=False))
    assert failure is not None
    assert failure.property == "live-membership"
    assert "one configuration" in failure.sentence


def test_the_sentence_is_about_the_property_that_is_named() -> None:
    failure = failure_of(
        result(violations={"safe": 1, "causal": 1}, sentences=["safe: this.", "causal: that."])
    )
    assert failure is not None
    assert (failure.property, failure.sentence) == ("causal", "that.")


def test_traces_are_kept_by_seed(tmp_path: Path) -> None:
    campaign = Campaign(protocol="careless", nodes=(2, 4), seeds=range(3), traces=str(tmp_path))
    results = {done.result.seed: done.result for done in explore(campaign, find)}
    kept = dict(read_runs(tmp_path))
    assert {name: len(rows) for name, rows in kept.items()} == {
        trace_name("careless", seed): result.rows for seed, result in results.items()
    }


@pytest.mark.parametrize(
    ("cuts", "options"),
    [
        (None, ""),
        (Cuts(), ""),
        (Cuts(members=(1, 2, 3)), " --members 1,2,3"),
        (Cuts(faults=()), " --faults none"),
        (Cuts(faults=(0, 4), duration_us=300_000), " --faults 0,4 --faults-until 300000us"),
    ],
)
def test_a_seed_is_replayed_by_one_command(cuts: Cuts | None, options: str) -> None:
    command = "ordercast sim replay --protocol careless --seed 7 --nodes 2:4"
    assert CAMPAIGN.replay(7, cuts) == command + options


# --- processes -----------------------------------------------------------------------------------


def _square(number: int) -> int:
    return number * number


def _linger(place: Path | None) -> bool:
    """With a place: is at work for a minute, and leaves a file there when it is done."""
    if place is not None:
        time.sleep(60)
        (place / "done").touch()
    return place is None


def _raise(number: int) -> int:
    raise ValueError(f"not {number}")


def _die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once(jobs: int) -> None:
    assert sorted(each(_square, range(20), jobs)) == [n * n for n in range(20)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_task_raises_is_raised(jobs: int) -> None:
    with pytest.raises(ValueError, match="not 0"):
        list(each(_raise, [0], jobs))


def test_whoever_stops_listening_does_not_wait_for_what_is_under_way(tmp_path: Path) -> None:
    answers = each(_linger, [None, tmp_path, tmp_path, tmp_path], 2)
    assert next(answers) is True
    answers.close()
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_is_named_and_not_waited_for() -> None:
    with pytest.raises(WorkerDied, match="fewer jobs"):
        list(each(_die, [0], 2))
