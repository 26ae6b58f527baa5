"""The half of a driver that sends: what leaves together, by which socket, and to whom; and what it drops.

Here is also what links ask of a driver (`ordercast.runtime.links.Post`): greetings to send, and what a person
should know of peers.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ordercast.core.identity import NodeId
from ordercast.errors import OrdercastError
from ordercast.runtime.links import Links, Peer, spell
from ordercast.runtime.seal import Channel as Purpose
from ordercast.runtime.seal import Seal
from ordercast.runtime.segments import Cutter, Train
from ordercast.runtime.udp import Address
from ordercast.runtime.wires import Wires
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast")

MOST_REASONS = 64
"""Reasons for drops that are counted apart."""
_NODE = struct.Struct(">I")


class Sender:
    """Sends what a machine wants sent, sealed where there is a key."""

    def __init__(
        self,
        node: NodeId,
        wires: Wires,
        seal: Seal | None,
        datagram: int,
        rows: list[Row],
        journal: Journal | None,
    ) -> None:
        self.node = node
        self.wires = wires
        self.ended = False
        self.drops: Counter[str] = Counter()
        self.refusals: list[OrdercastError] = []
        """What others said when they refused this node."""
        self._me = _NODE.pack(node)
        self._seal = seal
        self._cutters = {channel: Cutter(datagram, checked=seal is None) for channel in Purpose}
        self._rows = rows
        self._journal = journal
        self._links: Links
        self._out: list[bytes] = []

    def _flush(self) -> None:
        """Send what was multicast since the last time, all of it together."""
        if trains := self._trains():
            self._multicast(trains, self._links.targets)

    def _trains(self) -> list[Train]:
        """What was multicast since the last time, on its way out."""
        if self._rows:
            self._note_rows()
        packets = self._out
        if not packets or self.ended:
            return []
        self._out = []
        if self._seal is not None:
            seal = self._seal.seal
            packets = [seal(Purpose.DATA, packet) for packet in packets]
        return self._cutters[Purpose.DATA].cut(packets)

    def _multicast(self, trains: Sequence[Train], targets: Iterable[Peer]) -> None:
        send = self.wires.data.send
        if self.wires.group is not None:
            for train in trains:
                send(train, self.wires.group)
        else:
            for peer in targets:
                for train in trains:
                    send(train, peer.data)

    def _unicast(self, to: NodeId, data: bytes) -> None:
        """Send a token behind what was multicast before it. That goes first to the node which gets the token,
        and to the others while the token is on its way already."""
        peer = self._links.peers.get(to)
        trains = self._trains()
        if peer is None:
            self._multicast(trains, self._links.targets)
            self.drop("no address to send to")
            return
        if trains:
            self._multicast(trains, (peer,))
        if self._seal is not None:
            data = self._seal.seal(Purpose.TOKEN, data, _NODE.pack(to))
        for train in self._cutters[Purpose.TOKEN].cut((data,)):
            self.wires.token.send(train, peer.token)
        if trains and self.wires.group is None:
            self._multicast(trains, [target for target in self._links.targets if target is not peer])

    def _note_rows(self) -> None:
        """What others may see of this turn is in the trace before they can see it."""
        if self._rows and self._journal is not None:
            self._journal.append(self._rows)
            self._rows.clear()

    # --- links ----------------------------------------------------------------------------------

    def post(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""
        self.wires.token.send(Train(packet, 0), to)

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again."""
        LOG.info("node %d is at %s", peer.node, spell(peer.token))

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""
        LOG.warning("node %d at %s is silent", peer.node, spell(peer.token))

    def refused(self, reason: OrdercastError) -> None:
        """Others say that this node is not wanted."""
        if str(reason) not in map(str, self.refusals):
            LOG.warning("refused: %s", reason)
        self.refusals.append(reason)
        del self.refusals[:-8]

    def warn(self, sentence: str) -> None:
        """Something a person should know."""
        LOG.warning("%s", sentence)

    def drop(self, reason: str, count: int = 1) -> None:
        """Datagrams were not used."""
        if not count:
            return
        if reason not in self.drops and len(self.drops) >= MOST_REASONS:
            reason = "other reasons"
        self.drops[reason] += count
