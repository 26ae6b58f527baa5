"""Who, where and what: nodes, configurations, messages and what a sender asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, TypeAlias, TypeVar

Key = TypeVar("Key")

NodeId: TypeAlias = int
"""A node's identifier: a positive 32-bit integer that survives restarts."""

MOST_NETWORKS = 1_023
"""Networks are numbered from 1 to this."""
MAX_NODE_ID = 2**31 - 1


MAX_INCARNATION = 2**31 - 1
"""Lives of a node are numbered up to this: they have 32 bits in traces and packets."""


GROUPS_BETWEEN = "\x1f"
"""Stands between the names of groups where several are one text; no group's name has it in it."""


class ConfigurationId(NamedTuple):
    """Identifier of a ring, view or configuration (000 §3): a number, and who represents it."""

    seq: int
    rep: NodeId

    def __str__(self) -> str:
        return f"{self.seq}.{self.rep}"


HIGHEST_LEVEL = 7
"""The highest level of resilience; beyond it a sender asks for safe delivery."""


class Kind(StrEnum):
    """The two kinds of configuration an application is shown (000 §3)."""

    REGULAR = "regular"
    TRANSITIONAL = "transitional"


class Configuration(NamedTuple):
    """A membership that the application is told of, and between which changes it delivers."""

    id: ConfigurationId
    kind: Kind
    members: tuple[NodeId, ...]
    """In ascending order."""


class Ended(NamedTuple):
    """The configuration that a change ends, and the place in its order at which it does (000 §4.1, §6.1)."""

    configuration: ConfigurationId
    place: int
    """Sequence number (`Batch.seq`) of the last message delivered before the change; 0 if there was none.

    A transitional configuration has no order of its own: it goes on in that of the regular one before it,
    and ends at a place of that order.
    """

    def __str__(self) -> str:
        return f"{self.configuration} at {self.place}"


class Guarantee(StrEnum):
    """What the originator of a message asks for (000 §4.2)."""

    AGREED = "agreed"
    """Delivered in the one total order, after everything before it."""
    SAFE = "safe"
    """Also: not before every member of the configuration is known to have it."""
    K1 = "k=1"
    K2 = "k=2"
    K3 = "k=3"
    K4 = "k=4"
    K5 = "k=5"
    K6 = "k=6"
    K7 = "k=7"
    """A level of resilience (004 §3.2.2): not before so many members are known to have it. Offered by the
    sequencer family, where agreed means a majority."""

    @classmethod
    def of(cls, level: int) -> Guarantee:
        """The guarantee that is this level of resilience."""
        if not 1 <= level <= HIGHEST_LEVEL:
            raise ValueError(f"no level of resilience {level}: choose 1 to {HIGHEST_LEVEL}, or ask for safe")
        return cls(f"k={level}")

    def needed(self, members: int) -> int:
        """How many of so many members must be known to have a message before it is delivered."""
        if self is Guarantee.AGREED:
            return members // 2 + 1
        if self is Guarantee.SAFE:
            return members
        return min(int(self.value[2:]), members)


class MessageId(NamedTuple):
    """A message's identifier: who originated it, in which of its lives, and its number in that life."""

    origin: NodeId
    incarnation: int
    number: int


class Batch(NamedTuple):
    """The messages that end in one packet: consecutive numbers, consecutive slots, one guarantee.

    Everything that is the same for all of them is said once, so that the hot path does its work per
    packet. Message ``i`` has the number ``number + i`` and the position ``(seq, slot + i)``.
    """

    configuration: ConfigurationId
    """The regular configuration they were originated in."""
    seq: int
    """The packet's place in that configuration's order."""
    slot: int
    """Place within the packet of the first of them."""
    origin: NodeId
    incarnation: int
    number: int
    """Number of the first of them."""
    guarantee: Guarantee
    payloads: Sequence[bytes]
    timestamp: int = 0
    """The Lamport timestamp of the packet, where a protocol gives packets one; else 0."""
    ring: int = 0
    """The number of the network that its source ring is on, where a protocol joins several rings; else 0."""

    def part(self, begin: int, payloads: Sequence[bytes]) -> Batch:
        """The messages from the `begin`-th on, counted from 0, at their own places, with these payloads."""
        return self._replace(slot=self.slot + begin, number=self.number + begin, payloads=payloads)

    def runs(self, key: Callable[[bytes], Key]) -> Iterator[tuple[Key, Batch]]:
        """The messages in runs whose payloads have the same key: each key, and its messages as a batch."""
        begin = 0
        for same, payloads in groupby(self.payloads, key):
            run = self.part(begin, list(payloads))
            yield same, run
            begin += len(run.payloads)
