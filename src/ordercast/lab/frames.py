"""Results as Spark DataFrames, and the small tables that figures and verdicts are made of.

`Frames.results` has a row for each run: the fields of its declaration, its labels, and its figures, each a
column. `Frames.latencies` has a row for each run, histogram and bucket. `mean` and `density` aggregate them
with Spark and answer with a `pandas.DataFrame` of a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ordercast.lab.grid import Run
from ordercast.lab.store import SCHEMA, read_results
from ordercast.storage import Location

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

DECLARED = (
    *("protocol", "nodes", "arrivals", "rate", "size", "size_to", "safe", "senders", "messages", "seconds"),
    *("skip", "network", "loss", "seed", "bucket_us"),
)
"""Fields of a run's declaration that are columns of the results."""


FEW = 8
"""Partitions into which results are put together: they come in many small files."""


def _read(
    tasks: list[list[tuple[Location, list[str]]]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of some runs of each file. Python reads them, which needs no jar for a store."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        for file, runs in (each for at in batch.column(0).to_pylist() for each in tasks[at]):
            table = read_results(file)
            its = table.filter(pc.is_in(table.column("run"), value_set=pa.array(runs, pa.string())))
            yield from its.to_batches()


class Frames:
    """What came of the runs of a grid."""

    def __init__(
        self, spark: SparkSession, files: Mapping[str, Location], runs: Sequence[Run], quick: bool
    ) -> None:
        """Results of these runs; `files` says, by identifier, which file has each."""
        self.spark, self.runs, self.quick = spark, tuple(runs), quick
        self._files = {run.id: files[run.id] for run in runs}
        self._means: dict[tuple[tuple[str, ...], tuple[str, ...]], pd.DataFrame] = {}
        self._densities: dict[tuple[tuple[str, ...], str], pd.DataFrame] = {}
        self._of: dict[tuple[str, ...], Frames] = {}

    def of(self, runs: Sequence[Run]) -> Frames:
        """What came of some of the runs: of those among `runs` that were carried out."""
        wanted = {run.id for run in runs}
        its = tuple(run for run in self.runs if run.id in wanted)
        key = tuple(run.id for run in its)
        if key not in self._of:
            self._of[key] = Frames(self.spark, self._files, its, self.quick)
        return self._of[key]

    @cached_property
    def stored(self) -> DataFrame:
        """The rows as they are stored, of this grid's runs that were carried out, each once."""
        from pyspark.sql.pandas.types import from_arrow_schema

        wanted: dict[Location, list[str]] = {}
        for run, file in sorted(self._files.items()):
            wanted.setdefault(file, []).append(run)
        tasks = [list(wanted.items())[at::FEW] for at in range(min(FEW, len(wanted)))]
        rows = self.spark.range(0, len(tasks), 1, len(tasks))
        return rows.mapInArrow(partial(_read, tasks), from_arrow_schema(SCHEMA)).cache()

    @cached_property
    def figure_names(self) -> list[str]:
        """What was measured, by name, over all runs."""
        from pyspark.sql import functions as f

        keys = f.flatten(f.collect_set(f.map_keys("figures")))
        (row,) = self.stored.select(f.array_sort(f.array_distinct(keys)).alias("names")).collect()
        return list(row["names"])

    @cached_property
    def results(self) -> DataFrame:
        """A row for each run; columns are the declaration's, the labels', and the figures'."""
        from pyspark.sql import functions as f

        columns = [f.col("run"), *(f.col(name) for name in DECLARED), *self._labels()]
        columns += [f.col("figures")[name].alias(name) for name in self.figure_names]
        return self.stored.select(*columns)

    def _labels(self) -> list[Column]:
        from pyspark.sql import functions as f

        values: dict[str, list[Any]] = {}
        for run in self.runs:
            for name, value in run.labels.items():
                values.setdefault(name, []).append(value)
        numeric = {name for name, each in values.items() if not any(isinstance(value, str) for value in each)}
        return [
            (f.col("labels")[name].cast("double") if name in numeric else f.col("labels")[name]).alias(name)
            for name in values
        ]

    @cached_property
    def latencies(self) -> DataFrame:
        """A row for each run, histogram and bucket: ``name``, ``from_us`` and ``count``."""
        from pyspark.sql import functions as f

        columns = [f.col("run"), *(f.col(name) for name in DECLARED), *self._labels()]
        each = self.stored.select(*columns, f.explode("histograms").alias("bucket"))
        return each.select(
            "*",
            f.col("bucket.name").alias("name"),
            (f.col("bucket.bucket") * f.col("bucket_us")).alias("from_us"),
            f.col("bucket.count").alias("count"),
        ).drop("bucket")

    def mean(self, by: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
        """Means over the runs that agree in `by`, with ``runs`` and, for each figure, ``…_sd``; sorted."""
        from pyspark.sql import functions as f

        key = (tuple(by), tuple(figures))
        if key in self._means:
            return self._means[key].copy()
        columns = [f.count(f.lit(1)).alias("runs")]
        for name in figures:
            value = f.col(f"`{name}`") if name in self.figure_names else f.lit(None).cast("double")
            columns += [f.avg(value).alias(name), f.stddev_pop(value).alias(f"{name}_sd")]
        self._means[key] = self.results.groupBy(*by).agg(*columns).orderBy(*by).toPandas()
        return self._means[key].copy()

    @cached_property
    def total(self) -> dict[str, float]:
        """Each figure, summed over all runs."""
        from pyspark.sql import functions as f

        each = self.stored.select(f.explode("figures").alias("name", "value"))
        summed = each.groupBy("name").agg(f.sum("value").alias("value")).orderBy("name")
        return {row["name"]: row["value"] for row in summed.collect()}

    @cached_property
    def notes(self) -> list[str]:
        """What the runs had to say, in no particular order."""
        from pyspark.sql import functions as f

        return [row["note"] for row in self.stored.select(f.explode("notes").alias("note")).collect()]

    def density(self, by: Sequence[str], name: str) -> pd.DataFrame:
        """Of latencies called `name`, the share in each bucket for each microsecond; sorted.

        Columns are `by`, ``from_us``, ``to_us`` and ``density``.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        key = (tuple(by), name)
        if key in self._densities:
            return self._densities[key].copy()
        counted = (
            self.latencies.where(f.col("name") == name)
            .groupBy(*by, "from_us", "bucket_us")
            .agg(f.sum("count").alias("count"))
        )
        share = f.col("count") / f.sum("count").over(Window.partitionBy(*by))
        self._densities[key] = (
            counted.withColumn("to_us", f.col("from_us") + f.col("bucket_us"))
            .withColumn("density", share / f.col("bucket_us"))
            .select(*by, "from_us", "to_us", "density")
            .orderBy(*by, "from_us")
            .toPandas()
        )
        return self._densities[key].copy()
