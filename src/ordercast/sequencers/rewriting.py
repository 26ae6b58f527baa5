"""A packet with something in it changed: decoded, changed by somebody, encoded again.

For the injection of packets that are wrong in one field and right in all others (`ordercast.sim.injection`):
those of the membership with the decision that they may carry, and those of the orderers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ordercast.core.wire import Malformed
from ordercast.sequencers import packets
from ordercast.sequencers.packets import (
    Ack,
    Acked,
    Answered,
    Bcast,
    Copy,
    CumSeqAck,
    Msg,
    NewView,
    NewViewAck,
    Req,
    Request,
    Resend,
    SeqAck,
    TotalUnicast,
    Update,
)
from ordercast.viewsync import packets as membership
from ordercast.viewsync.header import FIRST_ORDER_KIND, Header, header, read_header
from ordercast.viewsync.packets import Decision, decode_decision, encode_decision
from ordercast.viewsync.parts import PART, Part, decode_part


class Carried(NamedTuple):
    """A packet with what it carries apart from each other."""

    header: Header
    packet: Any
    decision: Decision | None = None
    """What the packet's ``value`` says, where it says something."""


def rewrite(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The packet as `change` leaves it.

    Raises `Malformed` where there is no packet, and whatever encoding raises if a change cannot be encoded.
    """
    head = read_header(data)
    if head.kind >= FIRST_ORDER_KIND:
        changed: Carried = change(Carried(head, packets.decode(data)))
        return _ordered(header(*changed.header), changed.packet)
    if head.kind == PART:
        changed = change(Carried(head, decode_part(data)))
        part: Part = changed.packet
        return part.encode(header(*changed.header))
    packet = membership.decode(head, data)
    head, packet, decision = change(Carried(head, packet, _decision(packet)))
    if decision is not None:
        packet = packet._replace(value=encode_decision(decision))
    _, body = membership.encode(packet)
    return header(*head) + body


def _decision(packet: Any) -> Decision | None:
    try:
        return decode_decision(packet.value) if hasattr(packet, "value") else None
    except Malformed:
        return None  # an estimate of somebody who has adopted nothing


def _ordered(head: bytes, packet: packets.AnyPacket) -> bytes:
    match packet:
        case Msg() | Request():
            msg = packet if isinstance(packet, Msg) else packet.msg
            return _message(head, msg).raw
        case Bcast(seq, stable, msg):
            return packets.encode_bcast(head, seq, stable, _message(b"", msg))
        case Ack():
            return packets.encode_ack(head, packet)
        case Req():
            return packets.encode_req(head, packet)
        case Copy():
            return packets.encode_copy(head, packet)
        case Resend(seqs):
            return packets.encode_resend(head, seqs)
        case packets.Gone() | NewView() | CumSeqAck() | SeqAck():
            return packets.encode_numbers(head, *packet)
        case Update(turn, place, stable, msg):
            return packets.encode_update(head, turn, place, stable, _message(b"", msg))
        case Acked() | Answered():
            return packets.encode_reached(head, packet)
        case TotalUnicast(payload):
            return head + payload
        case NewViewAck():
            return head


def _message(head: bytes, msg: Msg) -> Msg:
    return packets.encode_msg(
        head, (msg.origin, msg.lsn), msg.number, msg.hgsn, msg.guarantee, msg.flags, msg.chunks
    )
