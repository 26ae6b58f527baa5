"""Experiments that judge single sentences of the papers: what they measure, and verdicts either way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from made_frames import made, verdict

from ordercast.lab import absence, held, ring_load
from ordercast.lab.experiment import Experiment, experiment
from ordercast.lab.experiments import comparison, comparison_failures, dtp_limits, totem_faults, totem_flow
from ordercast.lab.frames import DECLARED
from ordercast.lab.grid import GridError, Run, checked, method_of
from ordercast.lab.ring_load import BACKLOG, TIMED

EXPERIMENTS = (
    totem_flow.EXPERIMENT,
    totem_faults.EXPERIMENT,
    comparison.EXPERIMENT,
    comparison_failures.EXPERIMENT,
    dtp_limits.EXPERIMENT,
)


@pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.name)
def test_the_experiment_is_in_the_list_and_can_be_run(each: Experiment) -> None:
    assert experiment(each.name) is each
    for quick in (True, False):
        runs = each.grid(quick)
        assert len(checked(runs)) == len(runs), "no run is there twice"


Figures = Callable[[Run], Mapping[str, float]]


def judged(each: Experiment, figures: Figures) -> list[Any]:
    """The verdicts if each run of the quick grid had these figures."""
    rows = [
        {**{name: getattr(run, name) for name in DECLARED}, **run.labels, **figures(run)}
        for run in each.grid(True)
    ]
    frames = made(rows, quick=True)
    assert each.figures(frames)
    assert all(table.rows for table in each.tables(frames))
    return each.claims(frames)


def flow(**changed: float) -> Figures:
    """What flow control as the papers have it would show; a change is one of "case" or of "rule"."""

    def figures(run: Run) -> dict[str, float]:
        case, rule = str(run.labels["case"]), str(run.labels["rule"])
        lost = {totem_flow.BOTH: 40.0, totem_flow.UNHEEDED: 100.0}.get(case, 0.0)
        lost = changed.get(case, lost)
        slow = case == totem_flow.SLOW
        return {
            "rate_variation": changed.get(rule, 0.6 if rule == BACKLOG else 0.7),
            "share_variation": 0.6,
            "ordered_per_s": changed.get("slowest", 4_000.0) if slow else 6_000.0,
            "latency_agreed_us": 2_000.0,
            "latency_agreed_p99_us": 5_000.0,
            "drops/overflow": lost,
            "stats/retransmissions": lost,
            "stats/packets": 1_000.0,
        }

    return figures


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        ("more uniform rate", {TIMED: 0.5}),
        ("overflow cannot occur", {totem_flow.SLOW: 1.0}),
        ("what the slowest processor can handle", {"slowest": 6_000.0}),
        ("excellent protection", {totem_flow.PAUSES: 5.0}),
        ("vulnerable to competition", {totem_flow.BOTH: 0.0}),
    ],
)
def test_verdicts_on_flow_control_follow_what_was_measured(about: str, changed: dict[str, float]) -> None:
    assert verdict(judged(totem_flow.EXPERIMENT, flow()), about) is True
    assert verdict(judged(totem_flow.EXPERIMENT, flow(**changed)), about) is False


def a_run(each: Experiment, **labels: object) -> Run:
    """The first of the quick grid with these labels."""
    return next(run for run in each.grid(True) if labels.items() <= run.labels.items())


def test_the_timed_token_takes_the_window_for_whoever_comes_first() -> None:
    """Flat out, who is visited first takes the whole window, and the others wait."""
    full = {"arrivals": "saturating", "seconds": 0.1}
    run = a_run(totem_flow.EXPERIMENT, about=totem_flow.SHARES)
    backlog, timed = (
        ring_load.conduct(msgspec.structs.replace(run, **full, labels={**run.labels, "rule": rule})).figures
        for rule in (BACKLOG, TIMED)
    )
    assert backlog["share_variation"] < 0.3
    assert timed["share_variation"] > 1


def test_foreign_packets_take_room_in_input_buffers() -> None:
    runs = [a_run(totem_flow.EXPERIMENT, case=case) for case in (totem_flow.PAUSES, totem_flow.BOTH)]
    calm, disturbed = (ring_load.conduct(msgspec.structs.replace(run, seconds=0.2)).figures for run in runs)
    assert calm["drops/overflow"] == 0
    assert disturbed["drops/overflow"] > 0
    assert disturbed["drops/not ordercast"] > 0, "no machine can read them"


def faults(recovery_us: float, alone: float) -> Figures:
    """A token that is lost costs so long; so many of ten rings have one member."""

    def figures(run: Run) -> dict[str, float]:
        if run.labels["about"] == totem_faults.TOKEN:
            return {
                "rotation_us": 8_000.0,
                "stats/rotation_us_max": 8_000.0 + recovery_us,
                "stats/rings": 0.0,
            }
        return {"installed": 10.0, "alone": alone, "together": 1.0}

    return figures


@pytest.mark.parametrize(
    ("about", "recovery_us", "alone", "holds"),
    [
        ("after the token was lost", 16_500, 0, True),
        ("after the token was lost", 30_000, 0, False),
        ("singleton membership", 16_000, 0.05, True),
        ("singleton membership", 16_000, 3, False),
    ],
)
def test_verdicts_on_token_loss_and_singletons(
    about: str, recovery_us: float, alone: float, holds: bool
) -> None:
    assert verdict(judged(totem_faults.EXPERIMENT, faults(recovery_us, alone)), about) is holds


def test_a_lost_token_and_a_crash_are_measured() -> None:
    lost = totem_faults.conduct(a_run(totem_faults.EXPERIMENT, timeout_ms=15)).figures
    assert 10_000 < lost["stats/rotation_us_max"] - lost["rotation_us"] < 25_000
    assert lost["drops/lose"] == 1
    formed = totem_faults.conduct(a_run(totem_faults.EXPERIMENT, about=totem_faults.FORMING))
    assert formed.figures == {"installed": 7.0, "alone": 0.0, "together": 1.0}


# --- the comparison ------------------------------------------------------------------------------


def normal(**changed: float) -> Figures:
    """Figures under which all claims hold; a change is one of a protocol's packets, or of a name below."""
    packets = {"rbp": 2.1, "cm": 2.1, "irbp": 2.1, "total": 3.2, "primary-backup": 8.0, "trmp": 1.5}
    rates = {"total": 30_000.0, "primary-backup": 30_000.0}

    def figures(run: Run) -> dict[str, float]:
        about, of = run.labels["about"], run.protocol
        heavy = about == comparison.HEAVY
        per_s = changed.get("one ack", 20_000.0) if run.labels.get("batch") == 1 else 30_000.0
        fixed = of in ("total", "primary-backup")
        return {
            "packets": changed.get(of, packets.get(of, 6.0)),
            "membership": 0.0,
            "latency_agreed_us": changed.get("heavy", 1_500.0) if heavy else 700.0,
            "latency_safe_us": 900.0,
            "ordered_per_s": per_s if about == comparison.ACKS else changed.get("full", rates.get(of, 5e4)),
            "work_variation": changed.get("variation", 0.4) if fixed else 0.01,
            "sent/req": changed.get("nacks", 0.02),
        }

    return figures


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        ("takes two messages", {"rbp": 3.0}),
        ("low network traffic", {"total": 1.5}),
        ("shine with", {"full": 3e4}),
        ("insignificantly few", {"nacks": 3.0}),
        ("several messages at once", {"one ack": 30_000.0}),
        ("Chang and Maxemchuk", {"heavy": 700.0}),
        ("sequencer is overloaded", {"variation": 0.1}),
    ],
)
def test_verdicts_on_normal_operation(about: str, changed: dict[str, float]) -> None:
    assert verdict(judged(comparison.EXPERIMENT, normal()), about) is True
    assert verdict(judged(comparison.EXPERIMENT, normal(**changed)), about) is False


def failing(**changed: float) -> Figures:
    """Figures under which all claims hold."""

    def figures(run: Run) -> dict[str, float]:
        of, first = run.protocol, run.labels["who"] == comparison_failures.FIRST
        if run.labels["about"] == comparison_failures.CRASH:
            backup = of in ("total", "primary-backup") and not first
            sequencer = of == "total" and first
            silence_us = changed.get("sequencer", 400e3) if sequencer else 110e3
            silence_us = changed.get("backup", 10e3) if backup else silence_us
            return {"crash_silence_us": silence_us, "return_silence_us": 5e3}
        spared = of in comparison_failures.I_VIEWS
        killed = 0.0 if spared else 1.0
        if run.labels["keep"] == "nothing":
            killed = changed.get("forgotten", 1.0)
        elif spared:
            killed = changed.get("spared", 0.0)
        return {"killed": killed, "silence_us": changed.get("silence", 110e3), "together": 1.0}

    return figures


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        ("failure of the sequencer", {"sequencer": 110e3}),
        ("delay the view change", {"backup": 110e3}),
        ("wrong suspicions from killing", {"spared": 1.0}),
        ("garbage collection", {"forgotten": 0.0}),
        ("avoid blocking", {"silence": 200e3}),
    ],
)
def test_verdicts_on_failures(about: str, changed: dict[str, float]) -> None:
    assert verdict(judged(comparison_failures.EXPERIMENT, failing()), about) is True
    assert verdict(judged(comparison_failures.EXPERIMENT, failing(**changed)), about) is False


@pytest.mark.parametrize(("protocol", "keep", "killed"), [("cm", "usual", 1), ("irbp", "usual", 0)])
def test_who_is_not_heard_for_a_while_is_killed_or_taken_back(protocol: str, keep: str, killed: int) -> None:
    runs = comparison_failures.grid(True)
    run = next(
        run
        for run in runs
        if run.protocol == protocol
        and (run.labels["about"], run.labels["keep"]) == (comparison_failures.AWAY, keep)
    )
    outcome = absence.conduct(run)
    assert outcome.figures["killed"] == killed
    assert outcome.figures["together"] == 1
    assert not outcome.notes


def test_who_is_not_heard_has_to_be_said() -> None:
    run = msgspec.structs.replace(a_run(comparison_failures.EXPERIMENT, keep="usual"), labels={})
    with pytest.raises(GridError, match="which node is the victim"):
        absence.check(run)


# --- DTP -----------------------------------------------------------------------------------------


def limits(**changed: float) -> Figures:
    """Figures under which all claims hold."""

    def figures(run: Run) -> dict[str, float]:
        failures = float(run.labels.get("failures", 0))
        most = changed.get("lossy", 0.0) if run.loss else changed.get("most", 0.0)
        took = changed.get("last", 6.0) if failures == 6 else failures
        return {
            "most_messages": 2 * run.nodes - 1 + most,
            "most_places": run.nodes - 1.0,
            "delivery_us": changed.get("safe", 6e3) if run.safe else 1e3 * took,
            "ordered_per_s": changed.get("rate", 990.0),
            "utilization": 1.0,
        }

    return figures


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        ("acknowledgements at most, also", {"lossy": 1.0}),
        ("the greater F", {"last": 2.0}),
        ("safe delivery", {"safe": 9e3}),
        ("three nodes", {"rate": 700.0}),
    ],
)
def test_verdicts_on_dtp_follow_what_was_measured(about: str, changed: dict[str, float]) -> None:
    assert verdict(judged(dtp_limits.EXPERIMENT, limits()), about) is True
    assert verdict(judged(dtp_limits.EXPERIMENT, limits(**changed)), about) is False


@pytest.mark.parametrize("nodes", [3, 5])
def test_the_bounds_on_what_dtp_keeps_are_reached_and_kept(nodes: int) -> None:
    """002 §4.2: 2n - 1 messages and n - 1 acknowledgements, where all send at all times."""
    run = next(run for run in dtp_limits.grid(True) if (run.nodes, run.loss) == (nodes, 0.0))
    assert method_of(run) is held.METHOD
    figures = held.conduct(msgspec.structs.replace(run, seconds=0.1)).figures
    assert figures["most_messages"] == 2 * nodes - 1
    assert figures["most_places"] == nodes - 1
