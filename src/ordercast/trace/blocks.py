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
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.trace.schema import COLUMNS, OPTIONAL, About, Row, TraceError

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
def open_journal(path: Path) -> Iterator[Opened]:
    """Read a journal, for as long as its file is open."""
    with path.open("rb") as file:
        yield read_blocks(file, path)


def read_blocks(file: BinaryIO, path: Path) -> Opened:
    """Read the blocks of a file that is open; `path` names it in errors."""
    blocks = _contents(file, path)
    try:
        begin = next(blocks, None)
        opening = None if begin is None else _OPENING.decode(begin)
    except UNREADABLE as error:
        raise _no_journal(path) from error
    run, about = opening if isinstance(opening, tuple) else (opening, {})
    return Opened(run, about, _decoded(blocks, path))


def _decoded(blocks: Iterator[bytes], path: Path) -> Iterator[list[Row]]:
    for block in blocks:
        try:
            yield _rows(block)
        except UNREADABLE as error:
            raise TraceError(
                f"{path} holds rows of another form than ordercast.trace.schema.Row ({error}): read it with "
                "the version that wrote it."
            ) from error


def _rows(block: bytes) -> list[Row]:
    try:
        return _ROWS.decode(block)
    except msgspec.ValidationError:
        older = _OLDER_ROWS.decode(block)
        if not all(len(row) in _OLDER_WIDTHS for row in older):
            raise
        return msgspec.convert([(*row, *(None,) * (_WIDTH - len(row))) for row in older], list[Row])


def _contents(file: BinaryIO, path: Path) -> Iterator[bytes]:
    magic = file.read(len(MAGIC))
    if not MAGIC.startswith(magic):
        raise _no_journal(path)
    at = len(MAGIC)
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, checksum = _HEAD.unpack(head)
        block = file.read(length)
        if len(block) < length:
            return
        if not length or zlib.crc32(block) != checksum:
            if not any((*head, *block)) and not any(file.read()):
                return  # room that a machine which lost its power had reserved and not filled
            raise TraceError(
                f"{path} is damaged at byte {at}: restore it from a copy, or take it away and audit without "
                "the rows of that node."
            )
        at += _HEAD.size + length
        yield block


def _no_journal(path: Path) -> TraceError:
    return TraceError(f"{path} is no journal of ordercast: take it away if it is no part of the trace.")
