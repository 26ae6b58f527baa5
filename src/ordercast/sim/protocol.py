"""What simulator, fuzzer and auditor know of a protocol beyond what a node knows: one record each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ordercast.audit.properties import PROMISES, Check, Promises
from ordercast.core.identity import NodeId
from ordercast.core.protocol import GROUPS, SIM, Protocol
from ordercast.sim.mutation import Rewrite, unreadable
from ordercast.sim.network import Lan, NetworkConfig
from ordercast.sim.topology import Attached, attached
from ordercast.sim.world import MachineFactory, World
from ordercast.trace.schema import ONE_CLOCK

REVIVE_US = 20_000
"""How long a supervisor takes to begin another life of a simulated node whose machine halted by itself."""


class LabProtocol(NamedTuple):
    """A protocol that can be simulated, fuzzed and audited."""

    product: Protocol
    """The protocol as a node knows it."""
    make: Callable[[Mapping[str, object]], MachineFactory]
    """Machines for a simulation, with these settings; raises ValueError, in words, for wrong ones."""
    draw_settings: Callable[[random.Random, int, Lan], dict[str, object]]
    """Settings for a fuzzed run: stream, number of nodes, network."""
    checks: Mapping[str, Check]
    """What checks the properties that it promises."""
    rewrite: Rewrite = unreadable
    """Decodes a packet, has it changed and encodes it again: how wrong packets are made of real ones."""
    hits: tuple[str, ...] = ()
    """What a fuzzer has to make happen, beside all else that `ordercast.sim.coverage` counts."""
    kind_of: Callable[[bytes], str | None] | None = None
    """What a packet's kind is called in the trace, if not as the product says."""
    nodes: tuple[int, int] = (2, 7)
    """The fewest and the most nodes of a fuzzed run, unless something else is asked for."""
    drifting_clocks: bool = False
    """Whether a fuzzer has clocks run at wrong rates: for protocols that go by the time."""
    followers: bool = False
    """Whether nodes may be told the order of configurations of which they are no members."""
    draw_with_groups: Callable[[random.Random, int, Lan], dict[str, object]] | None = None
    """Settings for a run with process groups above its machines, if not the same."""
    process_groups: bool = False
    """Whether there are process groups above its machines, and processes in them."""

    @property
    def name(self) -> str:
        """What the protocol is called; with process groups above it, ``totem+groups``."""
        return self.product.name + (GROUPS if self.process_groups else "")

    @property
    def heading(self) -> dict[str, str]:
        """What a trace of a simulated run says of itself: one clock tells the time at all nodes."""
        heading = {**self.product.heading, "clock": ONE_CLOCK}
        return {**heading, "promises": self.checks.name} if isinstance(self.checks, Promises) else heading

    def with_process_groups(self) -> LabProtocol:
        """The same with process groups above its machines."""
        checks = PROMISES[self.product.promises + GROUPS]
        draw = self.draw_with_groups or self.draw_settings
        return self._replace(process_groups=True, checks=checks, draw_settings=draw)

    def world(
        self,
        settings: Mapping[str, object],
        nodes: Sequence[NodeId],
        network: NetworkConfig,
        seed: int | str,
        **more: Any,
    ) -> World:
        """A world of this protocol's machines; `more` is as for `World`.

        A setting `networks` says which networks the nodes are attached to, too: all alike, or node by node.
        More than half of the nodes have to agree to begin a group, unless the settings say otherwise: so no
        two groups are begun, whatever the network does.
        """
        product = self.product
        if product.primary_partition:
            settings = {"founders": len(nodes) // 2 + 1, **settings}
        revive_us = REVIVE_US if product.revives else None
        factory = self.make(settings)
        kind_of = self.kind_of or product.kind_of
        more = {"revive_us": revive_us, "networks": self._attached(settings, nodes), **more}
        return World(factory, nodes, network, seed, kind_of=kind_of, **more)

    def _attached(self, settings: Mapping[str, object], nodes: Sequence[NodeId]) -> Attached | None:
        """Which networks each node is attached to; None for a protocol that knows of one only."""
        by_node = attached(settings, nodes)
        if by_node is not None or "networks" not in self.product.settings.__struct_fields__:
            return by_node
        config: Any = self.product.configure(settings, SIM)
        return dict.fromkeys(nodes, config.networks)
