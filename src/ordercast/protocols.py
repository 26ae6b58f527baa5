"""The protocols there are, by name. A new one is a module of its own and an entry here."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY
from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.sim.network import Lan
from ordercast.sim.protocol import About, Protocol
from ordercast.sim.world import MachineFactory
from ordercast.totem.config import TotemConfig
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import decode_data, kind_name
from ordercast.totem.states import State

__all__ = ["PROTOCOLS", "TOTEM", "Protocol", "protocol"]


def _totem_config(settings: Mapping[str, object]) -> TotemConfig:
    try:
        return msgspec.convert(dict(settings), TotemConfig, strict=False)
    except msgspec.ValidationError as error:
        fields = ", ".join(TotemConfig.__struct_fields__)
        raise ValueError(f"totem: {error}; its settings are {fields}") from error


def _build_totem(settings: Mapping[str, object], node: NodeId, in_flight: int) -> Machine:
    window = max(32, min(128, in_flight))
    on_the_wire: dict[str, object] = {
        # Processes are scheduled, which a simulated network knows nothing of; those that ended are noticed
        # by the driver, so that the timeouts are for what is slow, or cut off.
        "token_loss_us": 800_000,
        "token_retransmission_us": 100_000,
        "announce_us": 200_000,
        "join_us": 10_000,
        "consensus_us": 50_000,
        "consensus_member_us": 2_000,
        "hold_us": 70_000,
        # A full window has to fit into every socket's buffer.
        "window_size": window,
        "max_messages": window // 4,
        # The token leaves before the data: three nodes then work at the same time instead of in turn.
        "accelerated_window": window // 4,
    }
    return TotemMachine(node, _totem_config({**on_the_wire, **settings}))


def _make_totem(settings: Mapping[str, object]) -> MachineFactory:
    config = _totem_config(settings)
    decode = lru_cache(maxsize=4096)(decode_data)  # a multicast is decoded once, not at each receiver

    def make(node: NodeId, stream: random.Random) -> Machine:
        return TotemMachine(node, config, decode)

    return make


def _draw_totem(stream: random.Random, nodes: int, lan: Lan) -> dict[str, object]:
    """Settings that fit the network's delays, with windows small enough to be filled."""
    hop_us = lan.base_us + 3 * lan.tail_us
    rotation_us = nodes * hop_us
    token_loss_us = max(20_000, 5 * rotation_us) * stream.choice((1, 2, 4))
    token_retransmission_us = token_loss_us // stream.choice((3, 5, 8))
    join_us = max(2_000, 4 * hop_us)
    window_size = stream.choice((nodes, 2 * nodes, 128))
    drawn: dict[str, object] = {
        "token_loss_us": token_loss_us,
        "token_retransmission_us": token_retransmission_us,
        "join_us": join_us,
        "consensus_us": join_us * stream.choice((3, 5)),
        "fail_to_receive": stream.choice((4, 10, 50)),
        "window_size": window_size,
        "max_messages": stream.choice((1, 4, 64)),
        "max_outstanding": window_size * stream.choice((2, 8)),
        "max_requests": stream.choice((2, 16, 128)),
        "eager_requests": stream.random() < 0.4,
        "accelerated_window": stream.choice((0, 0, 2, 20, 20)),
        "idle_rotations": stream.choice((1, 3)),
        "hold_us": stream.choice((0, token_retransmission_us // 3, token_retransmission_us * 4 // 5)),
        "announce_us": max(20_000, 6 * rotation_us),
        "packet_size": stream.choice((256, 500, 1_400)),
    }
    if stream.random() < 0.25:  # large enough to be filled less while some are lost
        drawn["packet_size"] = stream.choice((6_000, 20_000))
    return drawn


TOTEM = Protocol(
    name="totem",
    summary="A token goes round a ring of all members; who holds it numbers and multicasts its messages.",
    about=About(
        ordered="the sender, when it has the token",
        hops="half a rotation for the token, and 1",
        agreed="when all before it is here",
        safe="when all members have it: after two rotations",
        tolerates="any; each part of a group goes on by itself, and parts merge",
        choose="high load, many senders, or parts that have to go on alone",
    ),
    make=_make_totem,
    build=_build_totem,
    settings=TotemConfig,
    states=tuple(State),
    settled=State.OPERATIONAL,
    draw_settings=_draw_totem,
    kind_of=kind_name,
    promises="extended-virtual-synchrony",
    checks=EXTENDED_VIRTUAL_SYNCHRONY,
    survives_amnesia=True,
)

PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in (TOTEM,)}


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise ValueError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
