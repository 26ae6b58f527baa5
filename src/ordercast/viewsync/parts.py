"""Packets larger than a datagram, sent in parts of one datagram each.

The network carries such a packet as several datagrams, and it is lost with any of them: at 10% loss one of 45
never arrives whole, however often it is sent. So an orderer sends a packet of messages whole once, since most
networks lose nothing, and in parts when it sends it again; packets of the membership that are this large,
which are rare, always leave in parts. A receiver keeps the parts that it has, and lacks fewer each time that
the packet is sent again. Parts of the same packet are known by its sender, size and checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from ordercast.core.contract import Effect, Multicast, Unicast
from ordercast.core.identity import NodeId
from ordercast.core.wire import MAX_PACKET, PREFIX_SIZE, Malformed, check_part, parts_of, prefix
from ordercast.viewsync.header import HEADER_SIZE

PART = 16
"""The kind of packet that a part travels as."""

_PART = struct.Struct("<IHHH")
OVERHEAD = HEADER_SIZE + _PART.size
"""What a part needs beside its piece of the packet, in bytes."""
LEAST_DATAGRAM = 256
"""Bytes that every network carries in a datagram."""
KEPT_BYTES = 512 * 1024
"""Of packets of which parts are missing, this much is kept for each sender; the oldest go first. It is twice
what a member sends at a time to who asked for something."""


class Part(NamedTuple):
    """One part of a packet."""

    check: int
    """The whole packet's checksum (CRC-32)."""
    size: int
    """The whole packet's bytes."""
    part_size: int
    """Bytes of every part but the last."""
    place: int
    """Which part it is, from 0."""
    data: bytes

    @property
    def parts(self) -> int:
        """How many parts the packet has."""
        return parts_of(self.size, self.part_size)

    def encode(self, head: bytes) -> bytes:
        """For the wire, behind a header."""
        return b"".join((head, _PART.pack(self.check, self.size, self.part_size, self.place), self.data))


def in_parts(packet: bytes, datagram: int) -> Iterator[bytes]:
    """A packet as packets of at most ``datagram`` bytes each, from the same sender."""
    if len(packet) <= datagram:
        yield packet
        return
    head = prefix(PART) + packet[PREFIX_SIZE:HEADER_SIZE]
    check, size, part_size = crc32(packet), len(packet), datagram - OVERHEAD
    for place, at in enumerate(range(0, size, part_size)):
        yield Part(check, size, part_size, place, packet[at : at + part_size]).encode(head)


def send_in_parts(packet: bytes, datagram: int, effects: list[Effect], to: NodeId | None = None) -> None:
    """Send a packet in parts, to one member or to all."""
    for part in in_parts(packet, datagram):
        effects.append(Multicast(part) if to is None else Unicast(to, part))


def decode_part(data: bytes) -> Part:
    """What is in a part, or `Malformed`. Its header has been read before."""
    if len(data) < OVERHEAD:
        raise Malformed("truncated")
    check, size, part_size, place = _PART.unpack_from(data, HEADER_SIZE)
    part = Part(check, size, part_size, place, data[OVERHEAD:])
    check_part(size, part_size, place, part.data)
    if part_size < HEADER_SIZE or size > MAX_PACKET:
        raise Malformed("bad part")
    return part


class Parts:
    """What one node has of packets that came in parts and are not whole yet."""

    def __init__(self, senders: int) -> None:
        """Parts of at most so many ``senders`` are kept."""
        self._most = senders
        self._of: dict[NodeId, dict[tuple[int, int, int], dict[int, bytes]]] = {}

    def join(self, sender: NodeId, part: Part) -> bytes | None:
        """Keep a part; the packet, if it was the last one that was missing."""
        partial = self._of.pop(sender, {})
        self._of[sender] = partial  # whoever was heard least recently comes first
        if len(self._of) > self._most:
            del self._of[next(iter(self._of))]
        name = part.check, part.size, part.part_size
        kept = partial.setdefault(name, {})
        kept[part.place] = part.data
        if len(kept) == part.parts:
            del partial[name]
            packet = b"".join([kept[place] for place in range(part.parts)])
            if crc32(packet) != part.check:
                raise Malformed("parts do not fit")
            return packet
        room = KEPT_BYTES - sum(size for _, size, _ in partial)
        while room < 0:
            oldest = next(iter(partial))
            room += oldest[1]
            del partial[oldest]
        return None
