"""Reads traces back, whoever wrote them, and says in a sentence what is wrong with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.trace.blocks import open_journal
from ordercast.trace.files import JOURNAL, PARQUET
from ordercast.trace.schema import ABOUT, EVENTS, OPTIONAL, SCHEMA, Row, TraceError
from ordercast.trace.writer import BATCH, record_batch

ALWAYS = ("run", "node", "incarnation", "step", "time_us", "event")
"""Columns that every row has a value in."""

DAMAGED = (pa.ArrowException, UnicodeDecodeError)
"""What reading a file raises that is no Parquet, or not what was written."""
_IN_ORDER = [("node", "ascending"), ("step", "ascending")]


def read_runs(path: Path) -> Iterator[tuple[str, list[Row]]]:
    """Yield each run with all of its rows, from a directory of Parquet files and journals or from one file.

    A run may lie in several files and a file may hold several runs. No more is held at a time than
    the runs that the files read so far have begun and not finished. The rows of a run in one file come as
    they lie there; those of several files by node and step.

    The nodes may still be writing: what they had written when their files were opened is read.
    """
    files = trace_files(path)
    last = {run: file for file in files for run in run_names(file)}
    begun: dict[str, list[pa.Table]] = {}
    for file in files:
        for run, table in by_run(stored_table(file)):
            begun.setdefault(run, []).append(table)
        for run in [run for run in begun if last[run] == file]:
            tables = begun.pop(run)
            table = pa.concat_tables(tables)
            yield run, rows_of(table if len(tables) == 1 else table.sort_by(_IN_ORDER))


def about_runs(path: Path) -> dict[str, dict[str, str]]:
    """What the files say of each run beside its rows: see `ordercast.trace.schema.About`."""
    known: dict[str, dict[str, str]] = {}
    for file in trace_files(path):
        about = _about(file)
        for run in run_names(file) if about else ():
            its = known.setdefault(run, about)
            if its != about:
                raise TraceError(
                    f"{file}: run {run!r} is said to be {_told(about)}, and elsewhere {_told(its)}: give the "
                    "files of one run only."
                )
    return known


def _about(file: Path) -> dict[str, str]:
    if file.suffix == JOURNAL:
        try:
            with open_journal(file) as journal:
                return dict(journal.about)
        except FileNotFoundError:
            converted = _converted(file)
            return {} if converted is None else _about(converted)
        except OSError as error:
            raise _unreadable(file, error) from error
    try:
        with open_parquet(file) as parquet:
            found = parquet.schema_arrow.metadata or {}
    except (*DAMAGED, OSError) as error:
        raise _not_parquet(file, error) from error
    words = {key.decode(): value.decode() for key, value in found.items() if key.startswith(ABOUT.encode())}
    return {key.removeprefix(ABOUT): value for key, value in words.items()}


def open_parquet(file: Path | str, **how: Any) -> pq.ParquetFile:
    """A file whose pages are checked as they are read: damage is an error, and no other data."""
    return pq.ParquetFile(file, page_checksum_verification=True, **how)


def _told(about: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items())


def trace_files(path: Path) -> list[Path]:
    """The files of a trace, each part once, in the order in which they are read."""
    if not path.exists():
        raise TraceError(f"{path} does not exist: give the directory that holds the trace's Parquet files.")
    if path.is_file():
        return [path]
    # Journals first: one that becomes Parquet between the two looks is seen twice, and not never.
    journals = {file.stem: file for file in path.glob(f"*{JOURNAL}")}
    converted = {file.stem: file for file in path.glob(f"*{PARQUET}")}
    files = journals | converted
    if files:
        return [files[stem] for stem in sorted(files)]
    if any(path.glob("*.parquet.partial")):
        raise TraceError(
            f"{path} holds only unfinished files (*.parquet.partial): "
            "end the run, which closes them, and read the trace then."
        )
    raise TraceError(
        f"{path} holds no Parquet file: give the directory that the run wrote its trace to "
        "(the files end in .parquet or .journal)."
    )


def run_names(file: Path) -> list[str]:
    """Check a file's columns and say whose rows it holds, without reading the rest of it."""
    if file.suffix == JOURNAL:
        try:
            with open_journal(file) as journal:
                return [] if journal.run is None else [journal.run]
        except FileNotFoundError:
            converted = _converted(file)
            return [] if converted is None else run_names(converted)
        except OSError as error:
            raise _unreadable(file, error) from error
    try:
        with open_parquet(file) as parquet:
            _check_columns(file, parquet.schema_arrow)
            groups = [_runs_of_group(parquet, group) for group in range(parquet.num_row_groups)]
    except (*DAMAGED, OSError) as error:
        raise _not_parquet(file, error) from error
    return list(dict.fromkeys(name for names in groups for name in names))


def _runs_of_group(parquet: pq.ParquetFile, group: int) -> list[str]:
    """Whose rows a row group holds: mostly one run's, as its statistics say."""
    column = parquet.schema_arrow.get_field_index("run")
    told = parquet.metadata.row_group(group).column(column).statistics
    if told is not None and told.has_min_max and told.min == told.max and told.null_count == 0:
        return [str(told.min)]
    names = pc.unique(parquet.read_row_group(group, ["run"]).column("run"))
    return [str(name) for name in names.to_pylist()]


def _converted(journal: Path) -> Path | None:
    """What a journal that is gone became; None if it held no row, or was too old to be kept."""
    parquet = journal.with_suffix(PARQUET)
    return parquet if parquet.exists() else None


def _check_columns(file: Path, schema: pa.Schema) -> None:
    for field in SCHEMA:
        if schema.get_field_index(field.name) < 0:
            if field.name in OPTIONAL:
                continue
            raise TraceError(
                f"{file} has no column {field.name!r}: a trace has the columns "
                f"{', '.join(SCHEMA.names)}. Write it with ordercast.trace.writer, or add the column."
            )
        found = schema.field(field.name).type
        if not _same_sort(found, field.type):
            raise TraceError(
                f"{file}: column {field.name!r} should be {field.type} and is {found}: "
                "write it with the type of ordercast.trace.schema.SCHEMA."
            )


def _same_sort(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a cast can be without loss: it still fails if a value does not fit."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(found))
    if pa.types.is_string(expected):
        strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(kind(found) for kind in strings)
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(found) for kind in lists) and _same_sort(found.value_type, expected.value_type)


def stored_table(file: Path) -> pa.Table:
    """All rows of one file, with the schema's types."""
    table = _read_journal(file) if file.suffix == JOURNAL else _read_parquet(file)
    for event in pc.unique(table.column("event")).to_pylist():
        if event not in EVENTS:
            raise TraceError(f"{file}: {event!r} is no event of a trace: they are {', '.join(EVENTS)}.")
    return table


def _read_parquet(file: Path) -> pa.Table:
    try:
        with open_parquet(file) as parquet:
            names = [name for name in SCHEMA.names if name in parquet.schema_arrow.names]
            table = parquet.read(names)
    except (*DAMAGED, OSError) as error:
        raise _not_parquet(file, error) from error
    for name in ALWAYS:
        if table.column(name).null_count:
            raise TraceError(f"{file}: column {name!r} has rows without a value: every event needs one.")
    columns = [
        _cast(file, field, table.column(field.name))
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _read_journal(file: Path) -> pa.Table:
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
        converted = _converted(file)
        return SCHEMA.empty_table() if converted is None else _read_parquet(converted)
    except OSError as error:
        raise _unreadable(file, error) from error
    if rows:
        batches.append(record_batch(run or "", rows))
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _cast(file: Path, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TraceError(
            f"{file}: column {field.name!r} should be {field.type} and is {column.type}, "
            f"and not every value fits ({error}): write it with the type of ordercast.trace.schema.SCHEMA."
        ) from error


def _unreadable(file: Path, error: OSError) -> TraceError:
    return TraceError(
        f"{file} cannot be read ({error.strerror}): see that the file is there and may be read."
    )


def _not_parquet(file: Path, error: Exception) -> TraceError:
    return TraceError(
        f"{file} cannot be read as Parquet ({str(error).splitlines()[0]}): "
        "take it away if it is no part of the trace; write the trace again if it is cut off."
    )


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
