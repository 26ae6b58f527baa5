"""Rows of the event table for the reference: as many as it can hold, and never more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from ordercast.audit.spark.plans import RunKey
from ordercast.trace.reader import by_run, rows_of
from ordercast.trace.schema import SCHEMA, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_ROWS = 400_000
"""Rows that the reference is given at a time: about half a gigabyte, and a few seconds."""


def of_runs(spark: SparkSession, table: DataFrame, keys: Iterable[RunKey]) -> DataFrame:
    """The rows of these runs."""
    small = spark.createDataFrame([(key,) for key in keys], "run_key bigint")
    return table.join(fn.broadcast(small), "run_key", "left_semi")


def rows_by_run(table: DataFrame) -> dict[str, list[Row]]:
    """All rows of a table that is known to be small, by the name of their run."""
    found = table.select(*SCHEMA.names).toArrow().cast(SCHEMA)
    return {name: rows_of(part) for name, part in by_run(found)} if found.num_rows else {}


def in_batches(sizes: Mapping[RunKey, int]) -> Iterator[list[RunKey]]:
    """Runs, by how many rows each has, in batches that the reference can hold."""
    batch: list[RunKey] = []
    held = 0
    for key, size in sizes.items():
        if batch and held + size > MOST_ROWS:
            yield batch
            batch, held = [], 0
        batch.append(key)
        held += size
    if batch:
        yield batch
