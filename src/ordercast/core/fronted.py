"""Messages that all begin with the same bytes, with those bytes kept once.

Messages of one process to the same groups have one address in front (`core.addresses`). Who knows that from
where the messages came need not look at each of them: not to find the address, nor to take it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, overload

from ordercast.core.packing import LENGTH_SIZE, split_chunks, split_equally

FEWEST = 8
"""The fewest messages for which keeping their front once pays."""


class Fronted(Sequence[bytes]):
    """Messages as a sequence like any other, each whole; they are put together when they are asked for."""

    __slots__ = ("_at", "_count", "_data", "_length", "_rests", "front", "size")

    def __init__(self, front: bytes, rests: Sequence[bytes]) -> None:
        """Messages that begin with `front`; the rest of each is known."""
        self.front = front
        self._rests: Sequence[bytes] | None = rests
        self._count = len(rests)
        self._data, self._at = b"", 0
        self._length: int | None = None
        self.size = sum(map(len, rests)) + self._count * len(front)
        """Bytes of all messages."""

    @classmethod
    def read(cls, front: bytes, data: bytes, at: int, count: int, length: int | None = None) -> Self:
        """So many messages; the rest of each is in `data`, from `at` to its end: of this `length` each, or
        else as chunks that are known to fit (`core.packing.check_chunks`)."""
        made = cls(front, ())
        made._rests, made._data, made._at, made._count, made._length = None, data, at, count, length
        rests = len(data) - at - LENGTH_SIZE * count if length is None else count * length
        made.size = rests + count * len(front)
        return made

    @classmethod
    def alone(cls, front: bytes, count: int) -> Self:
        """`count` messages that are the front and nothing else."""
        made = cls(front, ())
        made._rests, made._length, made._count, made.size = None, 0, count, count * len(front)
        return made

    def rests(self) -> Sequence[bytes]:
        """Each message without its front."""
        if self._rests is not None:
            return self._rests
        if self._length is not None:
            return split_equally(self._data, self._at, self._count, self._length)
        return split_chunks(self._data, self._at, self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(whole(self))

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Fronted: ...

    def __getitem__(self, index: int | slice) -> bytes | Fronted:
        if isinstance(index, slice):
            return Fronted(self.front, self.rests()[index])
        return self.front + self.rests()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def put_in_front(front: bytes, payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Messages with these bytes in front of each. Raises TypeError if one of them is not made of bytes."""
    if len(payloads) >= FEWEST and set(map(type, payloads)) == {bytes}:
        return Fronted(front, payloads)
    return [front + payload for payload in payloads]


def whole(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """The same messages as a plain sequence, in which each was put together once."""
    if type(payloads) is Fronted:
        front = payloads.front
        return [front + rest for rest in payloads.rests()]
    return payloads


def bytes_of(payloads: Sequence[bytes]) -> int:
    """Bytes of all these messages."""
    return payloads.size if type(payloads) is Fronted else sum(map(len, payloads))


def longest_of(payloads: Sequence[bytes]) -> int:
    """Bytes of the longest of these messages; 0 if there is none."""
    if type(payloads) is Fronted:
        return len(payloads.front) + max(map(len, payloads.rests()))
    return max(map(len, payloads), default=0)
