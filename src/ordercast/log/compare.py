"""Two replicas side by side: whether they hold the same where both hold something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ordercast.errors import NotThere, NotYet, SplitAway, Trimmed
from ordercast.log.blocks import LOG_SCHEMA
from ordercast.log.position import Position
from ordercast.log.replica import Replica

AT_A_TIME = 50_000
_SAME = [name for name in LOG_SCHEMA.names if name != "time_us"]
"""All columns but when a replica delivered an entry."""


class Compared(NamedTuple):
    """Whether two replicas hold the same, and how far they were compared."""

    equal: bool
    entries: int
    """How many both hold, and were compared."""
    begin: Position
    end: Position
    differs_after: Position | None = None
    """The last entry up to which they are the same, if they are not."""

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        if self.equal:
            return f"{self.entries:,} entries after {self.begin}, up to {self.end}, are the same at both"
        return f"the replicas differ behind {self.differs_after}, {self.entries:,} entries after {self.begin}"


def compare(one: Replica, other: Replica) -> Compared:
    """Compare two replicas from the first entry that both hold on, as far as both are without a gap."""
    begin = _first_common(one, other)
    at, count = begin, 0
    while (end := _next_common(one, other, at)) is not None:
        left, right = (_table(replica, at, end) for replica in (one, other))
        if not left.equals(right):
            same = _same_rows(left, right)
            last = at if not same else _position(left, same - 1)
            return Compared(False, count + same, begin, end, last)
        count += left.num_rows
        at = end
    return Compared(True, count, begin, at)


def _first_common(one: Replica, other: Replica) -> Position:
    """The first entry from which both go on without a gap."""
    begins = [(replica.bounds().since, replica) for replica in (one, other)]
    if begins[0][0] is None or begins[1][0] is None:
        raise NotYet("one of the two replicas holds nothing yet: wait, and compare them then")
    (_, early), (late, later) = sorted(begins, key=lambda entry: entry[0] or Position(0, 0, 0, 0))
    assert late is not None
    for place in _positions(later, late):
        try:
            early.after(place, 1)
        except (SplitAway, NotThere, Trimmed):
            continue
        return place
    raise SplitAway("the two replicas have no entry in common: they are of different groups, or were parted")


def _positions(replica: Replica, start: Position) -> Iterator[Position]:
    """Where it may come together with another: `start`, and each change of the configuration behind it."""
    yield start
    at, head = start, replica.bounds().head
    while head is not None and at < head:
        end = replica.after(at, AT_A_TIME)
        if end is None:
            return
        for batch in replica.read(at, end):
            for row in range(batch.num_rows) if batch["kind"][0].as_py() != "message" else ():
                yield Position(*(batch[name][row].as_py() for name in LOG_SCHEMA.names[:4]))
        at = end


def _next_common(one: Replica, other: Replica, at: Position) -> Position | None:
    """The end of the next range that both can give."""
    ends = [replica.after(at, AT_A_TIME) for replica in (one, other)]
    if ends[0] is None or ends[1] is None:
        return None
    return min(ends[0], ends[1])


def _table(replica: Replica, start: Position, end: Position) -> pa.Table:
    try:
        batches = list(replica.read(start, end))
    except (SplitAway, NotThere):  # the other one has another entry there
        last = replica.after(start, AT_A_TIME)
        batches = [] if last is None else list(replica.read(start, last))
    return pa.Table.from_batches(batches, LOG_SCHEMA).select(_SAME).combine_chunks()


def _same_rows(left: pa.Table, right: pa.Table) -> int:
    """How many rows at the beginning are the same."""
    low, high = 0, min(left.num_rows, right.num_rows)
    while low < high:
        middle = (low + high + 1) // 2
        if left.slice(low, middle - low).equals(right.slice(low, middle - low)):
            low = middle
        else:
            high = middle - 1
    return low


def _position(table: pa.Table, row: int) -> Position:
    return Position(*(table[name][row].as_py() for name in LOG_SCHEMA.names[:4]))
