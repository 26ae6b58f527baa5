"""Names of items by the range, as packets carry them: `Range`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ordercast.viewsync.contract import Items, Stream
from ordercast.viewsync.packets import MAX_ITEMS, MAX_RANGES, Range


def ranges_of(items: Items) -> tuple[Range, ...]:
    """The names of items, as far as one packet can name them all."""
    found: list[Range] = []
    for stream in sorted(items):
        first = count = 0
        for number in sorted(items[stream]):
            if count and number == first + count:
                count += 1
                continue
            if count:
                found.append(Range(stream, first, count))
            first, count = number, 1
        if count:
            found.append(Range(stream, first, count))
    return union((found,))


def names(ranges: Iterable[Range]) -> Iterable[tuple[Stream, int]]:
    """Each item that is named."""
    for stream, first, count in ranges:
        for number in range(first, first + count):
            yield stream, number


def union(several: Iterable[Iterable[Range]]) -> tuple[Range, ...]:
    """The names of everything that is named in one of them, as far as one packet can name it all."""
    merged: list[Range] = []
    for stream, first, count in sorted(range_ for ranges in several for range_ in ranges):
        if merged and merged[-1].stream == stream and first <= merged[-1].first + merged[-1].length:
            before = merged.pop()
            count = max(before.first + before.length, first + count) - before.first
            first = before.first
        merged.append(Range(stream, first, count))
    room = MAX_ITEMS
    for at, range_ in enumerate(merged[:MAX_RANGES]):
        if range_.length > room:
            return (*merged[:at], *([range_._replace(length=room)] if room else ()))
        room -= range_.length
    return tuple(merged[:MAX_RANGES])


def without(ranges: Iterable[Range], lost: Collection[tuple[Stream, int]]) -> tuple[Range, ...]:
    """The names of everything that is named but for these."""
    return union([[Range(*name, 1)] for name in names(ranges) if name not in lost])
