"""What is asked of the event table in Spark's own words: installs, tails, and rows that lie in no order.

The passes over all events are in `passes`; these plans pick rows out, or sort them where they have to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark.sql import Window
from pyspark.sql import functions as fn

from ordercast.audit.spark.chunks import (
    BITS,
    DELIVER,
    HIGHEST,
    ORIGINATE,
    REGULAR,
    RING_BITS,
    TRANSITIONAL,
)
from ordercast.core.identity import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTROL_EVENTS = ("install", "crash", "restart", "halt")

RunKey: TypeAlias = int
Ring: TypeAlias = tuple[RunKey, int, int]
"""A regular configuration of a run: its key, its number and its representative."""
Limits: TypeAlias = Mapping[tuple[Ring, int, int], int]
"""By configuration and sender, a node and its life: a number of a message."""


# --- what is computed of a row -----------------------------------------------------------------


def _event() -> Column:
    event = fn.col("event")
    return fn.when(event == "deliver", DELIVER).when(event == "originate", ORIGINATE).cast("tinyint")


def _kind() -> Column:
    kind = fn.col("config_kind")
    return (
        fn.when(kind == "regular", REGULAR)
        .when(kind == "transitional", TRANSITIONAL)
        .otherwise(2)
        .cast("tinyint")
    )


def _rank() -> Column:
    return fn.expr(f"shiftleft(seq, {BITS}) | coalesce(slot, 0)")


def _is_bad(views: bool) -> Column:
    """Whether a message's row lacks a fact, or is none that its node could have written.

    An origination is by the node and the life that the message names, in the regular configuration that it
    names; a delivery in a regular configuration is of a message of that one. In the sequencer family an
    origination has no place, every configuration is a regular one, and the levels of resilience are known.
    """
    facts = ["origin", "origin_incarnation", "number", "origin_config_seq", "origin_config_rep", "guarantee"]
    here = "(config_seq <=> origin_config_seq AND config_rep <=> origin_config_rep)"
    lacking = " OR ".join(f"{fact} IS NULL" for fact in facts)
    misplaced = (
        f"(seq IS NULL OR slot IS NULL OR seq < 0 OR seq >= {HIGHEST} OR slot < 0 OR slot >= {2**BITS})"
    )
    by_others = "(NOT (origin <=> node) OR NOT (origin_incarnation <=> incarnation))"
    if views:
        levels = ", ".join(f"'{level}'" for level in Guarantee)
        delivery = f"{misplaced} OR NOT {here}"
        origination = f"{by_others} OR NOT {here}"
        lacking = f"{lacking} OR NOT guarantee IN ({levels}) OR kind != {REGULAR}"
    else:
        delivery = f"{misplaced} OR (kind = {REGULAR} AND NOT {here})"
        origination = f"{misplaced} OR {by_others} OR NOT {here} OR kind != {REGULAR}"
    return fn.expr(
        f"CASE WHEN {lacking} THEN true WHEN ev = {DELIVER} THEN {delivery} ELSE {origination} END"
    )


def _content(views: bool) -> Column:
    """A hash of what a message is. The sequencer family's promises speak of what it carries, too."""
    columns: list[str | Column] = ["origin", "origin_incarnation", "number"]
    columns += ["origin_config_seq", "origin_config_rep", "guarantee", fn.coalesce("checksum", fn.lit(-1))]
    if views:
        columns += [
            fn.coalesce("size", fn.lit(-1)),
            fn.expr("`group` IS NULL"),
            fn.coalesce("group", fn.lit("")),
        ]
    else:
        columns += [fn.coalesce("timestamp", fn.lit(-1)), fn.coalesce("ring", fn.lit(-1))]
    return fn.xxhash64(*columns)


def marked(table: DataFrame, views: bool) -> DataFrame:
    """The rows of messages with their rank, the hash of what is said, and whether they are bad."""
    coded = table.withColumns({"ev": _event(), "kind": _kind()}).where(fn.col("ev").isin(DELIVER, ORIGINATE))
    hashed = coded.withColumns({"rank": _rank(), "content": _content(views), "bad": _is_bad(views)})
    return hashed.withColumn("placed", fn.xxhash64("content", "seq", "slot"))


# --- the plans --------------------------------------------------------------------------------


def control_rows(table: DataFrame) -> DataFrame:
    """Installs, and beginnings and ends of lives: the dictionaries of most row groups have none of them."""
    return table.where(fn.col("event").isin(*CONTROL_EVENTS))


class OrderBreak(NamedTuple):
    """A stay in which deliveries go back in the order: a lower rank comes behind a higher one."""

    run: RunKey
    node: int
    config_seq: int | None
    config_rep: int | None
    lowest: int | None
    """The lowest rank that does; None where no place is concerned."""
    against: int | None
    """The highest rank that one of them should not have come behind."""


_STAY = ("run_key", "node", "incarnation", "config_seq", "config_rep", "kind")


def going_back(table: DataFrame, views: bool) -> list[OrderBreak]:
    """One window, for traces whose rows do not lie as they happened: the stays in which something goes back.

    In the order of steps a delivery's rank has to be higher than that of every delivery before it; so has an
    origination's, where it has one, and it has to be higher than that of every origination before it; numbers
    of originations have to rise, and births of deliveries must not fall. Of rows that share a step those with
    the higher rank are taken first, so that they never pass.
    """
    coded = table.withColumns({"ev": _event(), "kind": _kind()}).where(fn.col("ev").isin(DELIVER, ORIGINATE))
    placed = f"ev = {DELIVER}" if views else "true"
    narrow = coded.select(
        *_STAY,
        "step",
        # One number for the rank and for whether it was delivered: what is narrow is quick to sort.
        fn.expr(
            f"CASE WHEN {placed} THEN shiftleft(shiftleft(seq, {BITS}) | slot, 1) | int(ev = {DELIVER}) END"
        ).alias("mark"),
        fn.expr(f"CASE WHEN ev = {ORIGINATE} THEN number END").alias("own"),
        fn.expr(f"CASE WHEN ev = {DELIVER} THEN shiftleft(timestamp, {RING_BITS}) | ring END").alias("birth"),
    )
    of_stay = Window.partitionBy(*_STAY).orderBy("step", fn.desc("mark"))
    before = of_stay.rowsBetween(Window.unboundedPreceding, -1)
    seen = narrow.withColumns(
        {
            "delivered": fn.max(fn.expr("CASE WHEN mark & 1 = 1 THEN mark END")).over(before),
            "originated": fn.max(fn.expr("CASE WHEN mark & 1 = 0 THEN mark END")).over(before),
            "last_own": fn.max("own").over(before),
            "last_birth": fn.max("birth").over(before),
        }
    )
    wrong = seen.where(
        "(mark | 1) <= delivered OR (mark & 1 = 0 AND mark <= originated) OR own <= last_own"
        " OR birth < last_birth"
    )
    found = wrong.groupBy("run_key", "node", "config_seq", "config_rep").agg(
        fn.min(fn.expr("shiftright(mark, 1)")),
        fn.max(fn.expr("shiftright(greatest(delivered, originated), 1)")),
    )
    return [OrderBreak._make(row) for row in found.collect()]


_RING = ("run_key", "config_seq", "config_rep")
_LIMITS = "run_key bigint, config_seq bigint, config_rep int, node int, incarnation int, last bigint"


def _of_configurations(table: DataFrame, rings: Iterable[Ring]) -> DataFrame:
    """Rows that can be of these: row groups know the span of configurations in them."""
    numbers = {seq for _, seq, _ in rings}
    return table.where(fn.col("config_seq").between(min(numbers), max(numbers)))


def tails_of_rings(spark: SparkSession, table: DataFrame, cuts: Mapping[Ring, int]) -> DataFrame:
    """The originations and deliveries of messages beyond the rank up to which their ring is certified."""
    small = spark.createDataFrame(
        [(*ring, cut) for ring, cut in cuts.items()],
        "run_key bigint, origin_config_seq bigint, origin_config_rep int, cut bigint",
    )
    told = table.where(fn.col("event").isin("deliver", "originate"))
    joined = told.join(fn.broadcast(small), ["run_key", "origin_config_seq", "origin_config_rep"])
    return joined.withColumn("rank", _rank()).where("rank > cut")


def tails_of_views(
    spark: SparkSession, table: DataFrame, cuts: Mapping[Ring, int], limits: Limits
) -> DataFrame:
    """The originations and deliveries of messages beyond the rank up to which their view is certified; an
    origination has no place, and is told by its number."""
    small = spark.createDataFrame(
        [(*ring, cut) for ring, cut in cuts.items()],
        "run_key bigint, config_seq bigint, config_rep int, cut bigint",
    )
    senders = spark.createDataFrame([(*ring, *who, last) for (ring, *who), last in limits.items()], _LIMITS)
    told = _of_configurations(table, cuts).where(fn.col("event").isin("deliver", "originate"))
    joined = told.join(fn.broadcast(small), [*_RING])
    joined = joined.join(fn.broadcast(senders), [*_RING, "node", "incarnation"], "left")
    return joined.withColumn("rank", _rank()).where(
        "CASE WHEN event = 'deliver' THEN rank > cut ELSE last IS NULL OR number > last END"
    )
