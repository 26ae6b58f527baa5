"""What the machine of a replica knows of its disk."""

from __future__ import annotations

from ordercast.replicated.history import History


class OnDisk:
    """How much of the history is on a replica's disk, or on its way there."""

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        """There is a disk."""
        self.remembers = False
        """All that the replica ever told is on it."""
        self.promised = 0
        """The latest epoch that the replica takes part in, and"""
        self.promise_kept = 0
        """the one of which its disk knows."""
        self.kept: int | None = None
        """Up to here the history of the object's state was given to the disk; None: it has another one."""
        self.synced = 0
        """Up to here the history of this epoch is there."""

    def takes_part(self, epoch: int) -> bool:
        """Whether the replica can say that it takes part in an epoch, and not forget it."""
        return not self.durable or self.promise_kept == epoch

    def kept_of(self, followed: History, of_all: bool) -> int | None:
        """Up to where the disk has a history that goes on from the state that the object has; `of_all`: from
        all that was delivered behind that state, too."""
        if self.kept is None or of_all:
            return self.kept
        return self.kept if self.kept == followed.base.position else None
