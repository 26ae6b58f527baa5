"""Micro-batches of a group's order, each once in a table: for ``foreachBatch`` of Spark.

A row has its place in the total order, and the table knows from where to where it holds the order: each
commit says which positions it adds. So whatever is landed again is left out, with or without a checkpoint,
by the same query or by another. Tasks write the files, the driver commits them: a batch is there whole or
not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, Schema

from ordercast.lake.delta import Added, DeltaFiles, LakeError, Planned, told, write_file
from ordercast.lake.lake import plain
from ordercast.log.position import Position
from ordercast.storage import Location, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION = ("configuration", "representative", "seq", "slot")
"""The fields of the column ``position``, as the source has it."""
_WIDTHS = ("Int64", "Int32", "Int64", "Int32")
_FIRST, _FROM, _TO, _ROWS = "ordercast.first", "ordercast.from", "ordercast.to", "ordercast.rows"
"""What a commit says: where the table begins, which positions it adds, and how many rows."""
ROWS_A_FILE = 500_000
_WRITTEN = "path string, size long, rows long, bounds string, least string, first string, last string"


class Landed(NamedTuple):
    """What came of a batch."""

    first: Position
    last: Position
    rows: int
    """Rows that were added, from one position to the other."""


class Span(NamedTuple):
    """From where to where a table holds the order."""

    first: Position
    last: Position


class Landing:
    """Lands the rows of batches in a table of Delta, here or in a store: ``foreachBatch(Landing(URI))``."""

    def __init__(self, where: Where) -> None:
        """`where` the table is; the first batch makes it, with its columns. One of them is ``position``."""
        self.where = Location.of(where)
        self._files = DeltaFiles(self.where)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """What ``foreachBatch`` calls."""
        self.land(batch)

    def land(self, batch: DataFrame) -> Landed | None:
        """Add the rows of a batch that the table has not. None if it has all of them.

        Raises `LakeError` if there are rows from before the table's first, or other columns than its own.
        """
        self._make(batch)
        while True:
            span = self.span
            outcomes = self._write(batch, span)
            new = [each for each in outcomes if each.path]
            files = [Added(each.path, each.size, each.rows, {}, each.bounds) for each in new]
            try:
                landed = _landed(outcomes, span, self.where)
                if landed is None or self._commit(files, landed, span):
                    return landed
            except BaseException:
                self._files.remove(files)
                raise
            self._files.remove(files)  # somebody else has landed rows meanwhile

    @property
    def span(self) -> Span | None:
        """From where to where the table holds the order; None if it holds nothing, or is not there."""
        return self._span(self._files.newest()) if self._files.exists() else None

    @property
    def position(self) -> Position | None:
        """The last position in the table: the ``startingPosition`` of a query that has no checkpoint."""
        span = self.span
        return None if span is None else span.last

    def as_of(self, position: Position | str) -> pa.Table:
        """The table as it was when it held the order up to this position.

        Raises `LakeError` if it is not there yet.
        """
        place = Position.parse(position) if isinstance(position, str) else position
        span = self.span
        if span is None or span.last < place:
            there = "is empty" if span is None else f"holds the order up to {span.last}"
            raise LakeError(f"{self.where} {there}: it was never as of {place}")
        return _query(self._files.newest(), f"SELECT * FROM landed WHERE position <= {_in_sql(place)}")

    def _span(self, table: DeltaTable) -> Span | None:
        """What the last commit that adds rows says; if the log has none any more, what the rows say."""
        for commit in self._files.commits(table):
            if _TO in commit:
                return Span(Position.parse(commit[_FIRST]), Position.parse(commit[_TO]))
        row = _query(table, "SELECT min(position) AS a, max(position) AS b FROM landed").to_pylist()[0]
        return None if row["a"] is None else Span(_of(row["a"]), _of(row["b"]))

    def _make(self, batch: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        kind = next((field.dataType for field in batch.schema.fields if field.name == "position"), None)
        if not isinstance(kind, StructType) or tuple(kind.fieldNames()) != POSITION:
            raise LakeError(
                f"a batch needs the column position of the source, to land in {self.where}: select it, too"
            )
        wanted = to_arrow_schema(batch.schema, timezone="UTC")
        if not self._files.exists():
            DeltaFiles(self.where, wanted).make()
        table = self._files.newest()
        if table.metadata().partition_columns:
            raise LakeError(f"{self.where} is partitioned: land in a table of its own")
        there, here = _columns(table.schema()), _columns(Schema.from_arrow(wanted))
        if there != here:
            raise LakeError(
                f"{self.where} has the columns {', '.join(there)}, and the batch has {', '.join(here)}: "
                "select the same, in the same order, or land in another table"
            )

    def _write(self, batch: DataFrame, span: Span | None) -> list[Any]:
        task = _writing(self.where, None if span is None else span.last)
        return batch.sortWithinPartitions("position").mapInArrow(task, _WRITTEN).collect()

    def _commit(self, files: list[Added], landed: Landed, span: Span | None) -> bool:
        """False if the table is not any more as it was when the files were written."""
        said = {
            _FIRST: str(landed.first if span is None else span.first),
            _FROM: str(landed.first),
            _TO: str(landed.last),
            _ROWS: str(landed.rows),
        }
        return self._files.commit(lambda table: Planned(files, said) if self._span(table) == span else None)


def _landed(outcomes: list[Any], span: Span | None, where: Location) -> Landed | None:
    """What a commit of these files adds; None if there are none."""
    least = min((Position.parse(each.least) for each in outcomes), default=None)
    if span is not None and least is not None and least < span.first:
        raise LakeError(
            f"the batch begins at {least}, and {where} at {span.first}: what lies between may be missing "
            "there; land it in another table"
        )
    new = [each for each in outcomes if each.path]
    if not new:
        return None
    first = min(Position.parse(each.first) for each in new)
    return Landed(first, max(Position.parse(each.last) for each in new), sum(each.rows for each in new))


def _query(table: DeltaTable, query: str) -> pa.Table:
    with told(Location.of(table.table_uri)):
        return plain(pa.table(QueryBuilder().register("landed", table).execute(query)))


def _columns(schema: Schema) -> list[str]:
    return [f"{field.name} {_kind(field.type)}" for field in schema.fields]


def _kind(kind: Any) -> str:
    """A type, whether values may be missing or not."""
    if hasattr(kind, "fields"):
        return f"struct<{', '.join(f'{field.name} {_kind(field.type)}' for field in kind.fields)}>"
    if hasattr(kind, "element_type"):
        return f"array<{_kind(kind.element_type)}>"
    if hasattr(kind, "key_type"):
        return f"map<{_kind(kind.key_type)}, {_kind(kind.value_type)}>"
    return str(kind.type)


def _in_sql(place: Position) -> str:
    fields = (
        f"'{name}', arrow_cast({value}, '{width}')"
        for name, value, width in zip(POSITION, place, _WIDTHS, strict=True)
    )
    return f"named_struct({', '.join(fields)})"


# --- in tasks ------------------------------------------------------------------------------------


def _writing(where: Location, last: Position | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[Any]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _files(where, last, batches)

    return write


def _files(where: Location, last: Position | None, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Write what comes after a position, of rows that are in order; say what was written."""
    least: Position | None = None
    held: list[pa.RecordBatch] = []
    rows, told_of = 0, False
    for batch in batches:
        if not batch.num_rows:
            continue
        least = least or _place(batch, 0)
        fresh = batch if last is None else batch.slice(_known(batch, last))
        if fresh.num_rows:
            held.append(fresh)
            rows += fresh.num_rows
        if rows >= ROWS_A_FILE:
            yield _outcome(where, least, held)
            held, rows, told_of = [], 0, True
    if held or (least is not None and not told_of):
        yield _outcome(where, least, held)


def _outcome(where: Location, least: Position | None, held: list[pa.RecordBatch]) -> pa.RecordBatch:
    names = [word.split()[0] for word in _WRITTEN.split(", ")]
    row: list[Any] = [None] * 4 + [str(least), None, None]
    if held:
        file = write_file(where, pa.Table.from_batches(held), {})
        ends = str(_place(held[0], 0)), str(_place(held[-1], held[-1].num_rows - 1))
        row = [file.path, file.size, file.rows, file.bounds, str(least), *ends]
    kinds = [pa.int64() if name in ("size", "rows") else pa.string() for name in names]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(row, kinds, strict=True)], names=names
    )


def _known(batch: pa.RecordBatch, last: Position) -> int:
    """How many rows at the beginning are not behind a position."""
    rows = int(batch.num_rows)
    if _place(batch, rows - 1) <= last:
        return rows
    if _place(batch, 0) > last:
        return 0
    fields = [pc.struct_field(batch.column("position"), name) for name in POSITION]
    behind = pa.array([False] * rows)
    for values, value in zip(reversed(fields), reversed(last), strict=True):
        behind = pc.or_(pc.greater(values, value), pc.and_(pc.equal(values, value), behind))
    return rows - int(pc.sum(behind).as_py())


def _place(batch: pa.RecordBatch, row: int) -> Position:
    return _of(batch.column("position")[row].as_py())


def _of(fields: dict[str, int]) -> Position:
    return Position(*(fields[name] for name in POSITION))
