"""Bytes with something changed, for the fuzzers of what is read from streams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Changes(NamedTuple):
    """How much is changed."""

    at_once: Sequence[int]
    """How many changes are made; one of these."""
    lengths: Sequence[int]
    """How many bytes are put in or taken away."""
    openings: Sequence[bytes]
    """What begins something nested, or ends a line: put in many times."""
    depths: Sequence[int]
    """How many times."""


def changed_bytes(chance: random.Random, data: bytes, changes: Changes) -> bytes:
    """Bytes with some changed, cut out, put in, repeated, or replaced by a number that is too large."""
    changed = bytearray(data)
    for _ in range(chance.choice(changes.at_once)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = chance.choice((0, 1, 0x0A, 0x7F, 0x80, 0xFF))
            case 2:
                del changed[at : at + chance.choice(changes.lengths)]
            case 3:
                changed[at:at] = chance.randbytes(chance.choice(changes.lengths))
            case 4:
                number: int = chance.choice((2**31 - 1, 2**32 - 1, 0, len(data)))
                changed[at : at + 4] = number.to_bytes(4, "big")
            case 5:
                changed[at:at] = chance.choice(changes.openings) * chance.choice(changes.depths)
            case _:
                changed[at:at] = changed[chance.randrange(len(changed) + 1) :][:64]
    return bytes(changed)
