"""What the members of a view hold when it ends, and how it gets to those who lack it.

Only names are told to all (`Summary`); a packet itself travels once, to who lacks it and asks. A participant
adopts a proposal only when it holds everything that the proposal names: so whatever is decided is held by a
quorum, and no single crash can take it away (004 §4.3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from ordercast.core.identity import NodeId
from ordercast.viewsync.contract import Items, Stream
from ordercast.viewsync.packets import Range, Summary
from ordercast.viewsync.ranges import names, ranges_of

MOST_FETCHED = 64
"""Items that are asked for at a time."""
MOST_ANSWERED = 256 * 1024
"""Bytes with which a request is answered; the rest is asked for again."""


class Exchange:
    """One member's part in sharing what the members of a view hold when it ends."""

    def __init__(self, items: Items) -> None:
        self._items: dict[Stream, dict[int, bytes]] = {stream: dict(some) for stream, some in items.items()}
        self.summaries: dict[NodeId, Summary] = {}
        self._holdings: dict[NodeId, dict[Stream, list[range]]] = {}
        self._asked: set[tuple[Stream, int]] = set()
        self._wanted: set[tuple[Stream, int]] = set()
        """Everything that was ever asked for: nothing else is taken."""

    @property
    def held(self) -> tuple[Range, ...]:
        """The names of everything that is here: what was from the beginning, and what was fetched."""
        return ranges_of(self._items)

    def told(self, node: NodeId, summary: Summary) -> None:
        """What another one holds. A full summary is not replaced by a light one."""
        before = self.summaries.get(node)
        if before is None or summary.full or not before.full:
            self.summaries[node] = summary
            holds: dict[Stream, list[range]] = {}
            for stream, first, count in summary.ranges:
                holds.setdefault(stream, []).append(range(first, first + count))
            self._holdings[node] = holds

    def missing(self, ranges: Iterable[Range], most: int | None = None) -> list[tuple[Stream, int]]:
        """What of this is not here: all of it, or the first so many."""
        items = self._items
        absent = (name for name in names(ranges) if name[1] not in items.get(name[0], ()))
        return list(islice(absent, most))

    def lost(self, ranges: Iterable[Range]) -> frozenset[tuple[Stream, int]]:
        """What of this is neither here nor with a member that told what it holds."""
        return frozenset(
            name
            for name in self.missing(ranges)
            if not any(self._holds(node, name) for node in self._holdings)
        )

    def _holds(self, node: NodeId, name: tuple[Stream, int]) -> bool:
        """Whether a member said that it has an item."""
        stream, number = name
        return any(number in some for some in self._holdings.get(node, {}).get(stream, ()))

    def requests(
        self, wanted: Collection[tuple[Stream, int]], sources: Iterable[NodeId], has_all: NodeId = 0
    ) -> list[tuple[NodeId, tuple[Range, ...]]]:
        """Whom to ask for what, unless answers are on their way. Of `has_all` anything may be asked."""
        if self._asked:
            return []
        left = list(wanted)[:MOST_FETCHED]
        asked: list[tuple[NodeId, tuple[Range, ...]]] = []
        for node in sources:
            some: dict[Stream, dict[int, bytes]] = {}
            for stream, number in left:
                if node == has_all or self._holds(node, (stream, number)):
                    some.setdefault(stream, {})[number] = b""
                    self._asked.add((stream, number))
            if some:
                asked.append((node, ranges_of(some)))
                left = [name for name in left if name not in self._asked]
        self._wanted |= self._asked
        return asked

    def forget_requests(self) -> None:
        """What was asked for has not come: it may be asked for again."""
        self._asked.clear()

    def took(self, stream: Stream, number: int, data: bytes) -> bool:
        """An item came; whether everything that was asked for is here now. What nobody asked for is left."""
        if (stream, number) not in self._wanted:
            return False
        self._items.setdefault(stream, {}).setdefault(number, data)
        self._asked.discard((stream, number))
        return not self._asked

    def answer(self, ranges: Iterable[Range]) -> list[tuple[Stream, int, bytes]]:
        """What of this is here, a bounded amount."""
        found: list[tuple[Stream, int, bytes]] = []
        size = 0
        for stream, number in names(ranges):
            data = self._items.get(stream, {}).get(number)
            if data is not None:
                found.append((stream, number, data))
                size += len(data)
                if len(found) == MOST_FETCHED or size > MOST_ANSWERED:
                    break
        return found

    def select(self, ranges: Iterable[Range]) -> Items:
        """The items that are named; all of them are here."""
        chosen: dict[Stream, dict[int, bytes]] = {}
        for stream, number in names(ranges):
            chosen.setdefault(stream, {})[number] = self._items[stream][number]
        return chosen
