"""Which buckets there are: a replicated object of all nodes that serve clients."""

from __future__ import annotations

import msgspec

from ordercast.clients.buckets.settings import Settings
from ordercast.replicated.command import command
from ordercast.replicated.replicated import Replicated

MOST_BUCKETS = 256


class Created(msgspec.Struct, array_like=True, frozen=True):
    """A bucket, as it was created. Its replicated object begins so; it may have other settings by now."""

    number: int
    """Of its creation: another bucket of the name, later, has another one."""
    created_us: int
    settings: Settings


class Registry(Replicated):
    """The buckets by name."""

    buckets: dict[str, Created]

    def __init__(self) -> None:
        self.buckets = {}

    @command
    def create(self, name: str, settings: Settings) -> Created | None:
        """Have a bucket of this name. The one that there is now, which may have been there before; None if
        there are too many."""
        found = self.buckets.get(name)
        if found is None and len(self.buckets) < MOST_BUCKETS:
            found = self.buckets[name] = Created(self.position, self.now_us, settings)
            self.tell(name)
        return found

    @command
    def remove(self, name: str, number: int) -> None:
        """Have a bucket no longer, if it is the one of that number."""
        found = self.buckets.get(name)
        if found is not None and found.number == number:
            del self.buckets[name]
            self.tell(name)
