"""How long a group takes to notice a failure and to go on: the times are taken where they should be."""

from __future__ import annotations

from typing import Any

import pytest
from made_frames import made, verdict

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab.change_meter import ChangeMeter, LongestSilence
from ordercast.lab.experiment import experiment
from ordercast.lab.experiments import reconfiguration
from ordercast.lab.experiments.reconfiguration import (
    FIRST,
    HEAL,
    OTHER,
    SPARCS,
    SUNS,
    USUAL,
    conduct,
    grid,
)
from ordercast.lab.grid import Run, checked
from ordercast.trace.schema import Row


def test_the_experiment_is_in_the_list() -> None:
    assert experiment("reconfiguration") is reconfiguration.EXPERIMENT


@pytest.mark.parametrize("quick", [True, False])
def test_every_run_of_the_grid_can_be_run(quick: bool) -> None:
    runs = grid(quick)
    assert len(checked(runs)) == len(runs)
    assert {run.protocol for run in runs} == set(LAB_PROTOCOLS)
    assert {run.labels["event"] for run in runs} == {FIRST, OTHER, HEAL}


def a_run(protocol: str, event: str) -> Run:
    """The one of the quick grid, in a group of three."""
    return next(
        run
        for run in grid(True)
        if (run.protocol, run.nodes, run.labels["event"]) == (protocol, 3, event)
        and run.labels["about"] == USUAL
    )


@pytest.mark.parametrize("protocol", ["totem", "cm", "rbp", "irbp"])
@pytest.mark.parametrize("event", [FIRST, HEAL])
def test_a_group_notices_installs_and_goes_on_in_this_order(protocol: str, event: str) -> None:
    outcome = conduct(a_run(protocol, event))
    figures = outcome.figures
    assert figures["recovered"] == 1
    assert not outcome.notes
    assert 0 < figures["detected_us"] <= figures["installed_us"] <= figures["resumed_us"]


@pytest.mark.parametrize("protocol", ["totem", "dtp"])
def test_a_crash_is_noticed_about_when_the_timeout_says(protocol: str) -> None:
    run = a_run(protocol, OTHER)
    timeout_us = 1000 * float(run.labels["timeout_ms"])
    figures = conduct(run).figures
    assert figures["detected_us"] == pytest.approx(timeout_us, rel=0.4)
    assert figures["silence_us"] == pytest.approx(figures["resumed_us"], rel=0.4)


def test_who_does_not_recover_is_told_of() -> None:
    """Of three, two crash: what is left is no majority."""
    run = a_run("cm", FIRST)
    faults = (*run.faults, run.faults[0].replace("crash 1", "crash 2"))
    outcome = conduct(Run(**{**_fields(run), "faults": faults, "seconds": 0.5}))
    assert outcome.figures["recovered"] == 0
    assert "installed_us" not in outcome.figures
    assert outcome.notes == ["not over 0.5 s after the fault"]


def _fields(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def row(node: int, time_us: int, event: str, members: tuple[int, ...] | None = None) -> Row:
    kind = "regular" if members else None
    place = (node, 0, 0, time_us, event, 1, 1, kind, members)
    return (*place, 1, 0, 1, 1, 1, 1, 0, "agreed", "", 1, *(None,) * 7)


def test_times_are_those_of_the_last_member() -> None:
    story = ChangeMeter(expected=(2, 3), steady=(2, 3), fault_us=1000)
    story.take([row(2, 900, "deliver"), row(3, 950, "deliver"), row(2, 1010, "deliver")])
    story.notice(1400)
    story.notice(1300)
    story.notice(800)
    story.take([row(2, 1500, "install", (2, 3)), row(3, 1550, "install", (1, 2, 3)), row(2, 1600, "deliver")])
    assert not story.over
    assert story.figures() == {"recovered": 0, "detected_us": 300}
    story.take([row(3, 1700, "install", (2, 3)), row(3, 1800, "deliver"), row(3, 2900, "deliver")])
    assert story.over
    assert story.figures() == {
        "recovered": 1,
        "detected_us": 300,
        "installed_us": 700,
        "resumed_us": 800,
        "silence_us": 800,
    }


def test_after_a_heal_the_end_of_a_life_is_noticing() -> None:
    story = ChangeMeter(expected=(1, 2, 3), steady=(1, 2), fault_us=1000)
    story.take([row(3, 1100, "halt"), row(3, 1200, "deliver")])
    assert story.figures()["detected_us"] == 100
    story.take([row(node, 1100, "install", (1, 2, 3)) for node in (1, 2, 3)])
    story.take([row(node, 1110, "deliver") for node in (1, 2)] + [row(3, 1900, "deliver")])
    assert story.figures()["silence_us"] == 110, "who was cut off is not asked how long it heard nothing"


def test_the_longest_silence_is_that_of_the_node_that_waited_longest() -> None:
    silence = LongestSilence((1, 2), since_us=1000)
    for node, time_us in ((1, 900), (3, 5000), (1, 1200), (2, 1700), (1, 1600), (2, 1800)):
        silence.delivered(node, time_us)
    assert silence.us == 700, "of node 2, from the beginning on"
    silence.ended(1900)
    assert silence.us == 700
    silence.ended(2500)
    assert silence.us == 900, "of node 1, to the end"


# --- verdicts ------------------------------------------------------------------------------------


def results(**changes: Any) -> list[dict[str, Any]]:
    """Results as the papers have them, but for some."""
    usual = {"detected_us": 100_000, "installed_us": 105_000, "resumed_us": 110_000, "silence_us": 110_000}
    points = [
        (USUAL, protocol, event, 5, 100) for protocol in LAB_PROTOCOLS for event in (FIRST, OTHER, HEAL)
    ]
    points += [(SUNS, "totem", FIRST, 5, 100), (SPARCS, "totem", FIRST, 8, 45)]
    own = {
        "rbp": {"installed_us": 190_000, "resumed_us": 200_000},
        "irbp": {"installed_us": 300_000, "resumed_us": 310_000},
        SPARCS: {"detected_us": 45_000, "installed_us": 55_000, "resumed_us": 60_000},
    }
    return [
        {
            "about": about,
            "protocol": protocol,
            "event": event,
            "nodes": nodes,
            "timeout_ms": timeout,
            "recovered": 1.0,
            **usual,
            **own.get(protocol, {}),
            **own.get(about, {}),
            **changes.get(protocol, {}),
            **changes.get(about, {}),
        }
        for about, protocol, event, nodes, timeout in points
    ]


def test_what_the_papers_have_passes_all_verdicts() -> None:
    claims = reconfiguration.claims(made(results()))
    assert len(claims) == 7
    assert [claim.says for claim in claims if claim.holds is not True] == []


@pytest.mark.parametrize(
    ("about", "changes"),
    [
        ("is installed, and goes on", {"dtp": {"recovered": 0.5}}),
        ("To form a new ring", {SUNS: {"resumed_us": 145_000}}),
        ("detected within 50 ms", {SPARCS: {"detected_us": 51_000}}),
        ("less than 20 ms", {SPARCS: {"resumed_us": 66_000}}),
        ("goes unnoticed", {"total": {"detected_us": 260_000}}),
        ("Reformation takes much longer", {"rbp": {"installed_us": 104_000}}),
        ("With i-views", {"irbp": {"silence_us": 290_000}}),
        ("With i-views", {"irbp": {"installed_us": 110_000}}),
    ],
)
def test_verdicts_follow_what_was_measured(about: str, changes: dict[str, Any]) -> None:
    assert verdict(reconfiguration.claims(made(results(**changes))), about) is False


def test_figures_and_tables_are_made_of_the_results() -> None:
    frames = made(results())
    assert len(reconfiguration.figures(frames)) == 4
    tables = reconfiguration.tables(frames)
    of_all = len(LAB_PROTOCOLS)
    assert [len(table.rows) for table in tables] == [of_all, of_all, of_all, 1, 1]
    assert tables[0].title == "Crash of the first member, ms from the fault"


def test_a_part_of_the_grid_is_judged_as_far_as_it_goes() -> None:
    """``--protocol totem --nodes 8:8``"""
    rows = [{**row, "nodes": 8} for row in results() if row["protocol"] == "totem"]
    assert all(claim.holds for claim in reconfiguration.claims(made(rows)))
    figures = reconfiguration.figures(made(rows))
    assert [figure.name for figure in figures] == ["installed-size", "silence-size"]
