"""Whether this node is in the primary partition, where only one may go on.

Totem goes on in every partition. With ``primary = "majority"`` it does so for the application only where more
than half of the declared voters are: a regular configuration without them takes no messages, and what is
ordered in it is not delivered. What comes of the configuration before is, in its transitional one.

The sequencer family has a primary partition of its own: elsewhere its machines wait. This node counts as
outside when no view was agreed on for a while and too few members of the last one can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ordercast.core.identity import Batch, Configuration, Kind, NodeId
from ordercast.errors import NoMajority
from ordercast.groups.events import PrimaryLost, PrimaryRegained
from ordercast.groups.notes import NOTE
from ordercast.process_groups.notes import NOTE as GROUP_NOTE

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
        self._configuration: Configuration | None = None
        self._away_s = 0.0

    def install(self, configuration: Configuration) -> None:
        """A configuration begins, in its place among the messages."""
        if configuration.kind is not Kind.REGULAR:
            return
        self._configuration = configuration
        self._away_s = 0.0
        missing = tuple(sorted(self._voters - set(configuration.members)))
        self.minority = 2 * len(missing) >= len(self._voters) > 0
        self._change(not self.minority, missing)

    def look(self, elapsed_s: float) -> None:
        """So much time has passed since the last look."""
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
        names = ", ".join(map(str, missing))
        return NoMajority(
            f"this node is not in the primary partition, since it does not reach {names}; nothing is sent "
            "until enough of them are back: send it from a node in the majority, or after `PrimaryRegained`"
        )


def only_notes(batch: Batch) -> list[Batch]:
    """What nodes tell each other among these payloads, without the application's messages."""
    runs = batch.runs(lambda payload: payload[:1] in (bytes((NOTE,)), bytes((GROUP_NOTE,))))
    return [run for is_note, run in runs if is_note]
