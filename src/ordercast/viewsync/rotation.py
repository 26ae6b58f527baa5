"""A change of view or of its list that rotates the coordinator (004 §4.3.5).

A view lists its members in an order, and the first one that is not suspected is the coordinator: the primary,
in primary-backup. Who is suspected in that role moves to the end: ``{p, q, r}`` becomes ``{q, r, p}``. So the
order is always the members' own, turned; a decision says who is first, and `view_of` turns the list. A
coordinator that goes on stays the first, in a new view as well: nobody else takes over from one that works.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.core.identity import NodeId
from ordercast.viewsync.change import ViewChange


class Rotation(ViewChange):
    """One change of view, or of the list alone."""

    def _site(self, able: Sequence[NodeId]) -> NodeId:
        """The first of those that go on, in the order of the list that ends."""
        members = self.view.members
        at = members.index(self.view.core[0])
        return next((node for node in members[at:] + members[:at] if node in able), 0)
