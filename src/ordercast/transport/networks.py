"""A node on several networks: a transport for each, which are one to whoever does not send.

Nothing is shared between them but the node: each has its own ports, key, sessions and links.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ordercast.core.identity import NodeId
from ordercast.errors import OrdercastError
from ordercast.transport.interface import Capacity, OneNetwork, Receiver
from ordercast.transport.udp_socket import Address


class OnNetwork:
    """The receiver of one network: it adds the network's number to what the driver is told."""

    __slots__ = ("_network", "_receiver", "guard", "on_distance", "on_outlived", "on_turn_over")

    def __init__(self, receiver: Receiver, network: int) -> None:
        self._receiver = receiver
        self._network = network
        self.guard: AbstractContextManager[None, bool] = receiver.guard
        self.on_turn_over = receiver.on_turn_over
        self.on_distance = receiver.on_distance
        self.on_outlived = receiver.on_outlived

    @property
    def delivered(self) -> int:
        """Messages that were delivered so far, whichever network they came by."""
        return self._receiver.delivered

    def on_data(self, sender: NodeId, packets: Sequence[bytes], network: int = 0) -> None:
        """Packets that a node multicast on this network, in order."""
        self._receiver.on_data(sender, packets, self._network)

    def on_unicast(self, sender: NodeId, packet: bytes, waited_us: int, network: int = 0) -> None:
        """A packet in another lane than data on this network."""
        self._receiver.on_unicast(sender, packet, waited_us, self._network)

    def on_gone(self, node: NodeId, network: int = 0) -> None:
        """Nobody listens at a node's address on this network any more."""
        self._receiver.on_gone(node, self._network)


class Networks:
    """Carries the packets of a node that may be on several networks."""

    def __init__(self, networks: Mapping[int, OneNetwork]) -> None:
        """By the numbers of the networks; at least one."""
        self.networks = networks
        self._all = tuple(networks.values())

    # --- life -----------------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        """Receive on all networks from now on."""
        for network, transport in self.networks.items():
            transport.start(OnNetwork(receiver, network))

    async def find_peers(self) -> None:
        """Wait on each network until a node is reachable there or nobody answers."""
        found = await asyncio.gather(
            *(transport.find_peers() for transport in self._all), return_exceptions=True
        )
        for error in found:
            if error is not None:
                raise error

    def begin_life(self, incarnation: int) -> None:
        """The node is in that life from now on, on all networks."""
        for transport in self._all:
            transport.begin_life(incarnation)

    def say_goodbye(self) -> None:
        """Tell the others on all networks that this node's process is about to end."""
        for transport in self._all:
            transport.say_goodbye()

    def close(self) -> None:
        """Receive and send nothing more."""
        for transport in self._all:
            transport.close()

    def read_waiting(self) -> bool:
        """Hand over what has arrived on all networks, a bounded amount; whether that was everything."""
        dry = [transport.read_waiting() for transport in self._all]
        return all(dry)

    # --- looking --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where others reach this node on its first network."""
        return self._all[0].address

    @property
    def own(self) -> Address:
        """Where others reach this node, as it is found in `listed`."""
        return self._all[0].own

    @property
    def listed(self) -> Mapping[str, Sequence[Address]]:
        """The nodes that this one was told of, on any network."""
        return {text: found for transport in self._all for text, found in transport.listed.items()}

    @property
    def sealed(self) -> bool:
        """Whether packets are encrypted and authenticated on all networks."""
        return all(transport.sealed for transport in self._all)

    @property
    def capacity(self) -> Capacity:
        """What each of the networks carries well."""
        return Capacity(*map(min, zip(*(transport.capacity for transport in self._all), strict=True)))

    @property
    def reachable(self) -> Sequence[NodeId]:
        """The nodes that multicasts on any network are sent to, in order."""
        return sorted({node for transport in self._all for node in transport.reachable})

    @property
    def round_trip_us(self) -> int:
        """To the farthest reachable node on any network and back."""
        return max(transport.round_trip_us for transport in self._all)

    def take_refusal(self) -> OrdercastError | None:
        """What others said who refused this node on a network where it can reach nobody."""
        refusals = [transport.take_refusal() for transport in self._all]
        return next((refusal for refusal in refusals if refusal is not None), None)

    def hosts(self) -> Sequence[str]:
        """The hosts of reachable nodes on all networks."""
        return list(dict.fromkeys(host for transport in self._all for host in transport.hosts()))

    def host_of(self, node: NodeId) -> str | None:
        """The host that a node's packets come from, on the first network where there is one."""
        hosts = (transport.host_of(node) for transport in self._all)
        return next((host for host in hosts if host is not None), None)

    def relay_of(self, node: NodeId) -> int:
        """The port at which a node carries streams between its networks; 0: nowhere."""
        return next(filter(None, (transport.relay_of(node) for transport in self._all)), 0)

    def relays_at(self, port: int) -> None:
        """Tell others on all networks at which port this node carries streams between them."""
        for transport in self._all:
            transport.relays_at(port)

    def lost(self) -> Mapping[str, int]:
        """Packets that were lost below, on all networks together."""
        return sum((Counter(transport.lost()) for transport in self._all), Counter())

    def status(self) -> dict[str, Any]:
        """That of the first network, the peers on all of them, and what tells the networks apart."""
        told = {network: transport.status() for network, transport in self.networks.items()}
        first = next(iter(told.values()))
        return {
            **first,
            "sealed": self.sealed,
            "peers": [{**peer, "network": network} for network in told for peer in told[network]["peers"]],
            "networks": [
                {
                    "network": network,
                    "address": status["address"],
                    "sealed": status["sealed"],
                    "linked": [peer["node"] for peer in status["peers"] if peer["linked"]],
                }
                for network, status in told.items()
            ],
        }
