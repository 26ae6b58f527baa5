"""Totem's packets: what they hold and how they look on the wire (000 §5.1, §6.1, §7.1).

| kind | from 000 | travels |
|---|---|---|
| `Data` | regular message | multicast |
| `Recovered` | old-ring message encapsulated for the new ring (§7.2) | multicast |
| `Token` | regular token | to the successor |
| `Commit` | Commit token | to the successor |
| `Part` | not in the paper: a part of a packet that is larger than a datagram, sent again | multicast |
| `Join` | Join message; with ``leave`` set, a farewell | multicast |
| `Announce` | not in the paper: "this ring is here, and I hear these strangers" | multicast |
| `Hurry` | not in the paper: wakes a representative that holds an idle ring's token | to it |

`decode` is total: it returns a packet within bounds or raises `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ordercast.core.declared import PacketKind, Purpose
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.packing import join_chunks, split_chunks
from ordercast.core.wire import (
    MAX_COUNT,
    Malformed,
    Reader,
    check_count,
    check_node,
    check_part,
    kind_of,
    pack_nodes,
    pack_ring,
    parts_of,
    prefix,
)
from ordercast.totem.joins import ANNOUNCE as ANNOUNCE
from ordercast.totem.joins import JOIN as JOIN
from ordercast.totem.joins import MAX_MEMBERS as MAX_MEMBERS
from ordercast.totem.joins import Announce as Announce
from ordercast.totem.joins import Join as Join
from ordercast.totem.joins import decode_announce, decode_join
from ordercast.totem.limits import LEAST_DATAGRAM, Limits
from ordercast.totem.tokens import ALL_PARTS as ALL_PARTS
from ordercast.totem.tokens import LONGEST_HOLD_US as LONGEST_HOLD_US
from ordercast.totem.tokens import MAX_FLOW, TIMESTAMP, read_timestamp
from ordercast.totem.tokens import MAX_REQUESTS as MAX_REQUESTS
from ordercast.totem.tokens import MOST_PARTS as MOST_PARTS
from ordercast.totem.tokens import NOBODY as NOBODY
from ordercast.totem.tokens import TIMESTAMP_SIZE as TIMESTAMP_SIZE
from ordercast.totem.tokens import TOKEN as TOKEN
from ordercast.totem.tokens import TOKEN_PREFIX as TOKEN_PREFIX
from ordercast.totem.tokens import Token as Token
from ordercast.totem.tokens import decode_token as decode_token
from ordercast.totem.visits import PLAIN, Visits, is_schedule

DATA, RECOVERED = 1, 2
COMMIT = 4
HURRY, PART = 7, 8
KINDS = {
    DATA: PacketKind("data", Purpose.MESSAGES, "Messages, with the ring's number for them."),
    RECOVERED: PacketKind("recovered", Purpose.MEMBERSHIP, "A packet of the old ring, on the new one."),
    TOKEN: PacketKind("token", Purpose.ORDER, "The right to number messages, and what is missing."),
    COMMIT: PacketKind("commit", Purpose.MEMBERSHIP, "The members of a ring that forms, and their state."),
    JOIN: PacketKind("join", Purpose.MEMBERSHIP, "With whom its sender wants to form a ring."),
    ANNOUNCE: PacketKind("announce", Purpose.MEMBERSHIP, "That there is a ring to merge with.", quiet=True),
    HURRY: PacketKind("hurry", Purpose.ORDER, "That a held token is wanted.", quiet=True),
    PART: PacketKind("part", Purpose.ORDER, "A part of a packet that is sent again."),
}

SAFE, CONTINUES, CONTINUED, _TIMED = 1, 2, 4, 8
"""Flags of a `Data` packet; the last says that its timestamp is in it."""
FRAGMENTS = CONTINUES | CONTINUED

DATA_PREFIX = prefix(DATA)
RECOVERED_PREFIX = prefix(RECOVERED)
_DATA = struct.Struct("<4sBqiqiiqH")
DATA_HEADER = _DATA.size
_RECOVERED = struct.Struct("<4sqiqi")
RECOVERED_HEADER = _RECOVERED.size
"""What encapsulation adds; `Data` leaves that much of a packet free."""
_ENTRY = struct.Struct("<iqiqqBIII")
_PART = struct.Struct("<4sqiqHHB")
PART_HEADER = _PART.size
_COMMIT_HEAD = struct.Struct("<HH")
_RATED = 2**15
"""Added to the number of entries where rates and a schedule follow them."""


class Data(NamedTuple):
    """A regular message of the paper: here a packet of chunks."""

    ring_seq: int
    ring_rep: NodeId
    seq: int
    origin: NodeId
    incarnation: int
    number: int
    """Number of the message that the first chunk belongs to."""
    flags: int
    chunks: list[bytes]
    raw: bytes
    """The packet itself, for retransmission."""
    timestamp: int = 0
    """Its Lamport timestamp, above that of every packet before it on the ring; 0 where there is none."""

    @property
    def unfinished(self) -> bool:
        """Whether its last message goes on in the sender's next packet."""
        return bool(self.flags & CONTINUED)


class Recovered(NamedTuple):
    """A packet of an old ring, with a place in the new ring's order so that it arrives everywhere."""

    ring_seq: int
    ring_rep: NodeId
    seq: int
    sender: NodeId
    old: Data
    raw: bytes


class Part(NamedTuple):
    """One of the parts in which a packet larger than a datagram is sent again."""

    ring_seq: int
    ring_rep: NodeId
    seq: int
    """The sequence number of the packet."""
    size: int
    """Bytes of the whole packet."""
    part_size: int
    """Bytes of every part but the last."""
    place: int
    """Which part it is, from 0."""
    data: bytes

    @property
    def parts(self) -> int:
        """How many parts the packet has."""
        return parts_of(self.size, self.part_size)

    def encode(self) -> bytes:
        """The packet as bytes."""
        head = (prefix(PART), self.ring_seq, self.ring_rep, self.seq, self.size, self.part_size, self.place)
        return _PART.pack(*head) + self.data


class Entry(NamedTuple):
    """One member's line in a Commit token's memb_list (000 §6.1)."""

    node: NodeId
    old_ring: ConfigurationId
    aru: int
    high_delivered: int
    received_flg: bool
    limits: Limits
    """What the member can take, which §8.1 wants negotiated; the paper's list does not have it."""
    rate: int = 0
    """Messages that the member lately broadcast in a second, where it measures that (§8)."""


class Commit(NamedTuple):
    """The Commit token (000 §6.1)."""

    ring: ConfigurationId
    members: tuple[NodeId, ...]
    memb_index: int
    """How often it was forwarded: the first rotation ends at len(members), the second at twice that."""
    entries: tuple[Entry, ...]
    """Filled in token order during the first rotation."""
    lives: tuple[int, ...] = ()
    """The life of each member (`Join.life`) that agreed to the ring; all 0 if nothing is said."""
    visits: Visits = PLAIN
    """The schedule that the ring begins with: set by the representative for the second rotation (§8)."""

    @property
    def rates(self) -> list[int]:
        """Of each entry, in ring order."""
        return [entry.rate for entry in self.entries]

    def encode(self) -> bytes:
        """The packet as bytes."""
        size = len(self.members)
        head = struct.pack(f"<{size}I", *(self.lives or (0,) * size))
        rates = self.rates
        rated = bool(self.visits) or any(rates)
        head += _COMMIT_HEAD.pack(self.memb_index, len(self.entries) + _RATED * rated)
        lines = [
            _ENTRY.pack(e.node, *e.old_ring, e.aru, e.high_delivered, e.received_flg, *e.limits)
            for e in self.entries
        ]
        if rated:
            length = len(self.visits)
            lines.append(struct.pack(f"<H{len(rates)}I{length}h", length, *rates, *self.visits))
        return b"".join((prefix(COMMIT), pack_ring(self.ring), pack_nodes(self.members), head, *lines))


class Hurry(NamedTuple):
    """A member of an idle ring has something to send."""

    ring: ConfigurationId

    def encode(self) -> bytes:
        """The packet as bytes."""
        return prefix(HURRY) + pack_ring(self.ring)


AnyPacket: TypeAlias = Data | Recovered | Token | Commit | Join | Announce | Hurry | Part


def encode_data(
    ring: ConfigurationId,
    seq: int,
    origin: NodeId,
    incarnation: int,
    number: int,
    flags: int,
    chunks: list[bytes],
    timestamp: int = 0,
) -> Data:
    """A new regular message, with the bytes that go out."""
    if timestamp:
        flags |= _TIMED
    head = _DATA.pack(DATA_PREFIX, flags, ring.seq, ring.rep, seq, origin, incarnation, number, len(chunks))
    if timestamp:
        head += TIMESTAMP.pack(timestamp)
    raw = head + join_chunks(chunks)
    return Data(ring.seq, ring.rep, seq, origin, incarnation, number, flags, chunks, raw, timestamp)


def encode_recovered(ring: ConfigurationId, seq: int, sender: NodeId, old: Data) -> Recovered:
    """An old-ring packet in its envelope."""
    raw = _RECOVERED.pack(prefix(RECOVERED), ring.seq, ring.rep, seq, sender) + old.raw
    return Recovered(ring.seq, ring.rep, seq, sender, old, raw)


def decode_data(data: bytes) -> Data:
    """A regular message; the prefix is known to be right."""
    if len(data) < DATA_HEADER:
        raise Malformed("truncated")
    _, flags, ring_seq, ring_rep, seq, origin, incarnation, number, count = _DATA.unpack_from(data)
    if ring_rep <= 0 or origin <= 0 or incarnation < 0:
        raise Malformed("bad number")
    if not (0 <= ring_seq < MAX_COUNT and 0 < seq < MAX_COUNT and 0 < number < MAX_COUNT):
        raise Malformed("bad number")
    timestamp = 0
    if flags & _TIMED:
        timestamp = read_timestamp(data, DATA_HEADER)
        chunks = split_chunks(data, DATA_HEADER + TIMESTAMP_SIZE, count)
    else:
        chunks = split_chunks(data, DATA_HEADER, count)
    if flags > 15:
        raise Malformed("unknown flags")
    if (flags & CONTINUES and not chunks[0]) or (flags & CONTINUED and not chunks[-1]):
        raise Malformed("empty fragment")
    return Data(ring_seq, ring_rep, seq, origin, incarnation, number, flags, chunks, data, timestamp)


def _decode_recovered(data: bytes) -> Recovered:
    if len(data) < RECOVERED_HEADER:
        raise Malformed("truncated")
    _, ring_seq, ring_rep, seq, sender = _RECOVERED.unpack_from(data)
    check_count(ring_seq)
    check_count(seq, lowest=1)
    inner = data[RECOVERED_HEADER:]
    if kind_of(inner) != DATA:
        raise Malformed("envelope without data")
    return Recovered(ring_seq, check_node(ring_rep), seq, check_node(sender), decode_data(inner), data)


def _decode_commit(data: bytes) -> Commit:
    reader = Reader(data)
    ring = reader.ring()
    members = reader.nodes(MAX_MEMBERS)
    lives = tuple(reader.u32() for _ in members)
    memb_index = reader.u16()
    count = reader.u16()
    rated, count = divmod(count, _RATED)
    if not members or ring.rep != members[0] or not 0 < memb_index <= 2 * len(members):
        raise Malformed("bad commit")
    if count != min(memb_index, len(members)):
        raise Malformed("bad commit")
    lines = reader.rest()
    end = count * _ENTRY.size
    rates, visits = _rates(lines[end:], count) if rated else ((0,) * count, PLAIN)
    if len(lines) < end or (len(lines) > end and not rated):
        raise Malformed("lists do not fit")
    if visits and not is_schedule(visits, len(members)):
        raise Malformed("bad schedule")
    entries = []
    for (node, seq, rep, aru, high, received, *limits), member, rate in zip(
        _ENTRY.iter_unpack(lines[:end]), members, rates, strict=False
    ):
        if node != member or rep <= 0 or received > 1:
            raise Malformed("bad commit entry")
        if min(limits) < LEAST_DATAGRAM or max(limits) >= MAX_FLOW:
            raise Malformed("bad commit entry")
        if not (0 <= seq < MAX_COUNT and 0 <= high <= aru < MAX_COUNT):
            raise Malformed("bad commit entry")
        old_ring = ConfigurationId(seq, rep)
        entries.append(Entry(node, old_ring, aru, high, bool(received), Limits(*limits), rate))
    return Commit(ring, members, memb_index, tuple(entries), lives, visits)


def _rates(rest: bytes, count: int) -> tuple[tuple[int, ...], Visits]:
    """What follows the entries of a Commit token in which there is something: their rates, and a schedule."""
    length: int = struct.unpack_from("<H", rest)[0] if len(rest) > 1 else -1
    if len(rest) != 2 + 4 * count + 2 * length:
        raise Malformed("lists do not fit")
    numbers = struct.unpack_from(f"<{count}I{length}h", rest, 2)
    if not any(numbers):
        raise Malformed("bad commit")
    return numbers[:count], numbers[count:]


def _decode_part(data: bytes) -> Part:
    if len(data) < PART_HEADER:
        raise Malformed("truncated")
    _, ring_seq, ring_rep, seq, size, part_size, place = _PART.unpack_from(data)
    check_count(ring_seq)
    check_count(seq, lowest=1)
    part = Part(ring_seq, check_node(ring_rep), seq, size, part_size, place, data[PART_HEADER:])
    check_part(size, part_size, place, part.data)
    if part.parts > MOST_PARTS:
        raise Malformed("bad part")
    return part


def _decode_hurry(data: bytes) -> Hurry:
    reader = Reader(data)
    ring = reader.ring()
    reader.end()
    return Hurry(ring)


_DECODERS: dict[int, Callable[[bytes], AnyPacket]] = {
    DATA: decode_data,
    RECOVERED: _decode_recovered,
    TOKEN: decode_token,
    COMMIT: _decode_commit,
    JOIN: decode_join,
    ANNOUNCE: decode_announce,
    HURRY: _decode_hurry,
    PART: _decode_part,
}


def decode(data: bytes) -> AnyPacket:
    """Any packet of this protocol."""
    decoder = _DECODERS.get(kind_of(data))
    if decoder is None:
        raise Malformed("unknown kind")
    return decoder(data)
