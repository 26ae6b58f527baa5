"""Networks a simulated group runs on: what a packet goes through between two machines.

Two kinds, each a frozen configuration that `open` turns into a running network:

- `Lan`: every receiver has its own delay, drawn from a distribution; packets between two nodes keep
  their order unless they are lost, duplicated or reordered, each with a probability;
- `Ethernet`: one shared medium with a bit rate that carries one packet at a time; every receiver
  hears it at the same instant.

Both say what a host is like: how much processor time a packet takes and how much its input buffers
hold. `preset` names the usual ones. The delays of `Lan` come from a table made with sums and divisions
alone, since ``math.log`` may differ between machines in its last bit, and a trace may not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from heapq import heappush
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import msgspec

from ordercast.core.contract import Packet
from ordercast.core.identity import NodeId
from ordercast.sim.links import LOCAL_US, Links, Wiring

_GRAIN = 4096
EXPONENTIAL = tuple(accumulate(1.0 / (_GRAIN - i) for i in range(_GRAIN)))
"""Quantiles of the exponential distribution of mean 1 (Rényi: the k-th smallest of n is on average the
sum of 1/(n - i) for i < k), to be indexed by a uniform draw."""


def exponential(uniform: float) -> float:
    """A draw from the exponential distribution of mean 1, from a uniform one in [0, 1)."""
    return EXPONENTIAL[int(uniform * _GRAIN)]


_LIMITS: dict[str, tuple[float, float]] = {
    "loss": (0, 1),
    "unicast_loss": (0, 1),
    "duplicate": (0, 1),
    "reorder": (0, 1),
    "bits_per_s": (1, math.inf),
    "mtu": (68, math.inf),  # what IP asks of every medium
}
"""The least and the most that a field may be; of the others, that it is not negative."""


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


class HostsAndLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every network: what the hosts on it are like, and loss."""

    loss: float = 0.0
    """Probability that a reception is lost (Ethernet: that a frame is, at one receiver)."""
    input_bytes: int = 212_992
    """What the input buffer for multicasts holds, and as much again for unicasts; a packet that does not
    fit is dropped. The default is Linux's. It only fills while a host is busy or paused."""
    receive_us: int = 0
    """Processor time a host needs for a multicast packet before its machine sees it."""
    unicast_us: int = 0
    """The same for a unicast packet: the token."""
    send_us: int = 0
    """Processor time a host needs to send a packet; the packet leaves after it."""
    message_us: int = 0
    """Processor time a host needs for each message that it puts into a packet, and for each that it delivers,
    beside what packets cost."""

    @property
    def takes_time(self) -> bool:
        """Whether a host needs processor time for anything."""
        return bool(self.receive_us or self.unicast_us or self.send_us or self.message_us)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            least, most = _LIMITS.get(name, (0, math.inf))
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                upto = f"between {least} and {most}" if most < math.inf else f"{least} or more"
                raise ValueError(f"{name} is {value}: choose {upto}")


class Lan(HostsAndLoss, frozen=True, kw_only=True):
    """A switched network: independent delays, no shared medium, capacity without limit."""

    base_us: int = 50
    """The least delay."""
    tail_us: int = 30
    """Mean of the exponentially distributed rest."""
    duplicate: float = 0.0
    """Probability that a packet arrives a second time at a receiver."""
    reorder: float = 0.0
    """Probability that a packet is overtaken: it takes up to `reorder_us` longer."""
    reorder_us: int = 1_000
    """The most that an overtaken packet takes longer."""

    def open(self, wiring: Wiring, seed: str) -> Network:
        """A network of this kind between the hosts of `wiring`, in its first instant."""
        return LanNetwork(self, wiring, seed)


class Ethernet(HostsAndLoss, frozen=True, kw_only=True):
    """One shared medium: transmissions take their turn, first come first served."""

    bits_per_s: int = 10_000_000
    """Bit rate of the medium."""
    propagation_us: int = 5
    """From the end of a transmission to its arrival everywhere."""
    mtu: int = 1_500
    """Bytes of an IP packet in one frame; a larger datagram is sent in several."""
    backlog_us: int = 1_000_000
    """How far the medium may be booked ahead; what would wait longer is dropped by its sender."""
    unicast_loss: float | None = None
    """Probability that a unicast packet, the token, is lost; None: as any other reception."""

    def open(self, wiring: Wiring, seed: str) -> Network:
        """A network of this kind between the hosts of `wiring`, in its first instant."""
        return EthernetNetwork(self, wiring, seed)


NetworkConfig: TypeAlias = Lan | Ethernet
"""Says which network to open, and what the hosts on it are like."""


PRESETS: dict[str, NetworkConfig] = {
    "lan": Lan(),
    "lossy": Lan(loss=0.02, duplicate=0.01, reorder=0.05),
    "ethernet10": Ethernet(
        bits_per_s=10_000_000, receive_us=200, unicast_us=1_300, send_us=100, input_bytes=65_536
    ),
    "ethernet100": Ethernet(bits_per_s=100_000_000, receive_us=10, unicast_us=15, send_us=8),
}
"""Networks by name.

``ethernet10`` stands for the five Sun 4/IPC of 000 §9. The paper does not give host costs. Ours are
assumptions under which all of its figures come out at once (``tests/paper``): a packet is cheap against the
token, with which a node empties its buffers, orders, acknowledges and plans. They were chosen by the
latencies and their ratio to the rotation, which are therefore no independent evidence. SunOS gave a socket
some tens of kilobytes. ``ethernet100`` has hosts some fifty times as fast.
"""


def preset(name: str, changes: Mapping[str, object] | None = None) -> NetworkConfig:
    """The network of that name, with some of its fields changed; strings are read as numbers."""
    if name not in PRESETS:
        raise ValueError(f"no network {name!r}; there are {', '.join(PRESETS)}")
    fields = msgspec.structs.asdict(PRESETS[name])
    for field, value in (changes or {}).items():
        if field not in fields:
            raise ValueError(f"network {name} has no {field!r}; it has {', '.join(fields)}")
        fields[field] = value
    try:
        return msgspec.convert(fields, type(PRESETS[name]), strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"network {name}: {error}") from error


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


class EthernetNetwork:
    """A running `Ethernet`. The medium is booked in nanoseconds, so that rounding does not add up."""

    def __init__(self, config: Ethernet, wiring: Wiring, seed: str) -> None:
        self.links = Links(wiring, random.Random(f"{seed}/burst"))
        self.busy_us = 0.0
        """How long the shared medium was in use."""
        self._wiring = wiring
        self._number = wiring.number
        self._clock = wiring.clock
        self._lossy = random.Random(f"{seed}/loss").random
        self._ethernet = config
        self._free_ns = 0
        self._costs: dict[int, tuple[int, float]] = {}
        hosts = wiring.hosts
        self._ids = {source: tuple(to for to in hosts if to != source) for source in hosts}
        self._others = {source: tuple(hosts[to] for to in ids) for source, ids in self._ids.items()}

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
        self._free_ns = start_ns + air_ns
        self.busy_us += air_ns / 1000
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
