"""The networks of a simulation while it runs: who hears a packet, and when (`ordercast.sim.network` has the
settings).

The delays of a `LanNetwork` come from a table made with sums and divisions alone, since ``math.log`` may
differ between machines in its last bit, and a trace may not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from heapq import heappush
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ordercast.core.contract import Packet
from ordercast.core.identity import NodeId
from ordercast.sim.links import LOCAL_US, Links, Wiring

if TYPE_CHECKING:
    from ordercast.sim.network import Ethernet, Lan, Measured

_GRAIN = 4096
EXPONENTIAL = tuple(accumulate(1.0 / (_GRAIN - i) for i in range(_GRAIN)))
"""Quantiles of the exponential distribution of mean 1 (Rényi: the k-th smallest of n is on average the
sum of 1/(n - i) for i < k), to be indexed by a uniform draw."""


def exponential(uniform: float) -> float:
    """A draw from the exponential distribution of mean 1, from a uniform one in [0, 1)."""
    return EXPONENTIAL[int(uniform * _GRAIN)]


class Network(Protocol):
    """A running network, as the world knows it. Arrivals go onto the heap of the world's clock."""

    @property
    def links(self) -> Links:
        """The present faults of the links between nodes."""

    @property
    def busy_us(self) -> float:
        """How long the shared medium was in use; 0 where there is none."""

    def multicast(self, now_us: int, source: NodeId, data: bytes) -> None:
        """Send to every node that is attached but `source`."""

    def unicast(self, now_us: int, source: NodeId, to: NodeId, data: bytes) -> None:
        """Send to one node that is attached."""

    def recover(self) -> None:
        """From now on nothing is lost, duplicated or overtaken by the network's own doing."""


class _Lane:
    """The way from one node to another on a `Lan`: it keeps packets in order."""

    __slots__ = ("host", "last_us", "to")

    def __init__(self, to: NodeId, host: object) -> None:
        self.to = to
        self.host = host
        self.last_us = 0
        """When the latest packet so far arrives; the next arrives no earlier."""


class LanNetwork:
    """A running `Lan`."""

    busy_us = 0.0
    """There is no shared medium that could be in use."""

    def __init__(self, config: Lan, wiring: Wiring, seed: str) -> None:
        self.links = Links(wiring, random.Random(f"{seed}/burst"))
        self._wiring = wiring
        self._number = wiring.number
        self._heap, self._tick = wiring.clock.heap, wiring.clock.tick
        self._lossy = random.Random(f"{seed}/loss").random
        self._lan = config
        self._faithful = not (config.loss or config.duplicate or config.reorder)
        self._delays = tuple(config.base_us + int(config.tail_us * q) for q in EXPONENTIAL)
        self._delay = random.Random(f"{seed}/delay").random
        self._twice = random.Random(f"{seed}/duplicate").random
        self._late = random.Random(f"{seed}/reorder").random
        hosts = wiring.hosts
        self._lanes = {source: [_Lane(to, hosts[to]) for to in hosts if to != source] for source in hosts}
        self._lane = {(source, lane.to): lane for source in hosts for lane in self._lanes[source]}

    def recover(self) -> None:
        """From now on nothing is lost, duplicated or overtaken by the network's own doing."""
        self._lan = msgspec.structs.replace(self._lan, loss=0.0, duplicate=0.0, reorder=0.0)
        self._faithful = True

    def multicast(self, now_us: int, source: NodeId, data: bytes) -> None:
        """Send to every node but `source`."""
        self._send(now_us, source, self._lanes[source], Packet(data, source, 0, self._number), False)

    def unicast(self, now_us: int, source: NodeId, to: NodeId, data: bytes) -> None:
        """Send to one node."""
        if source == to:
            self._wiring.schedule(now_us + LOCAL_US, to, Packet(data, source, 0, self._number), True)
        elif self._faithful and self.links.calm:  # the token's usual way, without a loop over one receiver
            lane = self._lane[source, to]
            when_us = now_us + self._delays[int(self._delay() * _GRAIN)]
            if when_us < lane.last_us:
                when_us = lane.last_us
            else:
                lane.last_us = when_us
            packet = Packet(data, source, 0, self._number)
            heappush(self._heap, (when_us, self._tick(), self._wiring.hear_unicast, lane.host, packet))
        else:
            packet = Packet(data, source, 0, self._number)
            self._send(now_us, source, (self._lane[source, to],), packet, True)

    def _send(
        self, now_us: int, source: NodeId, lanes: Sequence[_Lane], packet: Packet, unicast: bool
    ) -> None:
        heap, tick, delays, delay = self._heap, self._tick, self._delays, self._delay
        hear = self._wiring.hear_unicast if unicast else self._wiring.hear
        lan, calm = self._lan, self.links.calm
        loss, duplicate, reorder = lan.loss, lan.duplicate, lan.reorder
        for lane in lanes:
            when_us = now_us + delays[int(delay() * _GRAIN)]
            if not calm:
                extra = self.links.passes(source, lane.to, packet, unicast)
                if extra is None:
                    continue
                when_us += extra
            if loss and self._lossy() < loss:
                self._wiring.lose(lane.host, packet, "lost")
                continue
            if reorder and self._late() < reorder:
                when_us += int(self._late() * lan.reorder_us)
            elif when_us < lane.last_us:
                when_us = lane.last_us
            else:
                lane.last_us = when_us
            heappush(heap, (when_us, tick(), hear, lane.host, packet))
            if duplicate and self._twice() < duplicate:
                again_us = when_us + int(self._twice() * lan.reorder_us)
                heappush(heap, (again_us, tick(), hear, lane.host, packet))


class _Delays:
    """A table of measured delays, and where it is read."""

    def __init__(self, delays_us: tuple[int, ...]) -> None:
        self._delays_us = delays_us
        self._at = 0

    def go_to(self, place: float) -> None:
        """Go on at a place of the table: 0 is its beginning, 1 its end."""
        self._at = int(place * len(self._delays_us))

    def take(self) -> int:
        """The next delay."""
        delay_us = self._delays_us[self._at % len(self._delays_us)]
        self._at += 1
        return delay_us


class MeasuredNetwork:
    """A running `Measured`. What a node multicasts in one instant travels together."""

    busy_us = 0.0
    """There is no shared medium that could be in use."""

    def __init__(self, config: Measured, wiring: Wiring, seed: str) -> None:
        self.links = Links(wiring, random.Random(f"{seed}/burst"))
        self._config, self._wiring = config, wiring
        self._loss = config.loss
        self._lossy = random.Random(f"{seed}/loss").random
        self._delay = random.Random(f"{seed}/delay").random
        self._ids = tuple(sorted(wiring.hosts))
        self._sent: dict[NodeId, tuple[int, dict[NodeId, int]]] = {}
        """By sender, when it multicast last, and how long that takes to each node."""
        self._last_us: dict[tuple[NodeId, NodeId], int] = {}
        """When the latest multicast so far arrives, by way."""
        self._alone = _Delays(config.unicast_delays_us)
        self._behind = _Delays(config.behind_delays_us)
        self._by_distance = [_Delays(table) for table in config.multicast_delays_us]
        self._left = 0
        """How often something is sent before another place of the tables is drawn."""

    def recover(self) -> None:
        """From now on nothing is lost by the network's own doing."""
        self._loss = 0.0

    def _go_on(self) -> None:
        """Something is sent: draw another place, the same in all tables, if it is time to."""
        if not self._left:
            self._left = self._config.run
            place = self._delay()
            for delays in (self._alone, self._behind, *self._by_distance):
                delays.go_to(place)
        self._left -= 1

    def multicast(self, now_us: int, source: NodeId, data: bytes) -> None:
        """Send to every node but `source`."""
        if self._sent.get(source, (-1, {}))[0] != now_us:
            self._go_on()
            at, tables = self._ids.index(source), self._by_distance
            others = (*self._ids[at + 1 :], *self._ids[:at])
            delays = {to: tables[min(k, len(tables) - 1)].take() for k, to in enumerate(others)}
            self._sent[source] = now_us, delays
        packet = Packet(data, source, 0, self._wiring.number)
        for to, delay_us in self._sent[source][1].items():
            when_us = max(now_us + delay_us, self._last_us.get((source, to), 0))
            self._last_us[source, to] = when_us
            self._put(when_us, source, to, packet, unicast=False)

    def unicast(self, now_us: int, source: NodeId, to: NodeId, data: bytes) -> None:
        """Send to one node."""
        packet = Packet(data, source, 0, self._wiring.number)
        if source == to:
            self._wiring.schedule(now_us + LOCAL_US, to, packet, True)
            return
        self._go_on()
        behind = self._sent.get(source, (-1, {}))[0] == now_us
        delay_us = (self._behind if behind else self._alone).take()
        self._put(now_us + delay_us, source, to, packet, unicast=True)

    def _put(self, when_us: int, source: NodeId, to: NodeId, packet: Packet, unicast: bool) -> None:
        if not self.links.calm:
            extra = self.links.passes(source, to, packet, unicast)
            if extra is None:
                return
            when_us += extra
        if self._loss and self._lossy() < self._loss:
            self._wiring.lose(self._wiring.hosts[to], packet, "lost")
        else:
            self._wiring.schedule(when_us, to, packet, unicast)


class EthernetNetwork:
    """A running `Ethernet`. The medium is booked in nanoseconds, so that rounding does not add up."""

    def __init__(self, config: Ethernet, wiring: Wiring, seed: str) -> None:
        self.links = Links(wiring, random.Random(f"{seed}/burst"))
        self._wiring = wiring
        self._number = wiring.number
        self._clock = wiring.clock
        self._lossy = random.Random(f"{seed}/loss").random
        self._ethernet = config
        self._busy_ns = self._begin_ns = self._free_ns = 0
        """How long the medium is booked for in all; since when without a pause, and until when."""
        self._costs: dict[int, tuple[int, float]] = {}
        hosts = wiring.hosts
        self._ids = {source: tuple(to for to in hosts if to != source) for source in hosts}
        self._others = {source: tuple(hosts[to] for to in ids) for source, ids in self._ids.items()}

    @property
    def busy_us(self) -> float:
        """How long the shared medium was in use until now, whatever is booked for later."""
        later_ns = self._free_ns - max(self._begin_ns, self._clock.now * 1000)
        return (self._busy_ns - max(0, later_ns)) / 1000

    def recover(self) -> None:
        """From now on nothing is lost, duplicated or overtaken by the network's own doing."""
        self._ethernet = msgspec.structs.replace(self._ethernet, loss=0.0, unicast_loss=None)
        self._costs.clear()

    def multicast(self, now_us: int, source: NodeId, data: bytes) -> None:
        """Send to every node but `source`."""
        packet = Packet(data, source, 0, self._number)
        booked = self._book(now_us, len(data))
        if booked is None:
            for host in self._others[source]:
                self._wiring.lose(host, packet, "medium full")
            return
        when_us, loss = booked
        if self.links.calm and not loss:
            hosts: Sequence[Any] = self._others[source]
        else:
            hosts = self._listeners(when_us, source, packet, loss)
        heappush(self._clock.heap, (when_us, self._clock.tick(), self._wiring.hear_all, hosts, packet))

    def unicast(self, now_us: int, source: NodeId, to: NodeId, data: bytes) -> None:
        """Send to one node."""
        packet = Packet(data, source, 0, self._number)
        if source == to:
            self._wiring.schedule(now_us + LOCAL_US, to, packet, True)
            return
        booked = self._book(now_us, len(data))
        if booked is None:
            self._wiring.lose(self._wiring.hosts[to], packet, "medium full")
            return
        when_us, loss = booked
        if self._ethernet.unicast_loss is not None:
            loss = self._ethernet.unicast_loss
        if not self.links.calm:
            extra = self.links.passes(source, to, packet, True)
            if extra is None:
                return
            when_us += extra
        if loss and self._lossy() < loss:
            self._wiring.lose(self._wiring.hosts[to], packet, "lost")
            return
        self._wiring.schedule(when_us, to, packet, True)

    def _listeners(self, when_us: int, source: NodeId, packet: Packet, loss: float) -> list[Any]:
        """The hosts that hear a multicast at `when_us`, while not all do."""
        hear: list[Any] = []
        for to, host in zip(self._ids[source], self._others[source], strict=True):
            extra = 0 if self.links.calm else self.links.passes(source, to, packet, False)
            if extra is None:
                continue
            if loss and self._lossy() < loss:
                self._wiring.lose(host, packet, "lost")
            elif extra:
                self._wiring.schedule(when_us + extra, to, packet, False)
            else:
                hear.append(host)
        return hear

    def _book(self, now_us: int, size: int) -> tuple[int, float] | None:
        """Take the medium for a datagram: when it arrives, and its loss. None if booked too far ahead."""
        cost = self._costs.get(size)
        if cost is None:
            cost = self._costs[size] = self._cost(size)
        air_ns, loss = cost
        now_ns = now_us * 1000
        start_ns = max(self._free_ns, now_ns)
        if start_ns - now_ns > self._ethernet.backlog_us * 1000:
            return None
        if start_ns > self._free_ns:
            self._begin_ns = start_ns
        self._free_ns = start_ns + air_ns
        self._busy_ns += air_ns
        return -(-self._free_ns // 1000) + self._ethernet.propagation_us, loss

    def _cost(self, size: int) -> tuple[int, float]:
        """Time on the medium in nanoseconds, and loss, of a datagram of `size` bytes.

        A frame has preamble 8, header 14, check sequence 4 and a gap of 12 bytes, and holds at least 46;
        IP's header is 20 bytes in each, UDP's 8 in the first. One lost frame loses the datagram.
        """
        config = self._ethernet
        carried = (config.mtu - 20) // 8 * 8
        frames, last = divmod(size + 8 + carried - 1, carried)
        bytes_on_air = frames * 38 + (frames - 1) * (carried + 20) + max(46, last + 1 + 20)
        loss = 1.0 - math.prod([1.0 - config.loss] * frames)
        return bytes_on_air * 8 * 1_000_000_000 // config.bits_per_s, loss
