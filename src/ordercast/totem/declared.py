"""What Totem declares for people: why its machine drops packets, and what it counts."""

from __future__ import annotations

from ordercast.core.declared import DropReason, Sort, Statistic

DROPS = (
    DropReason("halted", "The machine has ended its life.", everyday=True),
    DropReason(
        "own packet", "Another member sent a packet of this node again, for who missed it.", everyday=True
    ),
    DropReason("duplicate", "The packet was received before.", everyday=True),
    DropReason("other ring", "The packet is of a ring that this node is not on.", everyday=True),
    DropReason("foreign ring", "Data of another ring, which may be one to merge with.", everyday=True),
    DropReason(
        "old ring, already exchanged",
        "Data of the old ring, whose messages the members have exchanged.",
        everyday=True,
    ),
    DropReason("redundant token", "The token was received before: it had been sent again.", everyday=True),
    DropReason("token of another ring", "The token is of a ring that this node is not on.", everyday=True),
    DropReason(
        "token of a ring given up", "The token is of a ring that this node takes for lost.", everyday=True
    ),
    DropReason("implausible token", "The token asks for, or numbers, packets that there cannot be."),
    DropReason("bad part", "A part does not fit the packet whose part it claims to be."),
    DropReason("outdated join", "The sender has sent a later Join.", everyday=True),
    DropReason("join of a stranger", "The Join comes from a node that is not let in now.", everyday=True),
    DropReason(
        "join of a failed node", "The Join comes from a node that counts as failed here.", everyday=True
    ),
    DropReason("commit token for another", "The Commit token is not for this node.", everyday=True),
    DropReason(
        "commit token not agreed to",
        "The Commit token is of a membership that this node has not agreed to.",
        everyday=True,
    ),
    DropReason(
        "commit token of another ring", "The Commit token is of another ring that forms.", everyday=True
    ),
    DropReason("redundant commit token", "The Commit token was received before.", everyday=True),
    DropReason("ring number out of reach", "The ring's number is further ahead than is followed at once."),
    DropReason("outdated announce", "The announcement is of a ring that its sender has left.", everyday=True),
    DropReason("announce of a member", "The announcement comes from a member of this ring.", everyday=True),
)

STATISTICS = (
    Statistic("rotations", "Rotations of the token that this node has measured."),
    Statistic("rotation_us_total", "Time that those rotations took, in all."),
    Statistic("rotation_us_max", "The longest rotation of the token.", Sort.LARGEST),
    Statistic("packets", "Packets with messages that this node broadcast for the first time."),
    Statistic("retransmissions", "Packets that this node sent again because a member missed them."),
    Statistic("token_retransmissions", "Tokens that this node sent again."),
    Statistic("tokens_held", "Visits after which this node held the token of an idle ring."),
    Statistic(
        "schedules", "Times that this node, as representative, changed whom the token visits how often."
    ),
    Statistic("rings", "Rings that this node has been on."),
    Statistic("attempts_failed", "Attempts to form a ring that failed."),
)
