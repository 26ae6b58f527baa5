"""Forming a ring (000 §6, §7): from the first suspicion to the installed configuration.

Follow a failure: a timer or a Join leads to `gather`; agreement to `_propose` or `on_commit`; the Commit
token's second visit to `_recover`; and the recovered ring to `_install`. `states.NEXT` lists every change
of state there is.
"""

from __future__ import annotations

from collections.abc import Set
from functools import reduce

from ordercast.core.contract import (
    CancelTimer,
    Drop,
    Effect,
    Install,
    Multicast,
    Persist,
    SetTimer,
    Shift,
    Start,
)
from ordercast.core.identity import Configuration, ConfigurationId, Kind, NodeId
from ordercast.core.lamport import LamportClock
from ordercast.core.randomness import RandomStream
from ordercast.core.wire import FORGED_SENDER
from ordercast.totem.braking import Braking
from ordercast.totem.circulation import Outgoing, work
from ordercast.totem.config import TotemConfig
from ordercast.totem.limits import Limits
from ordercast.totem.membership import Gathering, Heard
from ordercast.totem.merge_detection import MergeDetection
from ordercast.totem.numbers import RingNumbers
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, Announce, Commit, Entry, Join, Recovered, Token
from ordercast.totem.recovery import Exchange, Obligations, settle
from ordercast.totem.states import NEXT, State
from ordercast.totem.storage import recall, store
from ordercast.totem.token_passing import TOKEN_LOSS, TokenPassing
from ordercast.totem.visits import Scheduling
from ordercast.totem.waits import Rotations, Waits

JOIN_TIMER = "join"
CONSENSUS = "consensus"
ANNOUNCE_TIMER = "announce"


class Formation:
    """The membership and recovery protocols of one node, and the state they share with ordering."""

    def __init__(
        self,
        me: NodeId,
        config: TotemConfig,
        *,
        outbox: Outgoing,
        passing: TokenPassing,
        waits: Waits,
        rotations: Rotations,
        braking: Braking,
        stats: dict[str, float],
        scheduling: Scheduling,
        clock: LamportClock | None = None,
    ) -> None:
        """A node that has not been started, and what it orders messages with on whatever ring it is."""
        self.me = me
        self.config = config
        self._configured = config
        self._outbox = outbox
        self._clock = clock
        self._scheduling = scheduling
        self._passing = passing
        self._waits = waits
        self._rotations = rotations
        self._braking = braking
        self._stats = stats
        self.state = State.OPERATIONAL
        self.gathering = Gathering(me, config.ring_limit)
        self.merge_detection = MergeDetection(
            me, config.announce_us, config.heard_us, config.consensus_us, config.ring_limit
        )
        self.obligations = Obligations()
        self.random = RandomStream(0)
        self.life = 0
        """Tells the others this life from earlier ones (`Join.life`)."""
        self.numbers = RingNumbers(self.random)
        self.ring_seq = 0
        """The highest ring sequence number accepted (my_ring_id.seq); on stable storage."""
        self.ring = Ring(ConfigurationId(0, me), (me,), me, config)
        """The ring of the configuration that is installed: in Recovery, the old ring."""
        self.own_token: Token | None = None
        """The token of a ring of one: it never leaves the machine."""
        self.forming: Commit | None = None
        """The Commit token accepted last, while in Commit or Recovery."""
        self.exchange: Exchange | None = None
        """The recovery under way, while in Recovery."""
        self.installed = False
        """A ring was installed; who orders messages on it takes note, and clears this."""
        self._merging = False
        """My Joins tell verified strangers to come along."""
        self._installed_us = 0
        self._calm_hops = 0
        """When the ring was installed, and from which token_seq strangers may disturb it; see `settled`."""

    def start(self, now_us: int, start: Start, effects: list[Effect]) -> None:
        """Form a singleton ring, then look for others (000 §6.2.2, "When a processor starts")."""
        self._draw(RandomStream(start.seed))
        self.ring_seq = self.numbers.first(recall(self.me, start.stored))
        self.ring = Ring(
            ConfigurationId(self.ring_seq, self.me), (self.me,), self.me, self.config, clock=self._clock
        )
        self.own_token = Token(self.ring.id)
        self._waits.begin(now_us, self.ring.members)
        effects.append(Persist(store(self.ring_seq)))
        effects.append(Install(Configuration(self.ring.id, Kind.REGULAR, self.ring.members)))
        self.gathering.settle(self.ring.members)
        self.gather(now_us, "started", effects)

    def _draw(self, stream: RandomStream) -> None:
        """Take the stream of this life's seed, and draw what is drawn once."""
        self.random = stream
        self.life = stream.bits(32)
        self.numbers = RingNumbers(stream)

    def on_distance(self, round_trip_us: int, effects: list[Effect]) -> None:
        """The peers are so far away: from now on, timeouts that fit.

        A wait for the token that was made for peers further away begins anew: if they are gone, that is
        noticed as soon as it would be otherwise.
        """
        before_us = self.config.token_loss_us
        self.config = config = self._configured.stretched(round_trip_us)
        self._passing.retime(config)
        if config.token_loss_us < before_us and (self.forming is not None or not self.ring.alone):
            self._passing.wait_anew(self.state, self._waits.total_us, effects)
        self.merge_detection.retime(config.announce_us, config.heard_us, config.consensus_us)

    def _shift(self, because: str, effects: list[Effect]) -> None:
        """Enter the state that the reason leads to."""
        following = NEXT[self.state].get(because)
        assert following is not None, f"node {self.me}: {because!r} leads nowhere from {self.state}"
        self.state = following
        effects.append(Shift(following, because))

    def on_token_loss(self, now_us: int, effects: list[Effect]) -> None:
        """Token Loss timeout expired (Figs 3 to 6)."""
        if self.state is State.GATHER:
            self.gathering.fail_repeated(self.gathering.proposal, self.config.max_attempts)
            self.gather(now_us, "no commit token", effects)
        elif self.state is State.OPERATIONAL:
            self.gather(now_us, "token lost", effects)
        else:
            self._abandon(now_us, "token lost", effects)

    def on_consensus_timeout(self, now_us: int, effects: list[Effect]) -> None:
        """Consensus timeout expired before everyone agreed (Fig. 4)."""
        if self.gathering.agreed and self.gathering.proposal == (self.me,):
            self._propose(now_us, effects)
        else:
            self.gathering.fail_silent()
            self.gather(now_us, "no consensus", effects)

    # --- Gather ---------------------------------------------------------------------------------

    def gather(self, now_us: int, because: str, effects: list[Effect], join: Join | None = None) -> None:
        """Begin a round of consensus (Fig. 7, Shift_to_Gather), perhaps because of a Join.

        Its sender is committed to the sets in it; if they are now mine too, that counts in this round.
        """
        self._shift(because, effects)
        self._passing.give_up(effects)
        self.merge_detection.stop_checking()
        self.gathering.begin_round()
        self.send_join(effects)
        config = self.config
        timeout_us = config.consensus_us + config.consensus_member_us * len(self.gathering.proc_set)
        effects.append(SetTimer(CONSENSUS, self.random.between(timeout_us, timeout_us * 5 // 4)))
        if join is not None and self.gathering.hear(join) is Heard.AGREES:
            self._agree(now_us, effects)

    def _abandon(self, now_us: int, because: str, effects: list[Effect], join: Join | None = None) -> None:
        """Give up the ring being formed (Fig. 6, Token Loss timeout). What is owed to the old one stays."""
        assert self.forming is not None
        self.gathering.fail_repeated(self.forming.members, self.config.max_attempts)
        self._stats["attempts_failed"] += 1
        self.forming = None
        self.exchange = None
        self.gather(now_us, because, effects, join)

    def send_join(self, effects: list[Effect]) -> None:
        """Tell all which nodes this one would form a ring with, and which it believes failed (000 §6.1)."""
        gathering = self.gathering
        join = Join(
            self.me,
            self.ring_seq,
            tuple(sorted(gathering.proc_set)),
            tuple(sorted(gathering.fail_set)),
            merge=self._merging,
            life=self.life,
        )
        effects.append(Multicast(join.encode()))
        effects.append(SetTimer(JOIN_TIMER, self.random.spread(self.config.join_us)))

    def on_join(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """Join message received (Figs 3 to 6)."""
        if join.sender == self.me:
            effects.append(Drop("own packet"))
            return
        if self.merge_detection.outdated(now_us, join.sender, join.life, join.ring_seq):
            effects.append(Drop("outdated join"))
            return
        self.merge_detection.unsettle(join.sender)
        if join.leave:
            self._on_leave(now_us, join, effects)
        elif self.state is State.OPERATIONAL:
            if join.sender in self.ring.members or self._invited(now_us, join):
                self._merging = self._merging or join.merge
                self.gathering.hear(join)
                self.gather(now_us, "join heard", effects, join)
            else:
                self._meet(now_us, join.sender, effects)
        elif self.state is State.GATHER:
            self._hear(now_us, join, effects)
        elif self.forming is not None and join.sender in self.forming.members:
            place = self.forming.members.index(join.sender)
            if join.ring_seq >= self.ring_seq or join.life != self.forming.lives[place]:
                # it has abandoned the ring that I am forming, or forgotten it
                self.gathering.hear(join)
                self._abandon(now_us, "join heard", effects, join)
        else:
            effects.append(Drop("join of a stranger"))

    def _invited(self, now_us: int, join: Join) -> bool:
        """Whether a stranger's Join asks this ring, as a whole, and at a time when it may be disturbed.

        One that has given up a part of the ring would only tear it apart, and the parts would do the same to
        each other.
        """
        members = self.ring.members
        whole = set(members) <= set(join.proc_set) and not set(members) & set(join.fail_set)
        return join.merge and whole and self.settled(now_us)

    def _hear(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """Join message received in Gather (Fig. 4)."""
        agreed_before = self.gathering.agreed
        match self.gathering.hear(join):
            case Heard.NEWS:
                self.gather(now_us, "news", effects, join)
            case Heard.AGREES if not agreed_before:
                self._agree(now_us, effects)
            case Heard.IGNORED:
                effects.append(Drop("join of a failed node"))

    def _agree(self, now_us: int, effects: list[Effect]) -> None:
        """Record that `node` agrees to the sets of this node. If all do, the ring can be formed (§6.2.2)."""
        if self.gathering.agreed:
            if self.gathering.proposal[0] == self.me:
                self._propose(now_us, effects)
            else:
                effects.append(CancelTimer(CONSENSUS))
                effects.append(SetTimer(TOKEN_LOSS, self.config.forming_us))

    def _on_leave(self, now_us: int, join: Join, effects: list[Effect]) -> None:
        """A node says that it goes: no need to wait until it is missed."""
        if not self.part_with(now_us, join.sender, "member left", effects):
            effects.append(Drop("join of a stranger"))

    def part_with(self, now_us: int, node: NodeId, because: str, effects: list[Effect]) -> bool:
        """Form a ring without the node, if it is concerned in the one there is or is to be."""
        concerned = self.forming.members if self.forming is not None else self.gathering.proc_set
        if node == self.me or node not in concerned or node in self.gathering.fail_set:
            return False
        self.gathering.fail({node})
        if self.forming is not None:
            self._abandon(now_us, because, effects)
        else:
            self.gather(now_us, because, effects)
        return True

    # --- Commit ---------------------------------------------------------------------------------

    def _propose(self, now_us: int, effects: list[Effect]) -> None:
        """The representative generates the Commit token (000 §6.2.2)."""
        members = self.gathering.proposal
        pledges = self.gathering.pledges
        told = [pledges[node] for node in members if node != self.me]
        highest = max((pledge.ring_seq for pledge in told), default=0)
        known = self.numbers.follow(now_us, highest, self.ring_seq)
        ring = ConfigurationId(self.numbers.after(known), self.me)
        lives = (self.life, *(pledge.life for pledge in told))
        forming = self._commit(now_us, "consensus", Commit(ring, members, 0, (), lives), effects)
        if len(members) == 1:
            self._recover(now_us, forming, effects)

    def on_commit(self, now_us: int, commit: Commit, sender: NodeId, effects: list[Effect]) -> None:
        """Commit token received (Figs 4 to 6): from the predecessor on the ring that it is to form."""
        size = len(commit.members)
        place = commit.members.index(self.me) if self.me in commit.members else -1
        if place != commit.memb_index % size:
            effects.append(Drop("commit token for another"))
        elif sender != commit.members[place - 1]:
            effects.append(Drop(FORGED_SENDER))
        elif self.state is State.GATHER and commit.memb_index < size:
            agreed_to = commit.members == self.gathering.proposal and commit.lives[place] == self.life
            if not agreed_to or commit.ring.seq <= self.ring_seq:
                effects.append(Drop("commit token not agreed to"))
            elif self.numbers.reach(now_us, commit.ring.seq, self.ring_seq):
                self._commit(now_us, "commit token", commit, effects)
            else:
                self._catch_up(now_us, commit.ring.seq, effects)
        elif self.forming is None or commit.ring != self.forming.ring:
            effects.append(Drop("commit token of another ring"))
        elif self.state is State.COMMIT and size <= commit.memb_index and self._signed(commit, place):
            self._recover(now_us, commit, effects)
        elif (
            self.exchange is not None and commit.memb_index == 2 * size and self.exchange.ring.token_seq == 0
        ):
            self._passing.moved(now_us, effects)
            self.visit_recovery(now_us, Token(commit.ring), self.exchange, effects)
        else:
            effects.append(Drop("redundant commit token"))

    def _catch_up(self, now_us: int, ring_seq: int, effects: list[Effect]) -> None:
        """The others' numbers are further on than this node follows at once: follow a step, agree again."""
        effects.append(Drop("ring number out of reach"))
        if self.gathering.agreed:
            self.ring_seq = self.numbers.follow(now_us, ring_seq, self.ring_seq)
            effects.append(Persist(store(self.ring_seq)))
            self.gather(now_us, "no commit token", effects)

    def _signed(self, commit: Commit, place: int) -> bool:
        """Whether a Commit token still says of me what I entered on its first rotation."""
        assert self.forming is not None
        return commit.entries[place] == self.forming.entries[place]

    def _commit(self, now_us: int, because: str, commit: Commit, effects: list[Effect]) -> Commit:
        """Agree to a ring: add what the others must know, and pass it on (Fig. 7, Shift_to_Commit).

        The number is durable before anyone else can learn that this node accepted it; so no later life
        can use it again, as representative or as member.
        """
        self._shift(because, effects)
        self.ring_seq = commit.ring.seq
        effects.append(Persist(store(self.ring_seq)))
        old = self.ring
        told = self.obligations.received_flg, self.config.limits, self._scheduling.rate_of(self.me)
        entry = Entry(self.me, old.id, old.window.aru, old.delivered, *told)
        self.forming = commit._replace(entries=(*commit.entries, entry))
        effects.append(CancelTimer(JOIN_TIMER))
        effects.append(CancelTimer(CONSENSUS))
        self._pass_commit(now_us, self.forming, effects)
        return self.forming

    def _pass_commit(self, now_us: int, commit: Commit, effects: list[Effect]) -> None:
        size = len(commit.members)
        index = commit.memb_index + 1
        if size > 1:
            raw = commit._replace(memb_index=index).encode()
            self._passing.send(now_us, commit.members[index % size], raw, effects)

    # --- Recovery -------------------------------------------------------------------------------

    def _recover(self, now_us: int, commit: Commit, effects: list[Effect]) -> None:
        """Everyone is committed: exchange the old ring's messages (Fig. 7, Shift_to_Recovery)."""
        self._shift("commit token returned", effects)
        self._passing.moved(now_us, effects)
        if self.me == commit.members[0]:
            commit = commit._replace(visits=self._scheduling.plan(commit.rates))
        self.forming = commit
        self._pass_commit(now_us, commit, effects)
        limits = reduce(Limits.smallest, (entry.limits for entry in commit.entries))
        ring = Ring(commit.ring, commit.members, self.me, self.config, limits, self._clock)
        self.exchange = Exchange(ring, self.ring, commit, self.obligations)
        self._rotations.forget()
        if ring.alone:
            self._install(now_us, self.exchange, effects)

    def _install(self, now_us: int, exchange: Exchange, effects: list[Effect]) -> None:
        """Steps 2 to 6 of 000 §7.2 as one atomic action (Fig. 7, Shift_to_Operational)."""
        assert self.forming is not None
        settle(exchange, self.ring, self.obligations, effects)
        ring = exchange.ring
        self.ring = ring
        ring.final = 0 if ring.alone else -1
        self._installed_us = now_us
        hops = 2 * (len(self.forming.visits) or len(ring.members))
        self._calm_hops = 0 if ring.alone else ring.token_seq + hops
        self._scheduling.begin(now_us, ring.members, self.forming.rates, self.forming.visits)
        ring.rates = self._scheduling.rates
        self.obligations = Obligations()
        lives = self.forming.lives
        self.forming = None
        self.exchange = None
        self.gathering.settle(ring.members)
        self.merge_detection.installed(now_us, ring.id, ring.members, lives)
        self._outbox.rewind()
        self._outbox.fit(ring.limits)
        self._merging = False
        self.own_token = Token(ring.id) if ring.alone else None
        self._waits.begin(now_us, ring.members)
        self._braking.by = NOBODY
        self._outbox.closed = False
        self._stats["rings"] += 1
        self._shift("recovered", effects)
        ring.deliver(effects)
        self.announce(now_us, effects)
        effects.append(SetTimer(ANNOUNCE_TIMER, self.random.spread(self.config.consensus_us)))
        self.installed = True

    def visit_recovery(self, now_us: int, token: Token, exchange: Exchange, effects: list[Effect]) -> None:
        """One visit of the token on a ring that is being recovered (000 Fig. 6)."""
        ring = exchange.ring
        if self._braking.mine or token.brake:
            self._braking.mark(ring, token)
        arrived_seq = token.seq
        still = ring.is_still(token)
        visit = work(now_us, ring, token, exchange, effects, accelerated=False)
        self._stats["retransmissions"] += visit.resent
        if visit.failed is not None:
            self.gathering.fail({visit.failed})
            self._abandon(now_us, "failure to receive", effects)
            return
        exchange.update(token, still)
        waits_us = max(sum(token.holds), self.config.forming_us // 4)
        self._passing.pass_on(now_us, ring, token, arrived_seq, True, waits_us, effects)
        if exchange.complete:
            if exchange.sound:
                self._install(now_us, exchange, effects)
            else:
                self._abandon(now_us, "failure to receive", effects)

    def on_recovered(self, packet: Recovered, effects: list[Effect]) -> None:
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

    # --- strangers ------------------------------------------------------------------------------

    def on_announce(self, now_us: int, announce: Announce, effects: list[Effect]) -> None:
        """A ring shows itself: remember who hears whom, and show ours (merge detection)."""
        if self.merge_detection.outdated(now_us, announce.sender, announce.life, announce.ring.seq):
            effects.append(Drop("outdated announce"))
        elif announce.sender in self.ring.members:
            effects.append(Drop("announce of a member"))
        else:
            self._meet(now_us, announce.sender, effects)
            self.merge_detection.learn(now_us, announce)
            self._merge_alone(now_us, effects)

    def _meet(self, now_us: int, stranger: NodeId, effects: list[Effect]) -> None:
        """A stranger spoke: let it know at once that it is heard, if that is news."""
        if self.merge_detection.hear(now_us, stranger) and self.state is State.OPERATIONAL:
            self.announce(now_us, effects)

    def announce(self, now_us: int, effects: list[Effect]) -> None:
        """Show the ring to strangers, but not too often."""
        announce = self.merge_detection.announce(now_us, self.ring, self.life)
        if announce is not None:
            effects.append(Multicast(announce.encode()))

    def on_announce_timer(self, now_us: int, effects: list[Effect]) -> None:
        """The representative announces always, others while there are strangers to answer."""
        if self.state is State.OPERATIONAL:
            if self.me == self.ring.representative or self.merge_detection.heard(now_us):
                self.announce(now_us, effects)
            effects.append(SetTimer(ANNOUNCE_TIMER, self.random.spread(self.config.announce_us)))
            self._merge_alone(now_us, effects)

    def settled(self, now_us: int) -> bool:
        """Whether strangers may disturb the ring yet.

        First everyone must have installed it, else who has not goes on regarding them as failed; and
        Joins that were sent while it was formed must be gone. Otherwise two rings can find each other
        and fail to merge, over and over, in step.
        """
        calm = now_us - self._installed_us >= self.config.consensus_us
        return calm and self.ring.token_seq >= self._calm_hops

    def _merge_alone(self, now_us: int, effects: list[Effect]) -> None:
        """On a ring of one there is nobody to ask whom the ring could merge with."""
        if self.ring.alone and self.state is State.OPERATIONAL:
            verified = self.merge_detection.mergeable(self.merge_detection.mutual(now_us))
            if verified:
                self.merge(now_us, verified, effects)

    def merge(self, now_us: int, verified: Set[NodeId], effects: list[Effect]) -> None:
        """Form a ring together with verified strangers, once this one is settled."""
        if self.settled(now_us):
            self._merging = True
            self.gathering.consider(verified)
            self.gather(now_us, "merge", effects)
