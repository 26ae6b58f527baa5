"""Rows of traces as tables, run by run: to be added, or compared with what is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from ordercast.trace.contents import Contents
from ordercast.trace.files import JOURNAL
from ordercast.trace.reader import by_run, stored_table
from ordercast.trace.schema import SCHEMA

_GROUPS = 8
"""Row groups of a file that are read at a time: half a million rows."""
_IN_ORDER = [("node", "ascending"), ("incarnation", "ascending"), ("step", "ascending")]


def tables_of(contents: Contents, runs: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of these runs, a piece at a time: of one file, and not too many."""
    for part in contents.parts:
        if part.file.suffix == JOURNAL:
            pieces = [stored_table(part)]
        else:
            wanted = [at for at, group in enumerate(part.groups) if not group.keys().isdisjoint(runs)]
            starts = range(0, len(wanted), _GROUPS)
            pieces = (stored_table(part, wanted[start : start + _GROUPS]) for start in starts)  # type: ignore[assignment]
        for piece in pieces:
            for run, table in by_run(piece) if piece.num_rows else ():
                if run in runs:
                    yield run, table


def rows_of(contents: Contents, runs: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of these runs, each run whole."""
    left = {run: len(contents.runs[run]) for run in runs}
    held: dict[str, list[pa.Table]] = {}
    for part in contents.parts:
        for run, table in tables_of(Contents([part]), runs):
            held.setdefault(run, []).append(table)
        for run in part.runs:
            if run in left:
                left[run] -= 1
                if not left[run]:
                    yield run, pa.concat_tables(held.pop(run))


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same events, in whatever order."""
    if one.num_rows != other.num_rows:
        return False
    first, second = (table.cast(SCHEMA).sort_by(_IN_ORDER).combine_chunks() for table in (one, other))
    return bool(first.equals(second))
