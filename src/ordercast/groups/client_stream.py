"""The stream that clients read, over restarts of the node: how messages were numbered, and the last of them.

All messages of the order are in the log, with what clients said beside them, and have numbers that follow
each other. Where they do not, because others had counted further, a note in the log says so; another one says
the number of the log's last message. So the log says the number of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.clients.stream import Stream
from ordercast.clients.wire import read_head
from ordercast.core.identity import GROUPS_BETWEEN, ConfigurationId, Kind
from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError
from ordercast.process_groups.views import Recounted

if TYPE_CHECKING:
    from ordercast.log.position import Position
    from ordercast.log.view import View

LOG = logging.getLogger("ordercast")

COUNTED = b"clients/counted"
"""Under this the log remembers the number of its last message,"""
RECOUNTED = b"clients/recounted"
"""and under this from which configurations on messages were counted anew."""
MOST_RECOUNTED = 256
"""So many of those, the last ones."""
UNKNOWN = -1
"""In the place of a number: the log may lack messages that were counted."""
MESSAGE = "message"
"""The kind of those entries of a log that are messages."""
MOST_ROWS = 400_000
"""Entries of the log that are read again when a node starts."""


class KeptStream:
    """How the messages of a log are numbered."""

    def __init__(
        self, notes: Mapping[bytes, bytes], note: Callable[[Mapping[bytes, bytes | None]], None]
    ) -> None:
        """`notes` are those of the log; `note` adds to them what is to be kept with what comes next."""
        found = notes.get(COUNTED, b"")
        self.counted = int(found) if found.isdigit() and len(found) < 19 else 0
        """The number of the last message."""
        self.recounts = _read(notes.get(RECOUNTED))
        """Where messages were counted anew, in order."""
        self._note = note
        self._complete = True
        """The log has all messages that were counted."""

    def reached(self, number: int) -> None:
        """The message that is delivered now has this number."""
        if number != self.counted:
            self.counted = number
            self._note({COUNTED: b"%d" % number})

    def recounted(self, recounted: Recounted) -> None:
        """Messages of a configuration are counted anew."""
        if not self._complete:
            recounted = recounted._replace(before=UNKNOWN)
            self._complete = True
        self.recounts = [*self.recounts, recounted][-MOST_RECOUNTED:]
        self._note({RECOUNTED: msgspec.msgpack.encode(self.recounts)})

    def life_over(self) -> None:
        """What was delivered in this life and is not final yet is never written."""
        self._complete = False


def _read(note: bytes | None) -> list[Recounted]:
    try:
        return [] if note is None else msgspec.msgpack.decode(note, type=list[Recounted])
    except UNREADABLE:
        return []


def reopened(path: Path, kept: KeptStream, subjects: Sequence[str], most_bytes: int) -> Stream:
    """The stream with the last messages of the log, and their identifiers. Reads files."""
    from ordercast.log.view import View

    stream = Stream(subjects, most_bytes)
    if not kept.counted:
        return stream
    view = View(path)
    try:
        _read_again(view, kept, stream)
    except LogError as error:  # damaged: it is repaired in time
        LOG.warning("what clients can read begins with the next message: %s", error)
        stream = Stream(subjects, most_bytes)
    finally:
        view.close()
    stream.reach(kept.counted)
    return stream


def _read_again(view: View, kept: KeptStream, stream: Stream) -> None:
    """Put what the log has at its end into the stream."""
    bounds = view.bounds()
    if bounds.head is None:
        return
    start = view.before(bounds.head, MOST_ROWS)
    if bounds.since is not None and bounds.since != bounds.oldest and (start is None or start < bounds.since):
        start = bounds.since  # the node was away before
    bases = {each.configuration: each.base for each in kept.recounts}
    number = _first_number(view, start, bounds.head, kept)
    subjects: dict[str, str | None] = {}
    for batch in view.read(start, bounds.head, heads=True):
        if batch["kind"][0].as_py() != MESSAGE:  # each is a batch by itself
            here = ConfigurationId(batch["config_seq"][0].as_py(), batch["config_rep"][0].as_py())
            number = bases.get(here, number - 1) + 1
            continue
        columns = (batch[name].to_pylist() for name in ("group", "time_us", "payload", "head"))
        for at, (names, time_us, payload, head) in enumerate(zip(*columns, strict=True), number):
            if names not in subjects:
                covered = (each for each in names.split(GROUPS_BETWEEN) if stream.covers(each))
                subjects[names] = next(covered, None)
            subject = subjects[names]
            if subject is not None and at > 0:
                headers = read_head(head).headers if head else b""
                stream.restore(at, subject, headers, payload, time_us * 1000)
        number += batch.num_rows


def _first_number(view: View, start: Position | None, end: Position, kept: KeptStream) -> int:
    """The number of the first message after `start`, 0 or less if it is not known."""
    from ordercast.log.blocks import head_of

    recounts = {each.configuration: each for each in kept.recounts}
    if start is not None and start.seq == 0 and start.configuration in recounts:
        return recounts[start.configuration].base + 1
    messages = 0
    for piece in view.pieces(start, end):
        head = head_of(piece.block)
        if head.kind == MESSAGE:
            messages += piece.end - piece.begin
        elif head.kind == Kind.REGULAR and head.first.configuration in recounts:
            before = recounts[head.first.configuration].before
            return before - messages + 1 if before != UNKNOWN else -messages
    return kept.counted - messages + 1
