"""Packets of a simulated run, for `ordercast.draw.ladder`: who sent each, whether it arrived, what is in it.

`keeping` has to name the packets of the run: then rows of its trace hold the packets beside their kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ordercast.core.identity import MessageId, NodeId
from ordercast.core.protocol import Protocol
from ordercast.core.wire import Malformed
from ordercast.draw.ladder import Flight, Mark
from ordercast.sequencers import packets as orderers
from ordercast.totem import packets as totem
from ordercast.trace.columns import (
    CONFIG_KIND,
    EVENT,
    MEMBERS,
    NODE,
    NUMBER,
    ORIGIN,
    ORIGIN_INCARNATION,
    PACKET,
    TIME_US,
)
from ordercast.trace.schema import Row
from ordercast.viewsync.declared import KINDS
from ordercast.viewsync.header import FIRST_ORDER_KIND, read_header


class KeptPacket(str):
    """The name of a packet's kind, with the packet itself: what rows of a trace hold in column ``packet``."""

    __slots__ = ("data", "quiet")
    data: bytes
    quiet: bool
    """Whether the packet is of a kind that drawings leave out."""


def keeping(protocol: Protocol) -> Callable[[bytes], KeptPacket]:
    """A function that names the kind of a packet, as `Protocol.kind_of` does, and keeps the packet too."""
    quiet = {kind.name for kind in protocol.kinds.values() if kind.quiet}

    def kind_of(data: bytes) -> KeptPacket:
        kept = KeptPacket(protocol.kind_of(data) or "packet")
        kept.data = data
        kept.quiet = kept in quiet
        return kept

    return kind_of


class Names:
    """The names of nodes and messages in a drawing."""

    def __init__(
        self, nodes: Mapping[str, NodeId], messages: Mapping[MessageId, str], status: bool = False
    ) -> None:
        self._nodes = {node: name for name, node in nodes.items()}
        self._messages = messages
        self.status = status
        """Whether `hgsn`, up to which place a message's sender has everything, is shown with the message."""

    def node(self, node: NodeId) -> str:
        """The name of a node; its number if it has none."""
        return self._nodes.get(node, str(node))

    def nodes(self, nodes: Iterable[NodeId]) -> str:
        """The names of several nodes, in one word if each is a letter."""
        names = [self.node(node) for node in nodes]
        return ("" if all(len(name) == 1 for name in names) else " ").join(names)

    def message(self, origin: NodeId, incarnation: int, number: int) -> str:
        """The name of a message; if it has none, its sender's name and its number."""
        return self._messages.get(MessageId(origin, incarnation, number), f"{self.node(origin)}{number}")


def flights(rows: Iterable[Row], names: Names) -> list[Flight]:
    """All packets of a run whose kinds were named by `keeping`, but for the quiet ones."""
    found: list[Flight] = []
    sent: dict[int, tuple[int, NodeId]] = {}
    received: set[tuple[int, NodeId, int]] = set()
    placed: dict[tuple[NodeId, int], str] = {}
    for row in rows:
        node, time_us, event, kind = row[NODE], row[TIME_US], row[EVENT], row[PACKET]
        if not isinstance(kind, KeptPacket) or kind.quiet:
            continue
        if event == "packet_sent":
            sent[id(kind.data)] = (time_us, node)
            continue
        if event == "packet_received":
            received.add((id(kind.data), node, time_us))
        elif (id(kind.data), node, time_us) in received:
            continue  # the machine had no use for it; it arrived all the same
        since_us, source = sent[id(kind.data)]
        if event == "packet_received":
            found.append(Flight(since_us, source, node, time_us, text_of(kind, names, placed)))
        elif time_us == since_us:  # else it came to a node that was down
            found.append(Flight(since_us, source, node, None, text_of(kind, names, placed)))
    return found


def marks(rows: Iterable[Row], names: Names) -> list[Mark]:
    """Deliveries, installed configurations, crashes, halts and restarts of a run."""
    found = []
    for row in rows:
        node, time_us, event = row[NODE], row[TIME_US], row[EVENT]
        if event == "deliver":
            assert row[ORIGIN] is not None
            assert row[ORIGIN_INCARNATION] is not None
            assert row[NUMBER] is not None
            found.append(
                Mark(time_us, node, event, names.message(row[ORIGIN], row[ORIGIN_INCARNATION], row[NUMBER]))
            )
        elif event == "install":
            text = names.nodes(row[MEMBERS] or ())
            found.append(
                Mark(time_us, node, event, f"({text})" if row[CONFIG_KIND] == "transitional" else text)
            )
        elif event in ("crash", "halt", "restart"):
            found.append(Mark(time_us, node, event, event))
    return found


_TOTEM_ALONE = {kind.name for kind in totem.KINDS.values()} - {kind.name for kind in KINDS.values()}

# --- packets as text -------------------------------------------------------------------------------


def text_of(kind: KeptPacket, names: Names, placed: dict[tuple[NodeId, int], str]) -> str:
    """A packet in a few words, its kind first. `placed` keeps the texts of the orderers' messages, by key."""
    data = kind.data
    try:
        if kind in _TOTEM_ALONE:
            return _totem_text(kind, totem.decode(data), names)
        head = read_header(data)
        if head.kind < FIRST_ORDER_KIND:
            return str(kind)
        return _orderer_text(kind, orderers.decode(data), head.incarnation, names, placed)
    except Malformed:
        return str(kind)


def _range(texts: list[str]) -> str:
    return texts[0] if len(texts) < 2 else f"{texts[0]}–{texts[-1]}"


def _totem_text(kind: KeptPacket, packet: totem.AnyPacket, names: Names) -> str:
    match packet:
        case totem.Data():
            numbers = range(packet.number, packet.number + len(packet.chunks))
            texts = [names.message(packet.origin, packet.incarnation, number) for number in numbers]
            return f"data {packet.seq}={_range(texts)}"
        case totem.Token():
            return f"token seq={packet.seq} aru={packet.aru}"
    return str(kind)


def _orderer_text(
    kind: KeptPacket,
    packet: orderers.AnyPacket,
    incarnation: int,
    names: Names,
    placed: dict[tuple[NodeId, int], str],
) -> str:
    def called(node: NodeId, lsn: int) -> str:
        return "⊥" if node == orderers.NOBODY else placed.get((node, lsn), f"{names.node(node)}{lsn}")

    def carried(msg: orderers.Msg) -> str:
        texts = [names.message(msg.origin, incarnation, msg.number + at) for at in range(len(msg.chunks))]
        placed[msg.key] = _range(texts)
        return placed[msg.key]

    match packet:
        case orderers.Msg():
            return f"msg {carried(packet)}" + (f" h={packet.hgsn}" if names.status else "")
        case orderers.Ack():
            texts = [f"{place}={called(*key)}" for place, key in enumerate(packet.keys, packet.first)]
            return f"ack {' '.join(texts) or '–'} → {names.node(packet.next)}"
        case orderers.Req():
            wanted = [called(*key) for key in packet.keys] + [str(place) for place in packet.places]
            return f"req {' '.join(wanted)}?"
        case orderers.Copy():
            return "copy " + " ".join(
                f"{place}={called(each.node, each.lsn)}" for place, each in packet.places
            )
        case orderers.Request():
            return f"request {carried(packet.msg)}"
        case orderers.Bcast():
            return f"bcast {packet.seq}={carried(packet.msg)}"
        case orderers.CumSeqAck():
            return f"cum-seq-ack {packet.seq}"
        case orderers.Update():
            return f"update {packet.place}={carried(packet.msg)}"
        case orderers.Acked():
            return f"ack {packet.place}"
        case orderers.Answered():
            return f"answered {packet.stable}"
    return str(kind).removeprefix("total-").removeprefix("pb-")
