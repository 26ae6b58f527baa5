"""001, "Multiple Rings": how latency and cost grow with the network, up to a thousand nodes on 85 rings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import COLOURS, lines
from ordercast.lab.grid import Run
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, HOSTS, MESSAGE, PAPER, network_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames

PER_RING = 12
"""Nodes that send first on each ring; gateways to other rings are some of them."""
FAN_OUT = 4
"""Rings that are joined to a ring on the side away from the first one, at most."""
RATE = 500
"""Messages a second, of all nodes together, whatever the size."""
NEAR, FAR = 0.2, 0.1
"""Probabilities that a message is needed on one of the rings beside, and on any other ring."""
RINGS = (1, 2, 5, 10, 21, 42, 85)
ONE_RING = (24, 40)
"""Nodes on a single ring, for comparison; larger ones are left to the model."""
TREE, SINGLE = "rings of 12 in a tree", "one ring"
SETTINGS = {**PAPER, "packing": True, "window_size": 1024, "max_outstanding": 8192, "max_messages": 256}


def attached(rings: int) -> dict[str, tuple[int, ...]]:
    """By node, the networks that it is attached to: rings in a tree, filled from the first one outwards."""
    networks: dict[int, tuple[int, ...]] = {
        node: (1 + (node - 1) // PER_RING,) for node in range(1, rings * PER_RING + 1)
    }
    for ring in range(2, rings + 1):
        parent, place = divmod(ring - 2, FAN_OUT)
        networks[parent * PER_RING + 1 + place] += (ring,)
    return {str(node): on for node, on in networks.items()}


def grid(quick: bool) -> list[Run]:
    """Networks of 12 to 1020 nodes, and single rings; all at one total rate."""
    hosts = {name: value for name, value in HOSTS[EIGHT].items() if name != "nodes"}
    points = [(TREE, rings * PER_RING, rings) for rings in (RINGS[:3] if quick else RINGS)]
    points += [(SINGLE, nodes, 1) for nodes in ONE_RING[: 1 if quick else None]]
    return [
        Run(
            protocol="rings" if rings > 1 else "totem",
            nodes=nodes,
            rate=RATE,
            size=MESSAGE[EIGHT],
            seconds=0.2 if quick else 0.4,
            settings={**SETTINGS, **({"networks": attached(rings)} if rings > 1 else {})},
            labels={"shape": shape, "rings": rings, "near": NEAR, "far": FAR},
            method="ordercast.lab.local_load",
            **hosts,
        )
        for shape, nodes, rings in points
    ]


# --- growth ----------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """How well a law of growth gives what was measured."""

    law: str
    r2: float
    """Share of the variance that it explains."""
    off: float
    """The largest error, as a share of what was measured."""
    told: str
    """The law with its numbers."""


def fits(nodes: Sequence[float], values: Sequence[float]) -> dict[str, Fit]:
    """Least squares of three laws: logarithmic, linear, and a power of the number of nodes."""
    import numpy as np

    n, y = np.array(nodes, dtype=float), np.array(values, dtype=float)
    found = {}
    for law, x in (("logarithmic", np.log2(n)), ("linear", n)):
        slope, start = np.polyfit(x, y, 1)
        told = f"{start:.3g} + {slope:.3g} {'log₂ n' if law == 'logarithmic' else 'n'}"
        found[law] = _fit(law, y, start + slope * x, told)
    exponent, start = np.polyfit(np.log(n), np.log(y), 1)
    power = np.exp(start) * n**exponent
    found["power"] = _fit("power", y, power, f"{np.exp(start):.3g} n^{exponent:.2f}")
    return found


def _fit(law: str, measured: Any, given: Any, told: str) -> Fit:
    left = float(((measured - given) ** 2).sum())
    whole = float(((measured - measured.mean()) ** 2).sum())
    return Fit(law, 1 - left / whole if whole else 1.0, float(abs(given / measured - 1).max()), told)


class Grown:
    """What was measured by the number of nodes: times in milliseconds, the rest for each message."""

    def __init__(self, frames: Frames) -> None:
        figures = ["latency_agreed_us", "known_us", "sent/data", "stats/forwarded", "stats/withheld"]
        figures += ["stats/vectors", "measured", "rotation_us"]
        rows = frames.mean(["shape", "nodes", "rings"], figures).to_dict(orient="records")
        self._of = {(row["shape"], int(row["nodes"])): row for row in rows}

    def nodes(self, shape: str, least: int = 1) -> list[int]:
        """The sizes that were measured, from so many rings on."""
        return sorted(n for of, n in self._of if of == shape and self._of[of, n]["rings"] >= least)

    def rings(self, nodes: int) -> int:
        """On how many rings so many nodes are."""
        return int(self._of[TREE, nodes]["rings"])

    def __call__(self, figure: str, nodes: int, shape: str = TREE) -> float:
        """A figure of one size."""
        row = self._of[shape, nodes]
        if figure.endswith("_us"):
            return float(row[figure]) / 1000
        if figure == "sent/data":
            return float(row[figure])
        found = float(row[figure])
        return found / float(row["measured"]) if found == found else 0.0


LATENCIES = {"latency_agreed_us": "agreed", "known_us": "safe"}
COSTS: dict[str, str] = {
    "sent/data": "packets beside tokens",
    "stats/forwarded": "forwarded with contents",
    "stats/withheld": "places forwarded",
    "stats/vectors": "Guarantee Vectors",
}


@cache
def single_ms(nodes: int, figure: str) -> float:
    """What our model says of one ring of so many nodes."""
    from ordercast.lab.totem_model import agreed_mean_us, ethernet_ring, safe_mean_us

    ring = ethernet_ring(network_of(EIGHT), nodes=nodes, rate=RATE, size=MESSAGE[EIGHT])
    return (agreed_mean_us if figure == "latency_agreed_us" else safe_mean_us)(ring) / 1000


def claims(frames: Frames) -> list[Claim]:
    """001 says one thing: logarithmically, not linearly. It is judged for latencies and for costs."""
    grown = Grown(frames)
    sizes = grown.nodes(TREE, least=2)
    if len(sizes) < 2:
        return []
    enough = len(sizes) > 3
    found = [_latency_grows(grown, sizes, figure, enough) for figure in LATENCIES]
    found.append(_beside_one_ring(grown, sizes, enough))
    return [
        *found,
        *(_cost_grows(grown, sizes, figure, enough) for figure in ("stats/forwarded", "sent/data")),
    ]


def _told(its: dict[str, Fit]) -> str:
    return "; ".join(
        f"{fit.law}: {fit.told}, R² = {fit.r2:.3f}, off by {fit.off:.0%} at most" for fit in its.values()
    )


def _grows(grown: Grown, sizes: list[int], figure: str) -> tuple[str, bool]:
    values = [grown(figure, nodes) for nodes in sizes]
    its = fits(sizes, values)
    measured = ", ".join(f"{value:.1f} at {nodes}" for nodes, value in zip(sizes, values, strict=True))
    return f"{measured}. {_told(its)}", its["logarithmic"].r2 > its["linear"].r2


def _latency_grows(grown: Grown, sizes: list[int], figure: str, enough: bool) -> Claim:
    measured, holds = _grows(grown, sizes, figure)
    return Claim(
        says=f"The latency to {LATENCIES[figure]} delivery grows logarithmically with the number of nodes, "
        "rather than linearly",
        where="001 Multiple Rings",
        measured=f"in ms, {measured}",
        holds=holds if enough else None,
        note="at the same traffic in all; what grows is the number of rings on the way through the tree",
    )


def _beside_one_ring(grown: Grown, sizes: list[int], enough: bool) -> Claim:
    last = sizes[-1]
    shares = {name: (grown(figure, last), single_ms(last, figure)) for figure, name in LATENCIES.items()}
    return Claim(
        says="Token-based protocols scale poorly to large systems, but several rings do not",
        where="001 Multiple Rings",
        measured=f"{last} nodes on {grown.rings(last)} rings: "
        + ", ".join(f"{its[0]:.1f} ms to {name}" for name, its in shares.items())
        + "; on one ring, by our model: "
        + ", ".join(f"{its[1]:.0f} ms" for its in shares.values()),
        holds=all(several < one / 2 for several, one in shares.values()) if enough else None,
        note="judged as less than half",
    )


def _cost_grows(grown: Grown, sizes: list[int], figure: str, enough: bool) -> Claim:
    measured, holds = _grows(grown, sizes, figure)
    contents = figure == "stats/forwarded"
    return Claim(
        says="With process-group locality, the cost of a message grows logarithmically with the number of "
        "nodes: " + ("how often its contents are forwarded" if contents else "packets beside tokens"),
        where="001 Multiple Rings",
        measured=f"for each message, {measured}",
        holds=holds if enough else None,
        note=""
        if contents
        else "the place of every message goes to every ring, where 001 sends nothing to rings without "
        "members of its groups; several places share a packet",
    )


# --- figures and tables --------------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """Latencies and costs against the number of nodes."""
    grown = Grown(frames)
    return [
        Figure(
            name="latency",
            title="Latency against the number of nodes, at the same traffic",
            caption=f"Rings of {PER_RING} nodes in a tree, {RATE} messages a second in all, over the nodes "
            "that need a message. Dashed: one ring, by our model; grey: the logarithm that comes closest.",
            drawing=lines(
                _frame(grown, LATENCIES),
                x="nodes",
                y="value",
                by="shape",
                panel="figure",
                x_label="nodes",
                y_label="mean latency [ms]",
                log_x=True,
                panel_title=lambda name: f"{name.capitalize()} delivery",
                decorate=_decorate_latency(grown),
                order=(TREE, SINGLE),
            ),
        ),
        Figure(
            name="cost",
            title="Cost of a message against the number of nodes",
            caption="In the whole network, for each message: packets beside tokens, which several messages "
            "or places may share; how often gateways forward it with its contents, and how often its place; "
            "Guarantee Vectors.",
            drawing=lines(
                _frame(grown, COSTS, shapes=(TREE,)),
                x="nodes",
                y="value",
                by="figure",
                x_label="nodes",
                y_label="for each message",
                log_x=True,
                log_y=True,
                decorate=_sizes,
                order=tuple(COSTS.values()),
            ),
        ),
    ]


def _frame(grown: Grown, figures: dict[str, str], shapes: Sequence[str] = (TREE, SINGLE)) -> pd.DataFrame:
    import pandas as pd

    rows = [
        {"shape": shape, "nodes": nodes, "figure": name, "value": grown(figure, nodes, shape)}
        for shape in shapes
        for figure, name in figures.items()
        for nodes in grown.nodes(shape)
    ]
    return pd.DataFrame([row for row in rows if row["value"]])


def _decorate_latency(grown: Grown) -> Callable[[Axes, Any], None]:
    def decorate(axes: Axes, name: Any) -> None:
        figure = {word: figure for figure, word in LATENCIES.items()}[name]
        sizes = grown.nodes(TREE, least=2)
        values = [grown(figure, nodes) for nodes in grown.nodes(TREE)]
        every = [PER_RING * 2 ** (step / 2) for step in range(14)]
        modelled = [single_ms(round(nodes), figure) for nodes in every]
        axes.plot(every, modelled, color=COLOURS[1], linestyle="--", linewidth=1.0, label="one ring, model")
        if len(sizes) > 2:
            import numpy as np

            slope, start = np.polyfit(np.log2(sizes), [grown(figure, nodes) for nodes in sizes], 1)
            drawn = [start + slope * np.log2(nodes) for nodes in every]
            axes.plot(every, drawn, color=COLOURS[-1], linewidth=3, alpha=0.4, zorder=1, label="logarithm")
        axes.set_ylim(0, 1.6 * max(values))
        _sizes(axes, name)

    return decorate


def _sizes(axes: Axes, _: Any) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    marks = [nodes for nodes in (12, 24, 60, 120, 252, 504, 1020) if nodes <= axes.get_xlim()[1] * 1.05]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda nodes, _: f"{nodes:.0f}")


def tables(frames: Frames) -> list[Table]:
    """Every size, in numbers."""
    grown = Grown(frames)
    rows = [
        (
            nodes,
            grown.rings(nodes),
            f"{grown('rotation_us', nodes):.2f}",
            *(f"{grown(figure, nodes):.1f}" for figure in LATENCIES),
            *(f"{single_ms(nodes, figure):.0f}" for figure in LATENCIES),
            *(f"{grown(figure, nodes):.2f}" for figure in COSTS),
        )
        for nodes in grown.nodes(TREE)
    ]
    one = ("agreed on one ring", "safe on one ring")
    return [
        Table(
            title="Latencies in milliseconds, and what each message costs",
            columns=("nodes", "rings", "rotation", *LATENCIES.values(), *one, *COSTS.values()),
            rows=rows,
            note="On one ring by our model. Safe: until a node that needs a message knows that all have it.",
        )
    ]


EXPERIMENT = Experiment(
    name="rings-scale",
    title="Totem on many rings, up to a thousand nodes",
    source="Tests what 001 says of larger networks: they scale logarithmically, rather than linearly",
    about=(
        f"Rings of {PER_RING} nodes in a tree: each has up to {FAN_OUT} of its nodes as gateways to further "
        f"rings. {RATE} messages of 1000 bytes a second in all, Poisson arrivals at all nodes, agreed "
        f"delivery. A ring is a process group. A message is for its own ring, with probability {NEAR} for "
        f"one beside it, and with probability {FAR} for any other: so locality is equally good at every "
        "size. Tree and probabilities are ours; 001 gives none.",
        "The time to safe delivery is that until a node that needs the message knows that all have it, "
        "which is when it would be delivered if it were safe. Small messages and places share packets.",
        ABOUT_HOSTS,
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
