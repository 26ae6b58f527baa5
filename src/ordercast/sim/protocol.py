"""What a protocol has to provide to be run, simulated, fuzzed and audited: one record, no more."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ordercast.audit.properties import Check
from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.sim.network import Lan
from ordercast.sim.world import MachineFactory


class Protocol(NamedTuple):
    """A protocol by name."""

    name: str
    make: Callable[[Mapping[str, object]], MachineFactory]
    """Machines for a simulation, with these settings; raises ValueError, in words, for wrong ones."""
    build: Callable[[Mapping[str, object], NodeId, int], Machine]
    """A machine for a real node: settings that differ from what suits a real network, the node, and how many
    full packets may be in flight before sockets overflow."""
    states: tuple[str, ...]
    """The states that its machines report, for faults that strike in each of them."""
    draw_settings: Callable[[random.Random, int, Lan], dict[str, object]]
    """Settings for a fuzzed run: stream, number of nodes, network."""
    kind_of: Callable[[bytes], str | None]
    """Names a packet's kind, for the trace."""
    checks: Mapping[str, Check]
    """The properties it promises."""
    survives_amnesia: bool
    """Whether a node may lose its disk."""
