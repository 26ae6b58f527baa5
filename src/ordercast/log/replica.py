"""One replica of the ordered log, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa

from ordercast.errors import AddressProblem
from ordercast.keys import Keyring
from ordercast.log.client import Remote
from ordercast.log.position import Position
from ordercast.log.selection import Selection, selection
from ordercast.log.view import MOST_BYTES, Bounds, View
from ordercast.transport.address import parse_address


def is_address(where: str) -> bool:
    """Whether this is host and port, and no directory."""
    if "/" in where or Path(where).is_dir():
        return False
    try:
        parse_address(where)
    except AddressProblem:
        return False
    return True


class Replica:
    """A replica to read from: the directory of a log on this machine, or a node's log service over TCP.

    All entries that it gives are final: they are the same at every replica that has them, and cannot change.
    Not for several threads at a time.
    """

    def __init__(self, where: str, key: bytes | str | Keyring | None = None, timeout: float = 5.0) -> None:
        """`where` is a directory, or ``host:port``; `key` is the group key, its file, or all keys
        of the group, if there is one.

        `timeout`: seconds after which a node that does not answer is `Unreachable`.
        """
        self.where = where
        self._source: View | Remote
        if is_address(where):
            self._source = Remote(where, None if key is None else Keyring.of(key), timeout)
        else:
            self._source = View(Path(where))

    def bounds(self) -> Bounds:
        """What the replica holds."""
        return self._source.bounds()

    def after(
        self,
        start: Position | None,
        rows: int,
        group: str | Selection | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> Position | None:
        """The end of a range of about `rows` entries after `start`, at most the head; None: nothing new.

        Without a `start`, from the oldest entry on. With a `group`, or a `Selection` of several, entries that
        are selected count, and the range may go beyond them. With `most_bytes`, it ends before they have more
        bytes, but has one of them. Raises `Trimmed`, `SplitAway`, `NotThere` or `NotYet` where the replica
        cannot go on from `start`.
        """
        return self._source.after(start, rows, selection(group), most_bytes)

    def count(
        self, start: Position | None, end: Position, group: str | Selection | None = None
    ) -> tuple[int, int]:
        """How many entries there are after `start` up to `end`, and their bytes."""
        return self._source.count(start, end, selection(group))

    def groups(self) -> list[str]:
        """The groups that it has messages of."""
        return self._source.groups()

    def sent_at(self, time_us: int) -> Position | None:
        """The first message that was sent at that time (`sent_us`) or later; None if none was."""
        return self._source.sent_at(time_us)

    def before(self, end: Position, rows: int) -> Position | None:
        """The entry behind which the last `rows` entries up to `end` begin; None: with the oldest."""
        return self._source.before(end, rows)

    def read(
        self,
        start: Position | None,
        end: Position,
        group: str | Selection | None = None,
        *,
        heads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The entries after `start` up to `end` and with it, in `LOG_SCHEMA`.

        With a `group`, its messages and all changes of the configuration, or what a `Selection` wants, and of
        times and configurations at least that; with `heads`, one more column has
        what clients said beside their messages, reply and headers. What stands against it is raised
        at once, not while the batches are read; but what is trimmed meanwhile is `Trimmed`.
        """
        return self._source.read(start, end, selection(group), heads=heads)

    def close(self) -> None:
        """Give back what it holds."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
