"""The traces of all nodes of a run, kept in memory."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Sequence
from typing import Any

from ordercast.trace.columns import TIME_US
from ordercast.trace.schema import Row


class RowDigest:
    """Where the traces of all nodes of a cluster go: one checksum, and how many rows there were."""

    problem = None

    def __init__(self) -> None:
        self.rows = 0
        self._sum = hashlib.sha256()

    def append(self, rows: Sequence[Row]) -> None:
        """Rows of one node, as its driver notes them."""
        self.rows += len(rows)
        # version 2 writes no references, which would tell equal rows from the same ones
        self._sum.update(marshal.dumps(list[Any](rows), 2))

    def close(self) -> None:
        """One of the nodes writes no more."""

    @property
    def sha256(self) -> str:
        """SHA-256 of all rows so far, in the order in which they came."""
        return self._sum.hexdigest()


class KeptRows:
    """Where the traces of all nodes go: a list, with times of the one clock that the event loop has."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def by_clock(self, ahead_us: int) -> _RowsByClock:
        """Where rows go of a life whose clock is so far ahead."""
        return _RowsByClock(self.rows, ahead_us)

    @property
    def sha256(self) -> str:
        """SHA-256 of all rows so far, in the order in which they came."""
        digest = RowDigest()
        digest.append(self.rows)
        return digest.sha256


class _RowsByClock:
    """Takes the rows of one life."""

    problem = None

    def __init__(self, rows: list[Row], ahead_us: int) -> None:
        self._rows = rows
        self._ahead_us = ahead_us

    def append(self, rows: Sequence[Row]) -> None:
        """Rows, as the driver notes them."""
        for row in rows:
            here: Any = (*row[:TIME_US], row[TIME_US] - self._ahead_us, *row[TIME_US + 1 :])
            self._rows.append(here)

    def close(self) -> None:
        """The life writes no more."""
