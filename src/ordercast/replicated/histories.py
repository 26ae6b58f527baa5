"""Histories that parted, where every partition goes on: which of those that replicas have are to be merged.

A history is a row of epochs, each of which is begun by one round and has an identifier that no other round
gives. Replicas whose histories end in the same epoch were in that round together, and whatever one of them
has carried out the others have got, so the furthest of these histories has it all. The same is true of a
history that has passed through the epoch in which another one ends. What is left are the *tips*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from ordercast.process_groups.views import Process
from ordercast.replicated.command import encode
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.notes import MOST_PASSED, Report, RoundId


class Tip(NamedTuple):
    """Where a history ends that no other one has in it."""

    head: Head
    passed: Sequence[int]
    """The epochs that it has passed through, the latest last."""


def tips(told: Mapping[Process, Report]) -> list[Tip]:
    """The histories that replicas have, without those that are a part of others, in ascending order."""
    furthest: dict[int, Tip] = {}
    for each in sorted(told):
        head = told[each].head
        if head is None:
            continue
        known = furthest.get(head.epoch)
        if known is None or head.position > known.head.position:
            furthest[head.epoch] = Tip(head, told[each].passed)
    found = [
        tip
        for epoch, tip in furthest.items()
        if not any(epoch in (START.epoch, *other.passed) for other in furthest.values() if other is not tip)
    ]
    return sorted(found, key=lambda tip: tip.head)


def epoch_of(round: RoundId) -> int:
    """The epoch that a round begins."""
    return int.from_bytes(hashlib.blake2b(encode(round), digest_size=8).digest(), "big") >> 2


def merged(parts: Sequence[Tip], epoch: int) -> Tip:
    """The history that follows from several, which are merged in an epoch of their own."""
    heads = [part.head for part in parts]
    head = Head(epoch, max(head.position for head in heads) + 1, crc32(encode(heads)))
    latest = zip(*(_padded(part.passed) for part in parts), strict=True)
    passed = [each for some in latest for each in some if each is not None]
    return Tip(head, [*reversed(list(dict.fromkeys(passed))[: MOST_PASSED - 1]), epoch])


def _padded(passed: Sequence[int]) -> list[int | None]:
    """The latest first."""
    return [*reversed(passed), *([None] * (MOST_PASSED - len(passed)))]
