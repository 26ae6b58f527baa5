"""Protocols to try the simulator with, around the toy sequencer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from toy_sequencer import Sequencer, kind_of, sequencers

from ordercast.core.contract import Effect, Event, Gone, Halt
from ordercast.core.identity import NodeId
from ordercast.sim.protocol import About, Protocol
from ordercast.sim.world import MachineFactory


class ToySettings(msgspec.Struct, forbid_unknown_fields=True):
    """What the toys can be told."""

    nodes: int = 3
    """How many there are."""


def toy(**changes: Any) -> Protocol:
    """The toy sequencer, of which nothing is asked; but for these fields."""
    plain = Protocol(
        name="toy",
        summary="The node with the smallest identifier numbers messages.",
        about=About("the first node", "2", "at once", "at once", "nobody", "never"),
        make=lambda settings: sequencers((1, 2, 3)),
        configure=lambda settings, buffer, datagram: ToySettings(),
        build=lambda config, node: Sequencer(node, (1, 2, 3)),
        settings=ToySettings,
        states=("starting", "running", "quiet"),
        settled="running",
        draw_settings=lambda stream, nodes, lan: {},
        kind_of=kind_of,
        promises="nothing",
        checks={},
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
    name="fragile",
    make=_fragile,
    draw_settings=lambda stream, nodes, lan: {"nodes": nodes},
    revives=True,
    primary_partition=True,
    levels=True,
    hits=("sequencer lost", "next sequencer lost", "simple member lost", "wrong suspicion", "nothing heard"),
)
"""Machines that halt by themselves and come back, in a group that has one view only: of all nodes."""
