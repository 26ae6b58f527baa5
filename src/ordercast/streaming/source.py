"""``spark.read.format("ordercast")`` and ``spark.readStream.format("ordercast")``: the ordered log as rows.

Offsets are positions in the total order. An offset also says at which positions the batch that it ends is
divided among tasks: when it is replayed, each task has the same rows again, whichever replica is asked.
Planner and readers are different processes, perhaps on different machines: a partition carries everything
that reading it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ordercast.errors import ConfigProblem
from ordercast.log import Position
from ordercast.streaming.options import EARLIEST, LATEST, Access, Reading, reading, writing
from ordercast.streaming.replicas import NoReplica, Place, Replicas
from ordercast.streaming.rows import SCHEMA, rows
from ordercast.streaming.sink import BatchWriter, StreamWriter, checked_schema

ROWS_A_PARTITION = 2_000_000
"""A task of so many rows takes long enough to be worth its while, and several of them use all cores."""


@dataclass
class Range(InputPartition):
    """Rows that one task reads."""

    access: Access
    first: int
    """Which of the nodes is asked first: so partitions are spread over them."""
    start: Place
    end: Position
    group: str | None
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
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A table of what there is now."""
        _check_not_chosen(schema)
        return TableReader(reading(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream of what there is, and what there will be."""
        _check_not_chosen(schema)
        return StreamReader(reading(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Writes the rows of a table."""
        return BatchWriter(writing(self.options), checked_schema(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Writes the rows of a stream."""
        return StreamWriter(writing(self.options), checked_schema(schema, overwrite=False))


def _check_not_chosen(schema: StructType) -> None:
    if schema != SCHEMA:
        raise ConfigProblem(
            f"the columns of ordercast are {', '.join(SCHEMA.fieldNames())}, with types of their own: leave "
            "schema(…) out, and select what you need"
        )


def _read(partition: Range) -> Iterator[pa.RecordBatch]:
    replicas = Replicas(partition.access, partition.first)
    try:
        told = partition.start, partition.end, partition.group, partition.fail_on_loss, partition.path
        for batch in replicas.read(*told):
            yield rows(batch)
    finally:
        replicas.close()


def _ranges(replicas: Replicas, told: Reading, start: Place, ends: Sequence[Position]) -> list[Range]:
    begin = told.access.nodes.index(replicas.first)
    starts = [start, *map(Place.after, ends)]
    return [
        Range(told.access, begin + part, at, end, told.group, told.fail_on_loss)
        for part, (at, end) in enumerate(zip(starts, ends, strict=False))
    ]


def _beginning(replicas: Replicas, told: Reading) -> Place:
    if told.start == EARLIEST:
        return replicas.oldest()
    if told.start == LATEST:
        return replicas.newest()
    assert isinstance(told.start, Position)
    return Place.after(told.start)


class TableReader(DataSourceReader):
    """What there is when the query is planned."""

    def __init__(self, told: Reading) -> None:
        self._told = told

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges up to the head."""
        replicas = Replicas(self._told.access)
        try:
            start = _beginning(replicas, self._told)
            end = replicas.furthest(start)
            if end is None:
                return []
            parts = _ranges(replicas, self._told, start, replicas.split(start, end, ROWS_A_PARTITION))
            return [replace(part, path=replicas.path(part.start, part.end)) for part in parts]
        finally:
            replicas.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one of them."""
        return _read(partition) if isinstance(partition, Range) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What there is, and what there will be."""

    def __init__(self, told: Reading) -> None:
        self._told = told
        self._known: Replicas | None = None
        self._target: Position | None = None
        self._bounded = False

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
        most = self._told.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, what is there now is all there is."""
        self._target = self._replicas.newest().position
        self._bounded = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """Where the next batch ends. Asked 90 times a second when there is nothing to do."""
        place = Place.of(start)
        if self._bounded and (self._target is None or place.is_behind(self._target)):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        try:
            end = self._replicas.end_of(place, most)
        except NoReplica as error:
            left = None if self._told.fail_on_loss else self._replicas.oldest_left(error)
            if left is None:
                raise
            place = left
            end = self._replicas.end_of(place, most)
        if end is None and self._bounded:
            end = self._replicas.furthest(place)  # another one may go on where the first one asked was away
        if end is None:
            return start
        if self._target is not None:
            end = min(end, self._target)
        *inner, _ = self._replicas.split(place, end, ROWS_A_PARTITION)
        return {**Place.after(end).offset, **({"divided": " ".join(map(str, inner))} if inner else {})}

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802
        """How far the group is, for who watches the query."""
        try:
            head = self._replicas.head()
        except NoReplica:
            return None
        return None if head is None else Place.after(head).offset

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
