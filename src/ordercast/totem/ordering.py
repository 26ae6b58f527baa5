"""One ring's total order (000 §5): what was received on it, what its token says, what may be delivered.

A `Ring` lives from the Commit token that proposes it until the next ring is installed. While a new ring
is being recovered a node has two of them: the old one, frozen, and the new one, which carries the old
one's messages across.
"""

from __future__ import annotations

from collections import deque

from ordercast.core.contract import Deliver, Effect, Stable
from ordercast.core.identity import Batch, ConfigurationId, Guarantee, NodeId
from ordercast.core.lamport import LamportClock
from ordercast.core.packing import Reassembly
from ordercast.core.window import ReceiveWindow
from ordercast.core.wire import MAX_PACKET, within_reach
from ordercast.totem.config import TotemConfig
from ordercast.totem.flow import FlowControl
from ordercast.totem.limits import Limits
from ordercast.totem.packets import (
    ALL_PARTS,
    CONTINUED,
    CONTINUES,
    FRAGMENTS,
    MOST_PARTS,
    NOBODY,
    PART_HEADER,
    SAFE,
    Data,
    Part,
    Recovered,
    Token,
)
from ordercast.totem.visits import PLAIN, Cycle, Rates, Turn, is_schedule

SOLE_PACKETS = 4
"""Who sent the last so many packets of a ring is its only sender."""
LEAST_PART = -(-MAX_PACKET // MOST_PARTS)
"""Bytes of a part at least: so that any packet has no more parts than can be asked for."""


class Ring:
    """A ring, as one of its members sees it."""

    def __init__(
        self,
        ring: ConfigurationId,
        members: tuple[NodeId, ...],
        me: NodeId,
        config: TotemConfig,
        limits: Limits | None = None,
        clock: LamportClock | None = None,
    ) -> None:
        """`limits` are the smallest that any member has; without others, this node's own.

        With a `clock`, new packets get a Lamport timestamp.
        """
        self.clock = clock
        self.id = ring
        self.members = members
        """In token order: ascending, the representative first."""
        self.me = me
        self.representative = members[0]
        self.represented_by_me = me == members[0]
        self.place = members.index(me)
        self.cycle = Cycle(PLAIN, members, self.place)
        """What the token was on when it came last: a rotation, or a cycle with further visits (000 §8)."""
        self.turn = self._plain = self.cycle.plain_turn
        """The last visit of `cycle` to this node."""
        self._read = self.cycle
        """The schedule that was read from a token last."""
        self._visit = 0
        """The number of the token's visit that followed this node's last one."""
        self.rates: Rates | None = None
        """Counts what is delivered of each member, where that is of interest."""
        self.alone = len(members) == 1
        self.window: ReceiveWindow[Data | Recovered] = ReceiveWindow(2 * config.max_outstanding)
        self.limits = limits or config.limits
        self.flow = FlowControl(config, len(members), self.limits)
        self.token_seq = 0
        """The token_seq with which the token was forwarded last (my_token_seq)."""
        self.delivered = 0
        """Everything up to here went to the application, or has nothing for it (high_delivered)."""
        self.last_message = 0
        """The packet in which the last message ended that went to the application."""
        self.safe = 0
        """Everything up to here was received by all: `aru` reached it on two successive rotations."""
        self.final = 0 if self.alone else -1
        """Everything up to here was delivered by all, in this configuration; -1 while it is not known that
        all have installed it."""
        self._was_here = False
        """The token was forwarded here before."""
        self.forwarded_seq = 0
        """What the token said when it was forwarded last."""
        self.forwarded_aru = 0
        self.counted_seq = 0
        """What it said when it was forwarded a rotation ago: extra visits in between do not count."""
        self.arrived_seq = 0
        """What the token's `seq` was when it arrived a rotation ago."""
        self._foreign_seq = 0
        """The last number at which the token arrived with packets of others that were new."""
        self.aru_count = 0
        """Visits for which `aru` has not moved although something is missing (my_aru_count)."""
        self._stuck_us = 0
        """Since when `aru` has not moved."""
        self.last_own = 0
        """The last sequence number this node gave a packet of its own."""
        self._reassembly = Reassembly(config.max_message_size)
        self._unstable: deque[Batch] = deque()
        self._max_requests = config.max_requests
        self._fail_to_receive = config.fail_to_receive
        self._token_loss_us = config.token_loss_us
        self._datagram = self.limits.datagram_size
        self._part_size = max(LEAST_PART, self._datagram - PART_HEADER)
        self._partial: dict[int, dict[int, bytes]] = {}
        """Parts that are here of packets that are not, by number and place."""
        self._eager = config.eager_requests and config.accelerated_window == 0

    # --- the token (000 §5.2, Fig. 3) -----------------------------------------------------------

    def accepts(self, token: Token) -> bool:
        """Whether this is the token's next visit, not a redundant copy."""
        return token.token_seq > self.token_seq

    def turn_of(self, token: Token) -> Turn | None:
        """Which of this node's visits the token is on; None if it says what cannot be.

        On the schedule that the token was on before, it has come as far as it was forwarded since.
        """
        visits = token.visits
        if not visits:
            return self._plain
        if visits != self._read.visits:
            if not is_schedule(visits, len(self.members)):
                return None
            self._read = Cycle(visits, self.members, self.place)
        came, hops = token.visit - self._visit, token.token_seq - self.token_seq
        if visits == self.cycle.visits and (came - hops) % len(visits):
            return None
        return self._read.turns.get(token.visit)

    def arrive(self, token: Token, turn: Turn) -> None:
        """The token is here, on that visit."""
        self.token_seq = token.token_seq
        self.turn = turn
        visits = token.visits
        if visits != self.cycle.visits:
            self.cycle = self._read if visits else Cycle(PLAIN, self.members, self.place)
            self.flow.begin_cycle(len(self.cycle.turns))
        if visits:
            self._visit = token.visit
            self.flow.begin_visit(turn.number)

    def datagrams(self, raw: bytes) -> int:
        """How many datagrams carry a packet."""
        return -(-len(raw) // self._datagram)

    def believes(self, token: Token) -> bool:
        """Whether a token says what this ring's can say: no number fell, and nothing was broadcast beyond
        what members may have outstanding.

        What a token says is counted on from then on. One that was forged, or is damaged, must not lead to
        numbers that no later packet can carry, nor to work without end.
        """
        members = self.members
        return (
            not self.alone  # a ring of one keeps its token
            and within_reach(token.token_seq, self.token_seq)
            and self.forwarded_seq <= token.seq <= self.window.aru + 2 * self.window.span
            and (token.aru_id == NOBODY or token.aru_id in members)
        )

    def is_still(self, token: Token) -> bool:
        """Whether nothing was broadcast since the token was here last, and everybody has everything."""
        unmoved = token.seq == self.counted_seq == token.aru
        return self._was_here and unmoved and not token.rtr

    def admits(self, packet: Data) -> bool:
        """Whether a packet of this ring can have been sent as it says. This node's own are all here."""
        return packet.origin in self.members and packet.origin != self.me

    def answer(self, token: Token) -> list[bytes]:
        """What others asked for and this node has, a datagram each; it is taken off the token (000 §5.2).

        Of a packet that is larger than a datagram, only the parts that somebody lacks.
        """
        found: list[bytes] = []
        unanswered: list[int] = []
        parts: dict[int, int] = {}
        left = self.flow.retransmissions(token)
        for seq in token.rtr:
            packet = self.window.get(seq) if left else None
            wanted = token.parts.get(seq, ALL_PARTS)
            if packet is not None and len(packet.raw) <= self._datagram:
                found.append(packet.raw)
                left -= 1
                continue
            if packet is not None:
                sent, wanted = self._cut(seq, packet.raw, wanted, left)
                found += sent
                left -= len(sent)
            if wanted:
                unanswered.append(seq)
                if wanted != ALL_PARTS:
                    parts[seq] = wanted
        token.rtr = unanswered
        token.parts = parts
        return found

    def _cut(self, seq: int, raw: bytes, wanted: int, most: int) -> tuple[list[bytes], int]:
        """Wanted parts of a packet, at most so many; and which of them are wanted still."""
        size = self._part_size
        count = -(-len(raw) // size)
        wanted &= (1 << count) - 1
        sent: list[bytes] = []
        for index in range(count):
            if wanted >> index & 1 and len(sent) < most:
                piece = raw[index * size : (index + 1) * size]
                sent.append(Part(*self.id, seq, len(raw), size, index, piece).encode())
                wanted &= ~(1 << index)
        return sent, wanted

    def join(self, part: Part) -> bytes | None:
        """Keep a part of a packet that is not here; the packet, if it was the last one missing.

        Kept are parts of as many packets as this node may ask for at a time; the highest go first.
        """
        seq, partial = part.seq, self._partial
        fits = part.part_size == self._part_size and self.window.aru < seq
        if not fits or seq in self.window or seq > self.window.aru + self.window.span:
            return None
        kept = partial.setdefault(seq, {})
        kept[part.place] = part.data
        if len(kept) == part.parts:
            del partial[seq]
            return b"".join([kept.get(place, b"") for place in range(part.parts)])
        if len(partial) > self._max_requests:
            del partial[max(partial)]
        return None

    def update_aru(self, token: Token) -> None:
        """Lower the token's `aru` to what this node has, or raise it if this node had lowered it."""
        mine = min(self.window.aru, token.seq)
        aru_id = token.aru_id
        if mine < token.aru or aru_id == NOBODY or aru_id == self.me:
            token.aru = mine
            token.aru_id = NOBODY if mine == token.seq else self.me

    def request(self, token: Token) -> None:
        """Add what is missing here to the token's rtr, in order, within bounds.

        Asked for at once is only what the *previous* visit's token already knew of: what is newer may
        still be on its way (accelerated ring).
        """
        upto = token.seq if self._eager else self.arrived_seq
        if self.window.aru < upto:
            wanted = self.window.missing(upto, self._max_requests)
            asked = set(token.rtr)
            token.rtr = sorted(asked.union(wanted))[: self._max_requests]
            if self._partial or token.parts:
                self._request_parts(token, asked)

    def _request_parts(self, token: Token, asked: set[int]) -> None:
        """Say which parts are missing of packets that others have asked for, or this node alone."""
        upto, missing = self.window.aru, {}
        self._partial = {seq: kept for seq, kept in self._partial.items() if seq > upto}
        for seq in token.rtr:
            if seq in self.window or seq <= upto:
                mine = 0
            else:
                mine = ALL_PARTS & ~sum(1 << index for index in self._partial.get(seq, ()))
            both = mine | (token.parts.get(seq, ALL_PARTS) if seq in asked else 0)
            if both != ALL_PARTS:
                missing[seq] = both
        token.parts = missing

    def holder_up(self, now_us: int, token: Token) -> NodeId | None:
        """The *other* node that has failed to receive for too many visits and too long, if one has.

        000 Fig. 3 tests for ``aru_id = my_id``; the text (§6.2.2) has the others exclude the processor
        that set `aru`, which is what terminates. We follow the text. On a quick ring many visits are a
        moment, in which packets can be lost without anything being wrong with who lost them.
        """
        if token.aru_id == NOBODY or token.aru != self.forwarded_aru:
            self.aru_count = 0
            return None
        if not self.aru_count:
            self._stuck_us = now_us
        self.aru_count += 1
        if self.aru_count <= self._fail_to_receive or now_us - self._stuck_us < self._token_loss_us:
            return None
        return token.aru_id if token.aru_id != self.me else None

    def forward(self, token: Token, arrived_seq: int) -> None:
        """Account for the token as it leaves, and learn what has become safe (000 §5.2)."""
        token.token_seq += 1
        self.token_seq = token.token_seq
        if token.visits:
            self._visit = token.visit = (token.visit + 1) % len(token.visits)
        if arrived_seq != self.forwarded_seq:
            self._foreign_seq = arrived_seq
        self.forwarded_seq = token.seq
        if not self.turn.counts:
            return
        self._was_here = True
        aru, before = token.aru, self.forwarded_aru
        both = aru if aru < before else before
        # Since the last visit the token was at every other member and told it the same; see ordered-log.md.
        self.final = self.safe
        if both > self.safe:
            self.safe = both
            if self.alone:
                self.final = both
        self.forwarded_aru = aru
        self.counted_seq = token.seq
        self.arrived_seq = arrived_seq

    @property
    def successor(self) -> NodeId:
        """Who has the token after this visit."""
        return self.turn.successor

    @property
    def sole_sender(self) -> bool:
        """Whether this node sent the last packets of the ring, and nobody else did."""
        return self.forwarded_seq - self._foreign_seq >= SOLE_PACKETS

    def quiet(self, token: Token) -> bool:
        """Nothing was broadcast in the last rotation, and everything before is safe everywhere.

        What waits does not count while somebody brakes: it could not be sent.
        """
        return (
            token.seq == self.counted_seq
            and token.aru == token.seq
            and self.safe == token.seq
            and not token.rtr
            and (token.backlog == 0 or token.brake != NOBODY)
        )

    # --- delivery -------------------------------------------------------------------------------

    def deliver(self, effects: list[Effect]) -> None:
        """Deliver what satisfies its criterion: agreed when it is next, safe when also all have it."""
        seq = self.delivered
        last = self.window.aru
        if seq == last:
            return
        safe = self.safe
        packets = self.window.packets
        rates = self.rates
        while seq < last:
            packet = packets[seq + 1]
            if type(packet) is Data:
                if packet.flags & SAFE and seq >= safe:
                    break
                batch = self._batch(packet)
                if batch is not None:
                    effects.append(Deliver(batch))
                    self._unstable.append(batch)
                    if rates is not None:
                        rates.count(batch.origin, len(batch.payloads))
                    self.last_message = seq + 1
            seq += 1
        self.delivered = seq

    def deliver_rest(self, deliver_memb: frozenset[NodeId], effects: list[Effect]) -> None:
        """Deliver what is left in the transitional configuration (000 §7.2, step 4).

        Up to the first gap that is everything: this node has acknowledged it, so another may have
        delivered it as safe (§4.2: "once a processor has acknowledged receipt of a safe message, it is
        required to deliver the message"; §7.3: p delivers its own "and also other messages that have
        become safe"). Behind a gap, messages of ``deliver_memb`` only: none of those nodes has seen what
        is missing, so nothing they sent depends on it. §7.2 speaks of ``deliver_memb`` alone, which
        leaves an isolated node without messages that the others delivered as safe.
        """
        received = self.window.aru
        for seq, packet in self.window.after(self.delivered):
            self.delivered = seq
            if type(packet) is Data and (seq <= received or packet.origin in deliver_memb):
                batch = self._batch(packet)
                if batch is not None:
                    effects.append(Deliver(batch))
                    self.last_message = seq

    def discard(self, effects: list[Effect]) -> None:
        """Give up what every member has: nobody will ask for it again (000 §5.1)."""
        upto = min(self.safe, self.delivered)
        if upto > self.window.discarded:
            self.window.discard(upto)
            unstable = self._unstable
            stable = []
            while unstable and unstable[0].seq <= upto:
                stable.append(unstable.popleft())
            if stable:
                effects.append(Stable(stable))

    def _batch(self, packet: Data) -> Batch | None:
        """The messages that end in a packet, or None if none does."""
        _, _, seq, origin, incarnation, number, flags, payloads, _, timestamp = packet
        guarantee = Guarantee.SAFE if flags & SAFE else Guarantee.AGREED
        if not (flags & FRAGMENTS or self._reassembly.partial):
            return Batch(self.id, seq, 0, origin, incarnation, number, guarantee, payloads, timestamp)
        slot, payloads = self._reassembly.take(
            origin, number, payloads, bool(flags & CONTINUES), bool(flags & CONTINUED)
        )
        if not payloads:
            return None
        number += slot
        return Batch(self.id, seq, slot, origin, incarnation, number, guarantee, payloads, timestamp)
