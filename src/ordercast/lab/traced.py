"""What a trace shows of the group that made it: its messages, when they came, and how long they took.

A trace may be large: its files are read a row group at a time, and of a row only the columns that are
needed. Of a long one a window in the middle is taken, with up to so many messages as are asked for. The
window is cut into blocks: from every other one a model of the machine is estimated
(`ordercast.lab.trace_model`), and the blocks between are what it has to predict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ordercast.lab.grid import GridError
from ordercast.trace.contents import Contents, Part, contents_of, opened_parquet
from ordercast.trace.files import JOURNAL
from ordercast.trace.reader import stored_table
from ordercast.trace.schema import TraceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

MOST_BLOCKS = 20
LONGEST_BLOCK_US = 1_000_000
AFTER_US = 2_000_000
"""How long after the window deliveries of its messages are looked for."""
_COLUMNS = (
    *("run", "node", "time_us", "event", "origin", "origin_incarnation", "number", "group", "size"),
    "guarantee",
)
EVENTS = ("submit", "originate", "deliver", "stable")
SUBMIT, ORIGINATE, DELIVER, STABLE = range(4)
"""Places in `EVENTS`."""


class Stretch(NamedTuple):
    """A part of a run, by time."""

    path: str
    run: str
    from_us: int
    to_us: int

    @property
    def block_us(self) -> int:
        """How long a block is."""
        return max(1, min(LONGEST_BLOCK_US, (self.to_us - self.from_us) // MOST_BLOCKS))


class Rows(NamedTuple):
    """Rows of messages, a column each, in order of time."""

    time_us: Numbers
    node: Numbers
    event: Numbers
    """Places in `EVENTS`."""
    message: Numbers
    """A number for each message."""
    origin: Numbers
    size: Numbers
    safe: Numbers
    """1 for safe delivery, 0 for any other."""
    ours: Numbers
    """1 for messages of applications, 0 for what nodes tell each other."""

    def where(self, mask: Any) -> Rows:
        """Some of the rows."""
        return Rows(*(column[mask] for column in self))


def stretch_of(path: Path, most: int) -> tuple[Stretch, str]:
    """The window of a trace with up to `most` messages, and the protocol that its files name."""
    if not path.exists():
        raise GridError(f"--like {path}: there is no such trace")
    try:
        contents = contents_of(path)
        if len(contents.runs) != 1:
            raise GridError(
                f"--like {path}: it holds {len(contents.runs)} runs ({', '.join(sorted(contents.runs))}): "
                "give the "
                "directory of one"
            )
        (run,) = contents.runs
        protocol = contents.about().get(run, {}).get("protocol")
        if protocol is None:
            raise GridError(f"--like {path}: its files do not say which protocol wrote them")
        seconds = _seconds(contents)
    except TraceError as error:
        raise GridError(f"--like: {error}") from error
    if not seconds:
        raise GridError(
            f"--like {path}: no message is submitted in it, so that nothing could be sent again: give the "
            "directory "
            "with the traces of all nodes"
        )
    first, last = min(seconds), max(seconds) + 1
    wanted = range(first, last)
    while sum(seconds[each] for each in wanted) > most and len(wanted) > 2:
        wanted = wanted[1:-1] if len(wanted) > 3 else wanted[1:]
    return Stretch(str(path), run, wanted.start * 1_000_000, wanted.stop * 1_000_000), protocol


def _seconds(contents: Contents) -> Counter[int]:
    """Messages of applications that were submitted, by second."""
    named: Counter[int] = Counter()
    every: Counter[int] = Counter()
    for part in contents.parts:
        for table in _tables(part):
            chosen = table.filter(pc.equal(table["event"], "submit"))
            second = pc.divide(chosen["time_us"], 1_000_000)
            every.update(second.to_pylist())
            named.update(second.filter(pc.is_valid(chosen["group"])).to_pylist())
    return named or every


@lru_cache(maxsize=2)
def rows_of(stretch: Stretch) -> Rows:
    """The rows of messages that were submitted in a window, and what became of them soon."""
    import numpy as np

    taken = []
    for part in contents_of(stretch.path).parts:
        for table in _tables(part):
            if not table.num_rows:
                continue
            time_us = table["time_us"]
            begun = pc.greater_equal(time_us, stretch.from_us)
            over = pc.less(time_us, stretch.to_us + AFTER_US)
            known = pc.is_in(table["event"], value_set=pa.array(EVENTS))
            ours = pc.equal(table["run"], stretch.run)
            taken.append(table.filter(pc.and_(pc.and_(begun, over), pc.and_(known, ours))))
    table = pa.concat_tables(taken).sort_by("time_us")

    def column(values: Any) -> Numbers:
        found: Numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
        return found

    events = pc.index_in(table["event"], value_set=pa.array(EVENTS))
    lives = column(table["origin"]) << 32 | column(table["origin_incarnation"])
    _, life = np.unique(lives, return_inverse=True)
    message = life.astype(np.int64) << 44 | column(table["number"])
    ours = column(pc.is_valid(table["group"]))
    if not ours.any():  # of a simulation, which has no groups of processes
        ours = np.ones_like(ours)
    return Rows(
        column(table["time_us"]),
        column(table["node"]),
        column(events),
        message,
        column(table["origin"]),
        column(table["size"]),
        column(pc.equal(table["guarantee"], "safe")),
        ours,
    )


def _tables(part: Part) -> Iterator[pa.Table]:
    """The columns that are needed, a row group at a time."""
    if part.file.suffix == JOURNAL:
        yield stored_table(part).select(_COLUMNS)
        return
    if not part.plain:
        for group in range(len(part.groups)):
            yield stored_table(part, [group]).select(_COLUMNS)
        return
    with opened_parquet(part.file) as (parquet, seal):
        for group in range(parquet.num_row_groups):
            if seal is not None:
                seal.check(group)
            yield parquet.read_row_groups([group], list(_COLUMNS)).select(_COLUMNS)


class Arrival(NamedTuple):
    """A message of an application."""

    at_us: int
    """Since the window began."""
    node: int
    """1 is the first node in the order of identifiers, 2 the second, and so on."""
    size: int
    safe: bool


@lru_cache(maxsize=2)
def arrivals(stretch: Stretch) -> tuple[Arrival, ...]:
    """The messages that applications submitted in the window, in order of time."""
    rows = rows_of(stretch)
    place = {node: at for at, node in enumerate(nodes_of(rows), 1)}
    chosen = rows.where((rows.event == SUBMIT) & (rows.ours == 1) & (rows.time_us < stretch.to_us))
    return tuple(
        Arrival(time_us - stretch.from_us, place[node], size, bool(safe))
        for time_us, node, size, safe in zip(
            chosen.time_us.tolist(),
            chosen.node.tolist(),
            chosen.size.tolist(),
            chosen.safe.tolist(),
            strict=True,
        )
    )


def nodes_of(rows: Rows) -> list[int]:
    """The nodes, in the order of their identifiers."""
    return sorted(set(rows.node.tolist()))


def in_tested(time_us: Any, stretch: Stretch, tested: bool) -> Any:
    """Whether times are in the blocks that are predicted, or in those that the model is estimated from."""
    inside = (time_us >= stretch.from_us) & (time_us < stretch.to_us)
    return inside & (((time_us - stretch.from_us) // stretch.block_us) % 2 == int(tested))


def latencies(rows: Rows, since: int, mask: Any = None) -> tuple[Numbers, Rows]:
    """For each delivery of an application's message, microseconds since its `SUBMIT` or `ORIGINATE`; and the
    deliveries. With a `mask` over rows, only of messages for which that row is chosen."""
    import numpy as np

    begun = (rows.event == since) & (rows.ours == 1)
    if mask is not None:
        begun &= mask
    message, time_us = rows.message[begun], rows.time_us[begun]
    order = np.argsort(message, kind="stable")
    message, time_us = message[order], time_us[order]
    delivered = rows.where((rows.event == DELIVER) & (rows.ours == 1))
    if not len(message):
        return delivered.time_us[:0], delivered.where(slice(0, 0))
    at = np.minimum(np.searchsorted(message, delivered.message), len(message) - 1)
    known = message[at] == delivered.message
    return (delivered.time_us - time_us[at])[known], delivered.where(known)
