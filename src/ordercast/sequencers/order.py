"""The order of one view, as one of its members sees it: messages, places, who has what, delivery.

Messages (packets of them) and places arrive apart from each other, in any order. A member *has* a place if it
knows which message is there and has that message; `hgsn` is the place up to which it has all. `R` says the
same of every member, as far as it is known here, and everything else follows from it: a message is delivered
when enough members are known to have it, and given up when all are (002 §4.1, 004 §3.2.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from ordercast.core.contract import Deliver, Effect, Stable
from ordercast.core.identity import Batch, Guarantee, NodeId
from ordercast.core.packing import Reassembly
from ordercast.sequencers.packets import CONTINUED, CONTINUES, NOBODY, MessageKey, Msg, Placed
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import View

PLACE_SIZE = 64
"""What a place counts for beside its message, so that empty ones are bounded, too."""


class Order:
    """Messages and places of one view."""

    def __init__(self, view: View, me: NodeId, config: GroupConfig, at_least: Guarantee) -> None:
        """The order of a view that begins; levels of resilience below `at_least` are raised to it."""
        self.me = me
        self.view = view
        self.incarnations = dict(zip(view.members, view.incarnations, strict=True))
        self.N = dict.fromkeys(view.members, 1)
        """The expected lsn of the next message of each member (002 §4.1)."""
        self.R = dict.fromkeys(view.members, 0)
        """Up to which place each member is known to have everything (002 §4.1)."""
        self.BUF: dict[MessageKey, Msg] = {}
        """Messages that are not given up yet, whether they have a place or not (002 §4.1)."""
        self.places: dict[int, Placed] = {}
        """What is in each place (seqQ in 004), from the first that was not given up."""
        self.place_of: dict[MessageKey, int] = {}
        self.pending: dict[MessageKey, None] = {}
        """Messages that are here and have no place as far as is known here, in order of arrival (recvQ)."""
        self.sequenced = dict.fromkeys(view.members, 0)
        """The lsn of each member's last message up to `hgsn`."""
        self.gaps: dict[NodeId, int] = {}
        """By member, the first lsn that is missing although a later one is here."""
        self.hgsn = 0
        """Everything up to this place is here: the delivery status (002 §3); `R[me]`."""
        self.known = 0
        """The highest place that was heard of."""
        self.latest = 0
        """The highest place up to `hgsn` that holds a message."""
        self.last_own = 0
        """The highest place up to `hgsn` that holds a message of this member."""
        self.delivered = 0
        """Everything up to this place was handed to the application, or is null."""
        self.last_message = 0
        """The highest place at which a message ended that was handed to the application."""
        self.stable = 0
        """Everything up to this place is known to be with all in the token list."""
        self.floor = 0
        """Everything up to this place was given up."""
        self.floors = dict.fromkeys(view.members, 0)
        """The lsn of each member's last message that was given up."""
        self.cut_off = False
        """Whether what is missing here is gone everywhere, or contradicts what was delivered here."""
        self._top = dict.fromkeys(view.members, 0)
        self._most_unstable = max(config.max_unstable, 2 * len(view.members))
        self._span = self._most_unstable + config.batch + config.window
        self._keep_bytes = config.keep_bytes
        self._at_least = at_least
        self._reassembly = Reassembly(config.max_message_size)
        self._unstable: deque[Batch] = deque()
        self._ranks: list[int] = []
        self._changed = True
        self.turn_to(view)

    def turn_to(self, view: View) -> None:
        """The token list is this from now on; the members are the same.

        A level of resilience counts members of the token list. Where that list may change under way, whoever
        was taken off it stays a member: then nothing less than a majority of the *members* keeps a place from
        being given to another message (004 §4.2: "there is a lower bound on the RBP resiliency").
        """
        self.view = view
        self.core = view.core
        self.externals = len(view.core) < len(view.members)
        core, at_least = len(view.core), self._at_least
        majority = 1 if at_least is Guarantee.K1 else Guarantee.AGREED.needed(len(view.members))
        least = max(at_least.needed(core), majority)
        self._needed = {guarantee: max(guarantee.needed(core), least) for guarantee in Guarantee}
        self._kept = 0
        self._kept_upto = self.floor
        self._changed = True

    # --- what arrives ---------------------------------------------------------------------------

    def receive(self, msg: Msg) -> bool:
        """A message. False if it was here before, or is further ahead than any sender may be."""
        key = node, lsn = msg.origin, msg.lsn
        sequenced = self.sequenced[node]
        if lsn <= sequenced or key in self.BUF or lsn > sequenced + self._span:
            return False
        self.BUF[key] = msg
        if key not in self.place_of:
            self.pending[key] = None
        if lsn > self._top[node]:
            self._top[node] = lsn
        expected = self.N[node]
        if lsn == expected:
            buffer = self.BUF
            expected += 1
            while (node, expected) in buffer:
                expected += 1
            self.N[node] = expected
            if node in self.gaps:
                del self.gaps[node]
                if expected <= self._top[node]:
                    self.gaps[node] = expected
        elif lsn > expected:
            self.gaps[node] = expected
        return True

    def place(self, place: int, key: MessageKey, by: NodeId) -> bool:
        """Somebody says what is in a place. False if that is nothing new, too far ahead to be kept, or cannot
        be: a message has one place (002 Lemma 1). If that was told wrong, this member gets on no further, and
        the view is changed.
        """
        if place > self.known:
            self.known = place
        if place <= self.hgsn or place in self.places or place > self.hgsn + self._span:
            return False
        node, lsn = key
        if node != NOBODY and (key in self.place_of or lsn <= self.sequenced.get(node, lsn)):
            return False
        self.places[place] = Placed(node, lsn, by)
        if node != NOBODY:
            self.place_of[key] = place
            self.pending.pop(key, None)
        return True

    def learn(self, member: NodeId, place: int) -> None:
        """A member has everything up to a place."""
        if place > self.R[member]:
            self.R[member] = place
            self._changed = True
        if place > self.known:
            self.known = place

    def advance(self) -> None:
        """See how far everything is here now."""
        place = self.hgsn
        places, buffer = self.places, self.BUF
        while (placed := places.get(place + 1)) is not None:
            node, lsn, _ = placed
            if node != NOBODY:
                if (node, lsn) not in buffer or lsn != self.sequenced[node] + 1:
                    break
                self.sequenced[node] = lsn
                self.latest = place + 1
                if node == self.me:
                    self.last_own = place + 1
            place += 1
        if place > self.hgsn:
            self.hgsn = place
            self.learn(self.me, place)

    # --- what is missing ------------------------------------------------------------------------

    @property
    def missing(self) -> Hashable:
        """None if nothing is missing; else something that changes as soon as the first of it arrives."""
        if self.known > self.hgsn:
            return self.hgsn
        return tuple(self.gaps.items()) or None

    def wanted(self, limit: int) -> tuple[list[MessageKey], list[int]]:
        """The first messages and places that are missing, together at most ``limit``."""
        keys: dict[MessageKey, None] = {}
        numbers: list[int] = []
        for place in range(self.hgsn + 1, min(self.known, self.hgsn + self._span) + 1):
            if len(keys) + len(numbers) == limit:
                return list(keys), numbers
            placed = self.places.get(place)
            if placed is None:
                numbers.append(place)
            elif placed.node != NOBODY and (placed.node, placed.lsn) not in self.BUF:
                keys[placed.node, placed.lsn] = None
        for node, expected in self.gaps.items():
            for lsn in range(expected, self._top[node]):
                if len(keys) + len(numbers) == limit:
                    return list(keys), numbers
                if (node, lsn) not in self.BUF and lsn > self.sequenced[node]:
                    keys[node, lsn] = None
        return list(keys), numbers

    # --- placing --------------------------------------------------------------------------------

    def choose(self, limit: int) -> list[MessageKey]:
        """The first messages without a place, each sender's without a gap, at most ``limit``.

        Who asks has everything up to the last place: what is pending here was never given one (002 Lemma 1).
        """
        chosen: list[MessageKey] = []
        following: dict[NodeId, int] = {}
        for key in self.pending:
            if len(chosen) >= limit:
                break
            node, lsn = key
            if lsn == following.get(node, self.sequenced[node] + 1):
                chosen.append(key)
                following[node] = lsn + 1
        return chosen

    @property
    def unstable(self) -> int:
        """Places that not all in the token list are known to have."""
        return self.hgsn - self.stable

    @property
    def room(self) -> int:
        """How many places may be given out now, so that nobody has to keep more than is allowed.

        While the token goes round without a message, as many null places as there are members are not known
        to be with all: they must leave room.
        """
        self.rank()
        return self._most_unstable - self.unstable

    def rank(self) -> list[int]:
        """What the members of the token list have, the most first."""
        if self._changed:
            self._changed = False
            self._ranks = sorted([self.R[node] for node in self.core], reverse=True)
            self.stable = self._ranks[-1]
        return self._ranks

    # --- delivery -------------------------------------------------------------------------------

    def deliver(self, effects: list[Effect]) -> None:
        """Deliver in order what enough members are known to have (004 §3.2.2; 002 §4.2, F-resilience)."""
        place = self.delivered
        if place == self.hgsn:
            return
        ranks = self.rank()
        needed = self._needed
        while place < self.hgsn:
            node, lsn, _ = self.places[place + 1]
            if node != NOBODY:
                msg = self.BUF[node, lsn]
                level = needed[msg.guarantee]
                if level > len(ranks) or ranks[level - 1] <= place:
                    break
                self.hand_over(place + 1, msg, effects)
            place += 1
        self.delivered = place

    def hand_over(self, place: int, msg: Msg, effects: list[Effect]) -> None:
        """Deliver the messages that end in a packet."""
        origin, _, number, _, guarantee, flags, payloads, _, _ = msg
        slot = 0
        if flags or self._reassembly.partial:
            continues, continued = bool(flags & CONTINUES), bool(flags & CONTINUED)
            slot, payloads = self._reassembly.take(origin, number, payloads, continues, continued)
            if not payloads:
                return
        self.last_message = place
        life = self.incarnations[origin]
        batch = Batch(self.view.id, place, slot, origin, life, number + slot, guarantee, payloads)
        effects.append(Deliver(batch))
        self._unstable.append(batch)

    # --- garbage collection (004 §3.2.2, §4.4.3) ------------------------------------------------

    def discard(self, effects: list[Effect]) -> None:
        """Give up what nobody will ask for again: all have it, and it was delivered here.

        Members outside the token list may still need it. While there are some, as much is kept for them as
        may be.
        """
        self.rank()
        upto = min(self.stable, self.delivered)
        unstable = self._unstable
        if unstable and unstable[0].seq <= upto:
            stable = [unstable.popleft()]
            while unstable and unstable[0].seq <= upto:
                stable.append(unstable.popleft())
            effects.append(Stable(stable))
        if self.externals:
            for place in range(self._kept_upto + 1, upto + 1):
                self._kept += self._size(place)
            self._kept_upto = max(self._kept_upto, upto)
            while self._kept > self._keep_bytes and self.floor < self._kept_upto:
                self._kept -= self._size(self.floor + 1)
                self._give_up_next()
        else:
            while self.floor < upto:
                self._give_up_next()

    def _size(self, place: int) -> int:
        placed = self.places[place]
        message = 0 if placed.node == NOBODY else len(self.BUF[placed.node, placed.lsn].raw)
        return PLACE_SIZE + message

    def _give_up_next(self) -> None:
        self.floor += 1
        node, lsn, _ = self.places.pop(self.floor)
        if node != NOBODY:
            del self.BUF[node, lsn], self.place_of[node, lsn]
            self.floors[node] = lsn

    # --- an intermediate view (004 §4.3.5, §4.4.4) ----------------------------------------------

    def cut(self, upto: int) -> bool:
        """The order goes on behind ``upto``: what was placed beyond that has no place any more.

        Nothing of that was delivered anywhere: a majority would have had it, and one of them would have said
        so. False if some was delivered here all the same: then somebody did not tell the truth, and this
        member can go on with nobody.
        """
        if upto < max(self.last_message, self.floor):
            return False
        for place in sorted(place for place in self.places if place > upto):
            node, lsn, _ = self.places.pop(place)
            if node != NOBODY:
                del self.place_of[node, lsn]
                if (node, lsn) in self.BUF:
                    self.pending[node, lsn] = None
                if lsn <= self.sequenced[node]:
                    self.sequenced[node] = lsn - 1
        self.hgsn = min(self.hgsn, upto)
        self.delivered = min(self.delivered, upto)
        self.latest = min(self.latest, self.hgsn)
        self.last_own = min(self.last_own, self.hgsn)
        self.known = upto
        self.R = {member: min(place, upto) for member, place in self.R.items()}
        self._changed = True
        return True
