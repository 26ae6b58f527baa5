"""001 Figs 8 and 9: the latency over several rings, against that of one ring of as many nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import COLOURS, lines
from ordercast.lab.grid import Run, Settings, product
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, HOSTS, MESSAGE, PAPER, network_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames
    from ordercast.lab.rings_model import RingsModel

NODES = 40
ONE, HALVES, LINE, STAR = "1 ring of 40", "2 rings of 20", "4 rings in a line", "4 rings in a star"
WINDOWS: Settings = {"window_size": 1024, "max_outstanding": 8192, "max_messages": 256}
"""So wide that they limit nothing: in 001, "flow-control parameters were adjusted to maximize throughput"."""


def attached(topology: str) -> dict[str, tuple[int, ...]]:
    """001 Fig. 8: by node, the networks that it is attached to. A gateway is one of the forty."""
    rings = {ONE: 1, HALVES: 2}.get(topology, 4)
    first = {node: 1 + (node - 1) * rings // NODES for node in range(1, NODES + 1)}
    joined = {ONE: {}, HALVES: {20: 2}, LINE: {10: 2, 20: 3, 30: 4}, STAR: {8: 4, 9: 3, 10: 2}}[topology]
    return {
        str(node): (number, joined[node]) if node in joined else (number,) for node, number in first.items()
    }


TOPOLOGIES = (ONE, HALVES, LINE, STAR)


def grid(quick: bool) -> list[Run]:
    """Loads on each topology, all agreed and all safe."""
    hosts = {name: value for name, value in HOSTS[EIGHT].items() if name != "nodes"}
    rates = (500,) if quick else (250, 500, 1000, 2000, 4000, 6000, 8000)
    return [
        Run(
            protocol="totem" if point["topology"] == ONE else "rings",
            nodes=NODES,
            rate=point["rate"],
            size=MESSAGE[EIGHT],
            safe=point["safe"],
            seconds=0.5 if quick else 1.0,
            settings={
                **PAPER,
                **WINDOWS,
                **({} if point["topology"] == ONE else {"networks": attached(point["topology"])}),
            },
            labels={"topology": point["topology"]},
            **hosts,
        )
        for point in product(topology=(ONE, STAR) if quick else TOPOLOGIES, rate=rates, safe=(0.0, 1.0))
    ]


def model_of(topology: str, rate: float) -> RingsModel:
    """What the model has to say of a topology."""
    from ordercast.lab.rings_model import ethernet_rings

    networks = {int(node): on for node, on in attached(topology).items()}
    return ethernet_rings(network_of(EIGHT), networks, rate=rate, size=MESSAGE[EIGHT])


class Latencies:
    """Mean latencies, in microseconds, by topology, guarantee and rate."""

    def __init__(self, frames: Frames) -> None:
        figures = ["latency_agreed_us", "latency_safe_us", "ordered_per_s", "rotation_us"]
        self._of = {
            (row["topology"], "safe" if row["safe"] else "agreed", int(row["rate"])): row
            for row in frames.mean(["topology", "safe", "rate"], figures).to_dict(orient="records")
        }
        self.rates = sorted({rate for _, _, rate in self._of})
        self.topologies = [
            each for each in TOPOLOGIES if any(topology == each for topology, _, _ in self._of)
        ]

    def __call__(self, topology: str, guarantee: str, rate: int) -> float:
        """The mean latency."""
        return float(self._of[topology, guarantee, rate][f"latency_{guarantee}_us"])

    def rotation_us(self, topology: str, rate: int) -> float:
        """The mean rotation of all rings."""
        return float(self._of[topology, "agreed", rate]["rotation_us"])

    def carried(self, topology: str, guarantee: str, rate: int) -> bool:
        """Whether as many messages were ordered as were sent, but for a tenth: some are on their way."""
        return float(self._of[topology, guarantee, rate]["ordered_per_s"]) >= 0.9 * rate

    def most(self, topology: str, guarantee: str) -> int:
        """The highest rate that was carried; 0 if none was."""
        return max((rate for rate in self.rates if self.carried(topology, guarantee, rate)), default=0)

    def frame(self) -> pd.DataFrame:
        """A row for each point that was carried."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"topology": topology, "guarantee": guarantee, "rate": rate, "latency_us": self(*key)}
                for key in sorted(self._of)
                for topology, guarantee, rate in (key,)
                if self.carried(*key)
            ]
        )


def claims(frames: Frames) -> list[Claim]:
    """001, "Multiple Rings", where every message goes to all rings; and how near the model comes."""
    latencies = Latencies(frames)
    several = [each for each in latencies.topologies if each != ONE]
    if ONE not in latencies.topologies or not several:
        return []
    found = [_lower(latencies, several, guarantee) for guarantee in ("agreed", "safe")]
    found.append(_more(latencies, several))
    found.append(_modelled(latencies))
    return found


def _lower(latencies: Latencies, several: list[str], guarantee: str) -> Claim:
    ratios = {
        (topology, rate): latencies(topology, guarantee, rate) / latencies(ONE, guarantee, rate)
        for topology in several
        for rate in latencies.rates
        if latencies.carried(ONE, guarantee, rate) and latencies.carried(topology, guarantee, rate)
    }
    told = "; ".join(
        f"{topology}: {min(its):.2f} to {max(its):.2f}"
        for topology in several
        if (its := [ratio for (of, _), ratio in ratios.items() if of == topology])
    )
    return Claim(
        says=f"Even with p1 = p2 = 1, several rings have a lower mean latency to {guarantee} delivery "
        f"than one ring" + (", and gain more than for agreed" if guarantee == "safe" else ""),
        where="001 Multiple Rings, Fig. 9",
        measured=f"latency as a share of one ring's, at {latencies.rates[0]} to {latencies.rates[-1]} "
        f"messages/s: "
        f"{told}",
        holds=all(ratio < 1 for ratio in ratios.values()),
        note="a node delivers when it has heard from all rings, so that the ways to them and back "
        "are added to a "
        "shorter wait for the token",
    )


def _more(latencies: Latencies, several: list[str]) -> Claim:
    most = {topology: latencies.most(topology, "agreed") for topology in (ONE, *several)}
    beyond = latencies.rates[-1]
    told = ", ".join(
        f"{topology} {'at least ' if rate == beyond else ''}{rate:,}" for topology, rate in most.items()
    )
    reached = most[ONE] == beyond
    return Claim(
        says="Several rings sustain more traffic than one ring, also with p1 = p2 = 1",
        where="001 Multiple Rings, Fig. 9",
        measured=f"highest rate of this grid that was carried, in messages/s: {told}",
        holds=None if reached else all(most[topology] > most[ONE] for topology in several),
        note="every ring carries every message, so that all have the same medium to fill; what "
        "differs is the time "
        "that tokens take to go round",
    )


def _modelled(latencies: Latencies) -> Claim:
    from ordercast.lab.totem_model import LoadTooHigh

    off: dict[str, float] = {}
    for topology in latencies.topologies:
        for rate in latencies.rates:
            try:
                model = model_of(topology, rate)
            except LoadTooHigh:
                continue
            if max(ring.load for ring in model.rings.values()) > 0.8:
                continue
            for guarantee, bounds in (("agreed", model.agreed_us()), ("safe", model.safe_us())):
                if latencies.carried(topology, guarantee, rate):
                    point = f"{topology}, {guarantee}, {rate}/s"
                    off[point] = abs(latencies(topology, guarantee, rate) / bounds.middle_us - 1)
    farthest = max(off, key=lambda point: off[point], default="")
    return Claim(
        says="The middle between the bounds of our model is within 15% of the means, up to 80% of what a "
        "ring can carry",
        where="docs/lab-model.md",
        measured=f"farthest off of {len(off)}: {off[farthest]:.1%} ({farthest})" if off else "none measured",
        holds=off[farthest] <= 0.15 if off else None,
    )


def figures(frames: Frames) -> list[Figure]:
    """Mean latency against traffic, agreed and safe, with the model's bounds for the star."""
    latencies = Latencies(frames)
    return [
        Figure(
            name="latency",
            title="Mean latency against traffic, every message to all rings (001 Fig. 9, p1 = p2 = 1)",
            caption="From submission to delivery, over all nodes; Poisson arrivals at all nodes. "
            "Only loads that "
            "were carried. Grey: the bounds of our model for four rings in a star (docs/lab-model.md).",
            drawing=lines(
                latencies.frame(),
                x="rate",
                y="latency_us",
                by="topology",
                panel="guarantee",
                x_label="messages per second, of all nodes",
                y_label="mean latency [ms]",
                scale=1e-3,
                panel_title=lambda guarantee: f"{guarantee} delivery",
                decorate=_band,
                order=latencies.topologies,
            ),
        )
    ]


def _band(axes: Axes, guarantee: Any) -> None:
    from ordercast.lab.totem_model import LoadTooHigh

    high = axes.get_xlim()[1]
    rates, low_ms, high_ms = [], [], []
    for rate in (high * step / 30 for step in range(1, 31)):
        try:
            model = model_of(STAR, rate)
        except LoadTooHigh:
            break
        bounds = model.agreed_us() if guarantee == "agreed" else model.safe_us()
        rates.append(rate)
        low_ms.append(bounds.low_us / 1000)
        high_ms.append(bounds.high_us / 1000)
    top = axes.get_ylim()[1]
    axes.fill_between(rates, low_ms, high_ms, color=COLOURS[-1], alpha=0.18, linewidth=0)
    axes.set_xlim(0, high)
    axes.set_ylim(0, top)


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers, beside the model's bounds."""
    latencies = Latencies(frames)
    return [
        Table(
            title=topology,
            columns=("messages/s", "rotation [ms]", "agreed [ms]", "bounds", "safe [ms]", "bounds"),
            rows=[_row(latencies, topology, rate) for rate in latencies.rates],
            note="A dash: more than was carried, or than the model's rings can carry.",
        )
        for topology in latencies.topologies
    ]


def _row(latencies: Latencies, topology: str, rate: int) -> tuple[Any, ...]:
    from ordercast.lab.totem_model import LoadTooHigh

    cells: list[Any] = [rate, f"{latencies.rotation_us(topology, rate) / 1000:.2f}"]
    try:
        model = model_of(topology, rate)
        told = [
            f"{b.low_us / 1000:.1f} to {b.high_us / 1000:.1f}" for b in (model.agreed_us(), model.safe_us())
        ]
    except LoadTooHigh:
        told = ["–", "–"]
    for guarantee, bounds in zip(("agreed", "safe"), told, strict=True):
        carried = latencies.carried(topology, guarantee, rate)
        cells += [f"{latencies(topology, guarantee, rate) / 1000:.2f}" if carried else "–", bounds]
    return tuple(cells)


EXPERIMENT = Experiment(
    name="rings-latency",
    title="Latency over several Totem rings",
    source="Repeats 001 (Totem: a fault-tolerant multicast group communication system), Figs 8 and "
    "9, p1 = p2 = 1",
    about=(
        "Forty nodes on one ring, on two, and on four in a line or in a star; a gateway is one of "
        "the forty. 001 "
        "does not say what its four topologies are: halves and quarters are ours. Poisson arrivals "
        "at all nodes, all "
        "asking for agreed delivery or all for safe.",
        "Every message goes to all rings (p1 = p2 = 1): messages that stay where their groups have "
        "members are not "
        "simulated here. 001's own figures come from an analytic model that it does not state.",
        ABOUT_HOSTS + " Forty such hosts: SPARCstation 20 on 100 Mb/s, for each ring a medium of its own.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
