"""What carries a node's packets, as a driver knows it; and a driver, as what carries its packets knows it.

A transport is opened for one node, started once with the driver that works above it, and closed by that. It
knows no machine and no protocol: packets are bytes, by node and lane. `ordercast.transport.udp` is the one of
real nodes, `ordercast.transport.memory` one between the nodes of a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ordercast.core.contract import Lane
from ordercast.core.identity import NodeId
from ordercast.errors import OrdercastError
from ordercast.keys import Keyring
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.udp_socket import Address

MOST_REASONS = 64
"""Reasons for drops that are counted apart."""


class Drops(Counter[str]):
    """Packets that were not used, by reason; beyond `MOST_REASONS` reasons all others are one."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count packets that were not used."""
        if not count:
            return
        if reason not in self and len(self) >= MOST_REASONS:
            reason = "other reasons"
        self[reason] += count


class Capacity(NamedTuple):
    """What a transport carries well."""

    buffer: int
    """Bytes that wait at a receiver at most, before packets are lost."""
    datagram: int
    """Bytes of a packet that travel in one piece."""
    packet: int
    """Bytes of the packet that costs least for each of its bytes."""
    largest: int
    """Bytes of the largest packet."""


class Setup(NamedTuple):
    """What a transport has to know of the node that it is opened for."""

    node: NodeId
    incarnation: int
    protocol: str
    """Nodes that run another one, or the same on a network of another number, are refused."""
    keyring: Keyring | None
    """The group key; None: packets are neither encrypted nor authenticated."""
    drops: Drops
    """Counts what is not used."""
    now_us: Callable[[], int]
    """The node's clock: microseconds since the epoch, which never go back."""
    known_lives: KnownLives
    """The lives of other nodes that this one has heard of."""
    network: int = 0
    """The number of the network that it is opened on; 0 where a node has one only."""


class Receiver(Protocol):
    """A driver, as its transport knows it."""

    @property
    def guard(self) -> AbstractContextManager[None, bool]:
        """Entered around everything that the event loop calls: an error within ends the node."""

    @property
    def delivered(self) -> int:
        """Messages that were delivered so far: as long as it rises, the group is at work."""

    def on_data(self, sender: NodeId, packets: Sequence[bytes], network: int = 0) -> None:
        """Packets that a node multicast, in order."""

    def on_unicast(self, sender: NodeId, packet: bytes, waited_us: int, network: int = 0) -> None:
        """A packet in another lane than data; it had waited at this node for so long to be read."""

    def on_turn_over(self) -> None:
        """What could be read was: multicasts that wait may leave."""

    def on_gone(self, node: NodeId, network: int = 0) -> None:
        """A node's process has ended, or so it seems."""

    def on_distance(self) -> None:
        """`Transport.round_trip_us` has changed."""

    def on_outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in."""


class Network(Protocol):
    """A network, as who sends on it knows it."""

    def multicast(self, packets: Sequence[bytes]) -> None:
        """Send packets to all reachable nodes, in order."""

    def unicast(self, to: NodeId, packet: bytes, lane: Lane, behind: Sequence[bytes]) -> None:
        """Send a packet to one node, behind packets that are multicast first."""

    def rekey(self, keyring: Keyring) -> None:
        """The keys of the group have changed."""


class Transport(Protocol):
    """Carries the packets of one node, on one network or several (`ordercast.transport.networks`)."""

    @property
    def networks(self) -> Mapping[int, Network]:
        """The networks to send on, by their numbers; 0 where there is one only."""

    @property
    def address(self) -> str:
        """Where others reach this node, as people write it."""

    @property
    def own(self) -> Address:
        """Where others reach this node, as it is found in `listed`."""

    @property
    def listed(self) -> Mapping[str, Sequence[Address]]:
        """The nodes that this one was told of, as they were written, with all addresses that each has."""

    @property
    def sealed(self) -> bool:
        """Whether packets are encrypted and authenticated."""

    @property
    def capacity(self) -> Capacity:
        """What the transport carries well."""

    @property
    def reachable(self) -> Sequence[NodeId]:
        """The nodes that multicasts are sent to now, in order."""

    @property
    def round_trip_us(self) -> int:
        """To the farthest reachable node and back; 0 while that is not known."""

    def start(self, receiver: Receiver) -> None:
        """Receive, and look for others, from now on; on the running event loop."""

    async def find_peers(self) -> None:
        """Wait until a node is reachable or nobody answers; also until this node is told that it is outlived.

        Raises why others refuse this node, if they do.
        """

    def begin_life(self, incarnation: int) -> None:
        """The node is in that life from now on."""

    def read_waiting(self) -> bool:
        """Hand over what has arrived, a bounded amount; whether that was everything."""

    def take_refusal(self) -> OrdercastError | None:
        """What others said who refused this node since this was last asked, if it can reach nobody."""

    def hosts(self) -> Sequence[str]:
        """The hosts of reachable nodes."""

    def host_of(self, node: NodeId) -> str | None:
        """The host that a node's packets come from; None if that is not known."""

    def relay_of(self, node: NodeId) -> int:
        """The port at which a reachable node carries streams between its networks; 0: nowhere."""

    def relays_at(self, port: int) -> None:
        """Tell others that this node carries streams between its networks at that port."""

    def status(self) -> dict[str, Any]:
        """What `ordercast status` tells of it, by name; everything can be written as JSON."""

    def lost(self) -> Mapping[str, int]:
        """Packets that were lost below, by reason, so far as that is known."""

    def say_goodbye(self) -> None:
        """Tell the others that this node's process is about to end."""

    def close(self) -> None:
        """Receive and send nothing more."""


class OneNetwork(Transport, Network, Protocol):
    """Carries the packets of one node on one network."""
