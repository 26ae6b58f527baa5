"""Packing and fragmentation: application messages into packets and back.

A packet carries *chunks*. A chunk is a whole message, or a fragment of one: only the first chunk of a
packet may continue a message begun in an earlier packet, and only the last may be continued in a
later one. All chunks of a packet belong to one sender, ask for one guarantee, and have consecutive
message numbers; so a packet is agreed or safe as a whole, like a message of the papers, and its
header says everything once (001 §4: packing decides the throughput of small messages).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from ordercast.core.contract import QueueFull
from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.wire import Malformed

MESSAGE_OVERHEAD = 64
"""What a queued message counts for beyond its bytes, so that empty ones are bounded too."""

LENGTH_SIZE = 2
"""Bytes that a packet spends on each chunk's length."""

MAX_CHUNKS = 65_535

MOST_EQUAL = 1_024
"""Chunks of one length that are cut out in one call."""


RUN_SIZE = 256 * 1024
"""Bytes of waiting messages that are kept together: what was packed of them is given up together, too."""

NEARLY = 8
"""A packet with less than one part in so many of its space left is nearly full."""


@lru_cache(maxsize=4096)
def _table(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}H")


@lru_cache(maxsize=1024)
def _equal(count: int, length: int) -> struct.Struct:
    """Cuts out chunks of one length in one call."""
    return struct.Struct(f"{length}s" * count)


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
    length = lengths[0]
    if count <= MOST_EQUAL and lengths.count(length) == count:
        return list(_equal(count, length).unpack_from(data, start))
    places = list(accumulate(lengths, initial=start))
    return [data[begin:end] for begin, end in pairwise(places)]


def check_chunks(data: bytes, at: int, count: int) -> None:
    """Raise `Malformed` unless `split_chunks` would find chunks there that fill the packet exactly."""
    start = at + LENGTH_SIZE * count
    if not count > 0 or start > len(data) or start + sum(_table(count).unpack_from(data, at)) != len(data):
        raise Malformed("chunk lengths do not fit")


def split_equally(data: bytes, at: int, count: int, length: int) -> Sequence[bytes]:
    """Chunks of one length that begin at offset ``at``, and are there."""
    if count <= MOST_EQUAL:
        return _equal(count, length).unpack_from(data, at)
    return [data[at + place * length : at + (place + 1) * length] for place in range(count)]


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


class _Run:
    """Waiting messages of one guarantee, with running totals of what they take in a packet."""

    __slots__ = ("at", "guarantee", "payloads", "totals")

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee
        self.payloads: list[bytes] = []
        self.totals: list[int] = []
        """Bytes of all messages up to and with each, lengths included."""
        self.at = 0
        """How many of them have been packed whole."""

    def add(self, payloads: Sequence[bytes]) -> None:
        """Messages behind those that are here."""
        if len(payloads) == 1:
            total = self.totals[-1] if self.totals else 0
            self.totals.append(total + LENGTH_SIZE + len(payloads[0]))
        else:
            sizes = [len(payload) + LENGTH_SIZE for payload in payloads]
            if self.totals:
                sizes[0] += self.totals[-1]
            self.totals += accumulate(sizes)
        self.payloads += payloads


class SendQueue:
    """Accepted messages waiting to be broadcast, bounded in bytes; hands them out packet by packet.

    They wait in runs, so that a packet's worth is cut out of a list and not picked up one by one.
    """

    def __init__(self, limit: int, nearly: int = NEARLY) -> None:
        """`limit` is in bytes. A packet with less than a fraction of 1/`nearly` of its space left is nearly
        full; with 1, every packet is that has something in it."""
        self._limit = limit
        self._nearly = nearly
        self.waiting: deque[_Run] = deque()
        """What was accepted and is not packed whole; empty when nothing waits."""
        self._count = 0
        self._used = 0
        self._bytes = 0
        self._offset = 0
        """How much of the first waiting message has been packed already."""
        self.accepted = 0
        """How many messages were ever accepted; the next one gets this number plus one."""

    def __len__(self) -> int:
        return self._count

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
        count = len(payloads)
        if count:
            last = self.waiting[-1] if self.waiting else None
            if last is None or last.guarantee is not guarantee or last.totals[-1] > RUN_SIZE:
                last = _Run(guarantee)
                self.waiting.append(last)
            last.add(payloads)
        self.accepted += count
        self._count += count
        self._used += size + MESSAGE_OVERHEAD * count
        self._bytes += size
        return first

    def backlog(self, space: int) -> int:
        """About how many packets of ``space`` bytes the waiting messages fill (000 §8.1, my_tbl)."""
        return -(-(self._bytes - self._offset + LENGTH_SIZE * self._count) // space)

    def next_packet(self, space: int, most: int = MAX_CHUNKS) -> Packed | None:
        """The next packet's worth of chunks, ``most`` in number and filling at most ``space`` bytes; None if
        nothing waits.

        A message that does not fit is begun here and continued in the next packet; not so if this packet is
        nearly full and the next one could take the message whole, which spares everybody a fragment.
        """
        waiting = self.waiting
        if not waiting:
            return None
        number = self.accepted - self._count + 1
        run = waiting[0]
        guarantee = run.guarantee
        whole = space
        chunks: list[bytes] = []
        ends: list[bytes] = []
        continues = self._offset > 0
        if continues:
            payload = run.payloads[run.at]
            rest = payload[self._offset : self._offset + space - LENGTH_SIZE]
            chunks.append(rest)
            self._offset += len(rest)
            if self._offset < len(payload):
                return Packed(number, guarantee, chunks, ends, True, True)
            ends.append(payload)
            space -= LENGTH_SIZE + len(rest)
            self._took(run, run.at + 1)
        while waiting and waiting[0].guarantee is guarantee and space > LENGTH_SIZE:
            run = waiting[0]
            at, totals = run.at, run.totals
            before = totals[at - 1] if at else 0
            fits = bisect_right(totals, before + space, at, min(len(totals), at + most - len(chunks)))
            if fits > at:
                some = run.payloads[at:fits]
                chunks += some
                ends += some
                space -= totals[fits - 1] - before
                self._took(run, fits)
            if len(chunks) == most:
                break
            if fits < len(totals):
                payload = run.payloads[fits]
                nearly_full = chunks and space * self._nearly < whole
                if space > LENGTH_SIZE and not (nearly_full and len(payload) + LENGTH_SIZE <= whole):
                    self._offset = space - LENGTH_SIZE
                    chunks.append(payload[: self._offset])
                    return Packed(number, guarantee, chunks, ends, continues, True)
                break
        return Packed(number, guarantee, chunks, ends, continues, False)

    def _took(self, run: _Run, upto: int) -> None:
        """Messages of the first run were packed whole."""
        count = upto - run.at
        size = run.totals[upto - 1] - (run.totals[run.at - 1] if run.at else 0) - LENGTH_SIZE * count
        run.at = upto
        self._offset = 0
        self._count -= count
        self._bytes -= size
        self._used -= size + MESSAGE_OVERHEAD * count
        if upto == len(run.payloads):
            self.waiting.popleft()

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
