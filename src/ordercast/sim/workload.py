"""Applications of the simulated nodes: when they have messages, how large, and what they ask for.

Three ways to arrive: `poisson` and `deterministic` are open loops (the rate does not depend on how the
group copes; what finds no room waits in the application, and is refused when too much waits there);
`saturating` is a closed one: every sender has more to send whenever its machine has room.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Literal

import msgspec

from ordercast.core.identity import HIGHEST_LEVEL, Guarantee, NodeId
from ordercast.sim.running_networks import exponential
from ordercast.sim.world import World

Arrivals = Literal["poisson", "deterministic", "saturating"]

_MOST_AT_ONCE = 4096
"""Messages that a saturating sender makes at a time."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the applications do."""

    arrivals: Arrivals = "poisson"
    """`poisson`: exponentially distributed gaps at each sender, independent of the others;
    `deterministic`: equal gaps, the senders taking turns; `saturating`: always more to send."""
    rate: float = 100.0
    """Messages per second, of all senders together. Without meaning when saturating."""
    size: int = 100
    """Bytes of a message, or the least where `size_to` is given."""
    size_to: int | None = None
    """The most bytes of a message: sizes are then uniformly distributed."""
    safe: float = 0.0
    """Share of messages that ask for safe delivery; the others ask for agreed."""
    levels: float = 0.0
    """Share of messages that ask for a level of resilience instead, drawn at random: for protocols that have
    them."""
    senders: tuple[NodeId, ...] | None = None
    """Who sends; None is everybody."""
    shares: tuple[float, ...] | None = None
    """How much each of them sends, in proportion to each other; None is all alike. Without meaning when
    saturating."""
    start_us: int = 0
    """When the first arrivals may come."""
    stop_us: int | None = None
    """From when on nothing arrives; None is never."""

    def __post_init__(self) -> None:
        if self.arrivals != "saturating" and not 0 < self.rate < math.inf:
            raise ValueError(f"the rate is messages per second and above 0, not {self.rate}")
        if self.size < 0 or (self.size_to is not None and self.size_to < self.size):
            raise ValueError(f"sizes go from {self.size} to {self.size_to} bytes: that is no range")
        if not 0 <= self.safe <= 1:
            raise ValueError(f"the share of safe messages is between 0 and 1, not {self.safe}")
        if not 0 <= self.levels <= 1:
            raise ValueError(f"the share of messages with a level is between 0 and 1, not {self.levels}")
        if self.shares is not None and not all(0 < share < math.inf for share in self.shares):
            raise ValueError(f"shares are above 0, not {self.shares}")


class _Sender:
    """The application of one node."""

    def __init__(self, world: World, workload: Workload, node: NodeId) -> None:
        self._world = world
        self._workload = workload
        self._node = node
        seed = world.clock.seed
        self._gaps = random.Random(f"{seed}/arrivals/{node}").random
        self._sizes = random.Random(f"{seed}/sizes/{node}")
        self._safes = random.Random(f"{seed}/safe/{node}").random
        self._levels = random.Random(f"{seed}/levels/{node}")

    def message(self) -> tuple[int, Guarantee]:
        """Size and guarantee of the next message."""
        load = self._workload
        size = load.size if load.size_to is None else self._sizes.randint(load.size, load.size_to)
        safe = load.safe and self._safes() < load.safe
        if load.levels and self._levels.random() < load.levels:
            return size, Guarantee.of(self._levels.randint(1, HIGHEST_LEVEL))
        return size, Guarantee.SAFE if safe else Guarantee.AGREED

    def fill(self, node: NodeId, room: int) -> Iterator[tuple[int, Guarantee]]:
        """Messages of more than `room` bytes in all, so that always one waits."""
        for _ in range(_MOST_AT_ONCE):
            size, guarantee = self.message()
            yield size, guarantee
            room -= size
            if room < 0:
                return

    def begin(self, first_us: float, mean_us: float) -> None:
        """Arrive from `first_us` on with gaps of `mean_us` on average, at Poisson's or equal distances."""
        poisson = self._workload.arrivals == "poisson"
        stop_us = self._workload.stop_us
        next_us = first_us + (exponential(self._gaps()) * mean_us if poisson else 0.0)

        def arrive() -> None:
            nonlocal next_us
            self._world.applications.submit(self._node, *self.message())
            next_us += exponential(self._gaps()) * mean_us if poisson else mean_us
            if stop_us is None or next_us < stop_us:
                self._world.at(int(next_us), arrive)

        if stop_us is None or next_us < stop_us:
            self._world.at(int(next_us), arrive)


def drive(world: World, workload: Workload) -> None:
    """Let the applications of `world` follow `workload`, from its start to its stop."""
    senders = workload.senders or world.nodes
    shares = workload.shares or (1.0,) * len(senders)
    if len(shares) != len(senders):
        raise ValueError(f"{len(senders)} nodes send, and there are {len(shares)} shares: give each one")
    for index, (node, share) in enumerate(zip(senders, shares, strict=True)):
        sender = _Sender(world, workload, node)
        if workload.arrivals == "saturating":
            world.at(workload.start_us, partial(world.applications.saturate, node, sender.fill))
            if workload.stop_us is not None:
                world.at(workload.stop_us, partial(world.applications.saturate, node, None))
        else:
            gap_us = 1_000_000 * sum(shares) / share / workload.rate
            turn = index / len(senders) if workload.arrivals == "deterministic" else 0.0
            sender.begin(workload.start_us + turn * gap_us, gap_us)
