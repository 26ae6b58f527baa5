"""The comparison that 004 §6 names as the next work: RBP beside others that order totally, without failures.

Latency and packets against the load, throughput against the size of the group. What failures cost them is in
`comparison_failures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import PROTOCOL_NAMES, lines
from ordercast.lab.grid import Run, Settings, product

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

PROTOCOLS = ("rbp", "cm", "irbp", "total", "primary-backup", "trmp")
BESIDE = (*PROTOCOLS, "totem")
"""Totem is drawn beside them."""
LOAD, FULL, LOST, ACKS = "a load", "flat out", "packets are lost", "messages an acknowledgement"
HEAVY = "nearly all it carries"
NODES, MANY = 5, 8
SIZE = 200
NETWORK = "ethernet100"
RATES = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
BUSY = 4_000
"""Messages/s from which on messages follow each other so soon that a token does not wait for one."""
NEARLY_FULL = 50_000
"""Messages/s of 54,000 that CM carries."""
LOSSES = (0.001, 0.01)
LAN_LOSS = 0.001
"""A hundred times what 001 calls usual on a LAN."""
BATCHES = (1, 64)
SMALL: Settings = {"packet_size": 256}
"""A message a packet, so that packets have to be acknowledged and not only filled."""


def _seconds(rate: int, quick: bool) -> float:
    """How long is measured: so that there are some hundred messages."""
    return max(0.1, min(1.0, 600 / rate)) * (1 if quick else 3)


def _run(protocol: str, about: str, nodes: int = NODES, **more: Any) -> Run:
    labels = {"about": about, **more.pop("labels", {})}
    usual = {"size": SIZE, "network": NETWORK, "method": "ordercast.lab.steady_load"}
    return Run(protocol=protocol, nodes=nodes, labels=labels, **{**usual, **more})


def grid(quick: bool) -> list[Run]:
    """Loads, agreed and safe; flat out by group size; RBP with loss; CM by messages an acknowledgement."""
    seeds = (0,) if quick else (0, 1, 2)
    runs = [
        _run(
            point["protocol"],
            LOAD,
            rate=point["rate"],
            safe=point["safe"],
            seconds=_seconds(point["rate"], quick),
            seed=point["seed"],
        )
        for point in product(
            rate=(500, BUSY, 16_000) if quick else RATES, safe=(0.0, 1.0), protocol=BESIDE, seed=seeds
        )
    ]
    runs += [
        _run(point["protocol"], FULL, point["nodes"], arrivals="saturating", seconds=0.1, seed=point["seed"])
        for point in product(nodes=(3, NODES) if quick else (3, NODES, MANY, 12), protocol=BESIDE, seed=seeds)
    ]
    runs += [_run("cm", HEAVY, rate=NEARLY_FULL, seconds=0.2, seed=seed) for seed in seeds]
    runs += [
        _run("rbp", LOST, MANY, rate=1_000, seconds=0.5 if quick else 3.0, loss=loss, seed=seed)
        for loss in LOSSES
        for seed in seeds
    ]
    return runs + [
        _run(
            "cm",
            ACKS,
            arrivals="saturating",
            seconds=0.1,
            settings={**SMALL, "batch": batch, "window": 1},
            labels={"batch": batch},
            seed=seed,
        )
        for batch in BATCHES
        for seed in seeds
    ]


# --- what came of it -----------------------------------------------------------------------------

_FIGURES = (
    *("latency_agreed_us", "latency_safe_us", "ordered_per_s", "packets", "membership", "overhead"),
    *("work_variation", "load_max", "load_mean", "sent/req", "utilization", "measured", "window_us"),
)


class Means:
    """Mean figures over all seeds, for each point of the grid."""

    def __init__(self, frames: Frames) -> None:
        by = ["about", "protocol", "nodes", "rate", "safe", "loss", "batch"]
        self.mean = frames.mean(by, _FIGURES)
        self._rows = self.mean.to_dict(orient="records")
        self.rates = sorted({int(row["rate"]) for row in self._rows if row["about"] == LOAD})
        self.sizes = sorted({int(row["nodes"]) for row in self._rows if row["about"] == FULL})

    def _the(self, about: str, **wanted: Any) -> Any:
        (row,) = (
            row
            for row in self._rows
            if row["about"] == about and all(row[name] == value for name, value in wanted.items())
        )
        return row

    def load(self, protocol: str, rate: int, figure: str, safe: bool = False) -> float:
        """A figure at a load."""
        return float(self._the(LOAD, protocol=protocol, rate=rate, safe=float(safe))[figure])

    def packets(self, protocol: str, rate: int) -> float:
        """Packets for each message, heartbeats apart."""
        return self.load(protocol, rate, "packets") - self.load(protocol, rate, "membership")

    def heavy_ms(self) -> float:
        """CM's latency to agreed delivery with nearly all that it carries."""
        return float(self._the(HEAVY)["latency_agreed_us"]) / 1000

    def full(self, protocol: str, nodes: int, figure: str = "ordered_per_s") -> float:
        """A figure flat out."""
        return float(self._the(FULL, protocol=protocol, nodes=nodes)[figure])

    def lost(self, loss: float, figure: str) -> float:
        """A figure of RBP with so much loss."""
        return float(self._the(LOST, loss=loss)[figure])

    def acks(self, batch: int, figure: str) -> float:
        """A figure of CM with so many messages an acknowledgement."""
        return float(self._the(ACKS, batch=batch)[figure])


def claims(frames: Frames) -> list[Claim]:
    """What 004 says of RBP in normal operation, 000 and 002 of protocols like those here."""
    found = Means(frames)
    if set(found.mean["protocol"]) < set(BESIDE) or not found.rates:
        return []
    return [
        _two_messages(found),
        _low_traffic(found),
        _good_rates(found),
        _few_nacks(found),
        _more_an_ack(found),
        _latency_increases(found),
        _overloaded(found),
    ]


def _series(found: Means, protocol: str) -> str:
    return ", ".join(f"{found.packets(protocol, rate):.2f} at {rate}/s" for rate in found.rates)


def _two_messages(found: Means) -> Claim:
    busy = found.packets("rbp", BUSY) if BUSY in found.rates else None
    return Claim(
        says="With acknowledgement, order, token and its acceptance in one message, a step of RBP takes two "
        "messages",
        where="004 §3.1.3",
        measured=f"packets for each message, heartbeats apart: {_series(found, 'rbp')}",
        holds=abs(busy / 2 - 1) <= 0.15 if busy is not None else None,
        note=f"judged within 15% at {BUSY}/s. With less to order the token goes round with nothing, so that "
        "what was sent is soon known to be with all; with more, an acknowledgement serves several",
    )


def _low_traffic(found: Means) -> Claim:
    others = ("total", "primary-backup")
    wrong = [
        rate
        for rate in found.rates
        if found.packets("rbp", rate) >= min(found.packets(other, rate) for other in others)
    ]
    told = "; ".join(f"{PROTOCOL_NAMES[p]} {_series(found, p)}" for p in ("rbp", *others))
    return Claim(
        says="RBP works with low network traffic",
        where="004 §6",
        measured=f"packets for each message, heartbeats apart: {told}",
        holds=not wrong,
        note=f"not at {', '.join(map(str, wrong))} messages/s"
        if wrong
        else "low is taken as lower than with a fixed sequencer and with primary-backup; a multicast counts "
        "once",
    )


def _good_rates(found: Means) -> Claim:
    told = [
        f"{nodes} nodes: "
        + ", ".join(f"{PROTOCOL_NAMES[p]} {found.full(p, nodes):,.0f}" for p in (*PROTOCOLS, "totem"))
        for nodes in found.sizes
    ]
    return Claim(
        says="Performance is what RBP-based protocols shine with: good rates beside other total order "
        "protocols",
        where="004 §6",
        measured=f"messages/s of {SIZE} bytes, flat out, on 100 Mb/s: " + "; ".join(told),
        holds=all(
            found.full("rbp", nodes) > max(found.full("total", nodes), found.full("primary-backup", nodes))
            for nodes in found.sizes
        ),
        note="judged against a fixed sequencer and primary-backup: there most messages are on the shared "
        "medium twice, to who orders them and from it",
    )


def _few_nacks(found: Means) -> Claim:
    told = ", ".join(f"{found.lost(loss, 'sent/req'):.3f} at {loss:.1%} loss" for loss in LOSSES)
    return Claim(
        says="If the network behaves well, negative acknowledgements are insignificantly few beside one from "
        "every receiver",
        where="004 §3.1.1",
        measured=f"requests for each message, {MANY} members: {told}; every receiver's would be {MANY - 1}",
        holds=found.lost(LAN_LOSS, "sent/req") < 0.05 * (MANY - 1),
        note=f"insignificant is taken as less than 5% of those, at {LAN_LOSS:.1%} loss",
    )


def _more_an_ack(found: Means) -> Claim:
    one, several = (found.acks(batch, "ordered_per_s") for batch in (BATCHES[0], BATCHES[-1]))
    return Claim(
        says="Acknowledging several messages at once, as RMP does, increases the performance",
        where="004 §3.3.1",
        measured=f"flat out, a message a packet: {several:,.0f}/s with up to {BATCHES[-1]} an "
        "acknowledgement, "
        f"{one:,.0f}/s with one",
        holds=several > 1.05 * one,
        note="judged as more than 5%; CM's order, one message of each member on its way",
    )


def _latency_increases(found: Means) -> Claim:
    took = {rate: found.load("cm", rate, "latency_agreed_us") / 1000 for rate in found.rates}
    safe = {rate: found.load("cm", rate, "latency_safe_us", safe=True) / 1000 for rate in found.rates}
    heavy = found.heavy_ms()
    return Claim(
        says="The latency of Chang and Maxemchuk's protocol is good at low loads, and increases at high ones",
        where="000 §2",
        measured="agreed "
        + ", ".join(f"{value:.2f} ms at {rate}/s" for rate, value in took.items())
        + f", {heavy:.2f} ms at {NEARLY_FULL}/s; safe "
        + ", ".join(f"{value:.2f}" for value in safe.values()),
        holds=heavy > 1.25 * took[found.rates[0]],
        note="judged as by a quarter from the lowest load to the highest, of five nodes on 100 "
        "Mb/s. That enough "
        "members have a message is known by those that follow it: with more of them it takes less, until "
        "packets queue",
    )


def _overloaded(found: Means) -> Claim:
    told = ", ".join(f"{PROTOCOL_NAMES[p]} {found.full(p, NODES, 'work_variation'):.0%}" for p in PROTOCOLS)
    fixed = min(found.full(p, NODES, "work_variation") for p in ("total", "primary-backup"))
    moving = max(found.full(p, NODES, "work_variation") for p in ("rbp", "cm", "irbp"))
    return Claim(
        says="In sequencer-based protocols the sequencer is overloaded, where token-based ones "
        "share the load",
        where="002 §1",
        measured=f"variation of the packets that {NODES} members send, flat out: {told}",
        holds=fixed > 0.2 and moving < 0.05,
        note="judged as more than 20% with a fixed one who orders, and less than 5% with a moving one",
    )


# --- figures and tables --------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """Latency and packets by load, throughput by size."""
    import pandas as pd

    found = Means(frames)
    order = [p for p in BESIDE if p in set(found.mean["protocol"])]
    if not found.rates or not found.sizes:
        return []
    points = [
        {
            "protocol": protocol,
            "rate": rate,
            "delivery": "safe" if safe else "agreed",
            "latency_us": found.load(
                protocol, rate, "latency_safe_us" if safe else "latency_agreed_us", safe
            ),
            "packets": found.packets(protocol, rate),
        }
        for protocol in order
        for rate in found.rates
        for safe in (False, True)
    ]
    frame = pd.DataFrame(points)
    usual: dict[str, Any] = {"by": "protocol", "order": order}
    by_rate: dict[str, Any] = {"x": "rate", "x_label": "messages per second", "log_x": True}
    full = found.mean[found.mean["about"] == FULL]
    return [
        Figure(
            name="latency",
            title="Mean latency against load",
            caption=f"From submission to delivery, over all {NODES} nodes; messages of {SIZE} "
            "bytes on 100 Mb/s. "
            "Agreed is with a majority before it is delivered, with all for primary-backup, and received "
            "in order for Totem. Logarithmic.",
            drawing=lines(
                frame,
                y="latency_us",
                panel="delivery",
                y_label="mean latency [ms]",
                scale=1e-3,
                log_y=True,
                panel_title=lambda delivery: f"{delivery.capitalize()} delivery",
                **by_rate,
                **usual,
            ),
        ),
        Figure(
            name="packets",
            title="Packets for each message against load",
            caption="All packets that all nodes send, heartbeats apart; a multicast counts once. "
            "Logarithmic.",
            drawing=lines(
                frame[frame["delivery"] == "agreed"],
                y="packets",
                y_label="packets for each message",
                log_y=True,
                **by_rate,
                **usual,
            ),
        ),
        Figure(
            name="throughput",
            title="Throughput against the size of the group",
            caption=f"All nodes are ready to send at all times; messages of {SIZE} bytes share packets.",
            drawing=lines(
                full, x="nodes", y="ordered_per_s", x_label="nodes", y_label="messages per second", **usual
            ),
        ),
    ]


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    found = Means(frames)
    order = [p for p in BESIDE if p in set(found.mean["protocol"])]
    return [
        Table(
            title=f"{NODES} nodes under load",
            columns=("protocol", "messages/s", "agreed [ms]", "safe [ms]", "packets", "heartbeats"),
            rows=[
                (
                    PROTOCOL_NAMES[p],
                    rate,
                    f"{found.load(p, rate, 'latency_agreed_us') / 1000:.3f}",
                    f"{found.load(p, rate, 'latency_safe_us', safe=True) / 1000:.3f}",
                    f"{found.packets(p, rate):.2f}",
                    f"{found.load(p, rate, 'membership'):.2f}",
                )
                for p in order
                for rate in found.rates
            ],
            note="Packets and heartbeats for each message.",
        ),
        Table(
            title="Flat out, messages/s",
            columns=("protocol", *(f"{nodes} nodes" for nodes in found.sizes)),
            rows=[
                (PROTOCOL_NAMES[p], *(f"{found.full(p, nodes):,.0f}" for nodes in found.sizes)) for p in order
            ],
        ),
    ]


EXPERIMENT = Experiment(
    name="comparison",
    title="RBP beside other protocols, in normal operation",
    source="The comparison that 004 §6 names as the next work, without failures",
    about=(
        "RBP, CM, iRBP, a fixed sequencer (TOTAL), primary-backup and TRMP with one ring, and Totem beside "
        "them, in groups on an Ethernet of 100 Mb/s whose hosts need 8 µs to send a packet and 10 "
        "to hear one. "
        f"Messages have {SIZE} bytes and share packets where they wait together; settings are those that the "
        "simulator has by default.",
        "RBP, CM and iRBP order alike while nothing fails, and differ in what they do then.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
