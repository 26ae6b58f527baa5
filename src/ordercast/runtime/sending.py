"""The half of a driver that sends: what leaves together, by which socket, and to whom; and what it drops.

Here is also what is opened of what peers sent, what becomes of measured paths, and what links ask of a driver
(`ordercast.transport.links.Post`): greetings to send, and what a person should know of peers.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ordercast.core.contract import Distance, Event, Gone
from ordercast.core.identity import NodeId
from ordercast.core.protocol import ROUND_TRIPS_US
from ordercast.core.wire import KIND_BYTE
from ordercast.errors import OrdercastError
from ordercast.runtime.sink import Sink
from ordercast.trace.schema import Row
from ordercast.transport.links import Links
from ordercast.transport.paths import PATH_MAGIC, Measured, Paths, RoundTrip
from ordercast.transport.peers import Peer, spell
from ordercast.transport.seal import OVERHEAD, Port, Refused, Seal
from ordercast.transport.segments import HEADER_SIZE, Cutter, Joiner, Train
from ordercast.transport.sockets import NodeSockets
from ordercast.transport.udp_socket import Address

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
        wires: NodeSockets,
        seal: Seal | None,
        datagram: int,
        rows: list[Row],
        journal: Journal | None,
        round_trip: RoundTrip | None,
        sink: Sink,
    ) -> None:
        self.node = node
        self.wires = wires
        self.ended = False
        self.drops: Counter[str] = Counter()
        self.packets_sent: Counter[bytes] = Counter()
        """Packets of the machine, by the byte that tells their kind (`ordercast.core.wire`)."""
        self.refusals: list[OrdercastError] = []
        """What others said when they refused this node."""
        self._me = _NODE.pack(node)
        self._seal = seal
        self._cutters = {channel: Cutter(datagram, checked=seal is None) for channel in Port}
        self._prober = Cutter(datagram, checked=seal is None)
        self._offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        overhead = HEADER_SIZE + (OVERHEAD if seal is not None else 0)
        self.paths = Paths(datagram, overhead, self.now_us, self._probe, self._on_measured, self.warn)
        self._round_trip = round_trip or RoundTrip()
        self.live = False
        """The machine lives: it was started, and has not halted."""
        self._sink = sink
        self._rows = rows
        self._journal = journal
        self._links: Links
        self._out: list[bytes] = []

    def now_us(self) -> int:
        """Wall-clock microseconds that never go back."""
        return time.monotonic_ns() // 1000 + self._offset_us

    def _flush(self) -> None:
        """Send what was multicast since the last time, all of it together."""
        if trains := self._trains():
            self._multicast(trains, self._links.targets)

    def _queue(self, packet: bytes) -> None:
        """A packet of the machine is going to be multicast with others of this turn."""
        self.packets_sent[packet[KIND_BYTE]] += 1
        self._out.append(packet)

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
            packets = [seal(Port.DATA, packet) for packet in packets]
        return self._cutters[Port.DATA].cut(packets)

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
        self.packets_sent[data[KIND_BYTE]] += 1
        peer = self._links.peers.get(to)
        trains = self._trains()
        if peer is None:
            self._multicast(trains, self._links.targets)
            self.drop("no address to send to")
            return
        if trains:
            self._multicast(trains, (peer,))
        if self._seal is not None:
            data = self._seal.seal(Port.TOKEN, data, _NODE.pack(to))
        for train in self._cutters[Port.TOKEN].cut((data,)):
            self.wires.token.send(train, peer.token)
        if trains and self.wires.group is None:
            self._multicast(trains, [target for target in self._links.targets if target is not peer])

    def _probe(self, peer: Peer, packet: bytes) -> None:
        """Send a question or an answer about the path to a peer."""
        if self._seal is not None:
            packet = self._seal.seal(Port.TOKEN, packet, _NODE.pack(peer.node))
        self.wires.token.send(self._prober.cut((packet,))[0], peer.token)

    def _note_rows(self) -> None:
        """What others may see of this turn is in the trace before they can see it."""
        if self._rows and self._journal is not None:
            self._journal.append(self._rows)
            self._rows.clear()

    # --- paths ----------------------------------------------------------------------------------

    def _on_measured(self, measured: Measured) -> None:
        """Paths are narrower than was thought, or wide again; or peers are far."""
        for channel, cutter in self._cutters.items():
            if cutter.datagram != measured.datagram:
                self._cutters[channel] = cutter.resized(measured.datagram)
        self._tell_distance()

    def _tell_distance(self, anew: bool = False) -> None:
        """Have the machine's timeouts fit the round trip to the peers, if that has changed by much."""
        if not self.live:
            return
        trip_us = self._round_trip.news(self.paths.measured.round_trip_us, anew)
        if trip_us is None:
            return
        chosen = self._round_trip
        if chosen.followed:
            if trip_us:
                LOG.info(
                    "peers are up to %d ms away, there and back: timeouts fit that, and are longer than "
                    'those of profile "%s"',
                    trip_us // 1000,
                    chosen.profile,
                )
            self._event(Distance(3 * trip_us // 2))
        elif trip_us:
            self.warn(
                f"peers are {trip_us // 1000} ms away, there and back, and timeouts are those of profile "
                f'"{chosen.profile}", made for {ROUND_TRIPS_US[chosen.profile] // 1000} ms: {chosen.advice}'
            )

    def _event(self, event: Event) -> None:
        """Hand something to the machine, and carry out what it answers."""
        raise NotImplementedError

    def _opened(
        self, peer: Peer, joiner: Joiner, packets: list[bytes], port: Port, to: bytes | None
    ) -> list[bytes]:
        """Those packets that are authentic, where that can be known; what was joined badly is counted."""
        if joiner.bad or joiner.given_up:
            self.drop("malformed segment", joiner.bad)
            self.drop("incomplete packet", joiner.given_up)
            joiner.bad = joiner.given_up = 0
        if peer.opener is not None:
            sealed, packets = packets, []
            for packet in sealed:
                try:
                    packets.append(peer.opener.open(port, packet, to))
                except Refused as error:
                    self.drop(str(error))
        if packets:
            self._links.heard(peer)
        if port is Port.TOKEN:
            packets = [packet for packet in packets if not self._is_probe(peer, packet)]
        return packets

    def _is_probe(self, peer: Peer, packet: bytes) -> bool:
        """Whether it was a question or an answer about the path, and none of the machine's."""
        if not packet.startswith(PATH_MAGIC):
            return False
        if problem := self.paths.on_packet(peer, packet):
            self.drop(problem)
        return True

    # --- links ----------------------------------------------------------------------------------

    def post(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""
        self.wires.token.send(Train(packet, 0), to)

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again."""
        LOG.info("node %d is at %s", peer.node, spell(peer.token))

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in."""
        self._sink.outlived(life)

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""
        self._tell_of(peer, "is silent")

    def _on_gone(self, peer: Peer) -> None:
        """Its process has ended."""
        self._tell_of(peer, "is gone: nobody listens there any more")
        self._links.part_with(peer)
        self._event(Gone(peer.node))

    def _tell_of(self, peer: Peer, what: str) -> None:
        """Who has left with a word is no cause for concern."""
        level = logging.INFO if peer.leaving else logging.WARNING
        LOG.log(level, "node %d at %s %s", peer.node, spell(peer.token), what)

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
