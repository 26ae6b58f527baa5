"""The passes over the event table: each reads row groups where they lie, and comes to a few numbers.

A *stay* is a node's time in one configuration: run, node, incarnation, configuration and its kind. A trace
has few of them, however long it is, so that what is said of a stay can be looked at by the driver. Of a set
of messages a *fingerprint* is kept: how many there are, and the sums of the two halves of a 64-bit hash of
all that is said of each. Equal fingerprints are taken for equal sets.

A task takes some row groups and answers with a few numbers for each stay that it met. Rows of a trace lie as
they happened, so that no row has to go anywhere else to be compared with the one before it at its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ordercast.audit.spark.chunks import (
    NULL,
    TRANSITIONAL,
    Chunk,
    Numbers,
    grouped,
    opened,
    read_chunk,
    reduced,
)
from ordercast.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_PIECES = 4_000_000
"""What the driver is ready to look at: stays of all runs of a trace, row group by row group."""

GROUPS_A_TASK = 16
"""Row groups of a task: about a million rows, and a few hundred milliseconds."""

_MOST = 2**63 - 1
_HALF = np.uint64(0xFFFF_FFFF)
_UPPER = np.uint64(32)

Columns: TypeAlias = dict[str, Any]
Work: TypeAlias = Callable[[Chunk], Columns]


class Source(NamedTuple):
    """What a pass reads."""

    files: list[tuple[str, int]]
    """Parquet files of a trace, with how many row groups each has."""
    wanted: Set[str]
    """Rows of these runs."""
    alone: bool
    """Whether there is no other run, so that names need not be read."""
    views: bool
    """Whether runs are judged by what the sequencer family promises."""
    timed: bool = False
    """Whether times matter: of some run, one clock told them."""


def over_row_groups(spark: SparkSession, source: Source, work: Work, ddl: str) -> list[tuple[Any, ...]]:
    """Let `work` look at every row group, in tasks; all that it answers, as rows."""
    groups = [(path, group) for path, number in source.files for group in range(number)]
    tasks = [groups[at : at + GROUPS_A_TASK] for at in range(0, len(groups), GROUPS_A_TASK)]
    if not tasks:
        return []
    plan = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_task, tasks, source, work), ddl)
    found = plan.toArrow()
    if found.num_rows > MOST_PIECES:
        raise TraceError(
            f"the trace names more than {MOST_PIECES:,} stays of nodes in configurations: audit fewer runs "
            "at a time, each directory by itself."
        )
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _task(
    tasks: list[list[tuple[str, int]]], source: Source, work: Work, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for path in dict.fromkeys(path for path, _ in tasks[task]):
                with opened(path) as (file, seal):
                    for group in (group for its, group in tasks[task] if its == path):
                        if seal is not None:
                            seal.check(group)
                        chunk = read_chunk(
                            file, group, source.views, source.wanted, alone=source.alone, timed=source.timed
                        )
                        yield pa.RecordBatch.from_pydict(work(chunk))


# --- stays -------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """What one row group says of a stay; `NULL` stands for nothing."""

    run: str
    node: int
    incarnation: int
    config_seq: int
    config_rep: int
    kind: int
    """One of a configuration, or `LIFE`: then it is about all rows of a life, and `delivered` counts them."""
    first_step: int
    last_step: int
    delivered: int
    lowest: int
    highest: int
    low: int
    high: int
    content_low: int
    content_high: int
    safe: int
    first_safe_us: int
    """The earliest time of these, where times matter."""
    source_from: int
    source_to: int
    rep_from: int
    rep_to: int
    originated: int
    own_lowest: int
    own_highest: int
    own_low: int
    own_high: int
    own_content_low: int
    own_content_high: int
    first_number: int
    last_number: int
    bad: int
    back: int
    """Rows that go back: see `_going_back`."""
    back_lowest: int
    back_against: int
    birth_lowest: int
    birth_highest: int
    """The lowest and the highest timestamp, with its ring, of what was delivered."""


LIFE = 9
_PIECE = ", ".join(f"{name} {'string' if name == 'run' else 'bigint'}" for name in Piece._fields)


def pieces(spark: SparkSession, source: Source) -> list[Piece]:
    """One pass over all events: what every row group says of each stay and of each life."""
    return [Piece._make(row) for row in over_row_groups(spark, source, look_at_stays, _PIECE)]


def look_at_stays(chunk: Chunk) -> Columns:
    """What a row group says of each stay, and of each life."""
    keys = (chunk.run, chunk.node, chunk.incarnation, chunk.config_seq, chunk.config_rep, chunk.kind)
    order, starts = grouped(*keys)
    order = _by_step(chunk, order, starts)
    heads = order[starts] if len(order) else order
    run, node, life, seq, rep, kind = (key[heads] for key in keys)
    delivery, rank = chunk.delivery[order], chunk.rank[order]
    own = ~delivery
    carried = delivery & (chunk.kind[order] == TRANSITIONAL)
    number = chunk.number[order]

    def lowest(values: Numbers, which: Numbers) -> Numbers:
        found = reduced(np.minimum, np.where(which, values, _MOST), starts)
        return np.where(found == _MOST, NULL, found)

    def highest(values: Numbers, which: Numbers) -> Numbers:
        return reduced(np.maximum, np.where(which, values, NULL), starts)

    def count(which: Numbers) -> Numbers:
        return reduced(np.add, which.astype(np.int64), starts)

    def halves(hashes: Numbers, which: Numbers) -> tuple[Numbers, Numbers]:
        low = np.where(which, hashes & _HALF, 0).astype(np.int64)
        high = np.where(which, hashes >> _UPPER, 0).astype(np.int64)
        return reduced(np.add, low, starts), reduced(np.add, high, starts)

    birth = chunk.birth[order]
    back, against = _going_back(delivery, rank, number, birth, starts)
    step = chunk.step[order]
    placed, content = chunk.placed[order], chunk.content[order]
    low, high = halves(placed, delivery)
    content_low, content_high = halves(content, delivery)
    own_low, own_high = halves(placed, own)
    own_content_low, own_content_high = halves(content, own)
    source_seq, source_rep = chunk.origin_config_seq[order], chunk.origin_config_rep[order]
    everything = np.ones(len(order), bool)
    stays = (
        *(node, life, seq, rep, kind.astype(np.int64)),
        *(lowest(step, everything), highest(step, everything)),
        *(count(delivery), lowest(rank, delivery), highest(rank, delivery)),
        *(low, high, content_low, content_high, count(chunk.safe[order])),
        lowest(chunk.time[order], chunk.safe[order]),
        *(lowest(source_seq, carried), highest(source_seq, carried)),
        *(lowest(source_rep, carried), highest(source_rep, carried)),
        *(count(own), lowest(rank, own), highest(rank, own)),
        *(own_low, own_high, own_content_low, own_content_high),
        *(lowest(number, own), highest(number, own)),
        *(count(chunk.bad[order]), count(back), lowest(rank, back), highest(against, back)),
        *(lowest(birth, delivery & (birth != NULL)), highest(birth, delivery)),
    )
    lives = chunk.lives
    nothing = np.zeros(len(lives.node), np.int64)
    of_life = dict.fromkeys(Piece._fields[1:], nothing) | {
        "node": lives.node,
        "incarnation": lives.incarnation,
        "kind": nothing + LIFE,
        "first_step": lives.first_step,
        "delivered": lives.rows,
        "bad": lives.unknown,
    }
    names = [chunk.runs[at] for at in (*run.tolist(), *lives.run.tolist())]
    columns: Columns = {"run": pa.array(names, pa.string())}
    for name, values in zip(Piece._fields[1:], stays, strict=True):
        columns[name] = pa.array(np.concatenate([values, of_life[name]]), pa.int64())
    return columns


def _by_step(chunk: Chunk, order: Numbers, starts: Numbers) -> Numbers:
    """The rows of each stay by step; of those that share one the higher rank first: so they never pass."""
    step = chunk.step[order]
    falls = np.flatnonzero(step[1:] <= step[:-1]) + 1
    if np.isin(falls, starts).all():
        return order
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    again = np.lexsort((~chunk.delivery[order], -chunk.rank[order], step, group))
    found: Numbers = order[again]
    return found


def _going_back(
    delivery: Numbers, rank: Numbers, number: Numbers, birth: Numbers, starts: Numbers
) -> tuple[Numbers, Numbers]:
    """Which rows go back in the order of their stay, and the rank that they should not have come behind.

    A delivery's rank has to be higher than that of the delivery before it; so has an origination's, where it
    has one, and it has to be higher than that of the origination before it; numbers of originations have to
    rise; and where deliveries have a birth, it must not be lower than that of the one before it that has one.
    By induction each is then higher than all before.
    """
    size = len(rank)
    begin = np.repeat(starts, np.diff(np.append(starts, size)))
    at = np.arange(size)
    last_delivery = _before(np.where(delivery, at, -1))
    last_own = _before(np.where(delivery, -1, at))
    heard = np.where(last_delivery >= begin, rank[last_delivery], NULL)
    own = ~delivery
    own_before = np.where(own & (last_own >= begin), rank[last_own], NULL)
    own_number = np.where(own & (last_own >= begin), number[last_own], NULL)
    placed = rank != NULL
    back = placed & (((heard != NULL) & (rank <= heard)) | ((own_before != NULL) & (rank <= own_before)))
    back |= (own_number != NULL) & (number <= own_number)
    born = delivery & (birth != NULL)
    if born.any():
        last_born = _before(np.where(born, at, -1))
        back |= born & (last_born >= begin) & (birth < birth[last_born])
    return back, np.maximum(heard, own_before)


def _before(places: Numbers) -> Numbers:
    """For each row the last place that was named before it; -1: none."""
    if not len(places):
        return places
    found: Numbers = np.append([-1], np.maximum.accumulate(places)[:-1])
    return found


# --- orders, up to some ranks ------------------------------------------------------------------


class Fingerprint(NamedTuple):
    """The fingerprint of a set of messages."""

    messages: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: object) -> Fingerprint:
        assert isinstance(other, Fingerprint)
        return Fingerprint(self.messages + other.messages, self.low + other.low, self.high + other.high)


Place: TypeAlias = tuple[str, int, int]
"""A configuration of a run: the run's name, its number and its representative."""

Witness: TypeAlias = tuple[int, int] | None
"""A node and its life; None stands for the originations."""

Sender: TypeAlias = tuple[Place, int, int]
"""A configuration, and one who sends in it: node and life."""


class Bucket(NamedTuple):
    """The messages of one sender between two ranks of a configuration's order."""

    place: Place
    bucket: int
    """How many of the boundaries lie below them."""
    origin: int
    incarnation: int
    placed: Fingerprint
    content: Fingerprint
    last_number: int


_BUCKET = "run string, " + ", ".join(
    f"c{at} bigint" for at in range(len(("seq", "rep", "bucket", "origin", "life", "rows")) + 5)
)


def buckets(
    spark: SparkSession, source: Source, wanted: Mapping[Place, tuple[Witness, Sequence[int]]]
) -> list[Bucket]:
    """One pass over some configurations: a witness's messages, cut at the boundaries, by sender.

    The order of a ring is told by its originations; that of a view by the deliveries of one life.
    """
    if not wanted:
        return []
    by_run: dict[str, list[tuple[Place, Witness, Sequence[int]]]] = {}
    for place, (witness, boundaries) in wanted.items():
        by_run.setdefault(place[0], []).append((place, witness, boundaries))
    rows = over_row_groups(spark, source, partial(cut_at, by_run), _BUCKET)
    return [
        Bucket(
            (run, seq, rep),
            at,
            origin,
            life,
            Fingerprint(size, low, high),
            Fingerprint(size, clow, chigh),
            last,
        )
        for run, seq, rep, at, origin, life, size, low, high, clow, chigh, last in rows
    ]


def cut_at(wanted: Mapping[str, Sequence[tuple[Place, Witness, Sequence[int]]]], chunk: Chunk) -> Columns:
    """What a row group has of the witnesses' messages, cut at the boundaries."""
    which = np.zeros(len(chunk.rank), bool)
    bucket = np.zeros(len(chunk.rank), np.int64)
    for at, run in enumerate(chunk.runs):
        for (_, seq, rep), witness, boundaries in wanted.get(run, ()):
            its = (chunk.config_seq == seq) & (chunk.config_rep == rep) & (chunk.run == at)
            if witness is None:
                its &= ~chunk.delivery
            else:
                its &= chunk.delivery & (chunk.node == witness[0]) & (chunk.incarnation == witness[1])
            bucket[its] = np.searchsorted(np.array(boundaries, np.int64), chunk.rank[its])
            which |= its
    keys = (chunk.run, chunk.config_seq, chunk.config_rep, bucket, chunk.origin, chunk.origin_incarnation)
    return _prints(chunk, np.flatnonzero(which), keys)


def originated(
    spark: SparkSession, source: Source, limits: Mapping[Sender, int]
) -> dict[Sender, Fingerprint]:
    """One pass over some views: what each sender originated there, up to a number."""
    if not limits:
        return {}
    by_run: dict[str, list[tuple[Sender, int]]] = {}
    for sender, last in limits.items():
        by_run.setdefault(sender[0][0], []).append((sender, last))
    found: dict[Sender, Fingerprint] = {}
    for row in over_row_groups(spark, source, partial(up_to, by_run), _BUCKET):
        run, seq, rep, _, origin, life, size, _, _, low, high, _ = row
        sender = ((run, seq, rep), origin, life)
        found[sender] = found.get(sender, Fingerprint()) + Fingerprint(size, low, high)
    return found


def up_to(limits: Mapping[str, Sequence[tuple[Sender, int]]], chunk: Chunk) -> Columns:
    """What a row group has of the originations up to each sender's limit."""
    which = np.zeros(len(chunk.rank), bool)
    own = ~chunk.delivery
    for at, run in enumerate(chunk.runs):
        for ((_, seq, rep), node, life), last in limits.get(run, ()):
            its = own & (chunk.config_seq == seq) & (chunk.config_rep == rep) & (chunk.run == at)
            which |= its & (chunk.node == node) & (chunk.incarnation == life) & (chunk.number <= last)
    none = np.zeros(len(chunk.rank), np.int64)
    keys = (chunk.run, chunk.config_seq, chunk.config_rep, none, chunk.node, chunk.incarnation)
    return _prints(chunk, np.flatnonzero(which), keys)


def _prints(chunk: Chunk, which: Numbers, keys: Sequence[Numbers]) -> Columns:
    """Fingerprints of some rows by some keys, the run first."""
    picked = [key[which] for key in keys]
    order, starts = grouped(*picked)
    heads = order[starts] if len(order) else order
    placed, content = chunk.placed[which][order], chunk.content[which][order]
    sums = [
        reduced(np.add, half.astype(np.int64), starts)
        for hashes in (placed, content)
        for half in (hashes & _HALF, hashes >> _UPPER)
    ]
    values = [
        *(key[heads] for key in picked[1:]),
        np.diff(np.append(starts, len(order))) if len(order) else order,
        *sums,
        reduced(np.maximum, chunk.number[which][order], starts),
    ]
    columns: Columns = {"run": pa.array([chunk.runs[at] for at in picked[0][heads].tolist()], pa.string())}
    return columns | {f"c{at}": pa.array(each.astype(np.int64)) for at, each in enumerate(values)}
