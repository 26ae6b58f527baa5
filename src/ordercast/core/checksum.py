"""A checksum of rows, one after the other: tells whether what is sent again is what was sent before."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32


def checksum(rows: Iterable[bytes], so_far: int = 0) -> int:
    """Extend the checksum `so_far` by these rows; where a row ends counts, too."""
    for row in rows:
        so_far = crc32(row, (so_far + 1) & 0xFFFFFFFF)
    return so_far
