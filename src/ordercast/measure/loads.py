"""The groups that a node of a measurement sends to and reads: all nodes', and with locality its own ring's.

A payload that is timed begins with the time of its `send` by the monotonic clock, which all processes of a
machine share: so a node on another ring can tell how long it took to come there.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence

from ordercast.core.identity import Configuration, ConfigurationId, NodeId
from ordercast.groups.events import Delivery, Rejoined
from ordercast.measure.order import Block, DeliveryDigests, End

GROUP = "bench"
"""All nodes are in it."""
STAMP = 8
"""Bytes at the front of a payload that say when it was sent, in nanoseconds; 0: it is not timed."""
NOT_TIMED = bytes(STAMP)


def group_of(network: int) -> str:
    """The group of the nodes whose first ring is on this network."""
    return f"{GROUP}.{network}"


def random_payload(size: int) -> bytes:
    """A message of so many bytes that is not timed."""
    return NOT_TIMED[:size] + os.urandom(max(0, size - STAMP))


def timed(payload: bytes, now_ns: int) -> bytes:
    """The message with the present time in it; unchanged if it is too short for that."""
    return payload if len(payload) < STAMP else now_ns.to_bytes(STAMP, "little") + payload[STAMP:]


def sent_ns(payload: bytes) -> int:
    """When a message was sent; 0 if it does not say."""
    return int.from_bytes(payload[:STAMP], "little") if len(payload) >= STAMP else 0


class GroupLoad:
    """What a node sends to one group, and what it delivers of it."""

    def __init__(self, name: str, sample: int) -> None:
        """The bytes of messages count in one packet of `sample` (`DeliveryDigests`)."""
        self.name = name
        self.sent = 0
        self.own = 0
        """Own messages that were delivered."""
        self.by_sender: Counter[NodeId] = Counter()
        """Messages delivered, in all configurations."""
        self._sample = sample
        self._digests = DeliveryDigests(sample=sample)
        self._lives: list[tuple[list[Block], list[End]]] = []
        self._stamps: deque[tuple[int, int]] = deque()
        """Own messages under way, by how many of this life they are, and when they were sent; in order."""
        self._configuration: ConfigurationId | None = None
        self._place = (0, 0)
        """Where the last message was delivered."""
        self._sent_before = self._own_before = 0
        """Messages that earlier lives had sent, and of these delivered."""

    # --- sending --------------------------------------------------------------------------------

    def stamp(self, now_ns: int) -> None:
        """The message that is sent next is timed."""
        self._stamps.append((self.sent - self._sent_before + 1, now_ns))

    def begin_life(self) -> None:
        """The node begins another life: what the last one sent may never be delivered."""
        self._sent_before, self._own_before = self.sent, self.own
        self._stamps.clear()

    # --- delivering -----------------------------------------------------------------------------

    def add(self, delivery: Delivery) -> None:
        """Messages of the group, behind those before by their place: else groups could not be compared one by
        one."""
        place = (delivery.seq, delivery.slots[0])
        if place <= self._place and delivery.configuration == self._configuration:
            raise ValueError(f"a message at {place} was delivered behind one at {self._place}")
        self._configuration, self._place = delivery.configuration, place
        self._digests.add(delivery)
        self.by_sender[delivery.sender] += len(delivery.payloads)

    def returned(self, count: int) -> list[int]:
        """So many own messages of this life were delivered: when those of them were sent that are timed."""
        self.own += count
        upto = self.own - self._own_before
        taken = []
        while self._stamps and self._stamps[0][0] <= upto:
            taken.append(self._stamps.popleft()[1])
        return taken

    def install(self, configuration: Configuration) -> None:
        """A configuration, in its place among the messages."""
        if isinstance(configuration, Rejoined):
            self._digests.leave_behind()
            self._lives.append(self._digests.take())
            self._digests = DeliveryDigests(sample=self._sample)
        self._digests.install(configuration)

    def missing(self, expected: dict[NodeId, int]) -> dict[NodeId, int]:
        """By sender, how many messages of the group have not come, of so many."""
        there = self.by_sender
        return {node: count - there[node] for node, count in expected.items() if there[node] != count}

    def lives(self) -> list[tuple[list[Block], list[End]]]:
        """At the end: what was delivered, in one life after the other."""
        self._digests.close()
        self._lives.append(self._digests.take())
        return self._lives


class Turns:
    """Whose turn it is: so that of all sends, a share goes to the second of two groups, evenly mixed."""

    def __init__(self, loads: Sequence[GroupLoad], share: float) -> None:
        self._loads = loads
        self._share = share
        self._owed = 0.0

    def next(self) -> int:
        """The index of the group that is sent to next."""
        self._owed += self._share if len(self._loads) > 1 else 0.0
        if self._owed < 1 - 1e-9:
            return 0
        self._owed -= 1
        return 1
