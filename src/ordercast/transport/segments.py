"""Packets as datagrams: a packet may be larger than the network carries, and many are sent at once.

A packet is cut into *segments* of at most one datagram each. All segments of a buffer have the same size, the
last one alone may be shorter, so that the kernel can be handed the whole buffer in one call and send it as
many datagrams (``UDP_SEGMENT``), and hand over a train of them in one call at the other end (``UDP_GRO``).

A segment: magic, its index, how many there are, the packet's length, the packet's number (per sender and
channel) and checksum, then its part of the packet. What comes behind the packet's end in its last segment is
padding. A packet that is sealed needs no checksum: it is 0 there. A packet of which a segment is lost is lost
as a whole; the protocol asks for it again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

MAGIC = b"oc"
HEADER = struct.Struct("<2sBBHII")
HEADER_SIZE = HEADER.size

LARGEST_BUFFER = 65_507
"""What one system call may carry: the largest UDP payload."""
MOST_SEGMENTS = 64
"""What every kernel with `UDP_SEGMENT` takes in one call."""
CHECKED = 256
"""Bytes of a packet that its checksum covers: the protocol's header, and what comes next. UDP's own checksum
is for accidents on the way; this one refuses what is bent, or was put together wrongly. It is no seal."""
MOST_PARTIAL = 64
"""Packets of one sender and channel that may be incomplete; the oldest is given up for a new one."""

_ONLY = MAGIC + bytes((0, 1))
_TAIL = struct.Struct("<HII")
"""The part of the header that all segments of a packet share."""
_INDEXES = bytes(range(256))
_NUMBERS = 2**32


class Train(NamedTuple):
    """Segments that leave in one system call."""

    data: bytes
    segment: int
    """Bytes of each segment; 0 if it is one datagram."""


class Segmenter:
    """Cuts the packets of one channel into segments."""

    def __init__(self, datagram: int, checked: bool = True) -> None:
        """Segments of at most ``datagram`` bytes; with a checksum, unless packets are sealed."""
        self.datagram = datagram
        self._checked = checked
        self._space = datagram - HEADER_SIZE
        self._most = min(LARGEST_BUFFER // datagram, MOST_SEGMENTS) * datagram
        self._number = 0

    def resized(self, datagram: int) -> Segmenter:
        """A segmenter that goes on with the same packet numbers and segments of another size."""
        other = Segmenter(datagram, self._checked)
        other._number = self._number
        return other

    def _only(self, packet: bytes) -> Train:
        """A packet that is a datagram."""
        self._number = number = (self._number + 1) % _NUMBERS
        check = crc32(packet[:CHECKED]) if self._checked else 0
        return Train(b"".join((_ONLY, _TAIL.pack(len(packet), number, check), packet)), 0)

    def cut(self, packets: Sequence[bytes]) -> list[Train]:
        """Packets as few trains as possible, in order.

        The last segment of a packet is padded where another packet follows in the same train; if that would
        waste more than a quarter of a segment, a new train begins. A packet longer than a train leaves in
        several.
        """
        size, space, most = self.datagram, self._space, self._most
        if len(packets) == 1 and len(packets[0]) <= space:
            return [self._only(packets[0])]
        trains: list[Train] = []
        parts: list[bytes] = []
        total = slack = 0
        number = self._number
        pack, checked = _TAIL.pack, self._checked
        for packet in packets:
            length = len(packet)
            count = (length + space - 1) // space or 1
            number = (number + 1) % _NUMBERS
            need = length + count * HEADER_SIZE
            if parts:
                if slack * 4 > size or total + slack + need > most:
                    trains.append(Train(b"".join(parts), size if total > size else 0))
                    parts, total = [], 0
                elif slack:
                    parts.append(bytes(slack))
                    total += slack
            tail = pack(length, number, crc32(packet[:CHECKED]) if checked else 0)
            if count == 1:
                parts += (_ONLY, tail, packet)
            else:
                at = 0
                for head in _heads(count):
                    parts += (head, tail, packet[at : at + space])
                    at += space
            if need > most:
                whole, parts = b"".join(parts), []
                pieces = [whole[at : at + most] for at in range(0, need, most)]
                trains += [Train(piece, size if len(piece) > size else 0) for piece in pieces]
                continue
            total += need
            slack = count * size - need
        self._number = number
        if parts:
            trains.append(Train(b"".join(parts), size if total > size else 0))
        return trains


@lru_cache(maxsize=256)
def _heads(count: int) -> list[bytes]:
    """How the headers of a packet's segments begin."""
    return [MAGIC + bytes((index, count)) for index in range(count)]


@lru_cache(maxsize=1024)
def _parts(segment: int, count: int, last: int) -> struct.Struct:
    """Picks the parts of a packet out of a train in one call."""
    whole = f"{HEADER_SIZE}x{segment - HEADER_SIZE}s" * (count - 1)
    return struct.Struct(f"{whole}{HEADER_SIZE}x{last}s")


class _Partial:
    """A packet of which some segments are here."""

    __slots__ = ("count", "length", "parts")

    def __init__(self, count: int, length: int) -> None:
        self.count = count
        self.length = length
        self.parts: dict[int, bytes] = {}


class Reassembler:
    """Puts the packets of one sender and channel together again."""

    def __init__(self, checked: bool = True) -> None:
        """With a checksum, unless packets are sealed."""
        self._checked = checked
        self._partial: dict[int, _Partial] = {}
        self.bad = 0
        """Segments that no correct sender makes."""
        self.given_up = 0
        """Packets of which some segments never came."""

    def join(self, buffer: bytearray, size: int, segment: int) -> list[bytes]:
        """The packets that are whole now; ``size`` bytes are in the buffer, in segments of ``segment``."""
        if not segment:
            if size >= HEADER_SIZE:  # the most common case first: a packet in one datagram
                magic, index, count, length, _, check = HEADER.unpack_from(buffer)
                if count == 1 and index == 0 and magic == MAGIC and length <= size - HEADER_SIZE:
                    whole = bytes(memoryview(buffer)[HEADER_SIZE : HEADER_SIZE + length])
                    if not self._checked or crc32(whole[:CHECKED]) == check:
                        return [whole]
            segment = size
        packets: list[bytes] = []
        at = 0
        while at < size:
            end = at + segment
            if end > size:
                end = size
            if end - at < HEADER_SIZE:
                self.bad += 1
                break
            magic, index, count, length, number, check = HEADER.unpack_from(buffer, at)
            data_at = at + HEADER_SIZE
            if magic != MAGIC or index >= count:
                self.bad += 1
            elif count == 1:
                if length > end - data_at:
                    self.bad += 1
                else:
                    self._take(bytes(buffer[data_at : data_at + length]), check, packets)
            elif (
                index == 0
                and at + length + count * HEADER_SIZE <= size
                and self._follow(buffer, at, segment, count, length)
            ):
                last = length - (count - 1) * (segment - HEADER_SIZE)
                self._take(b"".join(_parts(segment, count, last).unpack_from(buffer, at)), check, packets)
                end = at + count * segment
            else:
                packet = self._keep(index, count, length, number, bytes(buffer[data_at:end]))
                if packet is not None:
                    self._take(packet, check, packets)
            at = end
        return packets

    def _take(self, packet: bytes, check: int, packets: list[bytes]) -> None:
        if self._checked and crc32(packet[:CHECKED]) != check:
            self.bad += 1
        else:
            packets.append(packet)

    @staticmethod
    def _follow(buffer: bytearray, at: int, segment: int, count: int, length: int) -> bool:
        """Whether all segments of the packet that begins here are in the buffer, one behind the other.

        They are when their indexes count up and the numbers are the same in the two lowest bytes: a sender
        makes 65,536 packets only in much more time than the kernel waits for a train.
        """
        if not (count - 1) * (segment - HEADER_SIZE) < length <= count * (segment - HEADER_SIZE):
            return False
        end = at + (count - 1) * segment + HEADER_SIZE
        return (
            buffer[at + 2 : end : segment] == _INDEXES[:count]
            and buffer[at + 6 : end : segment] == buffer[at + 6 : at + 7] * count
            and buffer[at + 7 : end : segment] == buffer[at + 7 : at + 8] * count
        )

    def _keep(self, index: int, count: int, length: int, number: int, part: bytes) -> bytes | None:
        """Keep one segment; the packet, if it was the last one missing."""
        if len(part) * (count - 1) >= length:  # the parts before the last would be more than the packet
            self.bad += 1
            return None
        partial = self._partial.get(number)
        if partial is None:
            if len(self._partial) >= MOST_PARTIAL:
                del self._partial[next(iter(self._partial))]
                self.given_up += 1
            partial = self._partial[number] = _Partial(count, length)
        if partial.count != count or partial.length != length or index in partial.parts:
            self.bad += 1
            return None
        partial.parts[index] = part
        if len(partial.parts) < count:
            return None
        del self._partial[number]
        packet = b"".join([partial.parts[i] for i in range(count)])
        if len(packet) < length:
            self.bad += 1
            return None
        return packet[:length]
