"""What the orderers of the sequencer family declare for people: their packets, why they drop some, what they
count."""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.core.declared import DropReason, PacketKind, Purpose, Sort, Statistic
from ordercast.sequencers.packets import (
    ACK,
    COPY,
    GONE,
    MSG,
    PB_ACK,
    PB_ANSWERED,
    PB_GONE,
    PB_REQUEST,
    PB_RESEND,
    PB_UPDATE,
    REQ,
    TOTAL_BCAST,
    TOTAL_CUM_SEQ_ACK,
    TOTAL_NEW_VIEW,
    TOTAL_NEW_VIEW_ACK,
    TOTAL_REQUEST,
    TOTAL_RESEND,
    TOTAL_SEQ_ACK,
    TOTAL_UNICAST,
)

MOVING_KINDS: Mapping[int, PacketKind] = {
    MSG: PacketKind("msg", Purpose.MESSAGES, "Messages, numbered by their sender."),
    ACK: PacketKind("ack", Purpose.ORDER, "Places of messages, and who holds the token next."),
    REQ: PacketKind("req", Purpose.ORDER, "Which messages and places its sender lacks."),
    COPY: PacketKind("copy", Purpose.ORDER, "Places that were asked for."),
    GONE: PacketKind("gone", Purpose.ORDER, "That what was asked for is no longer kept."),
}
TOTAL_KINDS: Mapping[int, PacketKind] = {
    TOTAL_UNICAST: PacketKind("total-unicast", Purpose.MESSAGES, "Messages that TOTAL does not order."),
    TOTAL_BCAST: PacketKind(
        "total-bcast", Purpose.MESSAGES, "Messages with their places, from the sequencer."
    ),
    TOTAL_REQUEST: PacketKind("total-request", Purpose.MESSAGES, "Messages that the sequencer is to place."),
    TOTAL_NEW_VIEW: PacketKind("total-new-view", Purpose.ORDER, "That the sequencer has begun the view."),
    TOTAL_NEW_VIEW_ACK: PacketKind("total-new-view-ack", Purpose.ORDER, "That its sender knows of that."),
    TOTAL_CUM_SEQ_ACK: PacketKind(
        "total-cum-seq-ack", Purpose.ORDER, "Up to where its sender has the order."
    ),
    TOTAL_SEQ_ACK: PacketKind("total-seq-ack", Purpose.ORDER, "That its sender has one message."),
    TOTAL_RESEND: PacketKind("total-resend", Purpose.ORDER, "Which places are to be sent again."),
}
PRIMARY_BACKUP_KINDS: Mapping[int, PacketKind] = {
    PB_REQUEST: PacketKind("pb-request", Purpose.MESSAGES, "Messages that the primary is to place."),
    PB_UPDATE: PacketKind("pb-update", Purpose.MESSAGES, "Messages with their places, from the primary."),
    PB_ACK: PacketKind("pb-ack", Purpose.ORDER, "Up to where a backup has the order."),
    PB_ANSWERED: PacketKind("pb-answered", Purpose.ORDER, "Up to where all backups have the order."),
    PB_RESEND: PacketKind("pb-resend", Purpose.ORDER, "Which places are to be sent again."),
    PB_GONE: PacketKind("pb-gone", Purpose.ORDER, "That what was asked for is no longer kept."),
}
KINDS: Mapping[int, PacketKind] = {**MOVING_KINDS, **TOTAL_KINDS, **PRIMARY_BACKUP_KINDS}

DROPS: tuple[DropReason, ...] = (
    DropReason("no order now", "The view has not begun here, or is being settled.", everyday=True),
    DropReason("duplicate", "The packet was received before.", everyday=True),
    DropReason("not a member's", "The packet is in the name of a node that is no member of the view."),
)
"""What every orderer of the family declares."""

STATISTICS: tuple[Statistic, ...] = (
    Statistic("packets", "Packets with messages that this node broadcast for the first time."),
    Statistic("retransmissions", "Packets that this node sent again."),
    Statistic("acks", "Acknowledgements that this node sent."),
    Statistic("requests", "Requests for packets that this node lacked."),
    Statistic(
        "stable_lag", "Places of the order that this node has and not all are known to have.", Sort.LEVEL
    ),
)
"""What every orderer of the family declares."""

MOVING_DROPS: tuple[DropReason, ...] = (
    *DROPS,
    DropReason("other turn", "The packet is of another token list of the view.", everyday=True),
    DropReason("not the token's", "Who sent the acknowledgement does not hold the token.", everyday=True),
)
"""What an orderer with a moving token declares."""

MOVING_STATISTICS: tuple[Statistic, ...] = (
    *STATISTICS,
    Statistic("null_acks", "Acknowledgements that placed nothing, since nothing was to be placed."),
    Statistic("token_passes", "Times that this node passed the token on."),
    Statistic("copies", "Packets that this node sent again to who asked for them."),
)
"""What an orderer with a moving token declares."""

TOTAL_DROPS: tuple[DropReason, ...] = (
    *DROPS,
    DropReason("other sequencer", "The packet is of, or for, a node that is no sequencer.", everyday=True),
    DropReason("not its sender's", "The request is in the name of another node."),
)
"""What TOTAL declares."""

TOTAL_STATISTICS: tuple[Statistic, ...] = (
    *STATISTICS,
    Statistic("unicasts", "Messages that this node sent to the sequencer."),
)
"""What TOTAL declares."""

PRIMARY_BACKUP_DROPS: tuple[DropReason, ...] = (
    *DROPS,
    DropReason("other turn", "The packet is of another list of the view.", everyday=True),
    DropReason("other primary", "The packet is of, or for, a node that is not the primary.", everyday=True),
    DropReason("not its sender's", "The request is in the name of another node."),
)
"""What primary-backup declares."""
