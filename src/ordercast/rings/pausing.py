"""Back-pressure over all rings: whoever has too much asks all others to send nothing new for a while."""

from __future__ import annotations

from ordercast.core.identity import NodeId
from ordercast.rings.messages import Pause


class Pausing:
    """Who asked for a pause in the configuration that is installed."""

    def __init__(self, most: int) -> None:
        """A gateway that has more than so many bytes to forward asks for one, until it has half as many."""
        self._most = most
        self.braking = False
        """The disk of this node's log does not keep up."""
        self.begin()

    def begin(self) -> None:
        """A configuration was installed: nobody has asked yet."""
        self._asked = False
        self._last: dict[NodeId, Pause] = {}
        self.by: frozenset[NodeId] = frozenset()
        """Who wants nobody to send anything new."""

    def change(self, forwarding: int) -> bool | None:
        """Whether this node has to ask for a pause (True), or to take that back (False); None: neither."""
        wanted = self.braking or forwarding > (self._most // 2 if self._asked else self._most)
        if wanted == self._asked:
            return None
        self._asked = wanted
        return wanted

    def hear(self, pause: Pause) -> bool:
        """Somebody asks for a pause, or takes that back; whether it is news."""
        known = self._last.get(pause.node)
        if known is not None and known.count >= pause.count:
            return False
        self._last[pause.node] = pause
        self.by = frozenset(node for node, last in self._last.items() if last.on)
        return True
