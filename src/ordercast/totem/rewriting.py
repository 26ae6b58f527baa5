"""A packet with something in it changed: decoded, changed by somebody, encoded again.

For the injection of packets that are wrong in one field and right in all others (`ordercast.sim.injection`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ordercast.core.identity import ConfigurationId
from ordercast.totem.packets import AnyPacket, Data, Recovered, decode, encode_data, encode_recovered


def rewrite(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The packet as `change` leaves it.

    Raises `Malformed` where there is no packet, and whatever encoding raises if a change cannot be encoded.
    """
    return _encoded(change(decode(data)))


def _encoded(packet: AnyPacket) -> bytes:
    if isinstance(packet, Data):
        return _data(packet).raw
    if isinstance(packet, Recovered):
        ring = ConfigurationId(packet.ring_seq, packet.ring_rep)
        return encode_recovered(ring, packet.seq, packet.sender, _data(packet.old)).raw
    return packet.encode()


def _data(packet: Data) -> Data:
    ring = ConfigurationId(packet.ring_seq, packet.ring_rep)
    return encode_data(
        ring,
        packet.seq,
        packet.origin,
        packet.incarnation,
        packet.number,
        packet.flags,
        packet.chunks,
        packet.timestamp,
    )
