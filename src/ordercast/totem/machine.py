"""The Totem single-ring protocol (000): ordering, membership and recovery as one pure machine.

Follow a message: `Submit` puts it into the send queue; at the token's next visit (`_visit`) it is packed,
gets its sequence number and is broadcast; `_on_data` receives it at the others; `Ring.deliver` hands it
over as soon as its guarantee allows, and `Ring.discard` forgets it when all have it.

Follow a failure: a timer or a Join leads to `_gather`; agreement to `_commit`; the Commit token's second
visit to `_recover`; and the recovered ring to `_install`. `NEXT` lists every change of state there is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum

from ordercast.core.contract import (
    Accept,
    CancelTimer,
    Drop,
    Effect,
    Event,
    Halt,
    Install,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, NodeId
from ordercast.core.packing import SendQueue
from ordercast.core.wire import Malformed
from ordercast.totem.config import TotemConfig
from ordercast.totem.custody import HOLD, TOKEN_LOSS, TOKEN_RETRANSMISSION, Custody
from ordercast.totem.membership import Gathering, Heard
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    CONTINUED,
    CONTINUES,
    DATA_PREFIX,
    SAFE,
    Announce,
    Commit,
    Data,
    Entry,
    Hurry,
    Join,
    Recovered,
    Token,
    decode,
    decode_data,
    encode_data,
)
from ordercast.totem.recovery import Duty, Exchange, settle
from ordercast.totem.strangers import Strangers


class State(StrEnum):
    """The four states of the membership protocol (000 §6.2.2)."""

    OPERATIONAL = "operational"
    GATHER = "gather"
    COMMIT = "commit"
    RECOVERY = "recovery"


_ABANDON = {
    "token lost": State.GATHER,
    "join heard": State.GATHER,
    "member left": State.GATHER,
}
NEXT: dict[State, dict[str, State]] = {
    State.OPERATIONAL: {
        "started": State.GATHER,
        "merge": State.GATHER,
        "failure to receive": State.GATHER,
        **_ABANDON,
    },
    State.GATHER: {
        "news": State.GATHER,
        "no consensus": State.GATHER,
        "no commit token": State.GATHER,
        "member left": State.GATHER,
        "consensus": State.COMMIT,
        "commit token": State.COMMIT,
    },
    State.COMMIT: {"commit token returned": State.RECOVERY, **_ABANDON},
    State.RECOVERY: {"recovered": State.OPERATIONAL, "failure to receive": State.GATHER, **_ABANDON},
}
"""Which reason leads from which state to which (000 Fig. 2); anything else is a defect."""

JOIN_TIMER = "join"
CONSENSUS = "consensus"
ANNOUNCE_TIMER = "announce"

RING_STEP = 4
"""Ring sequence numbers step by four (000 §6.2.2); the numbers between are transitional."""

STATISTICS = (
    "rotations",
    "rotation_us_total",
    "rotation_us_max",
    "packets",
    "retransmissions",
    "token_retransmissions",
    "tokens_held",
    "rings",
    "attempts_failed",
)

_STORED = struct.Struct("<2sBq")
_NOTHING: tuple[Effect, ...] = ()


class TotemMachine:
    """One processor of a Totem ring."""

    def __init__(self, me: NodeId, config: TotemConfig) -> None:
        self.me = me
        self.config = config
        self.state = State.OPERATIONAL
        self.incarnation = -1
        self.queue = SendQueue(config.send_queue)
        self.gathering = Gathering(me, config.max_members)
        self.strangers = Strangers(me, config.heard_us, config.max_members)
        self.duty = Duty()
        self.ring_seq = 0
        """The highest ring sequence number accepted (my_ring_id.seq); on stable storage."""
        self.ring = Ring(ConfigurationId(0, me), (me,), me, config)
        """The ring of the configuration that is installed: in Recovery, the old ring."""
        self.forming: Commit | None = None
        """The Commit token accepted last, while in Commit or Recovery."""
        self.exchange: Exchange | None = None
        """The recovery under way, while in Recovery."""
        self.leaving = False
        self.halted = False
        self._custody = Custody(config)
        self._own_token: Token | None = None
        """The token of a ring of one: it never leaves the machine."""
        self._checking = False
        """The strangers on the token were put there by me, one rotation ago."""
        self._merging = False
        """My Joins tell verified strangers to come along."""
        self._announced_us = -config.announce_us
        self._visited_us: int | None = None
        self._stats: dict[str, float] = dict.fromkeys(STATISTICS, 0.0)

    # --- the contract ---------------------------------------------------------------------------

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event."""
        kind = type(event)
        if kind is Packet:
            return self._on_packet(now_us, event.data)  # type: ignore[union-attr]
        assert not self.halted, f"node {self.me} has halted; make a new machine and start it"
        effects: list[Effect] = []
        match event:
            case Timer(name):
                self._on_timer(now_us, name, effects)
            case Submit(payloads, guarantee):
                self._on_submit(now_us, payloads, guarantee, effects)
            case Start(incarnation, stored):
                self._on_start(now_us, incarnation, stored, effects)
            case Stop():
                self.leaving = True
                self._run_alone(now_us, effects)
            case _:
                raise TypeError(f"not an event: {event!r}")
        return effects

    @property
    def room(self) -> int:
        """Size of the largest message that may be submitted now."""
        if self.halted or self.leaving or self.incarnation < 0:
            return 0
        return min(self.queue.room, self.config.max_message_size)

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures, by name."""
        return self._stats

    # --- start and stop -------------------------------------------------------------------------

    def _on_start(self, now_us: int, incarnation: int, stored: bytes | None, effects: list[Effect]) -> None:
        """Form a singleton ring, then look for others (000 §6.2.2, "When a processor starts")."""
        if self.incarnation >= 0:
            raise RuntimeError(f"node {self.me} was started before; make a new machine for a new life")
        self.incarnation = incarnation
        self.ring_seq = self._recall(now_us, stored) + RING_STEP
        self.ring = Ring(ConfigurationId(self.ring_seq, self.me), (self.me,), self.me, self.config)
        self._own_token = Token(self.ring.id)
        effects.append(Persist(self._stored()))
        effects.append(Install(Configuration(self.ring.id, Kind.REGULAR, self.ring.members)))
        self.gathering.settle(self.ring.members)
        self._gather(now_us, "started", effects)

    def _recall(self, now_us: int, stored: bytes | None) -> int:
        """The ring sequence number of the last life.

        On a fresh or lost disk the clock stands in for it: rings are formed far less often than once a
        millisecond, so numbers taken from the clock are beyond all that were used before.
        """
        if stored is None:
            return now_us // 1000 * RING_STEP
        if len(stored) != _STORED.size or stored[:3] != b"OC\x01":
            raise ValueError(
                f"node {self.me}: the stored state is not one of ordercast's; restore the file, or remove "
                "it to start as a node that lost its disk"
            )
        return int(_STORED.unpack(stored)[2])

    def _stored(self) -> bytes:
        return _STORED.pack(b"OC", 1, self.ring_seq)

    def _leave_if_done(self, effects: list[Effect]) -> bool:
        """Go, once everything that was accepted is broadcast and everyone has it."""
        if (
            not self.leaving
            or self.state is not State.OPERATIONAL
            or self.queue
            or self.ring.safe < self.ring.last_own
        ):
            return False
        farewell = Join(self.me, self.ring_seq, (self.me,), (), leave=True)
        effects.append(Multicast(farewell.encode()))
        self.halted = True
        effects.append(Halt("left"))
        return True

    # --- submitting -----------------------------------------------------------------------------

    def _on_submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        if self.incarnation < 0 or self.leaving:
            raise RuntimeError(f"node {self.me} takes no messages: it is not started, or it is leaving")
        for payload in payloads:
            if len(payload) > self.config.max_message_size:
                raise ValueError(
                    f"a message of {len(payload)} bytes is larger than max_message_size "
                    f"({self.config.max_message_size}); split it, or raise the limit at every node"
                )
        effects.append(Accept(self.queue.accept(payloads, guarantee)))
        if self.state is State.OPERATIONAL:
            self._run_alone(now_us, effects)
            self._release(now_us, effects)
            self._custody.ask_to_hurry(self.ring, effects)

    # --- packets --------------------------------------------------------------------------------

    def _on_packet(self, now_us: int, data: bytes) -> Sequence[Effect]:
        if self.halted:
            return (Drop("halted"),)
        try:
            if data[:4] == DATA_PREFIX:
                return self._on_data(now_us, decode_data(data))
            packet = decode(data)
        except Malformed as bad:
            return (Drop(str(bad)),)
        effects: list[Effect] = []
        match packet:
            case Token():
                self._on_token(now_us, packet, effects)
            case Recovered():
                self._on_recovered(packet, effects)
            case Join():
                self._on_join(now_us, packet, effects)
            case Commit():
                self._on_commit(now_us, packet, effects)
            case Announce():
                self._on_announce(now_us, packet, effects)
            case Hurry():
                self._on_hurry(now_us, packet, effects)
        return effects

    def _on_data(self, now_us: int, packet: Data) -> Sequence[Effect]:
        """Regular message received (Figs 3 to 6)."""
        ring = self.ring
        ring_id = (packet.ring_seq, packet.ring_rep)
        if ring_id == ring.id:
            if self.state is State.RECOVERY or self.duty.received_flg:
                return (Drop("old ring, already exchanged"),)
            if not ring.window.add(packet.seq, packet):
                return (Drop("duplicate"),)
            effects: list[Effect] = []
            ring.deliver(effects)
            if packet.seq > ring.forwarded_seq and self._custody.awaiting_sign:
                self._custody.moved(effects)
            return effects
        if self.exchange is not None and ring_id == self.exchange.ring.id:
            # A member that has installed the new ring already. Its messages wait until I do.
            fresh = self.exchange.ring.window.add(packet.seq, packet)
            return _NOTHING if fresh else (Drop("duplicate"),)
        if packet.origin in ring.members or self.state is not State.OPERATIONAL:
            return (Drop("other ring"),)
        effects = [Drop("foreign ring")]
        self._announce(now_us, effects)
        return effects

    def _on_recovered(self, packet: Recovered, effects: list[Effect]) -> None:
        """A message of some old ring, retransmitted on the new one (Fig. 6)."""
        ring_id = (packet.ring_seq, packet.ring_rep)
        if self.exchange is not None and ring_id == self.exchange.ring.id:
            if self.exchange.ring.window.add(packet.seq, packet):
                self.exchange.receive(packet)
            else:
                effects.append(Drop("duplicate"))
        elif ring_id == self.ring.id and self.state is not State.RECOVERY:
            effects.append(Drop("duplicate"))
        else:
            effects.append(Drop("other ring"))

    # --- the token ------------------------------------------------------------------------------

    def _on_token(self, now_us: int, token: Token, effects: list[Effect]) -> None:
        """Regular token received (Figs 3, 4 and 6; discarded in Commit, Fig. 5)."""
        if self.exchange is not None:
            ring = self.exchange.ring
        elif self.state is State.COMMIT or self.ring_seq != self.ring.id.seq:
            effects.append(Drop("token of a ring given up"))
            return
        else:
            ring = self.ring
        if token.ring != ring.id:
            effects.append(Drop("token of another ring"))
        elif not ring.accepts(token):
            effects.append(Drop("redundant token"))
        else:
            ring.token_seq = token.token_seq
            self._custody.moved(effects)
            self._time_rotation(now_us, token)
            if self.exchange is not None:
                self._visit_recovery(now_us, token, self.exchange, effects)
            elif self.state is State.OPERATIONAL and self._custody.hold(
                ring, token, self.leaving or bool(self.queue), effects
            ):
                self._stats["tokens_held"] += 1
            else:
                self._visit(now_us, token, effects)

    def _visit(self, now_us: int, token: Token, effects: list[Effect]) -> None:
        """One visit of the token on an installed ring (000 Fig. 3, §8.2, accelerated ring)."""
        ring = self.ring
        arrived_seq = token.seq
        resent = ring.answer(token)
        effects.extend([Multicast(raw) for raw in resent])
        space = self.config.chunk_space
        allowed = ring.flow.new_packets(token, len(resent), self.queue.backlog(space))
        fresh = self._originate(ring, token, allowed, space)
        early = max(0, len(fresh) - self.config.accelerated_window)
        for pair in fresh[:early]:
            effects.extend(pair)
        ring.update_aru(token)
        failed = ring.holder_up(token, self.config.fail_to_receive)
        if failed is not None:
            for pair in fresh[early:]:
                effects.extend(pair)
            ring.deliver(effects)
            if self.state is State.OPERATIONAL:
                self.gathering.fail({failed})
                self._gather(now_us, "failure to receive", effects)
            return
        ring.request(token)
        ring.flow.settle(token, len(fresh) + len(resent), self.queue.backlog(space))
        verified = self._check_strangers(now_us, token)
        self._pass_on(ring, token, arrived_seq, effects)
        for pair in fresh[early:]:
            effects.extend(pair)
        ring.deliver(effects)
        ring.discard(effects)
        self._stats["packets"] += len(fresh)
        self._stats["retransmissions"] += len(resent)
        if self.state is State.OPERATIONAL:
            self._merge(now_us, verified, effects)
            self._leave_if_done(effects)

    def _originate(self, ring: Ring, token: Token, allowed: int, space: int) -> list[list[Effect]]:
        """Number and broadcast what waits: for each packet its effects (000 §5.2)."""
        fresh: list[list[Effect]] = []
        for _ in range(allowed):
            packed = self.queue.next_packet(space)
            if packed is None:
                break
            token.seq += 1
            flags = CONTINUES * packed.continues | CONTINUED * packed.continued
            if packed.guarantee is Guarantee.SAFE:
                flags |= SAFE
            packet = encode_data(
                ring.id, token.seq, self.me, self.incarnation, packed.number, flags, packed.chunks
            )
            ring.window.add(token.seq, packet)
            ring.last_own = token.seq
            effects: list[Effect] = []
            if packed.ends:
                batch = Batch(
                    ring.id,
                    token.seq,
                    0,
                    self.me,
                    self.incarnation,
                    packed.number,
                    packed.guarantee,
                    packed.ends,
                )
                effects.append(Originate(batch))
            if not ring.alone:
                effects.append(Multicast(packet.raw))
            fresh.append(effects)
        return fresh

    def _visit_recovery(self, now_us: int, token: Token, exchange: Exchange, effects: list[Effect]) -> None:
        """One visit of the token on a ring that is being recovered (000 Fig. 6)."""
        ring = exchange.ring
        arrived_seq = token.seq
        resent = ring.answer(token)
        effects.extend([Multicast(raw) for raw in resent])
        allowed = ring.flow.new_packets(token, len(resent), exchange.backlog)
        for _ in range(allowed):
            token.seq += 1
            packet = exchange.next_packet(token.seq)
            ring.window.add(token.seq, packet)
            effects.append(Multicast(packet.raw))
        ring.update_aru(token)
        failed = ring.holder_up(token, self.config.fail_to_receive)
        if failed is not None:
            self.gathering.fail({failed})
            self._abandon(now_us, "failure to receive", effects)
            return
        ring.request(token)
        ring.flow.settle(token, allowed + len(resent), exchange.backlog)
        exchange.update(token)
        self._pass_on(ring, token, arrived_seq, effects)
        if exchange.complete:
            self._install(now_us, exchange, effects)

    def _pass_on(self, ring: Ring, token: Token, arrived_seq: int, effects: list[Effect]) -> None:
        """Forward the token, unless there is nobody to forward it to."""
        self._custody.mark(ring, token)
        ring.forward(token, arrived_seq)
        if ring.alone:
            return
        if self.state is State.GATHER:  # there, the timer waits for the Commit token (Fig. 4)
            effects.append(Unicast(ring.successor, token.encode()))
        else:
            self._custody.send(ring.successor, token.encode(), effects)

    def _time_rotation(self, now_us: int, token: Token) -> None:
        """Account for the time since the last visit, unless the token was held in between."""
        if self._visited_us is not None and not token.idle:
            took = now_us - self._visited_us
            stats = self._stats
            stats["rotations"] += 1
            stats["rotation_us_total"] += took
            if took > stats["rotation_us_max"]:
                stats["rotation_us_max"] = took
        self._visited_us = now_us

    # --- a ring that is idle, or has one member -------------------------------------------------

    def _release(self, now_us: int, effects: list[Effect]) -> None:
        """Let go of the token if it was held."""
        token = self._custody.release(effects)
        if token is not None:
            self._visit(now_us, token, effects)

    def _on_hurry(self, now_us: int, hurry: Hurry, effects: list[Effect]) -> None:
        if hurry.ring != self.ring.id or self.state is not State.OPERATIONAL:
            effects.append(Drop("other ring"))
            return
        self._custody.hurry()
        self._release(now_us, effects)

    def _run_alone(self, now_us: int, effects: list[Effect]) -> None:
        """On a ring of one, the token makes its rounds without leaving the machine."""
        ring, token = self.ring, self._own_token
        if self.state is State.OPERATIONAL and token is not None:
            while self.queue or ring.safe < token.seq:
                self._visit(now_us, token, effects)
            self._leave_if_done(effects)

    # --- timers ---------------------------------------------------------------------------------

    def _on_timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        if name == TOKEN_LOSS:
            self._on_token_loss(now_us, effects)
        elif name == TOKEN_RETRANSMISSION:
            self._stats["token_retransmissions"] += 1
            self._custody.resend(effects)
        elif name == HOLD:
            self._release(now_us, effects)
        elif name == ANNOUNCE_TIMER:
            self._on_announce_timer(now_us, effects)
        elif self.state is State.GATHER and name == JOIN_TIMER:
            self._send_join(effects)
        elif self.state is State.GATHER and name == CONSENSUS:
            self._on_consensus_timeout(now_us, effects)

    def _on_token_loss(self, now_us: int, effects: list[Effect]) -> None:
        """Token Loss timeout expired (Figs 3 to 6)."""
        if self.state is State.GATHER:
            self.gathering.fail_repeated(self.gathering.proposal, self.config.max_attempts)
            self._gather(now_us, "no commit token", effects)
        elif self.state is State.OPERATIONAL:
            self._gather(now_us, "token lost", effects)
        else:
            self._abandon(now_us, "token lost", effects)

    def _on_consensus_timeout(self, now_us: int, effects: list[Effect]) -> None:
        """Consensus timeout expired before everyone agreed (Fig. 4)."""
        if self.gathering.agreed and self.gathering.proposal == (self.me,):
            self._propose(now_us, effects)
        else:
            self.gathering.fail_silent()
            self._gather(now_us, "no consensus", effects)

    # --- Gather ---------------------------------------------------------------------------------

    def _shift(self, because: str, effects: list[Effect]) -> None:
        """Enter the state that the reason leads to."""
        following = NEXT[self.state].get(because)
        assert following is not None, f"node {self.me}: {because!r} leads nowhere from {self.state}"
        self.state = following
        effects.append(Shift(following, because))

    def _gather(self, now_us: int, because: str, effects: list[Effect], join: Join | None = None) -> None:
        """Begin a round of consensus (Fig. 7, Shift_to_Gather), perhaps because of a Join.

        Its sender is committed to the sets in it; if they are now mine too, that counts in this round.
        """
        self._shift(because, effects)
        self._custody.give_up(effects)
        self._checking = False
        self.gathering.begin_round()
        self._send_join(effects)
        effects.append(SetTimer(CONSENSUS, self.config.consensus_us))
        if join is not None and self.gathering.hear(join) is Heard.AGREES:
            self._agree(now_us, effects)

    def _abandon(self, now_us: int, because: str, effects: list[Effect], join: Join | None = None) -> None:
        """Give up the ring being formed (Fig. 6, Token Loss timeout). What is owed to the old one stays."""
        assert self.forming is not None
        self.gathering.fail_repeated(self.forming.members, self.config.max_attempts)
        self._stats["attempts_failed"] += 1
        self.forming = None
        self.exchange = None
        self._gather(now_us, because, effects, join)

    def _send_join(self, effects: list[Effect]) -> None:
        gathering = self.gathering
        join = Join(
            self.me,
            self.ring_seq,
            tuple(sorted(gathering.proc_set)),
            tuple(sorted(gathering.fail_set)),
            merge=self._merging,
        )
        effects.append(Multicast(join.encode()))
        effects.append(SetTimer(JOIN_TIMER, self.config.join_us))

    def _on_join(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """Join message received (Figs 3 to 6)."""
        if join.sender == self.me:
            effects.append(Drop("own packet"))
        elif self.strangers.outdated(join.sender, join.ring_seq):
            effects.append(Drop("outdated join"))
        elif join.leave:
            self._on_leave(now_us, join, effects)
        elif self.state is State.OPERATIONAL:
            if join.sender in self.ring.members or (join.merge and self.me in join.proc_set):
                self._merging = self._merging or join.merge
                self.gathering.hear(join)
                self._gather(now_us, "join heard", effects, join)
            else:
                self._meet(now_us, join.sender, effects)
        elif self.state is State.GATHER:
            self._hear(now_us, join, effects)
        elif self.forming is not None and join.sender in self.forming.members:
            if join.ring_seq >= self.ring_seq:  # it has abandoned the ring that I am forming
                self.gathering.hear(join)
                self._abandon(now_us, "join heard", effects, join)
        else:
            effects.append(Drop("join of a stranger"))

    def _hear(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """Join message received in Gather (Fig. 4)."""
        agreed_before = self.gathering.agreed
        match self.gathering.hear(join):
            case Heard.NEWS:
                self._gather(now_us, "news", effects, join)
            case Heard.AGREES if not agreed_before:
                self._agree(now_us, effects)
            case Heard.IGNORED:
                effects.append(Drop("join of a failed node"))

    def _agree(self, now_us: int, effects: list[Effect]) -> None:
        """One more node is committed to my sets. If all are, the ring can be formed (§6.2.2)."""
        if self.gathering.agreed:
            if self.gathering.proposal[0] == self.me:
                self._propose(now_us, effects)
            else:
                effects.append(CancelTimer(CONSENSUS))
                effects.append(SetTimer(TOKEN_LOSS, self.config.token_loss_us))

    def _on_leave(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """A node says that it goes: no need to wait until it is missed."""
        concerned = self.forming.members if self.forming is not None else self.gathering.proc_set
        if join.sender not in concerned or join.sender in self.gathering.fail_set:
            effects.append(Drop("join of a stranger"))
            return
        self.gathering.fail({join.sender})
        if self.forming is not None:
            self._abandon(now_us, "member left", effects)
        else:
            self._gather(now_us, "member left", effects)

    # --- Commit ---------------------------------------------------------------------------------

    def _propose(self, now_us: int, effects: list[Effect]) -> None:
        """The representative generates the Commit token (000 §6.2.2)."""
        members = self.gathering.proposal
        known = max([self.ring_seq, *(self.strangers.ring_seq(node) for node in members)])
        ring = ConfigurationId(known + RING_STEP, self.me)
        forming = self._commit("consensus", Commit(ring, members, 0, ()), effects)
        if len(members) == 1:
            self._recover(now_us, forming, effects)

    def _on_commit(self, now_us: int, commit: Commit, effects: list[Effect]) -> None:
        """Commit token received (Figs 4 to 6)."""
        size = len(commit.members)
        place = commit.members.index(self.me) if self.me in commit.members else -1
        if place != commit.memb_index % size:
            effects.append(Drop("commit token for another"))
        elif self.state is State.GATHER and commit.memb_index < size:
            if commit.members == self.gathering.proposal and commit.ring.seq > self.ring_seq:
                self._commit("commit token", commit, effects)
            else:
                effects.append(Drop("commit token not agreed to"))
        elif self.forming is None or commit.ring != self.forming.ring:
            effects.append(Drop("commit token of another ring"))
        elif self.state is State.COMMIT and commit.memb_index >= size and len(commit.entries) == size:
            self._recover(now_us, commit, effects)
        elif (
            self.exchange is not None and commit.memb_index == 2 * size and self.exchange.ring.token_seq == 0
        ):
            self._custody.moved(effects)
            self._visit_recovery(now_us, Token(commit.ring), self.exchange, effects)
        else:
            effects.append(Drop("redundant commit token"))

    def _commit(self, because: str, commit: Commit, effects: list[Effect]) -> Commit:
        """Agree to a ring: add what the others must know, and pass it on (Fig. 7, Shift_to_Commit).

        The number is durable before anyone else can learn that this node accepted it; so no later life
        can use it again, as representative or as member.
        """
        self._shift(because, effects)
        self.ring_seq = commit.ring.seq
        effects.append(Persist(self._stored()))
        old = self.ring
        entry = Entry(self.me, old.id, old.window.aru, old.delivered, self.duty.received_flg)
        self.forming = commit._replace(entries=(*commit.entries, entry))
        effects.append(CancelTimer(JOIN_TIMER))
        effects.append(CancelTimer(CONSENSUS))
        self._pass_commit(self.forming, effects)
        return self.forming

    def _pass_commit(self, commit: Commit, effects: list[Effect]) -> None:
        size = len(commit.members)
        index = commit.memb_index + 1
        if size > 1:
            raw = commit._replace(memb_index=index).encode()
            self._custody.send(commit.members[index % size], raw, effects)

    # --- Recovery -------------------------------------------------------------------------------

    def _recover(self, now_us: int, commit: Commit, effects: list[Effect]) -> None:
        """Everyone is committed: exchange the old ring's messages (Fig. 7, Shift_to_Recovery)."""
        self._shift("commit token returned", effects)
        self._custody.moved(effects)
        self.forming = commit
        self._pass_commit(commit, effects)
        ring = Ring(commit.ring, commit.members, self.me, self.config)
        self.exchange = Exchange(ring, self.ring, commit, self.duty)
        self._visited_us = None
        if ring.alone:
            self._install(now_us, self.exchange, effects)

    def _install(self, now_us: int, exchange: Exchange, effects: list[Effect]) -> None:
        """Steps 2 to 6 of 000 §7.2 as one atomic action (Fig. 7, Shift_to_Operational)."""
        settle(exchange, self.ring, self.duty, effects)
        ring = exchange.ring
        self.ring = ring
        self.duty = Duty()
        self.forming = None
        self.exchange = None
        self.gathering.settle(ring.members)
        self.strangers.installed(ring.id, ring.members)
        self.queue.rewind()
        self._merging = False
        self._own_token = Token(ring.id) if ring.alone else None
        self._stats["rings"] += 1
        self._shift("recovered", effects)
        ring.deliver(effects)
        self._on_announce_timer(now_us, effects)
        self._run_alone(now_us, effects)

    # --- strangers ------------------------------------------------------------------------------

    def _on_announce(self, now_us: int, announce: Announce, effects: list[Effect]) -> None:
        """A ring shows itself: remember who hears whom, and show ours (merge detection)."""
        if self.strangers.outdated(announce.sender, announce.ring.seq):
            effects.append(Drop("outdated announce"))
        elif announce.sender in self.ring.members:
            effects.append(Drop("announce of a member"))
        else:
            self._meet(now_us, announce.sender, effects)
            self.strangers.learn(now_us, announce)
            if self.ring.alone and self.state is State.OPERATIONAL:
                self._merge(now_us, self.strangers.mergeable(self.strangers.mutual(now_us)), effects)

    def _meet(self, now_us: int, stranger: NodeId, effects: list[Effect]) -> None:
        """A stranger spoke: let it know at once that it is heard, if that is news."""
        if self.strangers.hear(now_us, stranger) and self.state is State.OPERATIONAL:
            self._announce(now_us, effects)

    def _announce(self, now_us: int, effects: list[Effect]) -> None:
        """Show the ring to strangers, but not too often."""
        if now_us - self._announced_us >= self.config.announce_us // 8:
            self._announced_us = now_us
            heard = self.strangers.heard(now_us)
            announce = Announce(self.me, self.ring.id, self.ring.members, heard)
            effects.append(Multicast(announce.encode()))

    def _on_announce_timer(self, now_us: int, effects: list[Effect]) -> None:
        """The representative announces always, others while there are strangers to answer."""
        if self.state is State.OPERATIONAL:
            if self.me == self.ring.representative or self.strangers.heard(now_us):
                self._announce(now_us, effects)
            effects.append(SetTimer(ANNOUNCE_TIMER, self.config.announce_us))

    def _check_strangers(self, now_us: int, token: Token) -> set[NodeId]:
        """Ask all members, by the token, with which strangers the ring could merge.

        The representative lists those it can exchange messages with, each member strikes out those it
        cannot; what comes back is verified. The answer is the members of whole rings among them.
        """
        ring = self.ring
        if self.me != ring.representative:
            if token.merge:
                mutual = self.strangers.mutual(now_us)
                token.merge = tuple(node for node in token.merge if node in mutual)
            return set()
        mutual = self.strangers.mutual(now_us)
        verified = tuple(node for node in token.merge if node in mutual) if self._checking else ()
        token.merge = mutual[: max(0, self.config.max_members - len(ring.members))]
        self._checking = bool(token.merge)
        return self.strangers.mergeable(verified) if verified else set()

    def _merge(self, now_us: int, verified: set[NodeId], effects: list[Effect]) -> None:
        """Form a ring together with strangers, if there are verified ones."""
        if verified:
            self._merging = True
            self.gathering.consider(verified)
            self._gather(now_us, "merge", effects)
