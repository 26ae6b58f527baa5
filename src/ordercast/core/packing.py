"""Packing and fragmentation: application messages into packets and back.

A packet carries *chunks*. A chunk is a whole message, or a fragment of one: only the first chunk of a
packet may continue a message begun in an earlier packet, and only the last may be continued in a
later one. All chunks of a packet belong to one sender, ask for one guarantee, and have consecutive
message numbers; so a packet is agreed or safe as a whole, like a message of the papers, and its
header says everything once (001 §4: packing decides the throughput of small messages).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ordercast.core.contract import QueueFull
from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.wire import Malformed

MESSAGE_OVERHEAD = 64
"""What a queued message counts for beyond its bytes, so that empty ones are bounded too."""

LENGTH_SIZE = 2
"""Bytes that a packet spends on each chunk's length."""

MAX_CHUNKS = 65_535

_TABLES = [struct.Struct(f"<{count}H") for count in range(65)]


def _table(count: int) -> struct.Struct:
    return _TABLES[count] if count < len(_TABLES) else struct.Struct(f"<{count}H")


def join_chunks(chunks: Sequence[bytes]) -> bytes:
    """Chunks for the wire: their lengths, then their bytes. The count travels in the header."""
    return _table(len(chunks)).pack(*map(len, chunks)) + b"".join(chunks)


def split_chunks(data: bytes, at: int, count: int) -> list[bytes]:
    """The chunks that begin at offset ``at``; they must fill the packet exactly."""
    if count == 1:  # one large message a packet: the common case, without a table
        at += LENGTH_SIZE
        chunk = data[at:]
        if at > len(data) or len(chunk) != data[at - 2] | data[at - 1] << 8:
            raise Malformed("chunk lengths do not fit")
        return [chunk]
    if count == 0:
        raise Malformed("no chunk")
    start = at + LENGTH_SIZE * count
    if start > len(data):
        raise Malformed("truncated")
    lengths = _table(count).unpack_from(data, at)
    if start + sum(lengths) != len(data):
        raise Malformed("chunk lengths do not fit")
    chunks = []
    for length in lengths:
        end = start + length
        chunks.append(data[start:end])
        start = end
    return chunks


class Packed(NamedTuple):
    """What goes into one packet."""

    number: int
    """Number of the message that the first chunk belongs to."""
    guarantee: Guarantee
    chunks: list[bytes]
    ends: list[bytes]
    """The messages, whole, whose last chunk is in this packet."""
    continues: bool
    """The first chunk continues a message begun in an earlier packet."""
    continued: bool
    """The last chunk is continued in a later packet."""


class SendQueue:
    """Accepted messages waiting to be broadcast, bounded in bytes; hands them out packet by packet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.waiting: deque[tuple[bytes, Guarantee]] = deque()
        """What was accepted and is not packed whole, with the guarantee each asks for."""
        self._used = 0
        self._bytes = 0
        self._offset = 0
        """How much of the first waiting message has been packed already."""
        self.accepted = 0
        """How many messages were ever accepted; the next one gets this number plus one."""

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def room(self) -> int:
        """Bytes of payload that fit now; 0 when the queue is full."""
        return max(0, self._limit - self._used)

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Take messages in order, all or none; the number of the first."""
        size = sum(map(len, payloads))
        if not 0 < self.room >= size:
            raise QueueFull(
                f"{len(payloads)} messages of {size} bytes do not fit: {self.room} bytes of room; "
                "wait until the queue drains and submit again"
            )
        first = self.accepted + 1
        self.waiting.extend([(payload, guarantee) for payload in payloads])
        self.accepted += len(payloads)
        self._used += size + MESSAGE_OVERHEAD * len(payloads)
        self._bytes += size
        return first

    def backlog(self, space: int) -> int:
        """About how many packets of ``space`` bytes the waiting messages fill (000 §8.1, my_tbl)."""
        return -(-(self._bytes - self._offset + LENGTH_SIZE * len(self.waiting)) // space)

    def next_packet(self, space: int) -> Packed | None:
        """The next packet's worth of chunks, filling at most ``space`` bytes; None if nothing waits."""
        waiting = self.waiting
        if not waiting:
            return None
        number = self.accepted - len(waiting) + 1
        guarantee = waiting[0][1]
        continues = self._offset > 0
        chunks: list[bytes] = []
        ends: list[bytes] = []
        while waiting and space > LENGTH_SIZE and len(chunks) < MAX_CHUNKS:
            payload, wanted = waiting[0]
            if wanted is not guarantee:
                break
            offset = self._offset
            left = len(payload) - offset
            space -= LENGTH_SIZE
            if left > space:
                chunks.append(payload[offset : offset + space])
                self._offset = offset + space
                return Packed(number, guarantee, chunks, ends, continues, True)
            chunks.append(payload[offset:] if offset else payload)
            ends.append(payload)
            space -= left
            waiting.popleft()
            self._offset = 0
            self._bytes -= len(payload)
            self._used -= len(payload) + MESSAGE_OVERHEAD
        return Packed(number, guarantee, chunks, ends, continues, False)

    def rewind(self) -> None:
        """Start the message that is partly packed again: its first fragments belong to a ring that ended."""
        self._offset = 0


class _Partial:
    """A message of which some fragments are here."""

    __slots__ = ("number", "parts", "size")

    def __init__(self, number: int, first: bytes) -> None:
        self.number = number
        self.parts = [first]
        self.size = len(first)


class Reassembly:
    """Puts fragmented messages together again, per sender, from packets taken in delivery order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.partial: dict[NodeId, _Partial] = {}
        """Messages that are half here, by sender; while there is none, a packet without fragments needs no
        `take`."""

    def take(
        self, origin: NodeId, number: int, chunks: list[bytes], continues: bool, continued: bool
    ) -> tuple[int, list[bytes]]:
        """The messages that end in a packet: slot of the first, and their payloads.

        A message whose beginning was never taken (its sender gave it up, or it lies behind a gap), or
        whose fragments come to more than any sender may send, is left out.
        """
        slot = 0
        ready = chunks
        begun = self.partial.pop(origin, None) if self.partial else None
        if continues:
            if begun is None or begun.number != number or begun.size + len(chunks[0]) > self._limit:
                slot, ready = 1, chunks[1:]
            else:
                begun.parts.append(chunks[0])
                begun.size += len(chunks[0])
                if continued and len(chunks) == 1:
                    self.partial[origin] = begun
                    return 0, []
                ready = [b"".join(begun.parts), *chunks[1:]]
        if continued and ready:
            self.partial[origin] = _Partial(number + len(chunks) - 1, chunks[-1])
            ready = ready[:-1]
        return slot, ready

    def clear(self) -> None:
        """Forget every message that is not whole: no further fragment of it will come."""
        self.partial.clear()
