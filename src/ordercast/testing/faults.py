"""Faults that are drawn from a seed: what happens to which node, when, and for how long."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ordercast.core.identity import NodeId

KINDS: Final = ("crash", "pause", "partition", "slow", "lose")
"""Kinds of faults that are drawn, each seed another choice of them."""
OUTAGE: Final = "outage"
"""A kind that is drawn only where all that was answered is on disk: all machines are switched off at once."""
MOMENTS: Final = (
    "state transfer begins",
    "state half sent",
    "state transfer ends",
    "head told",
    "primary lost",
    "client calls",
)
"""What nodes come to, and a fault may wait for: also a call by a client, which is on its way from then on."""
MOST_FAULTS: Final = 8
LASTS_S: Final = (0.002, 4.0)
"""How long a fault lasts, at least and at most."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that goes wrong for a while, and is mended."""

    kind: str
    node: NodeId = 0
    """At which node; 0: at the one that comes to the moment."""
    at_s: float = 0.0
    """When it begins; with a moment, from when on that is waited for."""
    moment: str = ""
    """The named moment of a node at which the fault begins,"""
    after_s: float = 0.0
    """or so many seconds after it."""
    lasts_s: float
    """Seconds after which the fault is mended."""
    side: tuple[NodeId, ...] = ()
    """Who is cut off from the others, with the node."""
    amount: float = 0.0
    """Seconds that packets take longer, or the share of packets that is lost."""
    silently: bool = False
    """Whether the whole machine fails: the transports of the others are not told of it."""
    without_disk: bool = False
    """Whether the node comes back with an empty disk."""
    ahead_s: float = 0.0
    """By how much the clock is changed meanwhile."""

    def words(self, node: NodeId) -> str:
        """What happens, at that node."""
        lasts = f"for {self.lasts_s:.4g} s"
        who = f"node {node}"
        match self.kind:
            case "crash":
                more = [
                    "with its machine" if self.silently else "",
                    "comes back without its disk" if self.without_disk else "",
                    f"its clock is set by {self.ahead_s:+g} s" if self.ahead_s else "",
                ]
                what = ", ".join([f"{who} crashes {lasts}", *filter(None, more)])
            case "pause":
                what = f"{who} is stopped {lasts}"
            case "outage":
                what = f"all nodes crash with their machines {lasts}"
            case "partition":
                names = f"nodes {', '.join(map(str, self.side))}" if self.side else who
                what = f"{names}: cut off from the others {lasts}"
            case "slow":
                what = f"what {who} sends and gets takes {self.amount:.3g} s more {lasts}"
            case other:
                assert other == "lose", other
                what = f"{self.amount:.0%} of packets are lost {lasts}"
        after = f" {self.after_s:.4g} s after" if self.after_s else ""
        return f"{what},{after or ' at'} “{self.moment}”" if self.moment else what


class Weather(msgspec.Struct, frozen=True):
    """What the network is like all the time."""

    loss: float = 0.0
    delay_us: tuple[int, int] = (50, 250)


def draw_weather(seed: int) -> Weather:
    """Mostly good; sometimes packets are lost all the time, or take long."""
    stream = random.Random(f"{seed}/weather")
    loss = stream.choice((0.0, 0.0, 0.0, 0.005, 0.03))
    delay_us = stream.choice(((50, 250), (50, 250), (10, 60), (50, 2_000), (200, 5_000)))
    return Weather(loss, delay_us)


def draw_clocks(seed: int, nodes: Iterable[NodeId]) -> dict[NodeId, float]:
    """By how many seconds each node's clock is wrong at the start: in half of the seeds none is."""
    stream = random.Random(f"{seed}/clocks")
    most = stream.choice((0.0, 0.0, 0.05, 5.0, 4000.0))
    return {node: round(stream.uniform(-most, most), 3) for node in nodes}


def check_kinds(kinds: Collection[str]) -> None:
    """Raise it if there is no such kind."""
    unknown = sorted(set(kinds) - {*KINDS, OUTAGE})
    if unknown:
        raise ValueError(f"there is no fault {unknown[0]!r}: choose from {', '.join(KINDS)}")


def draw_faults(seed: int, nodes: Sequence[NodeId], kinds: Collection[str], within_s: float) -> list[Fault]:
    """The faults of a seed, in the order of their times. They begin within so many seconds, in some seeds all
    of them early."""
    stream = random.Random(f"{seed}/faults")
    every = [kind for kind in (*KINDS, OUTAGE) if kind in kinds]
    chosen = [kind for kind in every if stream.random() < 0.6] or every
    if not chosen:
        return []
    within_s *= stream.choice((1.0, 1.0, 0.3, 0.05))
    most_s = stream.choice((LASTS_S[1], max(2 * LASTS_S[0], min(within_s, LASTS_S[1]))))
    at_moments = stream.choice((0.0, 0.3, 0.7))
    disks = stream.choice((0.0, 0.0, 0.5))
    clocks = stream.choice((0.0, 0.0, 0.5))
    favourite = stream.choice(nodes) if stream.random() < 0.3 else 0
    drawn = []
    for _ in range(stream.randint(1, MOST_FAULTS)):
        kind = stream.choice(chosen)
        node = favourite if favourite and stream.random() < 0.7 else stream.choice(nodes)
        moment = stream.choice(MOMENTS) if stream.random() < at_moments else ""
        amount = {
            "slow": _between(stream, 0.0005, 0.05),
            "lose": _between(stream, 0.01, 0.6),
        }.get(kind, 0.0)
        drawn.append(
            Fault(
                kind=kind,
                node=0 if moment and stream.random() < 0.5 else node,
                at_s=_rounded(stream.uniform(0, within_s)),
                moment=moment,
                after_s=_rounded(_between(stream, 0.0001, 0.02)) if moment and stream.random() < 0.6 else 0.0,
                lasts_s=_rounded(_between(stream, LASTS_S[0], most_s)),
                side=_side(stream, nodes) if kind == "partition" and stream.random() < 0.6 else (),
                amount=_rounded(amount),
                silently=kind == "crash" and stream.random() < 0.4,
                without_disk=kind == "crash" and stream.random() < disks,
                ahead_s=_clock(stream) if kind == "crash" and stream.random() < clocks else 0.0,
            )
        )
    return sorted(drawn, key=lambda fault: fault.at_s)


def _side(stream: random.Random, nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
    return tuple(sorted(stream.sample(list(nodes), stream.randint(1, max(1, len(nodes) - 1)))))


def _clock(stream: random.Random) -> float:
    return stream.choice((-1, 1)) * stream.choice((0.001, 0.5, 30.0, 7200.0))


def _between(stream: random.Random, least: float, most: float) -> float:
    """As often between 1 and 10 as between 10 and 100."""
    return float(least * (most / least) ** stream.random())


def _rounded(number: float) -> float:
    """To four figures: it is read by people."""
    return float(f"{number:.4g}")


# --- some of them --------------------------------------------------------------------------------


class Chosen(msgspec.Struct, frozen=True):
    """Of the faults of a seed, those that happen, by number from 1, and how long each lasts."""

    lasts_s: dict[int, float | None]
    """None: as long as it was drawn."""

    @classmethod
    def of(cls, faults: Sequence[Fault]) -> Chosen:
        """All of these faults."""
        return cls(dict.fromkeys(range(1, len(faults) + 1)))

    @classmethod
    def read(cls, text: str) -> Chosen:
        """``2,5:0.25``: the second, and the fifth for 0.25 s; ``none`` is none."""
        lasts_s: dict[int, float | None] = {}
        try:
            for each in text.split(",") if text not in ("", "none") else ():
                number, _, lasts = each.partition(":")
                lasts_s[int(number)] = float(lasts) if lasts else None
        except ValueError:
            raise ValueError(f"faults are {text!r}: write numbers, as in 2,5 or 2,5:0.25") from None
        return cls(lasts_s)

    def __str__(self) -> str:
        told = [str(number) if lasts is None else f"{number}:{lasts:g}" for number, lasts in self._sorted]
        return ",".join(told) or "none"

    @property
    def _sorted(self) -> list[tuple[int, float | None]]:
        return sorted(self.lasts_s.items())

    def among(self, faults: Sequence[Fault]) -> list[Fault]:
        """The faults that happen."""
        some = []
        for number, lasts_s in self._sorted:
            if not 1 <= number <= len(faults):
                raise ValueError(f"there is no fault {number}: this seed has {len(faults)}")
            fault = faults[number - 1]
            some.append(fault if lasts_s is None else msgspec.structs.replace(fault, lasts_s=lasts_s))
        return some
