"""How far the history of an object has come, and what is appended to it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Head(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A place in the history of an object. Of two replicas, the one with the later head is further."""

    epoch: int
    """No two histories have the same one, and each primary configuration's is later than that before it."""
    position: int
    """How many entries the history has up to here."""
    checksum: int
    """Of all that the history holds up to here."""


START = Head(0, 0, 0)
"""Where every history begins."""


class Entry(NamedTuple):
    """What one step of the history holds."""

    head: Head
    """Where the history is after it."""
    data: bytes
    """What a replica needs to apply it again."""
