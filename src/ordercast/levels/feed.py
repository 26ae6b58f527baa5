"""The order as it is handed down: views and the messages in them, as pieces that are numbered view by view.

Only what is final goes down: what all primaries have, and all of a view once it has ended. So nothing that a
node below was told can change, whoever fails, and whoever feeds it tells it the same: the places of a view
are the same at all its members, and so are the numbers of its pieces.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

import msgspec

from ordercast.core.identity import Batch, ConfigurationId, Guarantee, NodeId
from ordercast.core.wire import UNREADABLE, Malformed
from ordercast.levels.packets import Count, Life, Node, View

PIECE_SIZE = 16 * 1024
"""Bytes of an entry that are one piece, at most: several pieces fit into a packet."""
PIECE_COUNTS = 64
"""What a piece counts for beside its bytes, so that empty ones are bounded, too."""


class Beginning(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The first entry of a view."""

    members: tuple[Node, ...]
    before: View
    """The view that it ends."""
    upto: Count
    """The last piece of that one."""


class Ordered(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Messages at their place in the view's order."""

    seq: Count
    slot: Count
    origin: Node
    incarnation: Life
    number: Count
    guarantee: str
    payloads: tuple[bytes, ...]

    def batch(self, view: ConfigurationId) -> Batch:
        """The messages, as they are delivered."""
        guarantee = Guarantee(self.guarantee)
        place = (self.seq, self.slot, self.origin, self.incarnation, self.number)
        return Batch(view, *place, guarantee, self.payloads)


Entry: TypeAlias = Beginning | Ordered
Piece: TypeAlias = tuple[bool, bytes]
"""Whether the entry goes on in the next piece, and a part of it."""

_GUARANTEES = frozenset(Guarantee)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def pieces_of(entry: Entry) -> list[Piece]:
    """An entry in pieces."""
    data = _encoder.encode(entry)
    starts = range(0, len(data), PIECE_SIZE)
    return [(start + PIECE_SIZE < len(data), data[start : start + PIECE_SIZE]) for start in starts]


def ordered(batch: Batch) -> Ordered:
    """Messages as an entry."""
    payloads = tuple(map(bytes, batch.payloads))
    return Ordered(*batch[1:6], batch.guarantee.value, payloads)


def read_entry(data: bytes) -> Entry:
    """An entry whose pieces were put together; raises `Malformed`."""
    try:
        entry = _decoder.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad payload") from error
    if isinstance(entry, Ordered) and entry.guarantee not in _GUARANTEES:
        raise Malformed("unknown guarantee")
    return entry


class Position(NamedTuple):
    """How far somebody has come: all pieces up to this one, and all of the views before."""

    view: ConfigurationId
    at: int
    """The last piece; 0 is the view's beginning."""


class Stretch(NamedTuple):
    """Consecutive pieces of a view."""

    view: ConfigurationId
    first: int
    pieces: tuple[Piece, ...]


class _Kept:
    """What is kept of a view's pieces."""

    __slots__ = ("first", "members", "pieces", "view", "whole")

    def __init__(self, view: ConfigurationId, members: tuple[NodeId, ...], first: int) -> None:
        self.view = view
        self.members = members
        self.first = first
        """The number of the first piece that is kept."""
        self.pieces: deque[Piece] = deque()
        self.whole = first - 1
        """The last piece at which an entry ends."""

    @property
    def end(self) -> int:
        """The last piece."""
        return self.first + len(self.pieces) - 1


class Feed:
    """The last pieces, up to a number of bytes: what a node can tell those below it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._views: deque[_Kept] = deque()

    def begin(self, view: ConfigurationId, members: tuple[NodeId, ...], first: int) -> None:
        """A view begins, or is come to in its middle: its next piece has this number."""
        self._views.append(_Kept(view, members, first))

    def add(self, piece: Piece) -> None:
        """The next piece of the view that was begun last."""
        last = self._views[-1]
        last.pieces.append(piece)
        if not piece[0]:
            last.whole = last.end
        self._bytes += len(piece[1]) + PIECE_COUNTS
        while self._bytes > self._limit:
            oldest = self._views[0]
            if oldest is last and len(last.pieces) == 1:
                break
            if oldest.pieces:
                self._bytes -= len(oldest.pieces.popleft()[1]) + PIECE_COUNTS
                oldest.first += 1
            if not oldest.pieces and oldest is not last:
                self._views.popleft()

    @property
    def end(self) -> Position | None:
        """How far this node is; None where it is in no view."""
        return Position(self._views[-1].view, self._views[-1].end) if self._views else None

    @property
    def entrance(self) -> tuple[Position, tuple[NodeId, ...]] | None:
        """Where one begins that has nothing, behind a whole entry, and the members of that view."""
        if not self._views:
            return None
        last = self._views[-1]
        return Position(last.view, last.whole), last.members

    def has(self, position: Position) -> bool | None:
        """Whether all is kept that comes behind a position; None if this node has not come so far."""
        end = self.end
        if end is None or (position.view.seq, position.at) > (end.view.seq, end.at):
            return None
        return any(
            kept.view == position.view and kept.first <= position.at + 1 <= kept.end + 1
            for kept in self._views
        )

    def behind(self, position: Position, room: int) -> Stretch | None:
        """The next pieces behind a position, of one view, in about `room` bytes; None if there are none."""
        views = iter(self._views)
        for kept in views:
            if kept.view == position.view:
                break
        else:
            return None
        first = position.at + 1
        if first > kept.end:
            following = next(views, None)
            if following is None:
                return None
            kept, first = following, 0
        found: list[Piece] = []
        for index in range(first - kept.first, len(kept.pieces)):
            room -= len(kept.pieces[index][1]) + PIECE_COUNTS
            if found and room < 0:
                break
            found.append(kept.pieces[index])
        return Stretch(kept.view, first, tuple(found)) if found else None
