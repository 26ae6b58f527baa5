"""Logs that are made by hand, for the tests of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ordercast.core.addresses import address, stamp
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.log import Position, Replica
from ordercast.log.store import Delivered, Installed, Store
from ordercast.process_groups.notes import head as beside

PLENTY = 2**30
MINUTE_US = 60_000_000


def store(path: Path, node: int = 1, **given: Any) -> Store:
    """A log to write. Without syncing, which only a loss of power could tell."""
    return Store(path, node, **{"most_bytes": PLENTY, "sync": False, **given})


def configuration(name: str, *members: int, kind: Kind = Kind.REGULAR) -> Configuration:
    """``8.1`` with these members."""
    seq, rep = name.split(".")
    return Configuration(ConfigurationId(int(seq), int(rep)), kind, members)


def installed(name: str, *members: int, first: bool = False, at_us: int = 1) -> Installed:
    """A regular configuration was installed."""
    return Installed(at_us, configuration(name, *members), first)


def transitional(name: str, *members: int) -> Installed:
    """A transitional configuration was installed."""
    return Installed(1, configuration(name, *members, kind=Kind.TRANSITIONAL), False)


def delivered(
    seq: int,
    *texts: str,
    group: str = "g",
    sender: int = 1,
    slot: int = 0,
    guarantee: Guarantee = Guarantee.AGREED,
    at_us: int = 1,
    head: bytes | None = None,
    sent_us: int = 0,
) -> Delivered:
    """A packet with messages for one group, each with this said beside it."""
    front = address(0, [group], headed=head is not None, stamped=stamp(sent_us))
    front += b"" if head is None else beside(head)
    payloads = [front + text.encode() for text in texts]
    return Delivered(at_us, Batch(ConfigurationId(0, 0), seq, slot, sender, 0, seq, guarantee, payloads))


def at(text: str) -> Position:
    return Position.parse(text)


def rows(replica: Replica, start: str | None, end: str, group: str | None = None) -> list[dict[str, Any]]:
    """The entries of a range, as dictionaries, with what was said beside messages."""
    begin = None if start is None else at(start)
    return [row for batch in replica.read(begin, at(end), group, heads=True) for row in batch.to_pylist()]


def told(found: Iterable[dict[str, Any]]) -> list[str]:
    """Positions and what stands there, in short."""
    return [
        f"{Position(row['config_seq'], row['config_rep'], row['seq'], row['slot'])} "
        f"{row['payload'].decode() if row['kind'] == 'message' else row['kind']}"
        for row in found
    ]
