"""Who is to be on the next ring (000 §6): the sets of a Gather, and consensus on them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ordercast.core.identity import NodeId
from ordercast.totem.packets import Join


class Heard(Enum):
    """What a Join meant to its receiver (000 Fig. 4, the four branches)."""

    AGREES = "agrees"
    """Its sets are mine: its sender is committed to my proposal."""
    KNOWN = "known"
    """It says nothing that I do not know; its sender will learn from my Join."""
    IGNORED = "ignored"
    """I regard its sender as failed."""
    NEWS = "news"
    """My sets have grown; the round of consensus starts again."""


class Pledge(NamedTuple):
    """What a node said of itself in the Join by which it committed itself to my sets."""

    life: int
    ring_seq: int


class Gathering:
    """proc_set, fail_set and consensus of one node (000 §6.1).

    The sets only grow until a ring is installed (`settle`). That bounds the protocol, and it keeps who
    was left out of a failed recovery out of the next attempt, on which 000 §7.2 relies: the transitional
    membership must shrink on successive passes through Recovery.
    """

    def __init__(self, me: NodeId, limit: int) -> None:
        self._me = me
        self._limit = limit
        self.proc_set: set[NodeId] = {me}
        self.fail_set: set[NodeId] = set()
        self.pledges: dict[NodeId, Pledge] = {}
        """The other nodes that are committed to my sets, in this round of consensus."""
        self._failures: dict[tuple[NodeId, ...], int] = {}

    def settle(self, members: Iterable[NodeId]) -> None:
        """A ring with these members was installed (000 Fig. 7, Shift_to_Operational)."""
        self.proc_set = set(members)
        self.fail_set = set()
        self._failures = {}

    def begin_round(self) -> None:
        """Nobody but me is committed to the sets now (Fig. 7, Shift_to_Gather)."""
        self.pledges = {}

    @property
    def proposal(self) -> tuple[NodeId, ...]:
        """The membership of the ring to be formed, in token order."""
        return tuple(sorted(self.proc_set - self.fail_set))

    @property
    def agreed(self) -> bool:
        """Every member of the proposal is committed to it."""
        return self.pledges.keys() >= self.proc_set - self.fail_set - {self._me}

    def consider(self, nodes: Iterable[NodeId]) -> None:
        """Think of further nodes as members, as far as the limit on a ring's size allows."""
        for node in sorted(nodes):
            if len(self.proc_set) < self._limit:
                self.proc_set.add(node)

    def fail(self, nodes: Iterable[NodeId]) -> None:
        """Regard nodes as failed."""
        for node in nodes:
            if node in self.proc_set and node != self._me:
                self.fail_set.add(node)

    def fail_silent(self) -> None:
        """The Consensus timeout expired: regard everyone as failed who is not committed (Fig. 4)."""
        self.fail(self.proc_set - self.pledges.keys())

    def fail_repeated(self, members: tuple[NodeId, ...], attempts: int) -> None:
        """An attempt at these members failed. After so many, force a further failure (§6.2.2).

        The paper only says that one is forced, to prevent the repetition of a proposed membership. We
        give up the one hop that this node cannot vouch for: its successor on that ring.
        """
        count = self._failures.get(members, 0) + 1
        self._failures[members] = count
        if count >= attempts:
            self.fail({members[(members.index(self._me) + 1) % len(members)]})

    def hear(self, join: Join) -> Heard:
        """Take a Join from another node (000 Fig. 4)."""
        proc_set, fail_set = set(join.proc_set), set(join.fail_set)
        if join.sender in self.fail_set:
            return Heard.IGNORED
        if proc_set == self.proc_set and fail_set == self.fail_set:
            self.pledges[join.sender] = Pledge(join.life, join.ring_seq)
            return Heard.AGREES
        if proc_set <= self.proc_set and fail_set <= self.fail_set:
            return Heard.KNOWN
        if len(proc_set | self.proc_set) > self._limit:
            return Heard.IGNORED
        self.proc_set |= proc_set
        if self._me in fail_set:
            self.fail({join.sender})
        else:
            self.fail(fail_set)
        return Heard.NEWS
