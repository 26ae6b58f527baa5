"""A replicated number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from ordercast.errors import CommandFailed
from ordercast.process_groups.views import Process
from ordercast.replicated.command import CallId, command
from ordercast.replicated.replicated import Replicated

LEAST, MOST = -(2**63), 2**63 - 1


class Share(NamedTuple):
    """What one replica has added."""

    last: CallId
    """The last command by which the replica added;"""
    added: int
    """what it has added in all."""


class Counter(Replicated):
    """A whole number of 64 bits, the same at every node that replicates it.

    visits = await node.replicate(Counter(), "visits")
    number = await visits.add()

    With ``partition="merge"`` what was added in all partitions counts, each addition once. `compare_and_set`
    counts as an addition, too: of what it has changed.
    """

    local: int
    """The number as this replica has it: read at once, and perhaps behind others' until `sync`."""
    shares: dict[Process, Share]
    """What each replica has added, if histories are merged."""

    def __init__(self, start: int = 0) -> None:
        self.local = start
        self.shares = {}

    async def get(self) -> int:
        """The number; not older than this call."""
        await self.sync()
        return self.local

    @command
    def add(self, number: int = 1) -> int:
        """Add to it, or with less than 0 subtract; what it is then."""
        return self._set(self.local + number)

    @command
    def compare_and_set(self, old: int, new: int) -> bool:
        """Set it if it is `old`; whether it was set."""
        if self.local != old:
            return False
        self._set(new)
        return True

    def _set(self, number: int) -> int:
        if not LEAST <= number <= MOST:
            raise CommandFailed(f"the counter would be {number}, and holds 64 bits: it was not changed")
        if self.is_merged:
            before = self.shares.get(self.caller)
            added = number - self.local + (0 if before is None else before.added)
            self.shares[self.caller] = Share(self.call_id, added)
        self.local = number
        self.tell(number)
        return number

    def merge(self, others: Sequence[Self]) -> None:
        """Add up what each replica has added, as of the history that knows most of it."""
        start = self.local - sum(share.added for share in self.shares.values())
        for other in others:
            for caller, share in other.shares.items():
                self.shares[caller] = max(share, self.shares.get(caller, share))
        number = start + sum(share.added for share in self.shares.values())
        self.local = min(max(number, LEAST), MOST)
