"""The messages of a trace sent again, on a model of the machine that made it.

The traces are of simulations on networks whose delays are known: what is estimated has to be these.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from made_frames import made

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab import replay, steady_load
from ordercast.lab.candidates import Candidate, candidates, settings_of_a_node
from ordercast.lab.experiments.choose import choice
from ordercast.lab.grid import GridError, LabError, Run, checked
from ordercast.lab.prediction import Predicted
from ordercast.lab.profile import Profile, like_trace, profile_of
from ordercast.lab.ranking import Latency
from ordercast.lab.replay import BlockWindow
from ordercast.lab.trace_model import FEWEST, MOST_DELAYS, RUN, checked_settings, in_order, token_hops, traced
from ordercast.lab.traced import DELIVER, ORIGINATE, STABLE, SUBMIT, Rows, arrivals, latencies, stretch_of
from ordercast.lab.traced_facts import Shown
from ordercast.trace.reader import read_runs
from ordercast.trace.writer import TraceWriter

BEHIND, ALONE, SPREAD = [120, 160, 200], [60, 80, 100], [[70, 90], [100, 140]]
NET = {"behind_delays_us": BEHIND, "unicast_delays_us": ALONE, "multicast_delays_us": SPREAD}


def trace_of(directory: Path, protocol: str = "totem", run: str = "made", **more: Any) -> Path:
    """The trace of three nodes on a network with these delays."""
    load: dict[str, Any] = {"rate": 600.0, "seconds": 3.0, **more}
    declared = Run(
        protocol=protocol,
        nodes=3,
        size=100,
        network="measured",
        net=NET,
        settings=settings_of_a_node(protocol),
        bucket_us=10,
        **load,
    )
    with TraceWriter(directory, run, LAB_PROTOCOLS[protocol].heading) as trace:
        steady_load.conduct(declared, trace)
    return directory


def predicted(path: Path, found: Any) -> dict[str, float]:
    profile = like_trace(Profile(), found)
    runs = choice(profile, (found.protocol,)).grid(True)
    (run,) = (each for each in runs if each.labels["what"] == "replay")
    return dict(replay.conduct(run).figures)


# --- the model -----------------------------------------------------------------------------------


def test_the_delays_of_a_ring_are_found_and_its_latencies_predicted(tmp_path: Path) -> None:
    path = trace_of(tmp_path)
    found = traced(path, {}, 60_000)
    assert (found.protocol, found.nodes, found.size, found.safe) == ("totem", 3, 100, False)
    assert found.rate == pytest.approx(600, rel=0.25)  # of whole seconds, the first and the last not full
    assert np.mean(found.net["behind_delays_us"]) == pytest.approx(np.mean(BEHIND), rel=0.05)
    assert np.mean(found.net["unicast_delays_us"]) == pytest.approx(np.mean(ALONE), rel=0.05)
    near, far = found.net["multicast_delays_us"]
    assert np.mean(near) == pytest.approx(np.mean(SPREAD[0]), rel=0.05)
    assert np.mean(far) == pytest.approx(np.mean(SPREAD[1]), rel=0.05)
    assert found.late < 0.3
    figures, shown = predicted(path, found), found.tested["agreed"]
    assert figures["latency_agreed_us"] == pytest.approx(shown.mean_us, rel=0.1)
    assert figures["latency_agreed_p99_us"] == pytest.approx(shown.p99_us, rel=0.15)


def test_a_network_that_is_twice_as_slow_is_told_apart(tmp_path: Path) -> None:
    """Or else the check of the prediction could not fail."""
    found = traced(trace_of(tmp_path), {}, 60_000)
    slow = {
        name: (2 * np.array(table)).tolist()
        for name, table in found.net.items()
        if name != "multicast_delays_us"
    }
    slow["multicast_delays_us"] = found.net["multicast_delays_us"]
    figures = predicted(tmp_path, msgspec.structs.replace(found, net=slow))
    assert figures["latency_agreed_us"] > 1.3 * found.tested["agreed"].mean_us


def test_of_another_protocol_the_mean_is_found(tmp_path: Path) -> None:
    found = traced(trace_of(tmp_path, "total"), {}, 60_000)
    figures, shown = predicted(tmp_path, found), found.tested["agreed"]
    assert figures["latency_agreed_us"] == pytest.approx(shown.mean_us, rel=0.15)


def test_safe_messages_take_as_long_as_a_token_alone(tmp_path: Path) -> None:
    found = traced(trace_of(tmp_path, safe=1.0), {}, 60_000)
    assert found.safe
    assert found.net["multicast_delays_us"] == [found.net["unicast_delays_us"]]
    figures, shown = predicted(tmp_path, found), found.tested["safe"]
    assert figures["latency_safe_us"] == pytest.approx(shown.mean_us, rel=0.2)


def test_late_applications_wait_longer_for_the_token(tmp_path: Path) -> None:
    found = traced(trace_of(tmp_path), {}, 60_000)
    prompt, late = (
        predicted(tmp_path, msgspec.structs.replace(found, late=share))["latency_agreed_us"]
        for share in (0.0, 1.0)
    )
    assert late > prompt + 20


def rows(*some: tuple[int, int, int, int]) -> Rows:
    """Rows of time, node, event and message; a message's origin is its number."""
    columns = [np.array(column) for column in zip(*some, strict=True)]
    time_us, node, event, message = columns
    return Rows(time_us, node, event, message, message, message * 0, message * 0, message * 0 + 1)


def test_a_token_shows_where_two_visits_follow_at_neighbours() -> None:
    seen = rows(
        (0, 1, ORIGINATE, 1),
        (0, 1, STABLE, 1),  # the same visit
        (100, 2, STABLE, 1),
        (150, 5, STABLE, 1),
        (160, 5, DELIVER, 1),  # no visit
        (210, 1, ORIGINATE, 1),
        (400, 5, STABLE, 1),  # a visit at 2 left no row
    )
    took, had, shown = token_hops(seen, [1, 2, 5])
    assert took.tolist() == [100, 50, 60]
    assert had.tolist() == [1, 0, 0]
    assert shown.tolist() == [1, 1, 0]


def test_delays_stay_in_their_order_and_of_many_stretches_are_taken() -> None:
    assert in_order(np.array([70, 2_000, 60])) == [70, 2_000, 60]
    many = in_order(np.arange(3 * MOST_DELAYS))
    assert len(many) == MOST_DELAYS
    assert (many[0], many[-1]) == (0, 3 * MOST_DELAYS - 1)
    assert sum(after - before == 1 for before, after in pairwise(many)) >= MOST_DELAYS - MOST_DELAYS // RUN


def test_latencies_are_of_deliveries_of_chosen_messages() -> None:
    seen = rows(
        (10, 1, SUBMIT, 1), (20, 2, SUBMIT, 2), (40, 1, DELIVER, 1), (60, 2, DELIVER, 1), (90, 1, DELIVER, 2)
    )
    took, delivered = latencies(seen, SUBMIT)
    assert took.tolist() == [30, 50, 70]
    assert delivered.node.tolist() == [1, 2, 1]
    took, _ = latencies(seen, SUBMIT, seen.time_us > 15)
    assert took.tolist() == [70]
    took, _ = latencies(seen, ORIGINATE)
    assert took.tolist() == []


def test_every_other_block_is_measured() -> None:
    for tested in (False, True):
        window = BlockWindow(100, tested)
        window.begin_us, window.end_us = 1_000, 1_500
        held = [time_us for time_us in range(900, 1_700, 50) if window.holds(time_us)]
        assert held == (
            [1_100, 1_150, 1_300, 1_350] if tested else [1_000, 1_050, 1_200, 1_250, 1_400, 1_450]
        )
        assert window.length_us == (200 if tested else 300)


# --- reading -------------------------------------------------------------------------------------


def test_of_a_long_trace_a_window_in_the_middle_is_taken(tmp_path: Path) -> None:
    path = trace_of(tmp_path, seconds=6.0, rate=200.0)
    stretch, protocol = stretch_of(path, 500)
    assert protocol == "totem"
    coming = arrivals(stretch)
    assert len(coming) <= 500
    assert 0 <= coming[0].at_us <= coming[-1].at_us < stretch.to_us - stretch.from_us
    whole, _ = stretch_of(path, 100_000)
    assert whole.from_us < stretch.from_us < stretch.to_us < whole.to_us
    ((_, stored),) = read_runs(path)
    submitted = [row for row in stored if row[4] == "submit"]
    assert len(arrivals(whole)) == len(submitted)
    assert {each.node for each in arrivals(whole)} == {1, 2, 3}


def written(directory: Path, stored: Iterable[Any], heading: Any, run: str = "made") -> Path:
    with TraceWriter(directory, run, heading) as trace:
        trace.write(list(stored))
    return directory


def test_what_cannot_be_sent_again(tmp_path: Path) -> None:
    heading = LAB_PROTOCOLS["totem"].heading
    good = trace_of(tmp_path / "good", seconds=1.0)
    ((_, stored),) = read_runs(good)

    def refused(directory: Path, told: str, kind: type[Exception] = GridError, **settings: Any) -> None:
        with pytest.raises(kind, match=told):
            traced(directory, settings, 60_000)

    refused(tmp_path / "nothing", "no such trace")
    refused(tmp_path, "no Parquet")
    silent = [row for row in stored if row[4] != "submit"]
    refused(written(tmp_path / "silent", silent, heading), "no message is submitted")
    alone = [row for row in stored if row[0] == 1]
    refused(written(tmp_path / "alone", alone, heading), "of one node")
    few = [row for row in stored if row[4] != "submit" or (row[11] or 0) <= 5]
    refused(written(tmp_path / "few", few, heading), f"needs {2 * FEWEST}")
    refused(written(tmp_path / "rings", stored, {**heading, "protocol": "rings"}), "made by rings")
    refused(written(tmp_path / "nameless", stored, {}), "do not say which protocol")
    refused(good, "--set: totem", window_size="wide")
    fast = [(*row[:3], row[3] - 5_000 * (row[0] == 2), *row[4:]) for row in stored]
    refused(written(tmp_path / "clocks", fast, heading), "clocks of these nodes differ", LabError)
    written(tmp_path / "two", stored, heading)
    refused(written(tmp_path / "two", stored, heading, run="another"), "holds 2 runs")


def test_settings_are_read_as_the_protocol_has_them() -> None:
    assert checked_settings("totem", {"accelerated_window": "0", "packing": False}) == {
        "accelerated_window": 0,
        "packing": False,
    }


# --- what is made of it --------------------------------------------------------------------------

LIKE = {
    "path": "there",
    "run": "made",
    "protocol": "totem",
    "settings": {"accelerated_window": 0},
    "from_us": 0,
    "to_us": 2_000_000,
    "nodes": 3,
    "messages": 1_000,
    "rate": 500.0,
    "size": 100,
    "safe": False,
    "net": NET,
    "late": 0.5,
    "tested": {"agreed": {"deliveries": 9, "mean_us": 500.0, "p99_us": 900.0, "quantiles_us": [1, 2]}},
    "whole": {"agreed": {"deliveries": 18, "mean_us": 510.0, "p99_us": 950.0, "quantiles_us": [1, 2]}},
}


def a_profile() -> Profile:
    return profile_of({"nodes": 3, "rate": 500.0, "size": 100, "mtbf_s": 3_600, "like": LIKE})


def test_what_made_the_trace_is_a_candidate_and_all_send_its_messages() -> None:
    profile = a_profile()
    assert profile.words == ["--like", "there", "--set", "accelerated_window=0", "--mtbf", "1h"]
    runs = choice(profile).grid(True)
    assert len(checked(runs)) == len(runs)
    repeated = {run.labels["candidate"]: run for run in runs if run.labels["what"] == "replay"}
    assert set(repeated) == {"totem (accelerated_window 0)", *LAB_PROTOCOLS}
    assert {(run.network, run.nodes, run.labels["late"]) for run in repeated.values()} == {
        ("measured", 3, 0.5)
    }
    present = Candidate("totem", {"accelerated_window": 0}, "what made the trace")
    assert [each.name for each in candidates(("totem",), False, present)].count(present.name) == 1


def test_the_prediction_is_told_with_how_far_it_is_off() -> None:
    profile = a_profile()
    load = {"ordered_per_s": 500.0, "measured": 500.0, "window_us": 1e6, "refused": 0.0, "overhead": 1.0}
    crash = {
        "crash_silence_us": 1e5,
        "return_silence_us": 0.0,
        "crash_recovered": 1.0,
        "return_recovered": 1.0,
    }
    took = {"latency_agreed_us": 550.0, "latency_agreed_p99_us": 1_200.0}
    name = "totem (accelerated_window 0)"
    frames = made(
        [
            {"candidate": name, "what": "replay", "victim": 0, **load, **took},
            {"candidate": name, "what": "flat out", "victim": 0, **load},
            *({"candidate": name, "what": "crash", "victim": victim, **crash} for victim in (1, 3)),
        ]
    )
    of = choice(profile, ("totem",))
    answer = of.answer(frames)
    (told,) = answer["prediction"]
    assert told["off_by"] == {"mean": 0.1, "p99": pytest.approx(1 / 3, abs=1e-4)}
    assert told["within_20_percent"] is False
    assert "net" not in answer["profile"]["like"]
    advice = of.advice(frames)
    assert advice is not None
    assert "0.550 ms on average" in advice.says[-1]
    assert "too far off" in advice.says[-1]
    assert of.tables(frames)[0].rows[0][3] == "+10%"


def test_a_prediction_is_close_if_both_figures_are() -> None:
    shown = Shown(deliveries=1, mean_us=100.0, p99_us=200.0, quantiles_us=[1])

    def close(mean_us: float, p99_us: float) -> bool:
        latency = Latency(mean_us=mean_us, p99_us=p99_us)
        return Predicted(name="agreed", shown=shown, whole=shown, predicted=latency).close

    assert close(119.0, 161.0)
    assert not close(121.0, 200.0)
    assert not close(100.0, 159.0)


def test_a_run_that_repeats_a_trace_says_which() -> None:
    run = next(run for run in choice(a_profile()).grid(True) if run.labels["what"] == "replay")
    with pytest.raises(GridError, match="do not say late"):
        replay.check(
            msgspec.structs.replace(run, labels={n: v for n, v in run.labels.items() if n != "late"})
        )
