"""Who is there, as a node tells the replica of an object."""

from __future__ import annotations

from ordercast.core.identity import Configuration, Kind
from ordercast.process_groups.views import Process, View
from ordercast.replicated.execution import NOBODY
from ordercast.replicated.notes import RoundId


class Presence:
    """The configuration of nodes, and the replicas in it."""

    def __init__(self) -> None:
        self.me = NOBODY
        """This replica."""
        self.group: tuple[Process, ...] = ()
        """All replicas; none of this one's life: it is not among them."""
        self.regular = False
        """Whether the configuration is a regular one."""
        self.configuration: Configuration | None = None

    def begin(self, configuration: Configuration, me: Process, *, rejoined: bool) -> None:
        """A configuration of nodes begins; `rejoined`: it is the first of another life of this node."""
        self.configuration, self.me = configuration, me
        self.regular = configuration.kind is Kind.REGULAR
        before = () if rejoined else self.group
        self.group = tuple(each for each in before if each.node in configuration.members)

    def view(self, view: View, me: Process) -> None:
        """The object's group has a view in which this replica is."""
        self.me = me
        self.group = tuple(each.process for each in view.members)

    def round(self, number: int) -> RoundId | None:
        """The round that begins with a change of so many in this configuration; None: without this one."""
        if self.me not in self.group or self.configuration is None:
            return None
        return RoundId(*self.configuration.id, number)
