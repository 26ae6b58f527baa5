"""One visit of the token: what a node does between its arrival and its departure (000 Fig. 3, Fig. 6).

The same on an installed ring and on one that is being recovered; what differs is where new packets come
from: the application's messages (`Outbox`), or an old ring's (`Exchange`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ordercast.core.contract import Effect, Multicast, Originate
from ordercast.core.identity import Batch, Guarantee, NodeId
from ordercast.core.packing import MAX_CHUNKS, SendQueue
from ordercast.totem.config import TotemConfig
from ordercast.totem.limits import Limits
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    CONTINUED,
    CONTINUES,
    DATA_HEADER,
    NOBODY,
    RECOVERED_HEADER,
    SAFE,
    TIMESTAMP_SIZE,
    Data,
    Recovered,
    Token,
    encode_data,
)

FEW = 4
"""A visit with no more than this fraction of the accelerated window sends it before the token: at low load
that makes safe delivery faster, and there is nothing to gain by sending it later."""

HEADERS = DATA_HEADER + RECOVERED_HEADER
"""Bytes of a packet that are not for chunks."""


class Source(Protocol):
    """Where a visit's new packets come from."""

    @property
    def backlog(self) -> int:
        """About how many datagrams wait."""

    def next_packet(self, ring: Ring, seq: int, most: int, effects: list[Effect]) -> Data | Recovered | None:
        """The next packet, as it is broadcast under that number, of no more than ``most`` datagrams if it is
        made only now; None if nothing waits."""


class Outgoing(Source, Protocol):
    """What a node broadcasts on a ring in the ring's normal course."""

    incarnation: int
    closed: bool
    """Somebody brakes: nothing new goes out, however much waits."""

    @property
    def waiting(self) -> bool:
        """Whether there is something that could be broadcast."""

    @property
    def room(self) -> int:
        """Bytes of messages that may be submitted now."""

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Take messages in order, all or none; the number of the first."""

    def fit(self, limits: Limits) -> None:
        """From now on, make packets that all members of a ring can take."""

    def adapt(self, lossy: bool) -> None:
        """Fill packets less while some are being lost, and more again when none are."""

    def rewind(self) -> None:
        """Start the message that is partly broadcast again: the ring of its first fragments ended."""


class Outbox:
    """The application's messages on their way to the ring."""

    def __init__(self, config: TotemConfig, timed: bool = False) -> None:
        """Packets have timestamps on a ring that is `timed`."""
        self.queue = SendQueue(config.send_queue)
        self._chunks = MAX_CHUNKS if config.packing else 1
        self._headers = HEADERS + (TIMESTAMP_SIZE if timed else 0)
        self.fit(config.limits)
        self._space = self._most
        """Bytes of chunks that a packet takes now."""
        self.incarnation = 0
        self.closed = False
        """Somebody brakes: nothing new goes out, however much waits."""

    def fit(self, limits: Limits) -> None:
        """From now on, make packets that all members of a ring can take."""
        self._datagram = limits.datagram_size
        self._most = limits.packet_size - self._headers
        self._least = min(self._most, self._datagram - self._headers)
        self._space = self._most

    def adapt(self, lossy: bool) -> None:
        """Fill packets less while some are being lost: a large one travels as many datagrams, and is lost
        with any of them. Halved at a visit whose token asks for retransmissions, grown again step by step."""
        if lossy:
            self._space = max(self._least, self._space // 2)
        else:
            self._space = min(self._most, self._space + self._least)

    @property
    def waiting(self) -> bool:
        """Whether there is something that could be broadcast."""
        return bool(self.queue.waiting)

    @property
    def room(self) -> int:
        """Bytes of messages that may be submitted now."""
        return self.queue.room

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Take messages in order, all or none; the number of the first."""
        return self.queue.accept(payloads, guarantee)

    def rewind(self) -> None:
        """Start the message that is partly broadcast again: the ring of its first fragments ended."""
        self.queue.rewind()

    @property
    def backlog(self) -> int:
        """About how many datagrams the waiting messages fill (000 §8.1, my_tbl)."""
        if not self.queue.waiting:
            return 0
        datagrams = self.queue.backlog(self._least)
        return datagrams if self._chunks > 1 else max(datagrams, len(self.queue))

    def next_packet(self, ring: Ring, seq: int, most: int, effects: list[Effect]) -> Data | None:
        """Pack what waits into a packet; messages that end in it are originated by it."""
        space = min(self._space, most * self._datagram - self._headers)
        packed = None if self.closed else self.queue.next_packet(space, self._chunks)
        if packed is None:
            return None
        number, guarantee, chunks, ends, continues, continued = packed
        flags = SAFE * (guarantee is Guarantee.SAFE) | CONTINUES * continues | CONTINUED * continued
        me, life = ring.me, self.incarnation
        time = 0 if ring.clock is None else ring.clock.tick()
        if ends:
            effects.append(Originate(Batch(ring.id, seq, 0, me, life, number, guarantee, ends, time)))
        ring.last_own = seq
        return encode_data(ring.id, seq, me, life, number, flags, chunks, time)


class Visit(NamedTuple):
    """What one visit did."""

    resent: int
    """Datagrams that others had asked for."""
    fresh: int
    """New packets."""
    late: list[Effect]
    """What is broadcast after the token has left (accelerated ring)."""
    failed: NodeId | None
    """Who has failed to receive; then the token goes no further."""


def work(
    now_us: int, ring: Ring, token: Token, source: Source, effects: list[Effect], accelerated: bool = True
) -> Visit:
    """Answer requests, broadcast what flow control allows, and bring the token up to date.

    On an ``accelerated`` ring the last packets leave behind the token. At an extra visit of a cycle (000 §8)
    `aru` and the requests stay as they are: see docs/decisions/weighted-visits.md.
    """
    flow, counts = ring.flow, ring.turn.counts
    if counts and ring.is_still(token) and token.brake == NOBODY:
        flow.recount(token)
    resent = 0
    if token.rtr:
        answers = ring.answer(token)
        resent = len(answers)
        effects.extend([Multicast(raw) for raw in answers])
    if ring.clock is not None:
        ring.clock.follow(token.timestamp)
    waiting = source.backlog
    late: list[Effect] = []
    fresh: list[tuple[int, int]] = []  # of each new packet: where in `out` it begins, datagrams before it
    broadcast = 0
    if waiting:
        allowed = flow.new_datagrams(token, resent, waiting)
        out: list[Effect] = []
        for _ in range(flow.new_packets(token)):
            if broadcast >= allowed:
                break
            begins = len(out)
            packet = source.next_packet(ring, token.seq + 1, allowed - broadcast, out)
            if packet is None:
                break
            fresh.append((begins, broadcast))
            token.seq += 1
            ring.window.add(token.seq, packet)
            broadcast += ring.datagrams(packet.raw)
            if not ring.alone:
                out.append(Multicast(packet.raw))
        most_late = flow.accelerated if accelerated else 0
        if broadcast * FEW > most_late > 0:
            cut = next((begins for begins, before in fresh if broadcast - before <= most_late), len(out))
            late = out[cut:]
            del out[cut:]
        effects += out
        if ring.clock is not None and broadcast:
            token.timestamp = ring.clock.now
    failed = None
    if counts:
        ring.update_aru(token)
        failed = ring.holder_up(now_us, token)
        if failed is None and ring.window.aru < token.seq:
            ring.request(token)
    if failed is None:
        flow.settle(token, broadcast + resent, waiting, broadcast)
    return Visit(resent, len(fresh), late, failed)
