"""Totem, as a node knows it: its settings by profile, and how its machine is built."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import LAN, SIM, WAN, About, Buffers, Protocol
from ordercast.totem.config import TotemConfig
from ordercast.totem.declared import DROPS, STATISTICS
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import KINDS
from ordercast.totem.states import State

_LAN: dict[str, object] = {
    # Processes are scheduled, which a simulated network knows nothing of; those that ended are noticed
    # by the driver, so that the timeouts are for what is slow, or cut off.
    "token_loss_us": 150_000,
    "forming_loss_us": 800_000,
    "token_retransmission_us": 100_000,
    "least_retransmission_us": 5_000,
    "announce_us": 200_000,
    "join_us": 10_000,
    "consensus_us": 50_000,
    "consensus_member_us": 2_000,
    "hold_us": 70_000,
    "long_hold_us": 150_000,
    # What the smallest socket buffer of a ring holds limits these further.
    "window_size": 2_300,
    "max_messages": 2_300,
    # The token leaves before the data: three nodes then work at the same time instead of in turn.
    "accelerated_window": 1_024,
}
_WAN: dict[str, object] = {
    **_LAN,
    # As `TotemConfig.stretched` has them for a round trip of 300 ms and half as much again, which is what a
    # node tells its machine of 300 ms that it measured.
    "round_trip_us": 450_000,
    "token_loss_us": 3_675_000,
    "forming_loss_us": 5_800_000,
    "token_retransmission_us": 2_750_000,
    "announce_us": 550_000,
    "join_us": 117_500,
    "consensus_us": 1_375_000,
}
PROFILES: dict[str, dict[str, object]] = {SIM: {}, LAN: _LAN, WAN: _WAN}


def _build(config: TotemConfig, node: NodeId) -> Machine:
    return TotemMachine(node, config)


def _fit(config: msgspec.Struct, buffers: Buffers) -> Mapping[str, object]:
    return {"input_buffer": buffers.buffer, "datagram_size": buffers.datagram}


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
    settings=TotemConfig,
    profiles=PROFILES,
    build=_build,
    states=tuple(State),
    settled=State.OPERATIONAL,
    kinds=KINDS,
    drops=DROPS,
    statistics=STATISTICS,
    promises="extended-virtual-synchrony",
    fit=_fit,
    survives_amnesia=True,
    follows_distance=True,
)
