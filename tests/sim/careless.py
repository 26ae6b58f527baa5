"""A protocol with a defect of its own, for those who look for defects: node 2 cannot start twice.

Beside that it is the toy sequencer, of which nothing is asked but that every node that is up at the end
is in the one configuration there is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from toy_protocol import PRODUCT, toy
from toy_sequencer import Sequencer

from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.sim.network import Lan
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.world import MachineFactory


class Careless(Sequencer):
    def _on_start(self, incarnation: int, stored: bytes | None) -> Sequence[Effect]:
        if self.node == 2 and incarnation:
            raise RuntimeError("node 2 cannot start twice")
        return super()._on_start(incarnation, stored)


def make(settings: Mapping[str, object]) -> MachineFactory:
    nodes = range(1, int(str(settings["nodes"])) + 1)

    def machine(node: NodeId) -> Careless:
        return Careless(node, nodes)

    return machine


def settings(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    return {"nodes": nodes}


PROTOCOL = toy(PRODUCT._replace(name="careless", survives_amnesia=True), make=make, draw_settings=settings)


def find(name: str) -> LabProtocol:
    assert name == "careless"
    return PROTOCOL
