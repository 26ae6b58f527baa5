"""Why a node does not use datagrams that arrive, before its machine sees them or though it does not."""

from __future__ import annotations

from ordercast.core.declared import DropReason
from ordercast.transport.seal import NOT_AUTHENTIC, REPLAYED, TOO_SHORT, UNKNOWN_KEY

KERNEL_REFUSED = "kernel refused to send"
MALFORMED_MESSAGE, MALFORMED_NOTE = "malformed message", "malformed note"

_SEALED = (
    DropReason(TOO_SHORT, "A sealed packet is shorter than its seal."),
    DropReason(UNKNOWN_KEY, "A packet is sealed with a key that this node does not have."),
    DropReason(NOT_AUTHENTIC, "A packet was not sealed by a member of the group."),
    DropReason(REPLAYED, "A sealed packet was received before."),
)
DROPS = (
    DropReason(
        "not started yet",
        "A packet came before the machine's first event, or between two lives.",
        everyday=True,
    ),
    DropReason("machine failed", "The machine raised an error: a defect in ordercast."),
    DropReason("lost on the way", "The network in memory was told to lose packets."),
    DropReason("no room", "More bytes were on their way to a node in memory than it has room for."),
    DropReason("cut off", "The network in memory was cut while packets were on their way."),
    DropReason("no address to send to", "The machine sends to a node whose address is not known."),
    DropReason("unknown sender", "A datagram came from an address that no linked node has."),
    DropReason("empty", "A datagram had no bytes."),
    DropReason("malformed segment", "A datagram is not one that a node sends."),
    DropReason("incomplete packet", "Parts of a packet were lost on the way."),
    DropReason(
        "malformed path probe", "A question about a path, or its answer, is not one that a node sends."
    ),
    DropReason("path probe that nobody asked for", "An answer about a path came twice, or late."),
    DropReason(
        "data of unknown senders, or no room", "The kernel did not hand over datagrams at the data port."
    ),
    DropReason("token port: no room", "The kernel had no room for datagrams at the token port."),
    DropReason("greeting: no room", "The kernel had no room for greetings of strangers."),
    DropReason(KERNEL_REFUSED, "The kernel did not send datagrams of this node."),
    DropReason(MALFORMED_MESSAGE, "A message names no group: what sent it was no node of ordercast."),
    DropReason(MALFORMED_NOTE, "What a member told the others in the order cannot be read."),
    DropReason("other reasons", "More reasons than are counted apart."),
    *_SEALED,
    DropReason("greeting: malformed", "A greeting is not one that a node sends."),
    DropReason("greeting: not on the list of peers", "A node greets that `peers` does not list."),
    DropReason("greeting: too many", "More greetings came than are answered in a second."),
    DropReason("greeting: challenge that nobody asked for", "An answer to no greeting of this node."),
    DropReason("greeting: replayed", "A greeting was received before."),
    DropReason("greeting: id in use", "A node greets with the identifier of another that lives."),
    DropReason("greeting: own id", "A node greets with this node's identifier."),
    DropReason("greeting: earlier life", "A greeting is of a life that has ended.", everyday=True),
    DropReason("greeting: life out of reach", "A greeting names a life further ahead than is believed."),
    DropReason("greeting: too many nodes", "More nodes greet than links are kept for."),
    DropReason("greeting: another protocol", "A node greets that runs another protocol."),
    *(DropReason(f"greeting: {each.reason}", each.help) for each in _SEALED if each.reason != REPLAYED),
)
