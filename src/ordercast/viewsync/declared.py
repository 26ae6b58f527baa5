"""What the membership of the sequencer family declares: kinds of packets, reasons for drops, statistics."""

from __future__ import annotations

from ordercast.core.declared import DropReason, PacketKind, Purpose, Statistic
from ordercast.viewsync.packets import (
    ABORT,
    ACCEPTED,
    ANSWER,
    COLLECT,
    DECIDE,
    ENDED,
    ESTIMATE,
    EXCLUDED,
    FETCH,
    HEARTBEAT,
    ITEM,
    JOIN,
    KNOCK,
    PROPOSE,
    REFUSE,
    SUMMARY,
)
from ordercast.viewsync.parts import PART

KINDS = {
    kind: PacketKind(name, Purpose.MEMBERSHIP, help_, quiet=kind == HEARTBEAT)
    for kind, name, help_ in (
        (HEARTBEAT, "heartbeat", "That its sender lives, and how far it has come."),
        (JOIN, "join", "That its sender wants to be let in."),
        (SUMMARY, "summary", "What its sender has of the view that ends."),
        (FETCH, "fetch", "Which packets its sender lacks of the view that ends."),
        (ITEM, "item", "A packet of the view that ends."),
        (COLLECT, "collect", "That a coordinator begins a round, and asks for estimates."),
        (ESTIMATE, "estimate", "What its sender accepted last; it takes part in no earlier round."),
        (PROPOSE, "propose", "What the coordinator of a round proposes."),
        (ACCEPTED, "accepted", "That its sender has adopted the round's proposal."),
        (DECIDE, "decide", "The next view, on which the members have agreed."),
        (EXCLUDED, "excluded", "That a life of its receiver is not in the view any more."),
        (REFUSE, "refuse", "A vote against a Reformation: its sender belongs to another list."),
        (ABORT, "abort", "That a Reformation is given up."),
        (ENDED, "ended", "That its sender was told that a member's process has ended."),
        (KNOCK, "knock", "Whether its receiver is in an older group than its sender."),
        (ANSWER, "answer", "That its sender is in a view of an older group."),
    )
}
KINDS[PART] = PacketKind("part", Purpose.ORDER, "A part of a packet that is sent again.")

DROPS = (
    DropReason("halted", "The machine has ended its life.", everyday=True),
    DropReason("other view", "The packet is of a view that this node is not in.", everyday=True),
    DropReason("view is changing", "The order is frozen while members agree on a view.", everyday=True),
    DropReason("mine, of an earlier life", "The packet is for an earlier life of this node.", everyday=True),
    DropReason("earlier life", "The sender has begun another life since.", everyday=True),
    DropReason("a token list that there never is", "The packet names a token list of no view."),
    DropReason(
        "a view that does not begin with its first token list", "No change of view ends in such a view."
    ),
    DropReason("items of another view", "Packets were fetched for a change of another view.", everyday=True),
    DropReason("round out of reach", "The round is further ahead than is followed at once."),
    DropReason("number out of reach", "The view's number is further ahead than is followed at once."),
    DropReason(
        "no group is being founded here",
        "The vote is about a group that this node does not begin.",
        everyday=True,
    ),
    DropReason(
        "does not follow this view",
        "The vote is about a view behind another one than this node's.",
        everyday=True,
    ),
    DropReason("of another group", "The packet is of a group that this node is not in.", everyday=True),
    DropReason("not in an older group", "The sender's group is younger than this node's.", everyday=True),
    DropReason(
        "has a vote in an older group",
        "This node's earlier life is awaited in an older group.",
        everyday=True,
    ),
    DropReason("nobody asked", "The answer is to a question that this node did not ask.", everyday=True),
    DropReason("not for me", "The packet is for another node.", everyday=True),
    DropReason("too many want to join", "More nodes want to join than a view may have members."),
    DropReason("not the reformation server", "Who sent the list may not announce the first one of a view."),
    DropReason("old round", "The round of the vote is over.", everyday=True),
    DropReason("no Reformation", "The packet is one of Reformation, which this protocol does not use."),
)

STATISTICS = (
    Statistic("views", "Views that this node has been in."),
    Statistic("i_views", "Changes of the token list alone (004 §4.4.3)."),
    Statistic("rounds", "Rounds of votes on the next view that this node took part in."),
    Statistic("fetched", "Packets that this node fetched from others at changes of view."),
)
