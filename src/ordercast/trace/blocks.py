"""The form of a journal: blocks of rows, one behind the other, each with its length and checksum.

A block is written by one system call and belongs to the kernel from then on: it survives the process,
however it ends, and not the machine. A process killed while it writes leaves a block cut off, and only
as the last one; reading stops there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.trace.schema import COLUMNS, OPTIONAL, About, Row, TraceError

if TYPE_CHECKING:
    from ordercast.storage import Location

MAGIC = b"OCJ1"
_HEAD = struct.Struct("<II")
_ROWS = msgspec.msgpack.Decoder(list[Row])
_OLDER_ROWS = msgspec.msgpack.Decoder(list[tuple[Any, ...]])
_WIDTH = len(COLUMNS) - 1
_OLDER_WIDTHS = range(_WIDTH - len(OPTIONAL), _WIDTH)
"""Values of a row; and of one from a version that did not have all the optional columns."""
_OPENING = msgspec.msgpack.Decoder(str | tuple[str, dict[str, str]])
"""A run's name, and what there is to say about it; journals of older versions have the name alone."""


class BlockEncoder:
    """Makes blocks, in one buffer that is used again and again."""

    def __init__(self) -> None:
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._buffer = bytearray(64 * 1024)

    def opening(self, run: str, about: About) -> bytes:
        """How a journal begins: what it is, and whose rows follow."""
        return MAGIC + self._block((run, dict(about)))

    def block(self, rows: Sequence[Row]) -> bytearray:
        """A block of rows. Good until the next one is asked for."""
        return self._block(rows)

    def _block(self, content: object) -> bytearray:
        buffer = self._buffer
        self._encode_into(content, buffer, _HEAD.size)
        with memoryview(buffer) as whole:
            _HEAD.pack_into(buffer, 0, len(buffer) - _HEAD.size, zlib.crc32(whole[_HEAD.size :]))
        return buffer


class Opened(NamedTuple):
    """A journal that can be read."""

    run: str | None
    """None if it was cut off before that."""
    about: About
    blocks: Iterator[list[Row]]
    """The blocks with the file's rows."""


@contextmanager
def open_journal(path: Location) -> Iterator[Opened]:
    """Read a journal, for as long as its file is open."""
    with path.open() as file:
        yield read_blocks(file, path)


def read_blocks(file: BinaryIO, path: object) -> Opened:
    """Read the blocks of a file that is open; `path` names it in errors."""
    blocks = _contents(file, path)
    begin = next(blocks, None)
    run, about = (None, {}) if begin is None else opening_of(begin, path)
    return Opened(run, about, _decoded(blocks, path))


def opening_of(block: bytes, path: object) -> tuple[str, dict[str, str]]:
    """What the first block of a journal says: the run's name, and what there is to say about it."""
    try:
        opening = _OPENING.decode(block)
    except UNREADABLE as error:
        raise no_journal(path) from error
    return opening if isinstance(opening, tuple) else (opening, {})


def _decoded(blocks: Iterator[bytes], path: object) -> Iterator[list[Row]]:
    for block in blocks:
        try:
            yield rows_of_block(block)
        except UNREADABLE as error:
            raise TraceError(
                f"{path} holds rows of another form than ordercast.trace.schema.Row ({error}): read it with "
                "the version that wrote it."
            ) from error


def rows_of_block(block: bytes) -> list[Row]:
    """The rows of a block. Raises one of `UNREADABLE`."""
    try:
        return _ROWS.decode(block)
    except msgspec.ValidationError:
        older = _OLDER_ROWS.decode(block)
        if not all(len(row) in _OLDER_WIDTHS for row in older):
            raise
        return msgspec.convert([(*row, *(None,) * (_WIDTH - len(row))) for row in older], list[Row])


def _contents(file: BinaryIO, path: object) -> Iterator[bytes]:
    magic = file.read(len(MAGIC))
    if not MAGIC.startswith(magic):
        raise no_journal(path)
    at = len(MAGIC)
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, checksum = _HEAD.unpack(head)
        block = file.read(length)
        if len(block) < length:
            if _is_whole(block, checksum):
                raise damaged(path, at)  # in its length: the block itself is here
            return
        if not length or zlib.crc32(block) != checksum:
            if not any((*head, *block)) and not any(file.read()):
                return  # room that a machine which lost its power had reserved and not filled
            raise damaged(path, at)
        at += _HEAD.size + length
        yield block


def _is_whole(rest: bytes, checksum: int) -> bool:
    """Whether what is left of a journal begins with a block of that checksum."""
    found = 0
    return any((found := zlib.crc32(rest[at : at + 1], found)) == checksum for at in range(len(rest)))


def damaged(path: object, at: int) -> TraceError:
    """What is said of a journal that is not what was written."""
    return TraceError(
        f"{path} is damaged at byte {at}: restore it from a copy, or take it away and audit without the "
        "rows of that node."
    )


def no_journal(path: object) -> TraceError:
    """What is said of a file that is none."""
    return TraceError(f"{path} is no journal of ordercast: take it away if it is no part of the trace.")
