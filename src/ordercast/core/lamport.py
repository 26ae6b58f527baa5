"""Lamport's logical clock (001, "Message Ordering"): what happened before something has a lower timestamp."""

from __future__ import annotations


class LamportClock:
    """The clock of one node. All rings that the node is on share it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0
        """The highest timestamp that was given or heard of here."""

    def tick(self) -> int:
        """The next timestamp, above all before."""
        self.now += 1
        return self.now

    def follow(self, timestamp: int) -> None:
        """Take note of a timestamp that another node gave."""
        if timestamp > self.now:
            self.now = timestamp
