from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_parts import ordercast, process

from fuzz_results import result
from ordercast.mutants import MUTANTS, hunt
from ordercast.mutants.hunt import hunt_one
from ordercast.sim.campaign import Campaign, SeedResult
from ordercast.trace.reader import read_runs

BROKEN = MUTANTS["no-transitional-configuration"]
"""A defect that shows in nearly every run."""


def test_a_campaign_adds_up_for_programs() -> None:
    said = ordercast("sim", "fuzz", "--seeds", "0:4", "--nodes", "2:4", "--jobs", 1, "--json")
    assert said.code == 0
    document = said.document
    assert document["runs"] == 4
    assert document["violations"] == document["not_converged"] == 0
    assert document["failures"] == []
    for name in ("events", "events_per_s", "receptions", "receptions_per_s", "receptions_per_cpu_s"):
        assert document[name] > 0
    assert document["coverage"]["crash"] > 0
    assert "recovery that failed" in document["coverage"]


def test_processes_share_the_work_and_change_nothing() -> None:
    words = ("sim", "fuzz", "--seeds", "3:7", "--nodes", 3, "--json")
    alone = ordercast(*words, "--jobs", 1).document
    shared = process(*words, "--jobs", 2).document
    for name in ("runs", "events", "receptions", "rows", "coverage", "failures"):
        assert alone[name] == shared[name]


def test_people_see_what_happened_and_a_verdict() -> None:
    said = ordercast("sim", "fuzz", "--seeds", "0:3", "--jobs", 1)
    assert said.code == 0
    for word in ("nodes", "configurations", "changes of state", "remerge", "recovery that failed"):
        assert word in said.out
    assert "gather → commit: consensus" in said.out
    assert "✓ 3 runs: no violation, and all converged" in said.out


def test_a_defect_is_found_and_the_printed_command_finds_it_again() -> None:
    with BROKEN.planted():
        said = ordercast("sim", "fuzz", "--seeds", "0:2", "--jobs", 1, "--json")
        assert said.code == 1
        document = said.document
        assert document["violations"] == 2
        for failure in document["failures"]:
            assert failure["property"] == "config-chain"
            program, *words = shlex.split(failure["replay"])
            assert program == "ordercast"
            assert "--faults" in words
            again = ordercast(*words, "--json")
            assert again.code == 1
            assert again.document["property"] == "config-chain"
            assert again.document["replay"] == failure["replay"]
    assert ordercast(*words, "--json").code == 0


def test_a_failure_is_told_to_people_with_its_command() -> None:
    with BROKEN.planted():
        said = ordercast("sim", "fuzz", "--seeds", 0, "--jobs", 1, "--no-shrink")
    assert said.code == 1
    assert "✗ seed 0: config-chain" in said.out
    assert "ordercast sim replay --protocol totem --seed 0 --nodes 2:7\n" in said.out
    assert "1 of 1 runs failed (config-chain 1" in said.out


def test_traces_are_kept(tmp_path: Path) -> None:
    ordercast("sim", "fuzz", "--seeds", "5:7", "--nodes", 2, "--jobs", 1, "--trace", tmp_path)
    assert [run for run, _ in read_runs(tmp_path)] == ["totem-5", "totem-6"]
    assert ordercast("audit", tmp_path, "--engine", "reference").code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--seeds", "x"), "--seeds: 'x' is no range of seeds: write 0:1000, or 5 for one"),
        (("--seeds", "5:5"), "--seeds: '5:5' holds no seed"),
        (("--seeds=-3",), "--seeds: '-3' is no range"),
        (("--nodes", "7:2"), "--nodes: '7:2': from the fewest nodes to the most"),
        (("--nodes", "0"), "--nodes: '0': from the fewest nodes"),
        (("--nodes", "some"), "--nodes: 'some' is no number of nodes"),
        (("--jobs", "0"), "--jobs"),
        (("--protocol", "paxos"), "--protocol: no protocol 'paxos'"),
        (("--trace", "/proc/nowhere"), "--trace: /proc/nowhere"),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], complaint: str) -> None:
    said = ordercast("sim", "fuzz", *words)
    assert said.code == 2
    assert complaint in said.sentence
    assert not said.out


# --- mutants ------------------------------------------------------------------------------------


def test_a_mutant_that_is_caught_is_told_with_the_seeds_it_took() -> None:
    said = ordercast("sim", "mutants", "--only", BROKEN.name, "--jobs", 1, "--json")
    assert said.code == 0
    document = said.document
    assert document["mutants"] == document["caught"] == 1
    assert document["alive"] == []
    assert document["seeds_needed"] == {BROKEN.name: 1}


def test_a_seed_that_fails_without_the_mutant_as_well_does_not_catch_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(campaign: Campaign, find: object, seed: int) -> SeedResult:
        fails = BROKEN.place.__dict__[BROKEN.attribute] is not right or seed in (3, 4)
        counts = {"total-order": 1} if fails else {}
        return SeedResult(result(seed, counts), 0.0, 2, ())

    right = BROKEN.place.__dict__[BROKEN.attribute]
    monkeypatch.setattr(hunt, "run_seed", failing)
    monkeypatch.setattr(hunt, "_is_right", hunt._is_right.__wrapped__)  # does not remember what is wrong here
    found = hunt_one(range(3, 9), (2, 2), BROKEN.name)
    assert found.failure is not None
    assert (found.seeds, found.failure.seed) == (3, 5)
    assert hunt_one(range(3, 5), (2, 2), BROKEN.name).failure is None


def test_a_mutant_that_survives_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = type(BROKEN)(
        name="harmless",
        protocol="totem",
        area="ordering",
        breaks="nothing at all",
        place=BROKEN.place,
        attribute=BROKEN.attribute,
        wrong=lambda right: right,
    )
    monkeypatch.setitem(MUTANTS, "harmless", harmless)
    words = ("sim", "mutants", "--only", "harmless", "--seeds", "0:2", "--nodes", 2, "--jobs", 1)
    said = ordercast(*words, "--json")
    assert said.code == 1
    assert said.document["alive"] == ["harmless"]
    told = ordercast(*words)
    assert told.code == 1
    assert "harmless: nothing at all" in told.out
    assert "1 of 1 mutants survive 2 seeds" in told.out


def test_mutants_are_hunted_in_processes_of_their_own() -> None:
    words = ("sim", "mutants", "--only", BROKEN.name, "--only", "never-merge", "--jobs", 2)
    said = process(*words)
    assert said.code == 0, said.err
    assert "all 2 mutants are caught" in said.out


def test_an_unknown_mutant_is_named() -> None:
    said = ordercast("sim", "mutants", "--only", "x-men")
    assert said.code == 2
    assert "no mutant is called 'x-men'; there are" in said.sentence


def test_a_protocol_is_fuzzed_with_process_groups_above_it_and_its_trace_says_so(tmp_path: Path) -> None:
    words = ("sim", "fuzz", "--protocol", "total+groups", "--seeds", "1:2", "--nodes", 3, "--jobs", 1)
    said = ordercast(*words, "--trace", tmp_path, "--json")
    assert said.code == 0, said
    assert said.document["coverage"]["process groups: configuration settled"] > 0
    judged = ordercast("audit", tmp_path, "--engine", "reference", "--json").document
    assert judged["promises"] == "view-synchrony+groups"
    assert judged["properties"]["group-synchrony"] == 0
    assert "live-groups" in judged["unchecked"]
    again = ordercast("sim", "replay", "--protocol", "total+groups", "--seed", 1, "--nodes", 3, "--json")
    assert again.document["coverage"] == said.document["coverage"]
    assert "--protocol total+groups" in again.document["replay"]
