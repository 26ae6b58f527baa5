"""Recovery (000 §7): bringing an old ring's messages across to the new one, and settling accounts.

`Obligations` is what a node owes to its old ring until it installs a new one; it survives failed attempts.
`Exchange` is one attempt: the retransmission of old-ring messages on one new ring.
`settle` carries out steps 2 to 5 of §7.2, as one atomic action.
"""

from __future__ import annotations

from ordercast.core.contract import Effect, Install
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, NodeId
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import Commit, Data, Recovered, Token, encode_recovered

STILL_VISITS = 3
"""Rotations in which nothing is broadcast, after which nobody has anything left to retransmit."""


class Obligations:
    """What must be delivered before a new ring is installed, over any number of failed attempts.

    Once `received_flg` is set some other member may have installed the ring of that attempt and have
    delivered messages as safe in its transitional configuration. So the set of old-ring messages is
    then frozen, and `deliver_memb` stays as it was even when the next attempt has fewer members.
    """

    def __init__(self) -> None:
        self.received_flg = False
        """All messages that the members of the transitional configuration had are here."""
        self.deliver_memb: frozenset[NodeId] = frozenset()
        """Whose messages are delivered in the transitional configuration."""
        self.high_ring_delivered = 0
        """Up to here some member delivered on the old ring; so everyone does."""


class Exchange:
    """One attempt to recover the old ring's messages on a new ring."""

    def __init__(self, ring: Ring, old: Ring, commit: Commit, obligations: Obligations) -> None:
        self.ring = ring
        """The new ring."""
        self._old = old
        self._duty = obligations
        mine = [entry for entry in commit.entries if entry.old_ring == old.id]
        self.trans_memb = tuple(entry.node for entry in mine)
        """Who comes from the same old ring, in ascending order (my_trans_memb)."""
        self._queue: dict[int, Data] = {}
        """Old-ring messages to be retransmitted, by old sequence number (retrans_message_queue)."""
        self._set_by_me = False
        self._quiet_visits = 0
        """Successive visits at which retrans_flg left as false (my_retrans_flg_count)."""
        self._install_seq = 0
        self._still_visits = 0
        """Successive visits before which nothing was broadcast for a rotation."""
        if not all(entry.received_flg for entry in mine):
            # Somebody lacks messages, so nobody can have installed an earlier attempt's ring. The obligations
            # starts afresh. (The paper leaves my_received_flg set here. Then a node that took part in
            # this attempt and one that did not could come together in a third with different
            # deliver_memb, both claiming to have received everything.)
            obligations.received_flg = False
            obligations.deliver_memb = frozenset(self.trans_memb)
            obligations.high_ring_delivered = max(entry.high_delivered for entry in mine)
            low_ring_aru = min(entry.aru for entry in mine)
            # What the old ring itself recovered was with all its members before they installed it: an entry
            # that says otherwise is wrong, and nobody needs it.
            self._queue = {s: p for s, p in old.window.after(low_ring_aru) if isinstance(p, Data)}

    @property
    def backlog(self) -> int:
        """Packets that wait to be retransmitted."""
        return len(self._queue)

    def next_packet(self, ring: Ring, seq: int, most: int, effects: list[Effect]) -> Recovered | None:
        """The next old-ring message, in an envelope with a place on the new ring; as large as it is."""
        old_seq = next(iter(self._queue), None)
        if old_seq is None:
            return None
        return encode_recovered(ring.id, seq, ring.me, self._queue.pop(old_seq))

    def receive(self, packet: Recovered) -> None:
        """Keep an old-ring message that a member retransmitted, if it is from my old ring (Fig. 6)."""
        data = packet.old
        if (data.ring_seq, data.ring_rep) == self._old.id and self._old.admits(data):
            self._old.window.add(data.seq, data)
            self._queue.pop(data.seq, None)

    def update(self, token: Token, still: bool = False) -> None:
        """Say whether retransmissions remain, and notice when none do (Fig. 6, before forwarding).

        ``still``: nothing was broadcast for a rotation, and all have everything. Who has something left would
        have broadcast it; a flag that stays set then was set by nobody, and is taken off the token.
        """
        self._still_visits = self._still_visits + 1 if still and not self._queue else 0
        if self._queue:
            if not token.retrans_flg:
                token.retrans_flg = True
                self._set_by_me = True
        elif token.retrans_flg and self._set_by_me:
            token.retrans_flg = False
            self._set_by_me = False
        if self._still_visits > STILL_VISITS:
            token.retrans_flg = False
        self._quiet_visits = 0 if token.retrans_flg else self._quiet_visits + 1
        if self._quiet_visits == 2:
            self._install_seq = token.seq
        if self._quiet_visits >= 2 and self.ring.window.aru >= self._install_seq and self.sound:
            self._duty.received_flg = True

    @property
    def complete(self) -> bool:
        """Everyone has everything, and everyone knows that everyone has (Fig. 6)."""
        return self._quiet_visits >= 3 and self.ring.safe >= self._install_seq

    @property
    def sound(self) -> bool:
        """What members said they delivered is here. It always is, unless an entry of the Commit token is
        wrong; then this attempt leads nowhere, and leaves no obligations behind."""
        return self._old.window.aru >= self._duty.high_ring_delivered


def settle(exchange: Exchange, old: Ring, obligations: Obligations, effects: list[Effect]) -> None:
    """Steps 2 to 5 of 000 §7.2: the rest of the old ring, the two configuration changes.

    The exchange is sound: up to `high_ring_delivered` everything is here, and therefore delivered now.

    Each change names what it ends and the last message before it, in the old ring's order. All who make the
    same change name the same place, because they deliver the same messages before it (000 §4.2): they hold
    the same messages of the old ring after the exchange, none of them has `safe` beyond
    `high_ring_delivered`, and what is delivered follows from these. See
    docs/decisions/configuration-changes.md.
    """
    new = exchange.ring
    old.safe = max(old.safe, obligations.high_ring_delivered)
    old.deliver(effects)
    between = transitional(new.id, exchange.trans_memb)
    effects.append(Install(between, Ended(old.id, old.last_message)))
    old.deliver_rest(obligations.deliver_memb, effects)
    regular = Configuration(new.id, Kind.REGULAR, new.members)
    effects.append(Install(regular, Ended(between.id, old.last_message)))


def transitional(new: ConfigurationId, trans_memb: tuple[NodeId, ...]) -> Configuration:
    """The configuration between an old ring and a new one.

    The paper gives its number as two less (000 §6.2.2) and as one less (§7.2) than the new ring's. Ring
    numbers step by four, so either is unique; two less it is.
    """
    return Configuration(ConfigurationId(new.seq - 2, trans_memb[0]), Kind.TRANSITIONAL, trans_memb)
