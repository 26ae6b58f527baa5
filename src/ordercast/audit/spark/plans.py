"""The passes over the event table: what each reads, and the few numbers it comes to.

A *stay* is a node's time in one configuration: run, node, incarnation, configuration and its kind. A trace
has few of them, however long it is, so that what is said of a stay can be looked at by the driver. Of a set
of messages a *fingerprint* is kept: how many there are, and the sums of the two halves of a 64-bit hash of
all that is said of each (their sum as it is would overflow). Equal fingerprints are taken for equal sets.

A message's place (``seq``, ``slot``) is one number here, its *rank*: `_BITS` of it for the slot. Rows whose
places do not fit are counted as bad, and their run is judged by the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark.sql import Window
from pyspark.sql import functions as fn

from ordercast.core.identity import Guarantee
from ordercast.trace.schema import EVENTS, TraceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BITS = 20
_HIGHEST = 2**42
NOTHING = -1
"""The rank before the first."""

OTHER, DELIVER, ORIGINATE, UNKNOWN = 0, 1, 2, 3
REGULAR, TRANSITIONAL = 0, 1

MOST_STAYS = 2_000_000
"""What the driver is ready to look at: stays of all runs of a trace."""

CONTROL_EVENTS = ("install", "crash", "restart", "halt")

RunKey: TypeAlias = int
Ring: TypeAlias = tuple[RunKey, int, int]
"""A regular configuration of a run: its key, its number and its representative."""


class Print(NamedTuple):
    """The fingerprint of a set of messages."""

    messages: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: object) -> Print:
        assert isinstance(other, Print)
        return Print(self.messages + other.messages, self.low + other.low, self.high + other.high)


class Spell(NamedTuple):
    """What a stay comes to: all rows of one sort of event in it."""

    run: RunKey
    node: int | None
    incarnation: int | None
    config_seq: int | None
    config_rep: int | None
    kind: int
    event: int
    first_step: int
    last_step: int
    rows: int
    bad: int
    """Rows that lack a fact, or claim what cannot be: see `_is_bad`."""
    lowest: int | None
    highest: int | None
    """The lowest and the highest rank."""
    low: int | None
    high: int | None
    content_low: int | None
    content_high: int | None
    safe: int
    first_number: int | None
    last_number: int | None
    source_from: int | None
    source_to: int | None
    rep_from: int | None
    rep_to: int | None
    """The lowest and the highest configuration that messages of a transitional stay claim to be of."""
    key: int
    """A number that stands for the stay."""

    @property
    def placed(self) -> Print:
        """Of the messages with their places."""
        return Print(self.rows, self.low or 0, self.high or 0)

    @property
    def content(self) -> Print:
        """Of the messages without their places."""
        return Print(self.rows, self.content_low or 0, self.content_high or 0)


# --- what is computed of a row -----------------------------------------------------------------


def _event() -> Column:
    event = fn.col("event")
    code = fn.when(event == "deliver", DELIVER).when(event == "originate", ORIGINATE)
    others = sorted(
        set(EVENTS) - {"deliver", "originate"}, key=lambda name: name != "stable"
    )  # oftenest first
    code = code.when(event.isin(*others), OTHER)
    whole = fn.expr(
        "node IS NOT NULL AND incarnation IS NOT NULL AND step IS NOT NULL AND time_us IS NOT NULL"
    )
    return fn.when(whole, code.otherwise(UNKNOWN)).otherwise(UNKNOWN).cast("tinyint")


def _kind() -> Column:
    kind = fn.col("config_kind")
    return (
        fn.when(kind == "regular", REGULAR)
        .when(kind == "transitional", TRANSITIONAL)
        .otherwise(2)
        .cast("tinyint")
    )


def _rank() -> Column:
    return fn.expr(f"shiftleft(seq, {_BITS}) | coalesce(slot, 0)")


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
        f"(seq IS NULL OR slot IS NULL OR seq < 0 OR seq >= {_HIGHEST} OR slot < 0 OR slot >= {2**_BITS})"
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
    columns += ["origin_config_seq", "origin_config_rep", "guarantee"]
    if views:
        columns += [
            fn.coalesce("size", fn.lit(-1)),
            fn.expr("`group` IS NULL"),
            fn.coalesce("group", fn.lit("")),
        ]
    return fn.xxhash64(*columns)


def marked(table: DataFrame, views: bool) -> DataFrame:
    """The rows of messages with their rank, the hash of what is said, and whether they are bad."""
    coded = table.withColumns({"ev": _event(), "kind": _kind()}).where(fn.col("ev").isin(DELIVER, ORIGINATE))
    hashed = coded.withColumns({"rank": _rank(), "content": _content(views), "bad": _is_bad(views)})
    return hashed.withColumn("placed", fn.xxhash64("content", "seq", "slot"))


# --- the passes --------------------------------------------------------------------------------


def control_rows(table: DataFrame) -> DataFrame:
    """Installs, and beginnings and ends of lives: the dictionaries of most row groups have none of them."""
    return table.where(fn.col("event").isin(*CONTROL_EVENTS))


_STAY = ("run_key", "node", "incarnation", "config_seq", "config_rep", "kind")


def spells(table: DataFrame, views: bool) -> list[Spell]:
    """One pass: what each stay comes to, for each sort of event."""
    coded = table.withColumns({"ev": _event(), "kind": _kind()})
    concerned = fn.col("ev").isin(DELIVER, ORIGINATE)
    of_message = coded.select(
        *_STAY,
        "ev",
        "step",
        fn.when(concerned, _rank()).alias("rank"),
        fn.when(concerned, _content(views)).alias("content"),
        fn.when(concerned, fn.xxhash64(_content(views), "seq", "slot")).alias("placed"),
        fn.when(concerned, _is_bad(views)).alias("bad"),
        fn.expr(f"ev = {DELIVER} AND guarantee = 'safe'").alias("safe"),
        fn.when(fn.col("ev") == ORIGINATE, fn.col("number")).alias("own"),
        fn.expr(f"CASE WHEN kind = {TRANSITIONAL} AND ev = {DELIVER} THEN origin_config_seq END").alias(
            "source"
        ),
        fn.expr(f"CASE WHEN kind = {TRANSITIONAL} AND ev = {DELIVER} THEN origin_config_rep END").alias(
            "rep"
        ),
    )
    low, high = _halves("placed")
    content_low, content_high = _halves("content") if views else (fn.lit(None), fn.lit(None))
    found = (
        of_message.groupBy(*_STAY, "ev")
        .agg(
            fn.min("step"),
            fn.max("step"),
            fn.count(fn.lit(1)),
            fn.sum(fn.expr("CASE WHEN bad THEN 1 ELSE 0 END")),
            fn.min("rank"),
            fn.max("rank"),
            low,
            high,
            content_low.alias("content_low"),
            content_high.alias("content_high"),
            fn.sum(fn.expr("CASE WHEN safe THEN 1 ELSE 0 END")),
            fn.min("own"),
            fn.max("own"),
            fn.min("source"),
            fn.max("source"),
            fn.min("rep"),
            fn.max("rep"),
        )
        .select("*", fn.xxhash64(*_STAY))
        .coalesce(1)
        .limit(MOST_STAYS + 1)
        .collect()
    )
    if len(found) > MOST_STAYS:
        raise TraceError(
            f"the trace names more than {MOST_STAYS:,} stays of nodes in configurations: audit fewer runs "
            "at a time, each directory by itself."
        )
    return [Spell._make(row) for row in found]


def _halves(column: str) -> tuple[Column, Column]:
    value = fn.col(column)
    return fn.sum(value.bitwiseAND(0xFFFF_FFFF)), fn.sum(fn.shiftright(value, 32))


class Disorder(NamedTuple):
    """A stay in which something goes back."""

    key: int
    rows: int
    """How often."""
    lowest: int | None
    """The lowest rank that does; None where no place is concerned."""
    against: int | None
    """The highest rank that one of them should not have come behind."""


def disorder(table: DataFrame, views: bool) -> list[Disorder]:
    """One window: the stays in which something goes back.

    In the order of steps a delivery's rank has to be higher than that of every delivery before it; so has an
    origination's, where it has one, and it has to be higher than that of every origination before it; numbers
    of originations have to rise. Of rows that share a step those with the higher rank are taken first, so
    that they never pass.
    """
    coded = table.withColumns({"ev": _event(), "kind": _kind()}).where(fn.col("ev").isin(DELIVER, ORIGINATE))
    placed = f"ev = {DELIVER}" if views else "true"
    narrow = coded.select(
        fn.xxhash64(*_STAY).alias("key"),
        "step",
        # One number for the rank and for whether it was delivered: what is narrow is quick to sort.
        fn.expr(
            f"CASE WHEN {placed} THEN shiftleft(shiftleft(seq, {_BITS}) | slot, 1) | int(ev = {DELIVER}) END"
        ).alias("mark"),
        fn.expr(f"CASE WHEN ev = {ORIGINATE} THEN number END").alias("own"),
    )
    before = (
        Window.partitionBy("key").orderBy("step", fn.desc("mark")).rowsBetween(Window.unboundedPreceding, -1)
    )
    seen = narrow.select(
        "key",
        "mark",
        "own",
        fn.max(fn.expr("CASE WHEN mark & 1 = 1 THEN mark END")).over(before).alias("delivered"),
        fn.max(fn.expr("CASE WHEN mark & 1 = 0 THEN mark END")).over(before).alias("originated"),
        fn.max("own").over(before).alias("last_own"),
    )
    wrong = seen.where("(mark | 1) <= delivered OR (mark & 1 = 0 AND mark <= originated) OR own <= last_own")
    found = wrong.groupBy("key").agg(
        fn.count(fn.lit(1)),
        fn.min(fn.expr("shiftright(mark, 1)")),
        fn.max(fn.expr("shiftright(greatest(delivered, originated), 1)")),
    )
    return [Disorder._make(row) for row in found.collect()]


class Bucket(NamedTuple):
    """The messages of one sender between two ranks of a configuration's order."""

    ring: Ring
    bucket: int
    """How many of the boundaries lie below them."""
    origin: int
    incarnation: int
    placed: Print
    content: Print
    last_number: int


Witness: TypeAlias = tuple[int, int] | None
"""A node and its life; None stands for the originations."""


def buckets(
    spark: SparkSession, table: DataFrame, views: bool, wanted: Mapping[Ring, tuple[Witness, Sequence[int]]]
) -> list[Bucket]:
    """One pass over some configurations: a witness's messages, cut at the boundaries, by sender.

    The order of a ring is told by its originations; that of a view by the deliveries of one life.
    """
    if not wanted:
        return []
    rows = [
        (*ring, None if who is None else who[0], None if who is None else who[1], sorted(boundaries))
        for ring, (who, boundaries) in wanted.items()
    ]
    small = spark.createDataFrame(
        rows,
        "run_key bigint, config_seq bigint, config_rep int, who int, life int, boundaries array<bigint>",
    )
    event = DELIVER if views else ORIGINATE
    told = _of_configurations(table, wanted).withColumns({"ev": _event()}).where(fn.col("ev") == event)
    joined = told.join(fn.broadcast(small), ["run_key", "config_seq", "config_rep"])
    if views:
        joined = joined.where("node = who AND incarnation = life AND config_kind = 'regular'")
    cut = joined.withColumns({"rank": _rank(), "content": _content(views)}).withColumns(
        {
            "bucket": fn.expr("size(filter(boundaries, each -> each < rank))"),
            "placed": fn.xxhash64("content", "seq", "slot"),
        }
    )
    keys = ("run_key", "config_seq", "config_rep", "bucket", "origin", "origin_incarnation")
    found = cut.groupBy(*keys).agg(
        fn.count(fn.lit(1)), *_halves("placed"), *_halves("content"), fn.max("number")
    )
    return [
        Bucket((key, seq, rep), at, origin, life, Print(count, low, high), Print(count, clow, chigh), last)
        for key, seq, rep, at, origin, life, count, low, high, clow, chigh, last in found.collect()
    ]


Sender: TypeAlias = tuple[Ring, int, int]
"""A configuration, and one who sends in it: node and life."""


def originated(spark: SparkSession, table: DataFrame, limits: Mapping[Sender, int]) -> dict[Sender, Print]:
    """One pass over some views: what each sender originated there, up to a number."""
    if not limits:
        return {}
    small = spark.createDataFrame([(*ring, *who, last) for (ring, *who), last in limits.items()], _LIMITS)
    own = _of_configurations(table, {ring for ring, *_ in limits}).where(fn.col("event") == "originate")
    joined = own.join(fn.broadcast(small), [*_RING, "node", "incarnation"]).where("number <= last")
    hashed = joined.withColumn("content", _content(True))
    found = hashed.groupBy(*_RING, "node", "incarnation").agg(fn.count(fn.lit(1)), *_halves("content"))
    return {
        ((key, seq, rep), node, life): Print(count, low, high)
        for key, seq, rep, node, life, count, low, high in found.collect()
    }


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
    spark: SparkSession, table: DataFrame, cuts: Mapping[Ring, int], limits: Mapping[Sender, int]
) -> DataFrame:
    """The same of views; an origination has no place, and is told by its number."""
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
