"""The regular token (000 §5.1, §7.1, §8.1), and how it looks on the wire."""

from __future__ import annotations

import struct

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import MAX_COUNT, Malformed, check_count, check_node, prefix
from ordercast.totem.joins import MAX_MEMBERS
from ordercast.totem.visits import LONGEST, PLAIN, Visits

TOKEN = 3
TOKEN_PREFIX = prefix(TOKEN)
MAX_REQUESTS = 4096
"""Most entries in a token's rtr list."""
MOST_PARTS = 64
"""Most parts that a packet is sent again in: their numbers are bits of a word."""
ALL_PARTS = 2**MOST_PARTS - 1

NOBODY = 0
"""The null value of `Token.aru_id` and `Token.brake`: not the id of any processor."""

LONGEST_HOLD_US = 2**32 - 1
"""Most that an entry of `Token.holds` can say; a longer wait is entered as this."""

_TOKEN = struct.Struct("<4sqiqqqiIIIBiHHHH")
_CYCLE = struct.Struct("<HH")
_MISSING = struct.Struct("<IQ")
_FARTHEST = 2**32 - 1
"""Requests on one token are nearer to each other than this, unless somebody forged one."""
MAX_FLOW = 2**31
"""Numbers of datagrams and bytes are below this."""
_RETRANS, _IDLE, _TOKEN_TIMED, _CYCLED = 1, 2, 4, 8
TIMESTAMP = struct.Struct("<q")
TIMESTAMP_SIZE = TIMESTAMP.size
"""What a timestamp adds to a packet (001: on rings that are joined by gateways)."""


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
        "visit",
        "visits",
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
        """Nodes outside the ring that every member asked so far hears and is heard by."""
        self.timestamp = 0
        """The highest Lamport timestamp that a packet of the ring has, where packets have one (001)."""
        self.holds: list[int] = []
        """Microseconds for which the token last waited at each member before it was handled, in ring order.
        Empty where it waited nowhere; a list that does not fit the ring says nothing."""
        self.visits: Visits = PLAIN
        """The schedule of the cycle that the token is on (000 §8)."""
        self.visit = 0
        """The visit of the schedule that the token is on its way to; 0 on a plain ring."""

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
            _RETRANS * self.retrans_flg
            | _IDLE * self.idle
            | _TOKEN_TIMED * bool(self.timestamp)
            | _CYCLED * bool(self.visits),
            self.brake,
            len(holds),
            len(rtr),
            len(self.parts),
            len(merge),
        )
        if self.timestamp:
            head += TIMESTAMP.pack(self.timestamp)
        if self.visits:
            count = len(self.visits)
            head += _CYCLE.pack(self.visit, count) + struct.pack(f"<{count}h", *self.visits)
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
    timestamp = read_timestamp(data, _TOKEN.size) if flags & _TOKEN_TIMED else 0
    begin = _TOKEN.size + (TIMESTAMP_SIZE if timestamp else 0)
    visit, visits = 0, PLAIN
    if flags & _CYCLED:
        visit, visits = _cycle(data, begin)
        begin += _CYCLE.size + 2 * len(visits)
    if len(data) != begin + 4 * members + asked + 4 * strangers:
        raise Malformed("lists do not fit")
    if rep <= 0 or aru_id < 0 or brake < 0 or flags > 15 or max(fcc, backlog, entitled) >= MAX_FLOW:
        raise Malformed("bad number")
    if not (0 <= ring_seq < MAX_COUNT and 0 < token_seq < MAX_COUNT and 0 <= aru <= seq < MAX_COUNT):
        raise Malformed("bad number")
    ring = ConfigurationId(ring_seq, rep)
    retrans_flg, idle = flags & _RETRANS != 0, flags & _IDLE != 0
    token = Token(ring, token_seq, seq, aru, aru_id, fcc, backlog, retrans_flg, idle, brake, entitled)
    token.timestamp, token.visit, token.visits = timestamp, visit, visits
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


def _cycle(data: bytes, at: int) -> tuple[int, Visits]:
    """A token's schedule, and the visit that it is on its way to."""
    if len(data) < at + _CYCLE.size:
        raise Malformed("truncated")
    visit, count = _CYCLE.unpack_from(data, at)
    if not visit < count <= LONGEST * MAX_MEMBERS or len(data) < at + _CYCLE.size + 2 * count:
        raise Malformed("bad schedule")
    return visit, struct.unpack_from(f"<{count}h", data, at + _CYCLE.size)


def read_timestamp(data: bytes, at: int) -> int:
    """The timestamp of a packet that has one."""
    if len(data) < at + TIMESTAMP_SIZE:
        raise Malformed("truncated")
    timestamp: int = TIMESTAMP.unpack_from(data, at)[0]
    return check_count(timestamp, lowest=1)
