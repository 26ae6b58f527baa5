"""001 Figs 8 and 9: the latency over several rings, against that of one ring of as many nodes."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import COLOURS, lines
from ordercast.lab.grid import Run, Settings, product
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, HOSTS, MESSAGE, PAPER, network_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames
    from ordercast.lab.rings_model import Bounds, RingsModel

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
LOCAL, EVERYWHERE = "p1 = 0.1, p2 = 0.2", "p1 = p2 = 1"
LOCALITIES = {LOCAL: (0.1, 0.2), EVERYWHERE: (1.0, 1.0)}
"""001's probabilities that a message must go to the other half, and to the other quarter."""
RATES = {LOCAL: (500, 2000, 4000, 8000, 13000), EVERYWHERE: (500, 2000, 4000, 8000)}
BEYOND = 13000
"""More than one ring can carry, and all of them with p1 = p2 = 1."""
SECONDS = {500: 0.6, 2000: 0.25, 4000: 0.15, 8000: 0.15, BEYOND: 0.3}
"""How long is measured, by rate: so that some hundred messages are, or more."""
CARRIED = 0.9
"""A load is carried if so large a share of what is sent is ordered in the same time."""
SUBSTANTIALLY = 0.9
"""What "substantially lower" is taken to be: this share or less, at every rate that both carry."""
HIGHEST_MS = {"agreed": 30.0, "safe": 80.0}
"""Where the axes of latencies end."""
WITHIN = 0.15
"""How far the model may be off,"""
MODELLED = 0.8
"""where no ring carries more than this share of what it can."""


def grid(quick: bool) -> list[Run]:
    """Loads on each topology, local and not, all agreed and all safe."""
    hosts = {name: value for name, value in HOSTS[EIGHT].items() if name != "nodes"}
    return [
        Run(
            protocol="totem" if point["topology"] == ONE else "rings",
            nodes=NODES,
            rate=rate,
            size=MESSAGE[EIGHT],
            safe=point["safe"],
            seconds=SECONDS[rate] / (2 if quick else 1),
            settings={
                **PAPER,
                **WINDOWS,
                **({} if point["topology"] == ONE else {"networks": attached(point["topology"])}),
            },
            labels={"topology": point["topology"], "locality": locality, "p1": p1, "p2": p2},
            method="ordercast.lab.local_load",
            **hosts,
        )
        for locality, (p1, p2) in LOCALITIES.items()
        for rate in ((500,) if quick else RATES[locality])
        for point in product(topology=(ONE, STAR) if quick else TOPOLOGIES, safe=(0.0, 1.0))
        if not (rate == BEYOND and point["safe"])
    ]


@cache
def model_of(topology: str, rate: float, locality: str = EVERYWHERE, *, places: bool = True) -> RingsModel:
    """What the model has to say of a topology; without `places` as 001 has it, see `ethernet_rings`."""
    from ordercast.lab.locality import quarters
    from ordercast.lab.rings_model import ethernet_rings

    networks = {int(node): on for node, on in attached(topology).items()}
    needed = quarters(NODES, *LOCALITIES[locality])
    network = network_of(EIGHT)
    return ethernet_rings(network, networks, rate=rate, size=MESSAGE[EIGHT], locality=needed, places=places)


class Latencies:
    """Mean latencies at one locality, in microseconds, by topology, guarantee and rate."""

    def __init__(self, frames: Frames, locality: str) -> None:
        figures = ["latency_agreed_us", "latency_safe_us", "ordered_per_s", "measured", "window_us"]
        figures += ["rotation_us", "stats/withheld", "stats/forwarded", "utilization"]
        self.locality = locality
        self._of = {
            (row["topology"], "safe" if row["safe"] else "agreed", int(row["rate"])): row
            for row in frames.mean(["locality", "topology", "safe", "rate"], figures).to_dict(
                orient="records"
            )
            if row["locality"] == locality
        }
        self.rates = sorted({rate for _, _, rate in self._of})
        self.topologies = [
            each for each in TOPOLOGIES if any(topology == each for topology, _, _ in self._of)
        ]

    def __call__(self, topology: str, guarantee: str, rate: int) -> float:
        """The mean latency."""
        return self.figure(topology, rate, f"latency_{guarantee}_us", guarantee)

    def figure(self, topology: str, rate: int, name: str, guarantee: str = "agreed") -> float:
        """Another figure, of the runs with agreed delivery unless it is said otherwise; NaN without a run."""
        row = self._of.get((topology, guarantee, rate))
        return float("nan") if row is None else float(row[name])

    def carried(self, topology: str, guarantee: str, rate: int) -> bool:
        """Whether as many messages were ordered as were sent, but for a tenth: some are on their way."""
        row = self._of.get((topology, guarantee, rate))
        if row is None:
            return False
        return float(row["ordered_per_s"]) >= CARRIED * float(row["measured"]) / float(row["window_us"]) * 1e6

    def most(self, topology: str) -> int:
        """The highest rate that was carried; 0 if none was."""
        return max((rate for rate in self.rates if self.carried(topology, "agreed", rate)), default=0)

    def ratios(self, topology: str, guarantee: str) -> list[float]:
        """The latency as a share of that of one ring, at the rates that both carry."""
        return [
            self(topology, guarantee, rate) / self(ONE, guarantee, rate)
            for rate in self.rates
            if self.carried(ONE, guarantee, rate) and self.carried(topology, guarantee, rate)
        ]

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
    """001, "Multiple Rings"; and how near the model comes."""
    by = [Latencies(frames, locality) for locality in LOCALITIES]
    found = []
    for latencies in by:
        several = [each for each in latencies.topologies if each != ONE]
        if ONE in latencies.topologies and several:
            found += [_lower(latencies, several, guarantee) for guarantee in ("agreed", "safe")]
            found.append(_more(latencies, several))
            if latencies.locality == EVERYWHERE:
                found.append(_safe_most(latencies, several))
    return [*found, _modelled(by)] if found else []


def _range(ratios: list[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "nothing that both carried"


def _lower(latencies: Latencies, several: list[str], guarantee: str) -> Claim:
    ratios = {topology: latencies.ratios(topology, guarantee) for topology in several}
    local = latencies.locality == LOCAL
    most = max((ratio for its in ratios.values() for ratio in its), default=1.0)
    return Claim(
        says=("With p1 = 0.1 and p2 = 0.2" if local else "Even with p1 = p2 = 1")
        + f", several rings have a {'substantially ' if local else ''}lower mean latency to {guarantee} "
        "delivery than one ring at the same traffic",
        where="001 Multiple Rings, Fig. 9",
        measured=f"latency as a share of one ring's, at {latencies.rates[0]} messages/s and more: "
        + "; ".join(f"{topology}: {_range(its)}" for topology, its in ratios.items()),
        holds=most < (SUBSTANTIALLY if local else 1),
        note=("substantially is taken as by at least a tenth. " if local else "")
        + "A node delivers when it has heard from all rings, whoever needs the message: the ways to them and "
        "back are added to a shorter wait for the token",
    )


def _safe_most(latencies: Latencies, several: list[str]) -> Claim:
    gains = {
        topology: [
            sum(its) / len(its) if its else 1.0 for its in map(latencies.ratios, [topology] * 2, kinds)
        ]
        for topology in several
        for kinds in (("agreed", "safe"),)
    }
    return Claim(
        says="With p1 = p2 = 1 several rings gain for safe messages in particular",
        where="001 Multiple Rings",
        measured="mean share of one ring's latency, agreed and safe: "
        + "; ".join(f"{topology}: {agreed:.2f} and {safe:.2f}" for topology, (agreed, safe) in gains.items()),
        holds=all(safe < min(agreed, 1) for agreed, safe in gains.values()),
    )


def _more(latencies: Latencies, several: list[str]) -> Claim:
    most = {topology: latencies.most(topology) for topology in (ONE, *several)}
    beyond = latencies.rates[-1]
    local = latencies.locality == LOCAL
    told = ", ".join(
        f"{topology} {'at least ' if rate == beyond else ''}{rate:,}" for topology, rate in most.items()
    )
    can = {topology: _can_carry(topology, latencies.locality) for topology in most}
    without = {topology: _can_carry(topology, latencies.locality, places=False) for topology in most}
    return Claim(
        says="Several rings sustain "
        + (
            "substantially more traffic than one ring with p1 = 0.1 and p2 = 0.2"
            if local
            else "more traffic than one ring, also with p1 = p2 = 1"
        ),
        where="001 Multiple Rings, Fig. 9",
        measured=f"highest rate of this grid that was carried, in messages/s: {told}; by our model rings can "
        "carry " + ", ".join(f"{topology} {its:,}" for topology, its in can.items()),
        holds=None if most[ONE] == beyond else all(most[topology] > most[ONE] for topology in several),
        note="every ring carries the places of all messages; without them it would be "
        + ", ".join(f"{topology} {its:,}" for topology, its in without.items())
        if local
        else "every ring carries every message, so that all have the same medium to fill",
    )


def _can_carry(topology: str, locality: str, *, places: bool = True) -> int:
    """Messages a second at which the first of the model's rings is full, in hundreds."""
    rate = 1000.0
    loads = [ring.load for ring in model_of(topology, rate, locality, places=places).rings.values()]
    return int(rate / max(loads)) // 100 * 100


def _modelled(by: list[Latencies]) -> Claim:
    off: dict[str, float] = {}
    for latencies in by:
        for topology in latencies.topologies:
            for rate in latencies.rates:
                bounds = _bounds(topology, rate, latencies.locality)
                for guarantee, its in bounds.items():
                    if latencies.carried(topology, guarantee, rate):
                        point = f"{topology}, {latencies.locality}, {guarantee}, {rate}/s"
                        off[point] = latencies(topology, guarantee, rate) / its.middle_us - 1
    farthest = max(off, key=lambda point: abs(off[point]), default="")
    beyond = [point for point, its in off.items() if abs(its) > WITHIN]
    return Claim(
        says="The middle between the bounds of our model is within 15% of the means, up to 80% of what a "
        "ring can carry",
        where="docs/lab-model.md",
        measured=f"farthest off of {len(off)}: {off[farthest]:+.1%} ({farthest})" if off else "none measured",
        holds=not beyond if off else None,
        note=f"beyond 15%: {len(beyond)}: {'; '.join(beyond)}" if beyond else "",
    )


def _bounds(topology: str, rate: float, locality: str, most: float = MODELLED) -> dict[str, Bounds]:
    """The model's bounds by guarantee; none where a ring is loaded more than that."""
    from ordercast.lab.totem_model import LoadTooHigh

    try:
        model = model_of(topology, rate, locality)
    except LoadTooHigh:
        return {}
    if max(ring.load for ring in model.rings.values()) > most:
        return {}
    return {"agreed": model.agreed_us(), "safe": model.safe_us()}


def figures(frames: Frames) -> list[Figure]:
    """Mean latency against traffic, agreed and safe, with the model's bounds for the star."""
    found = []
    for name, locality in (("latency-local", LOCAL), ("latency-everywhere", EVERYWHERE)):
        latencies = Latencies(frames, locality)
        drawing = lines(
            latencies.frame(),
            x="rate",
            y="latency_us",
            by="topology",
            panel="guarantee",
            x_label="messages per second, of all nodes",
            y_label="mean latency [ms]",
            scale=1e-3,
            panel_title=lambda guarantee: f"{guarantee.capitalize()} delivery",
            decorate=partial(_band, locality),
            order=latencies.topologies,
        )
        caption = (
            f"With {locality}. From submission to delivery, over the nodes that need the message; Poisson "
            "arrivals at all nodes. Only loads that were carried. Grey: the bounds of our model for four "
            "rings in a star (docs/lab-model.md)."
        )
        title = f"Mean latency against traffic, {locality} (001 Fig. 9)"
        found.append(Figure(name=name, title=title, caption=caption, drawing=drawing))
    return found


def _band(locality: str, axes: Axes, guarantee: Any) -> None:
    high = axes.get_xlim()[1]
    rates, low_ms, high_ms = [], [], []
    for rate in (high * step / 30 for step in range(1, 31)):
        bounds = _bounds(STAR, rate, locality, most=1.0)
        if not bounds:
            break
        rates.append(rate)
        low_ms.append(bounds[guarantee].low_us / 1000)
        high_ms.append(bounds[guarantee].high_us / 1000)
    top = min(HIGHEST_MS[guarantee], axes.get_ylim()[1])
    axes.fill_between(rates, low_ms, high_ms, color=COLOURS[-1], alpha=0.25, linewidth=0)
    axes.set_xlim(0, high)
    axes.set_ylim(0, top)
    axes.set_xticks(range(0, int(high) + 1, 2000))
    axes.xaxis.set_major_formatter(lambda rate, _: f"{rate / 1000:g}k" if rate else "0")


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers, beside the model's bounds; and what places cost."""
    found = []
    for locality in LOCALITIES:
        latencies = Latencies(frames, locality)
        found += [
            Table(
                title=f"{topology}, {locality}",
                columns=("messages/s", "rotation [ms]", "agreed [ms]", "bounds", "safe [ms]", "bounds"),
                rows=[_row(latencies, topology, rate) for rate in latencies.rates],
                note="A dash: more than was carried, or than the model's rings can carry.",
            )
            for topology in latencies.topologies
        ]
    return [*found, *_places(Latencies(frames, LOCAL))]


def _row(latencies: Latencies, topology: str, rate: int) -> tuple[Any, ...]:
    rotation_us = latencies.figure(topology, rate, "rotation_us")
    cells: list[Any] = [rate, f"{rotation_us / 1000:.2f}" if rotation_us == rotation_us else "–"]
    bounds = _bounds(topology, rate, latencies.locality, most=1.0)
    for guarantee in ("agreed", "safe"):
        carried = latencies.carried(topology, guarantee, rate)
        its = bounds.get(guarantee)
        cells.append(f"{latencies(topology, guarantee, rate) / 1000:.2f}" if carried else "–")
        cells.append(f"{its.low_us / 1000:.1f} to {its.high_us / 1000:.1f}" if its else "–")
    return tuple(cells)


def _places(latencies: Latencies) -> list[Table]:
    """001 leaves out what nobody needs; here its place goes everywhere. By our model, what that costs."""
    rows = []
    for topology in latencies.topologies:
        if topology == ONE:
            continue
        for rate in (each for each in (500, 4000, 8000) if latencies.carried(topology, "agreed", each)):
            withheld, forwarded = (
                latencies.figure(topology, rate, f"stats/{name}") for name in ("withheld", "forwarded")
            )
            sent = latencies.figure(topology, rate, "measured")
            cells = [topology, rate, f"{forwarded / sent:.2f}", f"{withheld / sent:.2f}"]
            for places in (True, False):
                model = model_of(topology, rate, LOCAL, places=places)
                cells += [
                    f"{max(ring.load for ring in model.rings.values()):.0%}",
                    f"{model.agreed_us().middle_us / 1000:.1f}",
                    f"{model.safe_us().middle_us / 1000:.1f}",
                ]
            rows.append(tuple(cells))
    with_places = ("load", "agreed [ms]", "safe [ms]")
    without = tuple(f"{column} without places" for column in with_places)
    return (
        [
            Table(
                title=f"What places cost, {LOCAL}",
                columns=("", "messages/s", "forwarded", "places", *with_places, *without),
                rows=rows,
                note="For each message, how often gateways forward it with its contents, and how often "
                "its place alone, as measured; and by our model, the load of the fullest ring and the "
                "latencies, as it is, and if nothing went where a message is not needed, as in 001. A place "
                "is a short packet, which takes a host as long as any other and the medium an eighth.",
            )
        ]
        if rows
        else []
    )


EXPERIMENT = Experiment(
    name="rings-latency",
    title="Latency over several Totem rings",
    source="Repeats 001 (Totem: a fault-tolerant multicast group communication system), Figs 8 and 9",
    about=(
        "Forty nodes on one ring, on two, and on four in a line or in a star; a gateway is one of "
        "the forty. 001 "
        "does not say what its four topologies are: halves and quarters are ours. Poisson arrivals "
        "at all nodes, all "
        "asking for agreed delivery or all for safe.",
        "Each quarter is a process group, and a message is addressed to the groups that need it: to its "
        "own, with probability p2 to the other of its half, with probability p1 to one of the other half, "
        "either one equally likely, and then with p2 to both of them; the last is ours. Latencies are "
        "over the nodes of these groups. Gateways leave out the contents where nobody needs them, and pass "
        "on that there is a message, where 001 passes on nothing. 001's own figures come from an analytic "
        "model that it does not state.",
        ABOUT_HOSTS + " Forty such hosts: SPARCstation 20 on 100 Mb/s, for each ring a medium of its own.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
