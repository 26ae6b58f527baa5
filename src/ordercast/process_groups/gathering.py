"""What the members of a configuration say of their processes when it begins."""

from __future__ import annotations

from ordercast.core.identity import Configuration, NodeId
from ordercast.process_groups.notes import Membership, State
from ordercast.process_groups.views import Life


class Gathering:
    """The `State`s of one configuration's members, as they are delivered in it."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration.id
        self.members = frozenset(configuration.members)
        self.missing = set(configuration.members)
        """Nodes whose state is not whole yet."""
        self.told: dict[Life, list[Membership]] = {}
        """What the others said, by the life in which they said it."""
        self.counted = 0
        """Messages that the one knows of that knows of most."""
        self.voters: dict[NodeId, int] = {}
        """Digests of the voters that members were given, by node."""
        self._parts: dict[Life, dict[int, State]] = {}

    def take(self, life: Life, state: State) -> bool:
        """A node says what its processes are in, or a part of it; True if that makes it whole."""
        if life.node not in self.missing:
            return False
        parts = self._parts.setdefault(life, {})
        parts.setdefault(state.part, state)
        if len(parts) < state.parts:
            return False
        del self._parts[life]
        self.missing.remove(life.node)
        self.counted = max(self.counted, state.counted)
        self.voters[life.node] = state.voters
        self.told[life] = [each for part in sorted(parts) for each in parts[part].memberships]
        return True
