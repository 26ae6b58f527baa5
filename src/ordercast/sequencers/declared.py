"""What the orderers of the sequencer family declare for people: why they drop packets, what they count."""

from __future__ import annotations

from ordercast.core.declared import DropReason, Sort, Statistic

DROPS: tuple[DropReason, ...] = (
    DropReason("no order now", "The view has not begun here, or is being settled.", everyday=True),
    DropReason("duplicate", "The packet was received before.", everyday=True),
    DropReason("not a member's", "The packet is in the name of a node that is no member of the view."),
)
"""Of every orderer."""

STATISTICS: tuple[Statistic, ...] = (
    Statistic("packets", "Packets with messages that this node broadcast for the first time."),
    Statistic("retransmissions", "Packets that this node sent again."),
    Statistic("acks", "Acknowledgements that this node sent."),
    Statistic("requests", "Requests for packets that this node lacked."),
    Statistic(
        "stable_lag", "Places of the order that this node has and not all are known to have.", Sort.LEVEL
    ),
)
"""Of every orderer."""

MOVING_DROPS: tuple[DropReason, ...] = (
    *DROPS,
    DropReason("other turn", "The packet is of another token list of the view.", everyday=True),
    DropReason("not the token's", "Who sent the acknowledgement does not hold the token.", everyday=True),
)
"""Where the token moves."""

MOVING_STATISTICS: tuple[Statistic, ...] = (
    *STATISTICS,
    Statistic("null_acks", "Acknowledgements that placed nothing, since nothing was to be placed."),
    Statistic("token_passes", "Times that this node passed the token on."),
    Statistic("copies", "Packets that this node sent again to who asked for them."),
)
"""Where the token moves."""

TOTAL_DROPS: tuple[DropReason, ...] = (
    *DROPS,
    DropReason("other sequencer", "The packet is of, or for, a node that is no sequencer.", everyday=True),
    DropReason("not its sender's", "The request is in the name of another node."),
)
"""Of TOTAL."""

TOTAL_STATISTICS: tuple[Statistic, ...] = (
    *STATISTICS,
    Statistic("unicasts", "Messages that this node sent to the sequencer."),
)
"""Of TOTAL."""
