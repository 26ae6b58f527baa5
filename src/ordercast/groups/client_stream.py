"""The stream that clients read, over restarts of the node: how far it was counted, and its last messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.clients.stream import Entry, Stream
from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.errors import LogError

if TYPE_CHECKING:
    from ordercast.log.store import Store

COUNTED = b"clients/counted"
"""Under this the log remembers how many messages there were."""
MOST_ROWS = 50_000
"""Messages that are read again when a node starts."""


def counted(store: Store) -> int:
    """How many messages there were, when this node last knew."""
    found = store.notes().get(COUNTED, b"")
    return int(found) if found.isdigit() and len(found) < 19 else 0


def reopened(store: Store, subjects: tuple[str, ...], most_bytes: int) -> Stream:
    """The stream with the last messages of the log. Reads files."""
    stream = Stream(subjects, most_bytes)
    last = counted(store)
    if last:
        stream.restore(_last_messages(store.path, stream, last), last)
    return stream


def _last_messages(path: Path, stream: Stream, last: int) -> list[Entry]:
    """The messages of the end of the log that the stream covers; the very last one has number `last`."""
    from ordercast.log.view import View

    view = View(path)
    try:
        head = view.bounds().head
        if head is None:
            return []
        rows = [
            row
            for batch in view.read(view.before(head, MOST_ROWS), head)
            for row in batch.select(["kind", "group", "time_us", "payload"]).to_pylist()
            if row["kind"] == "message"
        ]
    except LogError:
        return []  # damaged: it is repaired in time, and the stream begins here
    finally:
        view.close()
    entries = []
    for number, row in enumerate(rows, last - len(rows) + 1):
        subject = next((each for each in row["group"].split(GROUPS_BETWEEN) if stream.covers(each)), None)
        if subject is not None and number > 0:
            entries.append(Entry(number, subject, b"", row["payload"], row["time_us"] * 1000))
    return entries
