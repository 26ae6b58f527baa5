"""Slots of a file: each has room for one record, and tells by a checksum whether it is whole.

A slot has four bytes that say of which file it is, the length of the record, its CRC-32, the record, and
zeros up to its size. A file of several, written in turn, always has one that a crash cannot have spoiled.
"""

from __future__ import annotations

import struct
from zlib import crc32

SLOT_SIZE = 4096
"""Bytes of a slot whose record fits into them."""
_HEAD = struct.Struct("<4sII")
OVERHEAD = _HEAD.size
"""Bytes in front of the record."""


def slot_of(magic: bytes, record: bytes, size: int = SLOT_SIZE) -> bytes:
    """A slot as it is written."""
    assert len(record) + OVERHEAD <= size, "a record has a bounded size"
    return (_HEAD.pack(magic, len(record), crc32(record)) + record).ljust(size, b"\0")


def record_in(magic: bytes, slot: bytes) -> bytes | None:
    """The record in a slot that was read; None if it is damaged, or of another file."""
    if len(slot) < OVERHEAD:
        return None
    found, length, checksum = _HEAD.unpack_from(slot)
    record = slot[OVERHEAD : OVERHEAD + length]
    if found != magic or len(record) != length or crc32(record) != checksum:
        return None
    return record
