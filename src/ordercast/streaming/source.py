"""``spark.read.format("ordercast")`` and ``spark.readStream.format("ordercast")``: the ordered log as rows.

Offsets are positions in the total order. An offset also says at which positions the batch that it ends is
divided among tasks: when it is replayed, each task has the same rows again, whichever replica is asked.
Planner and readers are different processes, perhaps on different machines: a partition carries everything
that reading it needs.
"""

from __future__ import annotations

import difflib
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ordercast.errors import ConfigProblem
from ordercast.log import Position, Selection
from ordercast.streaming.filters import narrowed
from ordercast.streaming.options import EARLIEST, LATEST, Access, Reading, SentAt, reading, writing
from ordercast.streaming.ranges import Limit, Place, leaves
from ordercast.streaming.replicas import NoReplica, Replicas
from ordercast.streaming.rows import columns_of, rows, schema_of
from ordercast.streaming.sink import BatchWriter, StreamWriter, checked_schema

LOG = logging.getLogger("ordercast")

ROWS_A_PARTITION = 2_000_000
"""A task of so many rows takes long enough to be worth its while, and several of them use all cores."""
MOST_IDLE_S = 60.0
"""So long a query may stay where it is while there is nothing for it: behind it the log is trimmed."""
_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that plans a read whose filters may be pushed down; elsewhere Spark refuses such readers."""


@dataclass
class Range(InputPartition):
    """Rows that one task reads."""

    access: Access
    first: int
    """Which of the nodes is asked first: so partitions are spread over them."""
    start: Place
    end: Position
    selected: Selection
    columns: tuple[str, ...]
    fail_on_loss: bool
    path: tuple[Position, ...] = ()
    """The changes of the configuration in it, of a table; a range of a stream is of one configuration."""


class OrdercastSource(DataSource):
    """The ordered log of a group, to be read and to be written."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` calls it."""
        return "ordercast"

    def schema(self) -> StructType:
        """The columns of the source."""
        return schema_of(reading(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A table of what there is now."""
        told = reading(self.options)._replace(columns=columns_of(schema))
        return FilteringReader(told) if _PUSHDOWN in sys.modules else TableReader(told)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream of what there is, and what there will be."""
        told = reading(self.options)
        if told.end != LATEST:
            raise ConfigProblem(
                "a stream has no end: leave endingPosition and endingTimestamp out, or use spark.read; "
                "trigger(availableNow=True) ends where the log ends when the query is started"
            )
        return StreamReader(told._replace(columns=columns_of(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Writes the rows of a table."""
        told = writing(self.options)
        return BatchWriter(told, checked_schema(schema, told, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Writes the rows of a stream."""
        told = writing(self.options)
        return StreamWriter(told, checked_schema(schema, told, overwrite=False))


def _read(partition: Range) -> Iterator[pa.RecordBatch]:
    replicas = Replicas(partition.access, partition.first)
    try:
        told = partition.start, partition.end, partition.selected, partition.fail_on_loss, partition.path
        for batch in replicas.read(*told):
            yield rows(batch, partition.columns)
    finally:
        replicas.close()


def _ranges(replicas: Replicas, told: Reading, start: Place, ends: Sequence[Position]) -> list[Range]:
    begin = told.access.nodes.index(replicas.first)
    starts = [start, *map(Place.after, ends)]
    return [
        Range(told.access, begin + part, at, end, told.selected, told.columns, told.fail_on_loss)
        for part, (at, end) in enumerate(zip(starts, ends, strict=False))
    ]


def _split(replicas: Replicas, told: Reading, start: Place, end: Position) -> list[Position]:
    """Where the partitions of a range end."""
    most = ROWS_A_PARTITION
    if told.least_partitions > 1:
        count, _ = replicas.count(start, end, told.selected)
        most = min(most, max(1, -(-count // told.least_partitions)))
    return replicas.split(start, end, Limit(most, told.selected, told.partition_bytes))


def _beginning(replicas: Replicas, told: Reading) -> Place:
    _check_known(replicas, told)
    if isinstance(told.start, SentAt):
        first = replicas.sent_at(told.start.time_us)
        return replicas.newest() if first is None else Place(first)
    if isinstance(told.start, Position):
        return Place.after(told.start)
    return replicas.oldest() if told.start == EARLIEST else replicas.newest()


def _end(replicas: Replicas, told: Reading, start: Place) -> Position | None:
    """The last entry of a table; None if it has none."""
    end = replicas.furthest(start)
    if end is None or told.end == LATEST:
        return end
    last = told.end if isinstance(told.end, Position) else end
    if isinstance(told.end, SentAt):
        first = replicas.sent_at(told.end.time_us)
        before = end if first is None else replicas.before(first)
        if before is None:
            return None
        last = before
    return None if start.is_behind(last) else min(end, last)


def _check_known(replicas: Replicas, told: Reading) -> None:
    """Tell of groups that nobody has sent to, or end because of them."""
    names, patterns = told.selected.names or (), told.selected.patterns
    if not names and not patterns:
        return
    known = replicas.groups()
    unknown = [name for name in names if name not in known]
    unknown += [each for each in patterns if not any(map(Selection((), (each,)).wants, known))]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)[:10]) or 'none'}"
    told_of = f"no replica has a message to {', '.join(unknown)}: {advice}"
    if told.fail_on_unknown:
        raise ConfigProblem(f"{told_of}; without failOnUnknownGroup they are waited for")
    LOG.warning("%s; messages to it are waited for", told_of)


class TableReader(DataSourceReader):
    """Reads the log once: the entries that are there when the query is planned."""

    def __init__(self, told: Reading) -> None:
        self._told = told

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges up to the head."""
        replicas = Replicas(self._told.access)
        try:
            start = _beginning(replicas, self._told)
            end = _end(replicas, self._told, start)
            if end is None:
                return []
            parts = _ranges(replicas, self._told, start, _split(replicas, self._told, start, end))
            return [replace(part, path=replicas.path(part.start, part.end)) for part in parts]
        finally:
            replicas.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one of them."""
        return _read(partition) if isinstance(partition, Range) else iter(())


class FilteringReader(TableReader):
    """The same, of which whole blocks are left out that no filter of the query lets through."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """All of them are left to Spark as well."""
        self._told = self._told._replace(selected=narrowed(self._told.selected, filters))
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as a stream: a batch of what is new, again and again."""

    def __init__(self, told: Reading) -> None:
        self._told = told
        self._known: Replicas | None = None
        self._target: Position | None = None
        self._bounded = False
        self._planned = Place()
        """Where the last batch that was planned ends."""
        self._passed: tuple[Place, Position, float] | None = None
        """Behind a place there is nothing for the query up to a position, and since when it stays there."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}  # connections stay with the planner

    @property
    def _replicas(self) -> Replicas:
        if self._known is None:
            self._known = Replicas(self._told.access)
        return self._known

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """Where a query begins that has no checkpoint."""
        return _beginning(self._replicas, self._told).offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a batch takes at most."""
        if self._told.most_rows is not None:
            return ReadMaxRows(self._told.most_rows)
        most = self._told.most_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, what is there now is all there is."""
        self._target = self._replicas.newest().position
        self._bounded = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """Where the next batch ends. Asked 90 times a second when there is nothing to do."""
        place = Place.of(start)
        end = self._next_end(place, self._limit(limit))
        if end is None:
            return start
        self._passed, self._planned = None, Place.after(end)
        *inner, _ = _split(self._replicas, self._told, place, end)
        return {**self._planned.offset, **({"divided": " ".join(map(str, inner))} if inner else {})}

    def _limit(self, limit: ReadLimit) -> Limit:
        most = Limit(selected=self._told.selected)
        if isinstance(limit, ReadMaxRows):
            most = most._replace(rows=limit.max_rows)
        if self._told.most_bytes is not None and not isinstance(limit, ReadAllAvailable):
            most = most._replace(most_bytes=self._told.most_bytes)
        return most

    def _next_end(self, place: Place, limit: Limit) -> Position | None:
        """Where the next batch ends; None while there is nothing for it.

        What is for nobody here is passed over, without a batch, but not beyond the configuration.
        """
        passed, since = place, time.monotonic()
        if self._passed is not None and self._passed[0] == place:
            passed, since = Place.after(self._passed[1]), self._passed[2]
        if self._bounded and (self._target is None or passed.is_behind(self._target)):
            return None
        end = self._end_of(passed, limit)
        if end is None:
            overdue = passed != place and time.monotonic() - since > MOST_IDLE_S
            return passed.position if overdue else None
        if self._target is not None:
            end = min(end, self._target)
        if leaves(passed, end):
            return end if passed == place else passed.position
        if place.position is None or self._replicas.count(passed, end, limit.selected)[0]:
            return end
        self._passed = (place, end, since)
        return None

    def _end_of(self, place: Place, limit: Limit) -> Position | None:
        try:
            end = self._replicas.end_of(place, limit)
        except NoReplica as error:
            left = None if self._told.fail_on_loss else self._replicas.oldest_left(error)
            if left is None:
                raise
            place = left
            end = self._replicas.end_of(place, limit)
        if end is None and self._bounded:
            end = self._replicas.furthest(place)  # another one may go on where the first one asked was away
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the group is, for who watches the query, and how much is not read yet."""
        try:
            head = self._replicas.head()
            if head is None:
                return None
            rows, size = 0, 0
            if self._planned.position is not None and not self._planned.is_behind(head):
                rows, size = self._replicas.count(self._planned, head, self._told.selected)
        except NoReplica:
            return None
        return {**Place.after(head).offset, "rowsBehind": rows, "bytesBehind": size}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The batch in parts."""
        last = Place.of(end).position
        if start == end or last is None:
            return []
        inner = map(Position.parse, end.get("divided", "").split())
        return _ranges(self._replicas, self._told, Place.of(start), [*inner, last])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        assert isinstance(partition, Range)
        return _read(partition)

    def stop(self) -> None:
        """The query has ended."""
        if self._known is not None:
            self._known.close()
