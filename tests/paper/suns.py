"""The five workstations of 000 §9 and what is done with them, in virtual time.

"We have measured the performance of our implementation on a network of five Sun 4/IPC workstations" on a
10 Mb/s Ethernet. The paper does not say what a packet costs such a host; see the preset for what we assume.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ordercast.catalogue import LAB_TOTEM
from ordercast.core.identity import NodeId
from ordercast.sim.experiment import Experiment, Figures, conduct
from ordercast.sim.network import preset
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World

NODES = (1, 2, 3, 4, 5)
ETHERNET = preset("ethernet10")

MESSAGE = 1024
"""Bytes, as in 000 §9."""


KIND_OF = LAB_TOTEM.product.kind_of


@cache
def measured(rate: float, safe: float = 0.0, seed: int = 1) -> Figures:
    """Ten seconds of Poisson arrivals at so many messages a second in all."""
    load = Workload(rate=rate, size=MESSAGE, safe=safe)
    return conduct(LAB_TOTEM, Experiment(nodes=5, seconds=10, network=ETHERNET, workload=load, seed=seed))


@cache
def saturated(seed: int = 1) -> Figures:
    """Five seconds in which every node has always more to send."""
    load = Workload(arrivals="saturating", size=MESSAGE)
    return conduct(LAB_TOTEM, Experiment(nodes=5, seconds=5, network=ETHERNET, workload=load, seed=seed))


def rotation_us(figures: Figures) -> float:
    """The mean token rotation time: from visit to visit, over all nodes, while the load lasted."""
    rotation = figures.rotation_us
    assert rotation is not None
    return rotation["mean"]


def latency_us(figures: Figures, guarantee: str) -> float:
    """The mean latency, over all deliveries, from when the application hands a message over.

    000 §8: "latency (delay from message origination to delivery in agreed or safe order)"; the wait for the
    token, half a rotation on average, is part of it.
    """
    return figures.metrics.from_submit[guarantee].mean_us


def group(settings: Mapping[str, object], seed: int, rate: float = 400.0) -> World:
    """The five under moderate load from 1 s on, ready to be run."""
    world = World(LAB_TOTEM.make(settings), NODES, ETHERNET, seed, packets=True, kind_of=KIND_OF)
    drive(world, Workload(rate=rate, size=MESSAGE, safe=0.2, start_us=1_000_000))
    world.at(0, world.start)
    return world


class TokenLoss:
    """Loses the first token that is sent at or after a time, and no other packet."""

    def __init__(self, world: World, at_us: int) -> None:
        self.lost_us: int | None = None
        self.to: NodeId | None = None
        """Who would have been the next to have it."""
        self._at_us = at_us
        self._unicast = world.network.unicast
        world.network.unicast = self  # type: ignore[method-assign]

    def __call__(self, now_us: int, source: NodeId, to: NodeId, data: bytes) -> None:
        if self.lost_us is None and now_us >= self._at_us and KIND_OF(data) == "token":
            self.lost_us, self.to = now_us, to
        else:
            self._unicast(now_us, source, to, data)


def first_us(world: World, event: str, after_us: int, node: NodeId | None = None) -> int:
    """When something next happened after a time, to anyone or to a certain node; of packets, to a token."""
    packet = "token" if event.startswith("packet") else None
    return min(
        row[3]
        for row in world.rows
        if row[4] == event and row[3] > after_us and node in (None, row[0]) and row[19] == packet
    )


def installs(world: World, after_us: int) -> dict[tuple[NodeId, ...], list[int]]:
    """The regular configurations installed after a time, and when each member did."""
    found: dict[tuple[NodeId, ...], list[int]] = {}
    for row in world.rows:
        if row[4] == "install" and row[7] == "regular" and row[3] > after_us:
            found.setdefault(tuple(row[8] or ()), []).append(row[3])
    return found
