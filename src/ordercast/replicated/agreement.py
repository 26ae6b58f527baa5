"""Which history counts: what the replicas of an object agree on in each round.

A round begins with each regular configuration, and whenever a replica joins or leaves. Each replica tells, in
the order, how far the history is that it has. When all have told, the furthest is *chosen*, at the same
place of the order everywhere. The round is *active* once enough replicas hold it (`quorum.py`): from then on
commands are answered.

Where every partition goes on by itself, replicas may come with histories of which none has the others in it
(`histories.py`). Then the round chooses one that none of them has yet: what comes of merging these. It is
active once all replicas have merged them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.core.identity import NodeId
from ordercast.errors import ConfigProblem
from ordercast.process_groups.views import Process
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.histories import epoch_of, merged, tips
from ordercast.replicated.notes import Have, Members, Report, RoundId, Synced
from ordercast.replicated.quorum import Quorum

DONORS = 2
"""So many replicas keep a snapshot of one place for each that lacks the state."""


class Agreement:
    """The round that is under way, or settled."""

    def __init__(self, quorum: Quorum) -> None:
        self.round: RoundId | None = None
        self.members: tuple[Process, ...] = ()
        self.chosen: Head | None = None
        """The furthest history of a member, once all have told."""
        self.merges = quorum.merges
        """Whether histories are merged: there is no primary partition."""
        self.parts: tuple[Head, ...] = ()
        """The histories of which the chosen one is made, in the order in which they are merged; none: there
        is nothing to merge."""
        self.passed: Sequence[int] = ()
        """The epochs that the chosen history has passed through, where histories are merged."""
        self.epoch = 0
        """Of what is appended to it in this round: later than all that any of them takes part in."""
        self.synced = 0
        """Up to here the history of this epoch is on enough disks."""
        self.active = False
        self.why_not = "this replica has not joined the others yet"
        """Why it is not active, for people."""
        self.holders: set[Process] = set()
        """Replicas that have the state of the chosen history, and take part in the epoch."""
        self._sources: set[Process] = set()
        """Replicas that have the state."""
        self._quorum = quorum
        self._there: tuple[NodeId, ...] = ()
        self._told: dict[Process, Report] = {}
        self._synced: dict[NodeId, int] = {}

    def begin(self, round: RoundId, members: Sequence[Process], there: tuple[NodeId, ...]) -> None:
        """A round of these replicas begins, in a configuration of these nodes."""
        self.round, self.members, self._there = round, tuple(members), there
        self._told.clear()
        self._synced.clear()
        self.holders.clear()
        self.chosen, self.active, self.synced, self.parts = None, False, 0, ()
        self.why_not = "the replicas tell each other what they have"

    def end(self) -> None:
        """This replica is not among the others any more."""
        self.round, self.chosen, self.active = None, None, False
        self.why_not = "this replica is not among the others"

    @property
    def settled(self) -> bool:
        """Whether it is known which history counts."""
        return self.chosen is not None

    def report(self, sender: Process, report: Report) -> bool:
        """A replica tells what it has; whether the round is settled by that."""
        if self.settled or report.round != self.round or sender not in self.members:
            return False
        self._told[sender] = report
        if len(self._told) < len(self.members):
            return False
        if any(told.durable for told in self._told.values()):
            # a node that does not replicate the object may have it on disk all the same
            self._there = tuple(sorted(each.node for each in self._told))
        heads = {each: told.head for each, told in self._told.items() if told.head is not None}
        keepers = {
            each.node
            for each, head in heads.items()
            if head.epoch > START.epoch or self._told[each].remembers
        }
        stored = any(head.epoch > START.epoch and self._told[each].durable for each, head in heads.items())
        why_not = self._quorum.choose(keepers, self._there, stored=stored)
        if why_not or not heads:
            self.why_not = why_not or "no replica has a state"
            return False
        if self.merges:
            self._choose_among_parted()
            return True
        self.chosen = max(heads.values(), key=_place)
        furthest = [each for each, head in heads.items() if _place(head) == _place(self.chosen)]
        self.chosen = heads[min(furthest)]
        promised = max(told.promised for told in self._told.values())
        self.epoch = max(report.round.seq, promised + 1, self.chosen.epoch + 1)
        self._sources = {each for each, head in heads.items() if head == self.chosen}
        self.holders = {each for each in self._sources if not self._told[each].durable}
        return True

    def _choose_among_parted(self) -> None:
        """Choose the one history that has all others in it, or what comes of merging several."""
        assert self.round is not None
        self.epoch = epoch_of(self.round)
        found = tips(self._told)
        if len(found) == 1:
            (tip,) = found
        else:
            tip = merged(found, self.epoch)
            self.parts = tuple(part.head for part in found)
        self.chosen, self.passed = tip.head, tip.passed
        self._sources = {each for each, told in self._told.items() if told.head == self.chosen}
        self.holders = set(self._sources)

    def have(self, sender: Process, have: Have) -> None:
        """A replica has the state, and takes part."""
        if self.settled and have.round == self.round and sender in self.members:
            self._sources.add(sender)
            self.holders.add(sender)

    def sync(self, sender: Process, synced: Synced) -> None:
        """A replica has more of the history on disk."""
        if self.settled and synced.round == self.round and sender in self.members:
            before = self._synced.get(sender.node, 0)
            self._synced[sender.node] = max(before, synced.position)
            self.synced = self._quorum.kept(self._synced)

    def activate(self) -> bool:
        """Whether the round becomes active now."""
        if self.active or not self.settled:
            return False
        if self.parts and not self.complete:
            self.why_not = "the replicas merge their histories"
            return False
        others = any(
            told.head is not None
            and (told.durable or told.head.epoch > START.epoch)
            and each not in self.holders
            for each, told in self._told.items()
        )
        nodes = {each.node for each in self.holders}
        self.why_not = self._quorum.begin(nodes, self._there, others=others)
        self.active = not self.why_not
        return self.active

    # --- what was told --------------------------------------------------------------------------

    def head_of(self, process: Process) -> Head | None:
        """What a replica told that it has."""
        return self._told[process].head

    def sources(self, me: Process, part: Head | None = None) -> list[tuple[Process, int]]:
        """The others that hold the state, and their ports: each replica asks them in another order, and who
        represents the configuration last. With a `part`, those that told of that history, too."""
        rep = None if self.round is None else self.round.rep
        others = [
            each
            for each in self.members
            if each != me and (each in self._sources or (part is not None and self.head_of(each) == part))
        ]
        begin = (self.members.index(me) if me in self.members else 0) % max(1, len(others))
        turned = others[begin:] + others[:begin]
        return [(each, self._told[each].port) for each in sorted(turned, key=lambda each: each.node == rep)]

    def gives(self, me: Process) -> bool:
        """Whether a replica is among the first of whom one that lacks the state is to get it."""
        if self.parts:
            return False  # all had it before the round became active
        lacking = [each for each, told in self._told.items() if told.head != self.chosen]
        return any(me == source for each in lacking for source, _ in self.sources(each)[:DONORS])

    @property
    def complete(self) -> bool:
        """Whether all have the state."""
        return self.settled and self.holders.issuperset(self.members)

    def settlement(self) -> Members:
        """What the round has settled beside the history, as an entry of it."""
        there = sorted(self._told)
        known = frozenset[str].intersection(*(frozenset(told.known) for told in self._told.values()))
        fields = frozenset[str].intersection(*(frozenset(told.fields) for told in self._told.values()))
        clocks_us = [self._told[each].time_us for each in there]
        return Members(there, clocks_us, sorted(known), sorted(fields))


def unlike(report: Report, at_primary: bool, applied: Head) -> ConfigProblem | None:
    """Why a replica cannot be one with another that has told this; of two, who is new has to go."""
    if report.at_primary == at_primary or applied.epoch > START.epoch:
        return None
    other = "the primary alone carries" if report.at_primary else "all carry"
    return ConfigProblem(
        f"at other nodes {other} out the commands of this object: give `run` alike at all nodes"
    )


def _place(head: Head) -> tuple[int, int]:
    return head.epoch, head.position
