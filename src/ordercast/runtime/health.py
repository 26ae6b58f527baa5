"""How late this node itself is: a busy machine must not take its own delay for the silence of others."""

from __future__ import annotations

from collections.abc import Callable

USUAL_US = 3_000
"""Delay that every event loop has now and then; it stretches nothing."""
STOPPED_US = 500_000
"""Later than this, the process was stopped or the machine slept: no measure of what is to be expected."""
HALF_LIFE_US = 1_000_000


class Lag:
    """The largest recent delay between when this node should have run and when it did, fading with time."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._lag_us = 0.0
        self._noted_us = clock_us()
        self.stretch_us = 0
        """What timers are stretched by, as of the last delay or alarm; cheaper to ask than `us`."""
        self.stops = 0
        """How often the process was found to have been stopped."""

    def note(self, late_us: int) -> None:
        """Record that this node ran `late_us` microseconds later than it should have."""
        if late_us > STOPPED_US:
            self.stops += 1
        elif late_us > USUAL_US:
            self._lag_us = max(float(late_us), self.us)
            self._noted_us = self._clock_us()
            self.stretch_us = int(self._lag_us)
        elif self.stretch_us:
            self.stretch_us = int(self.us)

    @property
    def us(self) -> float:
        """The delay to be expected now."""
        if not self._lag_us:
            return 0.0
        lag = self._lag_us * 0.5 ** ((self._clock_us() - self._noted_us) / HALF_LIFE_US)
        if lag < USUAL_US:
            self._lag_us = lag = 0.0
        return float(lag)
