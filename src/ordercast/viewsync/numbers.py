"""View numbers: how the next one is chosen, and how far another node's number is believed.

No two views may have one identifier, whoever decided on them: groups that were founded apart know nothing of
each other, and of one group two lives may know the same, if a disk was lost or returned an old state. So a
number is never a function of what a node happens to know alone. Its low part is drawn anew for each view, its
high part counts; a first view's number begins somewhere in a wide range, so that two groups do not count
through the same numbers. See docs/decisions/view-numbers.md.
"""

from __future__ import annotations

from ordercast.core.numbers import Allowance
from ordercast.core.randomness import RandomStream

DRAWN_BITS = 28
STRIDE = 1 << DRAWN_BITS
"""From one view's number to the next: room for the part that is drawn."""
BEGINNINGS = 2**40
"""A first view's number is drawn from so many."""
REACH = 2**44
"""How far beyond its own number a node follows others' numbers at once: 65,000 views."""
REFILL_PER_US = 2**20
"""By how much that refills: `REACH` in 17 seconds. All numbers there are would take 50 days."""


class ViewNumbers:
    """The numbers that one life of a node gives to views, and those that it believes of others."""

    def __init__(self, stream: RandomStream) -> None:
        self._stream = stream
        self._allowance = Allowance(REACH, REFILL_PER_US)
        self._followed = 0
        """The highest number that was followed to, on the way to one that somebody claims."""

    def first(self, known: int) -> int:
        """The number of a group's first view: above `known`, by at most `BEGINNINGS` and two strides."""
        return self.after(known + self._stream.between(0, BEGINNINGS - 1))

    def after(self, known: int) -> int:
        """The number of a view whose members know of none above `known`: by less than two strides above."""
        return (known // STRIDE + 1) * STRIDE + self._stream.bits(DRAWN_BITS)

    def mark(self) -> int:
        """What tells a group that is founded now from any other that this node may have founded (`Group`)."""
        return self._stream.bits(32)

    def believes(self, now_us: int, number: int, own: int) -> bool:
        """Whether a node whose last view has the number `own` believes that another one has this number.

        The way to the next view is free. A number beyond that is followed as far as the allowance goes: it
        is believed once the way to it has been spent, now or by being told of it again and again.
        """
        start = max(own + 2 * STRIDE, self._followed)
        if number > start:
            self._followed = start + self._allowance.spend(now_us, number - start)
        return number <= max(start, self._followed)
