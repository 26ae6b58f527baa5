"""What `bench/compare` makes of its figures. Its runs take minutes and root: none is made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import comparison  # noqa: E402
from peers import corosync, pysyncobj  # noqa: E402
from peers.figures import Row, median_row, summed_up  # noqa: E402


def row(system: str, delivered: float, size: int = 100, mode: str = "flat", **more: Any) -> Row:
    figures = {"sent_per_s": delivered / 3, "p50_us": 200.0, "p99_us": 900.0, "longest_gap_ms": 10.0}
    return {"system": system, "size": size, "mode": mode, "delivered_per_s": delivered, **figures, **more}


def answer(rows: list[Row]) -> dict[str, Any]:
    return comparison.document(comparison.parser().parse_args(["--repeat", "2"]), rows)


def test_a_run_is_the_median_of_its_nodes_and_the_worst_of_their_tails() -> None:
    nodes = [row("x", 10.0), row("x", 30.0, p99_us=5000.0), row("x", 20.0, longest_gap_ms=70.0)]
    summed = summed_up(nodes)
    assert (summed["delivered_per_s"], summed["p99_us"], summed["longest_gap_ms"]) == (20.0, 5000.0, 70.0)


def test_repeats_are_one_row_with_the_median_and_the_range() -> None:
    merged = median_row([row("x", 10.0, transport="udp"), row("x", 50.0), row("x", 20.0)])
    assert merged["delivered_per_s"] == 20.0
    assert merged["delivered_per_s_range"] == [10.0, 50.0]
    assert (merged["repeats"], merged["transport"]) == (3, "udp")


def test_the_ratio_is_to_the_best_transport_of_the_peer() -> None:
    rows = [
        row("ordercast", 800.0, order_equal=True),
        row("corosync", 50.0, transport="udp"),
        row("corosync", 100.0, transport="udpu"),
        row("pysyncobj", 20.0),
    ]
    told = answer(rows)
    assert told["ratios"] == {"corosync": {"100": 8.0}, "pysyncobj": {"100": 40.0}}
    assert [chosen["system"] for chosen in told["rows"]] == ["corosync", "ordercast", "pysyncobj"]
    assert told["order_equal"] is True
    assert len(told["all"]) == 4


def test_latency_and_gap_are_compared_where_they_were_measured() -> None:
    rows = [
        row("ordercast", 3000.0, 1024, "rate", p50_us=150.0),
        row("ordercast safe", 3000.0, 1024, "rate", p50_us=300.0),
        row("corosync", 3000.0, 1024, "rate", p50_us=300.0, transport="udp"),
        row("corosync", 3000.0, 1024, "rate", p50_us=100.0, transport="udpu"),
        row("ordercast", 900.0, 1024, "kill", longest_gap_ms=200.0),
        row("corosync", 9000.0, 1024, "kill", longest_gap_ms=2000.0, transport="udp"),
    ]
    told = answer(rows)
    assert told["latency_ratios"] == {"corosync": {"1024": 1.5}}
    assert told["safe_p50"] == {"1024": 2.0}
    assert told["gap_ratios"] == {"corosync": {"1024": 0.1}}
    assert told["ratios"] == {}


def test_one_run_out_of_order_is_told() -> None:
    rows = [row("ordercast", 1.0, order_equal=True), row("ordercast", 1.0, order_equal=False)]
    assert answer(rows)["order_equal"] is False


def test_sealing_is_compared_with_ordercast_itself() -> None:
    told = answer([row("ordercast", 100.0), row("ordercast sealed", 60.0)])
    assert told["sealed"] == {"100": 0.6}
    assert told["ratios"] == {}


def test_every_system_takes_its_turn_in_each_repeat() -> None:
    asked = comparison.parser().parse_args(["--sizes", "100,1024", "--rate-too", "--kill-too", "--sealed"])
    said = [say for say, _ in comparison.runs(asked)]
    assert said[:5] == [
        "ordercast, 100 B",
        "ordercast sealed, 100 B",
        "corosync over udp, 100 B",
        "corosync over udpu, 100 B",
        "pysyncobj, 100 B",
    ]
    assert "ordercast safe, 1000 messages/s a node" in said
    assert said[-1] == "corosync over udpu, a node killed"


def test_further_protocols_take_their_turns_and_are_compared_by_themselves() -> None:
    words = ["--sizes", "100", "--rate-too", "--kill-too", "--protocols", "total,dtp", "--no-pysyncobj"]
    asked = comparison.parser().parse_args(words)
    said = [say for say, _ in comparison.runs(asked)]
    assert said[:4] == [
        "ordercast, 100 B",
        "ordercast total, 100 B",
        "ordercast dtp, 100 B",
        "corosync over udp, 100 B",
    ]
    assert "ordercast total, 1000 messages/s a node" in said
    assert "ordercast dtp, a node killed" in said
    rows = [
        row("ordercast", 900.0),
        row("ordercast total", 800.0),
        row("ordercast dtp", 150.0),
        row("corosync", 100.0, transport="udp"),
        row("ordercast total", 3000.0, 1024, "rate", p50_us=100.0),
        row("corosync", 3000.0, 1024, "rate", p50_us=200.0, transport="udp"),
    ]
    told = comparison.document(asked, rows)
    assert told["ratios"] == {"corosync": {"100": 9.0}}
    assert told["protocols"]["total"]["ratios"] == {"corosync": {"100": 8.0}}
    assert told["protocols"]["total"]["latency_ratios"] == {"corosync": {"1024": 0.5}}
    assert told["protocols"]["dtp"]["ratios"] == {"corosync": {"100": 1.5}}


def test_a_protocol_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        comparison.parser().parse_args(["--protocols", "total,paxos"])
    assert "no protocol 'paxos'; there are totem" in capsys.readouterr().err


def test_a_system_that_is_not_installed_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install corosync" in str(corosync.missing())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install" in str(pysyncobj.missing())


def test_a_system_that_fails_does_not_end_the_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Row:
        raise RuntimeError("its daemons did not form a ring")

    asked = comparison.parser().parse_args(["--repeat", "1"])
    monkeypatch.setattr(
        comparison, "runs", lambda _: [("bad", fail), ("good", lambda: row("ordercast", 5.0))]
    )
    assert [taken["system"] for taken in comparison.take(asked)] == ["ordercast"]


def test_the_script_runs_with_any_python_and_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "compare"), "--help"], capture_output=True, text=True, check=True
    )
    assert "--sizes" in done.stdout
    assert (BENCH / "compare").stat().st_mode & 0o111


def test_drawings_are_made_of_the_figures_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib: pip install 'ordercast[bench]'")
    plots = pytest.importorskip("plots")
    rows = [row("ordercast", 800.0, mode=mode) for mode in ("flat", "rate", "kill")]
    told = json.loads(json.dumps(answer([*rows, row("corosync", 100.0, transport="udp")])))
    drawn = [path.read_bytes() for path in plots.draw(told, tmp_path)]
    assert len(drawn) == 3
    assert drawn == [path.read_bytes() for path in plots.draw(told, tmp_path)]
