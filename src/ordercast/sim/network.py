"""Networks a simulated group runs on: what a packet goes through between two machines.

Three kinds, each a frozen configuration that `open` turns into a running network:

- `Lan`: every receiver has its own delay, drawn from a distribution; packets between two nodes keep
  their order unless they are lost, duplicated or reordered, each with a probability;
- `Ethernet`: one shared medium with a bit rate that carries one packet at a time; every receiver
  hears it at the same instant;
- `Measured`: delays as they were measured, from tables of quantiles.

All say what a host is like: how much processor time a packet takes and how much its input buffers
hold. `preset` names the usual ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from ordercast.core.contract import Multicast, Unicast
from ordercast.sim.links import Wiring
from ordercast.sim.running_networks import EthernetNetwork, LanNetwork, MeasuredNetwork, Network

_LIMITS: dict[str, tuple[float, float]] = {
    "loss": (0, 1),
    "unicast_loss": (0, 1),
    "duplicate": (0, 1),
    "reorder": (0, 1),
    "bits_per_s": (1, math.inf),
    "mtu": (68, math.inf),  # what IP asks of every medium
}
"""The least and the most that a field may be; of the others, that it is not negative."""


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

    byte_ns: int = 0
    """Nanoseconds of processor time a host needs for each byte of a packet that it hears, and of each copy
    that it sends: one for every receiver, as nodes without IP multicast do. Beside what packets cost."""

    @property
    def takes_time(self) -> bool:
        """Whether a host needs processor time for anything."""
        return bool(self.receive_us or self.unicast_us) or self.delays_sending

    @property
    def delays_sending(self) -> bool:
        """Whether packets leave later than machines send them."""
        return bool(self.send_us or self.message_us or self.byte_ns)

    def sending_us(self, effect: Multicast | Unicast, nodes: int) -> int:
        """Processor time to send a packet, if there are so many nodes."""
        copies = nodes - 1 if type(effect) is Multicast else 1
        return self.send_us + copies * len(effect.data) * self.byte_ns // 1_000

    def hearing_us(self, size: int, unicast: bool) -> int:
        """Processor time that a packet of `size` bytes takes its receiver."""
        return (self.unicast_us if unicast else self.receive_us) + size * self.byte_ns // 1_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            least, most = _LIMITS.get(name, (0, math.inf))
            value = getattr(self, name)
            if isinstance(value, int | float) and not least <= value <= most:
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


class Measured(HostsAndLoss, frozen=True, kw_only=True):
    """A network whose delays are drawn from what was measured: from sending to handling, all costs of the
    hosts included. Each table has delays in microseconds, in the order in which they were measured."""

    unicast_delays_us: tuple[int, ...] = (100,)
    """Of packets for one node, where their sender sends nothing else at that instant."""
    behind_delays_us: tuple[int, ...] = (150,)
    """Of packets for one node that leave behind multicasts: the token of a node that had messages."""
    multicast_delays_us: tuple[tuple[int, ...], ...] = ((100,),)
    """Of multicasts: to the node that is next in the order of identifiers, to the one behind it, and so on;
    the last table is that of all others."""
    run: int = 1
    """How often something is sent in a row with delays that follow each other in the tables, before another
    place of them is drawn: what makes one packet late makes the next ones late."""

    def __post_init__(self) -> None:
        HostsAndLoss.__post_init__(self)
        if self.run < 1:
            raise ValueError(f"run is {self.run}: at least one packet has its delay from each place")
        for table in (self.unicast_delays_us, self.behind_delays_us, *self.multicast_delays_us):
            if not table or min(table) < 0:
                raise ValueError("a table of delays has at least one, and none below 0")
        if not self.multicast_delays_us:
            raise ValueError("multicast_delays_us has at least one table")

    def open(self, wiring: Wiring, seed: str) -> Network:
        """A network of this kind between the hosts of `wiring`, in its first instant."""
        return MeasuredNetwork(self, wiring, seed)


NetworkConfig: TypeAlias = Lan | Ethernet | Measured
"""Says which network to open, and what the hosts on it are like."""


MEASURED = "measured"
"""The preset whose tables come from a trace."""
PRESETS: dict[str, NetworkConfig] = {
    "lan": Lan(),
    "lossy": Lan(loss=0.02, duplicate=0.01, reorder=0.05),
    "ethernet10": Ethernet(
        bits_per_s=10_000_000, receive_us=200, unicast_us=1_300, send_us=100, input_bytes=65_536
    ),
    "ethernet100": Ethernet(bits_per_s=100_000_000, receive_us=10, unicast_us=15, send_us=8),
    "nodes": Lan(base_us=60, tail_us=20, receive_us=15, unicast_us=20, send_us=10, message_us=1, byte_ns=2),
    MEASURED: Measured(),
}
"""Networks by name.

``ethernet10`` stands for the five Sun 4/IPC of 000 §9. The paper does not give host costs. Ours are
assumptions under which all of its figures come out at once (``tests/paper``): a packet is cheap against the
token, with which a node empties its buffers, orders, acknowledges and plans. They were chosen by the
latencies and their ratio to the rotation, which are therefore no independent evidence. SunOS gave a socket
some tens of kilobytes. ``ethernet100`` has hosts some fifty times as fast.

``nodes`` are processes of ordercast on a switched network. Its costs come from real nodes on one machine with
two cores: tokens and packets from the token's rotation, messages and bytes from what three nodes deliver flat
out (100 bytes and 1 KB). Its capacity in bits is not limited.
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
