"""The readers of a node that is alone, without a network: what it submits is ordered at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ordercast.core.addresses import address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Ended, Guarantee, Kind
from ordercast.groups.processes import Deliveries, Processes
from ordercast.groups.reader import Inbox
from ordercast.groups.readers import Readers
from ordercast.groups.receipts import Receipts

RING = ConfigurationId(4, 1)
ALONE = Configuration(RING, Kind.REGULAR, (1,))


def to(group: str, body: bytes = b"") -> bytes:
    """A message to a group, from outside."""
    return address(0, [group]) + body


class LoneReaders(Readers):
    """The readers of node 1, alone in a configuration, its processes and receipts."""

    def __init__(self, limit: int = 10_000, slow_changed: Callable[[], None] = lambda: None) -> None:
        gate: Any = SimpleNamespace(
            largest=1_000_000,
            hold=lambda: None,
            release=lambda: None,
            submit=self._order,
            attend=lambda attend: None,
        )
        super().__init__(Processes(1, 0, lambda: gate, lambda: False), limit, slow_changed)
        self.receipts = Receipts()
        log: Any = SimpleNamespace(feed=None)
        primary: Any = SimpleNamespace(minority=False)
        self._deliveries = Deliveries(
            self.processes,
            self.receipts,
            log,
            lambda batch: (batch,),
            lambda payloads: None,
            lambda configuration: None,
            primary,
        )
        self.install(ALONE)

    def _order(self, payloads: Sequence[bytes], size: int, guarantee: Guarantee) -> int:
        self.processes.deliver(Batch(RING, 0, 0, 1, 0, 1, guarantee, payloads))
        return 1

    def install(self, configuration: Configuration, ended: Ended | None = None) -> None:
        """A configuration begins."""
        self.processes.install(configuration, ended)

    def deliver(self, batch: Batch) -> None:
        """Messages are delivered."""
        self._deliveries.deliver(batch)

    def reader(self, group: str) -> Inbox:
        """What waits for a new reader of a group, which has read that it joined."""
        inbox = self.open(group).inbox
        inbox.clear()
        return inbox
