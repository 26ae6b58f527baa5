"""How long a group takes to go on after its membership changed, and for how long it delivers nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.core.identity import NodeId
from ordercast.trace.columns import CONFIG_KIND, EVENT, MEMBERS, NODE, TIME_US
from ordercast.trace.schema import Row


class LongestSilence:
    """The longest time, from some time on, for which one of some nodes delivered nothing."""

    def __init__(self, nodes: Iterable[NodeId], since_us: int) -> None:
        self.us = 0
        """Microseconds of the longest one so far."""
        self._last_us = dict.fromkeys(nodes, since_us)

    def delivered(self, node: NodeId, time_us: int) -> None:
        """Any node delivered something at that time."""
        last_us = self._last_us.get(node)
        if last_us is not None and time_us > last_us:
            self.us = max(self.us, time_us - last_us)
            self._last_us[node] = time_us

    def ended(self, time_us: int) -> None:
        """It is looked until that time: who has delivered nothing until then was silent for so long."""
        self.us = max(self.us, *(time_us - last_us for last_us in self._last_us.values()))


class ChangeMeter:
    """When nodes noticed and installed a change, and delivered again, from the rows of one run."""

    def __init__(self, expected: Iterable[NodeId], steady: Iterable[NodeId], fault_us: int) -> None:
        self.expected = tuple(sorted(expected))
        """The members of the configuration that is waited for."""
        self.fault_us = fault_us
        self.detected_us: int | None = None
        self.installed_us: dict[NodeId, int] = {}
        self.resumed_us: dict[NodeId, int] = {}
        self._silence = LongestSilence(steady, fault_us)

    @property
    def over(self) -> bool:
        """Whether all expected members have delivered something in that configuration."""
        return len(self.resumed_us) == len(self.expected)

    def take(self, rows: Iterable[Row]) -> None:
        """Take the next rows of the run."""
        for row in rows:
            event, node, time_us = row[EVENT], row[NODE], row[TIME_US]
            if event == "deliver":
                self._delivered(node, time_us)
            elif time_us >= self.fault_us:
                if event == "install" and row[CONFIG_KIND] == "regular":
                    if tuple(sorted(row[MEMBERS] or ())) == self.expected:
                        self.installed_us[node] = time_us
                elif event == "halt":
                    self.notice(time_us)

    def notice(self, time_us: int) -> None:
        """Record that a node noticed the change."""
        if time_us >= self.fault_us and (self.detected_us is None or time_us < self.detected_us):
            self.detected_us = time_us

    def _delivered(self, node: NodeId, time_us: int) -> None:
        if node not in self.resumed_us:
            self._silence.delivered(node, time_us)
        if node in self.installed_us:
            self.resumed_us.setdefault(node, time_us)

    def figures(self) -> dict[str, float]:
        """The times, from the fault on; what did not happen is left out."""
        found: dict[str, float] = {"recovered": float(self.over)}
        if self.detected_us is not None:
            found["detected_us"] = float(self.detected_us - self.fault_us)
        if len(self.installed_us) == len(self.expected):
            found["installed_us"] = float(max(self.installed_us.values()) - self.fault_us)
        if self.over:
            found["resumed_us"] = float(max(self.resumed_us.values()) - self.fault_us)
            found["silence_us"] = float(self._silence.us)
        return found
