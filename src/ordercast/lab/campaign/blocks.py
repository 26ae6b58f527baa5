"""Which seeds a task fuzzes: by arithmetic on ranges, so that no task carries the plan of all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

LEAST, MOST = 20, 1_000
"""Seeds of a block: some seconds of work to some minutes, which is what is lost when it is killed."""
FILES = 150
"""Blocks of a protocol, if that makes them no larger than `MOST`."""
_GRAIN = 10
"""Blocks hold a multiple of so many seeds, which people can read."""


class Stage(NamedTuple):
    """Seeds of one protocol that are fuzzed alike."""

    protocol: str
    nodes: tuple[int, int]
    """The fewest and the most nodes of a run."""
    round: int
    """0 is the seeds that were asked for; later rounds look near some of them."""
    seeds: range
    near: tuple[int, ...] = ()
    """Seeds of round 0 that are looked near, in turn."""

    def near_of(self, seed: int) -> int | None:
        """The seed that one of these looks near."""
        return self.near[(seed - self.seeds.start) % len(self.near)] if self.near else None


class Block(NamedTuple):
    """What one task fuzzes, and one file has the results of."""

    stage: Stage
    seeds: range


@dataclass(frozen=True)
class Work:
    """All that is to be done: a few ranges, however many seeds there are."""

    stretches: tuple[Block, ...]
    size: int
    """Seeds of a block; blocks begin at multiples of it."""

    def each(self) -> Iterator[Block]:
        """All blocks, in order."""
        for stage, seeds in self.stretches:
            for first in range(seeds.start // self.size * self.size, seeds.stop, self.size):
                yield Block(stage, range(max(first, seeds.start), min(first + self.size, seeds.stop)))

    @property
    def blocks(self) -> int:
        """How many blocks that makes."""
        return sum(1 for _ in self.each())

    @property
    def seeds(self) -> int:
        """How many seeds."""
        return sum(len(seeds) for _, seeds in self.stretches)

    def block(self, index: int) -> Block:
        """The block that a task of this number does."""
        return next(islice(self.each(), index, None))


def size_of(seeds: int) -> int:
    """How many seeds a block has, where a protocol has so many."""
    wanted = -(-seeds // (FILES * _GRAIN)) * _GRAIN
    return min(MOST, max(LEAST, wanted))


def left(asked: range, done: Iterable[range]) -> list[range]:
    """What of a range is in none of the others."""
    found = []
    at = asked.start
    for each in sorted(done, key=lambda each: each.start):
        if each.start > at:
            found.append(range(at, min(each.start, asked.stop)))
        at = max(at, each.stop)
        if at >= asked.stop:
            break
    if at < asked.stop:
        found.append(range(at, asked.stop))
    return [each for each in found if each]


Done = tuple[str, int, range]
"""Seeds that have results: their protocol, their round, and which they are."""


def work_left(stages: Iterable[Stage], done: Sequence[Done], size: int) -> Work:
    """What is left to do of some stages."""
    stretches = []
    for stage in stages:
        its = [seeds for protocol, at, seeds in done if (protocol, at) == (stage.protocol, stage.round)]
        stretches += [Block(stage, seeds) for seeds in left(stage.seeds, its)]
    return Work(tuple(stretches), size)
