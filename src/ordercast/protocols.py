"""The protocols that a node may run, by name. A new one is a module of its own and an entry here."""

from __future__ import annotations

from ordercast.core.protocol import Protocol
from ordercast.levels.protocol import TRMP
from ordercast.rings.protocol import RINGS
from ordercast.sequencers.cm import Cm, Irbp, Rbp
from ordercast.sequencers.dtp import Dtp
from ordercast.sequencers.member import OrdererOf
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.sequencers.primary_backup import PrimaryBackup
from ordercast.sequencers.total import Total
from ordercast.totem.protocol import TOTEM
from ordercast.viewsync.protocol import sequenced
from ordercast.viewsync.reformation import Reformation
from ordercast.viewsync.rotation import Rotation

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        TOTEM,
        sequenced(
            OrdererOf(Total),
            ordered="a fixed sequencer: the first member",
            hops="2 in groups of three, 3 in larger ones",
            choose="low latency in small groups, and few senders",
        ),
        sequenced(
            OrdererOf(Cm),
            ordered="the token's holder; each acknowledgement passes the token round",
            hops="2 in groups of three, and 1 for each further member of a majority",
            choose="no member should have more to do than another",
        ),
        sequenced(
            OrdererOf(Rbp),
            procedure=Reformation,
            ordered="as CM",
            hops="as CM",
            choose="as CM; who notices a failure leads the way out of it",
        ),
        sequenced(
            OrdererOf(Irbp),
            i_views=True,
            ordered="as CM",
            hops="as CM",
            choose="as CM, where members are slow now and then and should not be thrown out for it",
        ),
        sequenced(
            OrdererOf(Pinwheel),
            ordered="as CM, and every message tells what its sender has",
            hops="as CM; less if others send",
            choose="many senders, whose messages tell what they have",
        ),
        sequenced(
            OrdererOf(Dtp),
            ordered="the token's holder; the token goes to who is heard from least",
            hops="as CM; less if others send",
            choose="few senders, and safe messages: who is silent has its say first",
        ),
        sequenced(
            OrdererOf(PrimaryBackup),
            procedure=Rotation,
            i_views=True,
            ordered="the primary: the first of the view",
            hops="4, and 3 to the primary itself",
            agreed="when all in the view's list have it, a majority at least",
            safe="as agreed",
            choose="who answers has to be sure of all others; replicated objects that only the primary runs",
        ),
        TRMP,
        RINGS,
    )
}


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise ValueError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
