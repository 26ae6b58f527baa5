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

MAX_REQUESTS = 4096
"""Most entries in a token's rtr list."""
MOST_PARTS = 64
"""Most parts that a packet is sent again in: their numbers are bits of a word."""
ALL_PARTS = 2**MOST_PARTS - 1

NOBODY = 0
"""The null value of `Token.aru_id` and `Token.brake`: not the id of any processor."""

LONGEST_HOLD_US = 2**32 - 1
"""Most that an entry of `Token.holds` can say; a longer wait is entered as this."""

DATA, RECOVERED, TOKEN, COMMIT = range(1, 5)
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
TOKEN_PREFIX = prefix(TOKEN)
_DATA = struct.Struct("<4sBqiqiiqH")
DATA_HEADER = _DATA.size
_RECOVERED = struct.Struct("<4sqiqi")
RECOVERED_HEADER = _RECOVERED.size
"""What encapsulation adds; `Data` leaves that much of a packet free."""
_TOKEN = struct.Struct("<4sqiqqqiIIIBiHHHH")
_ENTRY = struct.Struct("<iqiqqBIII")
_PART = struct.Struct("<4sqiqHHB")
PART_HEADER = _PART.size
_COMMIT_HEAD = struct.Struct("<HH")
_MISSING = struct.Struct("<IQ")
_FARTHEST = 2**32 - 1
"""Requests on one token are nearer to each other than this, unless somebody forged one."""
_MAX_FLOW = 2**31
_RETRANS, _IDLE, _TOKEN_TIMED = 1, 2, 4
_TIMESTAMP = struct.Struct("<q")
TIMESTAMP_SIZE = _TIMESTAMP.size
"""What a timestamp adds to a packet (001: on rings that are joined by gateways)."""


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


class Token:
    """The regular token (000 §5.1, §7.1, §8.1). Changed in place by each holder."""

    __slots__ = (
        "aru",
        "aru_id",
        "backlog",
        "brake",
        "entitled",
        "fcc",
        "holds",
        "idle",
        "merge",
        "parts",
        "retrans_flg",
        "ring",
        "rtr",
        "seq",
        "timestamp",
        "token_seq",
    )

    def __init__(
        self,
        ring: ConfigurationId,
        token_seq: int = 0,
        seq: int = 0,
        aru: int = 0,
        aru_id: NodeId = NOBODY,
        fcc: int = 0,
        backlog: int = 0,
        retrans_flg: bool = False,
        idle: bool = False,
        brake: NodeId = NOBODY,
        entitled: int = 0,
    ) -> None:
        self.ring = ring
        self.token_seq = token_seq
        """Counts hops; recognises redundant copies."""
        self.seq = seq
        """Highest sequence number broadcast on the ring."""
        self.aru = aru
        """All received up to here, by everyone."""
        self.aru_id = aru_id
        """Who lowered `aru` below `seq`."""
        self.fcc = fcc
        """Datagrams broadcast in the last rotation (§8.1)."""
        self.backlog = backlog
        """Datagrams that waited at all members, as the token last came to each (§8.1)."""
        self.entitled = entitled
        """Of these, what was within each member's equal part of the window."""
        self.retrans_flg = retrans_flg
        """Old-ring messages remain to be rebroadcast (§7.1)."""
        self.idle = idle
        """The representative will hold the token at its next visit unless something comes up."""
        self.brake = brake
        """Whose log disk does not keep up: until it is taken off, nobody sends anything new."""
        self.rtr: list[int] = []
        """Retransmission requests."""
        self.parts: dict[int, int] = {}
        """Of requests for packets larger than a datagram, which parts are missing, as bits; else all are."""
        self.merge: tuple[NodeId, ...] = ()
        """MergeDetection that every member asked so far hears and is heard by."""
        self.timestamp = 0
        """The highest Lamport timestamp that a packet of the ring has, where packets have one (001)."""
        self.holds: list[int] = []
        """Microseconds for which the token last waited at each member before it was handled, in ring order.
        Empty where it waited nowhere; a list that does not fit the ring says nothing."""

    def encode(self) -> bytes:
        """The packet as bytes."""
        rtr, merge, holds = self.rtr, self.merge, self.holds
        ring_seq, ring_rep = self.ring
        head = _TOKEN.pack(
            TOKEN_PREFIX,
            ring_seq,
            ring_rep,
            self.token_seq,
            self.seq,
            self.aru,
            self.aru_id,
            self.fcc,
            self.backlog,
            self.entitled,
            _RETRANS * self.retrans_flg | _IDLE * self.idle | _TOKEN_TIMED * bool(self.timestamp),
            self.brake,
            len(holds),
            len(rtr),
            len(self.parts),
            len(merge),
        )
        if self.timestamp:
            head += _TIMESTAMP.pack(self.timestamp)
        if not (rtr or merge):
            return head + struct.pack(f"<{len(holds)}I", *holds)
        if not rtr:
            return head + struct.pack(f"<{len(holds)}I{len(merge)}i", *holds, *merge)
        first = min(rtr)
        offsets = [min(seq - first, _FARTHEST) for seq in rtr]
        lists = struct.pack(f"<{len(holds)}Iq{len(rtr)}I", *holds, first, *offsets)
        lists += b"".join(
            [_MISSING.pack(min(seq - first, _FARTHEST), mask) for seq, mask in self.parts.items()]
        )
        return head + lists + struct.pack(f"<{len(merge)}i", *merge)


class Entry(NamedTuple):
    """One member's line in a Commit token's memb_list (000 §6.1)."""

    node: NodeId
    old_ring: ConfigurationId
    aru: int
    high_delivered: int
    received_flg: bool
    limits: Limits
    """What the member can take, which §8.1 wants negotiated; the paper's list does not have it."""


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

    def encode(self) -> bytes:
        """The packet as bytes."""
        size = len(self.members)
        head = struct.pack(f"<{size}I", *(self.lives or (0,) * size))
        head += _COMMIT_HEAD.pack(self.memb_index, len(self.entries))
        lines = [
            _ENTRY.pack(e.node, *e.old_ring, e.aru, e.high_delivered, e.received_flg, *e.limits)
            for e in self.entries
        ]
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
        head += _TIMESTAMP.pack(timestamp)
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
        timestamp = _timestamp(data, DATA_HEADER)
        chunks = split_chunks(data, DATA_HEADER + TIMESTAMP_SIZE, count)
    else:
        chunks = split_chunks(data, DATA_HEADER, count)
    if flags > 15:
        raise Malformed("unknown flags")
    if (flags & CONTINUES and not chunks[0]) or (flags & CONTINUED and not chunks[-1]):
        raise Malformed("empty fragment")
    return Data(ring_seq, ring_rep, seq, origin, incarnation, number, flags, chunks, data, timestamp)


def _timestamp(data: bytes, at: int) -> int:
    if len(data) < at + TIMESTAMP_SIZE:
        raise Malformed("truncated")
    timestamp: int = _TIMESTAMP.unpack_from(data, at)[0]
    return check_count(timestamp, lowest=1)


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


def decode_token(data: bytes) -> Token:
    """A regular token; the prefix is known to be right."""
    if len(data) < _TOKEN.size:
        raise Malformed("truncated")
    fields = _TOKEN.unpack_from(data)
    _, ring_seq, rep, token_seq, seq, aru, aru_id, fcc, backlog, entitled = fields[:10]
    flags, brake, members, requests, partial, strangers = fields[10:]
    if requests > MAX_REQUESTS or strangers > MAX_MEMBERS or members > MAX_MEMBERS or partial > requests:
        raise Malformed("too many entries")
    asked = 8 + 4 * requests + _MISSING.size * partial if requests else 0
    timestamp = _timestamp(data, _TOKEN.size) if flags & _TOKEN_TIMED else 0
    begin = _TOKEN.size + (TIMESTAMP_SIZE if timestamp else 0)
    if len(data) != begin + 4 * members + asked + 4 * strangers:
        raise Malformed("lists do not fit")
    if rep <= 0 or aru_id < 0 or brake < 0 or flags > 7 or max(fcc, backlog, entitled) >= _MAX_FLOW:
        raise Malformed("bad number")
    if not (0 <= ring_seq < MAX_COUNT and 0 < token_seq < MAX_COUNT and 0 <= aru <= seq < MAX_COUNT):
        raise Malformed("bad number")
    ring = ConfigurationId(ring_seq, rep)
    retrans_flg, idle = flags & _RETRANS != 0, flags & _IDLE != 0
    token = Token(ring, token_seq, seq, aru, aru_id, fcc, backlog, retrans_flg, idle, brake, entitled)
    token.timestamp = timestamp
    if members:
        token.holds = list(struct.unpack_from(f"<{members}I", data, begin))
    at = begin + 4 * members
    if requests:
        first, *offsets = struct.unpack_from(f"<q{requests}I", data, at)
        token.rtr = [first + offset for offset in offsets]
        if first <= 0 or min(offsets) or max(token.rtr) > seq:
            raise Malformed("bad request")
        if partial:
            pairs = _MISSING.iter_unpack(data[at + 8 + 4 * requests : at + asked])
            token.parts = {first + offset: mask for offset, mask in pairs}
            if len(token.parts) != partial or not token.parts.keys() <= set(token.rtr):
                raise Malformed("bad request")
            if 0 in token.parts.values() or ALL_PARTS in token.parts.values():
                raise Malformed("bad request")
    if strangers:
        token.merge = struct.unpack_from(f"<{strangers}i", data, at + asked)
        for node in token.merge:
            check_node(node)
    return token


def _decode_commit(data: bytes) -> Commit:
    reader = Reader(data)
    ring = reader.ring()
    members = reader.nodes(MAX_MEMBERS)
    lives = tuple(reader.u32() for _ in members)
    memb_index = reader.u16()
    count = reader.u16()
    if not members or ring.rep != members[0] or not 0 < memb_index <= 2 * len(members):
        raise Malformed("bad commit")
    if count != min(memb_index, len(members)):
        raise Malformed("bad commit")
    lines = reader.rest()
    if len(lines) != count * _ENTRY.size:
        raise Malformed("lists do not fit")
    entries = []
    for (node, seq, rep, aru, high, received, *limits), member in zip(
        _ENTRY.iter_unpack(lines), members, strict=False
    ):
        if node != member or rep <= 0 or received > 1:
            raise Malformed("bad commit entry")
        if min(limits) < LEAST_DATAGRAM or max(limits) >= _MAX_FLOW:
            raise Malformed("bad commit entry")
        if not (0 <= seq < MAX_COUNT and 0 <= high <= aru < MAX_COUNT):
            raise Malformed("bad commit entry")
        entries.append(Entry(node, ConfigurationId(seq, rep), aru, high, bool(received), Limits(*limits)))
    return Commit(ring, members, memb_index, tuple(entries), lives)


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
