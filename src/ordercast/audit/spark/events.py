"""The event table of a trace as a DataFrame, and what its files say of its runs.

Spark reads the Parquet files of a trace where they lie. What it cannot read as it is (journals of nodes that
run, files with wider types than the schema's) goes through the trace's own reader into Parquet that is
thrown away afterwards.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as fn

from ordercast.audit.files import has_one_clock, promises_by_name
from ordercast.audit.properties import Promises
from ordercast.trace.files import PARQUET
from ordercast.trace.reader import ALWAYS, about_runs, open_parquet, run_names, stored_table, trace_files
from ordercast.trace.schema import COLUMNS, OPTIONAL, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {"string": "string", "int32": "int", "int64": "bigint", "list of int32": "array<int>"}
_DDL = ", ".join(f"`{name}` {_SQL_TYPES[kind]}" for name, kind in COLUMNS.items())
_HIDDEN = ("_", ".")
"""Spark passes over files whose names begin so."""


@dataclass(frozen=True)
class Events:
    """A trace that Spark can read."""

    paths: list[str]
    """Parquet files that hold all of it."""
    scratch: Path
    """Room for more of them, for as long as the trace is open."""
    table: DataFrame
    """All columns of the trace and ``run_key``, a number that stands for the run."""
    runs: dict[int, str]
    """The runs, by key."""
    promised: dict[int, Promises | None]
    """What the files say each run has to keep; None where they say nothing."""
    one_clock: frozenset[int]
    """Runs whose files say that one clock told all times."""


@contextmanager
def open_events(spark: SparkSession, path: Path, *, promises: bool) -> Iterator[Events]:
    """Read a trace, and what its files promise if that is asked for. Raises `TraceError` if it is none."""
    files = trace_files(path)
    last = {name: file for file in files for name in run_names(file)}
    names = sorted(last, key=lambda name: files.index(last[name]))  # as the reference comes to them
    about = about_runs(path)
    scratch = Path(tempfile.mkdtemp(prefix="ordercast-audit-"))
    try:
        plain = [file if _is_plain(file) else _converted(file, scratch, at) for at, file in enumerate(files)]
        table = spark.read.schema(_DDL).parquet(*(_uri(file) for file in plain))
        key = fn.xxhash64("run") if len(names) > 1 else fn.lit(0).cast("bigint")
        keys = _keys(spark, names)
        said = about if promises else {}
        yield Events(
            [str(file.resolve()) for file in plain],
            scratch,
            table.withColumn("run_key", key),
            keys,
            {key: promises_by_name(name, said.get(name, {})) for key, name in keys.items()},
            frozenset(key for key, name in keys.items() if has_one_clock(about.get(name, {}))),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _keys(spark: SparkSession, names: list[str]) -> dict[int, str]:
    """Numbers for the runs: a lone run's is not worth reading its name in every row."""
    if len(names) < 2:
        return dict.fromkeys([0], names[0]) if names else {}
    hashed = spark.createDataFrame([(name,) for name in names], "run string")
    keys = {row[1]: row[0] for row in hashed.select("run", fn.xxhash64("run")).collect()}
    assert len(keys) == len(names), "two names of runs with one 64-bit hash"
    return keys


def _is_plain(file: Path) -> bool:
    """Whether Spark reads it as the schema says."""
    if file.suffix != PARQUET or file.name.startswith(_HIDDEN):
        return False
    with open_parquet(file) as parquet:
        schema = parquet.schema_arrow
        there = [field for field in SCHEMA if field.name not in OPTIONAL or field.name in schema.names]
        if any(schema.field(field.name).type != field.type for field in there):
            return False
        return not any(
            map(_lacks_values, (parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)))
        )


def _lacks_values(group: pq.RowGroupMetaData) -> bool:
    """Whether a column that needs a value in every row is known to lack some: the reader says so then."""
    told = {
        column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))
    }
    return any(
        statistics is not None and statistics.null_count for name in ALWAYS if (statistics := told.get(name))
    )


def _converted(file: Path, scratch: Path, at: int) -> Path:
    to = scratch / f"{at:06}{PARQUET}"
    pq.write_table(stored_table(file), to)
    return to


def _uri(file: Path) -> str:
    """The file's name with nothing in it that Spark takes for a pattern."""
    text = str(file.resolve())
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in text)
