"""Simulated nodes on several networks, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ordercast.audit.history import Expectation
from ordercast.audit.properties import audit
from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.protocol import SIM
from ordercast.rings.config import RingsConfig
from ordercast.rings.machine import RingsMachine
from ordercast.rings.protocol import RINGS
from ordercast.rings.states import State
from ordercast.sim.network import Lan
from ordercast.sim.world import World
from ordercast.trace.columns import EVENT, NODE, NUMBER, ORIGIN, SEQ, SLOT

LINE = {1: (1,), 2: (1,), 3: (1, 2), 4: (2,), 5: (2,), 6: (2, 3), 7: (3,), 8: (3,)}
"""Three rings in a line, joined by the gateways 3 and 6."""


class Rings:
    """A world of nodes on networks, all of them started."""

    def __init__(
        self,
        networks: Mapping[NodeId, Sequence[int]],
        *,
        seed: int = 1,
        lan: Lan | None = None,
        **settings: object,
    ) -> None:
        self.networks = {node: tuple(attached) for node, attached in networks.items()}
        self.settings = settings
        self.world = World(self._make, sorted(networks), lan or Lan(), seed, networks=self.networks)
        self.world.start(*networks)

    def _make(self, node: NodeId) -> RingsMachine:
        config = RINGS.configure({**self.settings, "networks": self.networks[node]}, SIM)
        assert isinstance(config, RingsConfig)
        return RingsMachine(node, config)

    def machine(self, node: NodeId) -> RingsMachine:
        machine = self.world.hosts[node].machine
        assert isinstance(machine, RingsMachine)
        return machine

    def together(self, *nodes: NodeId) -> bool:
        """Whether these are one configuration, without anybody else."""
        return all(
            self.world.up(node)
            and self.machine(node).state is State.OPERATIONAL
            and self.machine(node).order.members == tuple(sorted(nodes))
            and self.machine(node).order.id == self.machine(nodes[0]).order.id
            for node in nodes
        )

    def come_together(self, *nodes: NodeId) -> None:
        """Run until these, by default all, are one configuration."""
        wanted = nodes or tuple(self.networks)
        self.run_until(lambda: self.together(*wanted))

    def run_until(self, true: Callable[[], bool], most_us: int = 20_000_000) -> None:
        """Run until something is true."""
        until_us = self.world.now + most_us
        while not true():
            assert self.world.now < until_us, "it does not come to that"
            self.world.run_until(self.world.now + 5_000)

    def send(self, node: NodeId, count: int = 1, guarantee: Guarantee = Guarantee.AGREED) -> None:
        for _ in range(count):
            assert self.world.applications.submit(node, 40, guarantee)

    def partition(self, network: int, *groups: Sequence[NodeId]) -> None:
        self.world.networks[network].links.partition(groups)

    def heal(self, network: int) -> None:
        self.world.networks[network].links.heal()

    def delivered(self, node: NodeId) -> list[tuple[int, int]]:
        """Origin and number of what a node delivered, in order."""
        return [(row[ORIGIN], row[NUMBER]) for row in self._deliveries(node)]

    def places(self, node: NodeId) -> list[tuple[int, int]]:
        """Where in the order that is."""
        return [(row[SEQ], row[SLOT]) for row in self._deliveries(node)]

    def _deliveries(self, node: NodeId) -> list[Any]:
        return [row for row in self.world.rows if row[NODE] == node and row[EVENT] == "deliver"]

    def check(self, *components: set[NodeId]) -> None:
        """Everything that extended virtual synchrony promises held, and the run ended like this."""
        expectation = Expectation(components) if components else None
        report = audit(self.world.rows, expectation, one_clock=True)
        assert report.clean, [str(violation) for violation in report.violations[:3]]
