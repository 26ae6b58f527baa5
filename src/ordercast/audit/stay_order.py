"""In which order a node delivered the messages of its stays, by their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import lt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.audit.history import Stay


def heard_before(stay: Stay, span: range) -> Iterator[int]:
    """For each origination of a stay the last message, by number, that was delivered before it."""
    if isinstance(stay.delivered, range):
        first = span.start - 1
        yield from (first + after if after else -1 for after in stay.after)
        return
    highest, counted = -1, 0
    for after in stay.after:
        highest = max(
            (n for n in stay.delivered[counted:after] if n in span and n > highest), default=highest
        )
        counted = after
        yield highest


def ascends(stays: list[Stay]) -> bool:
    """Whether the numbers of what a node delivered rise over all its stays."""
    last = -1
    for stay in stays:
        numbers = stay.delivered
        if not numbers:
            continue
        if numbers[0] <= last:
            return False
        if not isinstance(numbers, range) and not all(map(lt, numbers, numbers[1:])):
            return False
        last = numbers[-1]
    return True
