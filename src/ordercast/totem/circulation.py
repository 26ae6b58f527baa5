"""One visit of the token: what a node does between its arrival and its departure (000 Fig. 3, Fig. 6).

The same on an installed ring and on one that is being recovered; what differs is where new packets come
from: the application's messages (`Outbox`), or an old ring's (`Exchange`).
"""

from __future__ import annotations

from typing import Protocol

from ordercast.core.contract import Effect, Multicast, Originate
from ordercast.core.identity import Batch, Guarantee, NodeId
from ordercast.core.packing import SendQueue
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import CONTINUED, CONTINUES, SAFE, Data, Recovered, Token, encode_data


class Source(Protocol):
    """Where a visit's new packets come from."""

    @property
    def backlog(self) -> int:
        """About how many packets wait."""

    def next_packet(self, ring: Ring, seq: int, effects: list[Effect]) -> Data | Recovered | None:
        """The next packet, as it is broadcast under that number; None if nothing waits."""

    def update(self, token: Token) -> None:
        """Have a last word on the token before it leaves."""


class Outbox:
    """The application's messages on their way to the ring."""

    def __init__(self, config: TotemConfig) -> None:
        self.queue = SendQueue(config.send_queue)
        self._space = config.chunk_space
        self.incarnation = 0

    @property
    def backlog(self) -> int:
        """About how many packets the waiting messages fill (000 §8.1, my_tbl)."""
        return self.queue.backlog(self._space)

    def next_packet(self, ring: Ring, seq: int, effects: list[Effect]) -> Data | None:
        """Pack what waits into a packet; messages that end in it are originated by it."""
        packed = self.queue.next_packet(self._space)
        if packed is None:
            return None
        number, guarantee, chunks, ends, continues, continued = packed
        flags = SAFE * (guarantee is Guarantee.SAFE) | CONTINUES * continues | CONTINUED * continued
        me, life = ring.me, self.incarnation
        if ends:
            effects.append(Originate(Batch(ring.id, seq, 0, me, life, number, guarantee, ends)))
        ring.last_own = seq
        return encode_data(ring.id, seq, me, life, number, flags, chunks)

    def update(self, token: Token) -> None:
        """Nothing: the flow control fields say it all."""


class Visit:
    """What one visit did."""

    __slots__ = ("arrived_seq", "failed", "fresh", "late", "resent")

    def __init__(self, token: Token) -> None:
        self.arrived_seq = token.seq
        self.resent = 0
        """Packets that others had asked for."""
        self.fresh = 0
        """New packets."""
        self.late: list[Effect] = []
        """What is broadcast after the token has left (accelerated ring)."""
        self.failed: NodeId | None = None
        """Who has failed to receive; then the token goes no further."""


def work(
    ring: Ring, token: Token, source: Source, accelerated: int, patience: int, effects: list[Effect]
) -> Visit:
    """Answer requests, broadcast what flow control allows, and bring the token up to date.

    The last ``accelerated`` packets leave behind the token. Who has failed to receive for more than
    ``patience`` visits is reported.
    """
    visit = Visit(token)
    resent = ring.answer(token)
    visit.resent = len(resent)
    effects.extend([Multicast(raw) for raw in resent])
    waiting = source.backlog
    allowed = ring.flow.new_packets(token, visit.resent, waiting)
    for left in range(allowed, 0, -1):
        out = visit.late if left <= accelerated else effects
        packet = source.next_packet(ring, token.seq + 1, out)
        if packet is None:
            break
        token.seq += 1
        visit.fresh += 1
        ring.window.add(token.seq, packet)
        if not ring.alone:
            out.append(Multicast(packet.raw))
    ring.update_aru(token)
    visit.failed = ring.holder_up(token, patience)
    if visit.failed is None:
        ring.request(token)
        ring.flow.settle(token, visit.fresh + visit.resent, waiting)
        source.update(token)
    return visit
