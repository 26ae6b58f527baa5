"""The networks of a world: one for all nodes, or several, with nodes attached to more than one: gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from ordercast.core.identity import NodeId
from ordercast.sim.links import Links, Wiring
from ordercast.sim.network import NetworkConfig
from ordercast.sim.running_networks import Network


class Networks(dict[int, Network]):
    """The running networks by number."""

    def __init__(
        self, config: NetworkConfig, wiring: Wiring, attached: Mapping[NodeId, Sequence[int]] | None
    ) -> None:
        """Networks of one kind between the hosts of `wiring`, each with streams of chance of its own.

        `attached` has the numbers of those that each node is attached to; None: all are to one, number 0.
        """
        hosts, seed = wiring.hosts, wiring.clock.seed
        self.attached = {node: (0,) if attached is None else tuple(attached[node]) for node in hosts}
        """The numbers of the networks that each node is attached to."""
        for number in sorted({*chain(*self.attached.values())}):
            on_it = {node: host for node, host in hosts.items() if number in self.attached[node]}
            streams = f"{seed}/network {number}" if number else str(seed)
            self[number] = config.open(wiring._replace(hosts=on_it, number=number), streams)

    @property
    def busy_us(self) -> float:
        """How long the shared medium was in use, of several networks on average; 0 where there is none."""
        return sum(network.busy_us for network in self.values()) / len(self)

    def links(self, number: int | None = None, *nodes: NodeId) -> list[Links]:
        """The links of the network of that number; of None, of each that all these nodes are attached to."""
        if number is None:
            numbers = [each for each in self if all(each in self.attached[node] for node in nodes)]
        elif number in self:
            numbers = [number]
        else:
            raise ValueError(f"no network {number}; there are {', '.join(map(str, self))}")
        return [self[each].links for each in numbers]

    def recover(self) -> None:
        """From now on nothing is lost, duplicated or overtaken by the networks' own doing."""
        for network in self.values():
            network.recover()
