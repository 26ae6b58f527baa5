"""Large traces whose oldest files were deleted: where all nodes still have everything that follows.

`ordercast.trace.trimmed` finds the earliest such point, and needs all rows of a run for it. For a run too
large for that the point is looked for among the installs: the latest configuration that a node with a missing
beginning comes to. A node found in the middle of one is waited for until its next.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as fn

from ordercast.audit.spark.passes import Source
from ordercast.audit.spark.plans import RunKey, control_rows
from ordercast.audit.spark.rows import of_runs
from ordercast.trace.trimmed import beyond_falls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STARTS = "run_key bigint, node int, start bigint"


def from_common_point(
    spark: SparkSession, table: DataFrame, source: Source, scratch: Path, most: int
) -> tuple[DataFrame, Source, dict[RunKey, str]]:
    """The trace without what large runs no longer have whole, and for each of these runs a sentence.

    Where there is something to leave out, the rest is written anew, below `scratch`.
    """
    found = table.groupBy("run_key", "node").agg(fn.min("step"), fn.count(fn.lit(1))).collect()
    sizes: dict[RunKey, int] = {}
    first: dict[tuple[RunKey, int], int] = {}
    for key, node, step, count in found:
        sizes[key] = sizes.get(key, 0) + count
        first[key, node] = step
    large = [key for key, size in sizes.items() if size > most]
    if not large:
        return table, source, {}
    installed = control_rows(of_runs(spark, table, large)).where(
        "event = 'install' AND config_kind = 'regular'"
    )
    installs: dict[tuple[RunKey, int], list[tuple[int, int]]] = {}
    members_of: dict[RunKey, list[tuple[int, list[int]]]] = {}
    columns = ("run_key", "node", "step", "config_seq", "members")
    for key, node, step, seq, members in installed.select(*columns).collect():
        installs.setdefault((key, node), []).append((step, seq))
        members_of.setdefault(key, []).append((seq, members))
    starts: list[tuple[RunKey, int, int]] = []
    notes: dict[RunKey, str] = {}
    for key in large:
        nodes = [node for run, node in first if run == key]
        cut = [node for node in nodes if first[key, node]]
        bound = max((_next(installs.get((key, node), [])) for node in cut), default=0)
        if cut:
            numbers = {node: [seq for _, seq in sorted(installs.get((key, node), []))] for node in nodes}
            bound = beyond_falls(bound, numbers, members_of.get(key, ()), cut)
        starts += (
            (key, node, start)
            for node in nodes
            if (start := _from(installs.get((key, node), []), bound if cut else None)) is not None
        )
        notes[key] = (
            f"judged from configuration number {bound} on, from where every node still has all its rows"
        )
    small = spark.createDataFrame(starts, _STARTS)
    joined = table.join(fn.broadcast(small), ["run_key", "node"], "left")
    keep = fn.col("step") >= fn.col("start")
    left = joined.where(~fn.col("run_key").isin(*large) | keep)
    there = scratch / "common" / str(source.views)
    left.select(*table.columns).write.parquet(str(there))
    files = [(str(file), pq.read_metadata(file).num_row_groups) for file in sorted(there.glob("*.parquet"))]
    return spark.read.schema(table.schema).parquet(str(there)), source._replace(files=files), notes


def _next(installs: list[tuple[int, int]]) -> int:
    """The first regular configuration that a node installs; beyond all if it installs none."""
    return min(installs)[1] if installs else 2**63 - 1


def _from(installs: list[tuple[int, int]], bound: int | None) -> int | None:
    """The step from which on a node's rows are taken; None: none of them."""
    if bound is None:
        return -1
    return min((step for step, seq in installs if seq >= bound), default=None)
