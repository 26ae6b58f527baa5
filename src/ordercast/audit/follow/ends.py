"""Changes of configuration that name nothing that they end, in a life that does so at other times.

Of a life that never names anything an older version wrote the trace (`config_ends`). Which it is may show
only when the rows of the change are forgotten already, or have been forgotten before.
"""

from __future__ import annotations

from ordercast.audit.explain import Violation, violation
from ordercast.audit.history import History
from ordercast.core.identity import ConfigurationId, NodeId

Life = tuple[NodeId, int]


class UnnamedEnds:
    """What is remembered of the lives that are there."""

    def __init__(self) -> None:
        self.naming: set[Life] = set()
        """Lives of which some change named what it ended."""
        self.silent: dict[Life, ConfigurationId] = {}
        """The first change of each other life."""

    def unnamed(self, history: History) -> list[Violation]:
        """Changes that should have named something, where the reference cannot see that they should."""
        here: dict[Life, bool] = {}
        seen: set[Life] = set()
        for stay in history.all_stays():
            life = (stay.node, stay.incarnation)
            here[life] = here.get(life, False) or stay.ended is not None
            if stay.previous is not None and stay.ended is None:
                self.silent.setdefault(life, stay.id)
                seen.add(life)
        found = []
        self.silent = {life: first for life, first in self.silent.items() if life in here}
        for life, first in list(self.silent.items()):
            if here[life] or life in self.naming:
                del self.silent[life]
                if not here[life] or life not in seen:
                    told = f"node {life[0]} installed {first} without a word of where what it was in ended."
                    found.append(violation("config-ends", told, [life[0]], (), first))
        self.naming = {life for life, names in here.items() if names or life in self.naming}
        return found
