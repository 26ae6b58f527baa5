"""Reads the rows of traces back, whoever wrote them, and says in a sentence what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordercast.storage import Location, Where
from ordercast.trace.blocks import open_journal
from ordercast.trace.contents import (
    ALWAYS,
    DAMAGED,
    Contents,
    Part,
    contents_of,
    converted,
    not_parquet,
    opened_parquet,
    part_of,
    unreadable,
)
from ordercast.trace.files import JOURNAL
from ordercast.trace.schema import EVENTS, SCHEMA, Row, TraceError
from ordercast.trace.writer import BATCH, record_batch

_IN_ORDER = [("node", "ascending"), ("step", "ascending")]


def read_runs(path: Where) -> Iterator[tuple[str, list[Row]]]:
    """Yield each run with all of its rows, from a directory of Parquet files and journals or from one file.

    A run may lie in several files and a file may hold several runs. No more is held at a time than
    the runs that the files read so far have begun and not finished. The rows of a run in one file come as
    they lie there; those of several files by node and step.

    The nodes may still be writing: what they had written when their files were opened is read.
    """
    return runs_in(contents_of(path))


def runs_in(contents: Contents) -> Iterator[tuple[str, list[Row]]]:
    """Yield each run, with all of its rows, of a trace whose files have been looked at."""
    ending: dict[Location, list[str]] = {}
    for run, parts in contents.runs.items():
        ending.setdefault(parts[-1].file, []).append(run)
    begun: dict[str, list[pa.Table]] = {}
    for part in contents.parts:
        for run, table in by_run(stored_table(part)):
            begun.setdefault(run, []).append(table)
        for run in ending.get(part.file, ()):
            if run in begun:
                yield run, run_of(begun.pop(run))


def run_of(tables: list[pa.Table]) -> list[Row]:
    """The rows of a run, from what each of its files has of it."""
    table = pa.concat_tables(tables)
    return rows_of(table if len(tables) == 1 else table.sort_by(_IN_ORDER))


def about_runs(path: Where) -> dict[str, dict[str, str]]:
    """What the files say of each run beside its rows: see `ordercast.trace.schema.About`."""
    return contents_of(path).about()


def stored_table(
    part: Part, groups: Collection[int] | None = None, events: Collection[str] | None = None
) -> pa.Table:
    """The rows of one file, or of some of its row groups or events, with the schema's types."""
    if part.file.suffix == JOURNAL:
        table = _read_journal(part)
    else:
        table = _read_parquet(part, groups, events)
    for event in pc.unique(table.column("event")).to_pylist():
        if event not in EVENTS:
            raise TraceError(f"{part.file}: {event!r} is no event of a trace: they are {', '.join(EVENTS)}.")
    return table


def _read_parquet(
    part: Part, groups: Collection[int] | None = None, events: Collection[str] | None = None
) -> pa.Table:
    file = part.file
    chosen = None if events is None else pa.array(events, pa.string())
    try:
        with opened_parquet(file) as (parquet, seal):
            wanted = range(parquet.num_row_groups) if groups is None else groups
            if seal is not None:
                for group in wanted:
                    seal.check(group)
            names = [name for name in SCHEMA.names if name in parquet.schema_arrow.names]
            if chosen is not None:
                told = {at: parquet.read_row_group(at, ["event"]).column("event") for at in wanted}
                wanted = [at for at in wanted if pc.any(pc.is_in(told[at], value_set=chosen)).as_py()]
            table = parquet.read_row_groups(list(wanted), names)
            if chosen is not None:
                table = table.filter(pc.is_in(table.column("event"), value_set=chosen))
    except (*DAMAGED, OSError) as error:
        raise not_parquet(file, error) from error
    columns = [_column(part, field, table) for field in SCHEMA]
    for name, column in zip(SCHEMA.names, columns, strict=True):
        if name in ALWAYS and column.null_count:
            raise TraceError(f"{file}: column {name!r} has rows without a value: every event needs one.")
    return pa.table(columns, schema=SCHEMA)


def _column(part: Part, field: pa.Field, table: pa.Table) -> pa.ChunkedArray | pa.Array:
    if field.name in table.column_names:
        return _cast(part.file, field, table.column(field.name))
    value = part.given.get(field.name)
    if value is None:
        return pa.nulls(table.num_rows, field.type)
    return _cast(part.file, field, pa.chunked_array([pa.repeat(value, table.num_rows)]))


def _read_journal(part: Part) -> pa.Table:
    file = part.file
    batches: list[pa.RecordBatch] = []
    rows: list[Row] = []
    try:
        with open_journal(file) as (run, _, blocks):
            for block in blocks:
                rows += block
                if len(rows) >= BATCH:
                    batches.append(record_batch(run or "", rows))
                    rows = []
    except FileNotFoundError:
        other = converted(file)
        return SCHEMA.empty_table() if other is None else _read_parquet(part_of(other, file.parent))
    except OSError as error:
        raise unreadable(file, error) from error
    if rows:
        batches.append(record_batch(run or "", rows))
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _cast(file: Location, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TraceError(
            f"{file}: column {field.name!r} should be {field.type} and is {column.type}, "
            f"and not every value fits ({error}): write it with the type of ordercast.trace.schema.SCHEMA."
        ) from error


def by_run(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Cut a table into its runs, each in its own order of rows."""
    names = pc.unique(table.column("run")).to_pylist()
    if len(names) == 1:
        yield names[0], table
        return
    places = pc.index_in(table.column("run"), value_set=pa.array(names, pa.string()))
    table = table.take(pc.sort_indices(places))  # stable
    start = 0
    for name, size in zip(names, pc.value_counts(places).field("counts").to_pylist(), strict=True):
        yield name, table.slice(start, size)
        start += size


def rows_of(table: pa.Table) -> list[Row]:
    """A table with the schema's columns, as rows."""
    columns: Iterable[Iterable[Any]] = (_values(column) for column in table.columns[1:])
    return list(zip(*columns, strict=False))  # not strict: a column of nulls is an endless repeat(None)


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    """A column's values; a string that occurs often is one object, which makes comparing quick."""
    if column.null_count == len(column):
        return repeat(None)
    if pa.types.is_list(column.type):
        return [None if members is None else tuple(members) for members in column.to_pylist()]
    if not pa.types.is_string(column.type):
        values: list[int | None] = column.to_pylist()
        return values
    coded = column.combine_chunks().dictionary_encode()
    words = [*coded.dictionary.to_pylist(), None]
    return map(words.__getitem__, coded.indices.fill_null(len(words) - 1).to_pylist())
