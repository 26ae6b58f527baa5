"""The protocols ranked for a load and failures: what is run, how they are put in order, what is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_frames import made

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.contract import Multicast
from ordercast.lab import outage, steady_load
from ordercast.lab.candidates import VARIATIONS, Candidate, candidates, settings_of_a_node
from ordercast.lab.experiment import Sizes, experiment
from ordercast.lab.experiments import choose
from ordercast.lab.experiments.choose import choice, runs_of_profile
from ordercast.lab.grid import GridError, Run, checked
from ordercast.lab.laboratory import Laboratory, _options_of, _sizes_of, sized
from ordercast.lab.profile import Profile, duration_text, profile_of, seconds_of
from ordercast.lab.ranking import CRASH, FLAT_OUT, ranked, recommended
from ordercast.runtime.config import load
from ordercast.sim.network import Lan

PROFILE = Profile(nodes=4, rate=1_000, mtbf_s=3_600)


# --- what a user says ----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3_600), ("1.5d", 129_600)])
def test_times_between_failures(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert seconds_of(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["1", "h", "0h", "-1h", "1 h", "1y"])
def test_what_is_no_time_between_failures(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"nodes": 1}, "at least 2"),
        ({"rate": 0}, "--rate"),
        ({"size": -1}, "--size"),
        ({"loss": 1.0}, "--loss"),
        ({"network": "moon"}, "there are lan"),
        ({"net": {"moons": 1}}, "no 'moons'"),
        ({"rate": "many"}, "rate"),
    ],
)
def test_what_is_wrong_with_a_profile(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(GridError, match=told):
        profile_of(wrong)


def test_a_profile_is_for_one_group_and_for_choose_alone() -> None:
    chosen = experiment("choose")
    with pytest.raises(GridError, match="one group"):
        sized(chosen, True, Sizes(nodes=(3, 5)))
    with pytest.raises(GridError, match="no protocol 'raft'"):
        sized(chosen, True, Sizes(protocols=("raft",)))
    with pytest.raises(GridError, match="declares its loads itself"):
        sized(experiment("dtp"), True, Sizes(profile=PROFILE))
    _, runs = sized(chosen, True, Sizes(nodes=(3, 3), protocols=("cm",), profile=PROFILE))
    assert {(run.nodes, run.protocol, run.rate) for run in runs if run.labels["what"] == "agreed"} == {
        (3, "cm", 1_000.0)
    }


def test_what_was_asked_for_is_kept_with_the_results(tmp_path: Path) -> None:
    profile = Profile(nodes=8, rate=5_000, size=300, loss=0.001, mtbf_s=3_600, safe=True)
    sizes = Sizes(profile=profile, protocols=("totem",))
    lab = Laboratory(choose.EXPERIMENT, tmp_path, quick=True, sizes=sizes)
    words = "--nodes 8 --rate 5000 --size 300 --loss 0.001 --mtbf 1h --safe --quick"
    assert words in lab.command("0")
    assert _sizes_of(_options_of(sizes)) == sizes


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
def test_every_run_of_the_grid_can_be_run(quick: bool) -> None:
    runs = experiment("choose").grid(quick)
    assert len(checked(runs)) == len(runs)
    assert {run.protocol for run in runs} == set(LAB_PROTOCOLS)


def test_every_variation_is_tried_with_some_protocol_and_its_configuration_is_one(tmp_path: Path) -> None:
    chosen = candidates(None, False)
    assert len({each.name for each in chosen}) == len(chosen)
    for variation in VARIATIONS:
        assert any(each.changes == variation.settings for each in chosen)
    for each in chosen:
        path = tmp_path / "node.toml"
        path.write_text(each.configuration)
        config = load(path)
        assert config.protocol == each.protocol
        assert config.protocol_settings == each.changes


def test_candidates_have_the_settings_of_a_node() -> None:
    usual = settings_of_a_node("totem")
    assert usual["token_loss_us"] == 150_000
    assert int(str(usual["packet_size"])) > 10_000  # a train of datagrams
    assert Candidate("totem", {"accelerated_window": 0}, "").settings["accelerated_window"] == 0


def a_run(what: str, protocol: str = "totem", **more: Any) -> Run:
    runs = runs_of_profile(PROFILE, [Candidate(protocol, {}, "")], True, range(1))
    found = next(run for run in runs if run.labels["what"] == what)
    return msgspec.structs.replace(found, **more)


def test_a_load_that_is_carried_and_one_that_is_not() -> None:
    slow = {"receive_us": 300, "send_us": 300, "unicast_us": 300}
    easy = steady_load.conduct(a_run("agreed", seconds=0.3)).figures
    assert easy["ordered_per_s"] == pytest.approx(1_000, rel=0.2)
    assert easy["unsettled"] == easy["refused"] == 0
    hard = steady_load.conduct(a_run("agreed", seconds=0.3, rate=40_000.0, size=30_000, net=slow)).figures
    assert hard["ordered_per_s"] < 0.9 * (hard["measured"] + hard["refused"]) / 0.3


@pytest.mark.parametrize("victim", [1, 4])
def test_an_outage_takes_what_the_timeouts_of_a_node_say(victim: int) -> None:
    figures = outage.conduct(a_run(CRASH, labels={"victim": victim})).figures
    assert figures["crash_recovered"] == figures["return_recovered"] == 1
    assert 150_000 < figures["crash_silence_us"] < 400_000  # Totem's token_loss_us, and forming
    assert figures["return_silence_us"] < 100_000


def test_a_victim_has_to_be_there() -> None:
    with pytest.raises(GridError, match="victim"):
        outage.check(a_run(CRASH, labels={"victim": 5}))


def test_each_byte_costs_its_receiver_and_each_copy_its_sender() -> None:
    costs = Lan(send_us=10, receive_us=5, unicast_us=7, byte_ns=3)
    assert costs.sending_us(Multicast(bytes(1_000)), nodes=5) == 10 + 4 * 3
    assert (costs.hearing_us(1_000, unicast=False), costs.hearing_us(1_000, unicast=True)) == (8, 10)
    assert Lan(byte_ns=1).takes_time


# --- how they are put in order -------------------------------------------------------------------


def rows(candidate: str, mean_us: float, **more: float) -> list[dict[str, Any]]:
    """What came of the runs of a candidate."""
    load = {
        "ordered_per_s": more.get("ordered_per_s", 1_000.0),
        "measured": 1_000.0,
        "window_us": 1e6,
        "refused": more.get("refused", 0.0),
        "overhead": 1.0,
    }
    times = {"latency_agreed_us": mean_us, "latency_agreed_p99_us": 3 * mean_us}
    safe = {"latency_safe_us": 2 * mean_us, "latency_safe_p99_us": 4 * mean_us}
    crashes: list[dict[str, Any]] = [
        {
            "what": CRASH,
            "victim": victim,
            "crash_silence_us": more.get(f"crash_{victim}", 100_000.0),
            "return_silence_us": 0.0,
            "crash_recovered": 1.0,
            "return_recovered": more.get("recovered", 1.0),
        }
        for victim in (1, 4)
    ]
    found: list[dict[str, Any]] = [
        {"what": "agreed", "victim": 0, **load, **times},
        {"what": "safe", "victim": 0, **load, **safe},
    ]
    found.append({"what": FLAT_OUT, "victim": 0, **load, "ordered_per_s": 50_000.0})
    return [{"candidate": candidate, **row} for row in [*found, *crashes]]


TOTEM, CM, TUNED = Candidate("totem", {}, ""), Candidate("cm", {}, ""), Candidate("cm", {"window": 32}, "")


def order(*some: list[dict[str, Any]], profile: Profile = PROFILE) -> list[str]:
    frames = made([row for each in some for row in each])
    return [entry.candidate.name for entry in ranked(frames, [TOTEM, CM, TUNED], profile)]


def test_the_quicker_one_is_better_and_who_has_no_runs_is_left_out() -> None:
    assert order(rows("totem", 500.0), rows("cm", 400.0)) == ["cm", "totem"]


def test_who_does_not_carry_the_load_or_does_not_recover_comes_last() -> None:
    slow = rows("totem", 500.0)
    assert order(slow, rows("cm", 400.0, ordered_per_s=900.0)) == ["totem", "cm"]
    assert order(slow, rows("cm", 400.0, refused=100.0)) == ["totem", "cm"]
    assert order(slow, rows("cm", 400.0, recovered=0.5)) == ["totem", "cm"]
    assert order(rows("totem", 1.0, ordered_per_s=10.0), rows("cm", 900.0, ordered_per_s=20.0)) == [
        "cm",
        "totem",
    ]


def test_failures_count_by_the_square_of_the_outage() -> None:
    """Four nodes, each failing once an hour; one in four failures is of the first, with 2 s of silence."""
    frames = made(rows("totem", 500.0, crash_1=2_000_000.0, crash_4=400_000.0))
    (entry,) = ranked(frames, [TOTEM], PROFILE)
    assert entry.crash_us == pytest.approx(0.25 * 2_000_000 + 0.75 * 400_000)
    assert entry.outage_s_per_hour == pytest.approx(4 * 0.8)
    assert entry.expected_us == pytest.approx(500 + 4 / 3_600 * 0.8**2 / 2 * 1e6)
    often, seldom = Profile(nodes=4, mtbf_s=3_600), Profile(nodes=4, mtbf_s=3_600 * 24 * 365)
    late = rows("totem", 400.0, crash_1=3_000_000.0, crash_4=3_000_000.0)
    assert order(late, rows("cm", 500.0), profile=often) == ["cm", "totem"]
    assert order(late, rows("cm", 500.0), profile=seldom) == ["totem", "cm"]


def test_the_ranking_goes_by_the_guarantee_that_is_asked_for() -> None:
    profile = Profile(nodes=4, mtbf_s=3_600, safe=True)
    (entry,) = ranked(made(rows("cm", 400.0)), [CM], profile)
    assert entry.mean_us == 800.0
    nothing = [row for row in rows("cm", 400.0) if row["what"] != "safe"]
    nothing.append(rows("cm", math.nan)[1])
    (entry,) = ranked(made(nothing), [CM], profile)
    assert entry.mean_us == math.inf


def test_settings_that_gain_next_to_nothing_are_not_recommended() -> None:
    def best(usual_us: float) -> str:
        frames = made([*rows("totem", 900.0), *rows("cm", usual_us), *rows("cm (window 32)", 400.0)])
        return recommended(ranked(frames, [TOTEM, CM, TUNED], PROFILE)).candidate.name

    assert best(405.0) == "cm"
    assert best(700.0) == "cm (window 32)"


# --- what is told --------------------------------------------------------------------------------


def test_the_advice_names_settings_or_says_that_nobody_carries_the_load() -> None:
    asked = choice(PROFILE, ("totem", "cm"))
    frames = made([*rows("totem", 900.0), *rows("cm (window 32)", 400.0), *rows("cm", 800.0)])
    advice = asked.advice(frames)
    assert advice is not None
    assert advice.says[0].startswith("Take cm (window 32): 0.40 ms on average")
    assert advice.configuration == 'protocol = "cm"\n\n[cm]\nwindow = 32\n'
    assert asked.answer(frames)["recommended"]["settings"] == {"window": 32}
    assert [row[0] for row in advice.ranking.rows] == ["cm (window 32)", "cm", "totem"]
    frames = made([*rows("totem", 900.0, ordered_per_s=600.0), *rows("cm", 400.0, ordered_per_s=500.0)])
    advice = asked.advice(frames)
    assert advice is not None
    assert advice.says[0].startswith("No protocol carries this load. totem comes closest, with 600 of 1,000")
    assert asked.answer(frames)["carried"] is False


def test_without_any_whole_candidate_it_is_said() -> None:
    with pytest.raises(GridError, match="no candidate"):
        choice(PROFILE, ("totem",)).advice(made(rows("totem", 1.0)[:2]))
