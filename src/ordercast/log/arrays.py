"""Arrow arrays made of raw buffers and taken apart into them, without touching their values."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOST_ROWS = 65_536
"""Messages in a block."""
_CODES = {8: "b", 32: "i", 64: "q"}
"""Type codes of Python's arrays, by the bits of a number."""


def binary(payloads: Sequence[bytes]) -> pa.BinaryArray:
    """Payloads in Arrow. Like `numbers`, not by ``pa.array``, which loads pandas where that is installed."""
    data = b"".join(payloads)
    count, longest = len(payloads), max(map(len, payloads), default=0)
    if count * longest == len(data):  # all are as long
        ends = array("i", range(0, len(data) + 1, longest) if longest else bytes(4 * (count + 1)))
    else:
        ends = array("i", accumulate(map(len, payloads), initial=0))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def no_heads(count: int) -> pa.BinaryArray:
    """The heads of so many messages that have none."""
    return binary([b""] * count)


def buffers_of(payloads: pa.BinaryArray) -> tuple[memoryview, Any]:
    """Where each of some payloads ends, and their bytes, with nothing before or behind."""
    rows = len(payloads)
    _, offsets, data = payloads.buffers()
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets], offset=payloads.offset)
    first, last = ends[0].as_py(), ends[rows].as_py()
    if first:
        ends = pc.subtract(ends, pa.scalar(first, pa.int32()))
    return exactly(ends, pa.int32()), memoryview(data).cast("B")[first:last] if data is not None else b""


def numbers(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Numbers in Arrow."""
    data = array(_CODES[kind.bit_width], values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def exactly(numbers: pa.Array, kind: pa.DataType) -> memoryview:
    """The bytes of some numbers, with nothing before or behind."""
    width = kind.bit_width // 8
    at = numbers.offset * width
    return memoryview(numbers.buffers()[1]).cast("B")[at : at + len(numbers) * width]


@lru_cache(maxsize=1)
def counting() -> pa.Array:
    """The numbers from 0 on."""
    return pa.array(range(MOST_ROWS), pa.int32())


@lru_cache(maxsize=16)
def constant(value: int | str, kind: str) -> pa.Array:
    """A column with the same value in every row."""
    return pa.repeat(pa.scalar(value, getattr(pa, kind)()), MOST_ROWS)
