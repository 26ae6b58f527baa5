"""What stands between two nodes: partitions, one-way cuts, clogs, lost packets and bursts of loss; and how
packets that get through reach the world (`Wiring`).

The network asks here only while something is wrong (`Links.calm` is False): the common path costs one
test. A packet is judged when it goes onto the wire; what is already in flight arrives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappush
from typing import Any, NamedTuple

from ordercast.core.contract import Packet
from ordercast.core.identity import NodeId
from ordercast.sim.clock import Clock

Link = tuple[NodeId, NodeId]
"""One direction: from, to."""

MOST_HELD = 10_000
"""Packets a clogged link holds; further ones are dropped."""


LOCAL_US = 10
"""What a packet takes that does not cross the network: one to oneself, or one that a clog lets go."""


class Wiring(NamedTuple):
    """How a network reaches the world it is part of."""

    clock: Clock
    hosts: Mapping[NodeId, Any]
    """Every node attached to it, and what stands for it in the calls below."""
    hear: Callable[[Any, Packet], None]
    """A multicast packet arrives at one host."""
    hear_all: Callable[[Sequence[Any], Packet], None]
    """A multicast packet arrives at several hosts at the same instant."""
    hear_unicast: Callable[[Any, Packet], None]
    """A unicast packet arrives at its host."""
    lose: Callable[[Any, Packet, str], None]
    """A packet will not arrive at a host, and why."""
    number: int = 0
    """What the network is called in packets (`Packet.network`)."""

    def schedule(self, when_us: int, to: NodeId, packet: Packet, unicast: bool) -> None:
        """Let a packet arrive at one host at that time."""
        hear = self.hear_unicast if unicast else self.hear
        heappush(self.clock.heap, (when_us, self.clock.tick(), hear, self.hosts[to], packet))


class Held(NamedTuple):
    """A packet that waits in a clogged link."""

    packet: Packet
    unicast: bool


class PlannedLoss:
    """A packet that is going to be lost: the n-th in one direction that is of a certain sort."""

    __slots__ = ("left", "link", "meant")

    def __init__(self, link: Link, left: int, meant: Callable[[bytes], bool]) -> None:
        self.link = link
        self.left = left
        self.meant = meant

    def hits(self, link: Link, data: bytes) -> bool:
        """Whether this packet is the one to be lost. Counts those before it."""
        if self.link != link or not self.meant(data):
            return False
        self.left -= 1
        return not self.left


class Links:
    """The present faults of the links between nodes."""

    def __init__(self, wiring: Wiring, chance: random.Random) -> None:
        """All links work. `chance` is the stream that bursts of loss draw from."""
        self.calm = True
        self.nodes = tuple(wiring.hosts)
        """Who is attached to the network."""
        self._wiring = wiring
        self._side: dict[NodeId, int] = {}
        self._cut: set[Link] = set()
        self._clogged: dict[Link, int | None] = {}
        self._held: dict[Link, deque[Held]] = {}
        self._bursts: list[float] = []
        self.planned_losses: list[PlannedLoss] = []
        """Packets that are to be lost and have not come yet."""
        self._chance = chance.random

    # --- changing them -------------------------------------------------------------------------

    def partition(self, groups: Iterable[Iterable[NodeId]]) -> None:
        """Only nodes of one group reach each other; nodes in no group make up one more together.

        Replaces the partition before it.
        """
        self._side = {}
        for number, group in enumerate(groups):
            for node in group:
                if node not in self._wiring.hosts or node in self._side:
                    raise ValueError(f"node {node} is unknown or in two groups of the partition")
                self._side[node] = number
        self._settle()

    def heal(self) -> None:
        """End the partition. Cuts, clogs and bursts stay."""
        self._side = {}
        self._settle()

    def cut(self, source: NodeId, to: NodeId) -> None:
        """Nothing from `source` reaches `to` any more; the other direction works on."""
        self._cut.add((source, to))
        self._settle()

    def uncut(self, source: NodeId, to: NodeId) -> None:
        """End a one-way cut."""
        self._cut.discard((source, to))
        self._settle()

    def clog(self, source: NodeId, to: NodeId, delay_us: int | None = None) -> None:
        """What `source` sends to `to` takes `delay_us` longer, or is held until `unclog`."""
        self._clogged[source, to] = delay_us
        self._settle()

    def unclog(self, source: NodeId, to: NodeId) -> None:
        """End a clog: what it held arrives now, in order."""
        self._clogged.pop((source, to), None)
        self._settle()
        for packet, unicast in self._held.pop((source, to), ()):
            self._wiring.schedule(self._wiring.clock.now + LOCAL_US, to, packet, unicast)

    def lose(self, source: NodeId, to: NodeId, nth: int, meant: Callable[[bytes], bool]) -> None:
        """Of the packets that `source` sends to `to` from now on and that are `meant`, the n-th is lost."""
        self.planned_losses.append(PlannedLoss((source, to), nth, meant))
        self._settle()

    def begin_burst(self, loss: float) -> None:
        """From now on each reception is lost with this probability, on top of the network's own."""
        self._bursts.append(loss)
        self._settle()

    def end_burst(self, loss: float) -> None:
        """End a burst that began with this probability."""
        self._bursts.remove(loss)
        self._settle()

    def _settle(self) -> None:
        self.calm = not (self._side or self._cut or self._clogged or self._bursts or self.planned_losses)

    # --- asking --------------------------------------------------------------------------------

    def reach(self, source: NodeId, to: NodeId) -> bool:
        """Whether a packet from `source` may get to `to` at all."""
        side = self._side
        return (source, to) not in self._cut and side.get(source, -1) == side.get(to, -1)

    def passes(self, source: NodeId, to: NodeId, packet: Packet, unicast: bool) -> int | None:
        """Extra delay of a packet that is sent now, in microseconds; None if it is lost or held."""
        reason = self._obstacle((source, to), packet.data)
        if reason is None:
            delay = self._clogged.get((source, to), 0)
            if delay is not None:
                return delay
            if self._hold((source, to), Held(packet, unicast)):
                return None
            reason = "clog full"
        self._wiring.lose(self._wiring.hosts[to], packet, reason)
        return None

    def _obstacle(self, link: Link, data: bytes) -> str | None:
        """Why a packet sent now is lost; None if it is not. Draws from the stream of bursts."""
        hit = [each for each in self.planned_losses if each.hits(link, data)] if self.planned_losses else ()
        for each in hit:
            self.planned_losses.remove(each)
        if hit:
            self._settle()
            return "lose"
        if link in self._cut:
            return "cut"
        source, to = link
        if self._side.get(source, -1) != self._side.get(to, -1):
            return "partition"
        for loss in self._bursts:
            if self._chance() < loss:
                return "burst"
        return None

    def _hold(self, link: Link, held: Held) -> bool:
        """Keep a packet until `unclog`. False when the link is full and the packet is lost."""
        waiting = self._held.setdefault(link, deque())
        if len(waiting) >= MOST_HELD:
            return False
        waiting.append(held)
        return True
