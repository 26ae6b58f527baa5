"""Packets of the orderers: what they hold and how they look on the wire.

| kind | from the papers | travels |
|---|---|---|
| `Msg` | MSG (002 §4.2), (m, B) in 004 | multicast; to who asked for it |
| `Ack` | ACK: its four functions are in 004 §3.1.3; null if it places nothing | multicast |
| `Req` | REQ (002 §4.2): by message and by number, Figs 9 and 11 in 004 | multicast, then to one |
| `Copy` | "(B, seqnum)" or "ACK(B, seqnum, ⊥)" (004 Figs 16, 25): places, but not the token | to one member |
| `Gone` | "no more in the buffers" (004 §4.4.3) | to one member |
| `Request`, `Bcast`, … | TOTAL's headers (003, appendix) | see `total` |
| `Update`, `Acked`, … | *update*, acknowledgement, reply (004 §4.3.1) | see `primary_backup` |

All begin with `viewsync.header`, whose sender is who transmits: what is passed on for somebody else names its
origin in itself. `decode` is total: it returns a packet within bounds or raises `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import Guarantee, NodeId
from ordercast.core.packing import join_chunks, split_chunks
from ordercast.core.wire import MAX_COUNT, MAX_PACKET, PREFIX_SIZE, Malformed, check_count, check_node
from ordercast.sequencers.fields import ends, entries, flat, head_of, many, only_number, packed
from ordercast.viewsync.header import FIRST_ORDER_KIND, HEADER_SIZE

MSG, ACK, REQ, COPY, GONE = range(FIRST_ORDER_KIND, FIRST_ORDER_KIND + 5)
(
    TOTAL_UNICAST,
    TOTAL_BCAST,
    TOTAL_REQUEST,
    TOTAL_NEW_VIEW,
    TOTAL_NEW_VIEW_ACK,
    TOTAL_CUM_SEQ_ACK,
    TOTAL_SEQ_ACK,
    TOTAL_RESEND,
) = range(FIRST_ORDER_KIND + 16, FIRST_ORDER_KIND + 24)
PB_REQUEST, PB_UPDATE, PB_ACK, PB_ANSWERED, PB_RESEND, PB_GONE = range(
    FIRST_ORDER_KIND + 32, FIRST_ORDER_KIND + 38
)

NOBODY = 0
"""Stands for the null message ⊥ where a place names its message; not the id of any node."""

CONTINUES, CONTINUED = 1, 2
"""Flags of a packet of messages."""

_BODY = struct.Struct("<iqqqBBH")
BODY_SIZE = _BODY.size
_BCAST = struct.Struct("<qq")
MESSAGE_OVERHEAD = HEADER_SIZE + _BCAST.size + BODY_SIZE
"""What a packet of messages needs beside its chunks, however it travels."""
_UPDATE = struct.Struct("<IqI")
_ACKED = struct.Struct("<Iq")
_ANSWERED = struct.Struct("<Iqq")
_FAR_BEHIND = 2**32 - 1
_ACK = struct.Struct("<IqqiH")
_REQ = struct.Struct("<qiHH")
_COPY = struct.Struct("<IqH")
_COUNT = struct.Struct("<H")

_LEVELS = tuple(Guarantee)
_CODES = {guarantee: code for code, guarantee in enumerate(_LEVELS)}

MessageKey: TypeAlias = tuple[NodeId, int]
"""U_id (002 §3), B (004): whose packet it is, and its lsn. Which life of the sender follows from the view."""
NULL: MessageKey = (NOBODY, 0)


class Msg(NamedTuple):
    """One packet of messages: the "message" of the papers."""

    origin: NodeId
    lsn: int
    """Counts a sender's packets in one view (002 §3)."""
    number: int
    """Number of the application message that the first chunk belongs to."""
    hgsn: int
    """The sender's delivery status (002 §3) when it was first sent: it had everything up to this place."""
    guarantee: Guarantee
    flags: int
    chunks: list[bytes]
    raw: bytes
    """The packet as it came."""
    at: int
    """Where in `raw` the part begins that does not depend on who transmits it."""

    @property
    def key(self) -> MessageKey:
        """The message's key: its sender, and its number there."""
        return (self.origin, self.lsn)

    @property
    def body(self) -> bytes:
        """The part of the message that is the same whichever member transmits it."""
        return self.raw[self.at :]


class Ack(NamedTuple):
    """Places for messages, and the token for the next holder."""

    turn: int
    """The turn of the intermediate view that the packet belongs to (004 §4.3.5)."""
    hop: int
    """How often the token was passed, this time included. Tells copies of a token from the token: the papers
    use the gsn, which a null ACK of DTP leaves as it was."""
    first: int
    """The place of the first message; the others follow on."""
    next: NodeId
    """Who holds the token from now on."""
    keys: tuple[MessageKey, ...]
    """What is placed. Empty: nothing; `NULL`: a place that stays empty (004 §3.2.1 c)."""

    @property
    def last(self) -> int:
        """The highest place given out so far: its sender has everything up to it."""
        return self.first + len(self.keys) - 1


class Req(NamedTuple):
    """What its sender lacks (002 §4.2, msglst)."""

    hgsn: int
    asked: NodeId
    """Who is to answer."""
    keys: tuple[MessageKey, ...]
    """('msg', U_id): these messages."""
    places: tuple[int, ...]
    """('ack', gsn): what is in these places."""


class Placed(NamedTuple):
    """What was said of a place: which message is there, and who put it there."""

    node: NodeId
    lsn: int
    by: NodeId


class Copy(NamedTuple):
    """Places that were given out before, for who missed them."""

    turn: int
    hop: int
    """How far its sender has seen the token come."""
    places: tuple[tuple[int, Placed], ...]


class Gone(NamedTuple):
    """What was asked for is no longer here."""

    floor: int
    """Everything up to this place was given up."""


class TotalUnicast(NamedTuple):
    """TOTAL_UNICAST: "not to be processed by the TOTAL layer"."""

    payload: bytes


class Bcast(NamedTuple):
    """TOTAL_BCAST: a packet of messages with its sequence id."""

    seq: int
    stable: int
    """What the sequencer knows to be with all."""
    msg: Msg


class Request(NamedTuple):
    """TOTAL_REQUEST: to be broadcast by the sequencer."""

    msg: Msg


class NewView(NamedTuple):
    """TOTAL_NEW_VIEW."""

    first: int
    """The sequence id of the first broadcast of this view."""


class NewViewAck(NamedTuple):
    """TOTAL_NEW_VIEW_ACK."""


class CumSeqAck(NamedTuple):
    """TOTAL_CUM_SEQ_ACK: everything up to a sequence id is here."""

    seq: int
    stable: int
    """What its sender knows to be with all."""


class SeqAck(NamedTuple):
    """TOTAL_SEQ_ACK: one message is here."""

    seq: int


class Resend(NamedTuple):
    """TOTAL_RESEND: to be sent again."""

    seqs: tuple[int, ...]


class Update(NamedTuple):
    """What the primary made of a request, for all backups (004 §4.3.1)."""

    turn: int
    place: int
    stable: int
    """What its sender knows to be with all."""
    msg: Msg


class Acked(NamedTuple):
    """A backup has everything up to a place."""

    turn: int
    place: int


class Answered(NamedTuple):
    """How far the primary has come: its reply to who asked, and to all (004 §4.3.1)."""

    turn: int
    place: int
    """The last one that was given out."""
    stable: int
    """Everything up to here is with all."""


AnyPacket: TypeAlias = (
    Msg
    | Ack
    | Req
    | Copy
    | Gone
    | TotalUnicast
    | Bcast
    | Request
    | NewView
    | NewViewAck
    | CumSeqAck
    | SeqAck
    | Resend
    | Update
    | Acked
    | Answered
)

# --- packets of messages ------------------------------------------------------------------------


def encode_msg(
    head: bytes,
    key: MessageKey,
    number: int,
    hgsn: int,
    guarantee: Guarantee,
    flags: int,
    chunks: list[bytes],
) -> Msg:
    """A new packet of messages behind a header."""
    body = _BODY.pack(*key, number, hgsn, _CODES[guarantee], flags, len(chunks))
    raw = b"".join((head, body, join_chunks(chunks)))
    return Msg(*key, number, hgsn, guarantee, flags, chunks, raw, len(head))


def decode_body(data: bytes, at: int) -> Msg:
    """The packet of messages that begins at an offset."""
    start = at + BODY_SIZE
    if start > len(data):
        raise Malformed("truncated")
    origin, lsn, number, hgsn, code, flags, count = _BODY.unpack_from(data, at)
    if origin <= 0 or not (0 < lsn < MAX_COUNT and 0 < number < MAX_COUNT and 0 <= hgsn < MAX_COUNT):
        raise Malformed("bad number")
    if code >= len(_LEVELS):
        raise Malformed("unknown guarantee")
    chunks = split_chunks(data, start, count)
    if flags:
        if flags > CONTINUES | CONTINUED:
            raise Malformed("unknown flags")
        if (flags & CONTINUES and not chunks[0]) or (flags & CONTINUED and not chunks[-1]):
            raise Malformed("empty fragment")
    return Msg(origin, lsn, number, hgsn, _LEVELS[code], flags, chunks, data, at)


def encode_bcast(head: bytes, seq: int, stable: int, msg: Msg) -> bytes:
    """A packet of messages that has its sequence id; its bytes are passed on as they are."""
    return b"".join((head, _BCAST.pack(seq, stable), memoryview(msg.raw)[msg.at :]))


def peek_bcast(data: bytes) -> tuple[int, int, NodeId, int]:
    """Sequence id, what is stable, and the name of the message of a TOTAL_BCAST that is not decoded yet."""
    if len(data) < MESSAGE_OVERHEAD:
        raise Malformed("truncated")
    seq, stable = _BCAST.unpack_from(data, HEADER_SIZE)
    origin, lsn, *_ = _BODY.unpack_from(data, HEADER_SIZE + _BCAST.size)
    return check_count(seq, 1), check_count(stable), origin, lsn


def encode_update(head: bytes, turn: int, place: int, stable: int, msg: Msg) -> bytes:
    """The packet as bytes. What is stable goes as a distance, and as 0 if that is large."""
    behind = min(place - stable, _FAR_BEHIND)
    return b"".join((head, _UPDATE.pack(turn, place, behind), memoryview(msg.raw)[msg.at :]))


def peek_update(data: bytes) -> tuple[int, int, int, NodeId, int]:
    """Turn, place, what is stable, and the name of the message of an update that is not decoded yet."""
    if len(data) < MESSAGE_OVERHEAD:
        raise Malformed("truncated")
    turn, place, behind = _UPDATE.unpack_from(data, HEADER_SIZE)
    origin, lsn, *_ = _BODY.unpack_from(data, HEADER_SIZE + _UPDATE.size)
    stable = 0 if behind == _FAR_BEHIND else place - behind
    return turn, check_count(place, 1), check_count(stable), origin, lsn


def passed_on(head: bytes, msg: Msg) -> bytes:
    """A packet of messages as another member than its origin transmits it."""
    return b"".join((head, memoryview(msg.raw)[msg.at :]))


# --- the rest -----------------------------------------------------------------------------------


def encode_ack(head: bytes, ack: Ack) -> bytes:
    """The packet as bytes."""
    keys = ack.keys
    return head + _ACK.pack(*ack[:4], len(keys)) + many("iq", len(keys)).pack(*flat(keys))


def encode_req(head: bytes, req: Req) -> bytes:
    """The packet as bytes."""
    lists = many("iq", len(req.keys)).pack(*flat(req.keys)) + packed(req.places)
    return head + _REQ.pack(req.hgsn, req.asked, len(req.keys), len(req.places)) + lists


def encode_copy(head: bytes, copy: Copy) -> bytes:
    """The packet as bytes."""
    rows = flat((place, *placed) for place, placed in copy.places)
    return (
        head + _COPY.pack(copy.turn, copy.hop, len(copy.places)) + many("qiqi", len(copy.places)).pack(*rows)
    )


def encode_numbers(head: bytes, *numbers: int) -> bytes:
    """A packet that is nothing but a few numbers: `Gone`, `NewView`, `CumSeqAck`, `SeqAck`."""
    return head + packed(numbers)


def encode_reached(head: bytes, reached: Acked | Answered) -> bytes:
    """The packet as bytes."""
    return head + (_ACKED if isinstance(reached, Acked) else _ANSWERED).pack(*reached)


def encode_resend(head: bytes, seqs: Sequence[int]) -> bytes:
    """The packet as bytes."""
    return head + _COUNT.pack(len(seqs)) + packed(seqs)


def _check_key(node: NodeId, lsn: int, null_allowed: bool) -> MessageKey:
    if null_allowed and (node, lsn) == NULL:
        return NULL
    return check_node(node), check_count(lsn, 1)


def _decode_msg(data: bytes) -> Msg:
    return decode_body(data, HEADER_SIZE)


def _decode_ack(data: bytes) -> Ack:
    turn, hop, first, following, count = head_of(data, _ACK)
    at = HEADER_SIZE + _ACK.size
    keys = tuple(_check_key(node, lsn, True) for node, lsn in entries(data, at, "iq", count))
    ends(data, at + 12 * count)
    return Ack(turn, check_count(hop, 1), check_count(first, 1), check_node(following), keys)


def _decode_req(data: bytes) -> Req:
    hgsn, asked, messages, places = head_of(data, _REQ)
    at = HEADER_SIZE + _REQ.size
    keys = tuple(_check_key(node, lsn, False) for node, lsn in entries(data, at, "iq", messages))
    at += 12 * messages
    numbers = tuple(check_count(place, 1) for (place,) in entries(data, at, "q", places))
    ends(data, at + 8 * places)
    return Req(check_count(hgsn), check_node(asked), keys, numbers)


def _decode_copy(data: bytes) -> Copy:
    turn, hop, count = head_of(data, _COPY)
    at = HEADER_SIZE + _COPY.size
    places = tuple(
        (check_count(place, 1), Placed(*_check_key(node, lsn, True), check_node(by)))
        for place, node, lsn, by in entries(data, at, "qiqi", count)
    )
    ends(data, at + 24 * count)
    return Copy(turn, check_count(hop), places)


def _decode_gone(data: bytes) -> Gone:
    return Gone(only_number(data, 1))


def _decode_unicast(data: bytes) -> TotalUnicast:
    return TotalUnicast(data[HEADER_SIZE:])


def _decode_bcast(data: bytes) -> Bcast:
    seq, stable = head_of(data, _BCAST)
    msg = decode_body(data, HEADER_SIZE + _BCAST.size)
    return Bcast(check_count(seq, 1), check_count(stable), msg)


def _decode_request(data: bytes) -> Request:
    return Request(decode_body(data, HEADER_SIZE))


def _decode_new_view(data: bytes) -> NewView:
    return NewView(only_number(data, 1))


def _decode_new_view_ack(data: bytes) -> NewViewAck:
    ends(data, HEADER_SIZE)
    return NewViewAck()


def _decode_cum_seq_ack(data: bytes) -> CumSeqAck:
    seq, stable = head_of(data, _BCAST)
    ends(data, HEADER_SIZE + _BCAST.size)
    return CumSeqAck(check_count(seq), check_count(stable))


def _decode_seq_ack(data: bytes) -> SeqAck:
    return SeqAck(only_number(data, 1))


def _decode_resend(data: bytes) -> Resend:
    (count,) = head_of(data, _COUNT)
    at = HEADER_SIZE + _COUNT.size
    seqs = tuple(check_count(seq, 1) for (seq,) in entries(data, at, "q", count))
    ends(data, at + 8 * count)
    return Resend(seqs)


def _decode_update(data: bytes) -> Update:
    turn, place, stable, *_ = peek_update(data)
    return Update(turn, place, stable, decode_body(data, HEADER_SIZE + _UPDATE.size))


def _decode_acked(data: bytes) -> Acked:
    turn, place = head_of(data, _ACKED)
    ends(data, HEADER_SIZE + _ACKED.size)
    return Acked(turn, check_count(place))


def _decode_answered(data: bytes) -> Answered:
    turn, place, stable = head_of(data, _ANSWERED)
    ends(data, HEADER_SIZE + _ANSWERED.size)
    return Answered(turn, check_count(place), check_count(stable))


_DECODERS: dict[int, Callable[[bytes], AnyPacket]] = {
    MSG: _decode_msg,
    ACK: _decode_ack,
    REQ: _decode_req,
    COPY: _decode_copy,
    GONE: _decode_gone,
    TOTAL_UNICAST: _decode_unicast,
    TOTAL_BCAST: _decode_bcast,
    TOTAL_REQUEST: _decode_request,
    TOTAL_NEW_VIEW: _decode_new_view,
    TOTAL_NEW_VIEW_ACK: _decode_new_view_ack,
    TOTAL_CUM_SEQ_ACK: _decode_cum_seq_ack,
    TOTAL_SEQ_ACK: _decode_seq_ack,
    TOTAL_RESEND: _decode_resend,
    PB_REQUEST: _decode_request,
    PB_UPDATE: _decode_update,
    PB_ACK: _decode_acked,
    PB_ANSWERED: _decode_answered,
    PB_RESEND: _decode_resend,
    PB_GONE: _decode_gone,
}


def decode(data: bytes) -> AnyPacket:
    """Any packet of an orderer; its header has been read before (`viewsync.header.read_header`)."""
    if not HEADER_SIZE <= len(data) <= MAX_PACKET:
        raise Malformed("too short" if len(data) < HEADER_SIZE else "too long")
    decoder = _DECODERS.get(data[PREFIX_SIZE - 1])
    if decoder is None:
        raise Malformed("unknown kind")
    return decoder(data)
