"""000 §8 and 001 on flow control: fair shares, input buffers that hold, and what disturbs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import Run, product
from ordercast.lab.ring_load import BACKLOG, FOREIGN_BURST, FOREIGN_BYTES, INTERVAL_US, TIMED
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, HOSTS, MESSAGE, PAPER, SPARC20

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

RULES = (BACKLOG, TIMED)
WINDOW = 24
"""Datagrams a rotation where shares are compared: three for each of the eight."""
HIGHEST = 5_000
"""About the most that the ring carries with such a window, in messages/s, as measured."""
RATES = (2_000, 3_000, 4_000, 4_500, 4_800)
HIGH, OVERLOADED = 4_500, HIGHEST
"""High traffic is from here on, and not overloaded below there."""

BUFFER = 65_536
"""Bytes of an input buffer: what SunOS gave a socket, as in `ordercast.sim.network`."""
FULL = 1_300
"""Bytes of a message that fills a packet, where buffers are looked at."""
PAUSE_US, EVERY_US = 20_000, 50_000
"""A processor is taken away for so long, from one host after the other, so often."""
SLOW_US = 200
"""How much longer each packet takes a host that is slow throughout."""
FOREIGN = 2_000
"""Packets a second of others than the ring's, where there are any."""
CALM, SLOW, PAUSES, FOREIGN_ALONE, BOTH, UNHEEDED = (
    "nothing",
    "one slow processor",
    "processors taken away in turn",
    "foreign traffic",
    "both of these",
    "processors taken away, and a window that heeds no buffer",
)
CASES = (CALM, SLOW, PAUSES, FOREIGN_ALONE, BOTH, UNHEEDED)


def _pauses(seconds: float) -> tuple[str, ...]:
    """Each host in turn stops for a while: from the beginning of the load on."""
    nodes = HOSTS[EIGHT]["nodes"]
    return tuple(
        fault
        for turn in range(int(seconds * 1_000_000 / EVERY_US))
        for at_us in (1_010_000 + EVERY_US * turn,)
        for fault in (
            f"at {at_us}us pause {1 + turn % nodes}",
            f"at {at_us + PAUSE_US}us resume {1 + turn % nodes}",
        )
    )


def grid(quick: bool) -> list[Run]:
    """Both rules by the load; and input buffers under each disturbance."""
    seeds = (0,) if quick else (0, 1, 2)
    runs = [
        Run(
            protocol="totem",
            rate=point["rate"],
            size=MESSAGE[EIGHT],
            seconds=1.0 if quick else 4.0,
            settings={**PAPER, "window_size": WINDOW, "max_messages": WINDOW},
            seed=point["seed"],
            labels={"about": SHARES, "case": CALM, "rule": point["rule"]},
            method="ordercast.lab.ring_load",
            **HOSTS[EIGHT],
        )
        for point in product(rate=RATES[2:] if quick else RATES, rule=RULES, seed=seeds)
    ]
    seconds = 0.5 if quick else 2.0
    return runs + [
        Run(
            protocol="totem",
            arrivals="saturating",
            size=FULL,
            seconds=seconds,
            settings={
                **PAPER,
                "window_size": 128,
                "max_messages": 128,
                "input_buffer": 16 * BUFFER if point["case"] == UNHEEDED else BUFFER,
            },
            faults=_pauses(seconds)
            if point["case"] in (PAUSES, BOTH, UNHEEDED)
            else (f"at 1s slow 3 {SLOW_US}us",)
            if point["case"] == SLOW
            else (),
            bucket_us=1_000,
            seed=point["seed"],
            labels={
                "about": BUFFERS,
                "case": point["case"],
                "rule": BACKLOG,
                "foreign": FOREIGN if point["case"] in (FOREIGN_ALONE, BOTH) else 0,
            },
            method="ordercast.lab.ring_load",
            nodes=HOSTS[EIGHT]["nodes"],
            network=HOSTS[EIGHT]["network"],
            net={**SPARC20, "input_bytes": BUFFER},
        )
        for point in product(case=CASES, seed=seeds)
    ]


SHARES, BUFFERS = "shares", "buffers"


class Means:
    """Means: evenness by rule and rate, and figures of each disturbance."""

    def __init__(self, frames: Frames) -> None:
        figures = ["rate_variation", "share_variation", "ordered_per_s", "latency_agreed_us"]
        figures += ["latency_agreed_p99_us", "drops/overflow", "stats/retransmissions", "stats/packets"]
        self.mean = frames.mean(["about", "case", "rule", "rate"], figures)
        rows = self.mean.to_dict(orient="records")
        self._shares = {(r["rule"], int(r["rate"])): r for r in rows if r["about"] == SHARES}
        self._cases = {r["case"]: r for r in rows if r["about"] == BUFFERS}

    def rates(self) -> list[int]:
        """Rates at which both rules were measured."""
        each = [{rate for rule, rate in self._shares if rule == wanted} for wanted in RULES]
        return sorted(each[0] & each[1])

    def shares(self, rule: str, rate: int, figure: str) -> float:
        """A figure of a rule at a rate."""
        return float(self._shares[rule, rate][figure])

    def cases(self) -> list[str]:
        """Disturbances that were measured."""
        return [case for case in CASES if case in self._cases]

    def case(self, case: str, figure: str) -> float:
        """A figure of a disturbance."""
        return float(self._cases[case][figure])


def claims(frames: Frames) -> list[Claim]:
    """What 000 §8 and 001 say of flow control."""
    found = Means(frames)
    made = [_uniform(found)] if found.rates() else []
    if set(found.cases()) == set(CASES):
        made += [_no_overflow(found), _slowest(found), _protected(found), _vulnerable(found)]
    return made


def _uniform(found: Means) -> Claim:
    high = [rate for rate in found.rates() if HIGH <= rate < OVERLOADED]
    told = [
        f"{found.shares(BACKLOG, rate, 'rate_variation'):.3f} against "
        f"{found.shares(TIMED, rate, 'rate_variation'):.3f} at {rate}/s"
        for rate in found.rates()
    ]
    return Claim(
        says="By backlog, individual processors transmit at a more uniform rate than with FDDI's simple "
        "window, under high, but not overloaded, traffic",
        where="000 §8.2; 001, Message Ordering",
        measured="variation of what a processor broadcasts from one interval of "
        f"{INTERVAL_US // 1000} ms to the next, by backlog against a timed token: " + "; ".join(told),
        holds=all(
            found.shares(BACKLOG, rate, "rate_variation") < found.shares(TIMED, rate, "rate_variation")
            for rate in high
        )
        if high
        else None,
        note=f"judged from {HIGH}/s on; the ring carries about {HIGHEST}/s. Where the window is not full "
        "both rules are the same",
    )


def _told(found: Means, case: str) -> str:
    return (
        f"{case}: {found.case(case, 'drops/overflow'):,.0f} packets found no room, "
        f"{found.case(case, 'stats/retransmissions'):,.0f} were sent again, "
        f"{found.case(case, 'ordered_per_s'):,.0f} messages/s"
    )


def _no_overflow(found: Means) -> Claim:
    cases = (CALM, SLOW, PAUSES)
    return Claim(
        says="If the window is limited by each processor's input buffer, its overflow cannot occur",
        where="000 §8",
        measured="; ".join(_told(found, case) for case in (*cases, UNHEEDED)),
        holds=not any(found.case(case, "drops/overflow") for case in cases),
        note="the last one is to see that this is what keeps messages from being lost",
    )


def _slowest(found: Means) -> Claim:
    most = 1e6 / (SPARC20["receive_us"] + SLOW_US)
    rate = found.case(SLOW, "ordered_per_s")
    return Claim(
        says="The rate of broadcasting is reduced to what the slowest processor can handle",
        where="000 §8",
        measured=f"{rate:,.0f} messages/s with a processor that can hear {most:,.0f} packets/s, and "
        f"{found.case(CALM, 'ordered_per_s'):,.0f} without it",
        holds=0.5 * most <= rate <= 1.15 * most,
        note="its own messages it does not hear; and it handles the token, too",
    )


def _protected(found: Means) -> Claim:
    return Claim(
        says="Flow control provides excellent protection against fluctuations in processor loading",
        where="001, Message Ordering",
        measured=_told(found, PAUSES),
        holds=not found.case(PAUSES, "stats/retransmissions"),
        note=f"a processor is taken away for {PAUSE_US // 1000} ms every {EVERY_US // 1000} ms, "
        "from one host "
        "after the other; excellent is taken as: nothing is lost",
    )


def _vulnerable(found: Means) -> Claim:
    return Claim(
        says="It is vulnerable to competition for the input buffers from unanticipated network traffic",
        where="001, Message Ordering",
        measured="; ".join(_told(found, case) for case in (FOREIGN_ALONE, BOTH)),
        holds=found.case(BOTH, "stats/retransmissions") > found.case(PAUSES, "stats/retransmissions"),
        note=f"{FOREIGN} packets/s of {FOREIGN_BYTES} bytes, {FOREIGN_BURST} at a time; of those "
        "that find no "
        "room many are foreign themselves. While processors keep up, buffers are nearly empty, and there is "
        "room for both",
    )


def figures(frames: Frames) -> list[Figure]:
    """How evenly processors send, by rule."""
    found = Means(frames)
    if not found.rates():
        return []
    usual: dict[str, Any] = {"x": "rate", "by": "rule", "x_label": "messages per second", "order": RULES}
    frame = found.mean[found.mean["about"] == SHARES]
    return [
        Figure(
            name="evenness",
            title="How much what a processor broadcasts varies",
            caption=f"From one interval of {INTERVAL_US // 1000} ms to the next: deviation over "
            "mean, averaged "
            f"over eight processors, with a window of {WINDOW} packets. The ring carries about {HIGHEST}/s.",
            drawing=lines(frame, y="rate_variation", y_label="deviation over mean", **usual),
        )
    ]


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    found = Means(frames)
    return [
        Table(
            title="Shares of the window",
            columns=(
                *("messages/s", "rule", "variation over time", "between processors"),
                *("agreed [ms]", "99% [ms]"),
            ),
            rows=[
                (
                    rate,
                    rule,
                    f"{found.shares(rule, rate, 'rate_variation'):.3f}",
                    f"{found.shares(rule, rate, 'share_variation'):.3f}",
                    f"{found.shares(rule, rate, 'latency_agreed_us') / 1000:.2f}",
                    f"{found.shares(rule, rate, 'latency_agreed_p99_us') / 1000:.1f}",
                )
                for rate in found.rates()
                for rule in RULES
            ],
        ),
        Table(
            title="Input buffers",
            columns=("disturbance", "found no room", "sent again", "messages/s"),
            rows=[
                (
                    case,
                    f"{found.case(case, 'drops/overflow'):,.0f}",
                    f"{found.case(case, 'stats/retransmissions'):,.0f}",
                    f"{found.case(case, 'ordered_per_s'):,.0f}",
                )
                for case in found.cases()
            ],
        ),
    ]


EXPERIMENT = Experiment(
    name="totem-flow",
    title="Totem's flow control: shares and input buffers",
    source="Tests what 000 §8 and 001 say of flow control",
    about=(
        "Shares: Poisson arrivals at eight nodes, alike, whose window holds three messages of each a "
        "rotation. By backlog each gets a share by demand; with the simple window, which stands in for FDDI, "
        "whoever the token visits next takes what is left of it.",
        "Buffers: all eight are ready to send at all times, the window is as large as the input buffer of "
        "64 KB allows, and messages fill packets.",
        ABOUT_HOSTS,
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
