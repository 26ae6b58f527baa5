"""A damaged log is mended from other replicas: what is missing is read there, checked, and put in its place.

Replicas hold the same entries at the same positions, so the range that is missing says what to ask for. What
comes is taken only if the segment then has as many entries as it had, with the same digest: a replica whose
history went another way in a partition holds the same positions before and after, but other entries between.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.core.identity import Configuration, ConfigurationId, Guarantee, Kind
from ordercast.errors import OrdercastError
from ordercast.keys import Keyring
from ordercast.log.arrays import binary
from ordercast.log.blocks import MESSAGE, MessageRun, Messages, change
from ordercast.log.disk import Missing, spelled
from ordercast.log.files import Fetch
from ordercast.log.position import Position
from ordercast.log.replica import Replica
from ordercast.log.store import Store
from ordercast.log.view import View


class SegmentRepair(NamedTuple):
    """What became of a damaged segment."""

    segment: int
    missing: list[Missing]
    """What was damaged; nothing, if only the list of its blocks was."""
    source: str | None = None
    """The replica that it was mended from; None if it still is damaged."""
    reasons: tuple[str, ...] = ()
    """Why it still is, one for each replica that was asked."""

    @property
    def sentence(self) -> str:
        """What became of the segment, in a sentence."""
        where = "; ".join(spelled(hole) for hole in self.missing) or "in the list of its blocks only"
        if self.source is not None:
            return f"segment {self.segment} of the log was damaged, {where}: repaired from {self.source}"
        why = "; ".join(self.reasons) or "no other replica is known"
        return (
            f"segment {self.segment} of the log is damaged, {where}, and could not be repaired ({why}): read "
            "that from another replica, or repair it with `ordercast log DIR --repair HOST:PORT`"
        )


def mend(
    store: Store, segment: int, replicas: Sequence[tuple[str, bytes | str | Keyring | None]]
) -> SegmentRepair | None:
    """Check a segment, and repair it from the first of the replicas that can; None if it is whole.

    `replicas`: addresses or directories, each with the group key, if there is one.
    """
    missing = store.check(segment)
    if not missing:
        if not store.is_spoilt(segment):
            return None
        store.repair(segment, _nothing)
        return SegmentRepair(segment, [], "what is left of it")
    reasons = []
    for where, key in replicas:
        try:
            with Replica(where, key) as replica:
                reason = store.repair(segment, fetch_from(replica))
        except OrdercastError as error:
            reason = str(error)
        if reason is None:
            return SegmentRepair(segment, missing, where)
        reasons.append(f"{where}: {reason}")
    return SegmentRepair(segment, missing, None, tuple(reasons))


def check_log(path: Path) -> tuple[list[str], list[str]]:
    """Check all files of a log: sentences on files that are damaged, and on entries lost with them."""
    view = View(path)
    try:
        problems, _ = view.problems()
        return problems, [f"entries {spelled(hole)}" for hole in view.check()]
    finally:
        view.close()


def repair_log(path: Path, source: str, key: str | None) -> list[SegmentRepair]:
    """Repair the log of a node that is stopped from `source`: what became of each damaged segment."""
    with Replica(str(path)) as replica:
        node = replica.bounds().node
    store = Store(path, node, most_bytes=sys.maxsize)
    try:
        return [mended for segment in store.finished if (mended := mend(store, segment, [(source, key)]))]
    finally:
        store.close()


def _nothing(after: Position | None, last: Position, rows: int | None) -> Sequence[bytes]:
    return ()


def fetch_from(replica: Replica) -> Fetch:
    """Reads blocks from a replica."""

    def fetch(after: Position | None, last: Position, rows: int | None) -> Sequence[bytes]:
        if after is None and rows is not None:
            after = replica.before(last, rows)
        batches = replica.read(after, last, heads=True)
        return [block for batch in batches for block in blocks_of(batch.to_pylist())]

    return fetch


def blocks_of(rows: Iterable[dict[str, Any]]) -> list[bytes]:
    """Entries as blocks: messages that follow each other in one configuration, and each change by itself."""
    made: list[bytes] = []
    here: ConfigurationId | None = None
    runs: list[MessageRun] = []
    payloads: list[bytes] = []
    heads: list[bytes] = []

    def flush() -> None:
        if here is not None and runs:
            beside = binary(heads) if any(heads) else None
            made.append(Messages.of(here, runs, binary(payloads), beside).encoded())
            for column in (runs, payloads, heads):
                column.clear()

    for row in rows:
        configuration = ConfigurationId(row["config_seq"], row["config_rep"])
        if configuration != here or row["kind"] != MESSAGE:
            flush()
        here = configuration
        if row["kind"] != MESSAGE:
            members = tuple(row["members"])
            made.append(change(Configuration(configuration, Kind(row["kind"]), members), row["time_us"]))
            continue
        run = MessageRun(
            row["seq"],
            row["slot"],
            row["sender"],
            Guarantee(row["guarantee"]),
            row["group"],
            row["time_us"],
            1,
            row["sent_us"],
        )
        if runs and _continues(runs[-1], run):
            runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
        else:
            runs.append(run)
        payloads.append(row["payload"])
        heads.append(row["head"])
    flush()
    return made


def _continues(before: MessageRun, run: MessageRun) -> bool:
    """Whether a message is the next one of the run."""
    return run == before._replace(slot=before.slot + before.length, length=1)
