"""What a protocol has to provide to be run, simulated, fuzzed and audited: one record, no more."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ordercast.audit.properties import Check
from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.sim.mutation import Rewrite, unreadable
from ordercast.sim.network import Lan, NetworkConfig
from ordercast.sim.world import MachineFactory, World

REVIVE_US = 20_000
"""How long a supervisor takes to begin another life of a simulated node whose machine halted by itself."""


class About(NamedTuple):
    """What tells a protocol from the others, in few words, for whoever has to choose one."""

    ordered: str
    """Who gives messages their places."""
    hops: str
    """Hops on the network from sending a message to its delivery, where nobody else sends."""
    agreed: str
    """When an agreed message is delivered."""
    safe: str
    """When a safe one is."""
    tolerates: str
    """With whom gone the group goes on."""
    choose: str
    """When to choose it."""


class Protocol(NamedTuple):
    """A protocol by name."""

    name: str
    summary: str
    """In a sentence."""
    about: About
    make: Callable[[Mapping[str, object]], MachineFactory]
    """Machines for a simulation, with these settings; raises ValueError, in words, for wrong ones."""
    configure: Callable[[Mapping[str, object], int, int], msgspec.Struct]
    """All settings of a real node, an instance of `settings`, from those that differ from what suits a real
    network (with `packet_size`), and from the bytes that its socket's buffer holds, and those of a packet
    that one datagram carries. Raises as `make`."""
    build: Callable[[Any, NodeId], Machine]
    """A machine for a real node, from what `configure` answered."""
    settings: type[msgspec.Struct]
    """All of its settings, with their meanings as docstrings."""
    states: tuple[str, ...]
    """The states that its machines report, for faults that strike in each of them."""
    settled: str
    """The one of them in which a machine is in a configuration that it orders messages in."""
    draw_settings: Callable[[random.Random, int, Lan], dict[str, object]]
    """Settings for a fuzzed run: stream, number of nodes, network."""
    kind_of: Callable[[bytes], str | None]
    """Names a packet's kind, for the trace."""
    promises: str
    """The name of the set of properties that it promises."""
    checks: Mapping[str, Check]
    """What checks them."""
    survives_amnesia: bool = False
    """Whether a node may lose its disk."""
    revives: bool = False
    """A machine may halt without having been told to go; then the node comes back as a new incarnation."""
    primary_partition: bool = False
    """The group goes on only while a majority of the nodes of its last view is up and connected. It has a
    setting `founders`: how many nodes have to agree to begin a group."""
    levels: bool = False
    """Whether messages may be sent at levels of resilience."""
    token_on_unicast: bool = True
    """Whether what is unicast is a token, for which data may wait; or packets like all others."""
    rewrite: Rewrite = unreadable
    """Decodes a packet, has it changed and encodes it again: how wrong packets are made of real ones."""
    hits: tuple[str, ...] = ()
    """What a fuzzer has to make happen, beside all else that `ordercast.sim.fuzz.coverage` counts."""

    @property
    def heading(self) -> dict[str, str]:
        """What a trace of it says of itself: `ordercast.trace.schema.About`."""
        return {"protocol": self.name, "promises": self.promises}

    def world(
        self,
        settings: Mapping[str, object],
        nodes: Sequence[NodeId],
        network: NetworkConfig,
        seed: int | str,
        **more: Any,
    ) -> World:
        """A world of this protocol's machines; `more` is as for `World`.

        More than half of the nodes have to agree to begin a group, unless the settings say otherwise: so no
        two groups are begun, whatever the network does.
        """
        if self.primary_partition:
            settings = {"founders": len(nodes) // 2 + 1, **settings}
        revive_us = REVIVE_US if self.revives else None
        factory = self.make(settings)
        return World(factory, nodes, network, seed, kind_of=self.kind_of, **{"revive_us": revive_us, **more})
