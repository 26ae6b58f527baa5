"""002 §4.2 and §5 on DTP itself: what members keep, its resilience, and how many messages it orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.experiments.dtp import NETWORK, SETTINGS
from ordercast.lab.figures import lines
from ordercast.lab.grid import Run, Settings, product
from ordercast.lab.totem_hosts import SPARC20

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

BUFFERS, RESILIENCE, RATE = "buffers", "resilience", "rate"
SIZES = (3, 5, 10, 20)
LOSSES = (0.0, 0.01)
SITES = 7
"""Members of the group whose resilience is varied."""
GAP_MS = 100
"""1/λ, the mean time between two messages of a member, as in `ordercast.lab.experiments.dtp`."""
TAKEN, FREE = "Sparc 20", "no time"
"""What hosts are assumed to cost where rates are measured."""
PAPER_PER_S = 1_000

_DTP: Settings = SETTINGS["dtp"]


def grid(quick: bool) -> list[Run]:
    """Buffers by size and loss; each F; three nodes flat out."""
    seeds = (0,) if quick else (0, 1, 2)
    runs = [
        Run(
            protocol="dtp",
            nodes=point["nodes"],
            arrivals="saturating",
            size=500,
            seconds=0.3 if quick else 2.0,
            network="ethernet10",
            net=NETWORK,
            loss=point["loss"],
            # What is lost has to be sent again, so that the group gets on.
            settings={**_DTP, "retry_us": 20_000},
            seed=point["seed"],
            labels={"about": BUFFERS},
            method="ordercast.lab.held",
        )
        for point in product(nodes=SIZES[:3] if quick else SIZES, loss=LOSSES, seed=seeds)
    ]
    usual: dict[str, Any] = {
        "protocol": "dtp",
        "nodes": SITES,
        "rate": SITES * 1000 / GAP_MS,
        "size": 500,
        "messages": 300 if quick else 5_000,
        "skip": 50 if quick else 500,
        "network": "ethernet10",
        "net": NETWORK,
    }
    for seed in seeds:
        runs += [
            Run(
                **usual,
                settings={**_DTP, "resilience": failures + 1},
                seed=seed,
                labels={"about": RESILIENCE, "failures": failures},
            )
            for failures in range(SITES)
        ]
        runs.append(
            Run(
                **usual,
                safe=1.0,
                settings=_DTP,
                seed=seed,
                labels={"about": RESILIENCE, "failures": SITES - 1},
            )
        )
    return runs + [
        Run(
            protocol="dtp",
            nodes=3,
            arrivals="saturating",
            size=1_000,
            seconds=1.0 if quick else 10.0,
            network="ethernet10",
            net=NETWORK if hosts == FREE else SPARC20,
            settings={**_DTP, "packet_size": 1_100},
            labels={"about": RATE, "hosts": hosts},
        )
        for hosts in (TAKEN, FREE)
    ]


class Means:
    """Mean figures over all seeds, for each point of the grid."""

    def __init__(self, frames: Frames) -> None:
        figures = ["most_messages", "most_places", "delivery_us", "ordered_per_s", "utilization"]
        rows = frames.mean(["about", "nodes", "loss", "failures", "safe", "hosts"], figures)
        of = rows.to_dict(orient="records")
        self.buffers = {(int(r["nodes"]), float(r["loss"])): r for r in of if r["about"] == BUFFERS}
        self.rates = {str(r["hosts"]): r for r in of if r["about"] == RATE}
        resilient = {
            (int(r["failures"]), bool(r["safe"])): float(r["delivery_us"]) / 1000
            for r in of
            if r["about"] == RESILIENCE
        }
        self.delivery_ms = {failures: took for (failures, safe), took in resilient.items() if not safe}
        """By F, when the last member delivers."""
        self.safe_ms = next((took for (_, safe), took in resilient.items() if safe), None)
        """The same of safe messages."""


def claims(frames: Frames) -> list[Claim]:
    """What 002 says of buffers, of resilience and of its implementation."""
    found = Means(frames)
    made = [_bounds(found, loss) for loss in LOSSES if found.buffers]
    if found.delivery_ms and found.safe_ms is not None:
        made += [_waits(found), _range(found, found.safe_ms)]
    return [*made, _per_second(found)] if TAKEN in found.rates else made


def _bounds(found: Means, loss: float) -> Claim:
    its = {nodes: row for (nodes, lost), row in sorted(found.buffers.items()) if lost == loss}
    told = ", ".join(
        f"{row['most_messages']:.0f} and {row['most_places']:.0f} in groups of {nodes} "
        f"({2 * nodes - 1}, {nodes - 1})"
        for nodes, row in its.items()
    )
    within = all(
        row["most_messages"] <= 2 * nodes - 1 and row["most_places"] <= nodes - 1
        for nodes, row in its.items()
    )
    return Claim(
        says="A member keeps 2n - 1 messages and n - 1 acknowledgements at most"
        + (f", also where {loss:.0%} of the packets are lost" if loss else ""),
        where="002 §4.2",
        measured=f"the most that any member ever kept, all sending at all times: {told}",
        holds=within,
        note="who lacks a message does not tell that it has it, and messages after it wait with it: it is "
        "stable after more than n - 1 further ones"
        if loss
        else "both bounds are reached",
    )


def _waits(found: Means) -> Claim:
    its = found.delivery_ms
    return Claim(
        says="An F-resilient member defers delivery until F + 1 processes have the message: the "
        "greater F, the "
        "later",
        where="002 §4.2",
        measured=f"delivery at the last of {SITES}: "
        + ", ".join(f"{took:.1f} ms with F = {failures}" for failures, took in sorted(its.items())),
        holds=sorted(its.values()) == [its[failures] for failures in sorted(its)],
        note=f"1/λ = {GAP_MS} ms. At F = 0 it is delivered with its acknowledgement; at F = 1 by "
        "all but who sent "
        "that, who does not know yet that anybody has it",
    )


def _range(found: Means, safe_ms: float) -> Claim:
    took = found.delivery_ms[SITES - 1]
    return Claim(
        says="With F = n - 1 the service is safe delivery, with F = 0 agreed delivery",
        where="002 §4.2",
        measured=f"delivery at the last of {SITES}: {took:.2f} ms with F = {SITES - 1}, {safe_ms:.2f} ms if "
        "messages ask for safe delivery",
        holds=abs(took / safe_ms - 1) <= 0.01,
        note="what an agreed message asks for here if nothing is set is a majority, since no less keeps a "
        "place from being given twice (004 §4.2)",
    )


def _per_second(found: Means) -> Claim:
    rate = float(found.rates[TAKEN]["ordered_per_s"])
    told = ", ".join(
        f"{row['ordered_per_s']:.0f}/s if hosts are {hosts}"
        if hosts == TAKEN
        else f"{row['ordered_per_s']:.0f}/s if they take {hosts}"
        for hosts, row in found.rates.items()
    )
    return Claim(
        says="With each of three nodes ready to send at all times, about 1000 messages of 1000 bytes are "
        "ordered a second",
        where="002 §5",
        measured=f"{told}; the medium of 10 Mb/s is in use for "
        f"{found.rates[TAKEN]['utilization']:.0%} of the "
        "time",
        holds=abs(rate / PAPER_PER_S - 1) <= 0.2,
        note="about is taken as within 20%; 002 says “an Ethernet”, and 10 Mb/s are assumed: it is they that "
        "set the limit, with a message and an acknowledgement each",
    )


def figures(frames: Frames) -> list[Figure]:
    """Delivery by F."""
    import pandas as pd

    found = Means(frames)
    if not found.delivery_ms:
        return []
    rows = [
        {"failures": failures, "took": took, "what": "delivery at the last member"}
        for failures, took in sorted(found.delivery_ms.items())
    ]
    return [
        Figure(
            name="resilience",
            title="Delivery time against F",
            caption=f"When the last of {SITES} members delivers, if it waits until F + 1 have the message; "
            f"1/λ = {GAP_MS} ms.",
            drawing=lines(
                pd.DataFrame(rows), x="failures", y="took", by="what", x_label="F", y_label="time [ms]"
            ),
        )
    ]


def tables(frames: Frames) -> list[Table]:
    """What members keep, in numbers."""
    found = Means(frames)
    return [
        Table(
            title="The most that a member keeps",
            columns=("members", "loss", "messages", "2n - 1", "places", "n - 1"),
            rows=[
                (
                    nodes,
                    f"{loss:.0%}",
                    f"{row['most_messages']:.0f}",
                    2 * nodes - 1,
                    f"{row['most_places']:.0f}",
                    nodes - 1,
                )
                for (nodes, loss), row in sorted(found.buffers.items())
            ],
        )
    ]


EXPERIMENT = Experiment(
    name="dtp-limits",
    title="What DTP keeps, how resilient it is, and how much it orders",
    source="Tests what 002 (Kim and Kim, A total ordering protocol using a dynamic token-passing scheme, "
    "1997) says in §4.2 and at the end of §5",
    about=(
        "DTP with the settings of the experiment dtp: a message a packet, one message of each member on its "
        "way, one acknowledgement a message. What members keep is looked at whenever anybody sends; the most "
        "is over all members and all that time.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
