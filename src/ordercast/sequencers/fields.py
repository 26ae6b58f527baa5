"""Rows of numbers in packets of the orderers: written, and read within bounds."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ordercast.core.wire import Malformed, check_count
from ordercast.viewsync.header import HEADER_SIZE

MAX_ENTRIES = 1_024
"""Most places or requests in one packet; a configuration may allow fewer."""

_NUMBER = struct.Struct("<q")


@lru_cache(maxsize=256)
def many(form: str, count: int) -> struct.Struct:
    """The format of so many rows of fields."""
    return struct.Struct("<" + form * count)


def flat(rows: Iterable[Sequence[int]]) -> list[int]:
    """The fields of rows, one behind the other."""
    return [value for row in rows for value in row]


def packed(numbers: Sequence[int]) -> bytes:
    """Numbers as they travel."""
    return many("q", len(numbers)).pack(*numbers)


def entries(data: bytes, at: int, form: str, count: int) -> list[tuple[int, ...]]:
    """A list of ``count`` rows at an offset, which must be there whole."""
    if count > MAX_ENTRIES:
        raise Malformed("too many entries")
    if at + many(form, count).size > len(data):
        raise Malformed("truncated")
    values = many(form, count).unpack_from(data, at)
    width = len(form)
    return [values[begin : begin + width] for begin in range(0, count * width, width)]


def head_of(data: bytes, form: struct.Struct) -> tuple[int, ...]:
    """The fields behind the header, which must be there whole."""
    if len(data) < HEADER_SIZE + form.size:
        raise Malformed("truncated")
    return form.unpack_from(data, HEADER_SIZE)


def ends(data: bytes, at: int) -> None:
    """Raise `Malformed` unless the packet ends at an offset."""
    if len(data) != at:
        raise Malformed("trailing bytes")


def only_number(data: bytes, lowest: int) -> int:
    """The number that is all that the packet has."""
    (number,) = head_of(data, _NUMBER)
    ends(data, HEADER_SIZE + _NUMBER.size)
    return check_count(number, lowest)
