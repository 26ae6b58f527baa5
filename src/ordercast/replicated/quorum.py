"""When the replicas that are here may go on with what they have. ``docs/decisions/replicated.md`` says why.

The sequencer family goes on in one partition only, and who is in it from one view to the next has everything.
In Totem with a primary partition, any majority of the voters goes on. So of what a majority of the voters
keeps, somebody is in every later one; whoever has forgotten its state does not count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ordercast.core.identity import NodeId


class Quorum(Protocol):
    """Says whether replicas may go on; an empty sentence means yes, others say for whom they wait."""

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId]) -> str:
        """Whether the furthest history of these nodes' replicas has everything that was ever answered.

        `keepers` have a state that is not the initial one; `there` are the members of the configuration."""

    def begin(self, holders: Collection[NodeId], there: Collection[NodeId], *, others: bool) -> str:
        """Whether what is answered from now on is kept, where these nodes' replicas hold the chosen history.

        `others`: some replica that is here has another state still."""


class Chain:
    """For protocols with a primary partition of their own."""

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId]) -> str:
        """Always: who stayed in the primary partition has everything."""
        return ""

    def begin(self, holders: Collection[NodeId], there: Collection[NodeId], *, others: bool) -> str:
        """Always."""
        return ""


class Majority:
    """For several partitions of which that with most voters goes on."""

    def __init__(self, voters: Collection[NodeId]) -> None:
        self._voters = frozenset(voters)

    def _enough(self, nodes: Collection[NodeId]) -> bool:
        return 2 * len(self._voters & set(nodes)) > len(self._voters)

    def _all(self, there: Collection[NodeId]) -> bool:
        return self._voters <= set(there)

    def choose(self, keepers: Collection[NodeId], there: Collection[NodeId]) -> str:
        """If a majority of the voters kept its state; or if all voters are here, so that nobody can have
        more."""
        if self._enough(keepers) or self._all(there):
            return ""
        away = ", ".join(map(str, sorted(self._voters - set(there))))
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


def quorum_of(voters: Collection[NodeId], primary_partition: bool) -> Quorum | None:
    """When replicas of a node's objects may go on; None where every partition goes on by itself.

    `voters`: of whom a majority is needed; `primary_partition`: the protocol goes on in one partition
    only."""
    if primary_partition:
        return Chain()
    return Majority(voters) if voters else None


def _names(nodes: Collection[NodeId]) -> str:
    return ", ".join(map(str, sorted(nodes)))
