"""002 Figs 2–5: DTP against CM, Pinwheel and Totem.

In 002 §5 "update arrivals at every LTM form an independent Poisson process with the same rate λ": 1/λ is the
mean time between two messages of *one* member, and a group of n has nλ messages a second. That is also the
only reading that fits its results: CM's message is stable after n - 1 further ones, (n - 1)/(nλ) later, which
goes to 1/λ.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import PROTOCOL_NAMES, lines
from ordercast.lab.grid import Run, Settings, product

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames

THREE = ("dtp", "pinwheel", "cm")
ALL = (*THREE, "totem")
GAPS_MS = (50, 100, 200)
"""Mean times between two messages of a node (1/λ), in milliseconds."""
SIZES = tuple(range(5, 41, 5))
TYPICAL_MS = 100
"""The 1/λ of Figs 3 to 5."""

NETWORK: dict[str, int | float] = {"receive_us": 0, "unicast_us": 0, "send_us": 0}
"""002 §5: "the CPU time needed to process a message is zero"."""

_FAMILY: Settings = {
    "silence_us": 100_000,  # T
    "hurry_us": 100_000,  # the paper's token waits for T whatever is unstable; ours would hurry it on
    "resilience": 1,  # delivered as soon as the place is known: F = 0
    "packet_size": 600,  # a message, a packet
    # Nothing is lost here, and the paper gives no timeouts: nobody repeats what only takes its time.
    "retry_us": 10_000_000,
    # The paper has no failure detectors. Ours are all but asleep; what they send is not counted.
    "heartbeat_us": 1_000_000,
    "aggressive_us": 5_000_000,
    "conservative_us": 10_000_000,
}
SETTINGS: dict[str, Settings] = {
    "dtp": _FAMILY,
    "cm": {**_FAMILY, "batch": 1},  # one message an acknowledgement
    "pinwheel": _FAMILY,  # up to `window` messages without one, which may be for up to `batch` (002 §5)
    "totem": {
        "hold_us": 0,  # the token never rests
        "packet_size": 600,
        # For forty nodes to find together on 10 Mb/s.
        "join_us": 50_000,
        "consensus_us": 200_000,
        "token_retransmission_us": 300_000,
        "token_loss_us": 1_000_000,
    },
}


def grid(quick: bool) -> list[Run]:
    """All four protocols over group sizes and rates."""
    nodes = (5, 10, 20, 40) if quick else SIZES
    gaps = GAPS_MS[:2] if quick else GAPS_MS
    return [
        Run(
            protocol=point["protocol"],
            nodes=point["nodes"],
            rate=point["nodes"] * 1000 / point["gap_ms"],
            size=500,
            messages=400 if quick else 10_000,
            skip=100 if quick else 500,
            network="ethernet10",
            net=NETWORK,
            settings=SETTINGS[point["protocol"]],
            labels={"gap_ms": point["gap_ms"]},
        )
        for point in product(gap_ms=gaps, nodes=nodes, protocol=ALL)
    ]


# --- what came of it -----------------------------------------------------------------------------

_FIGURES = ("stability_us", "delivery_us", "buffer", "overhead", "load_variation", "work_variation")


def _means(frames: Frames) -> pd.DataFrame:
    mean = frames.mean(["gap_ms", "nodes", "protocol"], _FIGURES)
    mean["share"] = mean["stability_us"] / 1000 / mean["gap_ms"]
    mean["share_sd"] = mean["stability_us_sd"] / 1000 / mean["gap_ms"]
    return mean


class Measured:
    """Means, to be asked for by protocol, group size and 1/λ."""

    def __init__(self, mean: pd.DataFrame) -> None:
        self._of = {
            (row["protocol"], int(row["nodes"]), int(row["gap_ms"])): row
            for row in mean.to_dict(orient="records")
        }
        self.sizes = sorted({nodes for _, nodes, _ in self._of})
        self.gaps = sorted({gap for _, _, gap in self._of})
        self.protocols = {protocol for protocol, _, _ in self._of}

    def points(self, least: int = 0) -> list[tuple[int, int]]:
        """Group size and 1/λ of each point that all four protocols have, in groups of at least so many."""
        return [
            (nodes, gap)
            for gap in self.gaps
            for nodes in self.sizes
            if nodes >= least and all((protocol, nodes, gap) in self._of for protocol in ALL)
        ]

    def __call__(self, figure: str, protocol: str, nodes: int, gap_ms: int) -> float:
        """The mean of a figure at a point."""
        return float(self._of[protocol, nodes, gap_ms][figure])


def claims(frames: Frames) -> list[Claim]:
    """What 002 §5 says of its figures, one by one."""
    m = Measured(_means(frames))
    if not m.points():
        return []
    return [
        _dtp_shortest(m),
        _pinwheel_before_cm(m),
        _pinwheel_at_high_rates(m),
        _bounded(m, "dtp", 2 / 3, "DTP's stability time is bounded to about two thirds of 1/λ"),
        _bounded(m, "cm", 1.0, "CM's stability time approaches nearly 1/λ"),
        _bounded(m, "pinwheel", 1.0, "Pinwheel's stability time approaches nearly 1/λ"),
        _totem_lowest(m),
        _buffers(m),
        _delivery_alike(m),
        _totem_delivery(m),
        _overhead_one(m),
        _totem_overhead(m),
        _load(m),
    ]


def _at(points: list[tuple[int, int]]) -> str:
    return ", ".join(f"{nodes} nodes at {gap} ms" for nodes, gap in points) or "none"


def _dtp_shortest(m: Measured) -> Claim:
    points = m.points(10)
    wrong = [
        (n, g)
        for n, g in points
        if m("share", "dtp", n, g) >= min(m("share", "pinwheel", n, g), m("share", "cm", n, g))
    ]
    gains = [1 - m("share", "dtp", n, g) / m("share", "pinwheel", n, g) for n, g in points]
    return Claim(
        says="DTP's stability time is shorter than CM's and Pinwheel's, at each rate (from 10 nodes up)",
        where="002 §5, Fig. 2",
        measured=f"shorter at {len(points) - len(wrong)} of {len(points)} points; than Pinwheel's by "
        f"{min(gains):.0%} to {max(gains):.0%}",
        holds=not wrong,
        note="" if not wrong else f"not at: {_at(wrong)}",
    )


def _pinwheel_before_cm(m: Measured) -> Claim:
    points = [point for point in m.points(10) if point != (40, 50)]  # which is the next claim's
    wrong = [(n, g) for n, g in points if m("share", "pinwheel", n, g) >= m("share", "cm", n, g)]
    acks = ", ".join(f"{m('overhead', 'pinwheel', n, g):.2f}" for n, g in wrong)
    return Claim(
        says="By positive notification Pinwheel has a shorter stability time than CM (from 10 nodes up)",
        where="002 §5, Fig. 2",
        measured=f"shorter at {len(points) - len(wrong)} of {len(points)} points",
        holds=not wrong,
        note=f"not at {_at(wrong)}: what the paper tells of 40 nodes at 50 ms, the next claim, begins "
        f"earlier here. There are only {acks} acknowledgements per message, and the token goes round more "
        "slowly; with one message an acknowledgement (batch = 1, tried with 30 nodes) Pinwheel is below CM"
        if wrong
        else "40 nodes at 50 ms, where the paper itself says otherwise, is the next claim's",
    )


def _pinwheel_at_high_rates(m: Measured) -> Claim:
    says = (
        "Acknowledging several messages at once extends Pinwheel's stability time where the rate is very "
        "high: 40 nodes at 1/λ = 50 ms"
    )
    where = "002 §5, Fig. 2"
    if not {(40, 50), (40, 100)} <= set(m.points()):
        return Claim(says=says, where=where, measured="this grid does not reach there", holds=None)
    pinwheel, cm, before = (
        m("share", "pinwheel", 40, 50),
        m("share", "cm", 40, 50),
        m("share", "pinwheel", 40, 100),
    )
    return Claim(
        says=says,
        where=where,
        measured=f"{pinwheel:.2f}/λ there, against {before:.2f}/λ at 100 ms; CM has {cm:.2f}/λ there",
        holds=pinwheel > before and pinwheel > cm,
    )


def _bounded(m: Measured, protocol: str, bound: float, says: str) -> Claim:
    where = "002 §5, Fig. 2"
    points = [(n, g) for n, g in m.points(40) if n == 40 and g in (100, 200)]
    says = f"{says} as the group grows (40 nodes, 100 and 200 ms: within 15%)"
    if not points:
        return Claim(says=says, where=where, measured="this grid does not reach 40 nodes", holds=None)
    found = [m("share", protocol, n, g) for n, g in points]
    told = ", ".join(f"{share:.3f}/λ at {g} ms" for share, (_, g) in zip(found, points, strict=True))
    notes = {
        "dtp": "ln 2 = 0.693 is what to expect of large groups: the share u of those not heard from since "
        "falls by their own messages and by the token, which goes to one of them nλ times a second: "
        "u' = -λu - λ",
        "cm": "(n - 1)/n = 0.975 further messages of nλ a second, and the time on the wire",
    }
    return Claim(
        says=says,
        where=where,
        measured=told,
        holds=all(abs(share / bound - 1) <= 0.15 for share in found),
        note=notes.get(protocol, ""),
    )


def _totem_lowest(m: Measured) -> Claim:
    points = m.points()
    wrong = [
        (n, g) for n, g in points if m("share", "totem", n, g) >= min(m("share", p, n, g) for p in THREE)
    ]
    longest = max(m("stability_us", "totem", n, g) for n, g in points) / 1000
    return Claim(
        says="Totem's stability time is below that of all three, since its token never rests",
        where="002 §5, Fig. 2",
        measured=f"below at {len(points) - len(wrong)} of {len(points)} points, {longest:.1f} ms at most",
        holds=not wrong,
        note="" if not wrong else f"not at: {_at(wrong)}",
    )


def _buffers(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points(10) if g == TYPICAL_MS]
    order = ("totem", "dtp", "pinwheel", "cm")
    wrong = []
    for n, g in points:
        held = [m("buffer", protocol, n, g) for protocol in order]
        if held != sorted(held) or len(set(held)) < len(held):
            wrong.append((n, g))
    grows = [m("buffer", "cm", n, g) - m("buffer", "dtp", n, g) for n, g in points]
    last = points[-1]
    told = ", ".join(f"{PROTOCOL_NAMES[p]} {m('buffer', p, *last):.1f}" for p in order)
    return Claim(
        says="DTP needs less buffer than CM and Pinwheel, Totem least; the difference grows with the group",
        where="002 §5, Fig. 3",
        measured=f"messages held at {last[0]} nodes: {told}; from DTP to CM it is {grows[0]:.1f} at "
        f"{points[0][0]} nodes and {grows[-1]:.1f} at {last[0]}",
        holds=not wrong and grows == sorted(grows),
        note="" if not wrong else f"another order at: {_at(wrong)}",
    )


def _delivery_alike(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points() if g == TYPICAL_MS]
    spread = {
        n: max(m("delivery_us", p, n, g) for p in THREE) / min(m("delivery_us", p, n, g) for p in THREE) - 1
        for n, g in points
    }
    low, high = (f(m("delivery_us", p, n, g) for p in THREE for n, g in points) / 1000 for f in (min, max))
    return Claim(
        says="The delivery times of DTP, CM and Pinwheel are comparable",
        where="002 §5, Fig. 4",
        measured=f"{low:.2f} to {high:.2f} ms; at no group size more than {max(spread.values()):.1%} apart",
        holds=max(spread.values()) <= 0.15,
    )


def _totem_delivery(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points() if g == TYPICAL_MS]
    times = [m("delivery_us", "totem", n, g) / 1000 for n, g in points]
    return Claim(
        says="Totem's delivery time grows with the group: who has a message waits for the token",
        where="002 §5, Fig. 4",
        measured=f"{times[0]:.2f} ms at {points[0][0]} nodes, {times[-1]:.2f} ms at {points[-1][0]}",
        holds=len(times) > 1 and all(a < b for a, b in pairwise(times)),
    )


def _overhead_one(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points() if g == TYPICAL_MS]
    found = [m("overhead", p, n, g) for p in THREE for n, g in points]
    return Claim(
        says="DTP, CM and Pinwheel need about one overhead message per message",
        where="002 §5, Fig. 5",
        measured=f"{min(found):.2f} to {max(found):.2f}",
        holds=all(abs(each - 1) <= 0.15 for each in found),
        note="one acknowledgement each, and a null one after a silence of T; Pinwheel's may serve several",
    )


def _totem_overhead(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points() if g == TYPICAL_MS]
    found = [m("overhead", "totem", n, g) for n, g in points]
    above = all(m("overhead", "totem", n, g) > max(m("overhead", p, n, g) for p in THREE) for n, g in points)
    return Claim(
        says="Totem needs more overhead messages than the others, most in small groups; fewer in larger ones",
        where="002 §5, Fig. 5",
        measured=f"{found[0]:.1f} at {points[0][0]} nodes, {found[-1]:.1f} at {points[-1][0]}",
        holds=above and all(a > b for a, b in pairwise(found)),
        note="tokens follow each other as fast as the medium carries them, with no processor time between",
    )


def _load(m: Measured) -> Claim:
    points = [(n, g) for n, g in m.points(10) if g == TYPICAL_MS]
    n, g = points[-1]
    work = {protocol: m("work_variation", protocol, n, g) for protocol in THREE}
    own = {protocol: m("load_variation", protocol, n, g) for protocol in THREE}
    acks = ", ".join(f"{PROTOCOL_NAMES[p]} {own[p]:.1%}" for p in THREE)
    told = ", ".join(f"{PROTOCOL_NAMES[p]} {work[p]:.1%}" for p in THREE)
    return Claim(
        says="DTP spreads the load of ordering more evenly: who is least active is in charge",
        where="002 abstract, §1, §6",
        measured=f"variation over the {n} nodes of the acknowledgements that they send: {acks}",
        holds=own["dtp"] < min(own["cm"], own["pinwheel"]),
        note="the claim is on the load of the ordering service alone, which a ring shares out equally and "
        f"DTP by who sends less; of all packets, a node's own messages among them: {told}",
    )


# --- figures and tables --------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """Figs 2 to 5."""
    mean = _means(frames)
    gaps = sorted(mean["gap_ms"].unique())
    typical = mean[mean["gap_ms"] == (TYPICAL_MS if TYPICAL_MS in gaps else gaps[0])]
    typical_gap = int(typical["gap_ms"].iloc[0])
    usual: dict[str, Any] = {"x": "nodes", "by": "protocol", "x_label": "group size", "order": _order(mean)}
    return [
        Figure(
            name="fig2-stability",
            title="Average stability time (002 Fig. 2)",
            caption="From submission until every member knows that all have the message. Dashed: 1/λ and two "
            "thirds of it.",
            drawing=lines(
                mean,
                y="stability_us",
                panel="gap_ms",
                scale=1e-3,
                y_label="stability time [ms]",
                panel_title=lambda gap: f"1/λ = {gap:g} ms",
                decorate=_bounds,
                **usual,
            ),
        ),
        Figure(
            name="fig3-buffer",
            title="Average buffer size (002 Fig. 3)",
            caption=f"Messages that a member keeps until it knows that all have them; 1/λ {typical_gap} ms.",
            drawing=lines(typical, y="buffer", y_label="messages held by a member", **usual),
        ),
        Figure(
            name="fig4-delivery",
            title="Average delivery time (002 Fig. 4)",
            caption=f"From submission to delivery at the last member; 1/λ = {typical_gap} ms.",
            drawing=lines(typical, y="delivery_us", scale=1e-3, y_label="delivery time [ms]", **usual),
        ),
        Figure(
            name="fig5-overhead",
            title="Overhead messages per message (002 Fig. 5)",
            caption=f"Packets beside those that carry messages; logarithmic; 1/λ = {typical_gap} ms.",
            drawing=lines(
                typical, y="overhead", y_label="overhead messages per message", log_y=True, **usual
            ),
        ),
    ]


def _order(mean: pd.DataFrame) -> list[str]:
    there = set(mean["protocol"])
    return [protocol for protocol in ("cm", "pinwheel", "dtp", "totem") if protocol in there]


def _bounds(axes: Axes, gap_ms: Any) -> None:
    axes.set_ylim(0, 1.18 * gap_ms)
    for share, text in ((1.0, "1/λ"), (2 / 3, "⅔ · 1/λ")):
        axes.axhline(gap_ms * share, color="#888888", linestyle="--", linewidth=0.9, zorder=1)
        axes.annotate(
            text,
            (1.0, gap_ms * share),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color="#666666",
        )


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    mean = _means(frames)
    shown = []
    for gap in sorted(mean["gap_ms"].unique()):
        part = mean[mean["gap_ms"] == gap]
        rows = [
            (
                PROTOCOL_NAMES[row["protocol"]],
                int(row["nodes"]),
                f"{row['stability_us'] / 1000:.2f}",
                f"{row['share']:.3f}",
                f"{row['delivery_us'] / 1000:.2f}",
                f"{row['buffer']:.2f}",
                f"{row['overhead']:.2f}",
                f"{row['load_variation']:.1%}",
                f"{row['work_variation']:.1%}",
                int(row["runs"]),
            )
            for row in part.sort_values(["nodes", "protocol"]).to_dict(orient="records")
        ]
        shown.append(Table(title=f"1/λ = {gap:g} ms", columns=_COLUMNS, rows=rows))
    return shown


_COLUMNS = (
    *("protocol", "nodes", "stability [ms]", "· λ", "delivery [ms]", "buffer", "overhead"),
    *("variation of acks", "of all packets", "runs"),
)

EXPERIMENT = Experiment(
    name="dtp",
    title="Dynamic token passing against fixed rings",
    source="Repeats 002 (Kim and Kim, A total ordering protocol using a dynamic token-passing scheme, 1997), "
    "Figs 2 to 5",
    about=(
        "Four protocols order ten thousand messages of 500 bytes in groups of 5 to 40 members on an "
        "Ethernet of 10 Mb/s, on which nothing is lost and processors cost no time. Messages arrive at "
        "every member in a Poisson process of its own with rate λ. A token that finds nothing to order "
        "rests for T = 100 ms. 002 says “an Ethernet” and no more: the 10 Mb/s, the delays, and the sizes of "
        "headers and acknowledgements are ours.",
        "λ is the rate of each member, not of the group: 002 §5 says so in words, and only then does CM's "
        "stability time, n - 1 further messages, approach 1/λ. Every message is a packet. CM and DTP "
        "acknowledge one message at a time and let a member have one on the way; Pinwheel lets it have "
        "eight, and an acknowledgement may serve several. Delivery is at once (F = 0), as agreed delivery "
        "is in Totem, whose token never rests. What the failure detectors send, of which the paper has "
        "none, is not counted.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
