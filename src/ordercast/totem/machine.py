"""The Totem single-ring protocol (000): ordering, membership and recovery as one pure machine.

Follow a message: `Submit` puts it into the outbox; at the token's next visit (`_visit`, `circulation.work`)
it is packed, gets its sequence number and is broadcast; `_on_data` receives it at the others;
`Ring.deliver` hands it over as soon as its guarantee allows, and `Ring.discard` forgets it when all have
it. What happens when the ring breaks is in `formation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from ordercast.core.contract import (
    LEFT,
    Accept,
    Attend,
    Brake,
    Distance,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Multicast,
    Packet,
    Start,
    Stop,
    Submit,
    Timer,
)
from ordercast.core.declared import zeros
from ordercast.core.fronted import whole
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.core.lamport import LamportClock
from ordercast.core.wire import FORGED_SENDER, PREFIX_SIZE, Malformed
from ordercast.totem.braking import Braking
from ordercast.totem.circulation import Outbox, Outgoing, work
from ordercast.totem.config import TotemConfig
from ordercast.totem.declared import STATISTICS
from ordercast.totem.formation import ANNOUNCE_TIMER, CONSENSUS, JOIN_TIMER, Formation
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    DATA_PREFIX,
    NOBODY,
    RECOVERED_PREFIX,
    TOKEN_PREFIX,
    Announce,
    Commit,
    Data,
    Hurry,
    Join,
    Part,
    Recovered,
    Token,
    decode,
    decode_data,
    decode_token,
)
from ordercast.totem.states import State
from ordercast.totem.token_passing import HOLD, TOKEN_LOSS, TOKEN_RETRANSMISSION, TokenPassing
from ordercast.totem.visits import Scheduling
from ordercast.totem.waits import Rotations, Waits

_NOTHING: tuple[Effect, ...] = ()


class TotemMachine:
    """One processor of a Totem ring."""

    def __init__(
        self,
        me: NodeId,
        config: TotemConfig,
        decode_data: Callable[[bytes], Data] = decode_data,
        outbox: Outgoing | None = None,
        clock: LamportClock | None = None,
    ) -> None:
        """A processor that has not been started.

        A driver that hands the same bytes to several machines (a simulator) may give them a `decode_data`
        that remembers. Where the ring is one of several (`ordercast.rings`), that layer hands over the
        `outbox` with what is to be broadcast, and the `clock` that gives packets their timestamps.
        """
        self.me = me
        self.config = config
        self.incarnation = -1
        self.leaving = False
        self.halted = False
        self.outbox: Outgoing = Outbox(config) if outbox is None else outbox
        self._passing = TokenPassing(config)
        self._waits = Waits()
        self._braking = Braking(me)
        self._stats = zeros(STATISTICS)
        self._rotations = Rotations(self._stats)
        self._scheduling = Scheduling(config.visits, config.visits_us)
        self.formation = Formation(
            me,
            config,
            outbox=self.outbox,
            passing=self._passing,
            waits=self._waits,
            rotations=self._rotations,
            braking=self._braking,
            stats=self._stats,
            clock=clock,
            scheduling=self._scheduling,
        )
        self._laggard = NOBODY
        """Who held `aru` back so far, when the token came last, that this node could not send."""
        self._decode_data = decode_data
        self._max_outstanding = config.max_outstanding

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event; the effects that follow from it, to be carried out in this order."""
        if type(event) is Packet:
            return self._on_packet(now_us, event)
        assert not self.halted, f"node {self.me} has halted; make a new machine and start it"
        effects: list[Effect] = []
        match event:
            case Timer(name):
                self._on_timer(now_us, name, effects)
            case Submit(payloads, guarantee):
                self._on_submit(now_us, payloads, guarantee, effects)
            case Gone(node):
                self.formation.part_with(now_us, node, "member gone", effects)
            case Start():
                self._on_start(now_us, event, effects)
            case Stop():
                self.leaving = True
                self._run_alone(now_us, effects)
            case Distance(round_trip_us):
                self.formation.on_distance(round_trip_us, effects)
            case Brake(on):
                self._on_brake(now_us, on, effects)
            case Attend():
                pass  # on one ring, all get everything
            case _:
                raise TypeError(f"not an event: {event!r}")
        self._look_after(now_us, effects)
        return effects

    @property
    def state(self) -> State:
        """Where this node stands (000 Fig. 2)."""
        return self.formation.state

    @property
    def ring(self) -> Ring:
        """The ring of the configuration that is installed."""
        return self.formation.ring

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now."""
        if self.halted or self.leaving or self.incarnation < 0:
            return 0
        return min(self.outbox.room, self.config.max_message_size)

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        return self._stats

    @property
    def role(self) -> str:
        """All members of a ring do the same."""
        return ""

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """By member, the longest time for which the token lately waited there to be handled; see `Waits`."""
        return self._waits.longest

    @property
    def laggard(self) -> NodeId | None:
        """The node that brakes; or else that holds `aru` back so far that this node had to stop sending."""
        return (
            (self._braking.by or self._laggard or None) if self.formation.state is State.OPERATIONAL else None
        )

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """What all members have delivered on the ring that was installed last."""
        return (self.formation.ring.id, self.formation.ring.final) if self.formation.ring.final >= 0 else None

    # --- start and stop -------------------------------------------------------------------------

    def _on_start(self, now_us: int, start: Start, effects: list[Effect]) -> None:
        if self.incarnation >= 0:
            raise RuntimeError(f"node {self.me} was started before; make a new machine for a new life")
        self.incarnation = self.outbox.incarnation = start.incarnation
        self.formation.start(now_us, start, effects)

    def _leave_if_done(self, effects: list[Effect]) -> None:
        """End this life, once everything that was accepted is broadcast and everyone has it.

        While somebody brakes, what waits cannot be broadcast; so a node that has something to send stays
        until the brake is let go.
        """
        if (
            not self.leaving
            or self.halted
            or self.formation.state is not State.OPERATIONAL
            or self.outbox.waiting
            or self.formation.ring.safe < self.formation.ring.last_own
        ):
            return
        farewell = Join(
            self.me, self.formation.ring_seq, (self.me,), (), leave=True, life=self.formation.life
        )
        effects.append(Multicast(farewell.encode()))
        self.halted = True
        effects.append(Halt(LEFT))

    # --- submitting -----------------------------------------------------------------------------

    def _on_submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        if self.incarnation < 0 or self.leaving:
            raise RuntimeError(f"node {self.me} takes no messages: it is not started, or it is leaving")
        if guarantee is not Guarantee.AGREED and guarantee is not Guarantee.SAFE:
            raise ValueError(
                f"totem has no level of resilience {guarantee}: send agreed, or safe; "
                "the sequencer family (total, cm, rbp, irbp, pinwheel, dtp) offers levels"
            )
        payloads = whole(payloads)
        largest = max(map(len, payloads), default=0)
        if largest > self.config.max_message_size:
            raise ValueError(
                f"a message of {largest} bytes is larger than max_message_size "
                f"({self.config.max_message_size}); split it, or raise the limit at every node"
            )
        effects.append(Accept(self.outbox.accept(payloads, guarantee)))
        if self.formation.state is State.OPERATIONAL:
            self._run_alone(now_us, effects)
            if self._braking.by == NOBODY:  # else the token could not take it along
                self._release(now_us, effects)
                self._passing.ask_to_hurry(self.formation.ring, effects)

    # --- braking --------------------------------------------------------------------------------

    def _on_brake(self, now_us: int, on: bool, effects: list[Effect]) -> None:
        """The application falls behind, or has caught up. The token tells the others, when it comes.

        When this node lets go of a brake that is on the token, the token is fetched, if it is held.
        """
        self._braking.mine = on
        self._run_alone(now_us, effects)
        if not on and self._braking.by == self.me and self.formation.state is State.OPERATIONAL:
            self._release(now_us, effects)
            self._passing.ask_to_hurry(self.formation.ring, effects)

    def _heed_brake(self, token: Token) -> None:
        """Send nothing new while a member brakes."""
        self._braking.mark(self.formation.ring, token)
        self._braking.by = token.brake
        self.outbox.closed = token.brake != NOBODY

    # --- packets --------------------------------------------------------------------------------

    def _on_packet(self, now_us: int, event: Packet) -> Sequence[Effect]:
        data, sender, waited_us, _ = event
        if self.halted:
            return (Drop("halted"),)
        effects: list[Effect] = []
        kind = data[:PREFIX_SIZE]
        try:
            if kind == DATA_PREFIX:
                return self._on_data(now_us, self._decode_data(data))
            if kind == TOKEN_PREFIX:
                self._on_token(now_us, decode_token(data), sender, waited_us, effects)
                if self.formation.installed:
                    self._look_after(now_us, effects)
                return effects
            packet = decode(data)
        except Malformed as bad:
            return (Drop(str(bad)),)
        match packet:
            case Recovered():
                self.formation.on_recovered(packet, effects)
            case Join() | Announce() if packet.sender != sender:
                effects.append(Drop(FORGED_SENDER))
            case Join():
                self.formation.on_join(now_us, packet, effects)
            case Commit():
                self.formation.on_commit(now_us, packet, sender, effects)
            case Announce():
                self.formation.on_announce(now_us, packet, effects)
            case Hurry():
                self._on_hurry(now_us, packet, effects)
            case Part():
                return self._on_part(now_us, packet, sender)
        self._look_after(now_us, effects)
        return effects

    def _on_part(self, now_us: int, part: Part, sender: NodeId) -> Sequence[Effect]:
        """Keep a part of a packet that was sent again; the packet is handled once all parts are here."""
        ring = self.formation.ring if self.formation.exchange is None else self.formation.exchange.ring
        if (part.ring_seq, part.ring_rep) != ring.id:
            return (Drop("other ring"),)
        packet = ring.join(part)
        if packet is None:
            return _NOTHING
        if packet[:PREFIX_SIZE] not in (DATA_PREFIX, RECOVERED_PREFIX):
            return (Drop("bad part"),)
        return self._on_packet(now_us, Packet(packet, sender))

    def _on_data(self, now_us: int, packet: Data) -> Sequence[Effect]:
        """Regular message received (Figs 3 to 6)."""
        ring = self.formation.ring
        ring_id = (packet.ring_seq, packet.ring_rep)
        if ring_id == ring.id:
            if self.formation.state is State.RECOVERY or self.formation.obligations.received_flg:
                return (Drop("old ring, already exchanged"),)
            if not ring.admits(packet):
                return (Drop(self._not_admitted(packet)),)
            if not ring.window.add(packet.seq, packet):
                return (Drop("duplicate"),)
            effects: list[Effect] = []
            ring.deliver(effects)
            if packet.seq > ring.forwarded_seq and self._passing.awaiting_sign:
                self._passing.moved(now_us, effects)
            return effects
        if self.formation.exchange is not None and ring_id == self.formation.exchange.ring.id:
            # A member that has installed the new ring already. Its messages wait until I do.
            if not self.formation.exchange.ring.admits(packet):
                return (Drop(self._not_admitted(packet)),)
            fresh = self.formation.exchange.ring.window.add(packet.seq, packet)
            return _NOTHING if fresh else (Drop("duplicate"),)
        if packet.origin in ring.members or self.formation.state is not State.OPERATIONAL:
            return (Drop("other ring"),)
        effects = [Drop("foreign ring")]
        self.formation.announce(now_us, effects)
        return effects

    def _not_admitted(self, packet: Data) -> str:
        """Why `Ring.admits` refuses a packet: others send this node's packets again to who missed them."""
        return "own packet" if packet.origin == self.me else FORGED_SENDER

    # --- the token ------------------------------------------------------------------------------

    def _on_token(
        self, now_us: int, token: Token, sender: NodeId, waited_us: int, effects: list[Effect]
    ) -> None:
        """Regular token received (Figs 3, 4 and 6; discarded in Commit, Fig. 5).

        It comes from the predecessor on the ring, or it is not the ring's token.
        """
        if self.formation.exchange is not None:
            ring = self.formation.exchange.ring
        elif self.formation.state is State.COMMIT or self.formation.ring_seq != self.formation.ring.id.seq:
            effects.append(Drop("token of a ring given up"))
            return
        else:
            ring = self.formation.ring
        # A ring that is being recovered is plain: its members count visits until it is installed.
        turn = None if token.visits and self.formation.exchange is not None else ring.turn_of(token)
        if token.ring != ring.id:
            effects.append(Drop("token of another ring"))
        elif turn is not None and sender != turn.predecessor:
            effects.append(Drop(FORGED_SENDER))
        elif not ring.accepts(token):
            effects.append(Drop("redundant token"))
        elif turn is None or not ring.believes(token):
            effects.append(Drop("implausible token"))
        else:
            ring.arrive(token, turn)
            self._passing.returned(now_us)
            if turn.counts:
                self._rotations.count(now_us, token)
            self._waits.enter(ring, token, waited_us)
            if self.formation.exchange is not None:
                self.formation.visit_recovery(now_us, token, self.formation.exchange, effects)
                return
            self._waits.learn(now_us, token.holds, ring.cycle.times)
            if ring.represented_by_me and self._hold(ring, token, effects):
                self._stats["tokens_held"] += 1
            else:
                self._visit(now_us, token, effects)

    def _visit(self, now_us: int, token: Token, effects: list[Effect]) -> None:
        """One visit of the token on an installed ring (000 Fig. 3)."""
        ring = self.formation.ring
        if self._braking.concerns(token):
            self._heed_brake(token)
        stuck = token.seq - token.aru >= self._max_outstanding and self.outbox.waiting
        self._laggard = token.aru_id if stuck else NOBODY
        verified: Set[NodeId] = frozenset()
        if ring.turn.counts:
            if ring.rates is not None:
                self._schedule(now_us, ring, token)
            verified = self.formation.merge_detection.check(now_us, ring, token)
            self.outbox.adapt(bool(token.rtr))
        arrived_seq = token.seq
        resent, fresh, late, failed = work(now_us, ring, token, self.outbox, effects)
        if fresh or resent:
            self._stats["packets"] += fresh
            self._stats["retransmissions"] += resent
        if failed is None:
            timed = self.formation.state is not State.GATHER
            self._passing.pass_on(now_us, ring, token, arrived_seq, timed, self._waits.total_us, effects)
        effects += late
        window = ring.window
        if ring.delivered < window.aru:
            ring.deliver(effects)
        if ring.safe > window.discarded:
            ring.discard(effects)
        if self.formation.state is State.OPERATIONAL:
            if failed is not None:
                self.formation.gathering.fail({failed})
                self.formation.gather(now_us, "failure to receive", effects)
            elif verified:
                self.formation.merge(now_us, verified, effects)
            elif self.leaving:
                self._leave_if_done(effects)

    def _schedule(self, now_us: int, ring: Ring, token: Token) -> None:
        """A rotation ends here; the representative says which visits the next one has.

        All have installed the ring by now, whose recovery counts visits: each member does so within the
        rotation in which the first one does.
        """
        before = token.visits
        token.visits = self._scheduling.rotation(now_us, before, ring.members, ring.represented_by_me)
        if token.visits != before:
            self._stats["schedules"] += 1
            turn = ring.turn_of(token)
            assert turn is not None, f"node {self.me} made a wrong schedule: {token.visits}"
            ring.arrive(token, turn)

    # --- a ring that is idle, or has one member -------------------------------------------------

    def _hold(self, ring: Ring, token: Token, effects: list[Effect]) -> bool:
        """Whether the representative keeps the token for a while: there is nothing that may be sent."""
        if self._braking.concerns(token):
            self._heed_brake(token)
        if self.outbox.waiting:
            busy = token.brake == NOBODY
        else:
            busy = self.leaving
        return self._passing.hold(ring, token, busy or self.formation.state is not State.OPERATIONAL, effects)

    def _release(self, now_us: int, effects: list[Effect]) -> None:
        """Let go of the token if it was held."""
        token = self._passing.release(effects)
        if token is not None:
            self._visit(now_us, token, effects)

    def _on_hurry(self, now_us: int, hurry: Hurry, effects: list[Effect]) -> None:
        if hurry.ring != self.formation.ring.id or self.formation.state is not State.OPERATIONAL:
            effects.append(Drop("other ring"))
            return
        self._passing.hurry()
        self._release(now_us, effects)

    def _run_alone(self, now_us: int, effects: list[Effect]) -> None:
        """On a ring of one, the token makes its rounds without leaving the machine."""
        ring, token = self.formation.ring, self.formation.own_token
        if self.formation.state is State.OPERATIONAL and token is not None:
            self._heed_brake(token)
            outbox = self.outbox
            while not self.halted and ((outbox.waiting and not outbox.closed) or ring.safe < token.seq):
                self._visit(now_us, token, effects)
            self._leave_if_done(effects)

    def _look_after(self, now_us: int, effects: list[Effect]) -> None:
        """Once a ring was installed, what waited may go out at once if there is nobody to wait for."""
        while self.formation.installed:
            self.formation.installed = False
            self._laggard = NOBODY
            self._run_alone(now_us, effects)

    # --- timers ---------------------------------------------------------------------------------

    def _on_timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        if name == TOKEN_LOSS:
            self.formation.on_token_loss(now_us, effects)
        elif name == TOKEN_RETRANSMISSION:
            self._stats["token_retransmissions"] += 1
            self._passing.resend(effects)
        elif name == HOLD:
            self._release(now_us, effects)
        elif name == ANNOUNCE_TIMER:
            self.formation.on_announce_timer(now_us, effects)
        elif self.formation.state is State.GATHER and name == JOIN_TIMER:
            self.formation.send_join(effects)
        elif self.formation.state is State.GATHER and name == CONSENSUS:
            self.formation.on_consensus_timeout(now_us, effects)
