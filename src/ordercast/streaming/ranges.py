"""Ranges of one replica: where they begin and end, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ordercast.errors import SplitAway
from ordercast.log import Position, Replica, Selection

_LOOKED_AT = 1000
"""Entries at the beginning of a log among which the first message is looked for."""
_CHANGES = Selection(())
"""The changes of the configuration alone."""
_NAMES = ("config_seq", "config_rep", "seq", "slot")
_ALL = 2**62


class Place(NamedTuple):
    """Where reading goes on: after an entry, or with it. Without a position: with the first there is."""

    position: Position | None = None
    included: bool = True

    @classmethod
    def after(cls, position: Position) -> Place:
        """Behind an entry that was read."""
        return cls(position, included=False)

    @classmethod
    def of(cls, offset: dict[str, str]) -> Place:
        """The place that `offset` wrote."""
        if "after" in offset:
            return cls.after(Position.parse(offset["after"]))
        return cls(Position.parse(offset["from"]) if offset.get("from") else None)

    @property
    def offset(self) -> dict[str, str]:
        """The place as a checkpoint of Spark keeps it."""
        return {"from" if self.included else "after": str(self.position or "")}

    def is_behind(self, position: Position) -> bool:
        """Whether the entry there does not come any more."""
        return not self.included and self.position is not None and self.position >= position

    def __str__(self) -> str:
        where = "with" if self.included else "after"
        return "the beginning" if self.position is None else f"{where} {self.position}"


class Limit(NamedTuple):
    """How much a range has at most, of what is selected, and at least one entry of it."""

    rows: int = _ALL
    selected: Selection = Selection()
    most_bytes: int = _ALL


UNLIMITED = Limit()


def beginning(replica: Replica) -> Position | None:
    """Where the messages of a replica begin, with the configuration that the first of them is of."""
    end = replica.after(None, _LOOKED_AT)
    found: Position | None = None
    for batch in replica.read(None, end) if end is not None else ():
        for row, kind in enumerate(batch.column("kind").to_pylist()):
            if kind == "message":
                return found or _position(batch, row)
            found = _position(batch, row)
    return found


def end_of(replica: Replica, start: Place, limit: Limit) -> Position | None:
    """Where a range from `start` ends that has about so much; None while there is nothing new."""
    if start.position is None or not start.included:
        return replica.after(start.position, *limit)
    rows, selected, most_bytes = limit
    more = replica.after(start.position, rows - 1, selected, most_bytes) if rows > 1 else None
    return more or start.position


def leaves(start: Place, end: Position) -> bool:
    """Whether an entry behind `start` is of another configuration."""
    return start.position is not None and start.position.configuration != end.configuration


def end_within(replica: Replica, start: Place, limit: Limit) -> Position | None:
    """Where a range ends that has about so much, and ends with the configuration that it begins in.

    It may begin with a change of the configuration. A transitional one goes on in the regular one behind it:
    who is in the former is in the latter.
    """
    end = end_of(replica, start, limit)
    if end is None or (start.position is not None and not leaves(start, end)):
        return end
    goes_on = False
    for change, kind in changes(replica, start, end):
        last = replica.before(change, 1)
        begins = last is None or (last == start.position and not start.included)
        if last is not None and not begins and not goes_on:
            return last
        goes_on = kind == "transitional"
    return end


def changes(replica: Replica, start: Place, end: Position) -> Iterator[tuple[Position, str]]:
    """The changes of the configuration behind `start`, up to `end`: where each stands, and its kind."""
    for batch in replica.read(start.position, end, _CHANGES):
        for row, kind in enumerate(batch.column("kind").to_pylist()):
            yield _position(batch, row), kind


def check_path(replica: Replica, at: Place, end: Position, path: tuple[Position, ...]) -> None:
    """Raise `SplitAway` if a replica went another way between two positions that it has."""
    left = [change for change in path if at.position is None or change > at.position]
    if [change for change, _ in changes(replica, at, end)] != left:
        raise SplitAway(
            f"the replica at {replica.where} went another way from {at} to {end} than the one that was asked "
            "first: they were parted in between. Go on with a replica of the other side."
        )


def batches(replica: Replica, at: Place, end: Position, selected: Selection) -> Iterator[pa.RecordBatch]:
    """The entries of a range, with their heads."""
    if not at.included or at.position is None:
        yield from replica.read(at.position, end, selected, heads=True)
        return
    replica.after(at.position, 1)  # which says why, where it is not held
    begins = replica.bounds().oldest
    for batch in replica.read(None, end, selected, heads=True):
        later = batch if begins == at.position else _from(batch, at.position)
        if later.num_rows:
            yield later


def _from(batch: pa.RecordBatch, first: Position) -> pa.RecordBatch:
    """The rows of a batch from a position on: rows of a batch rise."""
    earlier: pa.Array = pa.array([False] * batch.num_rows)
    equal: pa.Array = pa.array([True] * batch.num_rows)
    for name, value in zip(_NAMES, first, strict=True):
        column = batch.column(name)
        earlier = pc.or_(earlier, pc.and_(equal, pc.less(column, value)))
        equal = pc.and_(equal, pc.equal(column, value))
    return batch.slice(pc.sum(earlier).as_py() or 0)


def last_of(batch: pa.RecordBatch) -> Position:
    """The position of the last entry of a batch."""
    return _position(batch, batch.num_rows - 1)


def _position(batch: pa.RecordBatch, row: int) -> Position:
    return Position(*(batch.column(name)[row].as_py() for name in _NAMES))
