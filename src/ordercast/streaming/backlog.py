"""The rows of a task that the group may not have yet: what is sent, what is kept, and what is the same."""

from __future__ import annotations

from ordercast.core.checksum import checksum
from ordercast.errors import OrdercastError


class NotTheSame(OrdercastError):
    """Rows that were delivered by an earlier attempt are others now."""


class Forgotten(OrdercastError):
    """The group does not know of rows that it had."""


class Backlog:
    """Rows from the first that is not known to be delivered on, in order."""

    def __init__(self) -> None:
        self.total = 0
        """Rows that were given so far."""
        self.known = 0
        """So many of them are delivered, and no longer here; or are skipped when they come."""
        self.size = 0
        """Bytes of what is here."""
        self.skipped: int | None = None
        """Rows that an earlier attempt had delivered."""
        self._rows: list[bytes] = []
        self._begin = 0
        """Number of the first row that is here."""
        self._checksum = 0
        """The checksum of all rows before it."""
        self._promised: tuple[int, int] | None = None
        """How many rows were delivered by an earlier attempt, and their checksum, until they were seen."""

    def add(self, rows: list[bytes]) -> None:
        """Rows are given, behind all others."""
        self._rows += rows
        self.total += len(rows)
        self.size += sum(map(len, rows))
        self._let_go()

    def resume(self, delivered: int, told: int) -> None:
        """The group has delivered so many rows, of this checksum: the others are to be sent."""
        if delivered < self._begin:
            raise Forgotten(
                f"the group had {self._begin:,} rows of this task and now knows of {delivered:,} only: its "
                "members were all replaced, or the query writes to another part of a divided group. Look at "
                "the group, and then decide what to write again; starting the query once more tries again."
            )
        self.skipped = delivered if self.skipped is None else self.skipped
        self._promised = delivered, told
        self.known = max(delivered, self._begin)
        self._let_go()

    def keep(self, delivered: int) -> None:
        """Note that the first `delivered` rows are delivered and in a log."""
        self.known = max(self.known, delivered)
        self._let_go()

    def between(self, first: int, most_bytes: int) -> list[bytes]:
        """Rows from this number on, as many as that and at least one, if there is one."""
        found: list[bytes] = []
        size = 0
        for row in self._rows[first - self._begin :]:
            size += len(row) + 16
            if found and size > most_bytes:
                break
            found.append(row)
        return found

    def end(self) -> None:
        """No more rows come."""
        if self._promised is not None and self.total < self._promised[0]:
            raise NotTheSame(
                f"an earlier attempt of this task delivered {self._promised[0]:,} rows, and now there are "
                f"{self.total:,} in all: {_ADVICE}"
            )

    def _let_go(self) -> None:
        gone = min(self.known, self.total) - self._begin
        if self._promised is not None and self._promised[0] <= self.total:
            place, told = self._promised
            self._promised = None
            if checksum(self._rows[: place - self._begin], self._checksum) != told:
                raise NotTheSame(
                    f"the first {place:,} rows of this task were delivered by an earlier attempt, and are "
                    f"others now: {_ADVICE}"
                )
        if gone > 0:
            some = self._rows[:gone]
            self._checksum = checksum(some, self._checksum)
            self.size -= sum(map(len, some))
            del self._rows[:gone]
            self._begin += gone


_ADVICE = (
    "the query must give the same rows in the same order when it is run again. Sort within partitions, and "
    "leave out what differs from run to run (rand, current_timestamp, uuid, repartition without columns)"
)
