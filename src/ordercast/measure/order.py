"""Whether all nodes delivered the same messages in the same order, found out while they deliver.

Every node keeps one running digest over what it delivers, and notes it now and then with the number of
messages so far. Two nodes that noted the same digest at the same number delivered the same until there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ordercast.groups.events import Delivery

Mark = tuple[int, int]
"""A number of messages, and the digest over them."""
EVERY = 5_000
"""Messages from one mark to the next, roughly: marks are made between packets."""

_HEAD = struct.Struct("<IIQI")


class Ledger:
    """What one node delivered, as far as one number can tell.

    Who sent each message, in which life, and its how-manyth it was, always count; the bytes of the
    messages count in one packet of `sample`, the same ones at every node.
    """

    def __init__(self, every: int = EVERY, sample: int = 1) -> None:
        self.count = 0
        self.marks: list[Mark] = []
        self.by_sender: dict[int, int] = {}
        """Messages delivered, by who sent them."""
        self._digest = 0
        self._every = every
        self._next = every
        self._sample = sample

    def add(self, delivery: Delivery) -> None:
        """The next messages."""
        payloads, sender, _, _, incarnation, numbers, _, seq, _ = delivery
        count = len(payloads)
        digest = zlib.crc32(_HEAD.pack(sender, incarnation, numbers[0], count), self._digest)
        if seq % self._sample == 0:
            for payload in payloads:
                digest = zlib.crc32(payload, digest)
        self._digest = digest
        self.count += count
        self.by_sender[sender] = self.by_sender.get(sender, 0) + count
        if self.count >= self._next:
            self._next += self._every
            self.mark()

    def mark(self) -> None:
        """Note how things stand."""
        if not self.marks or self.marks[-1][0] != self.count:
            self.marks.append((self.count, self._digest))


class Agreement(NamedTuple):
    """How far the nodes were compared, and the first difference that showed."""

    equal: bool
    marks: int
    """Places at which all of them could be compared."""
    messages: int
    """Messages from the beginning to the last of these places."""
    difference: str | None = None


def compare(ledgers: Mapping[int, Sequence[Mark]]) -> Agreement:
    """Put the marks of all nodes side by side, at every number of messages that all have noted.

    Marks are made at the first end of a packet behind a round number, so nodes that deliver the same
    packets make the same ones; nodes that have none in common did not.
    """
    nodes = sorted(ledgers)
    tables = {node: dict(ledgers[node]) for node in nodes}
    common = sorted(set.intersection(*(set(table) for table in tables.values()))) if tables else []
    before = 0
    for place, count in enumerate(common):
        digests = {node: tables[node][count] for node in nodes}
        for one, other in pairwise(nodes):
            if digests[one] != digests[other]:
                where = f"between message {before + 1:,} and message {count:,}"
                return Agreement(False, place, before, f"nodes {one} and {other} first differ {where}")
        before = count
    if not common and any(tables.values()):
        held = ", ".join(f"{node}: {max(table, default=0):,}" for node, table in tables.items())
        return Agreement(
            False, 0, 0, f"the nodes have no number of messages in common (the last by node {held})"
        )
    return Agreement(True, len(common), before)
