"""When the replicas that are here may go on with what they have. ``docs/decisions/replicated.md`` says why.

The sequencer family goes on in one partition only, and who is in it from one view to the next has everything.
Where voters are declared, any majority of them goes on. So of what a majority of the voters
keeps, somebody is in every later one; whoever has forgotten its state does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ordercast.core.identity import NodeId


class Quorum(Protocol):
    """Says whether replicas may go on; an empty sentence means yes, others say for whom they wait."""

    merges: bool
    """Every partition goes on by itself, and histories that part are merged."""

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId], *, stored: bool) -> str:
        """Whether the furthest history of these nodes' replicas has everything that was ever answered.

        `keepers` have forgotten nothing; `there` are those that may have anything. `stored`: some have a
        state on disk, so that others that have none may have lost theirs."""

    def begin(self, holders: Collection[NodeId], there: Collection[NodeId], *, others: bool) -> str:
        """Whether what is answered from now on is kept, where these nodes' replicas hold the chosen history.

        `others`: some replica that is here has another state still, or a disk that does not know of the round
        yet."""

    def kept(self, positions: Mapping[NodeId, int]) -> int:
        """Up to where the history is on enough disks, where these nodes have it up to these positions."""


class Always:
    """Replicas wait for nobody: the protocol has a primary partition of its own, in which whoever stayed has
    everything; or every partition goes on by itself, and histories that part are merged later."""

    def __init__(self, *, merges: bool = False) -> None:
        self.merges = merges

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId], *, stored: bool) -> str:
        """Always."""
        return ""

    def begin(self, holders: Collection[NodeId], there: Collection[NodeId], *, others: bool) -> str:
        """Always."""
        return ""

    def kept(self, positions: Mapping[NodeId, int]) -> int:
        """Nowhere: it is not known on whose disks it would have to be."""
        return 0


class Majority:
    """For several partitions of which that with most voters goes on."""

    merges = False

    def __init__(self, voters: Collection[NodeId]) -> None:
        self._voters = frozenset(voters)

    def _enough(self, nodes: Collection[NodeId]) -> bool:
        return 2 * len(self._voters & set(nodes)) > len(self._voters)

    def _all(self, there: Collection[NodeId]) -> bool:
        return self._voters <= set(there)

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId], *, stored: bool) -> str:
        """If a majority of the voters has forgotten nothing; or if all voters are here, so that nobody has
        more, and no disk can have had more."""
        if self._enough(keepers) or (self._all(there) and not stored):
            return ""
        away = _names(self._voters - set(there))
        if not away:
            return (
                f"of the voters {_names(self._voters)} only {_names(self._voters & set(keepers))} have a "
                "state: the disks of the others are empty or damaged, and what was answered may have been on "
                "them alone; bring these back, or empty all of them to begin anew"
            )
        return (
            f"of the voters {_names(self._voters)} only {_names(self._voters & set(keepers)) or 'none'} "
            "have a "
            f"state, and {away} may have a later one"
        )

    def begin(self, holders: Collection[NodeId], there: Collection[NodeId], *, others: bool) -> str:
        """If a majority of the voters holds it; or if all are here and nobody has anything else."""
        if self._enough(holders) or (self._all(there) and not others):
            return ""
        here, voters = _names(self._voters & set(holders)) or "none", _names(self._voters)
        return f"only {here} of the voters {voters} hold the state yet"

    def kept(self, positions: Mapping[NodeId, int]) -> int:
        """Up to where a majority of the voters has it."""
        reached = sorted((positions.get(node, 0) for node in self._voters), reverse=True)
        return reached[len(reached) // 2]


def quorum_of(voters: Collection[NodeId], primary_partition: bool) -> Quorum | None:
    """When replicas of a node's objects may go on; None where every partition goes on by itself.

    `voters`: of whom a majority is needed; `primary_partition`: the protocol goes on in one partition
    only."""
    if voters:
        return Majority(voters)
    return Always() if primary_partition else None


def _names(nodes: Collection[NodeId]) -> str:
    return ", ".join(map(str, sorted(nodes)))
