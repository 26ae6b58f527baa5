"""What the machine of a replica knows of its disk."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.replicated.agreement import Agreement
from ordercast.replicated.durable.heads import Entry
from ordercast.replicated.history import History
from ordercast.replicated.levels import Level


class OnDisk:
    """How much of the history is on a replica's disk, or on its way there."""

    def __init__(self, level: Level, *, durable: bool) -> None:
        self._level = level
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

    @property
    def told(self) -> tuple[int, bool, bool]:
        """What the other replicas are told of it (`Report`)."""
        return self.promised, self.durable, self.remembers

    def takes_part(self, epoch: int) -> bool:
        """Whether the replica can say that it takes part in an epoch, and not forget it."""
        return not self.durable or self.promise_kept == epoch

    def kept_of(self, followed: History, of_all: bool) -> int | None:
        """Up to where the disk has a history that goes on from the state that the object has; `of_all`: from
        all that was delivered behind that state, too."""
        if self.kept is None or of_all:
            return self.kept
        return self.kept if self.kept == followed.base.position else None

    def keep(self, history: History, agreement: Agreement) -> Sequence[Entry]:
        """What of the history counts, and is to be appended to the log on disk now."""
        if self.kept is None:
            return ()
        assert agreement.chosen is not None
        entries = history.entries(self.kept, None if agreement.active else agreement.chosen.position)
        if entries:
            self.kept = entries[-1].head.position
        return entries

    def reached(self, agreement: Agreement) -> int | None:
        """Up to where the history may be carried out; None: as far as it was delivered. It is at least up to
        the chosen head: who has to get the state from here needs that much of it."""
        assert agreement.chosen is not None
        if not agreement.active:
            return agreement.chosen.position
        match self._level:
            case Level.MEMORY:
                return None
            case Level.DISK:
                return max(agreement.chosen.position, self.synced)
            case Level.MAJORITY_DISK:
                return max(agreement.chosen.position, agreement.synced)
