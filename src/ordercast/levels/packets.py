"""Packets between the levels: the order on its way down, its acknowledgement and messages on their way up.

| kind | from | what it says |
|---|---|---|
| `Attach` | a follower to a node above it | it wants to be fed, from a place on |
| `Welcome` | the answer to one that has nothing yet | the view, and behind which place the order comes |
| `Pieces` | above to below | the next pieces of the order |
| `Beat` | above to below | how far the order is, and when each is to say how far it has come |
| `Status` | below to above | so far it has come |
| `Lost` | above to below | what it asks for is no longer kept |
| `Insert` | below to above, level by level | messages of a secondary source, to be put into the order |

All begin with `viewsync.header`. What follows is decoded by a schema with bounds; all else is `Malformed`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ordercast.core.declared import DropReason, PacketKind, Purpose, Statistic
from ordercast.core.identity import MAX_INCARNATION, MAX_NODE_ID, ConfigurationId
from ordercast.core.wire import MAX_COUNT, UNREADABLE, Malformed
from ordercast.viewsync.header import HEADER_SIZE, header

FIRST_LEVEL_KIND = 96
"""Kinds from here on are of packets between levels."""
ATTACH, WELCOME, PIECES, BEAT, STATUS, LOST, INSERT = range(FIRST_LEVEL_KIND, FIRST_LEVEL_KIND + 7)

LEVEL_KINDS = {
    ATTACH: PacketKind("attach", Purpose.MEMBERSHIP, "That its sender wants to be fed the order."),
    WELCOME: PacketKind("welcome", Purpose.MEMBERSHIP, "From where on its receiver is fed the order."),
    PIECES: PacketKind("pieces", Purpose.ORDER, "The next pieces of the order, for a lower level."),
    BEAT: PacketKind("beat", Purpose.ORDER, "How far the order is, and whose turn is when.", quiet=True),
    STATUS: PacketKind("status", Purpose.ORDER, "How far its sender has come.", quiet=True),
    LOST: PacketKind("lost", Purpose.ORDER, "That what its receiver lacks is no longer kept."),
    INSERT: PacketKind("insert", Purpose.MESSAGES, "Messages of a secondary source, to be ordered."),
}

LEVEL_DROPS = (
    DropReason("not trusted to be primary", "Who is no primary takes no part in the primary ring."),
    DropReason("not trusted to send", "The messages are of a node that only receives."),
    DropReason("of the primary ring", "The packet is for primaries, and this node is none.", everyday=True),
    DropReason("not above", "The packet is not from who feeds this node.", everyday=True),
    DropReason("not below", "The packet is not from a node that this one feeds.", everyday=True),
    DropReason("bad payload", "What is in the order is no bundle of messages."),
)

LEVEL_STATISTICS = (
    Statistic("fed", "Pieces of the order that this node sent to nodes below it."),
    Statistic("fed_again", "Times that this node began anew from what a node below it has."),
    Statistic("inserted", "Messages of secondary sources that this node put into the order."),
    Statistic("parents", "Times that this node went over to another node above it."),
)

Node: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_NODE_ID)]
Life: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INCARNATION)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_COUNT)]
View: TypeAlias = tuple[Count, Annotated[int, Meta(ge=0, le=MAX_NODE_ID)]]
MOST_NODES = 1_024
Turn: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NODES)]


class Attach(msgspec.Struct, array_like=True, frozen=True, tag=ATTACH):
    """Feed me, from behind this place of the header's view on; from wherever you are, if I am in none."""

    at: Count


class Welcome(msgspec.Struct, array_like=True, frozen=True, tag=WELCOME):
    """You are in the header's view from now on, and its order comes from behind this place on."""

    members: Annotated[tuple[Node, ...], Meta(min_length=1, max_length=MOST_NODES)]
    at: Count


class Pieces(msgspec.Struct, array_like=True, frozen=True, tag=PIECES):
    """Consecutive pieces of the header's view."""

    first: Count
    pieces: Annotated[tuple[tuple[bool, bytes], ...], Meta(min_length=1)]
    """Each with whether the entry that it is a piece of goes on in the next one."""


class Beat(msgspec.Struct, array_like=True, frozen=True, tag=BEAT):
    """The order has come so far in the header's view."""

    at: Count
    place: Turn
    """Its receiver's turn to tell how far it has come, counted from 0."""
    turns: Turn


class Status(msgspec.Struct, array_like=True, frozen=True, tag=STATUS):
    """Tells how many pieces of the header's view the sender has, without a gap."""

    at: Count
    lacking: bool
    """Whether the sender knows that there are further pieces."""
    leaving: bool = False


class Lost(msgspec.Struct, array_like=True, frozen=True, tag=LOST):
    """Tells a node that the pieces it lacks are no longer kept."""


class Insert(msgspec.Struct, array_like=True, frozen=True, tag=INSERT):
    """Messages with consecutive numbers, to be ordered in the header's view or not at all."""

    origin: Node
    incarnation: Life
    base: Count
    """The number of the first message of that life that was not in the order when the view began."""
    number: Count
    guarantee: str
    payloads: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=4_096)]


LevelPacket: TypeAlias = Attach | Welcome | Pieces | Beat | Status | Lost | Insert

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LevelPacket)


def encode(packet: LevelPacket, view: ConfigurationId, sender: int, incarnation: int) -> bytes:
    """A packet as bytes, with what it is about in its header."""
    kind: int = packet.__struct_config__.tag  # type: ignore[assignment]
    return header(kind, view, sender, incarnation) + encode_body(packet)


def encode_body(packet: LevelPacket) -> bytes:
    """What follows the header."""
    return _encoder.encode(packet)


def decode(data: bytes) -> LevelPacket:
    """The packet behind a header; raises `Malformed`."""
    try:
        packet: LevelPacket = _decoder.decode(memoryview(data)[HEADER_SIZE:])
    except UNREADABLE as error:
        raise Malformed("bad request") from error
    return packet
