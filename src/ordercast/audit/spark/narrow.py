"""From a run that is too large for the reference to the messages of it that are in doubt.

The run is *restricted* to some messages: all rows of these, and all installs and lives. That invents no
violation, since every property speaks of what happened to messages that are named, and a restriction keeps
their rows, their order at every node, and all configurations. It may lose some: counts are of what was found.

The same messages are picked out each time, the first ones in the order of all, and all rows of each. The
configurations in doubt are taken whole if they are small enough. Otherwise each one's order is cut into
pieces, and in one pass every stay's fingerprint of each piece is held against what it should be: the pieces
that differ, and those in which something goes back, are what is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as fn

from ordercast.audit.spark import plans
from ordercast.audit.spark.chunks import DELIVER
from ordercast.audit.spark.membership_history import Run
from ordercast.audit.spark.rows import MOST_ROWS, of_runs, rows_by_run
from ordercast.core.identity import ConfigurationId
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PIECES = 4096
"""Into how many pieces an order is cut."""

MOST_MESSAGES = 5_000
"""Messages that are picked out."""

_MESSAGE = ("origin", "origin_incarnation", "number")
_Identity: TypeAlias = tuple[int | None, int | None, int | None]


def narrowed(spark: SparkSession, table: DataFrame, run: Run, views: bool) -> tuple[list[Row], str]:
    """The rows of the restricted run, and a sentence that says so."""
    its = of_runs(spark, table, [run.key]).where(fn.col("event").isin("deliver", "originate"))
    doubtful = _configurations(run)
    size = sum(
        summary.delivered + summary.originated
        for summary in run.summaries
        if (summary.config_seq, summary.config_rep) in doubtful
    )
    if size <= MOST_ROWS:
        suspects, most = _of_any(spark, its, doubtful), MOST_ROWS
        what = "those of the configurations in doubt"
    else:
        suspects, most = _in_differing_pieces(spark, its, run, views, doubtful), MOST_MESSAGES
        what = "those of the first messages in doubt"
    rows = _rows_of(spark, its, _first(suspects, most)).get(run.name, [])
    note = (
        f"run {run.name} is too large to be judged row by row: {len(rows):,} of its {run.events:,} rows "
        f"were, {what} ({run.doubts[0].why}); there may be more violations than are counted"
    )
    return [*run.control, *rows], note


def _configurations(run: Run) -> set[tuple[int, int]]:
    """The configurations in doubt, and what follows a regular one at any node: all, if nobody can tell."""
    named: set[ConfigurationId] = set()
    for doubt in run.doubts:
        if not doubt.configurations:
            return {(seq, rep) for seq, rep in run.history.installs}
        named |= doubt.configurations
    for stay in run.history.all_stays():
        if not stay.regular and stay.source in named:
            named.add(stay.id)
    return {(seq, rep) for seq, rep in named}


def _of_any(spark: SparkSession, rows: DataFrame, configurations: set[tuple[int, int]]) -> DataFrame:
    """Rows in, or of messages of, one of the configurations."""
    here = _frame(spark, configurations).withColumn("here", fn.lit(True))
    source = here.toDF("origin_config_seq", "origin_config_rep", "from_here")
    told = rows.join(fn.broadcast(here), ["config_seq", "config_rep"], "left")
    told = told.join(fn.broadcast(source), ["origin_config_seq", "origin_config_rep"], "left")
    return told.where("here OR from_here").select(*_MESSAGE, _place("origin_config_seq", "origin_config_rep"))


def _in_differing_pieces(
    spark: SparkSession, rows: DataFrame, run: Run, views: bool, doubtful: set[tuple[int, int]]
) -> DataFrame:
    """Rows in the pieces of the order that differ."""
    highest = max((summary.highest or 0 for summary in run.summaries), default=0)
    width = highest // PIECES + 1
    cut = plans.marked(rows, views).withColumn("piece", fn.expr(f"rank div {width}"))
    cut = cut.join(fn.broadcast(_frame(spark, doubtful)), ["config_seq", "config_rep"])
    keys = ("config_seq", "config_rep", "piece", "ev", "node", "incarnation")
    prints = cut.groupBy(*keys).agg(
        fn.count(fn.lit(1)), fn.expr("bit_xor(placed)"), fn.expr("max(bad)"), fn.max("rank")
    )
    pieces = _differing(run, prints.collect(), views)
    pieces |= {
        (each.config_seq, each.config_rep, rank // width)
        for each in run.order_breaks
        if each.config_seq is not None and each.config_rep is not None
        for rank in (each.lowest, each.against)
        if rank is not None
    }
    small = spark.createDataFrame(
        sorted(pieces)[:PIECES] or [(0, 0, -1)], "config_seq bigint, config_rep int, piece bigint"
    )
    picked = cut.join(fn.broadcast(small), ["config_seq", "config_rep", "piece"])
    picked = picked.select(*_MESSAGE, _place("config_seq", "config_rep"))
    if run.too_early:
        early = spark.createDataFrame(
            [(*configuration, time_us) for configuration, time_us in run.too_early],
            "config_seq bigint, config_rep int, time_us bigint",
        )
        safe = rows.where("event = 'deliver' AND guarantee = 'safe'")
        first = safe.join(fn.broadcast(early), ["config_seq", "config_rep", "time_us"])
        picked = first.select(*_MESSAGE, _place("config_seq", "config_rep", before=True)).union(picked)
    return picked


def _place(*configuration: str, before: bool = False) -> Column:
    """Where a row's message is in the order of all: what is picked out does not depend on who looks when."""
    return fn.struct(fn.lit(not before), *configuration, "seq", "slot").alias("place")


def _first(suspects: DataFrame, most: int) -> list[_Identity]:
    """The first messages among the rows, by their places."""
    placed = suspects.groupBy(*_MESSAGE).agg(fn.min("place").alias("place"))
    ordered = placed.orderBy("place", *_MESSAGE).limit(most).select(*_MESSAGE)
    return [(origin, life, number) for origin, life, number in ordered.collect()]


def _rows_of(spark: SparkSession, rows: DataFrame, messages: list[_Identity]) -> dict[str, list[Row]]:
    """All rows of these messages, wherever they are; of as many messages as the reference can hold whole."""

    def of(some: list[_Identity]) -> DataFrame:
        wanted = spark.createDataFrame(some, "o int, l int, n bigint")
        same = [rows[name].eqNullSafe(wanted[short]) for name, short in zip(_MESSAGE, "oln", strict=True)]
        return rows.join(fn.broadcast(wanted), same, "left_semi")

    if not messages:
        return {}
    sizes: dict[_Identity, int] = {
        (origin, life, number): size
        for origin, life, number, size in of(messages).groupBy(*_MESSAGE).count().collect()
    }
    held = accumulate(sizes[message] for message in messages)
    kept = [message for message, size in zip(messages, held, strict=True) if size <= MOST_ROWS]
    return rows_by_run(of(kept or messages[:1]))


def _frame(spark: SparkSession, configurations: set[tuple[int, int]]) -> DataFrame:
    return spark.createDataFrame(sorted(configurations), "config_seq bigint, config_rep int")


def _differing(
    run: Run, prints: Iterable[tuple[int, int, int, int, int, int, int, int, bool, int]], views: bool
) -> set[tuple[int, int, int]]:
    """Pieces of a configuration's order that are not everywhere what most have of them."""
    told: dict[tuple[int, int, int], Counter[tuple[int, int]]] = {}
    bad: set[tuple[int, int, int]] = set()
    own: dict[tuple[int, int, int], list[int]] = {}
    for seq, rep, piece, event, _, _, count, hashed, is_bad, _ in prints:
        at = (seq, rep, -1 if piece is None else piece)
        if is_bad:
            bad.add(at)
        if event == DELIVER:
            told.setdefault(at, Counter())[count, hashed] += 1
        else:
            total = own.setdefault(at, [0, 0])
            total[0] += count
            total[1] ^= hashed
    found = {at for at, each in told.items() if len(each) > 1}
    if not views:
        found |= {at for at, each in told.items() if [*next(iter(each))] != own.get(at)}
        found |= {at for at in own if at not in told}
    return found | bad
