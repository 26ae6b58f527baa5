"""Whether this node is in the primary partition, where only one may go on.

Totem goes on in every partition. With ``primary = "majority"`` it does so for the application only where more
than half of the declared voters are: a regular configuration without them takes no messages, and what is
ordered in it is not delivered. What comes of the configuration before is, in its transitional one.

All nodes have to be given the same voters. They tell each other a digest of theirs with each configuration: a
voter counts only if it was given the same ones. A node that meets as many with other voters as with its own
counts itself outside until it is started again, since elsewhere those may be a majority at the same time.

The sequencer family has a primary partition of its own: elsewhere its machines wait. This node counts as
outside when no view was agreed on for a while and too few members of the last one can be reached.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from zlib import crc32

from ordercast.core.identity import Batch, Configuration, Kind, NodeId
from ordercast.errors import NoMajority
from ordercast.groups.events import PrimaryLost, PrimaryRegained
from ordercast.groups.notes import NOTE
from ordercast.process_groups.notes import NOTE as GROUP_NOTE

LOG = logging.getLogger("ordercast")

AWAY_S = 1.0
"""Seconds for which the view of the sequencer family has to be without agreement."""


class Primary:
    """Tells when the primary partition is lost and regained; without a need for one it never is."""

    def __init__(
        self,
        node: NodeId,
        voters: Collection[NodeId],
        built_in: bool,
        reachable: Callable[[], Sequence[NodeId]],
        settled: Callable[[], bool],
        tell: Callable[[PrimaryLost | PrimaryRegained], None],
    ) -> None:
        """`voters`: of whom a majority is needed; none if that is not asked for. `built_in`: the protocol has
        a primary partition of its own; then `reachable` are the nodes that can be reached, and `settled` says
        whether its view is agreed on. `tell` is called with each event."""
        self.there = not voters
        """Whether this node is in the primary partition, as far as it knows."""
        self.minority = bool(voters)
        """What is ordered in this configuration is not delivered to the application."""
        self._node = node
        self._voters = frozenset(voters)
        self._built_in = built_in
        self._reachable = reachable
        self._settled = settled
        self._tell = tell
        self._others: tuple[NodeId, ...] = ()
        """Nodes of the configuration that were given other voters."""
        self._outvoted = False
        """As many were, once, as were given these: until this node is started again it is outside."""
        self._configuration: Configuration | None = None
        self._away_s = 0.0

    def install(self, configuration: Configuration) -> None:
        """A configuration begins, in its place among the messages."""
        if configuration.kind is not Kind.REGULAR:
            return
        self._configuration = configuration
        self._away_s = 0.0
        missing = self._missing(configuration.members)
        if self.minority or not self._voters:
            self._change(not self.minority, missing)

    def declared(self, voters: Mapping[NodeId, int]) -> None:
        """The members of the configuration have told which voters they were given, as digests; 0: none."""
        mine = digest(self._voters)
        others = {node: told for node, told in voters.items() if told not in (0, mine)}
        same = {node for node, told in voters.items() if told == mine}
        most = max(Counter(others.values()).values(), default=0)
        self._outvoted |= 0 < len(same) <= most
        if others and tuple(others) != self._others:
            LOG.error(
                "nodes %s were given other voters than this one, so that two partitions could go on: give "
                "all nodes the same voters, and start them again",
                ", ".join(map(str, sorted(others))),
            )
        self._others = tuple(others)
        missing = self._missing(same)
        self._change(not self.minority, missing)

    def _missing(self, there: Collection[NodeId]) -> tuple[NodeId, ...]:
        """The voters that are not among these nodes; and see whether too many are."""
        missing = tuple(sorted(self._voters.difference(there)))
        self.minority = self._outvoted or 2 * len(missing) >= len(self._voters) > 0
        return missing

    def look(self, elapsed_s: float) -> None:
        """Note that `elapsed_s` have passed since the last look."""
        if not self._built_in or self._configuration is None:
            return
        if self._settled():
            self._away_s = 0.0
            self._change(True, ())
            return
        self._away_s += elapsed_s
        members = self._configuration.members
        missing = tuple(sorted(set(members) - {self._node, *self._reachable()}))
        if self._away_s >= AWAY_S and 2 * len(missing) >= len(members) > 1:
            self._change(False, missing)

    def _change(self, there: bool, missing: tuple[NodeId, ...]) -> None:
        assert self._configuration is not None, "there is one to judge by"
        if there != self.there:
            self.there = there
            self._tell(
                PrimaryRegained(self._configuration) if there else PrimaryLost(self._configuration, missing)
            )

    def why_not(self, missing: Sequence[NodeId]) -> NoMajority:
        """What who sends is told outside the primary partition."""
        names = ", ".join(map(str, missing)) or "nobody who was given the same voters"
        return NoMajority(
            f"this node is not in the primary partition, since it does not reach {names}{self.also}; nothing "
            "is sent until enough of them are back: send it from a node in the majority, or after "
            "`PrimaryRegained`"
        )

    @property
    def also(self) -> str:
        """That nodes were given other voters, in words; empty if none were."""
        names = ", ".join(map(str, sorted(self._others)))
        return f", and nodes {names} were given other voters, which have to be the same" if names else ""


def digest(voters: Collection[NodeId]) -> int:
    """Tells voters from others, whatever their order; 0: there are none."""
    return (crc32(repr(sorted(set(voters))).encode()) or 1) if voters else 0


def only_notes(batch: Batch) -> list[Batch]:
    """What nodes tell each other among these payloads, without the application's messages."""
    runs = batch.runs(lambda payload: payload[:1] in (bytes((NOTE,)), bytes((GROUP_NOTE,))))
    return [run for is_note, run in runs if is_note]
