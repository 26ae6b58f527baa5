"""The event table of a trace as a DataFrame, and what its files say of its runs.

Spark, or its Python tasks, read the Parquet files of a trace where they lie. What cannot be read as it is
(journals of nodes that run, files with wider types than the schema's) goes through the trace's own reader
into Parquet that is thrown away afterwards.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as fn

from ordercast.audit.files import has_one_clock, promises_by_name
from ordercast.audit.properties import Promises
from ordercast.audit.spark.passes import GROUPS_A_TASK
from ordercast.audit.spark.plans import CONTROL_EVENTS, control_rows
from ordercast.storage import Location
from ordercast.trace.contents import Contents, Part
from ordercast.trace.files import PARQUET
from ordercast.trace.reader import stored_table
from ordercast.trace.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {"string": "string", "int32": "int", "int64": "bigint", "list of int32": "array<int>"}
_DDL = ", ".join(f"`{name}` {_SQL_TYPES[kind]}" for name, kind in COLUMNS.items())
_HIDDEN = ("_", ".")
"""Spark passes over files whose names begin so."""


@dataclass(frozen=True)
class Events:
    """A trace that Spark can read."""

    files: list[tuple[str, int]]
    """Parquet files that hold all of it, with how many row groups each has."""
    scratch: Path
    """Room for more of them, for as long as the trace is open."""
    table: DataFrame
    """All columns of the trace and ``run_key``, a number that stands for the run."""
    control: DataFrame
    """Those of its rows that are installs, or beginnings and ends of lives."""
    runs: dict[int, str]
    """The runs that are asked for, by key."""
    others: bool
    """Whether there are rows of other runs beside them."""
    promised: dict[int, Promises | None]
    """What the files say each run has to keep; None where they say nothing."""
    one_clock: frozenset[int]
    """Runs whose files say that one clock told all times."""


@contextmanager
def open_events(
    spark: SparkSession, contents: Contents, names: list[str], *, promises: bool
) -> Iterator[Events]:
    """The files of some runs of a trace, and what they promise if that is asked for."""
    wanted = frozenset(names)
    parts = [part for part in contents.parts if not wanted.isdisjoint(part.runs)]
    others = any(not wanted.issuperset(part.runs) for part in parts)
    about = contents.about()
    scratch = Path(tempfile.mkdtemp(prefix="ordercast-audit-"))
    try:
        files = [_readable(part, scratch, at) for at, part in enumerate(parts)]
        table, control = _tables(spark, files)
        alone = len(names) == 1 and not others
        key = fn.lit(0).cast("bigint") if alone else fn.xxhash64("run")
        keys = {0: names[0]} if alone else _keys(spark, names)
        said = about if promises else {}
        yield Events(
            files,
            scratch,
            table.withColumn("run_key", key),
            control.withColumn("run_key", key),
            keys,
            others,
            {key: promises_by_name(name, said.get(name, {})) for key, name in keys.items()},
            frozenset(key for key, name in keys.items() if has_one_clock(about.get(name, {}))),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tables(spark: SparkSession, files: list[tuple[str, int]]) -> tuple[DataFrame, DataFrame]:
    """All rows, and the few that say who was where.

    Spark reads what is on this machine. What is in a store is read in Python tasks, by Arrow, for which no
    jar is needed; they leave out row groups in which nothing is wanted.
    """
    here, groups = list[str](), list[tuple[str, int]]()
    for path, number in files:
        if Location.of(path).local is not None:
            here.append(path)
        else:
            groups += ((path, at) for at in range(number))
    tables: list[tuple[DataFrame, DataFrame]] = []
    if here:
        table = spark.read.schema(_DDL).parquet(*map(_escaped, here))
        tables.append((table, control_rows(table)))
    if groups:
        tasks = [groups[at : at + GROUPS_A_TASK] for at in range(0, len(groups), GROUPS_A_TASK)]
        rows = spark.range(0, len(tasks), 1, len(tasks))
        tables.append(
            (
                rows.mapInArrow(partial(_read, tasks, None), _DDL),
                rows.mapInArrow(partial(_read, tasks, CONTROL_EVENTS), _DDL),
            )
        )
    (table, control), *rest = tables
    for other, its in rest:
        table, control = table.unionAll(other), control.unionAll(its)
    return table, control


def _read(
    tasks: list[list[tuple[str, int]]], events: Sequence[str] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, group in (each for at in batch.column(0).to_pylist() for each in tasks[at]):
            table = stored_table(Part(Location.of(path), {}, (), {}, True), [group], events)
            yield from table.to_batches()


def _keys(spark: SparkSession, names: list[str]) -> dict[int, str]:
    """Numbers for the runs. (A lone run's is not worth reading its name in every row.)"""
    hashed = spark.createDataFrame([(name,) for name in names], "run string")
    keys = {row[1]: row[0] for row in hashed.select("run", fn.xxhash64("run")).collect()}
    assert len(keys) == len(names), "two names of runs with one 64-bit hash"
    return keys


def _readable(part: Part, scratch: Path, at: int) -> tuple[str, int]:
    """A file that Spark reads as the schema says, and its number of row groups."""
    if part.plain and (part.file.store or not part.file.name.startswith(_HIDDEN)):
        return part.file.uri, len(part.groups)
    to = scratch / f"{at:06}{PARQUET}"
    pq.write_table(stored_table(part), to)
    return str(to), pq.read_metadata(to).num_row_groups


def _escaped(path: str) -> str:
    """The file's name with nothing in it that Spark takes for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in path)
