"""The receive window: packets by sequence number, where the gaps are, all-received-up-to."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ReceiveWindow(Generic[T]):
    """Packets of one order from the last discarded one up to the highest received.

    Sequence numbers start at 1. Bounded: a number more than ``span`` past ``aru`` is refused, since no
    correct sender gives one out.
    """

    __slots__ = ("aru", "discarded", "high", "packets", "span")

    def __init__(self, span: int) -> None:
        self.packets: dict[int, T] = {}
        """What is here, by number. To look at; `add` and `discard` change it."""
        self.span = span
        self.aru = 0
        """All received up to here (000 §5.1, my_aru)."""
        self.high = 0
        """Highest number received."""
        self.discarded = 0
        """Everything up to here was given up by `discard`."""

    def __len__(self) -> int:
        return len(self.packets)

    def __contains__(self, seq: int) -> bool:
        return seq in self.packets

    def get(self, seq: int) -> T | None:
        """The packet with that number, if it is here."""
        return self.packets.get(seq)

    def add(self, seq: int, packet: T) -> bool:
        """Keep a packet. False if it was here before, is discarded already, or is out of bounds."""
        packets = self.packets
        aru = self.aru
        if seq <= aru or seq in packets or seq > aru + self.span:
            return False
        packets[seq] = packet
        if seq > self.high:
            self.high = seq
        if seq == aru + 1:
            while seq + 1 in packets:
                seq += 1
            self.aru = seq
        return True

    def missing(self, upto: int, limit: int) -> list[int]:
        """The lowest numbers up to ``upto`` that are not here, at most ``limit`` of them."""
        gaps: list[int] = []
        packets = self.packets
        for seq in range(self.aru + 1, upto + 1):
            if seq not in packets:
                if len(gaps) == limit:
                    break
                gaps.append(seq)
        return gaps

    def after(self, seq: int) -> list[tuple[int, T]]:
        """What is here beyond a number, in order."""
        return sorted((s, packet) for s, packet in self.packets.items() if s > seq)

    def discard(self, upto: int) -> None:
        """Give up everything up to ``upto``, which must have been received without a gap."""
        assert upto <= self.aru, f"discarding up to {upto}, received only up to {self.aru}"
        pop = self.packets.pop
        for seq in range(self.discarded + 1, upto + 1):
            pop(seq)
        self.discarded = max(self.discarded, upto)
