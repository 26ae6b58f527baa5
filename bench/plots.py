"""Drawings of what `bench/compare` measured, for docs/performance.md.

sudo bench/compare --sealed --rate-too --kill-too --json > figures.json
.venv/bin/python bench/plots.py figures.json docs/img
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.figures import PeerMissing, Row

COLOURS = {
    "ordercast": "#1b6ca8",
    "ordercast sealed": "#6fb1dd",
    "ordercast safe": "#6fb1dd",
    "corosync": "#d1793b",
    "pysyncobj": "#9a9a9a",
}
ORDER = tuple(COLOURS)
INK, FAINT = "#222222", "#888888"


def draw(answer: dict[str, Any], directory: Path) -> Iterator[Path]:
    """Every drawing that the figures allow, as SVG into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for mode, name, drawing in (
        ("flat", "throughput", _throughput),
        ("rate", "latency", _latency),
        ("kill", "gap", _gap),
    ):
        rows = [row for row in answer["rows"] if row["mode"] == mode]
        if rows:
            path = directory / f"{name}.svg"
            figure = drawing(_pyplot(), sorted(rows, key=_place), answer)
            # The same figures give the same bytes: no date, no random names.
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
            yield path


def _place(row: Row) -> tuple[int, int]:
    known = row["system"] in ORDER
    return row["size"], ORDER.index(row["system"]) if known else len(ORDER)


def _pyplot() -> Any:
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError:
        raise PeerMissing("drawing needs matplotlib: pip install 'ordercast[bench]'") from None
    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "ordercast",
            "font.family": "sans-serif",
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    return importlib.import_module("matplotlib.pyplot")


def _throughput(pyplot: Any, rows: Sequence[Row], answer: dict[str, Any]) -> Any:
    """A panel a size, each with its own scale: the ratio within a size is what counts."""
    sizes = sorted({row["size"] for row in rows})
    figure, panels = pyplot.subplots(1, len(sizes), figsize=(3.4 * len(sizes), 2.6), squeeze=False)
    for panel, size in zip(panels[0], sizes, strict=True):
        some = [row for row in rows if row["size"] == size]
        most = max(row["delivered_per_s"] for row in some)
        _bars(panel, some, [row["delivered_per_s"] for row in some], lambda value: f"{value:,.0f}", most)
        for place, row in enumerate(some):
            low, high = row["delivered_per_s_range"]
            panel.plot([low, high], [place, place], color=INK, linewidth=1)
        panel.set_title(f"{size:,} bytes", loc="left", fontsize=10)
        panel.tick_params(bottom=False, labelbottom=False)
        panel.spines["bottom"].set_visible(False)
    figure.suptitle(
        f"Messages delivered per second at each of {answer['nodes']} nodes, all sending flat out",
        x=0.02,
        ha="left",
    )
    figure.tight_layout()
    return figure


def _latency(pyplot: Any, rows: Sequence[Row], answer: dict[str, Any]) -> Any:
    """Median and tail of each system on one logarithmic scale."""
    figure, panel = pyplot.subplots(figsize=(7.5, 0.5 + 0.5 * len(rows)))
    for place, row in enumerate(rows):
        colour = COLOURS.get(row["system"], FAINT)
        panel.plot([row["p50_us"], row["p99_us"]], [place, place], color=colour, linewidth=2, zorder=1)
        panel.scatter([row["p50_us"]], [place], color=colour, s=45, zorder=2)
        panel.scatter([row["p99_us"]], [place], color="white", edgecolor=colour, s=35, zorder=2)
        panel.annotate(
            f"{_time(row['p50_us'])} … {_time(row['p99_us'])}",
            (row["p99_us"], place),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    panel.set_xscale("log")
    panel.set_xlim(right=max(row["p99_us"] for row in rows) * 12)
    _names(panel, rows)
    panel.set_xlabel("µs from send to the sender's own delivery: median (full) and 99th percentile (hollow)")
    panel.set_title(
        f"Latency, {answer['nodes']} nodes, each 1000 messages/s of {rows[0]['size']:,} bytes",
        loc="left",
        fontsize=12,
        pad=14,
    )
    return figure


def _gap(pyplot: Any, rows: Sequence[Row], answer: dict[str, Any]) -> Any:
    """How long the survivors delivered nothing."""
    figure, panel = pyplot.subplots(figsize=(7.5, 0.6 + 0.5 * len(rows)))
    gaps = [row["longest_gap_ms"] for row in rows]
    _bars(panel, rows, gaps, lambda value: f"{value:,.0f} ms", max(gaps))
    panel.tick_params(bottom=False, labelbottom=False)
    panel.spines["bottom"].set_visible(False)
    panel.set_title(
        f"Longest time without a delivery when one of {answer['nodes']} nodes is killed, under full load",
        loc="left",
        fontsize=12,
        pad=14,
    )
    return figure


def _bars(panel: Any, rows: Sequence[Row], values: Sequence[float], words: Any, most: float) -> None:
    colours = [COLOURS.get(row["system"], FAINT) for row in rows]
    panel.barh(range(len(rows)), values, color=colours, height=0.62)
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        reach = max(value, row["delivered_per_s_range"][1] if row["mode"] == "flat" else 0)
        panel.annotate(
            words(value), (reach, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9
        )
    panel.set_xlim(0, most * 1.45)
    _names(panel, rows)


def _names(panel: Any, rows: Sequence[Row]) -> None:
    panel.set_yticks(range(len(rows)), [row["system"] for row in rows])
    panel.tick_params(left=False)
    panel.spines["left"].set_visible(False)
    panel.invert_yaxis()


def _time(us: float) -> str:
    return f"{us:,.0f} µs" if us < 10_000 else f"{us / 1e3:,.0f} ms"


def main() -> None:
    """Draw what a file of `bench/compare --json` holds."""
    if len(sys.argv) != 3:
        sys.exit("use: plots.py FIGURES.json DIRECTORY, with what bench/compare --json printed")
    for path in draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])):
        print(path)


if __name__ == "__main__":
    main()
