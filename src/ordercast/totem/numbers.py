"""Ring numbers: how the next one is chosen, and how far another node's number is believed.

000 §6.1 keeps the ring sequence number on stable storage so that no identifier is used twice. A disk may be
lost, or return an old state, and a clock may go back; so a number is never a function of what a life happens
to know alone. Its low part is drawn anew for each ring: two lives of a node that know the same take different
numbers all the same. Its high part counts, as in the paper: a new ring's number is above that of every
member.

A number that another node tells is followed as far as an allowance goes, which refills with time. So whoever
claims numbers near the end of the number space moves the group a little way, again and again, and would have
to go on for months to use it up; and members that followed differently far are together again in seconds. See
docs/decisions/lost-disk.md.
"""

from __future__ import annotations

from ordercast.core.numbers import Allowance
from ordercast.core.randomness import RandomStream

RING_STEP = 4
"""Ring sequence numbers are multiples of four (000 §6.2.2); the numbers between are transitional."""
DRAWN_BITS = 24
STRIDE = RING_STEP << DRAWN_BITS
"""From one ring's number to the next: room for the part that is drawn."""
REACH = 2**40
"""How far beyond its own number a node follows others' numbers at once: sixteen thousand rings."""
REFILL_PER_US = 2**19
"""By how much that refills: `REACH` in two seconds. All numbers there are would take a hundred days."""


class RingNumbers:
    """The numbers that one life of a node gives to rings, and those that it takes from others."""

    def __init__(self, stream: RandomStream) -> None:
        self._stream = stream
        self._allowance = Allowance(REACH, REFILL_PER_US)

    def first(self, stored: int | None) -> int:
        """The number of a life's first ring: above what was stored; without that, anywhere below `REACH`."""
        return self.after(self._stream.between(0, REACH - 1) if stored is None else stored)

    def after(self, known: int) -> int:
        """A number above `known`, by less than two strides."""
        return (known // STRIDE + 1) * STRIDE + RING_STEP * self._stream.bits(DRAWN_BITS)

    def follow(self, now_us: int, claimed: int, own: int) -> int:
        """The number of a node that has `own` and hears of `claimed`: that, or as far as it follows now."""
        return own + self._allowance.spend(now_us, max(claimed - own, 0))

    def reach(self, now_us: int, number: int, own: int) -> bool:
        """Whether a node that has `own` takes part in a ring of this number.

        The way to the next ring is free; what is beyond that has to be within the allowance, and is spent.
        """
        step = max(number - own - 2 * STRIDE, 0)
        within = step <= self._allowance.left(now_us)
        if within:
            self._allowance.spend(now_us, step)
        return within
