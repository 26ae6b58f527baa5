"""Protocols to try the simulator with, around the toy sequencer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from toy_sequencer import Sequencer, kind_of, sequencers

from ordercast.core.contract import Effect, Event, Gone, Halt
from ordercast.core.declared import Sort, Statistic
from ordercast.core.identity import NodeId
from ordercast.core.protocol import SIM, About, Protocol
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.world import MachineFactory


class ToySettings(msgspec.Struct, forbid_unknown_fields=True):
    """What the toys can be told."""

    nodes: int = 3
    """How many there are."""


PRODUCT = Protocol(
    name="toy",
    summary="The node with the smallest identifier numbers messages.",
    about=About("the first node", "2", "at once", "at once", "nobody", "never"),
    settings=ToySettings,
    profiles={SIM: {}},
    build=lambda config, node: Sequencer(node, (1, 2, 3)),
    states=("starting", "running", "quiet"),
    settled="running",
    kinds={},
    promises="nothing",
    statistics=(
        Statistic("delivered", "Messages that this node delivered."),
        Statistic("quiet", "Whether this node says nothing.", Sort.LEVEL),
    ),
)


def toy(product: Protocol = PRODUCT, **changes: Any) -> LabProtocol:
    """The toy sequencer, of which nothing is asked; but for these fields."""
    plain = LabProtocol(
        product,
        make=lambda settings: sequencers((1, 2, 3)),
        draw_settings=lambda stream, nodes, lan: {},
        checks={},
        kind_of=kind_of,
    )
    return plain._replace(**changes)


class Fragile(Sequencer):
    """A sequencer that takes word of its own death for true: it halts, as one that was excluded."""

    @property
    def role(self) -> str:
        return {0: "sequencer", 1: "next"}.get(self.nodes.index(self.node), "member")

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        if event == Gone(self.node):
            return [Halt("excluded")]
        return super().handle(now_us, event)


def _fragile(settings: Mapping[str, object]) -> MachineFactory:
    nodes = range(1, int(str(settings["nodes"])) + 1)
    assert settings["founders"] == len(nodes) // 2 + 1

    def make(node: NodeId) -> Fragile:
        return Fragile(node, nodes)

    return make


FRAGILE = toy(
    PRODUCT._replace(name="fragile", revives=True, primary_partition=True, levels=True),
    make=_fragile,
    draw_settings=lambda stream, nodes, lan: {"nodes": nodes},
    hits=("sequencer lost", "next sequencer lost", "simple member lost", "wrong suspicion", "nothing heard"),
)
"""Machines that halt by themselves and come back, in a group that has one view only: of all nodes."""
