"""Figures of ``ordercast lab run choose``: the candidates side by side, the best on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ordercast.lab.candidates import Candidate
from ordercast.lab.experiment import Figure
from ordercast.lab.figures import COLOURS, style, styles_of
from ordercast.lab.prediction import Predicted
from ordercast.lab.ranking import AGREED, REPLAY, SAFE, Entry
from ordercast.lab.traced_facts import Traced

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames

MOST_DRAWN = 6
"""Candidates whose latencies are drawn, one of each protocol."""
_GUARANTEES = {AGREED: COLOURS[0], SAFE: COLOURS[3]}
_QUIET = "#9aa5b1"


def overview(entries: Sequence[Entry]) -> Figure:
    """Latency, capacity, overhead and outage of every candidate, a row each."""
    import matplotlib.pyplot as plt

    places = list(range(len(entries)))
    with style():
        figure, grid = plt.subplots(
            1, 4, figsize=(13.5, 1.5 + 0.34 * len(entries)), sharey=True, width_ratios=(1.9, 1.3, 1, 1.2)
        )
        _latencies(grid[0], entries)
        _capacities(grid[1], entries)
        grid[2].barh(places, [entry.overhead for entry in entries], color=_shades(entries), height=0.6)
        grid[2].set_title("Overhead")
        grid[2].set_xlabel("other packets for each message")
        for name, part, colour in (
            ("crash", "crash_us", COLOURS[0]),
            ("return", "return_us", COLOURS[5]),
        ):
            before = [entry.crash_us / 1e3 if name == "return" else 0.0 for entry in entries]
            wide = [getattr(entry, part) / 1e3 for entry in entries]
            grid[3].barh(places, wide, left=before, color=colour, height=0.6, label=f"{name} of a node")
        grid[3].set_title("Outage")
        grid[3].set_xlabel("without a delivery [ms]")
        grid[3].legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), fontsize=8.5, ncols=2, borderpad=0)
        grid[0].set_yticks(places, [entry.candidate.name for entry in entries])
        grid[0].invert_yaxis()
        for axes in grid:
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
        for label, entry in zip(grid[0].get_yticklabels(), entries, strict=True):
            label.set_color("#1d2733" if entry.carries else _QUIET)
        figure.tight_layout()
        plt.close(figure)
    return Figure(
        name="overview",
        title="All candidates, the best on top",
        caption="Latency from submission to delivery, at every node: the dot is the mean, the line ends at "
        "the "
        "99th percentile. Throughput: what it delivers at most; the dashed line is the load. Grey: it does "
        "not "
        "carry the load. Outage: for how long nothing is delivered after a crash, and when that node comes "
        "back.",
        drawing=figure,
    )


def _shades(entries: Sequence[Entry]) -> list[str]:
    return [COLOURS[2] if entry.carries else _QUIET for entry in entries]


def _latencies(axes: Axes, entries: Sequence[Entry]) -> None:
    named: set[str] = set()
    for place, entry in enumerate(entries):
        for name, latency in sorted(entry.latency.items()):
            shift = -0.14 if name == AGREED else 0.14
            colour = _GUARANTEES[name] if entry.carries else _QUIET
            mean, most = latency.mean_us / 1e3, latency.p99_us / 1e3
            axes.plot([mean, most], [place + shift] * 2, color=colour, linewidth=2.2, alpha=0.55)
            axes.plot(
                [mean],
                [place + shift],
                color=colour,
                marker="o" if name == AGREED else "D",
                markersize=6,
                linestyle="",
                label=name if entry.carries and name not in named else None,
            )
            named |= {name} if entry.carries else set()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_title("Latency: mean, and up to p99")
    axes.set_xlabel("milliseconds")
    if named:
        axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), fontsize=8.5, ncols=2, borderpad=0)


def _capacities(axes: Axes, entries: Sequence[Entry]) -> None:
    axes.barh(
        range(len(entries)),
        [entry.capacity_per_s for entry in entries],
        color=_shades(entries),
        height=0.6,
    )
    load = max(entry.offered_per_s for entry in entries)
    axes.axvline(load, color="#1d2733", linestyle="--", linewidth=1.2)
    axes.set_xscale("log")
    axes.set_title("Throughput")
    axes.set_xlabel("messages/s")


def distributions(frames: Frames, entries: Sequence[Entry]) -> Figure:
    """How the latencies of the best candidate of each protocol are distributed."""
    import matplotlib.pyplot as plt

    guarantee = entries[0].guarantee
    best: dict[str, Entry] = {}
    for entry in entries:
        best.setdefault(entry.candidate.protocol, entry)
    drawn = list(best.values())[:MOST_DRAWN]
    density = frames.density(["candidate", "what"], guarantee)
    wanted = REPLAY if (density["what"] == REPLAY).any() else guarantee
    looks = styles_of([entry.candidate.protocol for entry in drawn])
    with style():
        figure, axes = plt.subplots(figsize=(8.6, 3.9))
        for entry in drawn:
            own = density[(density["candidate"] == entry.candidate.name) & (density["what"] == wanted)]
            if len(own):
                colour, _ = looks[entry.candidate.protocol]
                axes.step(*later(own), where="post", color=colour, label=entry.candidate.name)
        tail(axes, f"share of {guarantee} deliveries that take longer")
        figure.tight_layout()
        plt.close(figure)
    return Figure(
        name="latencies",
        title="How long deliveries take",
        caption="The share of deliveries that take longer than a time, without failures; the best "
        "candidate of each protocol. Where a line crosses the dotted one is its 99th percentile.",
        drawing=figure,
    )


def predicted(frames: Frames, like: Traced, beside: Sequence[Predicted]) -> Figure:
    """What the trace shows, and what is predicted for the protocol that made it."""
    import matplotlib.pyplot as plt

    name = Candidate(like.protocol, like.settings, "").name
    with style():
        figure, axes = plt.subplots(figsize=(8.6, 3.9))
        for each in beside:
            density = frames.density(["candidate", "what"], each.name)
            own = density[(density["candidate"] == name) & (density["what"] == REPLAY)]
            shown = each.shown.quantiles_us
            share = [1 - (at + 1) / len(shown) for at in range(len(shown))]
            colour = _GUARANTEES[each.name]
            axes.step(
                [us / 1e3 for us in shown], share, where="post", color="#1d2733", label=f"trace, {each.name}"
            )
            axes.step(
                *later(own), where="post", color=colour, linestyle="--", label=f"predicted, {each.name}"
            )
        tail(axes, "share of deliveries that take longer")
        figure.tight_layout()
        plt.close(figure)
    return Figure(
        name="prediction",
        title="How far to trust this",
        caption=f"Of {name}, which made the trace: what the blocks show that nothing was estimated from, "
        "and what a "
        "simulation says of them. Where a line crosses the dotted one is its 99th percentile.",
        drawing=figure,
    )


def tail(axes: Axes, what: str) -> None:
    """The scales of a figure that has times in milliseconds, and what share of deliveries takes longer."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 1.15)
    axes.axhline(0.01, color=_QUIET, linewidth=0.9, linestyle=":")
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, place: f"{100 * value:g}%")
    axes.set_xlabel("milliseconds")
    axes.set_ylabel(what)
    axes.legend(loc="lower left", fontsize=8.5)


def later(density: Any) -> tuple[list[float], list[float]]:
    """From the density of a latency by bucket: milliseconds, and the share of deliveries that take longer."""
    share = (density["density"] * (density["to_us"] - density["from_us"])).cumsum()
    return list(density["to_us"] / 1e3), [max(0.0, 1 - each) for each in share]
