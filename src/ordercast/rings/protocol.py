"""The multiple-ring protocol, as a node knows it: its settings by profile, and how its machine is built."""

from __future__ import annotations

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import About, Protocol
from ordercast.rings.config import RingsConfig
from ordercast.rings.declared import DROPS, STATISTICS
from ordercast.rings.machine import RingsMachine
from ordercast.rings.report import report
from ordercast.rings.states import State
from ordercast.rings.topology import toward
from ordercast.totem.packets import KINDS
from ordercast.totem.protocol import PROFILES, TOTEM


def _build(config: RingsConfig, node: NodeId) -> Machine:
    return RingsMachine(node, config)


RINGS = Protocol(
    name="rings",
    summary="Several Totem rings, joined by gateways: one order for all of them, by Lamport timestamps.",
    about=About(
        ordered="the sender, when it has the token of its ring; timestamps merge the rings",
        hops="as Totem on each ring on the way, and a word from every other ring",
        agreed="when nothing with a lower timestamp can come from any ring",
        safe="when all members of all rings have it",
        tolerates="any; each part of a network goes on by itself, and parts merge",
        choose="many nodes, several local networks",
    ),
    settings=RingsConfig,
    profiles=PROFILES,
    build=_build,
    states=tuple(State),
    settled=State.OPERATIONAL,
    kinds=KINDS,
    drops=DROPS,
    statistics=STATISTICS,
    promises="extended-virtual-synchrony",
    fit=TOTEM.fit,
    survives_amnesia=True,
    follows_distance=True,
    report=report,
    toward=lambda machine, node: toward(machine.me, node, machine.order.rings),
)
