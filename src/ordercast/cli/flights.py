"""Packets of a simulated run, for a drawing: where each came from, whether it arrived, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ordercast.core.identity import MessageId, NodeId
from ordercast.core.wire import Malformed
from ordercast.draw.ladder import Flight, Mark
from ordercast.sequencers import packets as orderers
from ordercast.sim.protocol import LabProtocol
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


class Seen(str):
    """A packet's kind, which remembers the packet: rows of a trace hold it where they name the kind."""

    __slots__ = ("data", "quiet")
    data: bytes
    quiet: bool
    """It is of a kind that drawings leave out."""


def watched(protocol: LabProtocol) -> LabProtocol:
    """The same protocol; the traces of its packets remember them."""

    def kind_of(data: bytes) -> str:
        seen = Seen(protocol.product.kind_of(data) or "packet")
        seen.data = data
        seen.quiet = seen in quiet
        return seen

    quiet = {kind.name for kind in protocol.product.kinds.values() if kind.quiet}

    return protocol._replace(kind_of=kind_of)


class Naming:
    """What nodes and messages are called."""

    def __init__(
        self, nodes: Mapping[str, NodeId], messages: Mapping[MessageId, str], status: bool = False
    ) -> None:
        self._nodes = {node: name for name, node in nodes.items()}
        self._messages = messages
        self.status = status
        """Whether messages tell how far their senders have come."""

    def node(self, node: NodeId) -> str:
        """One node."""
        return self._nodes.get(node, str(node))

    def nodes(self, nodes: Iterable[NodeId]) -> str:
        """Several."""
        names = [self.node(node) for node in nodes]
        return ("" if all(len(name) == 1 for name in names) else " ").join(names)

    def message(self, origin: NodeId, incarnation: int, number: int) -> str:
        """A message."""
        return self._messages.get(MessageId(origin, incarnation, number), f"{self.node(origin)}{number}")


def flights(rows: Iterable[Row], names: Naming) -> list[Flight]:
    """All packets of a run of a `watched` protocol, but for the quiet ones."""
    found: list[Flight] = []
    sent: dict[int, tuple[int, NodeId]] = {}
    received: set[tuple[int, NodeId, int]] = set()
    placed: dict[tuple[NodeId, int], str] = {}
    for row in rows:
        node, time_us, event, kind = row[NODE], row[TIME_US], row[EVENT], row[PACKET]
        if not isinstance(kind, Seen) or kind.quiet:
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
            found.append(Flight(since_us, source, node, time_us, say(kind, names, placed)))
        elif time_us == since_us:  # else it came to a node that was down
            found.append(Flight(since_us, source, node, None, say(kind, names, placed)))
    return found


def marks(rows: Iterable[Row], names: Naming) -> list[Mark]:
    """What the nodes were told, and how their lives ended."""
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

# --- what packets say ------------------------------------------------------------------------------


def say(kind: Seen, names: Naming, placed: dict[tuple[NodeId, int], str]) -> str:
    """A packet in a few words, its kind first. `placed` remembers what messages of orderers are called."""
    data = kind.data
    try:
        if kind in _TOTEM_ALONE:
            return _say_totem(kind, totem.decode(data), names)
        head = read_header(data)
        if head.kind < FIRST_ORDER_KIND:
            return str(kind)
        return _say_orderer(kind, orderers.decode(data), head.incarnation, names, placed)
    except Malformed:
        return str(kind)


def _range(texts: list[str]) -> str:
    return texts[0] if len(texts) < 2 else f"{texts[0]}–{texts[-1]}"


def _say_totem(kind: Seen, packet: totem.AnyPacket, names: Naming) -> str:
    match packet:
        case totem.Data():
            numbers = range(packet.number, packet.number + len(packet.chunks))
            texts = [names.message(packet.origin, packet.incarnation, number) for number in numbers]
            return f"data {packet.seq}={_range(texts)}"
        case totem.Token():
            return f"token seq={packet.seq} aru={packet.aru}"
    return str(kind)


def _say_orderer(
    kind: Seen,
    packet: orderers.AnyPacket,
    incarnation: int,
    names: Naming,
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
    return str(kind).removeprefix("total-")
