"""A replicated number."""

from __future__ import annotations

from ordercast.errors import CommandFailed
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated

LEAST, MOST = -(2**63), 2**63 - 1


class Counter(Replicated):
    """A whole number of 64 bits, the same at every node that replicates it.

    visits = await node.replicate(Counter(), "visits")
    number = await visits.add()
    """

    local: int
    """The number as this replica has it: read at once, and perhaps behind others' until `sync`."""

    def __init__(self, start: int = 0) -> None:
        self.local = start

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
        self.local = number
        self.tell(number)
        return number
