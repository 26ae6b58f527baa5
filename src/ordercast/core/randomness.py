"""A machine's only randomness: numbers that follow from the seed which `Start` carries.

Timers that run in step at several nodes can fail in step for ever, so some are drawn (001: "judicious use of
randomization"). A machine has no source of chance of its own: the driver draws one seed for each life, and
the machine derives everything else from it. The same seed gives the same numbers, and so the same run.
"""

from __future__ import annotations

_MASK = 2**64 - 1


class RandomStream:
    """Pseudo-random numbers by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): pure, small, well mixed.

    Not for secrets: who has seen some numbers can compute the next.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        """The stream of that seed, of which the lower 64 bits count."""
        self._state = seed & _MASK

    def bits(self, count: int) -> int:
        """The next number, from 0 to 2**count - 1; `count` is at most 64."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return (mixed ^ (mixed >> 31)) >> (64 - count)

    def between(self, lowest: int, highest: int) -> int:
        """The next number, from `lowest` to `highest`, both included."""
        return lowest + (self.bits(64) * (highest - lowest + 1) >> 64)

    def spread(self, delay_us: int) -> int:
        """A delay of about this length: from three quarters of it to five quarters, the mean as given."""
        return self.between(delay_us - delay_us // 4, delay_us + delay_us // 4)
