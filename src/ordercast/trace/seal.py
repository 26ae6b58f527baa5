"""Checksums over all bytes of a trace's Parquet file, so that no damage is read as data.

Pages of Parquet have checksums. What stands between them has none: their headers, and the footer, with the
statistics that readers skip by and with what the file promises. So a `SealedFile` puts a *seal* between the
last row group and the footer, where readers of Parquet look at nothing::

    end of a piece (8 bytes), CRC-32 of its bytes (4)        for each row group, in order
    number of pieces (4), CRC-32 of the footer (4), CRC-32 of the seal up to here (4), `MAGIC` (8)

A piece begins where the one before it ends, the first at the file's beginning. Files of other writers have no
seal, and are read as they are.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, BinaryIO, NamedTuple

from ordercast.trace.schema import TraceError

MAGIC = b"ocsealed"
_ALIKE = 5
"""So many bytes of `MAGIC` tell a seal: one that is damaged is a seal, too."""
_PIECE = struct.Struct("<QI")
_HEAD = struct.Struct("<II")
_END = struct.Struct("<III8s")
_TAIL = 8
"""Bytes behind the footer of a Parquet file: its length, and what it is."""


class SealedFile:
    """A file that a Parquet writer writes into; `end_piece` and `finish` say how far it is."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0
        self._checksum = 0
        self._pieces = bytearray()
        self._held: bytearray | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write, or hold what is the footer."""
        view = memoryview(data)
        self._at += view.nbytes
        if self._held is not None:
            self._held += view
        else:
            self._checksum = zlib.crc32(view, self._checksum)
            self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        """How far it is, in bytes."""
        return self._at

    def flush(self) -> None:
        """Nothing is held back but the footer."""

    def end_piece(self) -> None:
        """A row group has been written."""
        self._pieces += _PIECE.pack(self._at, self._checksum)
        self._checksum = 0

    def begin_footer(self) -> None:
        """All row groups have been written: what follows is the footer."""
        self._held = bytearray()

    def finish(self) -> int:
        """The footer is whole: write the seal and behind it the footer. How many bytes there are in all."""
        held = self._held
        assert held is not None, "a footer was written"
        number = len(self._pieces) // _PIECE.size
        head = _HEAD.pack(number, zlib.crc32(held[:-_TAIL]))
        checksum = zlib.crc32(head, zlib.crc32(self._pieces))
        seal = self._pieces + head + struct.pack("<I", checksum) + MAGIC
        self._file.write(seal + held)
        return self._at + len(seal)


class Seal(NamedTuple):
    """The seal of a file that is open."""

    file: Any
    name: object
    """What errors call it."""
    ends: tuple[int, ...]
    checksums: tuple[int, ...]

    def check(self, piece: int) -> None:
        """Read a row group. Raises `TraceError` if it is not what was written."""
        begin = self.ends[piece - 1] if piece else 0
        self.file.seek(begin)
        if zlib.crc32(self.file.read(self.ends[piece] - begin)) != self.checksums[piece]:
            raise damaged(self.name)


def seal_of(file: Any, name: object) -> Seal | None:
    """The seal of an open file, after a look at its footer; None if it has none.

    Raises `TraceError` if seal or footer are damaged. Whether there is a footer is for Parquet to say.
    """
    size = file.seek(0, 2)
    if size < _TAIL + _END.size:
        return None
    file.seek(size - _TAIL)
    length, _ = struct.unpack("<I4s", file.read(_TAIL))
    end = size - _TAIL - length
    if end < _END.size:
        return None
    file.seek(end - _END.size)
    last = file.read(_END.size)
    number, of_footer, checksum, magic = _END.unpack(last)
    if sum(one == other for one, other in zip(magic, MAGIC, strict=True)) < _ALIKE:
        return None
    begin = end - _END.size - number * _PIECE.size
    if begin < 0 or magic != MAGIC:
        raise damaged(name)
    file.seek(begin)
    pieces = file.read(number * _PIECE.size)
    file.seek(end)
    footer = file.read(length)
    if zlib.crc32(last[: _HEAD.size], zlib.crc32(pieces)) != checksum or zlib.crc32(footer) != of_footer:
        raise damaged(name)
    told = list(_PIECE.iter_unpack(pieces))
    if (told[-1][0] if told else 0) != begin:
        raise damaged(name)
    return Seal(file, name, tuple(at for at, _ in told), tuple(checksum for _, checksum in told))


def damaged(name: object) -> TraceError:
    """What is said of a file whose bytes are not those that were written."""
    return TraceError(
        f"{name} is damaged: its bytes are not those that were written. Restore it from a copy, or write the "
        "trace again."
    )
