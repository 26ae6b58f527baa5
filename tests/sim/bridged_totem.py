"""A protocol for several networks, to try the simulator with: one Totem ring over all that is connected.

Every packet goes out on all networks of its node with a trailer behind it, and gateways repeat what they hear
on their other networks, each packet once. So the nodes of a component are in one configuration, and nothing
is asked of a machine but to use the networks that it is attached to.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY
from ordercast.catalogue import LAB_TOTEM, config_by_node
from ordercast.core.contract import Effect, Event, Multicast, Packet, Start, Unicast
from ordercast.core.identity import NodeId
from ordercast.sim.network import Lan
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.topology import draw_networks
from ordercast.sim.world import MachineFactory
from ordercast.totem.machine import TotemMachine
from ordercast.totem.protocol import TOTEM

_TRAILER = struct.Struct("<IIIQ")
"""Who sent the packet, for whom (0: all), in which life, and its number in that life."""


class Bridged(TotemMachine):
    """A Totem machine whose packets reach all networks."""

    def __init__(self, me: NodeId, config: Any, networks: Sequence[int]) -> None:
        super().__init__(me, config)
        self._networks = tuple(networks)
        self._life = self._sent = 0
        self._heard: set[bytes] = set()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event of Totem's, or a packet of which that may be for another node."""
        out: list[Effect] = []
        if isinstance(event, Start):
            self._life = event.incarnation
        if isinstance(event, Packet):
            assert event.network in self._networks
            trailer = event.data[-_TRAILER.size :]
            sender, to, _, _ = _TRAILER.unpack(trailer)
            if (sender == self.me and to != self.me) or trailer in self._heard:
                return ()
            self._heard.add(trailer)
            if to != self.me:
                out += [Multicast(event.data, other) for other in self._networks if other != event.network]
            if to not in (0, self.me):
                return out
            event = Packet(event.data[: -_TRAILER.size], sender, event.waited_us)
        for effect in super().handle(now_us, event):
            match effect:
                case Unicast(to, data) if to == self.me:
                    out.append(Unicast(to, data + self._trailer(to), network=self._networks[0]))
                case Unicast(to, data):
                    out += self._everywhere(data + self._trailer(to))
                case Multicast(data):
                    out += self._everywhere(data + self._trailer(0))
                case _:
                    out.append(effect)
        return out

    def _everywhere(self, data: bytes) -> list[Effect]:
        return [Multicast(data, network) for network in self._networks]

    def _trailer(self, to: NodeId) -> bytes:
        self._sent += 1
        return _TRAILER.pack(self.me, to, self._life, self._sent)


def _make(settings: Mapping[str, object]) -> MachineFactory:
    plain = dict(settings)
    networks: Any = plain.pop("networks")
    config_of = config_by_node(TOTEM, plain)
    by_node = {int(node): numbers for node, numbers in networks.items()}
    return lambda node: Bridged(node, config_of(node), by_node[node])


def _draw(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    farther = msgspec.structs.replace(lan, base_us=2 * lan.base_us, tail_us=2 * lan.tail_us)
    drawn = LAB_TOTEM.draw_settings(stream, nodes, farther)
    return {**drawn, "networks": draw_networks(stream, range(1, nodes + 1))}


BRIDGED = LabProtocol(TOTEM, _make, _draw, checks=EXTENDED_VIRTUAL_SYNCHRONY)
