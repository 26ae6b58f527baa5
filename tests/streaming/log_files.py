"""Logs as nodes would have written them, without any node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from ordercast.core.addresses import address, stamp
from ordercast.core.headers import head_of
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.log import Position
from ordercast.log.store import Delivered, Installed, Store
from ordercast.process_groups.notes import head

TIME_US = 1_700_000_000_000_000
PER_PACKET = 10


def configuration(seq: int, rep: int, *members: int, transitional: bool = False) -> Configuration:
    kind = Kind.TRANSITIONAL if transitional else Kind.REGULAR
    return Configuration(ConfigurationId(seq, rep), kind, members)


class Writer:
    """Writes the log of a node: configurations, and packets of ten messages that are numbered through."""

    def __init__(self, path: Path, node: int, most_bytes: int = 2**30) -> None:
        self.where = str(path)
        self._late_us = node * 1000
        self._store = Store(path, node, most_bytes=most_bytes, sync=False)
        self._configuration = ConfigurationId(0, 0)
        self._seq = 0
        self._installed = False

    def install(self, configuration: Configuration, *, gap: bool = False) -> Writer:
        first = gap or not self._installed
        self._store.append([Installed(TIME_US, configuration, first)])
        self._configuration, self._seq, self._installed = configuration.id, 0, True
        return self

    def packets(
        self, count: int, begin: int = 0, group: str = "ledger", size: int = 0, key: str | None = None
    ) -> Writer:
        """So many packets; messages are numbers from `begin` on, and their packet was sent so many ms after
        `TIME_US` as its first says."""
        entries = []
        for packet in range(count):
            self._seq += 1
            first = begin + packet * PER_PACKET
            front = address(0, [group], headed=key is not None, stamped=stamp(TIME_US + first * 1000))
            front += b"" if key is None else head(head_of(key, {"about": "a test"}) or b"")
            payloads = [front + b"%0*d" % (size, first + place) for place in range(PER_PACKET)]
            batch = Batch(self._configuration, self._seq, 0, 2, 0, 1, Guarantee.AGREED, payloads)
            entries.append(Delivered(TIME_US + first + self._late_us, batch))
        self._store.append(entries)
        return self

    def done(self) -> str:
        self._store.close()
        return self.where


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """The messages, which are numbers."""
    return [
        int(payload)
        for batch in batches
        for payload in batch.column("payload").to_pylist()
        if payload is not None
    ]


def place(text: str) -> Position:
    return Position.parse(text)
